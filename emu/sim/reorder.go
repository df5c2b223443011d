package sim

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// reorder has the candidates of a world whose events are reordered (Config.Reorder).
type reorder struct {
	all, events, programs []candidate // all: in the order of a world that reorders nothing
	ids                   []uint32
	entities              map[any]uint32 // numbers of the entities, in the order of their first events
}

// candidate is an event or a runnable program that may be next.
type candidate struct {
	entryOrder
	entity any // events of an entity keep their order
	pos    int // in the event heap, or in the list of runnable programs
}

// sequenced is a Handler whose events keep their order relative to those of other Handlers of the
// same entity.
type sequenced interface{ entity() any }

// Packets pass each stage of a NIC and each cable in order, and so do the segments of a stream.
func (h *cableArrival) entity() any        { return h.dir }
func (h *afterImpairment) entity() any     { return h.dir.impairment }
func (h *leavesSendStack) entity() any     { return &h.from.nic.sendingBytes }
func (h *leavesSender) entity() any        { return &h.from.nic.send }
func (h *leavesReceiver) entity() any      { return &h.to.nic.receive }
func (h *leavesRecvStack) entity() any     { return &h.to.nic.udpReceive }
func (h *segmentLeavesStack) entity() any  { return h.sender }
func (h *segmentLeavesSender) entity() any { return h.sender }
func (h *segmentAtSwitch) entity() any     { return h.sender }
func (h *segmentAtPort) entity() any       { return h.sender }
func (h *segmentAtStack) entity() any      { return h.sender }
func (h *segmentInReceiver) entity() any   { return h.sender }

// scripts is the entity of functions: the calls of AtFunc keep their order.
type scripts struct{}

// entityOf returns the entity of a handler: itself, unless it is sequenced.
func entityOf(h Handler) any {
	if s, ok := h.(sequenced); ok {
		return s.entity()
	}
	if !reflect.TypeOf(h).Comparable() {
		return scripts{}
	}
	return h
}

// loopReordered is loop for a world with Config.Reorder: any event or runnable program may be next
// that is due within Reorder of the one that has been due for longest. Time does not go back: an
// event that others overtake is late.
func (w *World) loopReordered(programsOnly bool) error {
	for {
		if programsOnly && len(w.procs) == 0 {
			return nil
		}
		if w.events >= w.nextCheck {
			if err := w.check(); err != nil {
				return err
			}
		}
		at, ok := w.queue.peek()
		switch {
		case ok && at <= w.now || w.ready.len() > 0:
		case !ok:
			if w.horizon == mono.Never && len(w.procs) > 0 {
				return &DeadlockError{Now: w.now, Waiting: w.waitingPrograms()}
			}
			return nil
		case at > w.horizon:
			return nil
		case at > w.cfg.MaxTime:
			return &LimitError{Limit: "time", Now: w.now, Events: w.events, Waiting: w.waitingPrograms()}
		}
		next, isProgram := w.chooseNext()
		if isProgram {
			p := w.ready.take(next.pos)
			p.yielded = false
			if err := w.resume(p); err != nil {
				return err
			}
			continue
		}
		w.now = max(w.now, next.at)
		h, arg := w.takeEventAt(next.pos)
		h.HandleEvent(w.now, arg)
	}
}

// chooseNext returns the event or the program that is next.
func (w *World) chooseNext() (next candidate, isProgram bool) {
	r := &w.reorder
	due := w.gatherEvents()
	w.gatherPrograms(due)
	r.all = append(r.all[:0], r.events[:due]...)
	r.all = append(append(r.all, r.programs...), r.events[due:]...)
	kind := "event"
	if len(r.events) == 0 {
		kind = "run"
	}
	i := w.chooseEntity(kind, len(r.all), func(i int) any { return r.all[i].entity })
	isProgramAt := func(i int) bool { return i >= due && i < due+len(r.programs) }
	if i > 0 {
		w.nameChoice(func() (picked, first string) {
			return w.describe(&r.all[i], isProgramAt(i)), w.describe(&r.all[0], isProgramAt(0))
		})
	}
	return r.all[i], isProgramAt(i)
}

// gatherEvents sets reorder.events to the events that may be next, the first of each entity, in
// the order of their times. It returns how many of them are due now.
func (w *World) gatherEvents() (due int) {
	r := &w.reorder
	oldest := mono.Never
	if at, ok := w.queue.peek(); ok {
		oldest = at
	}
	for _, n := range w.ready.numbers {
		oldest = min(oldest, w.ready.procs[n].readySince)
	}
	limit := min(oldest.Add(w.cfg.Reorder), w.horizon, w.cfg.MaxTime)
	r.events = w.queue.appendUntil(limit, 0, r.events[:0])
	slices.SortFunc(r.events, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	})
	kept := r.events[:0]
	for _, e := range r.events {
		if !slices.ContainsFunc(kept, func(k candidate) bool { return k.entity == e.entity }) {
			kept = append(kept, e)
			if e.at <= w.now {
				due++
			}
		}
	}
	r.events = kept
	return due
}

// gatherPrograms sets reorder.programs to the runnable programs that may be next. One that has
// yielded is not among them before the others and the events that are due have run.
func (w *World) gatherPrograms(eventsDue int) {
	w.appendPrograms()
	if len(w.reorder.programs) == 0 && eventsDue == 0 {
		for _, n := range w.ready.numbers {
			w.ready.procs[n].yielded = false
		}
		w.appendPrograms()
	}
}

func (w *World) appendPrograms() {
	w.reorder.programs = w.reorder.programs[:0]
	for i, n := range w.ready.numbers {
		if p := w.ready.procs[n]; !p.yielded {
			w.reorder.programs = append(w.reorder.programs, candidate{entity: p, pos: i})
		}
	}
}

// chooseEntity is Choose for n alternatives with entities.
func (w *World) chooseEntity(kind string, n int, entity func(i int) any) int {
	if n == 1 {
		return 0
	}
	c, ok := w.chooser.(EntityChooser)
	if !ok {
		return w.Choose(kind, n)
	}
	r := &w.reorder
	if r.entities == nil {
		r.entities = make(map[any]uint32)
	}
	r.ids = r.ids[:0]
	for i := range n {
		key := entity(i)
		id, known := r.entities[key]
		if !known {
			id = uint32(len(r.entities))
			r.entities[key] = id
		}
		r.ids = append(r.ids, id)
	}
	c.SetEntities(r.ids)
	return w.Choose(kind, n)
}

// EntityChooser is a Chooser that is told what it chooses among: a program, a timer, a cable or
// another source of events.
type EntityChooser interface {
	Chooser
	// SetEntities is called before a Choose with entities. It has the number of the entity of each
	// alternative. Numbers are given in the order in which entities appear.
	SetEntities(ids []uint32)
}

// appendUntil appends the events of the heap at and below position i that are due at limit or before.
func (q *queue) appendUntil(limit mono.Time, i int, all []candidate) []candidate {
	if i >= len(q.heap) || q.heap[i].at > limit {
		return all
	}
	e := q.heap[i]
	s := &q.slots[e.slot&slotMask]
	switch t := s.timer; {
	case t == nil:
		all = append(all, candidate{e.entryOrder, entityOf(s.h), i})
	case t.due <= limit: // its entry may be of an earlier deadline
		all = append(all, candidate{entryOrder{t.due, t.seq}, t, i})
	}
	for c := 4*i + 1; c <= 4*i+4; c++ {
		all = q.appendUntil(limit, c, all)
	}
	return all
}

// takeEventAt removes the event at a position of the heap and returns its handler.
func (w *World) takeEventAt(pos int) (Handler, uint64) {
	if pos == 0 {
		return w.takeEvent()
	}
	w.events++
	q := &w.queue
	e := q.heap[pos]
	last := q.heap[len(q.heap)-1]
	q.heap = q.heap[:len(q.heap)-1]
	if pos < len(q.heap) {
		if last.before(q.heap[(pos-1)/4].entryOrder) {
			q.up(pos, last)
		} else {
			q.down(pos, last)
		}
	}
	s := q.slots[e.slot&slotMask]
	if e.slot&linkBit == 0 {
		q.slots[e.slot&slotMask] = slot{}
		q.free = append(q.free, e.slot&slotMask)
	}
	if t := s.timer; t != nil {
		t.due, t.pos = mono.Never, notQueued
		return t.h, t.arg
	}
	return s.h, s.arg
}
