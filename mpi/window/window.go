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
	region, err := e.transport.Register(mem)
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
		e.transport.Release(region)
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
	access      accessEpoch
	fenceUsed   bool  // of a fence: an operation followed it
	group       []int // of a start
	noCheck     bool  // of locks of all
	locks       int   // held of single targets
	usedTargets []int // targets that operations were begun on in this epoch
	isUsed      []bool

	// As a target:
	exposed       bool
	exposedTo     []int // whom a post was for
	holders       map[int]LockKind
	sharedHolders int // of those held
	lockQueue     []lockRequest
}

// access is which epoch allows operations of ours.
type accessEpoch uint8

const (
	noEpoch    accessEpoch = iota
	fenceEpoch             // all targets
	startEpoch             // those of the group
	lockEpoch              // those with locks
	lockAllEpoch
)

// target is what an origin knows of a rank's part, and what of it as an origin.
type target struct {
	Segment
	peer int
	rank int
	lost error

	postReceived    bool // of a started epoch: its post has come
	lock            lockState
	lockKind        LockKind
	waiting         []*Operation // until it is open, or the lock is ours
	atomicOps       []*Operation // by its NIC, in order
	pending         int          // operations that are not complete
	unflushed       bool         // words were sent that it has not said to have carried out
	flushesSent     int          // asked for
	flushesAcked    int          // answered
	pendingReplies  []reply      // that it owes, in order
	err             error        // the first, of this epoch
	unusedPosts     int          // that no start has used
	unusedCompletes int          // that no wait has
}

// Open makes a window of the parts of all ranks, of which this is number me, with
// this memory. Its id is the same at all of them, and of no other window.
func (e *Engine) Open(id uint32, parts []Segment, mem []byte, region p2p.Region) *Window {
	w := &Window{
		e: e, id: id, mem: mem, region: region, index: make(map[int]int, len(parts)),
		targets: make([]target, len(parts)), isUsed: make([]bool, len(parts)), holders: make(map[int]LockKind),
	}
	for i, p := range parts {
		w.targets[i] = target{Segment: p, peer: p.Peer, rank: i, lost: e.lost[p.Peer]}
		w.index[p.Peer] = i
	}
	e.windows[id] = w
	e.ordered = append(e.ordered, w)
	return w
}

// Close ends a window.
func (w *Window) Close() {
	delete(w.e.windows, w.id)
	w.e.ordered = slices.DeleteFunc(w.e.ordered, func(o *Window) bool { return o == w })
	w.e.ReleaseSegment(w.region)
	w.region = nil
}

// Size is how many bytes a rank's part has.
func (w *Window) Size(rank int) int { return w.targets[rank].Size }

// Quiescent says why a window cannot be closed now.
func (w *Window) CheckNoEpoch() error {
	switch {
	case w.access == startEpoch:
		return fmt.Errorf("%w: Start was called and Complete was not", ErrSync)
	case w.access == lockEpoch:
		return fmt.Errorf("%w: %d locks are held", ErrSync, w.locks)
	case w.access == lockAllEpoch:
		return fmt.Errorf("%w: LockAll was called and UnlockAll was not", ErrSync)
	case w.access == fenceEpoch && w.fenceUsed:
		return fmt.Errorf("%w: operations have been begun since the last fence; end the epoch with another", ErrSync)
	case w.exposed:
		return fmt.Errorf("%w: Post was called and Wait was not", ErrSync)
	}
	return nil
}

// touch notes that operations are begun on a target.
func (w *Window) markUsed(i int) {
	if !w.isUsed[i] {
		w.isUsed[i] = true
		w.usedTargets = append(w.usedTargets, i)
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
		t.flushesSent++
		w.e.sendControl(t, &wire.Header{Kind: wire.Flush, Context: w.id})
	}
	return t.flushesSent == t.flushesAcked
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
	for _, i := range w.usedTargets {
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
	for _, i := range w.usedTargets {
		err = errors.Join(err, w.TakeError(i))
	}
	return err
}

// untouch forgets which targets operations were begun on.
func (w *Window) clearUsed() {
	for _, i := range w.usedTargets {
		w.isUsed[i] = false
	}
	w.usedTargets = w.usedTargets[:0]
}
