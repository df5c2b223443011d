package device

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// An asynchronous event names the handle of what it is about, and the provider
// hears of it before anybody who waits.
func TestAsynchronousEvents(t *testing.T) {
	type engineQP struct{ owner verbs.QP }
	var heard []verbs.AsyncEventType
	r := newRig(t, Hooks{
		QPHandle: func(qp any) verbs.QP { return qp.(*engineQP).owner },
		OnEvent:  func(e nic.Event) { heard = append(heard, e.Type) },
	})
	_, _, s, _ := r.others()
	qp := &struct{ verbs.QP }{}
	reports := []nic.Event{
		{Type: verbs.EventCommEst, QP: &engineQP{owner: qp}},
		{Type: verbs.EventCQErr, CQ: r.cq.Q},
		{Type: verbs.EventSRQLimitReached, SRQ: s.S},
		{Type: verbs.EventPortErr, Port: 1},
	}
	want := []verbs.AsyncEvent{
		{Type: verbs.EventCommEst, QP: qp},
		{Type: verbs.EventCQErr, CQ: r.cq},
		{Type: verbs.EventSRQLimitReached, SRQ: s},
		{Type: verbs.EventPortErr, Port: 1},
	}
	for i := range reports {
		r.onWait = func(time.Duration) { r.base.Report(reports[i]) }
		e, err := r.WaitAsync(verbs.Forever)
		if err != nil || e != want[i] {
			t.Errorf("%+v, %v; want %+v", e, err, want[i])
		}
		r.did("lock wait", "wait for asynchronous event of nic0", "pump", "unlock")
	}
	if want := []verbs.AsyncEventType{verbs.EventCommEst, verbs.EventCQErr, verbs.EventSRQLimitReached, verbs.EventPortErr}; !slices.Equal(heard, want) {
		t.Errorf("heard of %v", heard)
	}
	if n := r.async.(*gate).notified; n != len(reports) {
		t.Errorf("notified %d times of %d events", n, len(reports))
	}
	if _, err := r.WaitAsync(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("one more event: %v", err)
	}
}

// The events of a queue that is closed go with it.
func TestEventsOfClosedQueuesGoWithThem(t *testing.T) {
	r := newRig(t, Hooks{})
	other := made[*CQ](t)(r.CreateCQ(verbs.CQInit{Depth: 1, Channel: r.ch}))
	for _, cq := range []*CQ{r.cq, other} {
		if err := cq.ReqNotify(false); err != nil {
			t.Fatal(err)
		}
		r.completed(cq)
		cq.Q.Push(&verbs.WC{}, false)
	}
	if n := len(r.ch.ready); n != 2 {
		t.Errorf("%d events", n)
	}
	for range 4 { // break both
		r.cq.Q.Push(&verbs.WC{}, false)
	}
	if err := r.cq.Close(); err != nil {
		t.Fatal(err)
	}
	r.log = nil
	if cq, err := r.ch.Wait(0); cq != verbs.CQ(other) || err != nil {
		t.Errorf("event of %p, %v; want %p", cq, err, other)
	}
	r.did("lock wait", "unlock")
	if _, err := r.ch.Wait(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("one more event: %v", err)
	}
	if e, err := r.WaitAsync(0); e.CQ != verbs.CQ(other) || err != nil {
		t.Errorf("%+v, %v; want that of the queue that is left", e, err)
	}
	if e, err := r.WaitAsync(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("one more: %+v, %v", e, err)
	}
}

// Who waits at a channel learns of the next event, or that the channel is closed.
// One that a queue has cannot be closed, and a queue without one asks for no events.
func TestCompletionChannels(t *testing.T) {
	r := newRig(t, Hooks{})
	if err := r.cq.ReqNotify(false); err != nil {
		t.Fatal(err)
	}
	r.log = nil
	r.onWait = func(time.Duration) { r.completed(r.cq) }
	if cq, err := r.ch.Wait(verbs.Forever); cq != verbs.CQ(r.cq) || err != nil {
		t.Errorf("event of %p, %v; want %p", cq, err, r.cq)
	}
	r.did("lock wait", "wait for completion event of nic0", "unlock")

	if err := r.ch.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closed with a queue on it: %v", err)
	}
	alone := made[*CQ](t)(r.CreateCQ(verbs.CQInit{Depth: 1}))
	empty := made[*CompChannel](t)(r.CreateCompChannel())
	notified := 0
	r.onWait = func(time.Duration) {
		r.Unlock() // another goroutine's turn
		if err := empty.Close(); err != nil {
			t.Fatal(err)
		}
		r.Lock(drive.CallWait)
		notified = empty.gate.(*gate).notified
	}
	if _, err := empty.Wait(verbs.Forever); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("closed meanwhile: %v", err)
	}
	if notified != 1 {
		t.Errorf("notified %d times, want once of the end", notified)
	}
	if err := errors.Join(r.cq.Close(), r.ch.Close()); err != nil {
		t.Errorf("closed behind its queue: %v", err)
	}
	if err := alone.ReqNotify(false); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("armed without a channel: %v", err)
	}
	if err := alone.Close(); err != nil {
		t.Error(err)
	}
}
