// Package fifo is a queue of values that keeps its memory: once it has grown to
// the most that is ever in it, nothing is allocated any more. It is not safe for
// concurrent use.
package fifo

// Queue is first in, first out. The zero value is empty.
type Queue[T any] struct {
	slots []T // a power of two
	head  int // of the first
	n     int
}

// Len is how many there are.
func (q *Queue[T]) Len() int { return q.n }

// Push appends v.
func (q *Queue[T]) Push(v T) {
	if q.n == len(q.slots) {
		q.grow()
	}
	q.slots[(q.head+q.n)&(len(q.slots)-1)] = v
	q.n++
}

func (q *Queue[T]) grow() {
	slots := make([]T, max(8, 2*len(q.slots)))
	n := copy(slots, q.slots[q.head:])
	copy(slots[n:], q.slots[:q.head])
	q.slots, q.head = slots, 0
}

// Pop removes the first, and lets go of what it points to; false if there is
// none.
func (q *Queue[T]) Pop() (v T, ok bool) {
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
func (q *Queue[T]) At(i int) *T { return &q.slots[(q.head+i)&(len(q.slots)-1)] }

// First returns the one that Pop removes. There must be one.
func (q *Queue[T]) First() *T { return &q.slots[q.head] }

// Last returns the one that was pushed last. There must be one.
func (q *Queue[T]) Last() *T { return q.At(q.n - 1) }

// Drop forgets all, and the memory with it.
func (q *Queue[T]) Drop() { *q = Queue[T]{} }
