package p2p

import "github.com/fabrictest/fabrictest/mpi/wire"

// rtrs are RTRs that no send has been found for, in the order in which they came. The
// first is taken at no cost that depends on how many there are: a program may well have
// ten thousand receives of an envelope waiting.
type rtrQueue struct {
	all   []wire.Header
	first int // of those that are left
}

func (q *rtrQueue) len() int { return len(q.all) - q.first }

func (q *rtrQueue) push(h *wire.Header) {
	if q.first > len(q.all)/2 { // what was taken is most of it
		q.all = q.all[:copy(q.all, q.all[q.first:])]
		q.first = 0
	}
	q.all = append(q.all, *h)
}

// take returns the first, of which there must be one.
func (q *rtrQueue) pop() wire.Header {
	h := q.all[q.first]
	if q.first++; q.first == len(q.all) {
		q.clear()
	}
	return h
}

// drop takes out that of a receive, and reports whether it was there. Receives are
// mostly given up in their order, so that it is looked for from the front.
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
