package window

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Part is what a rank has of a window.
type Segment struct {
	Peer   int // the rank's name at the fabric
	Size   int
	Memory wire.Memory // none if Size is 0
	// Atomics says that NICs can change any of it atomically: its words of eight bytes
	// are all whole.
	Atomics bool
}

// Own makes memory part of a window to be. Its region, which is nil for no memory, is
// given back when the window is closed, or by Disown.
func (e *Engine) RegisterSegment(mem []byte, atomics bool) (Segment, p2p.Region, error) {
	part := Segment{Size: len(mem)}
	if len(mem) == 0 {
		return part, nil, nil
	}
	region, err := e.fabric.Register(mem)
	if err != nil {
		return part, nil, err
	}
	part.Memory = region.Memory()
	part.Atomics = atomics && !e.cfg.ByTarget && part.Memory.Addr%8 == 0 && len(mem)%8 == 0
	return part, region, nil
}

// Disown gives back what Own made.
func (e *Engine) ReleaseSegment(region p2p.Region) {
	if region != nil {
		e.fabric.Release(region)
	}
}

// Window is one, as a rank sees it.
type Window struct {
	e       *Engine
	id      uint32
	mem     []byte
	region  p2p.Region
	targets []target
	index   map[int]int // of targets, by peer

	// As an origin:
	access    access
	used      bool  // of a fence: an operation followed it
	group     []int // of a start
	noCheck   bool  // of locks of all
	locks     int   // held of single targets
	touched   []int // targets that operations were begun on in this epoch
	isTouched []bool

	// As a target:
	exposed bool
	posted  []int // whom a post was for
	held    map[int]LockKind
	shared  int // of those held
	queue   []claim
}

// access is which epoch allows operations of ours.
type access uint8

const (
	none    access = iota
	fenced         // all targets
	started        // those of the group
	locked         // those with locks
	lockedAll
)

// target is what an origin knows of a rank's part, and what of it as an origin.
type target struct {
	Segment
	peer int
	i    int
	lost error

	open      bool // of a started epoch: its post has come
	lock      lockState
	kind      LockKind
	waiting   []*Operation // until it is open, or the lock is ours
	accs      []*Operation // by its NIC, in order
	pending   int          // operations that are not complete
	unflushed bool         // words were sent that it has not said to have carried out
	flushes   int          // asked for
	flushed   int          // answered
	replies   []reply      // that it owes, in order
	err       error        // the first, of this epoch
	posts     int          // that no start has used
	completes int          // that no wait has
}

// Open makes a window of the parts of all ranks, of which this is number me, with
// this memory. Its id is the same at all of them, and of no other window.
func (e *Engine) Open(id uint32, parts []Segment, mem []byte, region p2p.Region) *Window {
	w := &Window{
		e: e, id: id, mem: mem, region: region, index: make(map[int]int, len(parts)),
		targets: make([]target, len(parts)), isTouched: make([]bool, len(parts)), held: make(map[int]LockKind),
	}
	for i, p := range parts {
		w.targets[i] = target{Segment: p, peer: p.Peer, i: i, lost: e.lost[p.Peer]}
		w.index[p.Peer] = i
	}
	e.windows[id] = w
	e.order = append(e.order, w)
	return w
}

// Close ends a window.
func (w *Window) Close() {
	delete(w.e.windows, w.id)
	w.e.order = slices.DeleteFunc(w.e.order, func(o *Window) bool { return o == w })
	w.e.ReleaseSegment(w.region)
	w.region = nil
}

// Size is how many bytes a rank's part has.
func (w *Window) Size(rank int) int { return w.targets[rank].Size }

// Quiescent says why a window cannot be closed now.
func (w *Window) CheckNoEpoch() error {
	switch {
	case w.access == started:
		return fmt.Errorf("%w: Start was called and Complete was not", ErrSync)
	case w.access == locked:
		return fmt.Errorf("%w: %d locks are held", ErrSync, w.locks)
	case w.access == lockedAll:
		return fmt.Errorf("%w: LockAll was called and UnlockAll was not", ErrSync)
	case w.access == fenced && w.used:
		return fmt.Errorf("%w: operations have been begun since the last fence; end the epoch with another", ErrSync)
	case w.exposed:
		return fmt.Errorf("%w: Post was called and Wait was not", ErrSync)
	}
	return nil
}

// touch notes that operations are begun on a target.
func (w *Window) touch(i int) {
	if !w.isTouched[i] {
		w.isTouched[i] = true
		w.touched = append(w.touched, i)
	}
}

// Settled reports whether all operations on a rank's part are complete there. It asks
// what it has to, so that it will be so.
func (w *Window) RemoteComplete(rank int) bool {
	t := &w.targets[rank]
	if len(t.waiting) > 0 || t.pending > 0 {
		return false
	}
	if t.unflushed {
		t.unflushed = false
		t.flushes++
		w.e.word(t, &wire.Header{Kind: wire.Flush, Context: w.id})
	}
	return t.flushes == t.flushed
}

// SettledHere reports whether the buffers of all operations on a rank's part are
// their owner's again.
func (w *Window) LocalComplete(rank int) bool {
	t := &w.targets[rank]
	return len(t.waiting) == 0 && t.pending == 0
}

// AllSettled is Settled of all ranks.
func (w *Window) AllRemoteComplete() bool { return w.all(w.RemoteComplete) }

// AllSettledHere is SettledHere of all ranks.
func (w *Window) AllLocalComplete() bool { return w.all(w.LocalComplete) }

func (w *Window) all(settled func(int) bool) bool {
	all := true // each is asked, so that none has to wait for another
	for _, i := range w.touched {
		all = settled(i) && all
	}
	return all
}

// Failed returns what operations on a rank's part failed with, and forgets it.
func (w *Window) TakeError(rank int) error {
	err := w.targets[rank].err
	w.targets[rank].err = nil
	return err
}

// AllFailed is Failed of all ranks that operations were begun on.
func (w *Window) TakeErrors() (err error) {
	for _, i := range w.touched {
		err = errors.Join(err, w.TakeError(i))
	}
	return err
}

// untouch forgets which targets operations were begun on.
func (w *Window) untouch() {
	for _, i := range w.touched {
		w.isTouched[i] = false
	}
	w.touched = w.touched[:0]
}
