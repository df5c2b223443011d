package perflab

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/perf/record"
	"github.com/fabrictest/fabrictest/report"
)

// Benchmark is a benchmark over verbs between two hosts with emulated NICs.
type Benchmark struct {
	perf.Benchmark
	// Provider is the name in package nics; empty means that of the platform, or the default.
	Provider string
	// Transport is rc, uc, ud, xrc or rd; empty means connections, or datagrams without any.
	Transport string
	// Platform is the name or file of the costs in virtual time; empty for those of a fast driver.
	Platform string
	// InNamespaces measures real time in network namespaces, and not virtual time in a simulation.
	InNamespaces bool
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
		return cmdline.Errorf("--pairs %d: give 1 to %d", b.Pairs, maxPairs)
	}
	if b.InNamespaces && b.Platform != "" {
		return cmdline.Errorf("--platform: in namespaces time is real; leave out --on netns")
	}
	if b.InNamespaces && b.Pairs > 1 {
		return cmdline.Errorf("--pairs: in namespaces a host has one process; use --qps, 'perf mpi mbw_mr', or --on sim")
	}
	return b.Normalize()
}

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
		return f, cmdline.Errorf("--provider: %w", err)
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
		return nil, cmdline.Errorf("--transport: %w", err)
	}
	r := b.newReport(service)
	programs, sizes, err := b.programs()
	if err != nil {
		return nil, err
	}
	if b.InNamespaces {
		return r, b.runInNamespaces(ctx, &job{Plan: planPrograms, Programs: programs, Service: &service}, func(f *perf.Figures) {
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

// runInNamespaces runs the programs of a job, and calls add for the figures of each.
func (b *Benchmark) runInNamespaces(ctx context.Context, j *job, add func(*perf.Figures)) error {
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
	if b.InNamespaces {
		r.Run.Device.Link = "namespaces"
	}
	r.Run.Options = map[string]string{"connection_type": service.String()}
	if b.Platform != "" {
		r.Run.Device.Name = b.Platform
		r.Run.Options["platform"] = b.Platform
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
