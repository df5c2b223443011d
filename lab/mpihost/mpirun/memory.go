package mpirun

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// MemoryCommand is the first argument of a process that measures the memory of one run.
// Its program must call MemoryMain. In a new process the kernel allocates only pages that
// are touched, so a rank may register a gigabyte and use megabytes; a process that has
// run a world before would have to clear all of it.
const MemoryCommand = "memory-point"

// MemoryJob is one run to measure.
type MemoryJob struct {
	Run    work.MemoryRun
	Config carrier.Config
	Seed   uint64
}

// MeasureMemory measures the memory of the run in j. MemoryMain does the run in a new process of
// this program, because memory of an earlier run in the same process would be measured too.
func MeasureMemory(ctx context.Context, j MemoryJob) (p ranks.Point, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return p, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, MemoryCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &stdout, &stderr
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return p, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case err != nil:
		return p, fmt.Errorf("%v: %w: %s", &j.Run, err, strings.TrimSpace(stderr.String()))
	}
	err = json.Unmarshal(stdout.Bytes(), &p)
	return p, err
}

// MemoryMain reads a MemoryJob from in as JSON, does its run in a simulation, and writes the
// measured ranks.Point to out as JSON.
func MemoryMain(ctx context.Context, in io.Reader, out io.Writer) error {
	var j MemoryJob
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	start := func(n int, o mpi.Options, program func(*mpi.World) error) error {
		_, err := mpihost.InWorld(mpihost.Fabric{Ranks: n, Seed: j.Seed, Stop: ctx.Err}, func(e *transport.Env) error { return mpi.Run(e, o, program) })
		return err
	}
	p, err := j.Run.Measure(start, mpi.Options{Carrier: j.Config})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(p)
}

// MemoryPlan selects experiments that measure the memory of ranks, and the numbers of ranks. An
// empty list of names selects all.
type MemoryPlan struct {
	Experiments, Designs, Workloads []string
	Ranks                           []int
	Seed                            uint64

	planned []plannedExperiment // set by Check
	runs    int                 // of all planned experiments
}

// plannedExperiment is an experiment with its selected runs.
type plannedExperiment struct {
	work.MemoryExperiment
	runs []work.MemoryRun
}

// MemoryExperiments returns the names of the experiments that measure the memory of ranks.
func MemoryExperiments() (names []string) {
	for _, e := range work.MemoryExperiments() {
		names = append(names, e.Name)
	}
	return names
}

// Check checks and sorts the numbers of ranks, checks the names of experiments, workloads and
// designs, and plans the runs for Measure. An empty list of names selects all.
func (p *MemoryPlan) Check() error {
	for _, n := range p.Ranks {
		if n < 2 || n > MaxRanks {
			return cli.Errorf("--ranks %d: give 2 to %d", n, MaxRanks)
		}
	}
	slices.Sort(p.Ranks)
	p.Ranks = slices.Compact(p.Ranks)
	for _, name := range p.Experiments {
		if _, err := ChoiceIndex("only", name, MemoryExperiments()); err != nil {
			return err
		}
	}
	for _, name := range p.Workloads {
		if _, err := work.Find(name); err != nil {
			return cli.Errorf("--workload %s: %w", name, err)
		}
	}
	for _, name := range p.Designs {
		if _, err := ChoiceIndex("design", name, Designs()); err != nil {
			return err
		}
	}
	isSelected := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	for _, e := range work.MemoryExperiments() {
		e.Designs = slices.DeleteFunc(e.Designs, func(d carrier.Design) bool { return !isSelected(p.Designs, string(d)) })
		e.Patterns = slices.DeleteFunc(e.Patterns, func(m work.MemoryPattern) bool { return !isSelected(p.Workloads, m.Workload) })
		runs, err := e.Runs(p.Ranks)
		if err != nil {
			return err
		}
		if isSelected(p.Experiments, e.Name) && len(runs) > 0 {
			p.planned, p.runs = append(p.planned, plannedExperiment{e, runs}), p.runs+len(runs)
		}
	}
	if p.runs == 0 {
		return cli.Errorf("nothing to measure with --ranks %s: experiment \"thesis\" runs with 4, 16 or 64 ranks, \"survey\" with 64; each supports only some workloads and designs", p.RankList())
	}
	return nil
}

// RankList returns the numbers of ranks as the value of a flag: "4,16,64".
func (p *MemoryPlan) RankList() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Ranks), " ", ","), "[]")
}

// Measure does the runs that Check planned. It calls progress before each run, with the name
// of the run and the share of runs that have ended. At an error it stops, and returns the
// measurements so far too.
func (p *MemoryPlan) Measure(ctx context.Context, progress func(run string, share float64)) (all []ranks.Experiment, err error) {
	done := 0
	for _, planned := range p.planned {
		config, err := ranks.ValuesOf(planned.Config)
		if err != nil {
			return all, err
		}
		e := ranks.Experiment{Name: planned.Name, Config: config}
		for _, r := range planned.runs {
			progress(r.String(), float64(done)/float64(p.runs))
			var point ranks.Point
			if point, err = MeasureMemory(ctx, MemoryJob{Run: r, Config: planned.Config, Seed: p.Seed}); err != nil {
				break
			}
			e.Points = append(e.Points, point)
			done++
		}
		if len(e.Points) > 0 {
			all = append(all, e)
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
