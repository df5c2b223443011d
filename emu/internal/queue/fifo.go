// Package queue has the queues of the protocol engines: a FIFO, and a heap of timers.
//
// Both allocate nothing once they have grown to their largest size. Neither reads a
// clock, and neither is safe for concurrent use.
package queue

// FIFO is first in, first out. The zero value is empty.
type FIFO[T any] struct {
	slots []T // a power of two
	head  int // of the first
	n     int
}

// Len is how many there are.
func (q *FIFO[T]) Len() int { return q.n }

// Push appends v.
func (q *FIFO[T]) Push(v T) {
	if q.n == len(q.slots) {
		q.grow()
	}
	q.slots[(q.head+q.n)&(len(q.slots)-1)] = v
	q.n++
}

func (q *FIFO[T]) grow() {
	slots := make([]T, max(8, 2*len(q.slots)))
	n := copy(slots, q.slots[q.head:])
	copy(slots[n:], q.slots[:q.head])
	q.slots, q.head = slots, 0
}

// Pop removes the first, and lets go of what it points to; false if there is
// none.
func (q *FIFO[T]) Pop() (v T, ok bool) {
	if q.n == 0 {
		return v, false
	}
	slot := &q.slots[q.head]
	v, *slot = *slot, v
	q.head = (q.head + 1) & (len(q.slots) - 1)
	q.n--
	return v, true
}

// At returns the i-th of Len. It stays where it is until the next Push or Pop.
func (q *FIFO[T]) At(i int) *T { return &q.slots[(q.head+i)&(len(q.slots)-1)] }

// First returns the one that Pop removes. There must be one.
func (q *FIFO[T]) First() *T { return &q.slots[q.head] }

// Last returns the one that was pushed last. There must be one.
func (q *FIFO[T]) Last() *T { return q.At(q.n - 1) }

// Drop forgets all, and the memory with it.
func (q *FIFO[T]) Release() { *q = FIFO[T]{} }
