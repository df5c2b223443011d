package engine

import "github.com/fabrictest/fabrictest/emu/mono"

// timerHeap orders QPs by their next deadline. Deadlines mostly move later, and
// often: a QP that asks to be woken later than it stands in the heap keeps its
// place and is put right when that place comes up.
type timerHeap struct{ heap []*QP }

func (h *timerHeap) next() mono.Time {
	if len(h.heap) == 0 {
		return mono.Never
	}
	return h.heap[0].heapAt
}

// due removes and returns a QP whose deadline has passed, or nil.
func (h *timerHeap) due(now mono.Time) *QP {
	for len(h.heap) > 0 && h.heap[0].heapAt <= now {
		q := h.heap[0]
		h.remove(q)
		if at := q.deadline(); at > now {
			h.set(q, at) // the deadline moved since
			continue
		}
		return q
	}
	return nil
}

// set makes sure that q is woken at, or not long after, at.
func (h *timerHeap) set(q *QP, at mono.Time) {
	switch {
	case at == mono.Never:
		return // a stale place in the heap costs one look
	case q.heapIndex < 0:
		q.heapAt = at
		q.heapIndex = len(h.heap)
		h.heap = append(h.heap, q)
		h.up(q.heapIndex)
	case at < q.heapAt:
		q.heapAt = at
		h.up(q.heapIndex)
	}
}

func (h *timerHeap) remove(q *QP) {
	i := q.heapIndex
	if i < 0 {
		return
	}
	last := len(h.heap) - 1
	h.swap(i, last)
	h.heap[last] = nil
	h.heap = h.heap[:last]
	q.heapIndex = -1
	if i < last {
		h.down(i)
		h.up(i)
	}
}

// less breaks ties by QP number, so that order never depends on history.
func (h *timerHeap) less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	return a.heapAt < b.heapAt || a.heapAt == b.heapAt && a.num < b.num
}

func (h *timerHeap) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].heapIndex, h.heap[j].heapIndex = i, j
}

func (h *timerHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *timerHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.heap); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// qpFIFO is a queue of QPs, each in it at most once.
type qpFIFO struct {
	ring  []*QP
	head  int
	count int
}

func (f *qpFIFO) push(q *QP) {
	if q.queued {
		return
	}
	q.queued = true
	if f.count == len(f.ring) {
		grown := make([]*QP, max(16, 2*len(f.ring)))
		for i := range f.count {
			grown[i] = f.ring[(f.head+i)%len(f.ring)]
		}
		f.ring, f.head = grown, 0
	}
	f.ring[(f.head+f.count)%len(f.ring)] = q
	f.count++
}

func (f *qpFIFO) pop() *QP {
	if f.count == 0 {
		return nil
	}
	q := f.ring[f.head]
	f.ring[f.head] = nil
	f.head = (f.head + 1) % len(f.ring)
	f.count--
	q.queued = false
	return q
}
