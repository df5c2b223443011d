package perf

import (
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// countedQP notes how many requests each post had.
type countedQP struct {
	verbs.QP
	posts []int
}

func (q *countedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.posts = append(q.posts, len(wrs))
	return len(wrs), nil
}

// readyCQ returns a number of completions to the first poll.
type readyCQ struct {
	verbs.CQ
	ready int
}

func (c *readyCQ) Poll(into []verbs.WC) (int, error) {
	n := min(len(into), c.ready)
	clear(into[:n])
	c.ready -= n
	return n, nil
}

type anyMR struct{ verbs.MR }

func (anyMR) Addr() uint64     { return 1 << 20 }
func (anyMR) LKey() verbs.LKey { return 1 }

// A device can send messages together that are posted together.
func TestCompletionsOfOnePollArePostedTogether(t *testing.T) {
	qp, cq := &countedQP{}, &readyCQ{}
	c := &conn{qps: []verbs.QP{qp}, sends: cq, mr: anyMR{}}
	s, err := newSender(c, sendLoad{op: verbs.OpRDMAWrite, bytes: 64, depth: 32, burst: 16, minBurst: 1, signalEvery: 1, slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.postAll(); err != nil || len(qp.posts) != 2 || s.open != 32 {
		t.Fatalf("posts of %v, %v", qp.posts, err)
	}
	qp.posts, cq.ready = nil, 9
	if n, moved, err := s.poll(); n != 9 || !moved || err != nil {
		t.Fatalf("%d, %v, %v", n, moved, err)
	}
	if len(qp.posts) != 1 || qp.posts[0] != 9 {
		t.Errorf("nine completions were followed by posts of %v, want one of 9", qp.posts)
	}
}
