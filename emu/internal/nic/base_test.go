package nic

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// newBase returns a Base with one protection domain. edit may change its limits and policy.
func newBase(t testing.TB, edit func(*Limits, *Policy)) (*Base, PD) {
	t.Helper()
	var limits Limits
	var policy Policy
	if edit != nil {
		edit(&limits, &policy)
	}
	limits = limits.OrDefault()
	must.Do(t, limits.Validate())
	b := new(Base)
	b.Init(limits, policy)
	pd := must.Get(b.AllocPD())(t)
	return b, pd
}

func TestPDInUseCannotBeDeallocated(t *testing.T) {
	b, pd := newBase(t, func(l *Limits, _ *Policy) { l.PDs = 2 })
	second, err := b.AllocPD()
	if err != nil || second == pd {
		t.Fatal(second, err)
	}
	if _, err := b.AllocPD(); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a third PD of two: %v", err)
	}
	b.UsePD(pd, 1)
	if err := b.DeallocPD(pd); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("DeallocPD of a PD in use: %v", err)
	}
	b.UsePD(pd, -1)
	if err := b.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	if err := b.CheckPD("create_qp", pd); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("CheckPD of a deallocated PD: %v", err)
	}
	third, err := b.AllocPD()
	if err != nil || third == pd || third == second {
		t.Errorf("domain %d, %v: numbers must not be reused", third, err)
	}
}

// A full event queue drops new events. The observer gets all of them.
func TestEventQueueIsLimited(t *testing.T) {
	b, _ := newBase(t, func(l *Limits, _ *Policy) { l.PendingEvents = 3 })
	observed := 0
	b.Observer = func(Event) { observed++ }
	qp := new(int)
	b.Report(Event{Type: verbs.EventCommEst, QP: qp})
	for port := range uint8(4) {
		b.Report(Event{Type: verbs.EventPortErr, Port: port})
	}
	if observed != 5 || b.EventsLost != 2 {
		t.Errorf("observed %d, lost %d", observed, b.EventsLost)
	}
	b.DropEvents(func(e *Event) bool { return e.QP == qp })
	for port := range uint8(2) {
		if e, ok := b.NextEvent(); !ok || e.Port != port {
			t.Errorf("event %+v, want that of port %d", e, port)
		}
	}
	if e, ok := b.NextEvent(); ok {
		t.Errorf("unexpected event %+v", e)
	}
}

func TestPopFrontKeepsBackingArray(t *testing.T) {
	queue := []int{1, 2, 3}
	first := &queue[0]
	for want := 1; want <= 3; want++ {
		if v, ok := PopFront(&queue); !ok || v != want {
			t.Errorf("%d, %v; want %d", v, ok, want)
		}
	}
	if v, ok := PopFront(&queue); ok {
		t.Errorf("popped %d from an empty queue", v)
	}
	if &queue[:1][0] != first {
		t.Error("the queue has another backing array")
	}
}
