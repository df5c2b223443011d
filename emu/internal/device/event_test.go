package device

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// An asynchronous event carries the handle of its object. OnEvent is called before waiters
// are woken.
func TestAsyncEventsCarryHandles(t *testing.T) {
	type engineQP struct{ owner verbs.QP }
	var observed []verbs.AsyncEventType
	r := newRig(t, Hooks{
		QPHandle: func(qp any) verbs.QP { return qp.(*engineQP).owner },
		OnEvent:  func(e nic.Event) { observed = append(observed, e.Type) },
	})
	_, _, s, _ := r.makeObjects()
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
		r.expectCalls("lock wait", "wait for asynchronous event of nic0", "pump", "unlock")
	}
	if want := []verbs.AsyncEventType{verbs.EventCommEst, verbs.EventCQErr, verbs.EventSRQLimitReached, verbs.EventPortErr}; !slices.Equal(observed, want) {
		t.Errorf("OnEvent was called for %v", observed)
	}
	if n := r.asyncCond.(*fakeCond).notified; n != len(reports) {
		t.Errorf("notified %d times of %d events", n, len(reports))
	}
	must.Fail(t, "unexpected event", must.Err(r.WaitAsync(0)), verbs.ErrTimeout)
}

// A call that waits while the device is closed fails, even if closing the device causes the
// event that it waits for.
func TestCloseEndsWaitDespiteEvent(t *testing.T) {
	r := newRig(t, Hooks{})
	r.onWait = func(time.Duration) {
		r.Unlock() // another goroutine runs
		r.Shutdown(func() { r.base.Report(nic.Event{Type: verbs.EventPortErr, Port: 1}) })
		r.Lock(drive.CallWait)
	}
	must.Fail(t, "device closed during the wait", must.Err(r.WaitAsync(verbs.Forever)), verbs.ErrClosed)
}

// Closing a CQ removes its unread events.
func TestClosingCQRemovesItsEvents(t *testing.T) {
	r := newRig(t, Hooks{})
	other := object[*CQ](t)(r.CreateCQ(verbs.CQInit{Depth: 1, Channel: r.ch}))
	for _, cq := range []*CQ{r.cq, other} {
		must.Do(t, cq.ReqNotify(false))
		r.complete(cq)
		cq.Q.Push(&verbs.WC{}, false)
	}
	if n := len(r.ch.ready); n != 2 {
		t.Errorf("%d events", n)
	}
	for range 4 { // overrun the queue
		r.cq.Q.Push(&verbs.WC{}, false)
	}
	must.Do(t, r.cq.Close())
	r.log = nil
	if cq, err := r.ch.Wait(0); cq != verbs.CQ(other) || err != nil {
		t.Errorf("event of %p, %v; want %p", cq, err, other)
	}
	r.expectCalls("lock wait", "unlock")
	must.Fail(t, "unexpected event", must.Err(r.ch.Wait(0)), verbs.ErrTimeout)
	if e, err := r.WaitAsync(0); e.CQ != verbs.CQ(other) || err != nil {
		t.Errorf("%+v, %v; want the event of the open queue", e, err)
	}
	if e, err := r.WaitAsync(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("unexpected event: %+v, %v", e, err)
	}
}

// CompChannel.Wait returns at the next event, or when the channel is closed. A channel with
// a CQ cannot be closed, and a CQ without a channel cannot be armed.
func TestCompChannel(t *testing.T) {
	r := newRig(t, Hooks{})
	must.Do(t, r.cq.ReqNotify(false))
	r.log = nil
	r.onWait = func(time.Duration) { r.complete(r.cq) }
	if cq, err := r.ch.Wait(verbs.Forever); cq != verbs.CQ(r.cq) || err != nil {
		t.Errorf("event of %p, %v; want %p", cq, err, r.cq)
	}
	r.expectCalls("lock wait", "wait for completion event of nic0", "unlock")

	must.Fail(t, "close of a channel with a CQ", r.ch.Close(), verbs.ErrBusy)
	alone := object[*CQ](t)(r.CreateCQ(verbs.CQInit{Depth: 1}))
	empty := object[*CompChannel](t)(r.CreateCompChannel())
	notified := 0
	r.onWait = func(time.Duration) {
		r.Unlock() // another goroutine runs
		must.Do(t, empty.Close())
		r.Lock(drive.CallWait)
		notified = empty.cond.(*fakeCond).notified
	}
	must.Fail(t, "channel closed during the wait", must.Err(empty.Wait(verbs.Forever)), verbs.ErrClosed)
	if notified != 1 {
		t.Errorf("notified %d times, want once of Close", notified)
	}
	if err := errors.Join(r.cq.Close(), r.ch.Close()); err != nil {
		t.Errorf("close of CQ and channel: %v", err)
	}
	must.Fail(t, "armed without a channel", alone.ReqNotify(false), verbs.ErrInvalid)
	must.Do(t, alone.Close())
}

// flushingQP is an engine's queue pair in the error state: it completes each receive at once.
type flushingQP struct{ cq *CQ }

func (q flushingQP) Query() verbs.QPAttr { return verbs.QPAttr{State: verbs.QPStateErr} }

func (q flushingQP) PostRecv(*verbs.RecvWR) error {
	q.cq.Q.Push(&verbs.WC{Status: verbs.WCWRFlushErr}, false)
	return nil
}

// PostRecv delivers the event of a receive that is flushed at once. It sends packets only if peers
// wait for receives.
func TestPostRecvDeliversEventsAndSendsNothing(t *testing.T) {
	awaited := false
	r := newRig(t, Hooks{PumpAfterRecv: func() bool { return awaited }})
	q := &QP{Object: Object{D: &r.Device}, Engine: flushingQP{r.cq}}
	must.Do(t, r.cq.ReqNotify(false))
	r.log = nil
	if n, err := q.PostRecv(make([]verbs.RecvWR, 2)); n != 2 || err != nil {
		t.Errorf("posted %d of 2, %v", n, err)
	}
	r.expectCalls("lock post", "unlock")
	if cq, err := r.ch.Wait(0); cq != verbs.CQ(r.cq) || err != nil {
		t.Errorf("event of %p, %v; want %p", cq, err, r.cq)
	}
	r.log, awaited = nil, true
	must.Get(q.PostRecv(make([]verbs.RecvWR, 1)))(t)
	r.expectCalls("lock post", "pump", "unlock")
}
