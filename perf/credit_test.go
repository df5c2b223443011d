package perf

import "testing"

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
