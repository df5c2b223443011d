package window

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// DefaultChunk is how much a word carries unless something else is said.
const DefaultChunk = 1024

// Config is how an engine behaves.
type Config struct {
	// ByTarget has accumulates carried out by their targets even where NICs can.
	ByTarget bool
	// Chunk is how many bytes of elements a word to a target carries at most, a
	// multiple of 8; DefaultChunk if 0.
	Chunk int
	// InFlight is how many operations of the NIC an accumulate has under way at once;
	// 16 if 0.
	InFlight int
}

func (c *Config) setDefaults() {
	const inFlight = 16
	c.Chunk = max(cmp.Or(c.Chunk, DefaultChunk)&^7, 8)
	c.InFlight = max(cmp.Or(c.InFlight, inFlight), 1)
}

// Stats counts what an engine did.
type Stats struct {
	Puts, Gets, Accumulates uint64
	PutBytes, GetBytes      uint64
	Atomics                 uint64     // operations of NICs that were begun
	Retries                 uint64     // of those, because another was faster or a guess was wrong
	Words                   [16]uint64 // sent, by wire.Kind less wire.Windows
	Carried                 uint64     // accumulates of others that we carried out
	LocksWaited             uint64     // locks of ours that others had to wait for
}

// Fabric is what carries the words of an engine and moves its data. What it is asked
// for it does in time, and says so with Finished and FinishedAtomic; when it cannot,
// Engine.Lost says so of the peer.
type Transport interface {
	// Send carries a word to a peer, behind those before it. Data is the owner's.
	Send(peer int, h *wire.Header, data []byte, owner *Operation)
	// Register makes memory reachable for others; Source, what is written from, and Sink,
	// what is read into, need only be so for the NIC here: small buffers may be copied.
	Register(buf []byte) (p2p.Region, error)
	Source(buf []byte) (p2p.Region, error)
	Sink(buf []byte) (p2p.Region, error)
	Release(p2p.Region)
	Read(peer int, into p2p.Region, n int, from wire.Memory, owner *Operation)
	Write(peer int, from p2p.Region, n int, to wire.Memory, owner *Operation)
	// FetchAdd and CompareSwap change eight aligned bytes of a peer's memory, a
	// little-endian number, atomically; the owner is told what was there.
	FetchAdd(peer int, at wire.Memory, add uint64, owner *Atomic)
	CompareSwap(peer int, at wire.Memory, compare, swap uint64, owner *Atomic)
}

// Engine is a rank's. It belongs to one goroutine.
type Engine struct {
	// Stats counts what it did.
	Stats Stats

	cfg        Config
	transport  Transport
	windows    map[uint32]*Window
	ordered    []*Window // the same, in the order in which they were made
	lost       map[int]error
	busy       int // operations that are not complete
	freeOps    []*Operation
	sendHeader wire.Header // of what is being sent: one of its own would not stay on the stack
}

// New returns an engine.
func New(cfg Config, f Transport) *Engine {
	cfg.setDefaults()
	return &Engine{cfg: cfg, transport: f, windows: make(map[uint32]*Window), lost: make(map[int]error)}
}

// Busy reports whether any operation is under way.
func (e *Engine) Busy() bool { return e.busy > 0 }

// word sends one without data.
func (e *Engine) sendControl(t *target, h *wire.Header) {
	if t.lost != nil {
		return
	}
	e.Stats.Words[h.Kind-wire.FirstWindowKind]++
	e.sendHeader = *h
	e.transport.Send(t.peer, &e.sendHeader, nil, nil)
}

// Arrived takes a word of a peer's. The data is valid until it returns.
func (e *Engine) Arrived(peer int, h *wire.Header, data []byte) error {
	if e.lost[peer] != nil {
		return nil // what it said before it went is of no use without it
	}
	w := e.windows[h.Context]
	if w == nil {
		if h.Kind == wire.Unlock {
			return nil // nobody waits until it has come, and the window may be gone before
		}
		return protocolError(peer, h, "there is no such window")
	}
	i, ok := w.index[peer]
	if !ok {
		return protocolError(peer, h, "it has no part in the window")
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
		e.sendControl(t, &wire.Header{Kind: wire.Flushed, Context: w.id})
	case wire.Flushed:
		if t.flushesAcked == t.flushesSent {
			return protocolError(peer, h, "nobody has asked")
		}
		t.flushesAcked++
	case wire.Post:
		w.handlePost(i)
	case wire.Complete:
		t.unusedCompletes++
	case wire.Lock:
		return w.handleLock(t, h)
	case wire.Granted:
		return w.handleGranted(t, h)
	case wire.Unlock:
		return w.handleUnlock(t, h)
	default:
		return protocolError(peer, h, "it is not about windows")
	}
	return nil
}

func protocolError(peer int, h *wire.Header, why string) error {
	return fmt.Errorf("rank %d: %v of window %d: %w: %s", peer, h.Kind, h.Context, ErrProtocol, why)
}

// Lost ends everything that needs a peer, and gives the locks that it has to others.
// It stays lost. What the fabric had under way for it has ended before.
func (e *Engine) Lost(peer int, cause error) {
	if e.lost[peer] != nil {
		return
	}
	e.lost[peer] = fmt.Errorf("rank %d: %w: %w", peer, ErrLost, cause)
	for _, w := range e.ordered {
		if i, ok := w.index[peer]; ok {
			w.failTarget(&w.targets[i])
		}
	}
}

// lose ends what a window needs a peer for.
func (w *Window) failTarget(t *target) {
	t.lost = w.e.lost[t.peer]
	w.releaseLockOf(t)
	waiting := t.waiting
	t.waiting = nil
	for _, o := range waiting {
		o.fail(t.lost)
		o.complete()
	}
	replies := t.pendingReplies
	t.pendingReplies = nil
	for _, r := range replies {
		r.o.fail(t.lost)
		r.o.partDone()
	}
	accs := slices.Clone(t.atomicOps)
	for _, o := range accs {
		o.fail(t.lost)
		if o.parts == 0 { // it has not begun
			w.dequeue(o)
		}
	}
	t.unflushed, t.flushesAcked = false, t.flushesSent
}
