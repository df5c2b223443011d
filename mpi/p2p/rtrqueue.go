package p2p

import "github.com/fabrictest/fabrictest/mpi/wire"

// rtrQueue is a FIFO of RTRs that no send has used. pop takes constant time, since a
// program may have ten thousand receives of an envelope posted.
type rtrQueue struct {
	all   []wire.Header
	first int // index of the first queued entry
}

func (q *rtrQueue) len() int { return len(q.all) - q.first }

// push appends a copy of h. It first moves the entries to the front if half of the slice is
// unused.
func (q *rtrQueue) push(h *wire.Header) {
	if q.first > len(q.all)/2 {
		q.all = q.all[:copy(q.all, q.all[q.first:])]
		q.first = 0
	}
	q.all = append(q.all, *h)
}

// pop returns the first entry; the queue must not be empty.
func (q *rtrQueue) pop() wire.Header {
	h := q.all[q.first]
	if q.first++; q.first == len(q.all) {
		q.clear()
	}
	return h
}

// remove removes the RTR of a receive and reports whether it was queued. Receives are
// mostly cancelled in order, so the search starts at the front.
func (q *rtrQueue) remove(recv uint32) bool {
	for i := q.first; i < len(q.all); i++ {
		if q.all[i].Recv == recv {
			copy(q.all[q.first+1:], q.all[q.first:i])
			q.pop()
			return true
		}
	}
	return false
}

func (q *rtrQueue) clear() { q.all, q.first = q.all[:0], 0 }
