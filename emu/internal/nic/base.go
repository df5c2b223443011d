package nic

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Base has the objects that all NICs have. Engines embed it.
type Base struct {
	Limits Limits
	Policy Policy
	Mem    *Table
	// Observer, if not nil, is called for every reported event, even if the queue is
	// full. It must not call the NIC.
	Observer func(Event)

	CQOverruns uint64 // CQ overruns
	EventsLost uint64 // asynchronous events dropped because the queue was full

	pds    map[PD]int // number of objects in each protection domain
	nextPD PD

	cqs     int
	srqs    map[uint32]*SRQ
	nextSRQ uint32
	xrcds   map[*XRCD]struct{}

	events []Event
	fired  []*CQ // CQs with a completion event to deliver
}

// Init initializes b. limits must be valid.
func (b *Base) Init(limits Limits, policy Policy) {
	*b = Base{
		Limits: limits, Policy: policy, Mem: NewTable(limits.MRs), pds: map[PD]int{}, nextPD: 1,
		srqs: map[uint32]*SRQ{}, nextSRQ: 1, xrcds: map[*XRCD]struct{}{},
	}
	b.Mem.Policy = policy
}

// Event is an asynchronous event. Type determines which of the other fields is set.
type Event struct {
	Type verbs.AsyncEventType
	QP   any // pointer to a QP of the engine
	CQ   *CQ
	SRQ  *SRQ
	Port uint8
}

// Report queues an event, or drops and counts it if the queue is full. The observer always sees it.
func (b *Base) Report(e Event) {
	if len(b.events) < b.Limits.PendingEvents {
		b.events = append(b.events, e)
	} else {
		b.EventsLost++
	}
	if b.Observer != nil {
		b.Observer(e)
	}
}

// DropEvents drops the queued events for which about is true: those about a destroyed object.
func (b *Base) DropEvents(about func(*Event) bool) {
	b.events = slices.DeleteFunc(b.events, func(e Event) bool { return about(&e) })
}

// NextEvent removes and returns the oldest asynchronous event.
func (b *Base) NextEvent() (Event, bool) { return PopFront(&b.events) }

// CompletionEvents returns the number of queued completion events.
func (b *Base) CompletionEvents() int { return len(b.fired) }

// NextCompletionEvent removes and returns the CQ of the oldest completion event.
func (b *Base) NextCompletionEvent() (*CQ, bool) { return PopFront(&b.fired) }

// PopFront removes and returns the first element of a slice, and moves the others forward, so that
// the slice keeps its backing array. ok is false if the slice is empty.
func PopFront[T any](s *[]T) (v T, ok bool) {
	if len(*s) == 0 {
		return v, false
	}
	v = (*s)[0]
	*s = append((*s)[:0], (*s)[1:]...)
	return v, true
}

// AllocPD allocates a protection domain.
func (b *Base) AllocPD() (PD, error) {
	if len(b.pds) >= b.Limits.PDs {
		return 0, OpError("alloc_pd", "", "%w: %d domains", verbs.ErrNoMemory, len(b.pds))
	}
	pd := b.nextPD
	b.nextPD++
	b.pds[pd] = 0
	return pd, nil
}

// DeallocPD deallocates a protection domain. It fails while objects use it.
func (b *Base) DeallocPD(pd PD) error {
	if err := b.CheckPD("dealloc_pd", pd); err != nil {
		return err
	}
	if users := b.pds[pd]; users > 0 {
		return OpError("dealloc_pd", fmt.Sprintf("pd %d", pd), "%w by %d objects", verbs.ErrBusy, users)
	}
	delete(b.pds, pd)
	return nil
}

// CheckPD returns an error if the protection domain does not exist.
func (b *Base) CheckPD(op string, pd PD) error {
	if _, ok := b.pds[pd]; !ok {
		return OpError(op, fmt.Sprintf("pd %d", pd), "%w: no such protection domain", verbs.ErrInvalid)
	}
	return nil
}

// UsePD adds n to the number of objects in a protection domain.
func (b *Base) UsePD(pd PD, n int) { b.pds[pd] += n }

// OpError returns a verbs.OpError for the verb op on the object named obj, which is empty if the
// object has no name.
func OpError(op, obj, format string, args ...any) error {
	return &verbs.OpError{Op: op, Obj: obj, Err: fmt.Errorf(format, args...)}
}
