package perflab

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/perf/record"
	"github.com/fabrictest/fabrictest/report"
)

// Place is where the two hosts of a benchmark are.
type Place string

// The places. In a simulation time is virtual.
const (
	InSimulated  Place = "sim"
	InNamespaces Place = "netns" // network namespaces, joined by a veth pair
	OnCable      Place = "shm"   // processes, joined by a cable in shared memory
)

// Places returns the names of all places.
func Places() []string { return []string{string(InSimulated), string(InNamespaces), string(OnCable)} }

// Benchmark is a benchmark over verbs between two hosts with emulated NICs.
type Benchmark struct {
	perf.Benchmark
	// Provider is the name in package nics; empty means that of the platform, or the default.
	Provider string
	// Transport is rc, uc, ud, xrc or rd; empty means connections, or datagrams without any.
	Transport string
	// Platform is the name or file of the costs in virtual time; empty for those of a fast driver.
	Platform string
	// On is where the hosts are; empty for a simulation.
	On Place
	// ICRCOffloaded makes RoCE devices in real time neither compute nor check the ICRC.
	ICRCOffloaded bool
	// Pairs is the number of pairs of processes that send at the same time, in a simulation; 0 means 1.
	Pairs int
	// Progress, if not nil, is called with the next measurement and the part that is done.
	Progress func(doing string, done float64)
}

// maxPairs bounds the pairs of a simulation.
const maxPairs = 512

// check sets defaults, and returns an error that names the option that is wrong.
func (b *Benchmark) check() error {
	if b.Pairs = max(b.Pairs, 1); b.Pairs > maxPairs {
		return cli.Errorf("--pairs %d: give 1 to %d", b.Pairs, maxPairs)
	}
	switch {
	case !b.inRealTime() && b.ICRCOffloaded:
		return cli.Errorf("--no-icrc: in simulation NICs have the costs of their platform; add --on netns or --on shm")
	case !b.inRealTime():
	case b.Platform != "":
		return cli.Errorf("--platform: on %s time is real; leave out --on", b.On)
	case b.Pairs > 1:
		return cli.Errorf("--pairs: on %s a host has one process; use --qps, 'perf mpi mbw_mr', or --on sim", b.On)
	}
	return b.Normalize()
}

// inRealTime reports whether the hosts are processes.
func (b *Benchmark) inRealTime() bool { return b.On == InNamespaces || b.On == OnCable }

// fabric returns the simulation, and sets the provider to that of the platform if none is set.
func (b *Benchmark) fabric() (f mpihost.Fabric, err error) {
	f.Provider = b.Provider
	if b.Platform != "" {
		p, err := nics.LoadPlatform(b.Platform)
		if err != nil {
			return f, err
		}
		f.SetPlatform(p)
	}
	provider, err := nics.Find(f.Provider)
	if err != nil {
		return f, cli.Errorf("--provider: %w", err)
	}
	b.Provider, f.Provider = provider.Name, provider.Name
	return f, nil
}

// Run runs the programs of the benchmark one after the other, in simulation or in namespaces, and
// returns a report with their results.
func (b *Benchmark) Run(ctx context.Context) (*perf.Report, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	f, err := b.fabric()
	if err != nil {
		return nil, err
	}
	service, err := ServiceOf(b.Provider, b.Transport)
	if err != nil {
		return nil, cli.Errorf("--transport: %w", err)
	}
	r := b.newReport(service)
	programs, sizes, err := b.programs()
	if err != nil {
		return nil, err
	}
	if b.inRealTime() {
		j := job{Plan: planPrograms, Programs: programs, Service: &service, Cable: b.On == OnCable, Offloaded: b.ICRCOffloaded}
		return r, b.runInRealTime(ctx, &j, func(f *perf.Figures) {
			r.Add(sizes[len(r.Rows)], *f)
		})
	}
	for i, p := range programs {
		if b.Progress != nil {
			b.Progress(p.String(), float64(i)/float64(len(programs)))
		}
		clients, err := InSimulation(ctx, f, service, b.Pairs, p)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", p, err)
		}
		r.Add(sizes[i], clients...)
	}
	return r, nil
}

// programs returns the programs of all sizes and repetitions, and their sizes.
func (b *Benchmark) programs() (programs []perf.Program, sizes []int, err error) {
	for range b.Repeat {
		for _, n := range b.Sizes {
			p, err := b.Program(n)
			if err != nil {
				return nil, nil, err
			}
			programs, sizes = append(programs, p), append(sizes, n)
		}
	}
	return programs, sizes, nil
}

// runInRealTime runs the programs of a job, and calls add for the figures of each.
func (b *Benchmark) runInRealTime(ctx context.Context, j *job, add func(*perf.Figures)) error {
	p, err := nics.Find(b.Provider)
	if err != nil {
		return err
	}
	if j.Kind = p.Protocol; *j.Service == perf.ServiceRD {
		j.Kind = reliableDatagrams
	}
	return runInLab(ctx, j, func(m *labMessage) {
		switch {
		case m.Figures != nil:
			add(m.Figures)
		case b.Progress != nil:
			b.Progress(m.Doing, m.Done)
		}
	})
}

// newReport returns a report with the device and the options, without results.
func (b *Benchmark) newReport(service perf.Service) *perf.Report {
	r := &perf.Report{Benchmark: b.Benchmark, Service: service, Run: NewRun()}
	r.Run.Device = record.Device{Name: b.Provider, Driver: "fabrictest", Link: "simulated"}
	switch b.On {
	case InNamespaces:
		r.Run.Device.Link = "namespaces"
	case OnCable:
		r.Run.Device.Link = "shared memory"
	}
	r.Run.Options = map[string]string{"connection_type": service.String()}
	if b.Platform != "" {
		r.Run.Device.Name = b.Platform
		r.Run.Options["platform"] = b.Platform
	}
	if b.ICRCOffloaded {
		r.Run.Options["icrc"] = "offloaded"
	}
	for name, v := range map[string]int{
		"tx_depth": b.Depth, "cq_moderation": b.Moderation, "post_list": b.PostList, "max_inline_data": b.Inline, "pairs": b.Pairs, "buffer": b.Buffer,
	} {
		if v > 0 {
			r.Run.Options[name] = fmt.Sprint(v)
		}
	}
	return r
}

// NewRun returns a recorded run without series, of this program on this machine, that starts now.
func NewRun() record.Run {
	m := report.ThisMachine()
	return record.Run{
		Version: record.Version, Tool: "fabrictest " + report.ToolVersion(), Started: time.Now().UTC().Truncate(time.Second),
		Machine: fmt.Sprintf("%s %s, Linux %s, %d processors", m.OS, m.Arch, m.Kernel, m.CPUs),
	}
}
