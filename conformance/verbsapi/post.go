package verbsapi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var postCases = []conformance.Case{{
	ID: "verbs/post/send-before-ready-refused", Cite: cite("C10-96", "verbs/post/1"),
	Title:   "Posting a send in RESET or INIT fails, and the send is not flushed later",
	Expects: "an error from the post in both states; no completion when the queue pair then fails",
	Defects: []string{"BadPostsSwallowed"}, Run: onPair(setup{}, func(l *qpPair) {
		e := &endpoint{Rig: l.dut.Rig, qp: newDefaultQP(l.dut.Rig), mem: l.dut.mem, udDest: l.dut.udDest}
		e.expectPostRefused("a send in RESET", e.sendWR(1, 0, 16), nil)
		e.ToInit(e.qp, 0, qKey)
		e.expectPostRefused("a send in INIT", e.sendWR(2, 0, 16), nil)
		e.ToState(e.qp, errState)
		expectEmptyCQ(e.Rig, e.CQ)
	}),
}, {
	ID: "verbs/post/receive-from-init-on", Cite: cite("C10-97.2.1", "verbs/post/2"),
	Title:   "A receive can be posted in INIT, and is used when the queue pair is connected",
	Sends:   "a message of the peer for a receive that was posted in INIT",
	Expects: "the message in that receive",
	Defects: []string{"RecvNeedsReady"}, Run: rig.PairBody(func(d *rig.Pair) {
		l := &qpPair{dut: newEndpoint(d.DUT, &setup{qpType: rig.DefaultQPType(d.DUT)}), partner: newEndpoint(d.Partner, &setup{qpType: rig.DefaultQPType(d.DUT)})}
		l.dut.postRecv(7, recvOffset, 64)
		l.connect(&setup{qpType: rig.DefaultQPType(d.DUT)})
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(1, 0, 16))
		l.dut.expectMessage(7, recvOffset, l.partner.mem.Buf[:16])
	}),
}, {
	ID: "verbs/post/receive-in-reset-refused", Cite: cite("C10-97.2.1", "verbs/post/3"),
	Title:   "A receive that is posted in RESET is refused",
	Expects: "an error from the post, and no receive posted",
	Defects: []string{"BadPostsSwallowed"}, Run: rig.Body(func(r *rig.Rig) {
		requireIB(r, "iWARP has one state, Idle, for RESET and INIT, and takes receives in it")
		expectRecvRefused(r, "a receive in RESET", newDefaultQP(r), r.Memory(64, verbs.AccessLocalWrite).SGL(0, 64), nil)
	}),
}, {
	ID: "verbs/post/full-receive-queue", Cite: cite("ibv_post_recv(3)", "verbs/post/4"),
	Title:   "Posting to a full receive queue fails, and returns how many receives were posted",
	Sends:   "two receives more than there is room for, in one call and then alone",
	Expects: "as many posted as there is room, and ENOMEM; none afterwards; those posted, and no others, are flushed",
	Defects: []string{"PostCountWrong", "FullIsInvalid"}, Run: rig.Body(func(r *rig.Rig) {
		qp, m := newDefaultQP(r), r.Memory(64, verbs.AccessLocalWrite)
		r.ToInit(qp, 0, qKey)
		room := r.QueryQP(qp).Caps.MaxRecvWR
		expectFullAfter(r, qp, room, m.SGL(0, 64))
		r.ToState(qp, errState)
		checkOrder(r, pollCompletions(r, r.CQ, room, 64), 1, verbs.WCWRFlushErr)
		expectEmptyCQ(r, r.CQ)
	}),
}, {
	ID: "verbs/post/full-send-queue", Cite: cite("ibv_post_send(3)", "verbs/post/5"), Needs: verbs.CapRC,
	Title:   "Posting to a full send queue fails, returns how many requests were posted, and succeeds again when they are complete",
	Sends:   "two requests more than there is room for, to a peer without receives; then the receives",
	Expects: "as many posted as there is room, and ENOMEM; those and no others arrive; then one more",
	Defects: []string{"PostCountWrong", "FullIsInvalid"}, Run: onPair(setup{}, func(l *qpPair) {
		requireIB(l.dut.Rig, "over iWARP nothing makes a sender wait for a receive, which would keep its queue full")
		room := l.dut.QueryQP(l.dut.qp).Caps.MaxSendWR
		wrs := make([]verbs.SendWR, room+2)
		for i := range wrs {
			wrs[i] = l.dut.sendWR(uint64(i+1), 0, 16)
		}
		n, err := l.dut.qp.PostSend(wrs)
		l.dut.MustFail("one request too many", err, verbs.ErrNoMemory)
		l.dut.Check(n == room, fmt.Sprintf("%d requests posted", room), "%d", n)
		for i := range room {
			l.partner.postRecv(uint64(i+1), recvOffset, 64)
			l.dut.ExpectCompletion(uint64(i+1), verbs.WCSuccess)
			l.partner.ExpectRecv(uint64(i+1), 16)
		}
		expectDelivery(l.dut, l.partner, 16)
	}),
}, {
	ID: "verbs/post/stops-at-the-first-bad-request", Cite: cite("ibv_post_send(3)", "verbs/post/6"),
	Title:   "Posting a list with a bad request posts those before it only",
	Sends:   "three sends in one call, of which the second has a list that is too long; then three such receives",
	Expects: "one posted each time, and EINVAL; the first completes, and nothing else",
	Defects: []string{"PostCountWrong", "BadPostsSwallowed"}, Run: onPair(setup{}, func(l *qpPair) {
		l.partner.postRecv(1, recvOffset, 64)
		l.partner.postRecv(2, recvOffset+1024, 64)
		bad := l.dut.sendOf(2, sgeList(l.dut.mem, l.dut.QueryQP(l.dut.qp).Caps.MaxSendSGE+1, 4)...)
		n, err := l.dut.qp.PostSend([]verbs.SendWR{l.dut.sendWR(1, 0, 16), bad, l.dut.sendWR(3, 0, 16)})
		l.dut.MustFail("a request with too long a list", err, verbs.ErrInvalid)
		l.dut.Check(n == 1, "one request posted", "%d", n)
		l.dut.ExpectCompletion(1, verbs.WCSuccess)
		l.partner.expectMessage(1, recvOffset, l.dut.mem.Buf[:16])
		l.dut.PostSend(l.dut.qp, l.dut.sendWR(4, 32, 8)) // no other message was sent in between
		l.dut.ExpectCompletion(4, verbs.WCSuccess)
		l.partner.expectMessage(2, recvOffset+1024, l.dut.mem.Buf[32:40])
		good, long := l.dut.mem.SGL(0, 64), sgeList(l.dut.mem, l.dut.QueryQP(l.dut.qp).Caps.MaxRecvSGE+1, 64)
		n, err = l.dut.qp.PostRecv([]verbs.RecvWR{{WRID: 11, SGL: good}, {WRID: 12, SGL: long}, {WRID: 13, SGL: good}})
		l.dut.MustFail("a receive with too long a list", err, verbs.ErrInvalid)
		l.dut.Check(n == 1, "one receive posted", "%d", n)
		l.dut.ToState(l.dut.qp, errState)
		l.dut.ExpectCompletion(11, verbs.WCWRFlushErr)
		expectEmptyCQ(l.dut.Rig, l.dut.CQ)
	}),
}, {
	ID: "verbs/post/lists-that-are-too-long-refused", Cite: cite("ibv_post_send(3)", "verbs/post/7"),
	Title:   "A request or a receive with more list entries than the queue pair has is refused",
	Sends:   "a send and a receive with one entry too many, and with as many as there are",
	Expects: "the former are refused and the latter accepted",
	Defects: []string{"SGECut"}, Run: onPair(setup{}, func(l *qpPair) {
		caps := l.dut.QueryQP(l.dut.qp).Caps
		long := l.dut.sendOf(1, sgeList(l.dut.mem, caps.MaxSendSGE+1, 4)...)
		l.dut.expectPostRefused("a send with too long a list", long, verbs.ErrInvalid)
		expectRecvRefused(l.dut.Rig, "a receive with too long a list", l.dut.qp, sgeList(l.dut.mem, caps.MaxRecvSGE+1, 64), verbs.ErrInvalid)
		l.dut.PostRecv(l.dut.qp, 3, sgeList(l.dut.mem, caps.MaxRecvSGE, 64)...)
		l.partner.postRecv(4, recvOffset, 64)
		l.dut.execute(l.dut.sendOf(1, sgeList(l.dut.mem, caps.MaxSendSGE, 4)...))
	}),
}, {
	ID: "verbs/post/lists-are-taken-in-order", Cite: cite("ibv_post_send(3)", "verbs/post/8"),
	Title:   "A message is gathered from its list in order, and scattered over the receive's in order",
	Sends:   "messages of two pieces in each direction; connections also have one of several packets",
	Expects: "the pieces one after the other, split where the receive's first entry ends",
	Defects: []string{"SGEsReversed"},
	Run:     onLists([]listSplit{{7, 20, 10}, {1, 26, 26}, {1500, 1227, 1100}, {900, 2200, 2100}}),
}, {
	ID: "verbs/post/lists-with-empty-entries", Cite: cite("ibv_post_send(3)", "verbs/post/8"),
	Labels:  []string{conformance.Dangerous}, // Linux's siw crashes
	Title:   "Empty entries of a list add nothing to a message, and take nothing from it",
	Sends:   "messages of two pieces, one of which is empty, in each direction; connections also have one of several packets",
	Expects: "the other piece, split where the receive's first entry ends, which may be empty",
	Defects: []string{"EmptySGEEndsList"},
	Run:     onLists([]listSplit{{0, 27, 27}, {27, 0, 0}, {0, 2700, 1100}, {2700, 0, 1100}}),
}, {
	ID: "verbs/post/empty-message", Cite: cite("ibv_post_send(3)", "verbs/post/9"),
	Title:   "A message of no bytes is sent and uses a receive",
	Sends:   "sends without a list, and with an entry of no bytes",
	Expects: "a receive of no bytes for each",
	Defects: []string{"EmptySendRefused"}, Run: onPair(setup{}, func(l *qpPair) {
		for _, sgl := range [][]verbs.SGE{nil, l.dut.mem.SGL(0, 0)} {
			l.dut.expectArrives(l.partner, l.dut.sendOf(9, sgl...), nil)
		}
	}),
}, {
	ID: "verbs/post/order-of-completions", Cite: cite("ibv_post_send(3)", "verbs/post/10"), Needs: verbs.CapRC,
	Title:   "Sends complete in the order of posting, whatever kinds they are of",
	Sends:   "writes, reads and sends in turn, in one call",
	Expects: "their completions in order, polled together",
	Defects: []string{"PollReversed", "SendsOvertake"}, Run: onPair(setup{}, func(l *qpPair) {
		wrs := make([]verbs.SendWR, 0, 12)
		for i := range 4 {
			l.partner.postRecv(uint64(i+1), recvOffset, 64)
			id := uint64(3*i + 1)
			wrs = append(wrs, l.dut.readWR(id, 2000, l.partner.mem.Remote(0)), l.dut.sendWR(id+1, 0, 16), l.dut.writeWR(id+2, 0, 16, l.partner.mem.Remote(4096)))
		}
		l.dut.PostSend(l.dut.qp, wrs...)
		for range 4 {
			l.partner.NextCompletion()
		}
		l.dut.Sleep(shortWait)
		checkOrder(l.dut.Rig, pollCompletions(l.dut.Rig, l.dut.CQ, 12, 64), 1, verbs.WCSuccess)
	}),
}, {
	ID: "verbs/post/unknown-operation-refused", Cite: cite("ibv_post_send(3)", "verbs/post/11"),
	Title:   "An unknown opcode is refused, and the queue pair continues",
	Sends:   "requests with opcodes 13 and 200",
	Expects: "each is refused; then a message arrives",
	Defects: []string{"BadPostsSwallowed", "OpsDowngraded"}, Run: onPair(setup{}, func(l *qpPair) {
		for _, op := range []verbs.WROpcode{13, 200} {
			wr := l.dut.sendWR(1, 0, 8)
			wr.Opcode = op
			l.dut.expectPostRefused(fmt.Sprintf("operation %d", op), wr, nil)
		}
		expectDelivery(l.dut, l.partner, 16)
	}),
}, {
	ID:   "verbs/post/operations-of-other-services",
	Cite: cite("ibv_post_send(3)", "verbs/post/12"), Needs: verbs.CapUD, Labels: []string{"service:ud"},
	Title:   "READs and atomics fail on UC and UD queue pairs, WRITEs on UD ones of InfiniBand, and nothing is sent",
	Sends:   "a READ, a compare-and-swap and a fetch-and-add on a UD queue pair, and on a UC one if the device has UC; WRITEs with and without immediate data on a UD one of InfiniBand",
	Expects: "each is refused or completes with an error, and the partner's receive is not used",
	Defects: []string{"OpsDowngraded"}, Run: rig.Body(func(r *rig.Rig) {
		if r.Caps.Has(verbs.CapRD) {
			rig.Abort(fmt.Errorf("datagrams of this device are reliable, and have these operations: %w", conformance.ErrBenchCannot))
		}
		d := rig.NewPair(r)
		for i, op := range []verbs.WROpcode{
			verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm,
			verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd,
		} {
			kind := verbs.QPTypeUD
			switch {
			case i >= 3 && !isIB(r): // datagrams of iWARP have WRITEs
				continue
			case i >= 5 && !r.Caps.Has(verbs.CapUC):
				continue
			case i >= 5:
				kind = verbs.QPTypeUC
			}
			l := newPair(d, setup{qpType: kind})
			l.partner.postRecv(1, recvOffset, 64)
			wr := l.dut.sendWR(2, 0, 8)
			wr.Opcode, wr.Remote = op, l.partner.mem.Remote(0)
			l.dut.expectFailure(fmt.Sprintf("%v on %v", op, kind), wr)
			if wc, ok := l.partner.PollCompletion(shortWait); ok {
				r.Fail("nothing sent", "%s", rig.Describe(&wc))
			}
		}
	}),
}}

// expectRecvRefused fails the case unless posting a receive with these SGEs fails with error
// reason, or with any error if reason is nil.
func expectRecvRefused(r *rig.Rig, what string, queue rig.RecvQueue, sgl []verbs.SGE, reason error) {
	n, err := queue.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: sgl}})
	r.MustFail(what, err, reason)
	r.Check(n == 0, "no receive posted", "%d", n)
}

// expectFullAfter fails the case unless an empty queue accepts capacity receives, with IDs from 1
// on, and refuses more with ENOMEM.
func expectFullAfter(r *rig.Rig, queue rig.RecvQueue, capacity int, sgl []verbs.SGE) {
	wrs := make([]verbs.RecvWR, capacity+2)
	for i := range wrs {
		wrs[i] = verbs.RecvWR{WRID: uint64(i + 1), SGL: sgl}
	}
	n, err := queue.PostRecv(wrs)
	r.MustFail("one receive too many", err, verbs.ErrNoMemory)
	r.Check(n == capacity, fmt.Sprintf("%d receives posted", capacity), "%d", n)
	n, err = queue.PostRecv(wrs[capacity:])
	r.MustFail("another receive too many", err, verbs.ErrNoMemory)
	r.Check(n == 0, "none posted", "%d", n)
}

// listSplit has the sizes of the two entries of a send, and of the first of two of its receive.
type listSplit struct{ first, second, recv int }

// onLists makes the body of a case that sends messages of two entries in each direction, and fails
// unless the entries are gathered and scattered in order.
func onLists(splits []listSplit) func(*conformance.Bench) error {
	return onPair(setup{}, func(l *qpPair) {
		for _, dir := range []struct{ from, to *endpoint }{{l.dut, l.partner}, {l.partner, l.dut}} {
			for _, s := range splits {
				if s.first+s.second > 1024 && dir.from.qp.Type() == verbs.QPTypeUD {
					continue
				}
				dir.to.PostRecv(dir.to.qp, 1, dir.to.mem.SGE(recvOffset, dir.to.grhLen()+s.recv), dir.to.mem.SGE(recvOffset+4096, 2048))
				dir.from.execute(dir.from.sendOf(2, dir.from.mem.SGE(100, s.first), dir.from.mem.SGE(40, s.second)))
				dir.to.ExpectRecv(1, dir.to.grhLen()+s.first+s.second)
				message := slices.Concat(dir.from.mem.Buf[100:][:s.first], dir.from.mem.Buf[40:][:s.second])
				dir.to.ExpectBytes(dir.to.mem, recvOffset+dir.to.grhLen(), message[:s.recv])
				dir.to.ExpectBytes(dir.to.mem, recvOffset+4096, message[s.recv:])
			}
		}
	})
}

// sgeList returns n SGEs of size bytes each, one after the other in m.
func sgeList(m *rig.Memory, n, size int) (sgl []verbs.SGE) {
	for i := range n {
		sgl = append(sgl, m.SGE(i*size, size))
	}
	return sgl
}
