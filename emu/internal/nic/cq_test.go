package nic

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func (b *Base) mustCQ(t testing.TB, depth int) *CQ {
	t.Helper()
	cq := must.Get(b.CreateCQ(depth))(t)
	return cq
}

// A CQ in use cannot be destroyed. Destroying a CQ removes its events.
func TestDestroyCQ(t *testing.T) {
	b, _ := newBase(t, func(l *Limits, _ *Policy) { l.CQs, l.CQE = 2, 4096 })
	b.mustCQ(t, 4096)
	for _, depth := range []int{-1, 0, 4097} {
		if _, err := b.CreateCQ(depth); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	cq := b.mustCQ(t, 16)
	if _, err := b.CreateCQ(1); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a third CQ of two: %v", err)
	}
	cq.Use(1)
	if err := b.DestroyCQ(cq); !errors.Is(err, verbs.ErrBusy) || cq.Gone() {
		t.Errorf("DestroyCQ of a CQ in use: %v", err)
	}
	cq.Use(-1)
	cq.ReqNotify(false)
	for range 17 {
		cq.Push(&verbs.WC{}, false)
	}
	if len(b.events) != 1 || len(b.fired) != 1 || b.CompletionEvents() != 1 {
		t.Fatalf("%d events, %d of completions", len(b.events), len(b.fired))
	}
	if err := b.DestroyCQ(cq); err != nil || !cq.Gone() {
		t.Fatal(err)
	}
	if len(b.events) != 0 || len(b.fired) != 0 {
		t.Errorf("%d events, %d completion events after DestroyCQ", len(b.events), len(b.fired))
	}
	if err := b.DestroyCQ(cq); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("destroyed twice: %v", err)
	}
	if _, err := b.CreateCQ(1); err != nil {
		t.Errorf("CreateCQ after DestroyCQ: %v", err)
	}
	cq.ReqNotify(false)
	if !cq.Push(&verbs.WC{}, false) || len(b.events) != 0 || len(b.fired) != 0 {
		t.Error("a completion for a destroyed CQ raises an event")
	}
}

// Resize keeps the queued completions and rejects a size that is too small for them.
func TestCQGrowsWithCompletions(t *testing.T) {
	b, _ := newBase(t, func(l *Limits, _ *Policy) { l.CQE = 4096 })
	const depth, polled = 1000, 10
	cq := b.mustCQ(t, depth)
	var got [depth]verbs.WC
	for id := range uint64(depth + polled) {
		if id == firstCQEs { // of the full ring, so that its next entries wrap
			if n, err := cq.Poll(got[:polled]); n != polled || err != nil {
				t.Fatal(n, err)
			}
		}
		if !cq.Push(&verbs.WC{WRID: id}, false) {
			t.Fatalf("completion %d: the queue is full", id)
		}
	}
	if n, err := cq.Poll(got[:]); n != depth || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	for i := range got {
		if got[i].WRID != uint64(i+polled) {
			t.Fatalf("completion %d is of request %d", i+polled, got[i].WRID)
		}
	}
}

func TestResizeCQKeepsCompletions(t *testing.T) {
	b, _ := newBase(t, func(l *Limits, _ *Policy) { l.CQE = 4096 })
	for offset := range 5 {
		cq := b.mustCQ(t, 5)
		var one [1]verbs.WC
		for range offset { // move the start of the ring
			cq.Push(&verbs.WC{}, false)
			if n, err := cq.Poll(one[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		for id := range uint64(4) {
			cq.Push(&verbs.WC{WRID: id}, false)
		}
		for _, depth := range []int{3, 0, -1, 4097} {
			if err := cq.Resize(depth); !errors.Is(err, verbs.ErrInvalid) || cq.Depth() != 5 {
				t.Errorf("to %d: %v, depth is %d", depth, err, cq.Depth())
			}
		}
		for _, depth := range []int{4, 9} {
			if err := cq.Resize(depth); err != nil || cq.Depth() != depth {
				t.Errorf("to %d: %v, depth is %d", depth, err, cq.Depth())
			}
		}
		cq.Push(&verbs.WC{WRID: 4}, false)
		got := make([]verbs.WC, 9)
		n, err := cq.Poll(got)
		if n != 5 || err != nil {
			t.Fatalf("%d completions, %v", n, err)
		}
		for id := range uint64(5) {
			if got[id].WRID != id {
				t.Errorf("completion %d is of request %d", id, got[id].WRID)
			}
		}
	}
}

func TestPollingDoesNotAllocate(t *testing.T) {
	b, _ := newBase(t, nil)
	cq := b.mustCQ(t, 7) // does not divide the number of completions, so that the ring wraps
	into := make([]verbs.WC, 4)
	if n := testing.AllocsPerRun(100, func() {
		for range 6 {
			cq.Push(&verbs.WC{}, false)
		}
		for _, want := range []int{4, 2, 0} {
			if n, err := cq.Poll(into); n != want || err != nil {
				t.Fatal(n, err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// ReqNotify raises one event, for the next completion or for the next that is
// solicited or in error. The former overrides the latter.
func TestReqNotifyRaisesOneEvent(t *testing.T) {
	const none, next, solicited = "none", "next", "solicited"
	plain, marked, failed := verbs.WC{}, verbs.WC{WRID: 1}, verbs.WC{Status: verbs.WCWRFlushErr}
	for _, first := range []string{none, next, solicited} {
		for _, second := range []string{none, next, solicited} {
			for _, last := range []verbs.WC{marked, failed} {
				b, _ := newBase(t, nil)
				cq := b.mustCQ(t, 8)
				for _, arm := range []string{first, second} {
					if arm != none {
						cq.ReqNotify(arm == solicited)
					}
				}
				var events []int
				for _, wc := range []verbs.WC{plain, last, last} {
					cq.Push(&wc, wc == marked)
					events = append(events, b.CompletionEvents())
					if q, ok := b.NextCompletionEvent(); ok && q != cq {
						t.Errorf("event of %p, want %p", q, cq)
					}
				}
				want := []int{0, 0, 0}
				switch {
				case first == next || second == next:
					want[0] = 1
				case first == solicited || second == solicited:
					want[1] = 1
				}
				if !slices.Equal(events, want) {
					t.Errorf("armed for %s and %s: events %v, want %v", first, second, events, want)
				}
			}
		}
	}
}

// A CQ overrun is permanent and reported once. Queued completions can still be polled.
func TestCQOverrun(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   Policy
		taken    bool
		overruns uint64
		polled   error
	}{
		{"default", Policy{}, false, 1, verbs.ErrOverrun},
		{"RepeatOverrun", Policy{RepeatOverrun: true}, false, 3, verbs.ErrOverrun},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := newBase(t, func(_ *Limits, policy *Policy) { *policy = c.policy })
			cq := b.mustCQ(t, 2)
			for id := range uint64(5) {
				if ok := cq.Push(&verbs.WC{WRID: id}, false); ok != (id < 2 || c.taken) {
					t.Errorf("completion %d taken: %v", id, ok)
				}
			}
			if b.CQOverruns != c.overruns || len(b.events) != int(c.overruns) {
				t.Errorf("%d overruns, %d events, want %d", b.CQOverruns, len(b.events), c.overruns)
			}
			if e, ok := b.NextEvent(); ok && (e.Type != verbs.EventCQErr || e.CQ != cq) {
				t.Errorf("event %+v", e)
			}
			var into [4]verbs.WC
			if n, err := cq.Poll(into[:]); n != 2 || err != nil || into[0].WRID != 0 || into[1].WRID != 1 {
				t.Errorf("polled %d, %v: %v", n, err, into)
			}
			if n, err := cq.Poll(into[:]); n != 0 || !errors.Is(err, c.polled) {
				t.Errorf("polled %d, %v; want %v", n, err, c.polled)
			}
			if ok := cq.Push(&verbs.WC{}, false); ok != c.taken {
				t.Errorf("Push after Poll made room: %v", ok)
			}
		})
	}
}
