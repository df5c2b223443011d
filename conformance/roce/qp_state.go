package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var qpStateCases = overRC.Cases([]conformance.Case{{
	ID: "qp/post/send-before-rts-refused", Cite: ibta("C10-96", "qp/3"),
	Title:   "Posting a send in RESET, INIT or RTR fails",
	Sends:   "nothing",
	Expects: "an error from the post in each of these states, and no request posted",
	Defects: []string{"EarlySendSwallowed"}, Run: OnPort(func(p *Port) {
		for _, state := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateReset} {
			c := p.connect(Setup{state: max(state, verbs.QPStateInit)})
			if state == verbs.QPStateReset {
				c.ToState(c.QP, verbs.QPStateReset)
			}
			n, err := c.postSend(1)
			c.MustFail(fmt.Sprintf("a send in %v", c.QueryQP(c.QP).State), err, nil)
			c.Check(n == 0, "no request posted", "%d", n)
		}
	}),
}, {
	ID: "qp/post/refused-send-leaves-nothing-queued", Cite: ibta("C10-96", "qp/3"),
	Title:   "A send that was refused because of the state is neither sent nor flushed later",
	Sends:   "an ACK for the one request that is posted in RTS",
	Expects: "no packet when the queue pair enters RTS; then this request, with the first PSN; and only its completion",
	Defects: []string{"RefusedWRStays"}, Run: onConn(Setup{state: verbs.QPStateInit}, func(c *Conn) {
		c.postSend(1)
		c.ToRTR(c.QP, c.Attr)
		c.postSend(2)
		c.ToRTS(c.QP, c.Attr)
		c.expectSilence(silencePeriod)
		c.request(0, c.SendWR(3, 16))
		c.completeWith(c.peerAck(0, 1), 3)
		c.ToState(c.QP, verbs.QPStateErr)
		c.expectNoCompletion()
	}),
}, {
	ID: "qp/post/send-beyond-the-queue-refused", Cite: ibta("C10-96", "qp/3"),
	Title:   "Sends that exceed the size of the send queue are refused, and no other is lost",
	Sends:   "an ACK for all requests",
	Expects: "as many requests are posted as the queue has room for; these are sent and complete, and no others; then there is room again",
	Defects: []string{"OverflowSendQueue"}, Run: onConn(Setup{caps: verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}, func(c *Conn) {
		room := c.QueryQP(c.QP).Caps.MaxSendWR // the device may have rounded it up
		wrs := make([]verbs.SendWR, room+2)
		for i := range wrs {
			wrs[i] = c.SendWR(uint64(i), 8)
		}
		n, err := c.QP.PostSend(wrs)
		c.MustFail("one request too many", err, nil)
		c.Check(n == room, fmt.Sprintf("%d requests posted", room), "%d", n)
		n, err = c.QP.PostSend(wrs[room:])
		c.MustFail("another request too many", err, nil)
		c.Check(n == 0, "none posted", "%d", n)
		for i := range room {
			c.expect(ib.SendOnly(c.DevicePSN(i), nil))
		}
		c.expectSilence(silencePeriod)
		c.Send(c.peerAck(room-1, uint32(room)))
		for i := range room {
			c.ExpectCompletion(uint64(i), verbs.WCSuccess)
		}
		c.PostSend(c.QP, wrs[room])
		c.expect(ib.SendOnly(c.DevicePSN(room), nil))
	}),
}, {
	ID: "qp/post/receive-taken-from-init-on", Cite: ibta("C10-97.2.1", "qp/4"),
	Title:   "Receives can be posted in INIT, RTR, RTS and SQD, and are used in the order of posting",
	Sends:   "four SENDs, for receives posted in four states",
	Expects: "an ACK for each, and the receives in order",
	Defects: []string{"RecvStateWrong"}, Run: onConn(Setup{state: verbs.QPStateInit}, func(c *Conn) {
		c.PostRecv(c.QP, 1, c.LocalMem.SGE(0, 64))
		c.ToRTR(c.QP, c.Attr)
		c.PostRecv(c.QP, 2, c.LocalMem.SGE(64, 64))
		c.ToRTS(c.QP, c.Attr)
		c.PostRecv(c.QP, 3, c.LocalMem.SGE(128, 64))
		c.toSQD(false)
		c.PostRecv(c.QP, 4, c.LocalMem.SGE(192, 64))
		for i := range 4 {
			c.expectAccepted(i)
		}
	}),
}, {
	ID: "qp/post/receive-in-reset-refused", Cite: ibta("C10-97.2.1", "qp/4"),
	Title:   "Posting a receive in RESET fails",
	Sends:   "nothing",
	Expects: "an error from the post, on a new queue pair and on one that was reset",
	Defects: []string{"RecvStateWrong"}, Run: onConn(Setup{}, func(c *Conn) {
		fresh := c.freshQP()
		c.ToState(c.QP, verbs.QPStateReset)
		for _, qp := range []verbs.QP{fresh, c.QP} {
			n, err := qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: c.LocalMem.SGL(0, 64)}})
			c.MustFail("a receive in RESET", err, nil)
			c.Check(n == 0, "no receive posted", "%d", n)
		}
	}),
}, {
	ID: "qp/rtr/receives-and-answers", Cite: ibta("", "qp/5"),
	Title:   "A queue pair in RTR receives messages and answers them",
	Sends:   "SENDs, WRITEs and READs to a queue pair in RTR",
	Expects: "an answer to each, and nothing else",
	Defects: []string{"RTSOnly"}, Run: onConn(Setup{state: verbs.QPStateRTR, Receives: 2}, func(c *Conn) {
		c.expectServed(0)
		c.expectServed(1)
		c.expectSilence(silencePeriod)
		c.ExpectState(c.QP, verbs.QPStateRTR)
	}),
}, {
	ID: "qp/reset/psns-and-results-forgotten", Cite: ibta("", "qp/6"), Needs: verbs.CapAtomics,
	Title:   "RESET clears PSNs, MSN and the results of atomics: reconnected with the same PSNs, a queue pair executes new requests",
	Sends:   "a FETCH_ADD and a WRITE; the same PSNs with another FETCH_ADD and WRITE after RESET",
	Expects: "each is executed and answered with MSNs from 1 on; the device's requests start at the first PSN",
	Defects: []string{"ResetKeepsState"}, Run: onConn(Setup{}, func(c *Conn) {
		clear(c.TargetMem.Buf[:8])
		c.TargetMem.Snapshot() // makes the change visible to the device
		was := uint64(0)
		for round := range uint64(3) {
			c.exchange(ib.FetchAdd(c.PeerPSN(0), c.RETH(0, 8), 5+round), ib.AtomicAck(c.PeerPSN(0), 1, was))
			was += 5 + round
			c.exchange(ib.WriteOnly(c.PeerPSN(1), c.RETH(64, 16), rig.Pattern(16, byte(round))).AckReq(), c.deviceAck(1, 2))
			c.ExpectBytes(c.TargetMem, 64, rig.Pattern(16, byte(round)))
			c.request(0, c.SendWR(7, 8))
			c.ToState(c.QP, verbs.QPStateReset)
			c.reconnect()
		}
	}),
}, {
	ID: "qp/reset/queues-emptied", Cite: ibta("", "qp/6"),
	Title:   "RESET discards posted work: earlier sends and receives are neither executed nor flushed",
	Sends:   "a SEND, after a queue pair with posted sends and receives was reset and reconnected",
	Expects: "an RNR NAK, because there is no receive; no packet of the old requests; no completion",
	Defects: []string{"ResetKeepsQueues"}, Run: onConn(Setup{Receives: 4, signalAll: true, Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		c.sendUnacked(100)
		c.sendUnacked(101)
		c.ToState(c.QP, verbs.QPStateReset)
		c.Drain(0) // retransmissions before the reset
		c.reconnect()
		c.expectNothing()
		c.exchange(c.peerSend(0, 16), ib.RNR(c.PeerPSN(0), c.Attr.MinRNRTimer, 0))
		c.ExpectNoCompletion()
	}),
}, {
	ID: "qp/error/posted-work-flushed-in-order", Cite: ibta("", "qp/7"),
	Title:   "When a queue pair goes to ERR, every posted send and receive completes as flushed, in the order of posting",
	Sends:   "nothing",
	Expects: "WR_FLUSH_ERR for four sends, signaled or not, in order, and for three receives, in order",
	Defects: []string{"FlushReversed"}, Run: onConn(Setup{Receives: 3}, func(c *Conn) {
		c.PostSend(c.QP, unsignaled(c.SendWR(101, 8)), c.SendWR(102, 8), unsignaled(c.SendWR(103, 8)), c.SendWR(104, 8))
		c.ToState(c.QP, verbs.QPStateErr)
		c.expectFlushed(4, 3)
	}),
}, {
	ID: "qp/error/pending-receives-are-no-messages", Cite: ibta("", "qp/7"),
	Title:   "Receives that are posted when a queue pair fails are flushed, and do not complete with success",
	Sends:   "a READ with a bad key, which fails the queue pair; to another queue pair, a NAK for its request",
	Expects: "WR_FLUSH_ERR for each receive",
	Defects: []string{"ErrCompletesRecvs"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 3})
		c.exchange(ib.ReadRequest(c.PeerPSN(0), c.deregisteredRETH()), c.deviceNak(0, ib.NakRemoteAccess, 0))
		c.expectFlushed(0, 3)
		c = p.connect(Setup{Receives: 3})
		c.sendUnacked(101)
		c.Send(c.peerNak(0, ib.NakRemoteOp, 0))
		c.ExpectCompletion(101, verbs.WCRemOpErr)
		c.expectFlushed(0, 3)
	}),
}, {
	ID: "qp/error/work-posted-afterwards-flushed", Cite: ibta("", "qp/8"),
	Title:   "Sends and receives that are posted to a queue pair in ERR complete as flushed",
	Sends:   "nothing",
	Expects: "WR_FLUSH_ERR for two sends and two receives, and no packet",
	Defects: []string{"NoFlushInError"}, Run: onConn(Setup{}, func(c *Conn) {
		c.ToState(c.QP, verbs.QPStateErr)
		for i := range uint64(2) {
			c.PostSend(c.QP, unsignaled(c.SendWR(101+i, 8)))
			c.PostRecv(c.QP, 1+i, c.LocalMem.SGE(64, 64))
		}
		c.expectFlushed(2, 2)
		c.expectSilence(silencePeriod)
	}),
}})

// reconnect moves the queue pair from RESET to RTS, with the same attributes.
func (c *Conn) reconnect() {
	c.ToInit(c.QP, allAccess&^verbs.AccessLocalWrite, 0)
	c.ToRTR(c.QP, c.Attr)
	c.ToRTS(c.QP, c.Attr)
}

// postSend tries to post a SEND.
func (c *Conn) postSend(id uint64) (int, error) {
	return c.QP.PostSend([]verbs.SendWR{c.SendWR(id, 8)})
}

// expectFlushed fails the case unless the next completions are those of flushed sends,
// with IDs from 101 on, and flushed receives, with IDs from 1 on, each in order, and no
// other.
func (c *Conn) expectFlushed(sends, recvs int) {
	next, end := [2]uint64{101, 1}, [2]uint64{101 + uint64(sends), 1 + uint64(recvs)}
	for next != end {
		wc := c.NextCompletion()
		q := 1 // receives
		if wc.WRID > 100 {
			q = 0 // sends
		}
		c.Check(wc.Status == verbs.WCWRFlushErr && wc.WRID == next[q] && next[q] < end[q],
			fmt.Sprintf("send %d or receive %d flushed", next[0], next[1]), "%s", rig.Describe(&wc))
		next[q]++
	}
	c.expectNoCompletion()
}
