package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// This file makes completions without a peer: receives of a queue pair are flushed when
// it fails, on every transport.

// flushSource makes completions on a CQ, by flushed receives.
//
// Receives are posted before the queue pair fails, because verbs/flush/posted-afterwards
// tests those posted later. Every batch uses a new queue pair: RESET may discard
// completions.
type flushSource struct {
	*rig.Rig
	cq  verbs.CQ
	mem *rig.Memory
	// qp is the queue pair of the last batch.
	qp verbs.QP
	n  uint64
}

func newFlushSource(r *rig.Rig, cq verbs.CQ) *flushSource {
	return &flushSource{Rig: r, cq: cq, mem: r.Memory(64, verbs.AccessLocalWrite)}
}

// postReceives posts n receives. Their IDs continue those before, from 1 on.
func (s *flushSource) postReceives(n int) {
	caps := smallCaps
	caps.MaxRecvWR = max(caps.MaxRecvWR, n)
	s.qp = newQP(s.Rig, verbs.QPInit{Type: defaultQPType(s.Rig), PD: s.PD, SendCQ: s.cq, RecvCQ: s.cq, Caps: caps})
	s.ToInit(s.qp, 0, qKey)
	for range n {
		s.n++
		s.PostRecv(s.qp, s.n, s.mem.SGE(0, 64))
	}
}

// flush makes the posted receives complete.
func (s *flushSource) flush() { s.ToState(s.qp, errState) }

// complete makes n completions.
func (s *flushSource) complete(n int) {
	s.postReceives(n)
	s.flush()
}

// pollCompletions polls a CQ for n completions, at most batch at a time. The case fails
// if they do not arrive in time.
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

// checkOrder fails the case unless the completions have consecutive IDs from first on,
// and this status.
func checkOrder(r *rig.Rig, wcs []verbs.WC, first uint64, status verbs.WCStatus) {
	for i := range wcs {
		want := first + uint64(i)
		r.Check(wcs[i].WRID == want && wcs[i].Status == status,
			fmt.Sprintf("completion %d to be of request %d, with %v", i+1, want, status), "%s", rig.Describe(&wcs[i]))
	}
}

// expectEmptyCQ fails the case if a completion arrives on the CQ soon.
func expectEmptyCQ(r *rig.Rig, cq verbs.CQ) {
	if wc, ok := r.PollCQ(cq, shortWait); ok {
		r.Fail("no further completion", "%s", rig.Describe(&wc))
	}
}
