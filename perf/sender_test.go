package perf

import (
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// countingQP records the number of requests of each post.
type countingQP struct {
	verbs.QP
	posts []int
}

func (q *countingQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.posts = append(q.posts, len(wrs))
	return len(wrs), nil
}

// readyCQ returns ready completions.
type readyCQ struct {
	verbs.CQ
	ready int
}

func (c *readyCQ) Poll(into []verbs.WC) (int, error) {
	n := min(len(into), c.ready)
	for i := range n {
		into[i] = verbs.WC{WRID: 1 << 32} // of one message, on the first queue pair
	}
	c.ready -= n
	return n, nil
}

type anyMR struct{ verbs.MR }

func (anyMR) Addr() uint64     { return 1 << 20 }
func (anyMR) LKey() verbs.LKey { return 1 }

// The sender posts requests together, so that the device can send them together.
func TestCompletionsOfOnePollArePostedTogether(t *testing.T) {
	qp, cq := &countingQP{}, &readyCQ{}
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
	expect := func(want int, when string) {
		t.Helper()
		if got := p.available(0); got != want {
			t.Errorf("%s: %d available, want %d", when, got, want)
		}
	}
	p.sent[0] = 8
	expect(0, "all sent")
	p.grant(0, 4)
	expect(4, "credits for half")
	p.grant(0, 2)
	expect(4, "an older credit arrived late")
	p.assumeLost()
	expect(8, "four were lost")
	p.sent[0] += 8
	p.grant(0, 8) // for the four lost and four new messages
	expect(4, "credits for half again")
	if !p.isCreditDue(4) || p.isCreditDue(5) {
		t.Error("isCreditDue with four messages in flight")
	}
}

func TestCreditCountersWrap(t *testing.T) {
	const near = ^uint32(0) - 3
	p := &creditTracker{window: 8, sent: []uint32{near}, granted: []uint32{near}, lost: make([]uint32, 1)}
	p.sent[0] += 8
	near8 := p.sent[0]
	p.grant(0, near8-2)
	if p.available(0) != 6 {
		t.Errorf("%d available", p.available(0))
	}
}
