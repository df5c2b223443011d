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
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/verbs"
)

// chooser returns numbers from 0 to n-1, by which a trial is drawn. 0 chooses the default
// wherever there is one.
type chooser interface{ IntN(n int) int }

// chooserOf returns a chooser with a seed.
func chooserOf(seed uint64) chooser { return rand.New(rand.NewPCG(seed, 0x7269616c73)) }

// byteChooser chooses by one byte each, and returns 0 after the last.
type byteChooser struct{ rest []byte }

func (f *byteChooser) IntN(n int) int {
	if len(f.rest) == 0 {
		return 0
	}
	b := f.rest[0]
	f.rest = f.rest[1:]
	return int(b) % n
}

// pick chooses an element.
func pick[T any](c chooser, from ...T) T { return from[c.IntN(len(from))] }

// trial is a workload on a fabric, with options of the runtime.
type trial struct {
	work    *work.Workload
	params  work.Params
	fabric  mpihost.Fabric
	o       mpi.Options
	onStart func(*transport.Env) // called when a rank starts; may be nil
}

// draw draws a trial that can run.
func draw(c chooser, seed uint64) *trial {
	t := &trial{}
	t.drawFabric(c, seed)
	t.drawWork(c)
	t.drawCarrier(c)
	t.drawProtocols(c)
	return t
}

func (t *trial) drawFabric(c chooser, seed uint64) {
	t.fabric = mpihost.Fabric{
		Ranks: pick(c, 4, 2, 3, 5, 8, 9, 12, 16), PerHost: pick(c, 1, 1, 2, 4), Rails: pick(c, 1, 1, 2),
		Provider: pick(c, nics.Names()...), IPv4: c.IntN(4) == 3,
		Seed: seed, Limit: limit, Events: events,
	}
	f := &t.fabric
	f.Link.MTU = pick(c, 0, 0, 1500)
	f.Link.Latency = pick(c, 0, 0, 50*time.Microsecond)
	var s impair.Spec
	s.LossPPM = pick[uint32](c, 0, 0, 1000, 10_000, 30_000)
	if !t.provider().OverTCP { // TCP hides these faults
		if c.IntN(3) == 2 {
			s.DuplicatePPM, s.DuplicateDelay = 50_000, 10*time.Microsecond
		}
		if c.IntN(3) == 2 {
			s.ReorderPPM, s.ReorderDelay = 50_000, 30*time.Microsecond
		}
		s.Jitter = pick(c, 0, 0, 20*time.Microsecond)
		s.CorruptPPM = pick[uint32](c, 0, 0, 0, 2000)
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

// drawWork draws a workload that the number of ranks permits.
func (t *trial) drawWork(c chooser) {
	t.params = work.Params{Compute: pick(c, 0, 50*time.Microsecond)}
	var fit []*work.Workload
	for _, wl := range work.All() {
		if wl.Check(t.fabric.Ranks, t.params) == nil {
			fit = append(fit, wl)
		}
	}
	t.work = pick(c, fit...)
	switch {
	case !t.work.Sized:
	case t.fabric.Impair == nil:
		t.params.Bytes = pick(c, 0, 8, 1000, 20_000)
	default: // loss of a packet costs many retransmissions
		t.params.Bytes = pick(c, 1000, 8, 20_000)
	}
}

// drawCarrier draws small pools more often than not, so that senders wait for buffers, credits
// and slots.
func (t *trial) drawCarrier(c chooser) {
	designs := carrier.Designs()
	if !t.provider().Caps.Has(verbs.CapUD) {
		designs = designs[:4] // the designs without datagrams
	}
	cfg := &t.o.Carrier
	cfg.Design = pick(c, designs...)
	cfg.PacketSize = pick(c, 0, 256, 512, 2048)
	cfg.Receives = pick(c, 0, 4, 8)
	cfg.SharedReceives = pick(c, 0, 8, 32)
	cfg.Datagrams.Window = pick(c, 0, 1, 4)
	cfg.Datagrams.Receives = pick(c, 0, 16, 64)
	cfg.Datagrams.AckEvery = pick(c, 0, 1, 3)
	cfg.Ring.Slots = pick(c, 0, 2, 4)
	cfg.Ring.SlotSize = pick(c, 0, 256)
	cfg.Ring.After = pick(c, 0, 1, 4)
	cfg.Ring.Peers = pick(c, 0, 1)
	cfg.HybridAfter = pick(c, 0, 1, 4)
	cfg.HybridPeers = pick(c, 0, 2)
	cfg.StripeThreshold = pick(c, 0, 1024)
	cfg.CacheBytes = pick(c, 0, 4096)
	cfg.NoSharedMemory = c.IntN(3) == 2
	cfg.NoRDMA = c.IntN(4) == 3 && cfg.Design != carrier.RingSendRecv && cfg.Design != carrier.RingSRQ
	cfg.Reuse.Off = c.IntN(4) == 3
	cfg.Reuse.Thresholds = pick(c, nil, memory.Thresholds{1}, memory.Thresholds{4, 2})
	cfg.IdleTimeout = pick(c, 0, 0, 0, 20*time.Microsecond, 200*time.Microsecond)
}

func (t *trial) drawProtocols(c chooser) {
	t.o.Progress = pick(c, mpi.Polling, mpi.Background)
	t.o.P2P.Protocol = pick(c, p2p.RGET, p2p.RPUT, p2p.Speculative)
	t.o.P2P.Adaptive = c.IntN(2) == 1
	t.o.P2P.NoEarlyProgress = c.IntN(4) == 3
	t.o.P2P.EagerLimit = pick(c, 0, -1, 16, 300)
	t.o.Window.ByTarget = c.IntN(3) == 2
	t.o.BruckLimit = pick(c, 0, -1)
	for op := range coll.NumOps {
		if c.IntN(2) == 1 {
			t.o.Collectives[op] = pick(c, coll.Algorithms(op)...)
		}
	}
}

// run runs the trial in a simulated world. It calls done when a rank's workload has returned,
// before the rank ends.
func (t *trial) run(done func(rank int, at time.Duration, r work.Result, err error)) (mpihost.Outcome, error) {
	return mpihost.InWorld(t.fabric, func(e *transport.Env) error {
		if t.onStart != nil {
			t.onStart(e)
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
	collectives, _ := t.o.Collectives.MarshalText() // never fails
	fmt.Fprintf(&b, "%s %+v on %d ranks, %d a host, %d rails of %s, IPv4 %v, MTU %d, latency %v", t.work.Name, t.params,
		f.Ranks, f.PerHost, f.Rails, f.Provider, f.IPv4, f.Link.MTU, f.Link.Latency)
	for _, s := range f.Impair {
		fmt.Fprintf(&b, ", impaired %+v", s)
	}
	fmt.Fprintf(&b, "; %v, %v %+v, accumulates by target %v, Bruck %d, collectives %s; %+v", t.o.Progress, t.o.P2P.Protocol, t.o.P2P, t.o.Window.ByTarget, t.o.BruckLimit, collectives, t.o.Carrier)
	return b.String()
}
