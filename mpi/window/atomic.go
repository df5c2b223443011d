package window

import (
	"encoding/binary"
	"slices"
)

// Atomic is an operation of the NIC on one word of eight bytes of a target's memory.
type Atomic struct {
	o     *Operation
	word  uint64 // its offset, a multiple of 8
	guess uint64 // what we take to be there
	found uint64
	adds  bool // it cannot fail
}

// Fetched takes what was there.
func (a *Atomic) Fetched(old uint64) { a.found = old }

// eligible is how many accumulates on a target are looked at when one can begin.
const eligible = 8

// enqueue puts an accumulate behind those on the same target. Accumulates of one
// origin on the same elements keep their order; others go at the same time.
func (w *Window) enqueue(o *Operation) {
	o.t.accs = append(o.t.accs, o)
	w.beginEligible(o.t)
}

// beginEligible begins the accumulates that need not wait for one before them.
func (w *Window) beginEligible(t *target) {
	for i := 0; i < min(len(t.accs), eligible); i++ {
		o := t.accs[i]
		if o.parts == 0 && !slices.ContainsFunc(t.accs[:i], o.shares) {
			w.beginAtomics(o)
		}
	}
}

// first and end are the words that an operation is about, end exclusive.
func (o *Operation) first() uint64 { return uint64(o.at) &^ 7 }
func (o *Operation) end() uint64   { return (uint64(o.at+o.size) + 7) &^ 7 }

// shares reports whether two operations have a word in common.
func (o *Operation) shares(other *Operation) bool {
	return o.first() < other.end() && other.first() < o.end()
}

// beginAtomics begins as many atomics as may be under way.
func (w *Window) beginAtomics(o *Operation) {
	o.next = o.first()
	n := min(int(o.end()-o.next)/8, w.e.cfg.InFlight)
	if cap(o.atomics) < n {
		o.atomics = make([]Atomic, n)
	}
	o.atomics = o.atomics[:n]
	o.parts = 1 // ours: what has begun may end at once, and with it what is to begin
	for i := 0; i < n && o.next < o.end() && o.err == nil; i++ {
		o.parts++
		o.atomics[i] = Atomic{o: o}
		w.nextWord(&o.atomics[i])
	}
	w.partOf(o)
}

// partOf ends a part of an accumulate, and with the last the accumulate.
func (w *Window) partOf(o *Operation) {
	if o.parts--; o.parts == 0 {
		w.retire(o)
	}
}

// nextWord has an atomic go on with the next word of its operation.
func (w *Window) nextWord(a *Atomic) {
	o := a.o
	a.word, a.guess = o.next, 0
	o.next += 8
	w.e.Stats.Atomics++
	switch at := o.t.place(a.word); {
	case o.op == NoOp:
		a.adds = true
		w.e.fabric.FetchAdd(o.t.peer, at, 0, a)
	case o.op == Sum && o.what == accumulate && (o.typ == Int64 || o.typ == Uint64):
		a.adds = true
		w.e.fabric.FetchAdd(o.t.peer, at, binary.LittleEndian.Uint64(o.origin[a.word-uint64(o.at):]), a)
	default:
		if o.what == swap { // nothing else is of use to us
			a.guess = o.with(a, 0, o.compare)
		}
		w.swap(a)
	}
}

// swap tries to change a word from what we take to be there.
func (w *Window) swap(a *Atomic) {
	w.e.fabric.CompareSwap(a.o.t.peer, a.o.t.place(a.word), a.guess, a.o.with(a, a.guess, a.o.origin), a)
}

// span is which bytes of a word its operation is about, and where they are in it.
func (o *Operation) span(a *Atomic) (from, to, at int) {
	from, to = 0, 8
	if begin := uint64(o.at); begin > a.word {
		from = int(begin - a.word)
	}
	if end := uint64(o.at + o.size); end < a.word+8 {
		to = int(end - a.word)
	}
	return from, to, int(a.word) + from - o.at
}

// with is a word after its operation, with these elements, on what was there.
func (o *Operation) with(a *Atomic, was uint64, elements []byte) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], was)
	from, to, at := o.span(a)
	Reduce(b[from:to], elements[at:at+to-from], o.typ, o.op)
	return binary.LittleEndian.Uint64(b[:])
}

// FinishedAtomic takes the end of an atomic, whose Fetched was called before if it
// has not failed.
func (e *Engine) AtomicDone(a *Atomic, err error) {
	o := a.o
	w := o.w
	o.fail(err)
	if o.err == nil {
		if !a.adds && a.found != a.guess && o.wants(a) {
			e.Stats.Atomics++
			e.Stats.Retries++
			a.guess = a.found
			w.swap(a)
			return
		}
		o.bring(a)
		if o.next < o.end() {
			w.nextWord(a)
			return
		}
	}
	w.partOf(o)
}

// wants reports whether a word is to be changed, now that we know what is there: all
// are, but those that a swap compares with something else.
func (o *Operation) wants(a *Atomic) bool {
	return o.what != swap || o.with(a, a.found, o.compare) == a.found
}

// bring keeps what was there in a word before.
func (o *Operation) bring(a *Atomic) {
	if o.result == nil {
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], a.found)
	from, to, at := o.span(a)
	copy(o.result[at:], b[from:to])
}

// retire takes an accumulate out, and has others go that waited for it.
func (w *Window) retire(o *Operation) {
	t := o.t
	i := slices.Index(t.accs, o)
	t.accs = slices.Delete(t.accs, i, i+1)
	o.complete()
	if t.lost == nil {
		w.beginEligible(t)
	}
}
