package window

import (
	"encoding/binary"
	"slices"
)

// Atomic is a NIC atomic on one 8-byte word of a target's memory.
type Atomic struct {
	op         *Operation
	offset     uint64 // in the window, a multiple of 8
	expected   uint64 // compare value of the compare-and-swap
	old        uint64 // fetched value
	isFetchAdd bool   // not a compare-and-swap, which may fail
}

// Fetched stores the value that the word had before the atomic.
func (a *Atomic) Fetched(old uint64) { a.old = old }

// maxLookahead is the number of queued accumulates per target that are considered for
// starting.
const maxLookahead = 8

// startEligible starts those of the first maxLookahead queued accumulates that overlap none queued
// before them: accumulates of one origin on the same words run in order, others in parallel.
func (w *Window) startEligible(t *target) {
	for i := 0; i < min(len(t.atomicOps), maxLookahead); i++ {
		o := t.atomicOps[i]
		overlaps := func(other *Operation) bool { return o.firstWord() < other.endWord() && other.firstWord() < o.endWord() }
		if started := o.parts > 0; !started && !slices.ContainsFunc(t.atomicOps[:i], overlaps) {
			w.startAtomics(o)
		}
	}
}

// firstWord is the offset of the first 8-byte word of an operation.
func (o *Operation) firstWord() uint64 { return uint64(o.Offset) &^ 7 }

// endWord is the offset of the end of the last 8-byte word of an operation.
func (o *Operation) endWord() uint64 { return (uint64(o.Offset+o.size) + 7) &^ 7 }

// startAtomics starts the atomics of an accumulate, up to the limit of Config.InFlight.
func (w *Window) startAtomics(o *Operation) {
	o.nextWord = o.firstWord()
	n := min(int(o.endWord()-o.nextWord)/8, w.e.cfg.InFlight)
	if cap(o.atomics) < n {
		o.atomics = make([]Atomic, n)
	}
	o.atomics = o.atomics[:n]
	o.parts = 1 // held by this function: atomics may complete at once
	for i := 0; i < n && o.nextWord < o.endWord() && o.err == nil; i++ {
		o.parts++
		o.atomics[i] = Atomic{op: o}
		w.startNextWord(&o.atomics[i])
	}
	w.atomicDone(o)
}

// atomicDone counts down the unfinished atomics of an accumulate. With the last one, it completes
// the accumulate.
func (w *Window) atomicDone(o *Operation) {
	if o.parts--; o.parts == 0 {
		w.dequeue(o)
	}
}

// startNextWord starts an atomic on the next word of its operation: a fetch-and-add for NoOp
// and for sums of 8-byte integers, else a compare-and-swap that expects 0 at first.
func (w *Window) startNextWord(a *Atomic) {
	o := a.op
	a.offset, a.expected = o.nextWord, 0
	o.nextWord += 8
	w.e.Stats.Atomics++
	switch at := o.t.remoteAddr(a.offset); {
	case o.Op == NoOp:
		a.isFetchAdd = true
		w.e.transport.FetchAdd(o.t.Peer, at, 0, a)
	case o.Op == Sum && o.Kind == AccumulateOp && (o.Type == Int64 || o.Type == Uint64):
		a.isFetchAdd = true
		w.e.transport.FetchAdd(o.t.Peer, at, binary.LittleEndian.Uint64(o.Origin[a.offset-uint64(o.Offset):]), a)
	default:
		if o.Kind == CompareAndSwapOp {
			// The element must equal compare; the other bytes of the word are guessed as 0.
			a.expected = o.applied(a, 0, o.Compare)
		}
		w.compareSwap(a)
	}
}

// compareSwap tries to replace the expected value of a word by the result of the
// operation.
func (w *Window) compareSwap(a *Atomic) {
	w.e.transport.CompareSwap(a.op.t.Peer, a.op.t.remoteAddr(a.offset), a.expected, a.op.applied(a, a.expected, a.op.Origin), a)
}

// span returns the byte range [from, to) of the atomic's word that the operation covers, and
// the offset at of this range in the operation's buffers.
func (o *Operation) span(a *Atomic) (from, to, at int) {
	from, to = max(0, o.Offset-int(a.offset)), min(8, o.Offset+o.size-int(a.offset))
	return from, to, int(a.offset) + from - o.Offset
}

// applied returns the value of the atomic's word after the operation was applied to old, with
// elements as the origin buffer.
func (o *Operation) applied(a *Atomic, old uint64, elements []byte) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], old)
	from, to, at := o.span(a)
	Reduce(b[from:to], elements[at:at+to-from], o.Type, o.Op)
	return binary.LittleEndian.Uint64(b[:])
}

// AtomicDone completes an atomic; without an error, Fetched was called before. It continues with
// the next word of the operation.
func (e *Engine) AtomicDone(a *Atomic, err error) {
	o := a.op
	w := o.w
	o.fail(err)
	if o.err == nil {
		// A failed compare-and-swap is retried with the fetched value: always for an accumulate; for
		// CompareAndSwap only if the fetched element equals compare: other bytes of the word differed.
		failed := !a.isFetchAdd && a.old != a.expected
		if failed && (o.Kind != CompareAndSwapOp || o.applied(a, a.old, o.Compare) == a.old) {
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
	w.atomicDone(o)
}

// storeResult copies the fetched bytes of the atomic's word to the result buffer, if any.
func (o *Operation) storeResult(a *Atomic) {
	if o.Result == nil {
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], a.old)
	from, to, at := o.span(a)
	copy(o.Result[at:], b[from:to])
}

// dequeue removes and completes an accumulate, and starts queued ones that overlapped it.
func (w *Window) dequeue(o *Operation) {
	t := o.t
	i := slices.Index(t.atomicOps, o)
	t.atomicOps = slices.Delete(t.atomicOps, i, i+1)
	o.complete()
	if t.lost == nil {
		w.startEligible(t)
	}
}
