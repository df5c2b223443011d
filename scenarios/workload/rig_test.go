package workload_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// rig is a simulated fabric: every rail is a switch with a port of each host.
type rig struct {
	*sim.World
	t     testing.TB
	hub   *sim.Hub
	nets  []*sim.Net
	ports [][]*sim.Port     // by rail and host
	nics  [][]verbs.Context // by host and rail
	// wrap, if set, wraps a device.
	wrap     func(host int, dev verbs.Context) verbs.Context
	patience time.Duration
	seed     uint64

	programs []workload.Program
	procs    []*sim.Proc
	reports  []*workload.Report
	errs     []error
	marks    []string
	samples  [][]workload.Sample
}

const rigSeed = 7

func newRig(t testing.TB, hosts, rails int, specs ...impair.Spec) *rig {
	t.Helper()
	return seededRig(t, rigSeed, hosts, rails, specs...)
}

// roce opens RoCE NICs, streams iWARP NICs.
func roce(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
	return softroce.InWorld(w, p, p, softroce.Config{Name: name})
}

func streams(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
	return softiwarp.InWorld(w, p, p.StreamHost(), softiwarp.Config{Name: name})
}

// reliableDatagrams and datagrams open datagram-iWARP NICs.
func reliableDatagrams(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
	return dgiwarp.InWorld(w, p, p, dgiwarp.Config{Name: name, QP: dgiwarp.QPOptions{Reliable: true, Isolate: true}})
}

func datagrams(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
	return dgiwarp.InWorld(w, p, p, dgiwarp.Config{Name: name})
}

func seededRig(t testing.TB, seed uint64, hosts, rails int, specs ...impair.Spec) *rig {
	t.Helper()
	return rigOf(t, roce, sim.StreamConfig{}, seed, hosts, rails, specs...)
}

func rigOf(t testing.TB, open func(*sim.World, *sim.Port, string) (verbs.Context, error), streams sim.StreamConfig, seed uint64, hosts, rails int, specs ...impair.Spec) *rig {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed, MaxEvents: 50_000_000})
	r := &rig{World: w, t: t, hub: sim.NewHub(w, hosts, workload.ErrGone), nics: make([][]verbs.Context, hosts), patience: 20 * time.Second, seed: seed}
	r.samples = make([][]workload.Sample, hosts)
	for rail := range rails {
		net := must.Get(sim.NewNet(w, sim.NetConfig{Name: fmt.Sprint("rail", rail), Stream: streams}))(t)
		r.nets = append(r.nets, net)
		var ports []*sim.Port
		for host := range hosts {
			p, err := net.Attach(sim.PortConfig{
				Name: fmt.Sprintf("host%d", host), Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("fd00:%x::%x", rail, host+1))},
				Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200, OverheadBytes: 38},
				Up:   impair.Config{Specs: specs},
			})
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, p)
			d := must.Get(open(w, p, fmt.Sprintf("host%d/rdma%d", host, rail)))(t)
			r.nics[host] = append(r.nics[host], d)
		}
		r.ports = append(r.ports, ports)
	}
	return r
}

// control is the control channel of a rank. It records marks and samples.
type control struct {
	*sim.Endpoint
	r *rig
}

func (c *control) Mark(what string) {
	c.r.marks = append(c.r.marks, fmt.Sprintf("%v host%d %s", c.Now(), c.Rank(), what))
}

func (c *control) Sample(s workload.Sample) {
	c.r.samples[c.Rank()] = append(c.r.samples[c.Rank()], s)
}

// start creates the programs of all ranks.
func (r *rig) start(cfg workload.Config) {
	r.t.Helper()
	size := len(r.nics)
	r.programs, r.procs = make([]workload.Program, size), make([]*sim.Proc, size)
	r.reports, r.errs = make([]*workload.Report, size), make([]error, size)
	for rank := range size {
		r.procs[rank] = r.World.Go(fmt.Sprintf("host%d", rank), func(p *sim.Proc) error {
			defer r.hub.End(rank)
			in := &workload.Rank{Rank: rank, Size: size, Seed: r.seed, Proc: p, Control: &control{r.hub.Endpoint(rank), r}, StallTimeout: r.patience}
			in.Go = func(what string, task func(verbs.Proc)) {
				r.World.Go(what, func(p *sim.Proc) error { task(p); return nil })
			}
			for rail, d := range r.nics[rank] {
				if r.wrap != nil {
					d = r.wrap(rank, d)
				}
				in.NICs = append(in.NICs, workload.NIC{Device: d, Rail: rail})
			}
			program, err := workload.New(cfg, in)
			if err != nil {
				return err
			}
			r.programs[rank] = program
			r.reports[rank], r.errs[rank] = program.Run()
			return nil
		})
	}
}

// run runs the workload and returns the reports of all ranks.
func (r *rig) run(cfg workload.Config) []*workload.Report {
	r.t.Helper()
	r.start(cfg)
	must.Do(r.t, r.RunPrograms())
	for rank, err := range r.errs {
		if err != nil {
			r.t.Errorf("rank %d: %v", rank, err)
		}
	}
	return r.reports
}

// listed returns a line for each violation.
func listed(all []workload.Violation) string {
	lines := make([]string, len(all))
	for i, v := range all {
		lines[i] = v.What
	}
	return strings.Join(lines, "\n")
}

// clean checks that every message arrived, once and in order.
func clean(t testing.TB, reports []*workload.Report) {
	t.Helper()
	for _, r := range reports {
		if len(r.Violations) > 0 {
			t.Errorf("rank %d: %s", r.Rank, listed(r.Violations))
		}
		for _, f := range r.Flows {
			if f.Arrived != f.Expected || f.Duplicates != 0 || f.Reordered != 0 {
				t.Errorf("rank %d: %+v", r.Rank, f)
			}
		}
	}
}

func noFailures(t testing.TB, reports []*workload.Report) {
	t.Helper()
	for _, r := range reports {
		if r.FailureCount > 0 {
			t.Errorf("rank %d: %+v", r.Rank, r.Failures)
		}
	}
}

func toJSON(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// breakRank breaks the queue pairs of a rank, from another program of the world.
func (r *rig) breakRank(rank int) {
	r.World.Go(fmt.Sprintf("what breaks host%d", rank), func(*sim.Proc) error {
		return r.programs[rank].(workload.Breaker).Break()
	})
}
