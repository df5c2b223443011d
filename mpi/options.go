package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// ProgressMode says when a rank makes progress.
type ProgressMode uint8

// The progress modes.
const (
	// Polling: only within calls of the runtime.
	Polling ProgressMode = iota
	// Background: also in a progress task that runs next to the program.
	Background
)

// String returns "background" or "polling".
func (m ProgressMode) String() string {
	if m == Background {
		return "background"
	}
	return "polling"
}

// Options configure a rank. All ranks of a world must use the same.
type Options struct {
	// Carrier configures the verbs carrier. Open, if not nil, opens another carrier instead.
	Carrier carrier.Config
	Open    Opener `json:"-"`
	// P2P configures point-to-point messages. An EagerLimit of 0 means 16 KiB; a negative
	// one sends even empty messages by rendezvous.
	P2P      p2p.Config
	Progress ProgressMode
	Window   window.Config
	// BruckLimit is the largest block of Alltoall for Bruck's algorithm; 0: 256, negative: none.
	BruckLimit int
	// Collectives are algorithms of collective operations, where not the default. One that does not fit
	// a call is not used for it.
	Collectives coll.Choices
	// Rules choose the algorithms of the other operations, by the size of the call.
	Rules []coll.Rule `json:",omitempty"`
	// RecordArrivals records when the program calls collective operations, for Stats.Arrivals. At the end
	// the first and the last rank measure how long messages take.
	RecordArrivals bool
	// Races detects data races of all ranks, which share it, in simulation; nil for no detection.
	Races *racecheck.Checker `json:"-"`
	// Misuse, if not nil, checks the calls of all ranks, which must share it and run in simulation.
	Misuse *misuse.Checker `json:"-"`
	// OnCall, if not nil, receives the calls of the program as they begin; the rank completes them later.
	// Misuse must be set, too.
	OnCall func(*Call) `json:"-"`
	// OnWinFree, if not nil, receives the memory of each window when the rank frees it.
	OnWinFree func(rank int, window string, memory []byte) `json:"-"`
	// OnFinalize receives a rank's statistics when its program has ended, even with an error.
	OnFinalize func(rank int, s Stats) `json:"-"`
}

// setDefaults replaces options that are 0 or nil by their defaults, and any negative EagerLimit by
// -1.
func (o *Options) setDefaults() {
	const eagerLimit, bruckLimit = 16 << 10, 256 // largest eager message, and largest block for Bruck's Alltoall, in bytes
	switch {
	case o.P2P.EagerLimit == 0:
		o.P2P.EagerLimit = eagerLimit
	case o.P2P.EagerLimit < 0:
		o.P2P.EagerLimit = -1 // not even empty messages are eager
	}
	if o.BruckLimit == 0 {
		o.BruckLimit = bruckLimit
	}
	if o.Open == nil {
		o.Open = OverVerbs(o.Carrier)
	}
}

// Stats are the statistics of a rank.
type Stats struct {
	P2P    p2p.Stats
	Window window.Stats
	// NeverReceived counts messages that were still unexpected when the program ended.
	NeverReceived uint64
	Shared        SharedStats
	// Carrier is a carrier.Stats, or the statistics of another carrier.
	Carrier any
	// Arrivals are nil unless they are recorded.
	Arrivals *Arrivals `json:",omitempty"`
}

// Upper receives the events of a carrier; the rank implements it.
type Upper = carrier.Upper

// Carrier moves control messages and data between this rank and its peers, itself included. The
// caller holds the rank's lock in every method except Wait. A carrier calls Upper only from within
// its methods: Upper.Finished for each operation with an owner, once it has ended.
type Carrier interface {
	p2p.Transport
	window.Transport
	Multicast
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
	// HasPacket reports whether a message of a peer is known to wait for Progress.
	HasPacket(peer int) bool
	// Wait blocks until Progress may have something to do, or until the timeout. The
	// program and the progress task may wait at the same time.
	Wait(timeout time.Duration)
	// AllDelivered reports whether all sent messages have reached their peers.
	AllDelivered() bool
	Close() error
	// Stats returns the statistics of the carrier, whose type depends on the implementation.
	Stats() any
}

// Opener opens the carrier of a rank. All ranks do so at the same time.
type Opener func(e *transport.Env, up Upper) (Carrier, error)

// OverVerbs returns an Opener of carriers that use verbs over the NICs of the rank's environment.
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
