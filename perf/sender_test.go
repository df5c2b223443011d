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
	if err := s.postAll(); err != nil || len(qp.posts) != 2 || s.inFlight != 32 {
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

func TestLostCreditsAreRecovered(t *testing.T) {
	p := &creditTracker{window: 8, sent: make([]uint32, 1), granted: make([]uint32, 1), lost: make([]uint32, 1)}
	expect := func(room int, when string) {
		t.Helper()
		if got := p.available(0); got != room {
			t.Errorf("%s: room for %d, want %d", when, got, room)
		}
	}
	p.sent[0] = 8
	expect(0, "all sent")
	p.grant(0, 4)
	expect(4, "half was taken")
	p.grant(0, 2)
	expect(4, "an older credit came late")
	p.assumeLost()
	expect(8, "four were lost")
	p.sent[0] += 8
	p.grant(0, 8) // four before and four of these
	expect(4, "half was taken again")
	if p.noCreditDue(4) || !p.noCreditDue(5) {
		t.Error("four are on their way")
	}
}

func TestCreditCountersWrap(t *testing.T) {
	const near = ^uint32(0) - 3
	p := &creditTracker{window: 8, sent: []uint32{near}, granted: []uint32{near}, lost: make([]uint32, 1)}
	p.sent[0] += 8
	near8 := p.sent[0]
	p.grant(0, near8-2)
	if p.available(0) != 6 {
		t.Errorf("room for %d", p.available(0))
	}
}
