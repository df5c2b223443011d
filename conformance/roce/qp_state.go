package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var qpStateCases = overRC.Cases([]conformance.Case{{
	ID:    "qp/post/send-before-rts-refused",
	Title: "Posting a send in RESET, INIT or RTR fails",
	Cite:  ibta("C10-96", "roce/qp/3"), Defects: []string{"EarlySendSwallowed"},
	Sends:   "nothing",
	Expects: "an error from the post in each of these states, and no request posted",
	Run: onPort(func(p *port) {
		for _, state := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateReset} {
			c := p.connect(setup{state: max(state, verbs.QPStateInit)})
			if state == verbs.QPStateReset {
				c.toReset()
			}
			c.expectSendRefused(1)
		}
	}),
}, {
	ID:    "qp/post/refused-send-leaves-nothing-queued",
	Title: "A send that was refused because of the state is neither sent nor flushed later",
	Cite:  ibta("C10-96", "roce/qp/3"), Defects: []string{"RefusedWRStays"},
	Sends:   "an ACK for the one request that is posted in RTS",
	Expects: "no packet when the queue pair enters RTS; then this request, with the first PSN; and only its completion",
	Run: onConn(setup{state: verbs.QPStateInit}, func(c *conn) {
		c.postSend(1)
		c.toRTR(c.qp, c.attr)
		c.postSend(2)
		c.toRTS(c.qp, c.attr)
		c.expectSilence(silencePeriod)
		c.PostSend(c.qp, verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(8, 16)})
		c.expect(ib.SendOnly(c.devicePSN(0), c.localMem.Buf[8:24]))
		c.send(ib.Ack(c.devicePSN(0), 1))
		c.ExpectCompletion(3, verbs.WCSuccess)
		c.toError(c.qp)
		c.Sync()
		c.ExpectNoCompletion()
	}),
}, {
	ID:    "qp/post/send-beyond-the-queue-refused",
	Title: "Sends that exceed the size of the send queue are refused, and no other is lost",
	Cite:  ibta("C10-96", "roce/qp/3"), Defects: []string{"OverflowSendQueue"},
	Sends:   "an ACK for all requests",
	Expects: "as many requests are posted as the queue has room for; these are sent and complete, and no others; then there is room again",
	Run: onConn(setup{caps: verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}, func(c *conn) {
		room := c.query().Caps.MaxSendWR // the device may have rounded it up
		wrs := make([]verbs.SendWR, room+2)
		for i := range wrs {
			wrs[i] = verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(0, 8)}
		}
		n, err := c.qp.PostSend(wrs)
		c.MustFail("one request too many", err, nil)
		c.Check(n == room, fmt.Sprintf("%d requests posted", room), "%d", n)
		n, err = c.qp.PostSend(wrs[room:])
		c.MustFail("another request too many", err, nil)
		c.Check(n == 0, "none posted", "%d", n)
		for i := range room {
			c.expect(ib.SendOnly(c.devicePSN(i), nil))
		}
		c.expectSilence(silencePeriod)
		c.send(ib.Ack(c.devicePSN(room-1), uint32(room)))
		for i := range room {
			c.ExpectCompletion(uint64(i), verbs.WCSuccess)
		}
		c.PostSend(c.qp, wrs[room])
		c.expect(ib.SendOnly(c.devicePSN(room), nil))
	}),
}, {
	ID:    "qp/post/receive-taken-from-init-on",
	Title: "Receives can be posted in INIT, RTR, RTS and SQD, and are used in the order of posting",
	Cite:  ibta("C10-97.2.1", "roce/qp/4"), Defects: []string{"RecvStateWrong"},
	Sends:   "four SENDs, for receives posted in four states",
	Expects: "an ACK for each, and the receives in order",
	Run: onConn(setup{state: verbs.QPStateInit}, func(c *conn) {
		c.PostRecv(c.qp, 1, c.localMem.SGE(0, 64))
		c.toRTR(c.qp, c.attr)
		c.PostRecv(c.qp, 2, c.localMem.SGE(64, 64))
		c.toRTS(c.qp, c.attr)
		c.PostRecv(c.qp, 3, c.localMem.SGE(128, 64))
		c.toSQD(false)
		c.PostRecv(c.qp, 4, c.localMem.SGE(192, 64))
		for i := range 4 {
			c.expectAccepted(i)
		}
	}),
}, {
	ID:    "qp/post/receive-in-reset-refused",
	Title: "Posting a receive in RESET fails",
	Cite:  ibta("C10-97.2.1", "roce/qp/4"), Defects: []string{"RecvStateWrong"},
	Sends:   "nothing",
	Expects: "an error from the post, on a new queue pair and on one that was reset",
	Run: onConn(setup{}, func(c *conn) {
		fresh, err := c.Device.CreateQP(verbs.QPInit{
			Type: verbs.QPTypeRC, PD: c.PD, SendCQ: c.CQ, RecvCQ: c.CQ,
			Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		c.Must("a queue pair", err)
		c.toReset()
		for _, qp := range []verbs.QP{fresh, c.qp} {
			n, err := qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: c.localMem.SGL(0, 64)}})
			c.MustFail("a receive in RESET", err, nil)
			c.Check(n == 0, "no receive posted", "%d", n)
		}
	}),
}, {
	ID:    "qp/rtr/receives-and-answers",
	Title: "A queue pair in RTR receives messages and answers them",
	Cite:  ibta("", "roce/qp/5"), Defects: []string{"RTSOnly"},
	Sends:   "SENDs, WRITEs and READs to a queue pair in RTR",
	Expects: "an answer to each, and nothing else",
	Run: onConn(setup{state: verbs.QPStateRTR, receives: 2}, func(c *conn) {
		c.expectServed(0)
		c.expectServed(1)
		c.expectSilence(silencePeriod)
		c.ExpectState(c.qp, verbs.QPStateRTR)
	}),
}, {
	ID:    "qp/reset/psns-and-results-forgotten",
	Title: "RESET clears PSNs, MSN and the results of atomics: reconnected with the same PSNs, a queue pair executes new requests",
	Cite:  ibta("", "roce/qp/6"), Needs: verbs.CapAtomics, Defects: []string{"ResetKeepsState"},
	Sends:   "a FETCH_ADD and a WRITE; the same PSNs with another FETCH_ADD and WRITE after RESET",
	Expects: "each is executed and answered with MSNs from 1 on; the device's requests start at the first PSN",
	Run: onConn(setup{}, func(c *conn) {
		clear(c.targetMem.Buf[:8])
		c.targetMem.Snapshot() // makes the change visible to the device
		was := uint64(0)
		for round := range uint64(3) {
			c.send(ib.FetchAdd(c.peerPSN(0), c.reth(0, 8), 5+round))
			c.expect(ib.AtomicAck(c.peerPSN(0), 1, was))
			was += 5 + round
			c.send(ib.WriteOnly(c.peerPSN(1), c.reth(64, 16), rig.Pattern(16, byte(round))).AckReq())
			c.expect(ib.Ack(c.peerPSN(1), 2))
			c.ExpectBytes(c.targetMem, 64, rig.Pattern(16, byte(round)))
			c.PostSend(c.qp, verbs.SendWR{WRID: 7, Opcode: verbs.OpSend, SGL: c.localMem.SGL(0, 8)})
			c.expect(ib.SendOnly(c.devicePSN(0), nil))
			c.toReset()
			c.reconnect()
		}
	}),
}, {
	ID:    "qp/reset/queues-emptied",
	Title: "RESET discards posted work: earlier sends and receives are neither executed nor flushed",
	Cite:  ibta("", "roce/qp/6"), Defects: []string{"ResetKeepsQueues"},
	Sends:   "a SEND, after a queue pair with posted sends and receives was reset and reconnected",
	Expects: "an RNR NAK, because there is no receive; no packet of the old requests; no completion",
	Run: onConn(setup{receives: 4, signalAll: true, modify: withTimeout(timeout67ms, 7)}, func(c *conn) {
		c.sendUnacked(100)
		c.sendUnacked(101)
		c.toReset()
		c.drain() // retransmissions before the reset
		c.reconnect()
		c.expectSilence(silencePeriod)
		c.ExpectNoCompletion()
		c.send(ib.SendOnly(c.peerPSN(0), data(16)).AckReq())
		c.expect(ib.RNR(c.peerPSN(0), c.attr.MinRNRTimer, 0))
		c.ExpectNoCompletion()
	}),
}, {
	ID:    "qp/error/posted-work-flushed-in-order",
	Title: "When a queue pair goes to ERR, every posted send and receive completes as flushed, in the order of posting",
	Cite:  ibta("", "roce/qp/7"), Defects: []string{"FlushReversed"},
	Sends:   "nothing",
	Expects: "WR_FLUSH_ERR for four sends, signaled or not, in order, and for three receives, in order",
	Run: onConn(setup{receives: 3}, func(c *conn) {
		for id := range uint64(4) {
			c.PostSend(c.qp, verbs.SendWR{WRID: 101 + id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled * verbs.SendFlags(id%2), SGL: c.localMem.SGL(0, 8)})
		}
		c.toError(c.qp)
		c.expectFlushed(4, 3)
	}),
}, {
	ID:    "qp/error/pending-receives-are-no-messages",
	Title: "Receives that are posted when a queue pair fails are flushed, and do not complete with success",
	Cite:  ibta("", "roce/qp/7"), Defects: []string{"ErrCompletesRecvs"},
	Sends:   "a READ with a bad key, which fails the queue pair; to another queue pair, a NAK for its request",
	Expects: "WR_FLUSH_ERR for each receive",
	Run: onPort(func(p *port) {
		c := p.connect(setup{receives: 3})
		c.send(ib.ReadRequest(c.peerPSN(0), ib.At(c.targetMem.Addr(), c.deregisteredRKey(), 16)))
		c.expect(ib.Nak(c.peerPSN(0), ib.NakRemoteAccess, 0))
		c.expectFlushed(0, 3)
		c = p.connect(setup{receives: 3})
		c.sendUnacked(101)
		c.send(ib.Nak(c.devicePSN(0), ib.NakRemoteOp, 0))
		c.ExpectCompletion(101, verbs.WCRemOpErr)
		c.expectFlushed(0, 3)
	}),
}, {
	ID:    "qp/error/work-posted-afterwards-flushed",
	Title: "Sends and receives that are posted to a queue pair in ERR complete as flushed",
	Cite:  ibta("", "roce/qp/8"), Defects: []string{"NoFlushInError"},
	Sends:   "nothing",
	Expects: "WR_FLUSH_ERR for two sends and two receives, and no packet",
	Run: onConn(setup{}, func(c *conn) {
		c.toError(c.qp)
		for i := range uint64(2) {
			c.PostSend(c.qp, verbs.SendWR{WRID: 101 + i, Opcode: verbs.OpSend, SGL: c.localMem.SGL(0, 8)})
			c.PostRecv(c.qp, 1+i, c.localMem.SGE(64, 64))
		}
		c.expectFlushed(2, 2)
		c.expectSilence(silencePeriod)
	}),
}})

// toReset moves the queue pair to RESET.
func (c *conn) toReset() {
	c.Must("a queue pair in RESET", c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
}

// reconnect moves the queue pair from RESET to RTS, with the same attributes.
func (c *conn) reconnect() {
	c.toInit(c.qp, allAccess&^verbs.AccessLocalWrite)
	c.toRTR(c.qp, c.attr)
	c.toRTS(c.qp, c.attr)
}

// postSend tries to post a SEND.
func (c *conn) postSend(id uint64) (int, error) {
	return c.qp.PostSend([]verbs.SendWR{{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(0, 8)}})
}

// expectSendRefused fails the case unless the device rejects a SEND in the current state.
func (c *conn) expectSendRefused(id uint64) {
	n, err := c.postSend(id)
	c.MustFail(fmt.Sprintf("a send in %v", c.query().State), err, nil)
	c.Check(n == 0, "no request posted", "%d", n)
}

// expectFlushed fails the case unless the next completions are those of flushed sends,
// with IDs from 101 on, and flushed receives, with IDs from 1 on, each in order, and no
// other.
func (c *conn) expectFlushed(sends, recvs int) {
	next, end := [2]uint64{101, 1}, [2]uint64{101 + uint64(sends), 1 + uint64(recvs)}
	for next != end {
		wc := c.NextCompletion()
		q := 1
		if wc.WRID > 100 {
			q = 0
		}
		if wc.Status != verbs.WCWRFlushErr || wc.WRID != next[q] || next[q] == end[q] {
			c.Fail(fmt.Sprintf("send %d or receive %d flushed", next[0], next[1]), "%s", rig.Describe(&wc))
		}
		next[q]++
	}
	c.Sync()
	c.ExpectNoCompletion()
}
