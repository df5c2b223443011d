package window

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// DefaultChunk is the default of Config.Chunk.
const DefaultChunk = 1024

// Config configures an engine.
type Config struct {
	// ByTarget has the target's CPU execute accumulates even where NICs could.
	ByTarget bool
	// Chunk is the maximum payload of an accumulate message in bytes, a multiple of 8;
	// DefaultChunk if 0.
	Chunk int
	// InFlight is the maximum number of concurrent NIC atomics per accumulate; 16 if 0.
	InFlight int
}

// Stats are the statistics of an engine.
type Stats struct {
	Puts, Gets, Accumulates uint64
	PutBytes, GetBytes      uint64
	Atomics                 uint64     // NIC atomics started
	Retries                 uint64     // of those, after a failed compare-and-swap
	ControlMessages         [16]uint64 // messages sent, by wire.Kind - wire.FirstWindowKind
	ExecutedForPeers        uint64     // accumulates of peers executed here
	LocksWaited             uint64     // lock requests of peers that had to wait
}

// Transport sends the messages of an engine and moves its data. It reports completions
// with TransferDone and AtomicDone. If it cannot reach a peer, Engine.Lost is called.
type Transport interface {
	// Send sends a message to a peer, in order. TransferDone returns the data to the owner.
	Send(peer int, h *wire.Header, data []byte, owner any)
	// Register makes memory accessible to peers. Source and Sink make it accessible to the
	// local NIC for writes from it and reads into it; they may use a bounce buffer.
	Register(buf []byte) (wire.Region, error)
	Source(buf []byte) (wire.Region, error)
	Sink(buf []byte) (wire.Region, error)
	Release(wire.Region)
	// Read and Write move data from and to the memory of a peer. The owner of these and of
	// Send is an *Operation.
	Read(peer int, t wire.Transfer, owner any)
	Write(peer int, t wire.Transfer, owner any)
	// FetchAdd and CompareSwap are atomic operations on an aligned little-endian 8-byte
	// word. The owner, an *Atomic, receives the old value.
	FetchAdd(peer int, at wire.Memory, add uint64, owner any)
	CompareSwap(peer int, at wire.Memory, compare, swap uint64, owner any)
}

// Engine implements the windows of one rank. It is not safe for concurrent use.
type Engine struct {
	Stats Stats
	// Copied, if not nil, is called for each copy and each reduction of bytes by this rank's CPU. The
	// transport counts the copies of what it sends and receives.
	Copied func(bytes int)

	cfg        Config
	transport  Transport
	windows    map[uint32]*Window
	ordered    []*Window // windows in order of creation
	lost       map[int]error
	busy       int // pending operations
	freeOps    []*Operation
	sendHeader wire.Header // header being sent; a local variable would be heap-allocated
}

// New returns an engine for one rank, with defaults for zero fields of cfg. It rounds Chunk, the
// payload of an accumulate message, down to whole 8-byte words.
func New(cfg Config, t Transport) *Engine {
	const inFlight = 16
	cfg.Chunk = max(cmp.Or(cfg.Chunk, DefaultChunk)&^7, 8)
	cfg.InFlight = max(cmp.Or(cfg.InFlight, inFlight), 1)
	return &Engine{cfg: cfg, transport: t, windows: make(map[uint32]*Window), lost: make(map[int]error)}
}

// copied counts the CPU time of a copy or a reduction of n bytes, if it is simulated.
func (e *Engine) copied(n int) {
	if n > 0 && e.Copied != nil {
		e.Copied(n)
	}
}

// Busy reports whether any operation is pending.
func (e *Engine) Busy() bool { return e.busy > 0 }

// sendControl sends a control message without data to a target. It sends nothing to a lost target.
func (w *Window) sendControl(t *target, h wire.Header) {
	if t.lost == nil {
		w.e.sendHeader = h // &h would be a heap allocation
		w.e.sendHeader.Context = w.id
		w.send(t, &w.e.sendHeader, nil, nil)
	}
}

// send sends and counts a message. The owner of its data, if any, is an *Operation.
func (w *Window) send(t *target, h *wire.Header, data []byte, owner any) {
	w.e.Stats.ControlMessages[h.Kind-wire.FirstWindowKind]++
	w.e.transport.Send(t.Peer, h, data, owner)
}

// Arrived handles a message of a peer, and does not keep its data. The error is an ErrProtocol.
func (e *Engine) Arrived(peer int, h *wire.Header, data []byte) error {
	if e.lost[peer] != nil {
		return nil // a late message of a lost peer
	}
	w := e.windows[h.Context]
	if w == nil {
		if h.Kind == wire.Unlock {
			return nil // the origin does not wait for Unlock, so the window may be closed already
		}
		return protocolError(peer, h, "no such window")
	}
	i, ok := w.index[peer]
	if !ok {
		return protocolError(peer, h, "the rank is not in the window's group")
	}
	t := &w.targets[i]
	switch h.Kind {
	case wire.Accumulate:
		return w.handleAccumulate(t, h, data)
	case wire.CompareSwap:
		return w.handleCompareSwap(t, h, data)
	case wire.AccumulateReply:
		return w.handleReply(t, h, data)
	case wire.Flush:
		w.sendControl(t, wire.Header{Kind: wire.Flushed})
	case wire.Flushed:
		if t.flush.acked == t.flush.sent {
			return protocolError(peer, h, "no flush is outstanding")
		}
		t.flush.acked++
	case wire.Post:
		w.handlePost(i)
	case wire.Complete:
		t.unusedCompletes++ // Test of the exposure epoch uses it
	case wire.Lock:
		return w.handleLock(t, h)
	case wire.Granted:
		return w.handleGranted(t, h)
	case wire.Unlock:
		if _, has := w.lock.holders[peer]; !has {
			return protocolError(peer, h, "the peer does not hold the lock")
		}
		w.removeHolder(peer)
	default:
		return protocolError(peer, h, "unknown kind")
	}
	return nil
}

// protocolError returns the ErrProtocol for a message.
func protocolError(peer int, h *wire.Header, why string) error {
	return fmt.Errorf("rank %d: %v of window %d: %w: %s", peer, h.Kind, h.Context, ErrProtocol, why)
}

// Lost fails all operations that need a peer, and releases the locks that the peer holds on the
// windows of this rank. A lost peer stays lost. The caller, the transport, has already completed
// its transfers with that peer.
func (e *Engine) Lost(peer int, cause error) {
	if e.lost[peer] != nil {
		return
	}
	e.lost[peer] = fmt.Errorf("rank %d: %w: %w", peer, ErrLost, cause)
	for _, w := range e.ordered { // all windows, by creation
		if i, ok := w.index[peer]; ok {
			w.failTarget(&w.targets[i])
		}
	}
}

// failTarget fails everything in a window that needs a lost peer: operations that wait for its post
// or lock, that expect its replies, or that use atomics on its memory. A flush no longer waits for
// the peer, and the peer loses its locks.
func (w *Window) failTarget(t *target) {
	t.lost = w.e.lost[t.Peer]
	w.lock.queue = slices.DeleteFunc(w.lock.queue, func(r lockRequest) bool { return r.peer == t.Peer })
	w.removeHolder(t.Peer)
	waiting := t.waiting
	t.waiting = nil
	for _, o := range waiting {
		o.fail(t.lost)
		o.complete()
	}
	replies := t.pendingReplies
	t.pendingReplies = nil
	for _, r := range replies {
		r.op.fail(t.lost)
		r.op.partDone()
	}
	for _, o := range slices.Clone(t.atomicOps) {
		o.fail(t.lost)
		if o.parts == 0 { // not started
			w.dequeue(o)
		}
	}
	t.flush.needed, t.flush.acked = false, t.flush.sent
}
