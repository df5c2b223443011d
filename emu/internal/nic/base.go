package nic

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Base is the part of a NIC that all NICs have. Engines embed it.
type Base struct {
	Limits  Limits
	Defects Defects
	Mem     *Table
	// Observer, if there is one, hears of every event when it is reported, even
	// of one that the queue has no room for. It must not call the NIC.
	Observer func(Event)

	CQOverruns uint64 // completion queues that had no room
	EventsLost uint64 // asynchronous events for which the queue had no room

	pds    map[PD]int // users of each protection domain
	nextPD PD

	cqs     int
	srqs    map[uint32]*SRQ
	nextSRQ uint32
	xrcds   map[*XRCD]struct{}

	events []Event
	fired  []*CQ // CQs whose arming was met
}

// Init makes b ready. limits must have passed Validate.
func (b *Base) Init(limits Limits, defects Defects, memory MemoryDefects) {
	*b = Base{
		Limits: limits, Defects: defects, Mem: NewTable(limits.MRs), pds: map[PD]int{}, nextPD: 1,
		srqs: map[uint32]*SRQ{}, nextSRQ: 1, xrcds: map[*XRCD]struct{}{},
	}
	b.Mem.Defects = memory
}

// Event is an asynchronous event; what it is about is in the field of its type.
type Event struct {
	Type verbs.AsyncEventType
	QP   any // the engine's own, a pointer
	CQ   *CQ
	SRQ  *SRQ
	Port uint8
}

// Report queues an event. The queue is bounded: a consumer that never looks
// loses the newest ones.
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

// Retract drops the pending events about an object that goes away.
func (b *Base) Retract(about func(*Event) bool) {
	b.events = slices.DeleteFunc(b.events, func(e Event) bool { return about(&e) })
}

// NextEvent returns the oldest asynchronous event.
func (b *Base) NextEvent() (Event, bool) { return PopFront(&b.events) }

// CompletionEvents is how many CQs wait in NextCompletionEvent.
func (b *Base) CompletionEvents() int { return len(b.fired) }

// NextCompletionEvent returns the next CQ whose arming was met.
func (b *Base) NextCompletionEvent() (*CQ, bool) { return PopFront(&b.fired) }

// PopFront removes the oldest of a queue that keeps its memory.
func PopFront[T any](s *[]T) (v T, ok bool) {
	if len(*s) == 0 {
		return v, false
	}
	v = (*s)[0]
	*s = append((*s)[:0], (*s)[1:]...)
	return v, true
}

// AllocPD makes a protection domain.
func (b *Base) AllocPD() (PD, error) {
	if len(b.pds) >= b.Limits.PDs {
		return 0, OpError("alloc_pd", "", "%w: %d domains", verbs.ErrNoMemory, len(b.pds))
	}
	pd := b.nextPD
	b.nextPD++
	b.pds[pd] = 0
	return pd, nil
}

// DeallocPD removes a protection domain that nothing lives in.
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

// CheckPD refuses a protection domain that does not exist.
func (b *Base) CheckPD(op string, pd PD) error {
	if _, ok := b.pds[pd]; !ok {
		return OpError(op, fmt.Sprintf("pd %d", pd), "%w: no such protection domain", verbs.ErrInvalid)
	}
	return nil
}

// UsePD counts an object that lives in a domain, or with -1 one that goes.
func (b *Base) UsePD(pd PD, n int) { b.pds[pd] += n }

// OpError makes the error of a verb.
func OpError(op, obj, format string, args ...any) error {
	return &verbs.OpError{Op: op, Obj: obj, Err: fmt.Errorf(format, args...)}
}
