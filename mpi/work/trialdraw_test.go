package work_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/verbs"
)

// lots is where choices come from: a number from 0 to n-1. Wherever something is drawn,
// what is plain comes first, so that lots which are all 0 make a plain trial.
type lots interface{ IntN(n int) int }

// fromSeed draws by a seed.
func fromSeed(seed uint64) lots { return rand.New(rand.NewPCG(seed, 0x7269616c73)) }

// fromBytes draws by bytes, one each, and is plain when there are no more of them.
type fromBytes struct{ left []byte }

func (f *fromBytes) IntN(n int) int {
	if len(f.left) == 0 {
		return 0
	}
	b := f.left[0]
	f.left = f.left[1:]
	return int(b) % n
}

// pick draws one of several.
func pick[T any](l lots, from ...T) T { return from[l.IntN(len(from))] }

// trial is a workload on a fabric, and how the ranks behave.
type trial struct {
	work   *work.Workload
	params work.Params
	fabric mpihost.Fabric
	o      mpi.Options
	begins func(*transport.Env) // when a rank does; may be nil
}

// draw draws one that can be run.
func draw(l lots, seed uint64) *trial {
	t := &trial{}
	t.drawFabric(l, seed)
	t.drawWork(l)
	t.drawCarrier(l)
	t.drawProtocols(l)
	return t
}

func (t *trial) drawFabric(l lots, seed uint64) {
	t.fabric = mpihost.Fabric{
		Ranks: pick(l, 4, 2, 3, 5, 8, 9, 12, 16), PerHost: pick(l, 1, 1, 2, 4), Rails: pick(l, 1, 1, 2),
		Provider: pick(l, nics.Names()...), IPv4: l.IntN(4) == 3,
		Seed: seed, Limit: limit, Events: events,
	}
	f := &t.fabric
	f.Link.MTU = pick(l, 0, 0, 1500)
	f.Link.Latency = pick(l, 0, 0, 50*time.Microsecond)
	var s impair.Spec
	s.LossPPM = pick[uint32](l, 0, 0, 1000, 10_000, 30_000)
	if !t.provider().OverTCP { // TCP sees to the rest
		if l.IntN(3) == 2 {
			s.DuplicatePPM, s.DuplicateDelay = 50_000, 10*time.Microsecond
		}
		if l.IntN(3) == 2 {
			s.ReorderPPM, s.ReorderDelay = 50_000, 30*time.Microsecond
		}
		s.Jitter = pick(l, 0, 0, 20*time.Microsecond)
		s.CorruptPPM = pick[uint32](l, 0, 0, 0, 2000)
	}
	if s != (impair.Spec{}) {
		f.Impair = []impair.Spec{s}
	}
}

// provider returns the provider of the trial's NICs.
func (t *trial) provider() *nics.Provider {
	p, err := nics.Find(t.fabric.Provider)
	if err != nil {
		panic(err)
	}
	return p
}

// drawWork draws one of the workloads that can be divided among the ranks.
func (t *trial) drawWork(l lots) {
	t.params = work.Params{Compute: pick(l, 0, 50*time.Microsecond)}
	var fit []*work.Workload
	for _, wl := range work.All() {
		if wl.Check(t.fabric.Ranks, t.params) == nil {
			fit = append(fit, wl)
		}
	}
	t.work = pick(l, fit...)
	switch {
	case !t.work.Sized:
	case t.fabric.Impair == nil:
		t.params.Bytes = pick(l, 0, 8, 1000, 20_000)
	default: // what is lost with all that is behind it must be sent again
		t.params.Bytes = pick(l, 1000, 8, 20_000)
	}
}

// drawCarrier draws pools that are too small more often than not: waiting for room is
// where ways differ.
func (t *trial) drawCarrier(l lots) {
	designs := carrier.Designs()
	if !t.provider().Caps.Has(verbs.CapUD) {
		designs = designs[:4] // they need no datagrams
	}
	c := &t.o.Carrier
	c.Design = pick(l, designs...)
	c.PacketSize = pick(l, 0, 256, 512, 2048)
	c.Receives = pick(l, 0, 4, 8)
	c.SharedReceives = pick(l, 0, 8, 32)
	c.Datagrams.Window = pick(l, 0, 1, 4)
	c.Datagrams.Receives = pick(l, 0, 16, 64)
	c.Datagrams.AckEvery = pick(l, 0, 1, 3)
	c.Ring.Slots = pick(l, 0, 2, 4)
	c.Ring.SlotSize = pick(l, 0, 256)
	c.Ring.After = pick(l, 0, 1, 4)
	c.Ring.Peers = pick(l, 0, 1)
	c.HybridAfter = pick(l, 0, 1, 4)
	c.HybridPeers = pick(l, 0, 2)
	c.StripeThreshold = pick(l, 0, 1024)
	c.CacheBytes = pick(l, 0, 4096)
	c.NoSharedMemory = l.IntN(3) == 2
	c.Reuse.Off = l.IntN(4) == 3
	c.Reuse.Thresholds = pick(l, nil, memory.Thresholds{1}, memory.Thresholds{4, 2})
	c.IdleTimeout = pick(l, 0, 0, 0, 20*time.Microsecond, 200*time.Microsecond)
}

func (t *trial) drawProtocols(l lots) {
	t.o.Progress = pick(l, mpi.Polling, mpi.Background)
	t.o.P2P.Protocol = pick(l, p2p.RGET, p2p.RPUT, p2p.Speculative)
	t.o.P2P.Adaptive = l.IntN(2) == 1
	t.o.P2P.NoEarlyProgress = l.IntN(4) == 3
	t.o.P2P.EagerLimit = pick(l, 0, -1, 16, 300)
	t.o.Window.ByTarget = l.IntN(3) == 2
	t.o.BruckLimit = pick(l, 0, -1)
}

// run runs the trial in a simulated world. Done is told when a rank's workload has
// returned, before the rank ends.
func (t *trial) run(done func(rank int, at time.Duration, r work.Result, err error)) (mpihost.Outcome, error) {
	return mpihost.InWorld(t.fabric, func(e *transport.Env) error {
		if t.begins != nil {
			t.begins(e)
		}
		return mpi.Run(e, t.o, func(w *mpi.World) error {
			r, err := t.work.Run(w, t.params)
			done(w.Rank(), w.Wtime(), r, err)
			return err
		})
	})
}

func (t *trial) String() string {
	var b strings.Builder
	f := &t.fabric
	fmt.Fprintf(&b, "%s %+v on %d ranks, %d a host, %d rails of %s, IPv4 %v, MTU %d, latency %v", t.work.Name, t.params,
		f.Ranks, f.PerHost, f.Rails, f.Provider, f.IPv4, f.Link.MTU, f.Link.Latency)
	for _, s := range f.Impair {
		fmt.Fprintf(&b, ", impaired %+v", s)
	}
	fmt.Fprintf(&b, "; %v, %v %+v, accumulates by target %v, Bruck %d; %+v", t.o.Progress, t.o.P2P.Protocol, t.o.P2P, t.o.Window.ByTarget, t.o.BruckLimit, t.o.Carrier)
	return b.String()
}
