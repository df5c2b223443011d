package mpi

import (
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
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

func (m ProgressMode) String() string {
	if m == Background {
		return "background"
	}
	return "polling"
}

// Options configure a rank. All ranks of a world must use the same.
type Options struct {
	// Carrier configures the verbs carrier. Open, if not nil, opens another carrier
	// instead.
	Carrier carrier.Config
	Open    Opener `json:"-"`
	// P2P configures point-to-point messages. An EagerLimit of 0 means 4 KiB; a negative
	// one sends even empty messages by rendezvous.
	P2P      p2p.Config
	Progress ProgressMode
	Window   window.Config
	// Bruck is the largest block size for which Alltoall uses Bruck's algorithm; 256 if 0,
	// never if negative.
	Bruck int
	// OnFinalize receives the statistics of a rank when its program has ended, with or
	// without an error.
	OnFinalize func(rank int, s Stats) `json:"-"`
}

// setDefaults replaces options that are 0 or nil by their defaults.
func (o *Options) setDefaults() {
	const eager, bruck = 4 << 10, 256
	switch {
	case o.P2P.EagerLimit == 0:
		o.P2P.EagerLimit = eager
	case o.P2P.EagerLimit < 0:
		o.P2P.EagerLimit = -1 // not even empty messages are eager
	}
	if o.Bruck == 0 {
		o.Bruck = bruck
	}
	if o.Open == nil {
		o.Open = OverVerbs(o.Carrier)
	}
}

// limitData limits eager messages and accumulate chunks to maxData, the largest payload of a
// message of the carrier.
func (o *Options) limitData(maxData int) {
	o.P2P.EagerLimit = min(o.P2P.EagerLimit, maxData)
	if o.Window.Chunk == 0 || o.Window.Chunk > maxData {
		o.Window.Chunk = min(window.DefaultChunk, maxData) &^ 7
	}
}

// Stats are the statistics of a rank.
type Stats struct {
	P2P    p2p.Stats
	Window window.Stats
	// NeverReceived counts messages that were still unexpected when the program ended.
	NeverReceived uint64
	// Carrier is a carrier.Stats, or the statistics of another carrier.
	Carrier any
}
