package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var readCases = overRC.Cases([]conformance.Case{{
	ID:    "rc/read/response-is-cut-at-the-path-mtu",
	Title: "A READ up to the path MTU is answered by RESPONSE_ONLY, a longer one by FIRST, MIDDLEs and LAST, all full but the last",
	Cite:  ibta("9.4.4", "roce/rc/read/1"), Defects: []string{"AETHInMiddle"},
	Sends:   "READs of 1 byte, of one and two path MTUs, of one byte more, and of 2500 bytes",
	Expects: "packets of these kinds, full but for the last",
	Run: onConn(Setup{}, func(c *Conn) {
		psn := c.PeerPSN(0)
		for _, n := range []int{1, MTU, MTU + 1, 2 * MTU, 2*MTU + 1, 2500} {
			c.Send(ib.ReadRequest(psn, c.RETH(3, n)))
			for _, want := range ib.ReadResponses(psn, ib.AnyMSN, c.TargetMem.Buf[3:][:n], MTU) {
				got := c.expect(ib.Op(want.Opcode()))
				c.Check(len(got.Payload) == len(want.Payload), fmt.Sprintf("%d bytes of %d in it", len(want.Payload), n), "%v", got)
			}
			psn = psn.Add(ib.Packets(n, MTU))
		}
	}),
}, {
	ID:    "rc/read/aeth-in-all-but-middle",
	Title: "READ responses FIRST, LAST and ONLY carry an AETH, MIDDLE carries none",
	Cite:  ibta("9.4.4", "roce/rc/read/2"), Defects: []string{"AETHInMiddle"},
	Sends:   "a READ of four packets, and one of a single packet",
	Expects: "the data of MIDDLEs begin after the BTH, those of the others after an AETH that acknowledges",
	Run: onConn(Setup{}, func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), c.RETH(0, 4*MTU)), ib.ReadRequest(c.PeerPSN(4), c.RETH(0, 4)))
		for i, want := range append(ib.ReadResponses(c.PeerPSN(0), ib.AnyMSN, c.TargetMem.Buf[:4*MTU], MTU),
			ib.ReadResponseOnly(c.PeerPSN(4), ib.AnyMSN, c.TargetMem.Buf[:4])) {
			got := c.expect(want)
			// If the payload was parsed as an AETH, the MSN would be too large.
			c.Check(got.AETH == nil || got.MSN() <= 2, "an AETH", "packet %d: %v", i, got)
		}
	}),
}, {
	ID:    "rc/read/response-psns-count-up-from-the-request",
	Title: "The PSNs of READ responses increase by one from that of the request",
	Cite:  ibta("", "roce/rc/read/3"), Defects: []string{"ReadPSNStuck"},
	Sends:   "a READ of four packets whose PSNs wrap around 2^24",
	Expects: "responses with PSNs 16777214, 16777215, 0 and 1",
	Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RQPSN = 0xfffffe }}, func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), c.RETH(0, 4*MTU)))
		for i := range 4 {
			c.expect(ib.Packet{}.WithPSN(c.PeerPSN(i)))
		}
	}),
}, {
	ID:    "rc/read/of-nothing-looks-at-no-key",
	Title: "A READ of no bytes is answered without checking its key and address",
	Cite:  ibta("C9-88", "roce/rc/read/4"), Defects: []string{"ZeroLengthChecksKey"},
	Sends:   "a READ of no bytes with a key that does not exist, and an invalid address",
	Expects: "a RESPONSE_ONLY without payload",
	Run: onConn(Setup{}, func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), ib.At(uint64(3), uint32(unknownKey(c.TargetMem.RKey())), 0)))
		c.expect(ib.ReadResponseOnly(c.PeerPSN(0), ib.AnyMSN, []byte{}))
	}),
}, {
	ID:    "rc/read/of-nothing-can-be-posted",
	Title: "A READ of no bytes can be posted, is sent and succeeds",
	Cite:  ibta("C9-88", "roce/rc/read/4"), Defects: []string{"ZeroReadFails"},
	Sends:   "posts a READ without local memory, and answers it with a RESPONSE_ONLY without payload",
	Expects: "a READ_REQUEST of length 0, and SUCCESS",
	Run: onConn(Setup{}, func(c *Conn) {
		c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, Remote: rdmaRemote})
		c.expect(ib.ReadRequest(c.DevicePSN(0), ib.RETH{Len: new(uint32(0))}))
		c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, nil))
		c.ExpectCompletion(1, verbs.WCSuccess)
	}),
}, {
	ID:    "rc/read/needs-the-right-of-qp-and-region",
	Title: "A READ needs the remote read right from the QP and from the region",
	Cite:  ibta("", "roce/rc/read/22"), Defects: []string{"RightsIgnored"},
	Sends:   "a READ to a QP without the right, and one of a region without it",
	Expects: "a NAK for an invalid request, a NAK for a remote access error, and no data",
	Run: OnPort(func(p *Port) {
		const noRead = allAccess &^ verbs.AccessRemoteRead
		c := p.connect(Setup{access: noRead})
		c.Send(ib.ReadRequest(c.PeerPSN(0), rethFor(c.Memory(64, allAccess), 0, 8)))
		c.expectNak(c.PeerPSN(0), ib.NakInvalidRequest)
		c = c.secondConn(Setup{})
		c.Send(ib.ReadRequest(c.PeerPSN(0), rethFor(c.Memory(64, noRead), 0, 8)))
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID:    "rc/read/refused-without-responder-resources",
	Title: "A responder with max_dest_rd_atomic 0 refuses READs as invalid requests",
	Cite:  ibta("", "roce/rc/read/17"), Defects: []string{"ZeroDepthIsOne"},
	Sends:   "a READ to a QP with max_dest_rd_atomic 0",
	Expects: "a NAK for an invalid request, and no data",
	Run: onConn(Setup{Modify: withResponderResources(0)}, func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), c.RETH(0, 8)))
		c.expectNak(c.PeerPSN(0), ib.NakInvalidRequest)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID:    "rc/read/refused-beyond-responder-resources",
	Title: "A READ beyond max_dest_rd_atomic is refused as an invalid request while the others are not answered",
	Cite:  ibta("", "roce/rc/read/18"), Defects: []string{"NoRdAtomicLimit"},
	Sends:   "to a QP with max_dest_rd_atomic 4: a READ of 1 MiB and at once four more of 8 bytes",
	Expects: "a NAK for an invalid request with the PSN of the fifth, and no response to it",
	Run: onConn(Setup{Modify: withResponderResources(4)}, func(c *Conn) {
		fifth := c.sendLongReads(3)
		c.Send(ib.ReadRequest(fifth, c.RETH(0, 8)))
		c.expectNakAfterReads(fifth)
	}),
}, {
	ID:    "rc/read/requester-keeps-to-max-rd-atomic",
	Title: "A requester has at most max_rd_atomic READs and atomics outstanding",
	Cite:  ibta("11.2.4.2", "roce/rc/read/16"), Defects: []string{"RdAtomicRoundsUp"},
	Sends:   "posts six READs (every second an atomic, if the device has them) with max_rd_atomic 3, and answers one after the other",
	Expects: "three requests at first, and one more for each answer",
	Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.MaxRdAtomic = 3 }}, func(c *Conn) {
		const all, most = 6, 3
		for i := range all {
			wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.LocalMem.SGL(8*i, 8), Remote: rdmaRemote}
			if i%2 == 1 && c.Caps.Has(verbs.CapAtomics) {
				wr.Opcode = verbs.OpAtomicFetchAdd
			}
			c.PostSend(c.QP, wr)
		}
		asked := c.nextPackets(most)
		for i := range all {
			c.expectSilence(silencePeriod)
			if asked[i].Opcode() == ib.OpFetchAdd {
				c.Send(ib.AtomicAck(c.DevicePSN(i), uint32(i+1), 7))
			} else {
				c.Send(ib.ReadResponseOnly(c.DevicePSN(i), uint32(i+1), Data(8)))
			}
			c.ExpectCompletion(uint64(i), verbs.WCSuccess)
			if i+most < all {
				asked = append(asked, c.expect(ib.Packet{}.WithPSN(c.DevicePSN(i+most))))
			}
		}
	}),
}})

// withResponderResources returns a modify function that sets max_dest_rd_atomic.
func withResponderResources(n uint8) func(*verbs.QPAttr) {
	return func(a *verbs.QPAttr) { a.MaxDestRdAtomic = n }
}

// longReadLen is the length of a READ whose responses are not complete when the next
// requests arrive.
const longReadLen = 1 << 20

// sendLongReads sends a long READ and n short ones after it, and returns the next PSN.
// CNPs slow the device down: in the simulator the long READ would take no time. Devices
// without congestion control ignore them.
func (c *Conn) sendLongReads(n int) ib.PSN {
	long := c.Memory(longReadLen, allAccess)
	c.throttle()
	// Another CNP directly before the READ, because the rate may have risen during a
	// pause of the bench.
	c.Send(ib.CNP(), ib.ReadRequest(c.PeerPSN(0), rethFor(long, 0, longReadLen)))
	next := ib.Packets(longReadLen, MTU)
	for range n {
		c.Send(ib.ReadRequest(c.PeerPSN(next), c.RETH(0, 8)))
		next++
	}
	return c.PeerPSN(next)
}

// expectNakAfterReads waits for a NAK for an invalid request with this PSN, which was
// just sent. Earlier READs need not be answered, because the queue pair fails.
func (c *Conn) expectNakAfterReads(psn ib.PSN) {
	sent := c.Now()
	for {
		got := c.expect(ib.Packet{})
		if info, _ := got.Info(); info.Kind != ib.KindReadResponse || !got.PSN().Less(psn) {
			c.checkPacket(ib.Nak(psn, ib.NakInvalidRequest, ib.AnyMSN), got)
			return
		}
		if got.PSN().Add(1) == psn && c.lastArrival < sent {
			rig.Abort(fmt.Errorf("the READs were answered before the next request was sent, because the bench was slow: %w", conformance.ErrBenchCannot))
		}
	}
}
