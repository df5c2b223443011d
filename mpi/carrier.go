package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// Upper receives the events of a carrier; the rank implements it.
type Upper = carrier.Upper

// Carrier moves control messages and data between this rank and its peers, itself
// included. The caller holds the rank's lock in every method except Wait. A carrier calls
// Upper only from within its methods: Upper.Finished for each operation with an owner, once
// it has ended.
type Carrier interface {
	p2p.Transport
	window.Transport
	// MaxData is the largest payload of a message.
	MaxData() int
	// Atomics reports whether FetchAdd and CompareSwap work on every aligned 8-byte word
	// of registered memory of every peer, this rank included.
	Atomics() bool
	// Invalidate removes the registrations of memory that is about to be freed or reused.
	// Invalidated reports whether no NIC can access it any more; Progress leads to that.
	Invalidate(buf []byte) error
	Invalidated(buf []byte) bool
	// Flush sends deferred messages, and reports whether there were any.
	Flush() bool
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

// OverVerbs returns an Opener of carriers over the NICs of the rank's environment.
func OverVerbs(cfg carrier.Config) Opener {
	return func(e *transport.Env, up Upper) (Carrier, error) {
		c, err := carrier.Open(e, cfg, up)
		if err != nil {
			return nil, err
		}
		return verbsCarrier{c}, nil
	}
}

// verbsCarrier adapts carrier.Carrier to the Carrier interface.
type verbsCarrier struct{ *carrier.Carrier }

// Stats implements Carrier; the result is a carrier.Stats.
func (c verbsCarrier) Stats() any { return c.Carrier.Stats() }
