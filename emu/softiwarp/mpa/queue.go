package mpa

// queue is a ring that grows. Its slots are a power of two.
type queue[T any] struct {
	slots []T
	head  int // of the first
	n     int
}

func (q *queue[T]) push(v T) {
	if q.n == len(q.slots) {
		q.grow()
	}
	q.slots[(q.head+q.n)&(len(q.slots)-1)] = v
	q.n++
}

func (q *queue[T]) grow() {
	slots := make([]T, max(8, 2*len(q.slots)))
	n := copy(slots, q.slots[q.head:])
	copy(slots[n:], q.slots[:q.head])
	q.slots, q.head = slots, 0
}

func (q *queue[T]) pop() (v T) {
	slot := &q.slots[q.head]
	v, *slot = *slot, v // lets go of memory too
	q.head = (q.head + 1) & (len(q.slots) - 1)
	q.n--
	return v
}

// at returns the i-th of n.
func (q *queue[T]) at(i int) *T { return &q.slots[(q.head+i)&(len(q.slots)-1)] }

func (q *queue[T]) first() *T { return q.at(0) }

func (q *queue[T]) last() *T { return q.at(q.n - 1) }

func (q *queue[T]) clear() { *q = queue[T]{} }
