package window

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Segment is a rank's part of a window.
type Segment struct {
	Peer   int // world rank
	Size   int
	Memory wire.Memory // unset if Size is 0
	// Atomics says that NIC atomics work on all of its 8-byte words.
	Atomics bool
}

// RegisterSegment registers memory as the local segment of a new window. atomics says that the
// NICs support atomics; peers use them only if the segment consists of aligned 8-byte words. The
// region, nil for empty memory, is released by Window.Close or ReleaseSegment.
func (e *Engine) RegisterSegment(mem []byte, atomics bool) (Segment, wire.Region, error) {
	segment := Segment{Size: len(mem)}
	if len(mem) == 0 {
		return segment, nil, nil
	}
	region, err := e.transport.Register(mem)
	if err != nil {
		return segment, nil, err
	}
	segment.Memory = region.Memory()
	segment.Atomics = atomics && !e.cfg.ByTarget && segment.Memory.Addr%8 == 0 && len(mem)%8 == 0
	return segment, region, nil
}

// ReleaseSegment releases the region of RegisterSegment.
func (e *Engine) ReleaseSegment(region wire.Region) {
	if region != nil {
		e.transport.Release(region)
	}
}

// Window is a rank's view of a window.
type Window struct {
	e       *Engine
	id      uint32
	mem     []byte
	region  wire.Region
	targets []target
	index   map[int]int // of targets, by peer

	// As an origin:
	access      accessEpoch
	fenceUsed   bool  // fence epoch: an operation was started
	group       []int // of Start
	noCheck     bool  // of LockAll
	locks       int   // number of locks of Lock
	usedTargets []int // ranks with operations in this epoch
	isUsed      []bool

	// As a target:
	exposed       bool
	exposedTo     []int            // group of Post
	holders       map[int]LockKind // of the local lock, by peer
	sharedHolders int              // number of shared holders
	lockQueue     []lockRequest    // requests for the local lock
}

// accessEpoch is the kind of the open access epoch.
type accessEpoch uint8

const (
	noEpoch    accessEpoch = iota
	fenceEpoch             // access to all targets
	startEpoch             // access to the group
	lockEpoch              // access to locked targets
	lockAllEpoch
)

// target is the state of this rank as an origin for one target, and as a target for that
// rank.
type target struct {
	Segment
	peer int
	rank int
	lost error

	postReceived    bool // for the current Start epoch
	lock            lockState
	lockKind        LockKind
	waiting         []*Operation // until the post or the lock grant arrives
	atomicOps       []*Operation // accumulates by NIC atomics, in order
	pending         int          // operations that are not locally complete
	unflushed       bool         // accumulate messages were sent since the last flush
	flushesSent     int
	flushesAcked    int
	pendingReplies  []reply // in order
	err             error   // first error of this epoch
	unusedPosts     int     // posts that no Start has used
	unusedCompletes int     // completes that no Wait has used
}

// Open opens a window with the segments of all ranks, by rank. mem is the local memory and region
// its registration. The id is unique and the same on all ranks.
func (e *Engine) Open(id uint32, segments []Segment, mem []byte, region wire.Region) *Window {
	w := &Window{
		e: e, id: id, mem: mem, region: region, index: make(map[int]int, len(segments)),
		targets: make([]target, len(segments)), isUsed: make([]bool, len(segments)), holders: make(map[int]LockKind),
	}
	for rank, s := range segments {
		w.targets[rank] = target{Segment: s, peer: s.Peer, rank: rank, lost: e.lost[s.Peer]}
		w.index[s.Peer] = rank
	}
	e.windows[id] = w
	e.ordered = append(e.ordered, w)
	return w
}

// Close closes a window and releases its region.
func (w *Window) Close() {
	delete(w.e.windows, w.id)
	w.e.ordered = slices.DeleteFunc(w.e.ordered, func(o *Window) bool { return o == w })
	w.e.ReleaseSegment(w.region)
	w.region = nil
}

// Size is the size of a rank's segment in bytes.
func (w *Window) Size(rank int) int { return w.targets[rank].Size }

// CheckNoEpoch returns an error that names the open epoch, if there is one.
func (w *Window) CheckNoEpoch() error {
	switch {
	case w.access == startEpoch:
		return fmt.Errorf("%w: Start was called and Complete was not", ErrSync)
	case w.access == lockEpoch:
		return fmt.Errorf("%w: %d locks are held", ErrSync, w.locks)
	case w.access == lockAllEpoch:
		return fmt.Errorf("%w: LockAll was called and UnlockAll was not", ErrSync)
	case w.access == fenceEpoch && w.fenceUsed:
		return fmt.Errorf("%w: operations were started since the last fence; close the epoch with another", ErrSync)
	case w.exposed:
		return fmt.Errorf("%w: Post was called and Wait was not", ErrSync)
	}
	return nil
}

// markUsed notes that this epoch uses a target: by operations, a lock or the group of Start.
func (w *Window) markUsed(i int) {
	if !w.isUsed[i] {
		w.isUsed[i] = true
		w.usedTargets = append(w.usedTargets, i)
	}
}

// RemoteComplete reports whether all operations on a rank's window are complete at the
// target. If accumulate messages were sent, it sends a flush request once and reports false
// until the reply.
func (w *Window) RemoteComplete(rank int) bool {
	if !w.LocalComplete(rank) {
		return false
	}
	t := &w.targets[rank]
	if t.unflushed {
		t.unflushed = false
		t.flushesSent++
		w.sendControl(t, wire.Header{Kind: wire.Flush})
	}
	return t.flushesSent == t.flushesAcked
}

// LocalComplete reports whether all operations on a rank's window are locally complete.
func (w *Window) LocalComplete(rank int) bool {
	t := &w.targets[rank]
	return len(t.waiting) == 0 && t.pending == 0
}

// AllRemoteComplete is RemoteComplete for all ranks.
func (w *Window) AllRemoteComplete() bool { return w.all(w.RemoteComplete) }

// AllLocalComplete is LocalComplete for all ranks.
func (w *Window) AllLocalComplete() bool { return w.all(w.LocalComplete) }

// all reports whether complete is true for every target used in this epoch.
func (w *Window) all(complete func(rank int) bool) bool {
	all := true // call complete for every target, since RemoteComplete may send a flush
	for _, i := range w.usedTargets {
		all = complete(i) && all
	}
	return all
}

// TakeError returns and clears the error of the operations on a rank's window.
func (w *Window) TakeError(rank int) error {
	err := w.targets[rank].err
	w.targets[rank].err = nil
	return err
}

// TakeErrors is TakeError for all targets with operations in this epoch.
func (w *Window) TakeErrors() (err error) {
	for _, i := range w.usedTargets {
		err = errors.Join(err, w.TakeError(i))
	}
	return err
}

// clearUsed marks all targets as unused, for the next epoch.
func (w *Window) clearUsed() {
	for _, i := range w.usedTargets {
		w.isUsed[i] = false
	}
	w.usedTargets = w.usedTargets[:0]
}

// Assert is a set of promises about an epoch.
type Assert uint8

// The assertions.
const (
	NoStore Assert = 1 << iota
	NoPut
	NoPrecede
	NoSucceed
	NoCheck
)

// LockKind is the kind of a lock.
type LockKind uint8

// The kinds.
const (
	Shared LockKind = iota
	Exclusive
)

// Errors of operations and epochs.
var (
	ErrArg      = errors.New("invalid argument")
	ErrType     = errors.New("no such type")
	ErrOp       = errors.New("invalid reduction operation")
	ErrSync     = errors.New("not allowed in this epoch")
	ErrRange    = errors.New("outside the window")
	ErrConflict = errors.New("accesses conflict")
	ErrLost     = errors.New("peer is lost")
	// ErrProtocol: a peer has sent a message that the protocol does not allow.
	ErrProtocol = errors.New("peer violates the protocol")
)

// EachAwaitedPeer calls visit for each peer that an open epoch or a pending operation of a
// window waits for: for its replies, its Complete or its Post.
func (e *Engine) EachAwaitedPeer(visit func(peer int)) {
	for _, w := range e.ordered {
		for i := range w.targets {
			if t := &w.targets[i]; t.isAwaited() || w.exposed && t.unusedCompletes == 0 && slices.Contains(w.exposedTo, i) ||
				w.access == startEpoch && !t.postReceived && slices.Contains(w.group, i) {
				visit(t.peer)
			}
		}
	}
}

// isAwaited reports whether operations, a lock request or a flush wait for the target.
func (t *target) isAwaited() bool {
	return t.pending > 0 || t.lock == lockRequested || t.flushesSent != t.flushesAcked
}
