package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var readCases = overRC.Cases([]conformance.Case{{
	ID: "rc/read/response-is-cut-at-the-path-mtu", Cite: ibta("9.4.4", "roce/rc/read/1"),
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
	ID: "rc/read/aeth-in-all-but-middle", Cite: ibta("9.4.4", "roce/rc/read/2"),
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
	ID: "rc/read/response-psns-count-up-from-the-request", Cite: ibta("", "roce/rc/read/3"),
	Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.RQPSN = 0xfffffe }}, func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), c.RETH(0, 4*MTU)))
		for i := range 4 {
			c.expect(ib.Packet{}.WithPSN(c.PeerPSN(i)))
		}
	}),
}, {
	ID: "rc/read/of-nothing-looks-at-no-key", Cite: ibta("C9-88", "roce/rc/read/4"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), ib.At(uint64(3), uint32(unknownKey(c.TargetMem.RKey())), 0)))
		c.expect(ib.ReadResponseOnly(c.PeerPSN(0), ib.AnyMSN, []byte{}))
	}),
}, {
	ID: "rc/read/of-nothing-can-be-posted", Cite: ibta("C9-88", "roce/rc/read/4"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, Remote: rdmaRemote})
		c.expect(ib.ReadRequest(c.DevicePSN(0), ib.RETH{Len: new(uint32(0))}))
		c.completeWith(ib.ReadResponseOnly(c.DevicePSN(0), 1, nil), 1)
	}),
}, {
	ID: "rc/read/needs-the-right-of-qp-and-region", Cite: ibta("", "roce/rc/read/22"),
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
	ID: "rc/read/refused-without-responder-resources", Cite: ibta("", "roce/rc/read/17"),
	Run: onConn(Setup{Modify: withResponderResources(0)}, func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), c.RETH(0, 8)))
		c.expectNak(c.PeerPSN(0), ib.NakInvalidRequest)
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/read/refused-beyond-responder-resources", Cite: ibta("", "roce/rc/read/18"),
	Run: onConn(Setup{Modify: withResponderResources(4)}, func(c *Conn) {
		fifth := c.sendLongReads(3)
		c.Send(ib.ReadRequest(fifth, c.RETH(0, 8)))
		c.expectNakAfterReads(fifth)
	}),
}, {
	ID: "rc/read/requester-keeps-to-max-rd-atomic", Cite: ibta("11.2.4.2", "roce/rc/read/16"),
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
