package mpi

import (
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// ProgressMode is when a rank attends to what others want of it.
type ProgressMode uint8

// The modes.
const (
	// Polling: only inside of calls.
	Polling ProgressMode = iota
	// Background: also by a task beside the program.
	Background
)

func (m ProgressMode) String() string {
	if m == Background {
		return "background"
	}
	return "polling"
}

// Options are how a rank behaves. All ranks of a world have the same.
type Options struct {
	// Carrier is how the rank reaches others over its NICs; Open, if it is not nil, is
	// another way to do so.
	Carrier carrier.Config
	Open    Opener `json:"-"`
	// P2P is how messages travel. Its EagerLimit is 4 KiB if 0, and none if negative:
	// then even empty messages go by rendezvous.
	P2P      p2p.Config
	Progress ProgressMode
	Window   window.Config
	// Bruck is up to how many bytes for each rank Alltoall goes in log(n) rounds;
	// 256 if 0, never if negative.
	Bruck int
	// Ended is told what a rank has done when its program has ended, however it has.
	OnFinalize func(rank int, s Stats) `json:"-"`
}

// setDefaults fills in what is zero.
func (o *Options) setDefaults() {
	const eager, bruck = 4 << 10, 256
	switch {
	case o.P2P.EagerLimit == 0:
		o.P2P.EagerLimit = eager
	case o.P2P.EagerLimit < 0:
		o.P2P.EagerLimit = -1
	}
	if o.Bruck == 0 {
		o.Bruck = bruck
	}
	if o.Open == nil {
		o.Open = OverVerbs(o.Carrier)
	}
}

// fit has words carry no more than they can.
func (o *Options) limitData(most int) {
	o.P2P.EagerLimit = min(o.P2P.EagerLimit, most)
	if o.Window.Chunk == 0 || o.Window.Chunk > most {
		o.Window.Chunk = min(window.DefaultChunk, most) &^ 7
	}
}

// Stats count what a rank did.
type Stats struct {
	P2P    p2p.Stats
	Window window.Stats
	// NeverReceived is how many messages were left over when the program ended.
	NeverReceived uint64
	// Carrier is what the carrier counted: a carrier.Stats, or what another has.
	Carrier any
}
