package mpihost

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// What holds where a Fabric says nothing: the cable of a modern fabric, with room for
// a path MTU of 4096 and its headers.
const (
	defaultRate     = 100_000_000_000
	defaultLatency  = time.Microsecond
	defaultMTU      = 4200
	ethernetFraming = 38
	defaultLimit    = time.Hour
	// defaultEvents ends a run in which somebody looks for something for ever while
	// hardly any time passes: some minutes on the wall.
	defaultEvents = 1_000_000_000
)

// Fabric is what ranks are started on: hosts around one switch a rail.
type Fabric struct {
	// Ranks is how many there are, PerHost how many of them share a host; 1 if 0.
	// Ranks are dealt out in blocks: 0 … PerHost-1 are on host 0.
	Ranks, PerHost int
	// Rails is how many NICs a host has, each on a network of its own; 1 if 0.
	Rails int
	// Provider is one of package nics; the default one if empty.
	Provider string
	// Setup is how its NICs are opened. Those of datagram-iWARP are always reliable
	// here, for the runtime needs somebody to repeat what is lost, unless Unreliable
	// is set.
	Setup      nics.Setup
	Unreliable bool
	// IPv4 has the NICs use addresses of IPv4.
	IPv4 bool
	// Link is every cable. What is zero in it is as in a modern fabric: 100 Gb/s, 1 µs,
	// an MTU of 4200.
	Link sim.LinkConfig
	// Impair is what happens to packets by chance, once to each: on its way out of its
	// host. Providers that talk over streams have TCP repair it: of them only LossPPM
	// can be asked for, and shows as time lost.
	Impair []impair.Spec
	// Stream is how byte streams behave, for providers that talk over them.
	Stream sim.StreamConfig
	// Costs is what work on memory takes; nothing if nil. Spend is filled in.
	Costs *env.Costs
	// Seed decides everything that is chance.
	Seed uint64
	// Limit ends a run that does not end by itself, in virtual time; 1 hour if 0.
	// Events is how much may happen in it; a thousand million if 0.
	Limit  time.Duration
	Events uint64
	// Script, if not nil, is called once before anything runs: it plans what is to
	// happen to the fabric and the ranks, with World.At.
	Script func(*World)
	// Chooser, Trace and Stop are those of sim.Config.
	Chooser sim.Chooser
	Trace   io.Writer
	Stop    func() error
}

// normal is f with everything said, or an error about what makes no sense.
func (f Fabric) normal() (Fabric, *nics.Provider, error) {
	f.PerHost, f.Rails = cmp.Or(f.PerHost, 1), cmp.Or(f.Rails, 1)
	f.Limit, f.Events = cmp.Or(f.Limit, defaultLimit), cmp.Or(f.Events, defaultEvents)
	f.Link.RateBps, f.Link.Latency = cmp.Or(f.Link.RateBps, defaultRate), cmp.Or(f.Link.Latency, defaultLatency)
	f.Link.MTU, f.Link.OverheadBytes = cmp.Or(f.Link.MTU, defaultMTU), cmp.Or(f.Link.OverheadBytes, ethernetFraming)
	p, err := nics.Find(f.Provider)
	if err != nil {
		return f, nil, err
	}
	switch {
	case f.Ranks < 1:
		return f, nil, fmt.Errorf("%d ranks: there must be one at least", f.Ranks)
	case f.PerHost < 1:
		return f, nil, fmt.Errorf("%d ranks a host: there must be one at least", f.PerHost)
	}
	f.Provider = p.Name
	f.Setup.Reliable = p.ReliableCaps != 0 && !f.Unreliable
	if p.Streams {
		f.Stream, err = onStreams(f.Stream, f.Impair)
		f.Impair = nil
	}
	return f, p, err
}

// lossDelay is what a lost segment costs a stream: its repetition after duplicate
// acknowledgements takes a round trip, and the last of a burst a timeout of 200 ms;
// most are of the former kind.
const lossDelay = 300 * time.Microsecond

// onStreams turns loss of packets into what it is to a stream.
func onStreams(c sim.StreamConfig, specs []impair.Spec) (sim.StreamConfig, error) {
	for _, s := range specs {
		if s != (impair.Spec{LossPPM: s.LossPPM}) {
			return c, errors.New("a provider that talks over streams takes loss only, all the time: TCP repairs the rest, or set Fabric.Stream")
		}
		if s.LossPPM > 0 {
			c.StallPPM = min(c.StallPPM+s.LossPPM, impair.PPM)
			c.StallFor = cmp.Or(c.StallFor, lossDelay)
		}
	}
	return c, nil
}

// hosts is how many f has.
func (f *Fabric) hosts() int { return (f.Ranks + f.PerHost - 1) / f.PerHost }

// nodes says which host each rank is on.
func (f *Fabric) nodes() []int {
	all := make([]int, f.Ranks)
	for i := range all {
		all[i] = i / f.PerHost
	}
	return all
}

// draw is the fabric on paper.
func (f *Fabric) draw() (topology.Topology, error) {
	return topology.Star(f.hosts(), topology.Options{Rails: f.Rails})
}

// addr is the address of a NIC that is used.
func (f *Fabric) addr(n *topology.NIC) netip.Addr { return n.Addr(f.IPv4) }
