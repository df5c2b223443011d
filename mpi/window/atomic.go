package window

import (
	"encoding/binary"
	"slices"
)

// Atomic is an operation of the NIC on one word of eight bytes of a target's memory.
type Atomic struct {
	op         *Operation
	offset     uint64 // its offset, a multiple of 8
	expected   uint64 // what we take to be there
	old        uint64
	isFetchAdd bool // it cannot fail
}

// Fetched takes what was there.
func (a *Atomic) Fetched(old uint64) { a.old = old }

// eligible is how many accumulates on a target are looked at when one can begin.
const maxLookahead = 8

// enqueue puts an accumulate behind those on the same target. Accumulates of one
// origin on the same elements keep their order; others go at the same time.
func (w *Window) enqueue(o *Operation) {
	o.t.atomicOps = append(o.t.atomicOps, o)
	w.startEligible(o.t)
}

// beginEligible begins the accumulates that need not wait for one before them.
func (w *Window) startEligible(t *target) {
	for i := 0; i < min(len(t.atomicOps), maxLookahead); i++ {
		o := t.atomicOps[i]
		if o.parts == 0 && !slices.ContainsFunc(t.atomicOps[:i], o.overlaps) {
			w.startAtomics(o)
		}
	}
}

// first and end are the words that an operation is about, end exclusive.
func (o *Operation) firstWord() uint64 { return uint64(o.offset) &^ 7 }
func (o *Operation) endWord() uint64   { return (uint64(o.offset+o.size) + 7) &^ 7 }

// shares reports whether two operations have a word in common.
func (o *Operation) overlaps(other *Operation) bool {
	return o.firstWord() < other.endWord() && other.firstWord() < o.endWord()
}

// beginAtomics begins as many atomics as may be under way.
func (w *Window) startAtomics(o *Operation) {
	o.nextWord = o.firstWord()
	n := min(int(o.endWord()-o.nextWord)/8, w.e.cfg.InFlight)
	if cap(o.atomics) < n {
		o.atomics = make([]Atomic, n)
	}
	o.atomics = o.atomics[:n]
	o.parts = 1 // ours: what has begun may end at once, and with it what is to begin
	for i := 0; i < n && o.nextWord < o.endWord() && o.err == nil; i++ {
		o.parts++
		o.atomics[i] = Atomic{op: o}
		w.startNextWord(&o.atomics[i])
	}
	w.partDone(o)
}

// partOf ends a part of an accumulate, and with the last the accumulate.
func (w *Window) partDone(o *Operation) {
	if o.parts--; o.parts == 0 {
		w.dequeue(o)
	}
}

// nextWord has an atomic go on with the next word of its operation.
func (w *Window) startNextWord(a *Atomic) {
	o := a.op
	a.offset, a.expected = o.nextWord, 0
	o.nextWord += 8
	w.e.Stats.Atomics++
	switch at := o.t.remoteAddr(a.offset); {
	case o.op == NoOp:
		a.isFetchAdd = true
		w.e.transport.FetchAdd(o.t.peer, at, 0, a)
	case o.op == Sum && o.kind == accumulateOp && (o.typ == Int64 || o.typ == Uint64):
		a.isFetchAdd = true
		w.e.transport.FetchAdd(o.t.peer, at, binary.LittleEndian.Uint64(o.origin[a.offset-uint64(o.offset):]), a)
	default:
		if o.kind == casOp { // nothing else is of use to us
			a.expected = o.applied(a, 0, o.compare)
		}
		w.compareSwap(a)
	}
}

// swap tries to change a word from what we take to be there.
func (w *Window) compareSwap(a *Atomic) {
	w.e.transport.CompareSwap(a.op.t.peer, a.op.t.remoteAddr(a.offset), a.expected, a.op.applied(a, a.expected, a.op.origin), a)
}

// span is which bytes of a word its operation is about, and where they are in it.
func (o *Operation) span(a *Atomic) (from, to, at int) {
	from, to = 0, 8
	if begin := uint64(o.offset); begin > a.offset {
		from = int(begin - a.offset)
	}
	if end := uint64(o.offset + o.size); end < a.offset+8 {
		to = int(end - a.offset)
	}
	return from, to, int(a.offset) + from - o.offset
}

// with is a word after its operation, with these elements, on what was there.
func (o *Operation) applied(a *Atomic, was uint64, elements []byte) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], was)
	from, to, at := o.span(a)
	Reduce(b[from:to], elements[at:at+to-from], o.typ, o.op)
	return binary.LittleEndian.Uint64(b[:])
}

// FinishedAtomic takes the end of an atomic, whose Fetched was called before if it
// has not failed.
func (e *Engine) AtomicDone(a *Atomic, err error) {
	o := a.op
	w := o.w
	o.fail(err)
	if o.err == nil {
		if !a.isFetchAdd && a.old != a.expected && o.mustRetry(a) {
			e.Stats.Atomics++
			e.Stats.Retries++
			a.expected = a.old
			w.compareSwap(a)
			return
		}
		o.storeResult(a)
		if o.nextWord < o.endWord() {
			w.startNextWord(a)
			return
		}
	}
	w.partDone(o)
}

// wants reports whether a word is to be changed, now that we know what is there: all
// are, but those that a swap compares with something else.
func (o *Operation) mustRetry(a *Atomic) bool {
	return o.kind != casOp || o.applied(a, a.old, o.compare) == a.old
}

// bring keeps what was there in a word before.
func (o *Operation) storeResult(a *Atomic) {
	if o.result == nil {
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], a.old)
	from, to, at := o.span(a)
	copy(o.result[at:], b[from:to])
}

// retire takes an accumulate out, and has others go that waited for it.
func (w *Window) dequeue(o *Operation) {
	t := o.t
	i := slices.Index(t.atomicOps, o)
	t.atomicOps = slices.Delete(t.atomicOps, i, i+1)
	o.complete()
	if t.lost == nil {
		w.startEligible(t)
	}
}
