package verbsapi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var cqCases = []conformance.Case{{
	ID: "verbs/cq/depth-within-the-limits", Cite: cite("ibv_create_cq(3)", "verbs/cq/1"),
	Title:   "A completion queue of no entries, or of more than the device claims, is refused",
	Expects: "a refusal of depths 0, -1 and one above the limit; a queue of depth 1, and one of the limit if there is memory for it",
	Defects: []string{"CQDepthUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		for _, depth := range []int{0, -1, r.QueryDevice().MaxCQE + 1} {
			_, err := r.Device.CreateCQ(verbs.CQInit{Depth: depth})
			r.MustFail(fmt.Sprintf("a completion queue of depth %d", depth), err, nil)
		}
		newCQ(r, 1, nil)
		_, err := r.Device.CreateCQ(verbs.CQInit{Depth: r.QueryDevice().MaxCQE})
		mustUnlessNoMemory(r, "a completion queue of as many entries as the device claims", err)
	}),
}, {
	ID: "verbs/cq/depth-at-least-as-asked", Cite: cite("ibv_create_cq(3)", "verbs/cq/2"),
	Title:   "A completion queue is at least as deep as requested, and has room for as many completions as it claims",
	Sends:   "as many completions as fit",
	Expects: "all of them, and no overrun",
	Defects: []string{"CQDepthShort"}, Run: rig.Body(func(r *rig.Rig) {
		for _, depth := range []int{1, 5, 12} {
			cq := newCQ(r, depth, nil)
			r.Check(cq.Depth() >= depth, fmt.Sprintf("a depth of %d or more", depth), "%d", cq.Depth())
			newFlushSource(r, cq).addCompletions(cq.Depth())
			checkOrder(r, pollCompletions(r, cq, cq.Depth(), 64), 1, verbs.WCWRFlushErr)
		}
		r.ExpectNoEvent()
	}),
}, {
	ID: "verbs/cq/empty-poll", Cite: cite("ibv_poll_cq(3)", "verbs/cq/3"),
	Title:   "Polling an empty completion queue finds nothing, and is no error",
	Expects: "0 and no error for a new queue, for an emptied one, and for a poll of 0 entries",
	Defects: []string{"PollEmptyFails"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 8, nil)
		empty := func(into []verbs.WC) {
			n, err := cq.Poll(into)
			r.Check(n == 0 && err == nil, "0 completions and no error", "%d, %v", n, err)
		}
		empty(make([]verbs.WC, 4))
		newFlushSource(r, cq).addCompletions(1)
		empty(nil) // the completion must not be lost
		pollCompletions(r, cq, 1, 1)
		empty(make([]verbs.WC, 4))
	}),
}, {
	ID: "verbs/cq/partial-polls", Cite: cite("ibv_poll_cq(3)", "verbs/cq/4"),
	Title:   "A poll returns as many completions as fit; the others stay, and each is returned once",
	Sends:   "ten completions, polled by three",
	Expects: "all ten, once each",
	Defects: []string{"PollDiscards"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 16, nil)
		newFlushSource(r, cq).addCompletions(10)
		checkOrder(r, pollCompletions(r, cq, 10, 3), 1, verbs.WCWRFlushErr)
		expectEmptyCQ(r, cq)
	}),
}, {
	ID: "verbs/cq/oldest-first", Cite: cite("ibv_poll_cq(3)", "verbs/cq/5"),
	Title:   "Completions are returned oldest first, also by one poll",
	Sends:   "ten completions, polled together",
	Expects: "them in the order of posting",
	Defects: []string{"PollReversed"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 16, nil)
		newFlushSource(r, cq).addCompletions(10)
		r.Sleep(shortWait)
		checkOrder(r, pollCompletions(r, cq, 10, 10), 1, verbs.WCWRFlushErr)
	}),
}, {
	ID: "verbs/cq/one-for-each-direction", Cite: cite("ibv_create_qp(3)", "verbs/cq/6"),
	Title:   "Sends complete on the send queue's completion queue, and receives on the receive queue's",
	Sends:   "a message in each direction, over a queue pair with two completion queues",
	Expects: "a completion on each, of its kind",
	Defects: []string{"CQsSwapped"}, Run: rig.Body(func(r *rig.Rig) {
		sends, recvs := newCQ(r, 8, nil), newCQ(r, 8, nil)
		l := newPair(rig.NewPair(r), setup{modifyInit: func(init *verbs.QPInit) { init.SendCQ, init.RecvCQ = sends, recvs }})
		l.partner.postRecv(1, recvOffset, 64)
		l.dut.postRecv(2, recvOffset, 64)
		l.dut.PostSend(l.dut.qp, l.dut.sendWR(3, 0, 16))
		l.partner.ExpectCompletion(1, verbs.WCSuccess)
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(4, 0, 16))
		for _, on := range []struct {
			what string
			cq   verbs.CQ
			id   uint64
		}{{"the send's completion on the send queue's CQ", sends, 3}, {"the receive's completion on the receive queue's CQ", recvs, 2}} {
			wc, ok := r.PollCQ(on.cq, r.ResponseTimeout())
			r.Check(ok && wc.WRID == on.id && wc.Status == verbs.WCSuccess, on.what, "%s", rig.Describe(&wc))
			expectEmptyCQ(r, on.cq)
		}
	}),
}, {
	ID: "verbs/cq/shared-by-queue-pairs", Cite: cite("ibv_poll_cq(3)", "verbs/cq/7"),
	Title:   "Completions on a shared completion queue have the QPN of their queue pair",
	Sends:   "completions of four queue pairs on one completion queue",
	Expects: "the number of its queue pair in each",
	Defects: []string{"WCQPNWrong", "SparseCompletions"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 64, nil)
		left := make(map[verbs.QPN]int)
		for i := range 4 {
			s := newFlushSource(r, cq)
			s.addCompletions(i + 1)
			left[s.qp.QPN()] = i + 1
		}
		for _, wc := range pollCompletions(r, cq, 10, 4) {
			r.Check(left[wc.QPN] > 0, fmt.Sprintf("a completion of one of %v", left), "of %#x", uint32(wc.QPN))
			left[wc.QPN]--
		}
	}),
}, {
	ID: "verbs/cq/overrun-is-reported", Cite: cite("ibv_poll_cq(3)", "verbs/cq/8"),
	Title:   "A completion queue overrun is reported once, and the queue can no longer be used",
	Sends:   "more completions than a queue has room for",
	Expects: "one CQ_ERR that names the queue; then polls that fail",
	Defects: []string{"CQOverrunSilent", "CQErrRepeats", "AsyncNamesNothing"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 4, nil)
		newFlushSource(r, cq).addCompletions(cq.Depth() + 3)
		e := r.ExpectEvent(verbs.EventCQErr)
		r.Check(e.CQ == cq, "an event that names the queue", "%v", e.CQ)
		// Events of the queue pair may follow, but no second one of the CQ.
		for {
			e, err := r.Device.WaitAsync(shortWait)
			if errors.Is(err, verbs.ErrTimeout) {
				break
			}
			r.Must("events", err)
			r.Check(e.Type != verbs.EventCQErr, "one CQ_ERR", "a second one")
		}
		// Completions from before the overrun may still be polled.
		n, err := 1, error(nil)
		for n > 0 && err == nil {
			n, err = cq.Poll(make([]verbs.WC, 64))
		}
		r.MustFail("polling a queue that has lost completions", err, verbs.ErrOverrun)
	}),
}, {
	ID: "verbs/cq/busy-with-a-queue-pair", Cite: cite("ibv_destroy_cq(3)", "verbs/cq/9"),
	Title:   "A completion queue cannot be closed while a queue pair uses it, for either direction",
	Expects: "EBUSY, until the queue pair is closed",
	Defects: []string{"BusyClosed", "InUseDestroyed"}, Run: rig.Body(func(r *rig.Rig) {
		sends, recvs := newCQ(r, 8, nil), newCQ(r, 8, nil)
		qp := r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: sends, RecvCQ: recvs, Caps: smallCaps})
		r.MustFail("closing the send queue's CQ", sends.Close(), verbs.ErrBusy)
		r.MustFail("closing the receive queue's CQ", recvs.Close(), verbs.ErrBusy)
		r.Must("a queue pair that can be closed", qp.Close())
		r.Must("a CQ that can be closed", sends.Close())
		r.Must("a CQ that can be closed", recvs.Close())
	}),
}, {
	ID: "verbs/cq/resize-keeps-completions", Cite: cite("ibv_resize_cq(3)", "verbs/cq/10"), Needs: verbs.CapResizeCQ,
	Title:   "Resizing a completion queue keeps its completions in order",
	Sends:   "five completions before a queue grows, and five before it shrinks; ten before either, of which some are at the end of the queue's ring and some at its start",
	Expects: "all of them, in order",
	Defects: []string{"ResizeLoses", "ResizeLosesWrapped"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 16, nil)
		s := newFlushSource(r, cq)
		s.addCompletions(5)
		r.Sleep(shortWait)
		r.Must("a queue that can grow", cq.Resize(64))
		s.addCompletions(5)
		r.Sleep(shortWait)
		r.Must("a queue that can shrink to what is in it", cq.Resize(10))
		checkOrder(r, pollCompletions(r, cq, 10, 64), 1, verbs.WCWRFlushErr)
		for _, depth := range []int{64, 10} {
			cq := newCQ(r, 16, nil)
			s := newFlushSource(r, cq)
			before := cq.Depth() - 5
			s.addCompletions(before)
			pollCompletions(r, cq, before, 64)
			s.addCompletions(10)
			r.Sleep(shortWait)
			r.Must(fmt.Sprintf("a queue that can be resized to %d", depth), cq.Resize(depth))
			checkOrder(r, pollCompletions(r, cq, 10, 64), uint64(before)+1, verbs.WCWRFlushErr)
		}
	}),
}, {
	ID:   "verbs/cq/resize-below-what-is-there-refused",
	Cite: cite("ibv_resize_cq(3)", "verbs/cq/11"), Needs: verbs.CapResizeCQ,
	Title:   "A completion queue cannot be resized below its completions or above the device's limit",
	Sends:   "six completions, then sizes of 5, 0 and one above the limit",
	Expects: "each is refused, the depth is unchanged, and the completions are kept",
	Defects: []string{"ResizeUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 16, nil)
		was := cq.Depth()
		newFlushSource(r, cq).addCompletions(6)
		r.Sleep(shortWait)
		for _, depth := range []int{5, 0, r.QueryDevice().MaxCQE + 1} {
			r.MustFail(fmt.Sprintf("a size of %d for a queue with 6 completions", depth), cq.Resize(depth), nil)
			r.Check(cq.Depth() == was, fmt.Sprintf("a depth of %d still", was), "%d", cq.Depth())
		}
		checkOrder(r, pollCompletions(r, cq, 6, 64), 1, verbs.WCWRFlushErr)
	}),
}, {
	ID: "verbs/cq/resize-makes-room", Cite: cite("ibv_resize_cq(3)", "verbs/cq/12"), Needs: verbs.CapResizeCQ,
	Title:   "An enlarged completion queue has the requested room",
	Sends:   "as many completions as the queue has room for now",
	Expects: "at least the requested depth, all of the completions, and no overrun",
	Defects: []string{"ResizeNoop"}, Run: rig.Body(func(r *rig.Rig) {
		cq := newCQ(r, 2, nil)
		r.Must("a queue that can grow", cq.Resize(40))
		r.Check(cq.Depth() >= 40, "a depth of 40 or more", "%d", cq.Depth())
		newFlushSource(r, cq).addCompletions(40)
		checkOrder(r, pollCompletions(r, cq, 40, 64), 1, verbs.WCWRFlushErr)
		r.ExpectNoEvent()
	}),
}}

// newCQ makes a CQ, or ends the case. channel may be nil.
func newCQ(r *rig.Rig, depth int, channel verbs.CompChannel) verbs.CQ {
	return rig.Result(r.Device.CreateCQ(verbs.CQInit{Depth: depth, Channel: channel}))(r, fmt.Sprintf("a completion queue of depth %d", depth))
}

// flushSource makes completions on a CQ without a peer, on every transport: it posts receives to a
// queue pair and moves that to ERR, which flushes them. Each batch uses a new queue pair, because
// RESET may discard completions.
type flushSource struct {
	*rig.Rig
	cq  verbs.CQ
	mem *rig.Memory
	// qp is the queue pair of the last batch.
	qp     verbs.QP
	lastID uint64
}

// newFlushSource returns a source of completions on a CQ.
func newFlushSource(r *rig.Rig, cq verbs.CQ) *flushSource {
	return &flushSource{Rig: r, cq: cq, mem: r.Memory(64, verbs.AccessLocalWrite)}
}

// postReceives posts n receives to a new queue pair in INIT. The IDs of all receives of s are 1, 2,
// and so on.
func (s *flushSource) postReceives(n int) {
	caps := smallCaps
	caps.MaxRecvWR = max(caps.MaxRecvWR, n)
	s.qp = s.Rig.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(s.Rig), PD: s.PD, SendCQ: s.cq, RecvCQ: s.cq, Caps: caps})
	s.ToInit(s.qp, 0, qKey)
	for range n {
		s.lastID++
		s.PostRecv(s.qp, s.lastID, s.mem.SGE(0, 64))
	}
}

// flush makes the posted receives complete with WR_FLUSH_ERR.
func (s *flushSource) flush() { s.ToState(s.qp, errState) }

// addCompletions makes n completions.
func (s *flushSource) addCompletions(n int) {
	s.postReceives(n)
	s.flush()
}

// pollCompletions polls a CQ until it has n completions or more, at most batch at a time. The case
// fails if they do not arrive in time.
func pollCompletions(r *rig.Rig, cq verbs.CQ, n, batch int) []verbs.WC {
	var all []verbs.WC
	into := make([]verbs.WC, batch)
	until := r.Now() + r.ResponseTimeout()
	for len(all) < n {
		k := rig.Result(cq.Poll(into))(r, "a completion queue that can be polled")
		r.Check(k <= batch, fmt.Sprintf("at most %d completions from a poll", batch), "%d", k)
		all = append(all, into[:k]...)
		if k > 0 {
			continue
		}
		r.Check(r.Now() < until, fmt.Sprintf("%d completions", n), "%d", len(all))
		r.Sleep(shortWait)
	}
	return all
}

// checkOrder fails the case unless the completions have this status and consecutive IDs from first.
func checkOrder(r *rig.Rig, wcs []verbs.WC, first uint64, status verbs.WCStatus) {
	for i := range wcs {
		want := first + uint64(i)
		r.Check(wcs[i].WRID == want && wcs[i].Status == status,
			fmt.Sprintf("completion %d to be of request %d, with %v", i+1, want, status), "%s", rig.Describe(&wcs[i]))
	}
}

// expectEmptyCQ fails the case if a completion arrives on the CQ within shortWait.
func expectEmptyCQ(r *rig.Rig, cq verbs.CQ) {
	if wc, ok := r.PollCQ(cq, shortWait); ok {
		r.Fail("no further completion", "%s", rig.Describe(&wc))
	}
}
