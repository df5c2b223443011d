package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Upper is what a carrier tells of: the rank above it.
type Upper = carrier.Upper

// Carrier moves the words and data of a rank over whatever paths there are to each
// peer, of which it may be one itself. It belongs to whoever holds the rank's lock;
// only Wait is called without it. It calls nobody before it was first called.
type Carrier interface {
	Now() time.Duration
	// MaxData is how much data a word can have.
	MaxData() int
	// Room reports whether a word with n bytes can leave for a peer without having to
	// wait for room there.
	CanSend(peer, n int) bool
	// Send carries a word to a peer, behind those before it. The header is the
	// caller's again at once, data when Finished says Sent of the owner; without an
	// owner there is no data.
	Send(peer int, h *wire.Header, data []byte, owner any)
	// Register makes memory reachable for peers and their NICs; Source makes what is
	// written from it reachable for ours, and Sink what is read into it, by a copy if
	// that is cheaper.
	Register(buf []byte) (p2p.Region, error)
	Source(buf []byte) (p2p.Region, error)
	Sink(buf []byte) (p2p.Region, error)
	Release(p2p.Region)
	// Read brings n bytes of a peer's memory.
	Read(peer int, into p2p.Region, n int, from wire.Memory, owner any)
	// Write takes n bytes to a peer's memory; then, if it is not nil, is a word that
	// arrives when they are there.
	Write(peer int, from p2p.Region, n int, to wire.Memory, then *wire.Header, owner any)
	// Atomics reports whether the eight aligned bytes anywhere in a peer's registered
	// memory, this rank's own included, can be changed atomically, by whatever path.
	Atomics() bool
	// FetchAdd and CompareSwap do so. The owner is told what was there, before
	// Finished.
	FetchAdd(peer int, at wire.Memory, add uint64, owner carrier.Fetcher)
	CompareSwap(peer int, at wire.Memory, compare, swap uint64, owner carrier.Fetcher)
	// Forget says that memory is about to be freed or used for something else, and
	// Forgotten whether it may be: no NIC can reach it any more. Progress leads to that.
	Invalidate(buf []byte) error
	Invalidated(buf []byte) bool
	// Flush has leave what was kept back to leave with more, and reports whether there
	// was anything.
	Flush() bool
	// Progress takes in what has come, and reports whether there was anything.
	Progress() bool
	// Glance is a Progress that leaves to the next one what can wait; first says that it
	// is the first of several, one right behind the other. Wait comes after a Progress
	// only.
	PollFast(first bool) bool
	// Wait returns when there may be something for Progress, or after most. The
	// program and the task in the background may both wait.
	Wait(most time.Duration)
	// Quiet reports whether everything that was sent has reached its peers.
	AllDelivered() bool
	Close() error
	// Stats are the carrier's own.
	Stats() any
}

// Opener makes the carrier of a rank. All ranks do so at the same time.
type Opener func(e *env.Env, up Upper) (Carrier, error)

// OverVerbs makes carriers over the NICs that a rank's environment has.
func OverVerbs(cfg carrier.Config) Opener {
	return func(e *env.Env, up Upper) (Carrier, error) {
		c, err := carrier.Open(e, cfg, up)
		if err != nil {
			return nil, err
		}
		return &verbsCarrier{c}, nil
	}
}

// overVerbs is a carrier whose regions are known by what can be done with them.
type verbsCarrier struct{ *carrier.Carrier }

func (o *verbsCarrier) Register(buf []byte) (p2p.Region, error) {
	return toRegion(o.Carrier.Register(buf))
}

func (o *verbsCarrier) Source(buf []byte) (p2p.Region, error) { return toRegion(o.Carrier.Source(buf)) }
func (o *verbsCarrier) Sink(buf []byte) (p2p.Region, error)   { return toRegion(o.Carrier.Sink(buf)) }

func toRegion(r *carrier.Region, err error) (p2p.Region, error) {
	if err != nil {
		return nil, err // not a region that is nil
	}
	return r, nil
}

func (o *verbsCarrier) Release(r p2p.Region) { o.Carrier.Release(r.(*carrier.Region)) }

func (o *verbsCarrier) Read(peer int, into p2p.Region, n int, from wire.Memory, owner any) {
	o.Carrier.Read(peer, into.(*carrier.Region), n, from, owner)
}

func (o *verbsCarrier) Write(peer int, from p2p.Region, n int, to wire.Memory, then *wire.Header, owner any) {
	o.Carrier.Write(peer, from.(*carrier.Region), n, to, then, owner)
}

func (o *verbsCarrier) Stats() any { return o.Carrier.Stats() }
