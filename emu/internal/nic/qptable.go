package nic

import (
	"iter"

	"github.com/fabrictest/fabrictest/verbs"
)

// QPTable finds queue pairs by their numbers, which it hands out in turn, so that
// one is not used again while packets for its last owner may still be under way.
type QPTable[QP any] struct {
	qps   []*QP // by number less first; nil if the number is free
	first uint32
	limit int
	count int
	next  int
}

// NewQPTable makes a table of up to limit QPs, numbered from first on.
func NewQPTable[QP any](first uint32, limit int) QPTable[QP] {
	return QPTable[QP]{first: first, limit: limit}
}

// At returns the QP of a number; nil if there is none.
func (t *QPTable[QP]) At(num uint32) *QP {
	i := int(num) - int(t.first)
	if i < 0 || i >= len(t.qps) {
		return nil
	}
	return t.qps[i]
}

// All are the QPs there are, in the order of their numbers.
func (t *QPTable[QP]) All() iter.Seq[*QP] {
	return func(yield func(*QP) bool) {
		for _, q := range t.qps {
			if q != nil && !yield(q) {
				return
			}
		}
	}
}

// Next is the number of the QP that is added next. It fails if there is no room
// for one.
func (t *QPTable[QP]) Next() (uint32, error) {
	if t.count >= t.limit {
		return 0, OpError("create_qp", "", "%w: %d QPs", verbs.ErrNoMemory, t.count)
	}
	for t.next < len(t.qps) && t.qps[t.next] != nil {
		t.skip()
	}
	return t.first + uint32(t.next), nil
}

func (t *QPTable[QP]) skip() {
	if t.next++; t.next == t.limit {
		t.next = 0
	}
}

// Add enters the QP whose number Next has told.
func (t *QPTable[QP]) Add(q *QP) {
	if t.next == len(t.qps) {
		t.qps = append(t.qps, nil)
	}
	t.qps[t.next] = q
	t.count++
	t.skip()
}

// Remove takes a QP out.
func (t *QPTable[QP]) Remove(num uint32) {
	t.qps[num-t.first] = nil
	t.count--
}
