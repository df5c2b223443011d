package verbsapi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var sharedCases = conformance.Group{Needs: verbs.CapSRQ}.Cases([]conformance.Case{{
	ID: "verbs/srq/sizes-at-least-as-asked", Cite: cite("ibv_create_srq(3)", "verbs/srq/1"),
	Title:   "A shared receive queue has at least the requested capacities",
	Expects: "at least the requested receives and list entries",
	Defects: []string{"CapsShort"}, Run: rig.Body(func(r *rig.Rig) {
		limit := r.QueryDevice()
		init := srqInit(r)
		init.MaxWR, init.MaxSGE = min(13, limit.MaxSRQWR), min(3, limit.MaxSRQSGE)
		a := srqAttr(r, r.CreateSRQ(init))
		r.Check(a.MaxWR >= init.MaxWR && a.MaxSGE >= init.MaxSGE, fmt.Sprintf("%d receives of %d entries or more", init.MaxWR, init.MaxSGE), "%d of %d", a.MaxWR, a.MaxSGE)
	}),
}, {
	ID: "verbs/srq/sizes-within-the-limits", Cite: cite("ibv_create_srq(3)", "verbs/srq/2"),
	Title:   "A shared receive queue beyond the device's limits is refused, and one at the limits is not",
	Expects: "a refusal of one receive and of one list entry more than the device claims; a queue with as many, if there is memory for it",
	Defects: []string{"CapsUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		limit := r.QueryDevice()
		deep, wide := srqInit(r), srqInit(r)
		deep.MaxWR, wide.MaxSGE = limit.MaxSRQWR, limit.MaxSRQSGE
		mustUnlessNoMemory(r, "a shared receive queue with as many receives as the device claims", errorOf(r.Device.CreateSRQ(deep)))
		mustUnlessNoMemory(r, "a shared receive queue with as long lists as the device claims", errorOf(r.Device.CreateSRQ(wide)))
		deep.MaxWR++
		wide.MaxSGE++
		_, err := r.Device.CreateSRQ(deep)
		r.MustFail("a shared receive queue with more receives than the device claims", err, nil)
		_, err = r.Device.CreateSRQ(wide)
		r.MustFail("a shared receive queue with longer lists than the device claims", err, nil)
	}),
}, {
	ID: "verbs/srq/each-receive-serves-once", Cite: cite("ibv_post_srq_recv(3)", "verbs/srq/3"),
	Title:   "Queue pairs share the receives of a queue: each receive is used for one message",
	Sends:   "six messages of the peer, over two queue pairs in turn, for six receives",
	Expects: "each message in a different receive, whose completion has the QPN of its queue pair",
	Defects: []string{"SRQDoubleUse"}, Run: rig.PairBody(func(d *rig.Pair) {
		srq := d.DUT.CreateSRQ(srqInit(d.DUT))
		links := [2]*qpPair{newSRQPair(d, srq), newSRQPair(d, srq)}
		mem := links[0].dut.mem
		used := make(map[uint64]bool)
		for i := range 6 {
			d.DUT.PostRecv(srq, uint64(i), mem.SGE(512*i, 512))
		}
		for i := range 6 {
			l := links[i%2]
			l.partner.execute(l.partner.sendWR(9, 16*i, 100+i))
			wc := d.DUT.NextCompletion()
			d.DUT.Check(wc.Status == verbs.WCSuccess && !used[wc.WRID] && wc.WRID < 6, "a receive that was not used", "%s", rig.Describe(&wc))
			d.DUT.Check(wc.QPN == l.dut.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(l.dut.qp.QPN())), "%#x", uint32(wc.QPN))
			d.DUT.ExpectBytes(mem, 512*int(wc.WRID)+l.dut.grhLen(), l.partner.mem.Buf[16*i:][:100+i])
			used[wc.WRID] = true
		}
	}),
}, {
	ID: "verbs/srq/full", Cite: cite("ibv_post_srq_recv(3)", "verbs/srq/4"),
	Title:   "Posting to a full shared receive queue fails, and returns how many receives were posted",
	Sends:   "two receives more than there is room for, in one call and then alone",
	Expects: "as many posted as there is room, and ENOMEM; none afterwards",
	Defects: []string{"OverflowSRQ", "PostCountWrong", "FullIsInvalid", "SRQTakesWholeRing"}, Run: rig.Body(func(r *rig.Rig) {
		m := r.Memory(64, verbs.AccessLocalWrite)
		for _, size := range []int{4, 5, 16} {
			init := srqInit(r)
			init.MaxWR = size
			srq := r.CreateSRQ(init)
			expectFullAfter(r, srq, srqSizes(r, srq, &init).MaxWR, m.SGL(0, 64))
		}
	}),
}, {
	ID: "verbs/srq/lists-that-are-too-long-refused", Cite: cite("ibv_post_srq_recv(3)", "verbs/srq/5"),
	Title:   "A receive with more list entries than the shared receive queue has is refused",
	Sends:   "a receive with one entry too many, and one with as many as there are",
	Expects: "EINVAL for the former; the latter is accepted",
	Defects: []string{"SGECut"}, Run: rig.Body(func(r *rig.Rig) {
		init := srqInit(r)
		srq, m := r.CreateSRQ(init), r.Memory(4096, verbs.AccessLocalWrite)
		most := srqSizes(r, srq, &init).MaxSGE
		expectRecvRefused(r, "a receive with too long a list", srq, sgeList(m, most+1, 8), verbs.ErrInvalid)
		r.PostRecv(srq, 2, sgeList(m, most, 8)...)
	}),
}, {
	ID: "verbs/srq/limit-reported-once", Cite: cite("ibv_modify_srq(3)", "verbs/srq/6"),
	Title:   "A shared receive queue raises SRQ_LIMIT_REACHED once when its receives fall below the limit, and again after a new limit is set",
	Sends:   "four messages for four receives, with a limit of 3; then a limit of 2 and two messages for two receives; then, twice, a limit of 1 and the last message, and the queue is closed",
	Expects: "SRQ_LIMIT_REACHED that names the queue, after the second message and not before, and no other; then one more; none of the closed queue",
	Defects: []string{"AsyncEventsLost", "SRQLimitRepeats", "AsyncNamesNothing", "ClosedSRQReports", "CloseDropsOneAsyncEvent"}, Run: rig.Body(func(r *rig.Rig) {
		srq := r.CreateSRQ(srqInit(r))
		l := newSRQPair(rig.NewPair(r), srq)
		use := func() {
			l.partner.execute(l.partner.sendWR(9, 0, 16))
			wc := r.NextCompletion()
			r.Check(wc.Status == verbs.WCSuccess, "a receive", "%s", rig.Describe(&wc))
		}
		reached := func() {
			e := l.dut.ExpectEvent(verbs.EventSRQLimitReached, verbs.EventCommEst)
			r.Check(e.SRQ == srq, "an event that names the queue", "%v", e.SRQ)
		}
		for i := range 4 {
			r.PostRecv(srq, uint64(i), l.dut.mem.SGE(recvOffset, 512))
		}
		r.Must("a limit", srq.Modify(verbs.SRQAttr{Limit: 3}, verbs.SRQLimit))
		use() // 3 receives remain
		l.expectNoEvent()
		use()
		reached()
		use()
		use()
		l.expectNoEvent()
		r.PostRecv(srq, 5, l.dut.mem.SGE(recvOffset, 512))
		r.PostRecv(srq, 6, l.dut.mem.SGE(recvOffset, 512))
		r.Must("a limit again", srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQLimit))
		use()
		reached()
		for range 2 {
			r.Must("a limit once more", srq.Modify(verbs.SRQAttr{Limit: 1}, verbs.SRQLimit))
			use()
			r.PostRecv(srq, 7, l.dut.mem.SGE(recvOffset, 512))
		}
		r.Must("a queue pair that can be closed", l.dut.qp.Close())
		r.Must("a shared receive queue that can be closed", srq.Close())
		l.expectNoEvent()
	}),
}, {
	ID: "verbs/srq/limit-beyond-the-size-refused", Cite: cite("ibv_modify_srq(3)", "verbs/srq/7"),
	Title:   "A limit that is larger than the shared receive queue is refused, and changes nothing",
	Expects: "a limit of the size plus one is refused, and the limit is unchanged",
	Defects: []string{"SRQModifyLies", "SRQUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		srq := r.CreateSRQ(srqInit(r))
		r.Must("a limit", srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQLimit))
		was := srqAttr(r, srq)
		r.MustFail("a limit beyond the size", srq.Modify(verbs.SRQAttr{Limit: was.MaxWR + 1}, verbs.SRQLimit), nil)
		now := srqAttr(r, srq)
		r.Check(now == was, fmt.Sprintf("%+v still", was), "%+v", now)
	}),
}, {
	ID: "verbs/srq/resize", Cite: cite("ibv_modify_srq(3)", "verbs/srq/8"),
	Labels:  []string{conformance.Dangerous}, // Linux 6.1 crashes at a size below the posted receives
	Title:   "A resized shared receive queue has the requested room, keeps its receives, and cannot become smaller than these",
	Sends:   "as many receives as there is room for, a larger size, more receives, the first size, one beyond the device's limit and one of as many; then a message of the peer for each",
	Expects: "at least the requested size, room for that many, a refusal of the first size and of that beyond the limit, and a completion of each receive; or resizing is not supported",
	Defects: []string{"SRQResizeNoop", "SRQModifyLies"}, Run: rig.PairBody(func(d *rig.Pair) {
		r := d.DUT
		init := srqInit(r)
		srq, m := r.CreateSRQ(init), r.Memory(64, verbs.AccessLocalWrite)
		was := srqSizes(r, srq, &init).MaxWR
		waiting := make(map[uint64]bool)
		fill := func(n int) {
			for range n {
				id := uint64(len(waiting) + 1)
				waiting[id] = true
				r.PostRecv(srq, id, m.SGE(0, 64))
			}
		}
		fill(was)
		err := srq.Modify(verbs.SRQAttr{MaxWR: was + 8}, verbs.SRQMaxWR)
		if errors.Is(err, verbs.ErrNotSupported) {
			rig.Abort(fmt.Errorf("the device cannot resize shared receive queues, as it may: %w", conformance.ErrBenchCannot))
		}
		r.Must("a larger size", err)
		if now, err := srq.Query(); !errors.Is(err, verbs.ErrNotSupported) {
			r.Must("a shared receive queue that can be queried", err)
			r.Check(now.MaxWR >= was+8, fmt.Sprintf("%d receives or more", was+8), "%d", now.MaxWR)
		}
		fill(8)
		// The device made the first size was. It may make others larger than what is posted.
		r.MustFail("a size below what is posted", srq.Modify(verbs.SRQAttr{MaxWR: init.MaxWR}, verbs.SRQMaxWR), nil)
		r.MustFail("a size beyond the device's limit", srq.Modify(verbs.SRQAttr{MaxWR: r.QueryDevice().MaxSRQWR + 1}, verbs.SRQMaxWR), nil)
		r.Must("a size of what is posted", srq.Modify(verbs.SRQAttr{MaxWR: was + 8}, verbs.SRQMaxWR))
		l := newSRQPair(d, srq)
		for range was + 8 {
			l.partner.execute(l.partner.sendWR(1, 0, 8))
			wc := l.dut.NextCompletion()
			r.Check(wc.Status == verbs.WCSuccess && waiting[wc.WRID], "a receive that was posted and has not completed yet", "%s", rig.Describe(&wc))
			delete(waiting, wc.WRID)
		}
	}),
}, {
	ID: "verbs/srq/busy-with-a-queue-pair", Cite: cite("ibv_destroy_srq(3)", "verbs/srq/9"),
	Title:   "A shared receive queue cannot be closed while a queue pair uses it",
	Expects: "EBUSY, until the queue pair is closed; then it can be closed with receives in it, and its domain afterwards",
	Defects: []string{"BusyClosed", "BusySRQFreesPD"}, Run: rig.Body(func(r *rig.Rig) {
		init := srqInit(r)
		init.PD = otherPD(r)
		srq, m := r.CreateSRQ(init), r.MemoryIn(init.PD, 64, verbs.AccessLocalWrite)
		r.PostRecv(srq, 1, m.SGE(0, 64))
		r.Must("a region that can be closed", m.Close())
		qp := r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps, SRQ: srq})
		r.MustFail("closing a shared receive queue in use", srq.Close(), verbs.ErrBusy)
		r.MustFail("closing its domain", init.PD.Close(), verbs.ErrBusy)
		r.Must("a queue pair that can be closed", qp.Close())
		r.Must("a shared receive queue that can be closed", srq.Close())
		r.Must("an empty domain that can be closed", init.PD.Close())
	}),
}, {
	ID: "verbs/srq/survives-its-queue-pairs", Cite: cite("ibv_get_async_event(3)", "verbs/srq/10"),
	Title:   "A failed queue pair leaves the receives of its shared queue to the others, and raises LAST_WQE_REACHED",
	Sends:   "ERR to one of two queue pairs; a message of the peer over the other",
	Expects: "QP_LAST_WQE_REACHED that names the failed one, no receive flushed, and the message in a receive",
	Defects: []string{"AsyncEventsLost", "AsyncNamesNothing"}, Run: rig.PairBody(func(d *rig.Pair) {
		srq := d.DUT.CreateSRQ(srqInit(d.DUT))
		goes, stays := newSRQPair(d, srq), newSRQPair(d, srq)
		d.DUT.PostRecv(srq, 1, stays.dut.mem.SGE(recvOffset, 512))
		goes.dut.ToState(goes.dut.qp, errState)
		e := stays.dut.ExpectEvent(verbs.EventQPLastWQEReached, verbs.EventCommEst)
		d.DUT.Check(e.QP == goes.dut.qp, "an event that names the failed queue pair", "%v", e.QP)
		expectEmptyCQ(d.DUT, d.DUT.CQ)
		stays.partner.PostSend(stays.partner.qp, stays.partner.sendWR(2, 0, 16))
		stays.dut.expectMessage(1, recvOffset, stays.partner.mem.Buf[:16])
	}),
}})

var sharedPeerCases = alsoOverRD([]conformance.Case{{
	ID: "verbs/srq/memory-of-its-own-domain", Cite: cite("ibv_create_srq(3)", "verbs/srq/11"), Needs: verbs.CapSRQ,
	Title:   "Receives of a shared queue need memory of the queue's protection domain, whatever that of the queue pair",
	Sends:   "messages of the peer for a receive in memory of the queue's domain, and for one in memory of the queue pair's",
	Expects: "the first in its receive; the second is refused or completes with an error",
	Defects: []string{"SRQReceiveAnyPD"}, Run: rig.PairBody(func(d *rig.Pair) {
		r := d.DUT
		init := srqInit(r)
		init.PD = otherPD(r)
		srq := r.CreateSRQ(init)
		l := newSRQPair(d, srq)
		m := r.MemoryIn(init.PD, 64, verbs.AccessLocalWrite)
		r.PostRecv(srq, 1, m.SGE(0, 64))
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(2, 0, 16))
		r.ExpectRecv(1, l.dut.grhLen()+16)
		r.ExpectBytes(m, l.dut.grhLen(), l.partner.mem.Buf[:16])
		if n, err := srq.PostRecv([]verbs.RecvWR{{WRID: 3, SGL: l.dut.mem.SGL(recvOffset, 64)}}); err != nil {
			r.Check(n == 0, "no receive posted if it is refused", "%d", n)
			return
		}
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(4, 0, 16))
		wc := r.NextCompletion()
		r.Check(wc.WRID == 3 && wc.Status != verbs.WCSuccess, "a receive in memory of another domain that fails", "%s", rig.Describe(&wc))
	}),
}})

// srqInit returns the attributes of a small SRQ.
func srqInit(r *rig.Rig) verbs.SRQInit { return verbs.SRQInit{PD: r.PD, MaxWR: 8, MaxSGE: 1} }

// srqAttr returns the attributes of an SRQ.
func srqAttr(r *rig.Rig, srq verbs.SRQ) verbs.SRQAttr {
	return rig.Result(srq.Query())(r, "a shared receive queue that can be queried")
}

// srqSizes returns the capacities of an SRQ made with init: the requested ones if the library
// cannot query an SRQ, which another case reports.
func srqSizes(r *rig.Rig, srq verbs.SRQ, init *verbs.SRQInit) verbs.SRQAttr {
	a, err := srq.Query()
	if errors.Is(err, verbs.ErrNotSupported) {
		return verbs.SRQAttr{MaxWR: init.MaxWR, MaxSGE: init.MaxSGE}
	}
	r.Must("a shared receive queue that can be queried", err)
	return a
}

// createQueriedSRQ creates an SRQ, and queries it. It returns nil if the device has no SRQs, or if
// the library cannot query them, which another case reports.
func createQueriedSRQ(r *rig.Rig, init verbs.SRQInit) (verbs.SRQ, verbs.SRQAttr) {
	if !r.Caps.Has(verbs.CapSRQ) {
		return nil, verbs.SRQAttr{}
	}
	srq := r.CreateSRQ(init)
	a, err := srq.Query()
	if errors.Is(err, verbs.ErrNotSupported) {
		r.Must("a shared receive queue that can be closed", srq.Close())
		return nil, a
	}
	r.Must("a shared receive queue that can be queried", err)
	return srq, a
}

// newSRQPair makes a pair whose DUT endpoint receives from an SRQ.
func newSRQPair(d *rig.Pair, srq verbs.SRQ) *qpPair {
	return newPair(d, setup{modifyInit: func(init *verbs.QPInit) { init.SRQ = srq }})
}
