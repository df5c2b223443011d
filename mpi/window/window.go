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

// RegisterSegment registers memory as the local segment of a new window. atomics says that the NICs
// support atomics; peers use them only if the segment consists of aligned 8-byte words. With
// Config.ByTarget the target's CPU executes accumulates instead. The region, nil for empty memory,
// is released by Window.Close or ReleaseSegment.
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

	access    accessEpoch // as an origin
	exposed   bool        // as a target, to the group of Post
	exposedTo []int
	lock      localLock // as a target
}

// accessEpoch is the access epoch of an origin.
type accessEpoch struct {
	kind      epochKind
	fenceUsed bool  // fence epoch: an operation was started
	group     []int // of Start
	noCheck   bool  // of LockAll
	locks     int   // number of locks of Lock
	used      []int // ranks with operations, a lock, or in the group of Start
	isUsed    []bool
}

// epochKind is the kind of an access epoch.
type epochKind uint8

const (
	noEpoch    epochKind = iota
	fenceEpoch           // access to all targets
	startEpoch           // access to the group
	lockEpoch            // access to locked targets
	lockAllEpoch
)

// localLock is the lock of the local memory.
type localLock struct {
	holders map[int]LockKind // by peer
	shared  int              // number of shared holders
	queue   []lockRequest
}

// target is the state of this rank as an origin for one target, and as a target for that rank.
type target struct {
	Segment
	lost error

	postReceived    bool // for the current Start epoch
	lock            lockState
	lockKind        LockKind
	waiting         []*Operation // until the post or the lock grant arrives
	atomicOps       []*Operation // accumulates by NIC atomics, in order
	pending         int          // operations that are not locally complete
	flush           flushState
	pendingReplies  []reply // in order
	err             error   // first error of this epoch
	unusedPosts     int     // posts that no Start has used
	unusedCompletes int     // completes that no Wait has used
}

// flushState is the state of flush requests to a target.
type flushState struct {
	needed      bool // accumulate messages were sent since the last flush
	sent, acked int
}

// Open opens a window with the segments of all ranks, by rank. mem is the local memory and region
// its registration. The id is unique and the same on all ranks.
func (e *Engine) Open(id uint32, segments []Segment, mem []byte, region wire.Region) *Window {
	w := &Window{
		e: e, id: id, mem: mem, region: region, index: make(map[int]int, len(segments)),
		targets: make([]target, len(segments)), access: accessEpoch{isUsed: make([]bool, len(segments))}, lock: localLock{holders: make(map[int]LockKind)},
	}
	for rank, s := range segments {
		w.targets[rank] = target{Segment: s, lost: e.lost[s.Peer]}
		w.index[s.Peer] = rank
	}
	e.windows[id] = w
	e.ordered = append(e.ordered, w)
	return w
}

// Close closes a window and releases its region.
func (w *Window) Close() {
	delete(w.e.windows, w.id)
	w.e.ordered = slices.DeleteFunc(w.e.ordered, func(other *Window) bool { return other == w })
	w.e.ReleaseSegment(w.region)
	w.region = nil
}

// Size is the size of a rank's segment in bytes.
func (w *Window) Size(rank int) int { return w.targets[rank].Size }

// CheckNoEpoch returns an error that names the open epoch, unless it is a fence without operations.
func (w *Window) CheckNoEpoch() error {
	switch {
	case w.access.kind == startEpoch:
		return fmt.Errorf("%w: Start was called and Complete was not", ErrSync)
	case w.access.kind == lockEpoch:
		return fmt.Errorf("%w: %d locks are held", ErrSync, w.access.locks)
	case w.access.kind == lockAllEpoch:
		return fmt.Errorf("%w: LockAll was called and UnlockAll was not", ErrSync)
	case w.access.kind == fenceEpoch && w.access.fenceUsed:
		return fmt.Errorf("%w: operations were started since the last fence; close the epoch with another", ErrSync)
	case w.exposed:
		return fmt.Errorf("%w: Post was called and Wait was not", ErrSync)
	}
	return nil
}

// markUsed notes that this epoch uses a target: by operations, a lock or the group of Start.
func (a *accessEpoch) markUsed(i int) {
	if !a.isUsed[i] {
		a.isUsed[i] = true
		a.used = append(a.used, i)
	}
}

// close closes the epoch.
func (a *accessEpoch) close() {
	for _, i := range a.used {
		a.isUsed[i] = false
	}
	a.used, a.kind, a.group = a.used[:0], noEpoch, nil
}

// RemoteComplete reports whether all operations on a rank's window are complete at the target. If
// accumulate messages were sent, it sends a flush request once and reports false until the reply.
func (w *Window) RemoteComplete(rank int) bool {
	if !w.LocalComplete(rank) {
		return false
	}
	t := &w.targets[rank]
	if t.flush.needed {
		t.flush.needed = false
		t.flush.sent++
		w.sendControl(t, wire.Header{Kind: wire.Flush})
	}
	return t.flush.sent == t.flush.acked
}

// LocalComplete reports whether all operations on a rank's window are locally complete.
func (w *Window) LocalComplete(rank int) bool {
	t := &w.targets[rank]
	return len(t.waiting) == 0 && t.pending == 0
}

// AllRemoteComplete reports whether all operations of the epoch are complete at their targets.
func (w *Window) AllRemoteComplete() bool { return w.allUsed(w.RemoteComplete) }

// AllLocalComplete reports whether all operations of the epoch are locally complete.
func (w *Window) AllLocalComplete() bool { return w.allUsed(w.LocalComplete) }

// allUsed reports whether isComplete is true for every target used in this epoch.
func (w *Window) allUsed(isComplete func(rank int) bool) bool {
	all := true // call isComplete for every target, since RemoteComplete may send a flush
	for _, i := range w.access.used {
		all = isComplete(i) && all
	}
	return all
}

// TakeError returns and clears the error of the operations on a rank's window.
func (w *Window) TakeError(rank int) error {
	err := w.targets[rank].err
	w.targets[rank].err = nil
	return err
}

// TakeErrors returns and clears the errors of the operations on all targets used in this epoch.
func (w *Window) TakeErrors() (err error) {
	for _, i := range w.access.used {
		err = errors.Join(err, w.TakeError(i))
	}
	return err
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

// EachAwaitedPeer calls visit for each peer that an open epoch or a pending operation of a window
// waits for: for its replies, its lock, its answer to a flush, its Complete or its Post.
func (e *Engine) EachAwaitedPeer(visit func(peer int)) {
	for _, w := range e.ordered {
		for i := range w.targets {
			t := &w.targets[i]
			switch {
			case t.pending > 0, t.lock == lockRequested, t.flush.sent != t.flush.acked:
			case w.exposed && t.unusedCompletes == 0 && slices.Contains(w.exposedTo, i):
			case w.access.kind == startEpoch && !t.postReceived && slices.Contains(w.access.group, i):
			default:
				continue
			}
			visit(t.Peer)
		}
	}
}
