package roce

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var bthCases = mostlyRC.Cases([]conformance.Case{{
	ID: "bth/tver/other-versions-dropped", Cite: ibta("C17-21, CA17-23, CA17-39", "bth/tver/1"),
	Title:   "A packet with another transport version is dropped",
	Sends:   "SENDs with TVer 1 to 15, then one with 0",
	Expects: "a response to the last only",
	Defects: []string{"BTHUnchecked"}, Run: acceptsAfter(func(c *Conn) {
		for v := range uint8(15) {
			c.expectDropped(c.peerSend(0, 16).WithTVer(v + 1))
		}
	}),
}, {
	ID: "bth/op/other-services-to-rc-dropped", Cite: ibta("", "bth/op/1"),
	Title:   "A packet of another service for an RC queue pair is dropped",
	Sends:   "SENDs and WRITEs of UC, RD, UD, XRC and of services that do not exist",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"BTHUnchecked"}, Run: acceptsAfter(func(c *Conn) {
		for _, service := range []ib.Transport{ib.UC, ib.RD, ib.UD, ib.Congestion, ib.XRC, 0xc0, 0xe0} {
			// Send each packet with the headers of RC, which a device that ignores
			// the service would execute, and with those of the service.
			for _, pkt := range []ib.Packet{ib.SendOnly(c.PeerPSN(0), Data(16)), ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16))} {
				c.expectDropped(pkt.On(service).WithBody(pkt.BodyBytes()).AckReq())
				c.expectDropped(pkt.On(service).AckReq())
			}
		}
	}),
}, {
	ID: "bth/op/other-services-to-uc-dropped", Cite: ibta("", "bth/op/1"), Needs: verbs.CapUC, Labels: labelUC,
	Title:   "A packet of another service for a UC queue pair is dropped",
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
	Title:   "A packet of a connected service for a UD queue pair is dropped",
	Sends:   "SENDs of RC, UC, RD and XRC with a DETH, then a datagram",
	Expects: "a completion of the last only",
	Defects: []string{"BTHUnchecked"}, Run: onUD(2, func(d *udPort) {
		for _, service := range []ib.Transport{ib.RC, ib.UC, ib.RD, ib.XRC} {
			d.expectDropped(d.datagram(Data(16)).On(service))
			d.expectDropped(d.datagram(Data(16)).On(service).AckReq())
		}
		d.expectAccepted()
	}),
}, {
	ID: "bth/op/reserved-rc-opcodes-refused", Cite: ibta("", "bth/op/2"),
	Title:   "An RC request with a reserved opcode is refused as invalid, and ends the connection",
	Sends:   "opcodes 0x15, 0x18 to 0x1b, 0x1e and 0x1f, FLUSH, ATOMIC WRITE, SEND with invalidate and atomics where the device does not claim them, each on a separate connection with the expected PSN",
	Expects: "a NAK for an invalid request with that PSN, and a queue pair in the error state",
	Defects: []string{"ReservedOpSilent"}, Run: OnPort(func(p *Port) {
		reserved := []ib.Opcode{0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f}
		if !p.Caps.Has(verbs.CapFlush) {
			reserved = append(reserved, ib.OpFlush)
		}
		if !p.Caps.Has(verbs.CapAtomicWrite) {
			reserved = append(reserved, ib.OpAtomicWrite)
		}
		if !p.Caps.Has(verbs.CapSendInv) {
			reserved = append(reserved, ib.OpSendOnlyInv)
		}
		eachConn(p, Setup{Receives: 1}, reserved, func(c *Conn, op ib.Opcode) {
			c.exchange(c.peerSend(0, 16).WithOpcode(op), c.deviceNak(0, ib.NakInvalidRequest, 0))
			c.AwaitState(c.QP, verbs.QPStateErr)
		})
		if !p.Caps.Has(verbs.CapAtomics) {
			eachConn(p, Setup{access: allAccess &^ verbs.AccessRemoteAtomic}, []remoteOp{addOp, swapOp}, func(c *Conn, op remoteOp) {
				c.exchange(op.packet(c.PeerPSN(0), wordRETH(c.TargetMem, 0)), c.deviceNak(0, ib.NakInvalidRequest, 0))
				c.AwaitState(c.QP, verbs.QPStateErr)
			})
		}
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
		d.expectAccepted()
	}),
}, {
	ID: "bth/qpn/unknown-number-dropped", Cite: ibta("CA17-23", "bth/qpn/1", "pkt/addr/5"),
	Title:   "A packet for a queue pair that does not exist is dropped, and reaches no other queue pair",
	Sends:   "valid SENDs for the device's only connection with other QPNs, among them 0 and that of a destroyed queue pair",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"QPNLoose"}, Run: acceptsAfter(func(c *Conn) {
		destroyed := c.connect(Setup{})
		number := uint32(destroyed.QP.QPN())
		c.Must("a queue pair that is destroyed", destroyed.QP.Close())
		c.Sync() // creates the synchronization queue pair
		used := []uint32{uint32(c.QP.QPN()), uint32(c.syncConn.qp.QPN())}
		for _, qpn := range []uint32{number, 0, 0xabcdef, used[0] ^ 0x800000, used[0] ^ 0x10000, 0x7fffff} {
			if qpn != used[0] && qpn != used[1] {
				c.expectDropped(c.peerSend(0, 16).To(qpn))
			}
		}
	}),
}, {
	ID: "bth/qpn/multicast-number-means-nothing-to-rc", Cite: ibta("", "bth/qpn/2"),
	Title:   "An RC packet for the multicast QPN is dropped",
	Sends:   "a SEND and a WRITE for queue pair 0xffffff",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"QPNLoose"}, Run: acceptsAfter(func(c *Conn) {
		c.expectDropped(c.peerSend(0, 16).To(uint32(verbs.MulticastQPN)))
		c.expectDropped(c.peerWrite(0, 16).To(uint32(verbs.MulticastQPN)))
	}),
}, {
	ID:   "bth/qpn/multicast-number-at-a-unicast-address-dropped",
	Cite: ibta("", "bth/qpn/2"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A datagram for the multicast QPN at a unicast address is dropped",
	Sends:   "a datagram for queue pair 0xffffff at the device's address, then one for its only datagram queue pair",
	Expects: "a completion of the second only",
	Defects: []string{"QPNLoose"}, Run: onUD(2, func(d *udPort) {
		d.expectDropped(d.datagram(Data(16)).To(uint32(verbs.MulticastQPN)))
		d.expectAccepted()
	}),
}, {
	ID: "bth/len/packet-that-ends-in-its-headers-dropped", Cite: ibta("C17-21, CA17-39", "bth/len/1"),
	Title:   "A packet with truncated extension headers is dropped",
	Sends:   "requests of all kinds that have extension headers, cut off within these after every fourth byte",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"MissingHeadersZero"}, Run: acceptsAfter(func(c *Conn) {
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
	}),
}, {
	ID: "bth/resv/sent-as-zero", Cite: ibta("", "bth/resv/1"),
	Title:   "Reserved bits of the BTH are sent as 0",
	Sends:   "requests that are acknowledged, answered and refused, and responses to requests of the device",
	Expects: "thirteen bits of 0 in every packet",
	Defects: []string{"ReservedBitsSent"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInAllPackets(ib.Packet{}.WithReserved(0, 0))
	}),
}, {
	ID: "bth/resv/ignored-on-receipt", Cite: ibta("", "bth/resv/2"),
	Title:   "Reserved bits of the BTH are ignored on receipt",
	Sends:   "SENDs, and an ACK, with the reserved bits of byte 4, of byte 8, and of both set",
	Expects: "an ACK and a completion for each SEND, and the completion of the acknowledged request",
	Defects: []string{"ReservedBitsChecked"}, Run: onRC(func(c *Conn) {
		for n, bits := range [][2]uint8{{0x3f, 0}, {0, 0x7f}, {0x3f, 0x7f}} {
			c.expectAccepted(n, func(p ib.Packet) ib.Packet { return p.WithReserved(bits[0], bits[1]) })
		}
		c.request(0, c.SendWR(100, 8))
		c.completeWith(c.peerAck(0, 1).WithReserved(0x3f, 0x7f), 100)
	}),
}, {
	ID: "bth/mig/either-value-accepted", Cite: ibta("", "bth/mig/1"),
	Title:   "A connection without an alternate path accepts MigReq 0 and 1",
	Sends:   "SENDs with MigReq 0, 1, 0 and 1, and ACKs with either; UC SENDs with either",
	Expects: "a completion of each SEND, an ACK for those of RC, and the completion of the acknowledged request",
	Defects: []string{"DropMigReqZero"}, Run: onRC(func(c *Conn) {
		for n := range 4 {
			mig := n%2 == 1
			withMigReq := func(p ib.Packet) ib.Packet { p.BTH.MigReq = &mig; return p }
			c.expectAccepted(n, withMigReq)
			c.request(n, c.SendWR(100, 8))
			c.completeWith(withMigReq(c.peerAck(n, uint32(n+1))), 100)
		}
		if !c.Caps.Has(verbs.CapUC) {
			return
		}
		uc := c.connect(Setup{qpType: verbs.QPTypeUC, Receives: 2})
		for n, mig := range []bool{false, true} {
			send := ucSendOnly(uc.PeerPSN(n), 24)
			send.BTH.MigReq = &mig
			uc.Send(send)
			uc.ExpectRecv(uint64(n+1), 24)
		}
	}),
}, {
	ID: "bth/se/only-on-the-last-packet-of-a-solicited-send", Cite: ibta("", "bth/se/1"),
	Title:   "SE is set in the last packet of a solicited message, and in no other",
	Sends:   "ACKs for SENDs and a WRITE with immediate data of three packets and of one, solicited and not",
	Expects: "SE on the LAST or ONLY packet of the solicited ones only",
	Defects: []string{"SolicitedEverywhere"}, Run: onConn(Setup{}, func(c *Conn) {
		for _, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWriteImm} {
			for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited} {
				c.expectSE(op, flags, flags != 0)
			}
		}
	}),
}, {
	ID: "bth/se/never-on-a-plain-write", Cite: ibta("", "bth/se/1"),
	Title:   "A WRITE without immediate data and a READ never carry SE, even if they are posted as solicited",
	Sends:   "ACKs for WRITEs of three packets and of one that were posted as solicited",
	Expects: "no packet with SE; the post may be refused",
	Defects: []string{"SolicitedEverywhere"}, Run: onConn(Setup{}, func(c *Conn) {
		wr := c.WriteWR(1, 8)
		wr.Flags = verbs.SendSolicited
		// A device may reject the flag here: it is defined for SENDs and WRITEs with
		// immediate data only.
		if _, err := c.QP.PostSend([]verbs.SendWR{wr}); errors.Is(err, verbs.ErrInvalid) {
			c.expectSilence(silencePeriod)
			return
		}
		c.expect(c.wantWrite(0, 8)[0].NoSE())
		c.Send(c.peerAck(0, 1))
		c.expectSE(verbs.OpRDMAWrite, verbs.SendSolicited, false)
	}),
}, {
	ID: "bth/se/solicited-message-raises-the-event", Cite: ibta("C11-31, C11-32", "bth/se/2"),
	Title:   "A message with SE raises the event of a queue that is armed for solicited completions",
	Sends:   "a SEND, a SEND with immediate data and a WRITE with immediate data, of one packet and of two, with SE on the last",
	Expects: "a completion and an event for each",
	Defects: []string{"SolicitedInverted"}, Run: OnPort(func(p *Port) {
		c, events := p.connectWithChannel(Setup{Receives: 6, recvLen: 2048})
		for i, message := range [][]ib.Packet{
			{c.peerSend(0, 16)},
			{ib.SendFirst(c.PeerPSN(1), Data(1024)), ib.New(ib.OpSendLast, c.PeerPSN(2), Data(16)).AckReq()},
			{ib.WriteOnlyImm(c.PeerPSN(3), c.RETH(0, 16), 7, Data(16)).AckReq()},
			{ib.New(ib.OpSendOnlyImm, c.PeerPSN(4), Data(16)).WithImm(7).AckReq()},
			{ib.SendFirst(c.PeerPSN(5), Data(1024)), ib.New(ib.OpSendLastImm, c.PeerPSN(6), Data(16)).WithImm(7).AckReq()},
			{ib.WriteFirst(c.PeerPSN(7), c.RETH(0, 1040), Data(1024)), ib.New(ib.OpWriteLastImm, c.PeerPSN(8), Data(16)).WithImm(7).AckReq()},
		} {
			c.armCQ(true)
			last := len(message) - 1
			message[last] = message[last].SE()
			c.Send(message...)
			c.expectCQEvent(events)
			c.ExpectRecv(uint64(i+1), last*1024+16)
		}
	}),
}, {
	ID: "bth/se/unsolicited-message-raises-none", Cite: ibta("C11-31, C11-32", "bth/se/2"),
	Title:   "A message without SE does not raise the event of a queue that is armed for solicited completions",
	Sends:   "a SEND without SE, then one with it",
	Expects: "two completions, one event after the second",
	Defects: []string{"SolicitedInverted"}, Run: OnPort(func(p *Port) {
		c, events := p.connectWithChannel(Setup{Receives: 2})
		c.armCQ(true)
		c.expectAccepted(0)
		c.Sync()
		c.expectNoCQEvent(events)
		c.expectAccepted(1, ib.Packet.SE)
		c.expectCQEvent(events)
	}),
}, {
	ID: "bth/se/last-packet-decides", Cite: ibta("C11-31, C11-32", "bth/se/2"),
	Title:   "SE in the last packet of a message decides on the solicited event, in all services",
	Sends:   "messages of each service with SE in the last packet, in the first only and in none, with and without immediate data",
	Expects: "an event for those with SE in the last packet, and for no other",
	Defects: []string{"SolicitedInverted", "DatagramsSolicited", "XRCNeverSolicited"}, Run: OnPort(func(p *Port) {
		events := p.useCompChannel()
		for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
			if p.Caps.Has(capOf[kind]) {
				p.connect(Setup{qpType: kind, Receives: 6, recvLen: 2 * MTU}).checkSolicited(kind, events)
			}
		}
		if p.Caps.Has(verbs.CapXRC) {
			x := p.newXRCTarget()
			send := ib.SendOnly(x.PeerPSN(0), Data(16)).OnXRC(x.srqs[0].Number()).AckReq()
			p.armCQ(true)
			x.exchange(send, x.deviceAck(0, 1).On(ib.XRC))
			x.expectDelivered(0, 16)
			p.expectNoCQEvent(events)
			x.exchange(send.WithPSN(x.PeerPSN(1)).SE(), x.deviceAck(1, 2).On(ib.XRC))
			p.expectCQEvent(events)
		}
	}),
}, {
	ID: "bth/ackreq/zero-on-answers", Cite: ibta("", "bth/ackreq/1"), Needs: verbs.CapAtomics,
	Title:   "AckReq is 0 in responses",
	Sends:   "requests that are acknowledged, answered and refused, an atomic among them",
	Expects: "AckReq 0 in every answer",
	Defects: []string{"AckReqOnResponses"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.exchange(ib.FetchAdd(c.PeerPSN(0), c.RETH(0, 8), 1).AckReq(), ib.Op(ib.OpAtomicAcknowledge).NoAckReq())
		c.Attr.RQPSN = uint32(c.PeerPSN(1)) // continue after the atomic
		for _, pkt := range c.variedPackets() {
			if info, _ := pkt.Info(); info.Response {
				c.checkPacket(ib.Packet{}.NoAckReq(), pkt)
			}
		}
	}),
}, {
	ID:   "bth/ackreq/zero-on-datagrams",
	Cite: ibta("", "bth/ackreq/2"), Level: conformance.Should, Needs: verbs.CapUD, Labels: labelUD,
	Title:   "AckReq is 0 in datagrams",
	Sends:   "nothing",
	Expects: "AckReq 0 in datagrams with and without immediate data",
	Defects: []string{"UnreliableAckReq"}, Run: onUD(0, func(d *udPort) {
		d.post(verbs.OpSend, 16)
		d.expectPacket(ib.Op(ib.OpUDSendOnly).NoAckReq())
		d.post(verbs.OpSendImm, 16)
		d.expectPacket(ib.Op(ib.OpUDSendOnlyImm).NoAckReq())
	}),
}, {
	ID:   "bth/ackreq/zero-on-mads",
	Cite: ibta("", "bth/ackreq/2"), Level: conformance.Should, Needs: verbs.CapCM, Labels: labelCM,
	Title:   "AckReq is 0 in MADs of the communication manager",
	Sends:   "a REQ for a service without a listener",
	Expects: "AckReq 0 in the REJ",
	Defects: []string{"GSIAckReq"}, Run: OnPort(func(p *Port) {
		p.SendPacket(ib.CM(0x11, p.cmRequest(cmClosedPort, 0x1001)))
		pkt, _ := p.cmExpect(ib.REJ{})
		p.checkPacket(ib.Packet{}.NoAckReq(), pkt)
	}),
}})

// expectSE has the device send messages of three packets and of one, with this opcode and flags. It
// fails the case unless SE is lastSE in the last packet of each message, and 0 in the others.
func (c *Conn) expectSE(op verbs.WROpcode, flags verbs.SendFlags, lastSE bool) {
	for _, n := range []int{2500, 16} {
		wr := c.WriteWR(7, n)
		wr.Opcode, wr.Flags, wr.Imm = op, flags|verbs.SendSignaled, 5
		c.PostSend(c.QP, wr)
		all := c.nextPackets(ib.Packets(n, MTU))
		for i, pkt := range all {
			se := lastSE && i == len(all)-1
			c.Check(*pkt.BTH.SE == se, fmt.Sprintf("%v with SE %v", pkt.Opcode(), se), "%v", pkt)
		}
		c.completeWith(ib.Ack(all[len(all)-1].PSN(), 1), 7)
	}
}

// checkSolicited sends six messages, without and with immediate data, with SE in no packet, in the
// first or in the last. The case fails unless exactly those with SE in the last packet raise an
// event.
func (c *Conn) checkSolicited(kind verbs.QPType, events verbs.CompChannel) {
	psn, recvID := 0, uint64(0)
	for _, se := range []struct{ first, last bool }{{}, {first: true}, {last: true}} {
		for _, imm := range []bool{false, true} {
			message := c.sendOf(kind, psn, imm)
			// The only packet of a datagram is its last.
			message[0].BTH.SE = &se.first
			message[len(message)-1].BTH.SE = &se.last
			psn, recvID = psn+len(message), recvID+1
			c.armCQ(true)
			c.Send(message...)
			c.ExpectCompletion(recvID, verbs.WCSuccess)
			if se.last {
				c.expectCQEvent(events)
			} else {
				c.expectNoCQEvent(events)
			}
			c.Sync()
			c.skipped = nil // discards the ACKs of RC
		}
	}
}

// sendOf returns a SEND to a queue pair of this type: one packet on UD, else two. The peer's k-th
// PSN is that of the first packet.
func (c *Conn) sendOf(kind verbs.QPType, k int, imm bool) []ib.Packet {
	message := ib.Send(c.PeerPSN(k), Data(MTU+16), MTU)
	if kind == verbs.QPTypeUD {
		message = []ib.Packet{ib.Datagram(c.PeerPSN(k), udQKey, udPeerQPN, Data(16))}
	}
	if last := &message[len(message)-1]; imm {
		*last = last.WithOpcode(last.Opcode() + 1).WithImm(7) // the next opcode is that with immediate data
	}
	for i := range message {
		if kind == verbs.QPTypeUC {
			message[i] = message[i].On(ib.UC)
		}
	}
	return message
}
