package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Completions without a peer: the receives of a queue pair are flushed when it fails, on
// every transport and whatever the service.

// flushSource makes completions on a queue of the case's choice.
//
// Receives are posted before the queue pair fails: whether those are flushed that are
// posted afterwards is a question of its own (verbs/flush/posted-afterwards), and no case
// about something else shall depend on it. So every batch has a queue pair of its own; one
// that is reset and used again may lose the completions that it has made.
type flushSource struct {
	*rig.Rig
	cq  verbs.CQ
	mem *rig.Memory
	// qp is the queue pair of the last batch.
	qp verbs.QP
	n  uint64
}

// newFlushSource returns a source for a completion queue.
func newFlushSource(r *rig.Rig, cq verbs.CQ) *flushSource {
	return &flushSource{Rig: r, cq: cq, mem: r.Memory(64, verbs.AccessLocalWrite)}
}

// postReceives readies n completions, whose IDs go on from those before, beginning with 1.
func (s *flushSource) postReceives(n int) {
	caps := smallCaps
	caps.MaxRecvWR = max(caps.MaxRecvWR, n)
	s.qp = newQP(s.Rig, verbs.QPInit{Type: defaultQPType(s.Rig), PD: s.PD, SendCQ: s.cq, RecvCQ: s.cq, Caps: caps})
	toInit(s.Rig, s.qp, 0)
	for range n {
		s.n++
		s.PostRecv(s.qp, s.n, s.mem.SGE(0, 64))
	}
}

// flush makes the completions that are ready.
func (s *flushSource) flush() { toState(s.Rig, s.qp, errState) }

// complete makes n completions.
func (s *flushSource) complete(n int) {
	s.postReceives(n)
	s.flush()
}

// pollCompletions polls a queue until it has given n completions, as many at a time as
// fit into a batch, or patience ends.
func pollCompletions(r *rig.Rig, cq verbs.CQ, n, batch int) []verbs.WC {
	var all []verbs.WC
	into := make([]verbs.WC, batch)
	pause, until := shortWait, r.Now()+r.ResponseTimeout()
	for len(all) < n {
		k, err := cq.Poll(into)
		r.Must("a completion queue that can be polled", err)
		r.Check(k <= batch, fmt.Sprintf("at most %d completions from a poll for so many", batch), "%d", k)
		all = append(all, into[:k]...)
		if k > 0 {
			continue
		}
		r.Check(r.Now() < until, fmt.Sprintf("%d completions", n), "%d", len(all))
		r.Sleep(pause)
	}
	return all
}

// checkOrder ends the case unless completions have these IDs one after the other, from
// first on, and this status.
func checkOrder(r *rig.Rig, wcs []verbs.WC, first uint64, status verbs.WCStatus) {
	for i := range wcs {
		want := first + uint64(i)
		r.Check(wcs[i].WRID == want && wcs[i].Status == status,
			fmt.Sprintf("completion %d to be of request %d, with %v", i+1, want, status), "%s", rig.Describe(&wcs[i]))
	}
}

// expectEmptyCQ ends the case if a queue has a completion by now.
func expectEmptyCQ(r *rig.Rig, cq verbs.CQ) {
	if wc, ok := r.PollCQ(cq, shortWait); ok {
		r.Fail("no further completion", "%s", rig.Describe(&wc))
	}
}
