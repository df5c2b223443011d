package transport

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// RecvQueue posts receives to a queue pair or an SRQ.
type RecvQueue struct {
	Post   func([]verbs.RecvWR) (int, error)
	Rail   int
	Size   int            // of a receive
	staged []verbs.RecvWR // to post at the next Flush
	sges   []verbs.SGE    // of staged
}

// Stage adds a receive to those that Flush posts.
func (q *RecvQueue) Stage(wrid uint64, buf *memory.Buffer) {
	q.sges = append(q.sges, buf.SGE(q.Rail, 0, q.Size))
	q.staged = append(q.staged, verbs.RecvWR{WRID: wrid})
}

// Staged is the number of receives that Flush posts.
func (q *RecvQueue) Staged() int { return len(q.staged) }

// Flush posts the staged receives, all in one call.
func (q *RecvQueue) Flush() error {
	if len(q.staged) == 0 {
		return nil
	}
	for i := range q.staged {
		q.staged[i].SGL = q.sges[i : i+1 : i+1]
	}
	n, err := q.Post(q.staged)
	if err != nil {
		return fmt.Errorf("post receive %d of %d: %w", n, len(q.staged), err)
	}
	q.staged, q.sges = q.staged[:0], q.sges[:0]
	return nil
}
