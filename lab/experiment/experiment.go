// Package experiment simulates workloads and benchmarks on the platforms of package nics. It runs
// the experiments of scenarios: workloads of the multi-rank runtime, in variants whose figures are
// compared with published results. It measures the base figures by which platforms are calibrated,
// fits the parameters of a platform to recorded runs, and checks runs against a platform. Its gate
// compares the times and events of small simulations exactly with a record, gate.txt.
//
// Every variant of an experiment runs at every value of the x axis in a simulation of its own. The
// result depends on the scenario, the platform and the seed only.
package experiment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/lab/tuning"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/verbs"
)

// Run runs a scenario with an experiment (a comparison of simulated figures with published ones),
// and returns its result, which is never nil. An internal error, a panic or the end of ctx gives
// the verdict Broken.
func Run(ctx context.Context, s *scenarios.Scenario, opts lab.Options) (result *report.Result) {
	began := time.Now()
	result = lab.NewResult(s, scenarios.Sim, &opts)
	defer func() {
		if v := recover(); v != nil {
			lab.MarkBroken(result, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
		result.Wall = time.Since(began)
	}()
	p, err := platform(s)
	if err == nil {
		result.Provider = p.Provider
		err = fill(ctx, result, s, p)
	}
	if err != nil {
		lab.MarkBroken(result, err)
	}
	return result
}

// platform loads the platform of a scenario: the costs of its simulated hosts and NICs.
func platform(s *scenarios.Scenario) (*nics.Platform, error) {
	p, err := nics.LoadPlatform(s.Experiment.Platform)
	if err != nil {
		return nil, s.Errorf("experiment.platform", "%w", err)
	}
	return p, nil
}

// fill runs the experiment of s on p, and fills in the result: the figures, the charts, and a check
// for each figure. The first check that fails gives the reason of the verdict.
func fill(ctx context.Context, result *report.Result, s *scenarios.Scenario, p *nics.Platform) error {
	m, err := measure(ctx, s, p, result.Seed)
	if err != nil {
		return err
	}
	result.Elapsed = m.elapsed
	e := &report.Experiment{Platform: p.Name, Title: p.Title, Ranks: m.ranks, Runs: len(m.names) * len(m.points)}
	for _, row := range p.Parameters {
		e.Parameters = append(e.Parameters, report.Parameter(row))
	}
	for _, name := range slices.Sorted(maps.Keys(m.others)) {
		for _, row := range m.others[name].Parameters {
			row.Name = name + " " + row.Name
			e.Parameters = append(e.Parameters, report.Parameter(row))
		}
	}
	result.Experiment, result.Verdict = e, report.Passed
	if e.Figures, err = m.judgeAll(); err != nil {
		return err
	}
	for i := range e.Figures {
		c := check(&e.Figures[i])
		result.Checks = append(result.Checks, c)
		if !c.OK && result.Verdict == report.Passed {
			result.Verdict, result.Reason = report.Failed, fmt.Sprintf("%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
	e.Charts, err = m.charts()
	return err
}

// measured has the results of all variants at all points.
type measured struct {
	scenario *scenarios.Scenario
	*scenarios.Experiment
	names   []string // of the variants
	points  []scenarios.Point
	results map[string][]work.Result  // by variant, and by the index of the point
	others  map[string]*nics.Platform // of variants with their own, by name
	ranks   int                       // the most ranks of a run
	elapsed time.Duration             // virtual time of all runs
}

// measure runs the workload of each variant of the experiment at every point of the x axis.
func measure(ctx context.Context, s *scenarios.Scenario, p *nics.Platform, seed uint64) (*measured, error) {
	e := s.Experiment
	m := &measured{scenario: s, Experiment: e, names: e.VariantNames(), points: e.Vary.Points(), results: map[string][]work.Result{}, others: map[string]*nics.Platform{}}
	r := runner{ctx: ctx, scenario: s, seed: seed, communication: map[stepOn]time.Duration{}}
	for _, name := range m.names {
		var err error
		if r.platform, err = m.platformOf(name, p); err != nil {
			return nil, err
		}
		for _, x := range m.points {
			setting := e.Setting(name, x)
			result, err := r.runAt(setting, x)
			if err != nil {
				return nil, fmt.Errorf("variant %s at %s %v %s: %w", name, e.Vary.Name(), x.X(), e.Vary.Unit(), err)
			}
			m.results[name] = append(m.results[name], result)
			m.ranks = max(m.ranks, setting.Ranks)
		}
	}
	m.elapsed = r.elapsed
	return m, nil
}

// platformOf returns the platform of a variant: its own, which it loads, or else p.
func (m *measured) platformOf(variant string, p *nics.Platform) (*nics.Platform, error) {
	name := m.Variants[variant].Platform
	if name == "" {
		return p, nil
	}
	if m.others[name] == nil {
		q, err := nics.LoadPlatform(name)
		if err != nil {
			return nil, m.scenario.Errorf("experiment.variants."+variant+".platform", "%w", err)
		}
		m.others[name] = q
	}
	return m.others[name], nil
}

// stepOn is a step with its settings on a platform.
type stepOn struct {
	platform *nics.Platform
	scenarios.Settings
}

// runner runs workloads on a platform.
type runner struct {
	ctx      context.Context
	scenario *scenarios.Scenario
	platform *nics.Platform
	seed     uint64
	elapsed  time.Duration // virtual time of all runs
	// communication is the time of communication in a step, by the settings that it was measured with.
	communication map[stepOn]time.Duration
}

// runAt runs a workload with the settings s of a variant at point x. If s.Communication is set, the
// ranks compute for so long that communication takes this percentage of the computation: runAt
// first measures a step without computation, once for the same settings.
func (r *runner) runAt(s scenarios.Settings, x scenarios.Point) (work.Result, error) {
	if s.Communication == 0 {
		return r.runOne(&s)
	}
	e := r.scenario.Experiment
	alone := e.Setting(e.CommunicationOf, x)
	alone.Compute, alone.Communication = 0, 0
	step, ok := r.communication[stepOn{r.platform, alone}]
	if !ok {
		result, err := r.runOne(&alone)
		if err != nil {
			return result, fmt.Errorf("without computation: %w", err)
		}
		step = result.Time / time.Duration(max(1, result.Iterations))
		r.communication[stepOn{r.platform, alone}] = step
	}
	s.Compute = step * 100 / time.Duration(s.Communication)
	return r.runOne(&s)
}

// runOne runs a workload in a new simulation, and returns its result with the statistics of the
// runtime.
func (r *runner) runOne(s *scenarios.Settings) (result work.Result, err error) {
	if s.Program != "" {
		return r.runProgram(s)
	}
	wl, err := work.Find(s.Workload)
	if err != nil {
		return result, err
	}
	f := r.fabric(s)
	params := s.Params()
	params.Seed = r.seed
	o, all := options(s), make([]mpi.Stats, s.Ranks)
	_, files := coll.SplitFiles(s.Collectives)
	if o.Rules, err = tuning.RulesIn(files, &tuning.Fabric{
		Tier: string(scenarios.Sim), Platform: r.platform.Name, Provider: f.Provider, Topology: tuning.Switch, Rails: max(f.Rails, 1), Cable: tuning.None,
	}); err != nil {
		return result, err
	}
	o.OnFinalize = func(rank int, s mpi.Stats) { all[rank] = s }
	out, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			r, err := wl.Run(w, params)
			if w.Rank() == 0 {
				result = r // all ranks have the same
			}
			return err
		})
	})
	r.elapsed += out.Elapsed
	if err == nil {
		result.Figures = append(result.Figures, statistics(all, int(s.Bytes))...)
	}
	return result, err
}

// fabric returns the hosts with the NICs of the platform. Queue pairs of datagram-iWARP are
// unreliable, as in the publications.
func (r *runner) fabric(s *scenarios.Settings) mpihost.Fabric {
	f := mpihost.Fabric{
		Ranks: s.Ranks, PerHost: s.RanksPerHost(), Rails: s.Rails, Seed: r.seed, Limit: r.scenario.TimeLimit(),
		Stop: func() error { return context.Cause(r.ctx) }, Provider: s.Provider, Unreliable: true,
	}
	f.SetPlatform(r.platform)
	return f
}

// runProgram simulates the verbs program s.Program between two hosts, and returns its bandwidth
// (both-ways) or else its latency.
func (r *runner) runProgram(s *scenarios.Settings) (result work.Result, err error) {
	f := r.fabric(s)
	service, err := perflab.ServiceOf(f.Provider, "")
	if err != nil {
		return result, err
	}
	figure, p, scale := work.Figure{Name: "latency", Unit: "us"}, perf.Program{}, 1.0
	switch s.Program {
	case "both-ways":
		p.Stream = &perf.Stream{
			Op: verbs.OpRDMAWrite, Bytes: int(s.Bytes), Load: perf.Load{QPs: s.Connections, BothWays: true},
			Duration: 100*time.Microsecond + time.Duration(int(s.Bytes)*max(1, s.Connections))/4,
		}
		figure.Name, figure.Unit, scale = "bandwidth", "MB/s", 125 // from Gb/s
	case "write-pingpong":
		p.RoundRobin = &perf.RoundRobin{Op: verbs.OpRDMAWrite, Bytes: int(s.Bytes), QPs: s.Connections}
	default:
		p.RoundRobin = &perf.RoundRobin{Op: verbs.OpSend, Bytes: int(s.Bytes), QPs: s.Connections}
	}
	const pairs = 1
	results, err := perflab.InSimulation(r.ctx, f, service, pairs, p)
	if err != nil {
		return result, err
	}
	figure.Value = results[0].Value * scale
	return work.Result{Workload: s.Program, Figures: []work.Figure{figure}}, nil
}

// protocols are the protocols of large messages by name.
var protocols = map[string]p2p.Protocol{"rget": p2p.RGET, "rput": p2p.RPUT, "speculative": p2p.Speculative}

// options returns the options of the runtime for a run. Settings that are nil keep the default. A
// packet has room for the largest eager message with its headers, rounded up to a multiple of step.
func options(s *scenarios.Settings) mpi.Options {
	const headers, defaultPacket, step = 256, 8 << 10, 1 << 10
	isFalse := func(b *bool) bool { return b != nil && !*b }
	o := mpi.Options{
		P2P: p2p.Config{
			Protocol: protocols[s.Protocol], EagerLimit: int(s.Eager),
			Adaptive: s.Adaptive != nil && *s.Adaptive, NoEarlyProgress: isFalse(s.EarlyProgress),
		},
		Carrier: carrier.Config{
			Design:     carrier.Design(s.Design),
			PacketSize: cmp.Or(int(s.Packet), max(defaultPacket, (int(s.Eager)+headers+step-1)/step*step)),
			Receives:   s.Receives, SharedReceives: s.SharedReceives, LowWatermark: s.LowWatermark,
			Ring: carrier.Ring{SlotSize: int(s.Slot), Slots: s.RingSlots, After: s.RingAfter, Peers: s.RingPeers}, Waiting: carrier.Waiting{PollBackoff: s.PollBackoff},
			StripeThreshold: int(s.Stripe),
			NoSharedMemory:  isFalse(s.SharedMemory), NoRDMA: isFalse(s.RDMA), NoCoalescing: isFalse(s.Coalescing),
		},
	}
	o.Carrier.Reuse.Off, o.Carrier.Reuse.Buckets = isFalse(s.Reuse), s.ReuseBuckets
	if isFalse(s.ReuseAdaptive) {
		o.Carrier.Reuse.MinFrequent = -1
	}
	if s.Progress == mpi.Background.String() {
		o.Progress = mpi.Background
	}
	if isFalse(s.RegistrationCache) {
		o.Carrier.CacheBytes = -1 // no cache
	}
	algorithms, _ := coll.SplitFiles(s.Collectives)
	if err := o.Collectives.UnmarshalText([]byte(algorithms)); err != nil {
		panic(err) // scenarios checks it
	}
	return o
}
