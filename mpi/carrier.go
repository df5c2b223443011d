package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Upper receives the events of a carrier; the rank implements it.
type Upper = carrier.Upper

// Carrier moves control messages and data between this rank and its peers, itself
// included. The caller holds the rank's lock in every method except Wait. A carrier calls
// Upper only from within its methods.
type Carrier interface {
	Now() time.Duration
	// MaxData is the largest payload of a message.
	MaxData() int
	// CanSend reports whether a message of n bytes can be sent to a peer now, that is,
	// whether there is credit for it.
	CanSend(peer, n int) bool
	// Send sends a message to a peer, in order. The header may be reused at once, data
	// when Upper.Finished reports OpSend for the owner. A message without an owner has no
	// data.
	Send(peer int, h *wire.Header, data []byte, owner any)
	// Register makes memory accessible to peers. Source and Sink make it accessible to the
	// local NIC as the source of writes or the destination of reads; they may use a bounce
	// buffer where that is cheaper.
	Register(buf []byte) (p2p.Region, error)
	Source(buf []byte) (p2p.Region, error)
	Sink(buf []byte) (p2p.Region, error)
	Release(p2p.Region)
	// Read reads n bytes of a peer's memory.
	Read(peer int, into p2p.Region, n int, from wire.Memory, owner any)
	// Write writes n bytes to a peer's memory. If then is not nil, it is a message that
	// the peer receives after the data.
	Write(peer int, from p2p.Region, n int, to wire.Memory, then *wire.Header, owner any)
	// Atomics reports whether FetchAdd and CompareSwap work on every aligned 8-byte word
	// of registered memory of every peer, this rank included.
	Atomics() bool
	// FetchAdd and CompareSwap are atomic operations on an 8-byte word. The owner receives
	// the old value before Upper.Finished.
	FetchAdd(peer int, at wire.Memory, add uint64, owner carrier.Fetcher)
	CompareSwap(peer int, at wire.Memory, compare, swap uint64, owner carrier.Fetcher)
	// Invalidate removes the registrations of memory that is about to be freed or reused.
	// Invalidated reports whether no NIC can access it any more; Progress leads to that.
	Invalidate(buf []byte) error
	Invalidated(buf []byte) bool
	// Flush sends deferred messages, and reports whether there were any.
	Flush() bool
	// Progress processes received messages and completions, and reports whether there were
	// any.
	Progress() bool
	// PollFast is a cheaper Progress that may leave work to the next Progress. first marks
	// the first of several consecutive calls. Wait must follow a Progress, not a PollFast.
	PollFast(first bool) bool
	// Wait blocks until Progress may have something to do, or until the timeout. The
	// program and the progress task may wait at the same time.
	Wait(timeout time.Duration)
	// AllDelivered reports whether all sent messages have reached their peers.
	AllDelivered() bool
	Close() error
	// Stats returns the statistics of the carrier, whose type depends on the
	// implementation.
	Stats() any
}

// Opener opens the carrier of a rank. All ranks do so at the same time.
type Opener func(e *transport.Env, up Upper) (Carrier, error)

// OverVerbs opens carriers that use the NICs of the rank's environment.
func OverVerbs(cfg carrier.Config) Opener {
	return func(e *transport.Env, up Upper) (Carrier, error) {
		c, err := carrier.Open(e, cfg, up)
		if err != nil {
			return nil, err
		}
		return &verbsCarrier{c}, nil
	}
}

// verbsCarrier adapts carrier.Carrier to the Carrier interface.
type verbsCarrier struct{ *carrier.Carrier }

func (o *verbsCarrier) Register(buf []byte) (p2p.Region, error) {
	return toRegion(o.Carrier.Register(buf))
}

func (o *verbsCarrier) Source(buf []byte) (p2p.Region, error) { return toRegion(o.Carrier.Source(buf)) }

func (o *verbsCarrier) Sink(buf []byte) (p2p.Region, error) { return toRegion(o.Carrier.Sink(buf)) }

// toRegion converts a region to the interface type, and a nil region to a nil interface.
func toRegion(r *memory.Region, err error) (p2p.Region, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (o *verbsCarrier) Release(r p2p.Region) { o.Carrier.Release(r.(*memory.Region)) }

func (o *verbsCarrier) Read(peer int, into p2p.Region, n int, from wire.Memory, owner any) {
	o.Carrier.Read(peer, into.(*memory.Region), n, from, owner)
}

func (o *verbsCarrier) Write(peer int, from p2p.Region, n int, to wire.Memory, then *wire.Header, owner any) {
	o.Carrier.Write(peer, from.(*memory.Region), n, to, then, owner)
}

func (o *verbsCarrier) Stats() any { return o.Carrier.Stats() }
