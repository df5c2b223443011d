package mpihost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// Defaults of an Exploration.
const (
	defaultReorder       = 2 * time.Microsecond
	defaultExploreLimit  = time.Minute
	defaultExploreEvents = 5_000_000
)

// Exploration runs a program in simulation again and again, each time with other choices.
type Exploration struct {
	// Fabric is that of each run. Reorder, Faults and Link.Spray say what may be chosen. Zero fields
	// mean a Reorder of 2 µs (negative: none), a Limit of a minute and 5 million Events.
	Fabric Fabric
	// Options are those of the ranks. Few buffers (UseFewBuffers) make runs much faster.
	Options mpi.Options
	// Misuse fails runs that break rules of MPI (package misuse), Races those with data races of
	// windows and buffers.
	Misuse, Races bool
	// Explore directs the search.
	Explore explore.Options
	// ShrinkRuns limits the runs that shrink a failing path; 0: 2000, negative: none.
	ShrinkRuns int

	output func() string // returns the output of the ranks since its last call; nil: none is known
}

// Run explores a program. It returns an error if it cannot. Report.Failure has the first run that
// failed, shrunk: a rank returned an error, the ranks hang, a message was never received, or a
// checker found an error.
func (x *Exploration) Run(ctx context.Context, program func(*mpi.World) error) (*explore.Report, error) {
	return x.run(ctx, func(e *transport.Env, o mpi.Options) error { return mpi.Run(e, o, program) })
}

// Replay repeats a run, and returns its error, or an *explore.DivergedError.
func (x *Exploration) Replay(path explore.Path, program func(*mpi.World) error) error {
	rank := func(e *transport.Env, o mpi.Options) error { return mpi.Run(e, o, program) }
	return x.replayWith(path, &watchedChooser{}, func(c explore.Chooser) error { return x.once(c, rank) })
}

// RunVerbs is Run for a program that uses the NICs of its environment itself, without package mpi.
func (x *Exploration) RunVerbs(ctx context.Context, program func(*transport.Env) error) (*explore.Report, error) {
	return x.run(ctx, func(e *transport.Env, _ mpi.Options) error { return program(e) })
}

// rankFunc runs a rank.
type rankFunc = func(*transport.Env, mpi.Options) error

func (x *Exploration) run(ctx context.Context, rank rankFunc) (*explore.Report, error) {
	if err := x.setDefaults(); err != nil {
		return nil, err
	}
	once := func(c explore.Chooser) error { return x.once(c, rank) }
	report, err := explore.Runs(ctx, x.Explore, once)
	if err != nil || report.Failure == nil || x.ShrinkRuns < 0 {
		return report, err
	}
	report.Failure = explore.Shrink(ctx, report.Failure, x.ShrinkRuns, once)
	return report, nil
}

// setDefaults replaces zero fields by defaults. It returns an error for a fabric that is invalid, or
// cannot have the faults.
func (x *Exploration) setDefaults() error {
	f := &x.Fabric
	f.Reorder = cmp.Or(f.Reorder, defaultReorder)
	f.Limit, f.Events = cmp.Or(f.Limit, defaultExploreLimit), cmp.Or(f.Events, defaultExploreEvents)
	_, provider, err := f.withDefaults()
	if err == nil && provider.OverTCP && (f.Faults > 0 || f.Link.Spray > 0) {
		err = fmt.Errorf("the provider %s is over TCP, which hides faults and the order of packets: choose another provider, or no faults and the order of the links", provider.Name)
	}
	return err
}

// once does one run.
func (x *Exploration) once(c explore.Chooser, rank rankFunc) error {
	var arrivals outcomeHash
	recorder, records := c.(explore.OutcomeRecorder)
	f := x.Fabric
	if records {
		f.Script = arrivals.script(f.Script)
	}
	r := x.runOnce(f, c, rank)
	if records && !arrivals.unknown {
		recorder.SetOutcome(arrivals.sum())
	}
	return r.failure()
}

// runResult is the result of a run.
type runResult struct {
	Outcome
	err      error // of the ranks, or of the simulation
	lost     lostMessages
	findings []explore.Finding
}

// runOnce does one run in a fabric.
func (x *Exploration) runOnce(f Fabric, c explore.Chooser, rank rankFunc) *runResult {
	r, o, checks := new(runResult), x.Options, checkers{}
	f.Chooser, f.Reorder = c, max(f.Reorder, 0)
	if x.Races {
		checks.races = racecheck.New(f.Ranks)
	}
	if x.Misuse || o.OnCall != nil {
		checks.misuse = misuse.New(misuse.Options{OnlyWaits: !x.Misuse})
	}
	checks.set(&o)
	o.OnFinalize = r.lost.add
	r.Outcome, r.err = InWorld(f, func(e *transport.Env) error { return rank(e, o) })
	r.findings, _ = checks.findings()
	return r
}

// failure returns why the run has failed; nil if it has not.
func (r *runResult) failure() error {
	err := r.err
	if err == nil {
		err = r.lost.err()
	}
	if len(r.findings) == 0 {
		return err
	}
	return errors.Join(&explore.FindingsError{Findings: r.findings}, err)
}

// lostMessages has the ranks whose programs ended without receiving all messages.
type lostMessages struct {
	mu    sync.Mutex
	ranks []string
}

func (l *lostMessages) add(rank int, s mpi.Stats) {
	if s.NeverReceived > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ranks = append(l.ranks, fmt.Sprintf("rank %d: %d", rank, s.NeverReceived))
	}
}

func (l *lostMessages) err() error {
	if len(l.ranks) == 0 {
		return nil
	}
	slices.Sort(l.ranks)
	return fmt.Errorf("messages were sent and never received (%s): receive them, or do not send them", strings.Join(l.ranks, ", "))
}

// outcomeHash is a hash of the packets that each port received, in their order. It does not depend
// on times, nor on the order of packets of different ports.
type outcomeHash struct {
	ports   map[*sim.Port]uint64
	order   []*sim.Port
	unknown bool // the ranks exchange streams, not packets
}

// outcomeSeed is that of all hashes, because those of different runs are compared.
var outcomeSeed = maphash.MakeSeed()

// script returns a Fabric.Script that watches the ports, and then calls another one unless it is nil.
func (h *outcomeHash) script(then func(*World)) func(*World) {
	return func(w *World) {
		h.tap(w)
		if then != nil {
			then(w)
		}
	}
}

func (h *outcomeHash) tap(w *World) {
	h.ports, h.unknown = map[*sim.Port]uint64{}, w.provider.OverTCP
	nets := map[*sim.Net]bool{}
	for i := range w.hosts {
		for _, p := range w.hosts[i].ports {
			h.order = append(h.order, p)
			if !nets[p.Net()] {
				nets[p.Net()] = true
				p.Net().SetTap(h.packet)
			}
		}
	}
}

// packet implements sim.Tap.
func (h *outcomeHash) packet(_ mono.Time, at *sim.Port, dir sim.Direction, d *link.Datagram) {
	if dir == sim.In {
		h.ports[at] = h.ports[at]*0x9e3779b97f4a7c15 + maphash.Bytes(outcomeSeed, d.Payload)
	}
}

func (h *outcomeHash) sum() (sum uint64) {
	for _, p := range h.order {
		sum = sum*0x9e3779b97f4a7c15 + h.ports[p]
	}
	return sum
}

// UseFewBuffers gives the runtime few and small buffers, which takes less time to allocate than the
// run of a small program. Buffers run out sooner, too.
func UseFewBuffers(c *carrier.Config) {
	c.PacketSize, c.SharedReceives, c.Datagrams.Receives = 512, 16, 16
}
