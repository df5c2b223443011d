package random

import (
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// sharedWords are words on which several connections of the peer execute atomics concurrently.
// Their results must fit one order: a chain of changes from the initial value to the final one with
// every request once.
type sharedWords struct {
	mr    verbs.MR
	bytes []byte

	initial            []uint64 // values of the peer's words, which this side changes
	last               []uint64 // last known values
	changes            []wordChange
	changeMayBeMissing bool // a failed or flushed atomic may have been executed
}

// wordChange is a completed atomic.
type wordChange struct {
	at      int
	conn, n int
	old     uint64
	new     uint64
}

// wordValue is the initial value of word i of a side.
func wordValue(w *Workload, s Side, i int) uint64 {
	return traffic.Derive(w.Seed, keyWords+uint64(s)<<8, uint64(i))
}

// open registers the words of this side, on which all connections of the peer execute atomics, and
// computes the initial values of both sides.
func (x *sharedWords) open(e *End) (err error) {
	n := e.w.SharedWords
	x.bytes = make([]byte, max(8, 8*n)) // a region cannot be empty
	for i := range n {
		putWord(x.bytes[8*i:], wordValue(e.w, e.side, i))
		x.initial = append(x.initial, wordValue(e.w, e.side.Peer(), i))
	}
	x.last = append(x.last, x.initial...)
	x.mr, err = e.PD.RegMR(verbs.MRInit{Buf: x.bytes, Access: verbs.AccessLocalWrite | verbs.AccessRemoteAtomic})
	return err
}

// values returns the current values of this side's words, which the peer changes.
func (x *sharedWords) values() (v []uint64) {
	for i := range len(x.initial) {
		v = append(v, word(x.bytes[8*i:]))
	}
	return v
}

// atomicCompleted records the change of a shared word by request n; found is its old value.
func (x *sharedWords) atomicCompleted(conn, n int, o *op, found uint64) {
	result := found
	switch {
	case o.code == verbs.OpAtomicFetchAdd:
		result += o.operand
	case found == o.operand: // a compare-and-swap that succeeded
		result = o.swap
	}
	x.last[o.at] = result
	x.changes = append(x.changes, wordChange{at: o.at, conn: conn, n: n, old: found, new: result})
}

// check checks that this side's changes of each word form a chain from its initial value to final,
// the value that the peer reports.
func (x *sharedWords) check(final []uint64) error {
	if len(final) != len(x.initial) {
		return fmt.Errorf("the peer has %d shared words, not %d", len(final), len(x.initial))
	}
	for i := range x.initial {
		if err := x.checkWord(i, final[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkWord checks that the changes of word i form a chain from its initial value to final, in the
// order of each connection's requests, and that swaps without effect found values of the chain.
func (x *sharedWords) checkWord(i int, final uint64) error {
	bad := func(want, format string, args ...any) error {
		return &Violation{Kind: traffic.Contents, Where: fmt.Sprintf("shared word %d", i), Want: want, Got: fmt.Sprintf(format, args...)}
	}
	next := map[uint64]*wordChange{}         // by old value
	changes, misses := 0, []*wordChange(nil) // misses: compare-and-swaps that found another value
	for k := range x.changes {
		c := &x.changes[k]
		switch {
		case c.at != i:
			continue
		case c.old == c.new:
			misses = append(misses, c)
			continue
		case next[c.old] != nil:
			o := next[c.old]
			return bad("each value changed once", "request %d of connection %d and request %d of connection %d both found %#x", o.n, o.conn, c.n, c.conn, c.old)
		}
		next[c.old] = c
		changes++
	}
	if x.changeMayBeMissing {
		return nil // then the changes need not form a chain
	}
	value, visited, lastRequest := x.initial[i], map[uint64]bool{x.initial[i]: true}, map[int]int{} // lastRequest is by connection
	for c := next[value]; c != nil; c = next[value] {
		if n, ok := lastRequest[c.conn]; ok && n > c.n {
			return bad("each connection's requests in order", "request %d of connection %d took effect after request %d", c.n, c.conn, n)
		}
		lastRequest[c.conn] = c.n
		delete(next, value)
		changes--
		value = c.new
		visited[value] = true
	}
	if changes > 0 || value != final {
		return bad("a chain of all changes from the first value to the last", "the chain ends at %#x with %d changes left over; memory holds %#x", value, changes, final)
	}
	for _, c := range misses {
		if !visited[c.old] {
			return bad("a value that the word had", "request %d of connection %d found %#x", c.n, c.conn, c.old)
		}
	}
	return nil
}
