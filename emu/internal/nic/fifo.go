package nic

// FIFO is a first-in, first-out queue. The zero value is empty. It allocates nothing once
// it has grown to its largest size.
type FIFO[T any] struct {
	slots []T // ring buffer; its length is a power of two
	head  int // index of the first element
	n     int // number of elements
}

// Len is the number of elements.
func (q *FIFO[T]) Len() int { return q.n }

// Push appends v.
func (q *FIFO[T]) Push(v T) {
	if q.n == len(q.slots) {
		q.grow()
	}
	q.slots[(q.head+q.n)&(len(q.slots)-1)] = v
	q.n++
}

// grow doubles the ring, and moves the elements to its start.
func (q *FIFO[T]) grow() {
	slots := make([]T, max(8, 2*len(q.slots)))
	n := copy(slots, q.slots[q.head:])
	copy(slots[n:], q.slots[:q.head])
	q.slots, q.head = slots, 0
}

// Pop removes and returns the first element; false if there is none. The queue drops its reference.
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

// At returns element i. The pointer is valid until the next Push or Pop.
func (q *FIFO[T]) At(i int) *T { return &q.slots[(q.head+i)&(len(q.slots)-1)] }

// First returns the element that Pop would remove. The queue must not be empty.
func (q *FIFO[T]) First() *T { return &q.slots[q.head] }

// Last returns the element that was pushed last. The queue must not be empty.
func (q *FIFO[T]) Last() *T { return q.At(q.n - 1) }

// Release removes all elements and frees the memory.
func (q *FIFO[T]) Release() { *q = FIFO[T]{} }
