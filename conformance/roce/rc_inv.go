package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var invalidateCases = conformance.Group{Needs: verbs.CapRC | verbs.CapSendInv, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/inv/key-dead-before-the-receive-completes", Cite: ibta("", "roce/rc/inv/1"), Needs: verbs.CapMWType2,
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead)
		c.expectRead(0, win.reth(0, 8), win.m.Buf[:8])
		c.Send(ib.SendOnlyInv(c.PeerPSN(1), win.key, Data(8)).AckReq())
		c.expectAck(c.PeerPSN(1))
		c.ExpectRecv(1, 8)
		c.expectReadRefused(2, win.reth(0, 8))
	}),
}, {
	ID: "rc/inv/completion-names-the-key", Cite: ibta("", "roce/rc/inv/2"), Needs: verbs.CapMWType2,
	Run: onConn(Setup{Receives: 3, recvLen: 2048}, func(c *Conn) {
		m := c.bindableMemory()
		info := bindRange(m, 0, 64, verbs.AccessRemoteRead)
		one, two := c.bind(c.newWindow(verbs.MWType2), info), c.bind(c.newWindow(verbs.MWType2), info)
		c.Send(ib.SendOnlyInv(c.PeerPSN(0), one, Data(8)),
			ib.SendFirst(c.PeerPSN(1), Data(MTU)), ib.SendLastInv(c.PeerPSN(2), two, Data(8)),
			ib.SendOnly(c.PeerPSN(3), Data(8)))
		for i, key := range []verbs.RKey{one, two} {
			wc := c.ExpectRecv(uint64(i+1), 8+i*MTU)
			c.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == key, "the key that was invalidated", "flags %#x, %#x", wc.Flags, wc.InvalidatedRKey)
		}
		wc := c.ExpectRecv(3, 8)
		c.Check(wc.Flags&verbs.WCWithInv == 0, "no key that was invalidated", "flags %#x", wc.Flags)
	}),
}, {
	ID: "rc/inv/unknown-key-fails-without-an-answer", Cite: ibta("9.9.6.3, error class J", "roce/rc/inv/3"),
	Run: OnPort(onEachConn(Setup{Receives: 1, recvLen: 2048}, []int{8, MTU + 8}, func(c *Conn, n int) {
		packets := ib.Send(c.PeerPSN(0), Data(n), MTU)
		last := &packets[len(packets)-1]
		*last = ib.SendOnlyInv(last.PSN(), unknownKey(c.TargetMem.RKey()), last.Payload).AckReq()
		if len(packets) > 1 {
			*last = last.WithOpcode(ib.OpSendLastInv)
		}
		c.Send(packets...)
		c.expectSilentFailure(last.PSN())
	})),
}, {
	ID: "rc/inv/key-of-a-region-fails", Cite: ibta("o10-37.2.26", "roce/rc/inv/4"),
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInvalidateFails(c.TargetMem.RKey())
		c.secondConn(Setup{}).expectRead(0, c.RETH(0, 8), c.TargetMem.Buf[:8])
	}),
}, {
	ID: "rc/inv/key-of-a-type-1-window-fails", Cite: ibta("o10-37.2.26", "roce/rc/inv/4"), Needs: verbs.CapMWType1,
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType1, 0, 64, verbs.AccessRemoteRead)
		c.expectInvalidateFails(win.key)
		c.secondConn(Setup{}).expectRead(0, win.reth(0, 8), win.m.Buf[:8])
	}),
}, {
	ID: "rc/inv/window-of-another-qp-fails", Cite: ibta("", "roce/rc/inv/5"), Needs: verbs.CapMWType2,
	Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 0, 64, verbs.AccessRemoteRead)
		c.secondConn(Setup{Receives: 1}).expectInvalidateFails(win.key)
		c.expectRead(0, win.reth(0, 8), win.m.Buf[:8])
	}),
}, {
	ID:   "rc/inv/free-window-fails",
	Cite: ibta("", "roce/rc/inv/6"), Needs: verbs.CapMWType2, Labels: []string{conformance.Dangerous},
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.expectInvalidateFails(c.newWindow(verbs.MWType2).RKey())
	}),
}, {
	ID:   "rc/inv/free-window-leaves-the-device-alive",
	Cite: ibta("", "roce/rc/inv/6"), Needs: verbs.CapMWType2, Labels: []string{conformance.Dangerous},
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		mw := c.newWindow(verbs.MWType2)
		c.Send(ib.SendOnlyInv(c.PeerPSN(0), mw.RKey(), Data(8)).AckReq())
		other := c.secondConn(Setup{})
		c.packetAfterSync(shortWait) // another case checks the response to the SEND
		c.DiscardSkipped()
		c.NextCompletion()
		other.expectOpExecutedAt(0, writeOp, other.RETH(0, 8))
		other.expectOpExecutedAt(1, readOp, other.RETH(0, 8))
		m := other.bindableMemory()
		info := bindRange(m, 0, 64, verbs.AccessRemoteRead)
		other.expectRead(2, windowRETH(info, other.bind(mw, info), 0, 8), m.Buf[:8])
	}),
}})

// expectInvalidateFails sends a SEND that invalidates a key with the first PSN, and fails
// the case unless it fails without a response.
func (c *Conn) expectInvalidateFails(key verbs.RKey) {
	c.Send(ib.SendOnlyInv(c.PeerPSN(0), key, Data(8)).AckReq())
	c.expectSilentFailure(c.PeerPSN(0))
}

// expectSilentFailure fails the case unless receive 1 completes with an error, the queue
// pair goes to ERR, and the message that ends with this PSN gets no response. Earlier
// packets may have been acknowledged.
func (c *Conn) expectSilentFailure(psn ib.PSN) {
	c.expectRequestFails()
	c.AwaitState(c.QP, verbs.QPStateErr)
	for {
		pkt, ok := c.packetAfterSync(silencePeriod)
		if !ok {
			return
		}
		c.Check(pkt.IsAck(ib.AckPositive) && pkt.PSN().Less(psn), "no response to a SEND with a key that cannot be invalidated", "%v", pkt)
	}
}
