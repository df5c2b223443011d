package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var bthCases = mostlyRC.Cases([]conformance.Case{{
	ID: "bth/tver/other-versions-dropped", Cite: ibta("", "bth/tver/1"),
	Title:   "A packet with another transport version is dropped",
	Sends:   "SENDs with TVer 1 to 15, then one with 0",
	Expects: "a response to the last only",
	Defects: []string{"BTHUnchecked"}, Run: onRC(func(c *Conn) {
		for v := range uint8(15) {
			c.expectDropped(c.peerSend(0, 16).WithTVer(v + 1))
		}
		c.expectAccepted(0)
	}),
}, {
	ID: "bth/op/other-services-to-rc-dropped", Cite: ibta("", "bth/op/1"),
	Title:   "A packet of another service that comes to an RC queue pair is dropped",
	Sends:   "SENDs and WRITEs of UC, RD, UD, XRC and of services that do not exist",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"BTHUnchecked"}, Run: onRC(func(c *Conn) {
		for _, service := range []ib.Transport{ib.UC, ib.RD, ib.UD, ib.Congestion, ib.XRC, 0xc0, 0xe0} {
			// Send each packet with the headers of RC, which a device that ignores
			// the service would execute, and with those of the service.
			for _, pkt := range []ib.Packet{ib.SendOnly(c.PeerPSN(0), Data(16)), ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16))} {
				c.expectDropped(pkt.On(service).WithBody(pkt.BodyBytes()).AckReq())
				c.expectDropped(pkt.On(service).AckReq())
			}
		}
		c.expectAccepted(0)
	}),
}, {
	ID: "bth/op/other-services-to-uc-dropped", Cite: ibta("", "bth/op/1"), Needs: verbs.CapUC, Labels: labelUC,
	Title:   "A packet of another service that comes to a UC queue pair is dropped",
	Sends:   "SENDs and WRITEs of RC, RD, UD and XRC, then a UC SEND",
	Expects: "a completion of the last only",
	Defects: []string{"BTHUnchecked"}, Run: onConn(Setup{qpType: verbs.QPTypeUC, Receives: 2}, func(c *Conn) {
		for _, service := range []ib.Transport{ib.RC, ib.RD, ib.UD, ib.XRC} {
			c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).On(service))
			c.expectDropped(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)).On(service))
		}
		c.expectUCDelivery(0, 24, 1)
	}),
}, {
	ID: "bth/op/other-services-to-ud-dropped", Cite: ibta("", "bth/op/1"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A packet of a connected service that comes to a UD queue pair is dropped",
	Sends:   "SENDs of RC, UC, RD and XRC with a DETH, then a datagram",
	Expects: "a completion of the last only",
	Defects: []string{"BTHUnchecked"}, Run: onUD(2, func(d *udPort) {
		for _, service := range []ib.Transport{ib.RC, ib.UC, ib.RD, ib.XRC} {
			d.expectDropped(d.datagram(Data(16)).On(service))
			d.expectDropped(d.datagram(Data(16)).On(service).AckReq())
		}
		d.expectAccepted(0)
	}),
}, {
	ID: "bth/op/reserved-rc-opcodes-refused", Cite: ibta("", "bth/op/2"),
	Title:   "An RC request with a reserved opcode is refused as invalid, and ends the connection",
	Sends:   "opcodes 0x15, 0x18 to 0x1b, 0x1e and 0x1f, 0x1c and 0x1d where the device does not claim them, each on a separate connection with the expected PSN",
	Expects: "a NAK for an invalid request with that PSN, and a queue pair in the error state",
	Defects: []string{"ReservedOpSilent"}, Run: OnPort(func(p *Port) {
		reserved := []ib.Opcode{0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f}
		if !p.Caps.Has(verbs.CapFlush) {
			reserved = append(reserved, ib.OpFlush)
		}
		if !p.Caps.Has(verbs.CapAtomicWrite) {
			reserved = append(reserved, ib.OpAtomicWrite)
		}
		eachConn(p, Setup{Receives: 1}, reserved, func(c *Conn, op ib.Opcode) {
			c.exchange(c.peerSend(0, 16).WithOpcode(op), c.deviceNak(0, ib.NakInvalidRequest, 0))
			c.AwaitState(c.QP, verbs.QPStateErr)
		})
	}),
}, {
	ID: "bth/op/reserved-uc-opcodes-dropped", Cite: ibta("", "bth/op/3"), Needs: verbs.CapUC, Labels: labelUC,
	Title:   "A UC packet with a reserved opcode is dropped, and the queue pair stays in RTS",
	Sends:   "opcodes 0x2c to 0x3f with the expected PSN, then a SEND",
	Expects: "a completion of the last only",
	Defects: []string{"UnknownOpFatal"}, Run: onConn(Setup{qpType: verbs.QPTypeUC, Receives: 2}, func(c *Conn) {
		for op := ib.UC.Op(ib.OpReadRequest); op <= 0x3f; op++ {
			c.expectDropped(ib.Op(op).WithPSN(c.PeerPSN(0)).WithPayload(Data(16)))
		}
		c.ExpectState(c.QP, verbs.QPStateRTS)
		c.expectUCDelivery(0, 24, 1)
	}),
}, {
	ID: "bth/op/reserved-ud-opcodes-dropped", Cite: ibta("", "bth/op/3"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A UD packet with a reserved opcode is dropped, and the queue pair stays in RTS",
	Sends:   "all opcodes of UD but 0x64 and 0x65, with the header of a datagram, then a datagram",
	Expects: "a completion of the last only",
	Defects: []string{"UnknownOpFatal"}, Run: onUD(2, func(d *udPort) {
		for op := ib.Opcode(ib.UD); op < 0x80; op++ {
			if op != ib.OpUDSendOnly && op != ib.OpUDSendOnlyImm {
				d.expectDropped(d.datagram(Data(16)).WithOpcode(op))
			}
		}
		d.ExpectState(d.QP, verbs.QPStateRTS)
		d.expectAccepted(0)
	}),
}, {
	ID: "bth/qpn/unknown-number-dropped", Cite: ibta("", "bth/qpn/1"),
	Title:   "A packet for a queue pair that does not exist is dropped, and reaches no other queue pair",
	Sends:   "valid SENDs for the device's only connection with other QPNs, among them that of a destroyed queue pair",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"QPNLoose"}, Run: onRC(func(c *Conn) {
		gone := c.connect(Setup{})
		number := uint32(gone.QP.QPN())
		c.Must("a queue pair that is destroyed", gone.QP.Close())
		c.Sync() // creates the synchronization queue pair
		used := []uint32{uint32(c.QP.QPN()), uint32(c.SyncQP().QPN())}
		for _, qpn := range []uint32{number, 0xabcdef, used[0] ^ 0x800000, used[0] ^ 0x10000, 0x7fffff} {
			if qpn != used[0] && qpn != used[1] {
				c.expectDropped(c.peerSend(0, 16).To(qpn))
			}
		}
		c.expectAccepted(0)
	}),
}, {
	ID: "bth/qpn/multicast-number-means-nothing-to-rc", Cite: ibta("", "bth/qpn/2"),
	Title:   "An RC packet for the multicast QPN is dropped",
	Sends:   "a SEND and a WRITE for queue pair 0xffffff",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"QPNLoose"}, Run: onRC(func(c *Conn) {
		c.expectDropped(c.peerSend(0, 16).To(uint32(verbs.MulticastQPN)))
		c.expectDropped(c.peerWrite(0, 16).To(uint32(verbs.MulticastQPN)))
		c.expectAccepted(0)
	}),
}, {
	ID:   "bth/qpn/multicast-number-at-a-unicast-address-dropped",
	Cite: ibta("", "bth/qpn/2"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A datagram for the multicast QPN at a unicast address is dropped",
	Sends:   "a datagram for queue pair 0xffffff at the device's address, then one for its only datagram queue pair",
	Expects: "a completion of the second only",
	Defects: []string{"QPNLoose"}, Run: onUD(2, func(d *udPort) {
		d.expectDropped(d.datagram(Data(16)).To(uint32(verbs.MulticastQPN)))
		d.expectAccepted(0)
	}),
}, {
	ID: "bth/len/packet-that-ends-in-its-headers-dropped", Cite: ibta("", "bth/len/1"),
	Title:   "A packet with truncated extension headers is dropped",
	Sends:   "requests of all kinds that have extension headers, cut off within these after every fourth byte",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"MissingHeadersZero"}, Run: onRC(func(c *Conn) {
		requests := []ib.Packet{
			ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 0), nil),
			ib.WriteFirst(c.PeerPSN(0), c.RETH(0, 2048), nil),
			ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 0), 7, nil),
			c.peerRead(0, 8),
			ib.SendOnlyImm(c.PeerPSN(0), 7, nil),
		}
		// A device may refuse requests that it does not support.
		if c.Caps.Has(verbs.CapAtomics) {
			requests = append(requests, ib.FetchAdd(c.PeerPSN(0), c.RETH(0, 8), 1), ib.CompareSwap(c.PeerPSN(0), c.RETH(0, 8), 1, 2))
		}
		if c.Caps.Has(verbs.CapSendInv) {
			requests = append(requests, ib.SendOnlyInv(c.PeerPSN(0), 7, nil))
		}
		for _, whole := range requests {
			body := whole.BodyBytes()
			for n := 0; n < len(body); n += 4 {
				c.expectDropped(whole.WithBody(body[:n]).AckReq())
			}
		}
		c.expectAccepted(0)
	}),
}})
