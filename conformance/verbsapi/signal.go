package verbsapi

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var signalCases = []conformance.Case{{
	ID: "verbs/signal/unsignaled-is-silent", Cite: cite("ibv_post_send(3)", "verbs/signal/1"),
	Title:   "An unsignaled request that succeeds causes no completion",
	Sends:   "three sends that are not signaled, and one that is",
	Expects: "all four at the peer, and one completion, of the last",
	Defects: []string{"SignalsAll"}, Run: onPair(setup{}, func(l *qpPair) {
		l.sendFour()
		l.dut.ExpectCompletion(4, verbs.WCSuccess)
		expectEmptyCQ(l.dut.Rig, l.dut.CQ)
	}),
}, {
	ID: "verbs/signal/signal-all", Cite: cite("ibv_create_qp(3)", "verbs/signal/2"),
	Title:   "Every request of a queue pair with sq_sig_all causes a completion",
	Sends:   "three sends that are not signaled, and one that is",
	Expects: "four completions, in order",
	Defects: []string{"SignalAllIgnored"}, Run: onPair(setup{modifyInit: func(init *verbs.QPInit) { init.SignalAll = true }}, func(l *qpPair) {
		l.sendFour()
		checkOrder(l.dut.Rig, pollCompletions(l.dut.Rig, l.dut.CQ, 4, 8), 1, verbs.WCSuccess)
	}),
}, {
	ID: "verbs/signal/unsignaled-error-completes", Cite: cite("10.7.3.1", "verbs/signal/3"),
	Title:   "A request that fails causes a completion, signaled or not",
	Sends:   "a send that is not signaled, from a closed region",
	Expects: "it is refused, or completes with an error, its WR ID and its QPN",
	Defects: []string{"UnsignaledErrorsLost", "SparseCompletions"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, 0)
		wr := l.dut.sendOf(11, m.SGE(0, 64))
		wr.Flags = 0
		l.dut.Must("a region that can be closed", m.Close())
		if wc, completed := l.dut.expectFailure("a request from a closed region", wr); completed {
			l.dut.Check(wc.QPN == l.dut.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(l.dut.qp.QPN())), "%#x", uint32(wc.QPN))
		}
	}),
}, {
	ID: "verbs/signal/wr-id-returned-whole", Cite: cite("ibv_poll_cq(3)", "verbs/signal/4"),
	Title:   "A completion returns all 64 bits of the WR ID",
	Sends:   "sends and receives with IDs of all kinds",
	Expects: "these IDs",
	Defects: []string{"WRID32"}, Run: onPair(setup{}, func(l *qpPair) {
		for _, id := range []uint64{0, 1, math.MaxUint32, 1 << 32, 1<<63 | 5, math.MaxUint64} {
			l.dut.postRecv(id, recvOffset, 64)
			l.partner.execute(l.partner.sendWR(1, 0, 8))
			l.dut.ExpectRecv(id, l.dut.grhLen()+8)
			l.partner.postRecv(1, recvOffset, 64)
			l.dut.execute(l.dut.sendWR(id, 0, 8))
			l.partner.NextCompletion()
		}
	}),
}, {
	ID: "verbs/inline/buffer-is-the-callers-again", Cite: cite("ibv_post_send(3)", "verbs/inline/1"),
	Title:   "The buffer of inline data may be used again as soon as the post has returned",
	Sends:   "eight inline messages from one buffer, which is overwritten after each post",
	Expects: "eight messages as the buffer was at the time of their posts",
	Defects: []string{"InlineLate"}, Run: onPair(inline, func(l *qpPair) {
		n := min(32, l.dut.QueryQP(l.dut.qp).Caps.MaxInline)
		buf := make([]byte, n)
		for i := range 8 {
			l.partner.postRecv(uint64(i+1), recvOffset+i*128, n)
			copy(buf, rig.Pattern(n, byte(10*i)))
			wr := l.dut.sendWR(uint64(i+1), 0, 0)
			wr.SGL, wr.Inline, wr.Flags = nil, buf, wr.Flags|verbs.SendInline
			l.dut.PostSend(l.dut.qp, wr)
			clear(buf)
		}
		for i := range 8 {
			l.dut.ExpectCompletion(uint64(i+1), verbs.WCSuccess)
			l.partner.expectMessage(uint64(i+1), recvOffset+i*128, rig.Pattern(n, byte(10*i)))
		}
	}),
}, {
	ID: "verbs/inline/limit", Cite: cite("ibv_create_qp(3)", "verbs/inline/2"),
	Title:   "Inline data up to the limit of the queue pair is accepted, and one byte more is refused",
	Sends:   "inline messages of the limit, and of a byte more",
	Expects: "the first at the peer, and EINVAL for the second",
	Defects: []string{"InlineCut"}, Run: onPair(inline, func(l *qpPair) {
		most := l.dut.QueryQP(l.dut.qp).Caps.MaxInline
		wr := l.dut.sendWR(2, 0, 0)
		wr.SGL, wr.Inline, wr.Flags = nil, make([]byte, most+1), wr.Flags|verbs.SendInline
		l.dut.expectPostRefused("inline data beyond the limit", wr, verbs.ErrInvalid)
		wr.Inline = rig.Pattern(most, 3)
		l.dut.expectArrives(l.partner, wr, rig.Pattern(most, 3))
	}),
}, {
	ID: "verbs/flush/in-order", Cite: cite("ibv_modify_qp(3)", "verbs/flush/1"),
	Title:   "When a queue pair fails, all posted work completes as flushed, in order",
	Sends:   "eight receives, four sends to a peer that has no receive (over iWARP it has), ERR",
	Expects: "WR_FLUSH_ERR for each, receives and sends in the order of posting each; the first sends may have succeeded if they need no acknowledgement",
	Defects: []string{"PollReversed", "FlushesLost", "FlushReversed"}, Run: onPair(setup{}, func(l *qpPair) {
		for id := range uint64(8) {
			l.dut.postRecv(id+1, recvOffset, 64)
		}
		if !isIB(l.dut.Rig) {
			// Over iWARP a missing receive ends the stream, which is not tested here.
			for id := range uint64(4) {
				l.partner.postRecv(id+1, recvOffset, 64)
			}
		}
		const firstSend = 101
		for id := range uint64(4) {
			l.dut.PostSend(l.dut.qp, l.dut.sendWR(firstSend+id, 0, 8))
		}
		l.dut.ToState(l.dut.qp, errState)
		l.dut.Sleep(shortWait)
		var sends, receives []verbs.WC
		for _, wc := range pollCompletions(l.dut.Rig, l.dut.CQ, 12, 16) {
			if wc.WRID >= firstSend {
				sends = append(sends, wc)
			} else {
				receives = append(receives, wc)
			}
		}
		checkOrder(l.dut.Rig, receives, 1, verbs.WCWRFlushErr)
		gone := 0
		if !isIB(l.dut.Rig) || l.dut.qp.Type() != verbs.QPTypeRC {
			for gone < len(sends) && sends[gone].Status == verbs.WCSuccess {
				gone++
			}
		}
		checkOrder(l.dut.Rig, sends[:gone], firstSend, verbs.WCSuccess)
		checkOrder(l.dut.Rig, sends[gone:], firstSend+uint64(gone), verbs.WCWRFlushErr)
	}),
}, {
	ID: "verbs/flush/posted-afterwards", Cite: cite("ibv_modify_qp(3)", "verbs/flush/2"),
	Title:   "Work posted to a failed queue pair is accepted and completes as flushed",
	Sends:   "two sends and two receives after ERR",
	Expects: "WR_FLUSH_ERR for each, signaled or not",
	Defects: []string{"FlushesLost"}, Run: onPair(setup{}, func(l *qpPair) {
		l.dut.ToState(l.dut.qp, errState)
		quiet := l.dut.sendWR(2, 0, 8)
		quiet.Flags = 0
		l.dut.PostSend(l.dut.qp, l.dut.sendWR(1, 0, 8), quiet)
		checkOrder(l.dut.Rig, pollCompletions(l.dut.Rig, l.dut.CQ, 2, 1), 1, verbs.WCWRFlushErr)
		l.dut.postRecv(3, recvOffset, 64)
		l.dut.postRecv(4, recvOffset, 64)
		checkOrder(l.dut.Rig, pollCompletions(l.dut.Rig, l.dut.CQ, 2, 1), 3, verbs.WCWRFlushErr)
	}),
}, {
	ID: "verbs/flush/behind-the-cause", Cite: cite("10.7.3.1", "verbs/flush/3"), Needs: verbs.CapRC,
	Title:   "The failed request completes with the cause, and later ones are flushed",
	Sends:   "a valid send, one from a closed region, and two more, in one call",
	Expects: "success (over iWARP it may be flushed), LOC_PROT_ERR, and WR_FLUSH_ERR twice; the queue pair in ERR",
	Defects: []string{"FlushesLost", "LocalErrIsQPOp"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, 0)
		bad := l.dut.sendOf(2, m.SGE(0, 64))
		l.dut.Must("a region that can be closed", m.Close())
		for id := range uint64(4) {
			l.partner.postRecv(id+1, recvOffset, 64)
		}
		n, err := l.dut.qp.PostSend([]verbs.SendWR{l.dut.sendWR(1, 0, 8), bad, l.dut.sendWR(3, 0, 8), l.dut.sendWR(4, 0, 8)})
		if err != nil { // the post detected it: nothing is flushed
			l.dut.Check(n == 1, "one request posted", "%d", n)
			l.dut.ExpectCompletion(1, verbs.WCSuccess)
			return
		}
		l.dut.expectEarlierRequest(1)
		l.dut.ExpectCompletion(2, verbs.WCLocProtErr)
		l.dut.ExpectCompletions(verbs.WCWRFlushErr, 3, 4)
		l.dut.AwaitState(l.dut.qp, errState)
	}),
}}

// sendFour sends four messages, only the last of them signaled, and waits until they arrive.
func (l *qpPair) sendFour() {
	for id := uint64(1); id <= 4; id++ {
		l.partner.postRecv(id, recvOffset, 64)
		wr := l.dut.sendWR(id, 0, 16)
		if id < 4 {
			wr.Flags = 0
		}
		l.dut.PostSend(l.dut.qp, wr)
	}
	for id := uint64(1); id <= 4; id++ {
		l.partner.ExpectRecv(id, l.partner.grhLen()+16)
	}
}

// inline is the setup of a pair whose DUT endpoint accepts 32 bytes of inline data.
var inline = setup{modifyInit: func(init *verbs.QPInit) { init.Caps.MaxInline = 32 }}

// expectEarlierRequest fails the case unless the request before a failed one completes first: with
// success or, over iWARP, where the local error ends the connection at once, with WR_FLUSH_ERR.
func (e *endpoint) expectEarlierRequest(id uint64) {
	wc := e.NextCompletion()
	iwarp := e.Device.Info().Transport == verbs.TransportIWARP
	ok := wc.Status == verbs.WCSuccess || iwarp && wc.Status == verbs.WCWRFlushErr
	e.Check(wc.WRID == id && ok, "the earlier request to complete first", "%s", rig.Describe(&wc))
}
