package sim

import "github.com/fabrictest/fabrictest/emu/mono"

// entry is an element of the event heap. It holds no pointer, so that the
// garbage collector need not scan the heap; slots[slot] holds the handler.
type entry struct {
	entryOrder
	slot uint32 // with a bit set for a Timer or a linkDir
}

const (
	timerBit = 1 << 31
	linkBit  = 1 << 30 // the slot is kept for the next packet of the linkDir

	slotMask = linkBit - 1
)

// entryOrder is the place of an event among all others.
type entryOrder struct {
	at  mono.Time
	seq uint64 // ties break in scheduling order
}

// before reports whether e is earlier than o, or of the same time and scheduled earlier.
func (e entryOrder) before(o entryOrder) bool {
	return e.at < o.at || (e.at == o.at && e.seq < o.seq)
}

// slot holds the handler of an entry, or its timer.
type slot struct {
	h     Handler
	arg   uint64
	timer *Timer
}

// queue is a four-ary heap of events. A timer has at most one entry, however
// often it is reset.
type queue struct {
	heap []entry
	// vacant: the first entry was removed, and is still in its place. Most events schedule another,
	// which takes the place, so that the heap is reordered once for both. Until then the removed entry
	// is before all others.
	vacant bool
	slots  []slot
	free   []uint32
	seq    uint64
}

func (q *queue) nextSeq() uint64 {
	q.seq++
	return q.seq
}

// push adds an event that calls h with arg.
func (q *queue) push(at mono.Time, h Handler, arg uint64) {
	q.pushOrdered(entryOrder{at, q.nextSeq()}, h, arg)
}

// pushOrdered adds an event whose place was taken before.
func (q *queue) pushOrdered(o entryOrder, h Handler, arg uint64) {
	s := q.takeSlot()
	q.slots[s] = slot{h: h, arg: arg}
	q.insert(entry{o, s})
}

// keepSlot returns a slot for the events of h, of which one at a time may be in the queue.
func (q *queue) keepSlot(h Handler) uint32 {
	s := q.takeSlot()
	q.slots[s] = slot{h: h}
	return s | linkBit
}

// takeSlot returns the index of an unused element of slots.
func (q *queue) takeSlot() uint32 {
	if n := len(q.free); n > 0 {
		s := q.free[n-1]
		q.free = q.free[:n-1]
		return s
	}
	q.slots = append(q.slots, slot{})
	return uint32(len(q.slots) - 1)
}

// peek returns the time of the earliest event; false if there is none. It removes the entries of
// stopped timers and moves those of postponed timers to their new place.
func (q *queue) peek() (at mono.Time, ok bool) {
	for {
		if q.vacant {
			q.fillVacancy()
		}
		if len(q.heap) == 0 {
			return 0, false
		}
		top := &q.heap[0]
		if top.slot&timerBit == 0 {
			return top.at, true
		}
		t := q.slots[top.slot&slotMask].timer
		switch {
		case t.due == mono.Never:
			q.removeTop()
			t.pos = notQueued
		case t.seq != top.seq:
			q.down(0, entry{entryOrder{t.due, t.seq}, top.slot})
		default:
			return top.at, true
		}
	}
}

// removeTop removes the first entry and returns its slot. Its place is vacant until insert or
// fillVacancy.
func (q *queue) removeTop() slot {
	q.vacant = true
	top := q.heap[0].slot
	i := top & slotMask
	s := q.slots[i]
	if top&linkBit == 0 {
		q.slots[i] = slot{}
		q.free = append(q.free, i)
	}
	return s
}

// fillVacancy moves the last entry to the place of the first, which was removed.
func (q *queue) fillVacancy() {
	q.vacant = false
	last := q.heap[len(q.heap)-1]
	q.heap = q.heap[:len(q.heap)-1]
	if len(q.heap) > 0 {
		q.down(0, last)
	}
}

// insert adds an entry, in the place of the first one if that was removed.
func (q *queue) insert(e entry) {
	if q.vacant {
		q.vacant = false
		q.down(0, e)
		return
	}
	q.heap = append(q.heap, e)
	q.up(len(q.heap)-1, e)
}

// up moves e from position i towards the root. Each node of the heap has four children.
func (q *queue) up(i int, e entry) {
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(q.heap[parent].entryOrder) {
			break
		}
		q.place(i, q.heap[parent])
		i = parent
	}
	q.place(i, e)
}

// down moves e from position i towards the leaves. Each node of the heap has four children.
func (q *queue) down(i int, e entry) {
	for {
		first := 4*i + 1
		if first >= len(q.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(q.heap)); c++ {
			if q.heap[c].before(q.heap[least].entryOrder) {
				least = c
			}
		}
		if !q.heap[least].before(e.entryOrder) {
			break
		}
		q.place(i, q.heap[least])
		i = least
	}
	q.place(i, e)
}

// place stores an entry at position i of the heap, and records the position in its timer, if any.
func (q *queue) place(i int, e entry) {
	q.heap[i] = e
	if e.slot&timerBit != 0 {
		q.slots[e.slot&slotMask].timer.pos = int32(i)
	}
}
