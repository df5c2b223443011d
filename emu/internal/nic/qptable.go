package nic

import (
	"iter"

	"github.com/fabrictest/fabrictest/verbs"
)

// QPTable maps QP numbers to QPs. It assigns numbers in turn, so that late packets
// for a destroyed QP do not reach a new one.
type QPTable[QP any] struct {
	qps   []*QP // indexed by number - first; nil if free
	first uint32
	limit int
	count int
	next  int
}

// NewQPTable returns a table of up to limit QPs with numbers from first on.
func NewQPTable[QP any](first uint32, limit int) QPTable[QP] {
	return QPTable[QP]{first: first, limit: limit}
}

// At returns the QP with number num; nil if there is none.
func (t *QPTable[QP]) At(num uint32) *QP {
	i := int(num) - int(t.first)
	if i < 0 || i >= len(t.qps) {
		return nil
	}
	return t.qps[i]
}

// All iterates over the QPs in the order of their numbers.
func (t *QPTable[QP]) All() iter.Seq[*QP] {
	return func(yield func(*QP) bool) {
		for _, q := range t.qps {
			if q != nil && !yield(q) {
				return
			}
		}
	}
}

// Next returns the number of the QP that Add adds next, or an error if the table is full.
func (t *QPTable[QP]) Next() (uint32, error) {
	if t.count >= t.limit {
		return 0, OpError("create_qp", "", "%w: %d QPs", verbs.ErrNoMemory, t.count)
	}
	for t.next < len(t.qps) && t.qps[t.next] != nil {
		t.advance()
	}
	return t.first + uint32(t.next), nil
}

// advance moves t.next to the next index, and from the last to the first.
func (t *QPTable[QP]) advance() {
	if t.next++; t.next == t.limit {
		t.next = 0
	}
}

// Add adds the QP with the number that Next returned.
func (t *QPTable[QP]) Add(q *QP) {
	if t.next == len(t.qps) {
		t.qps = append(t.qps, nil)
	}
	t.qps[t.next] = q
	t.count++
	t.advance()
}

// Remove removes a QP.
func (t *QPTable[QP]) Remove(num uint32) {
	t.qps[num-t.first] = nil
	t.count--
}
