// Package tuner measures the algorithms of collective operations on a fabric, with the workload
// collective, and makes a table of the best ones (package tuning) and a page with a map of them.
package tuner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/tuning"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// Plan says what to measure, and where.
type Plan struct {
	// Job is the fabric. Measure sets its ranks and its program.
	Job  mpirun.Config
	Tier mpirun.Tier
	// Operations are names of collective operations; empty for all.
	Operations []string
	// Ranks are numbers of ranks, and PerHost numbers of ranks on a host.
	Ranks, PerHost []int
	// Sizes are those of a block, or of the vector.
	Sizes []int
	// Time limits the measurement.
	Time time.Duration
	// Progress, if not nil, is called before each job with the part that is done.
	Progress func(doing string, done float64)

	measure func(context.Context, *job, time.Duration) ([]work.CollectiveTime, error) // a test replaces measureJob
}

// job is a run of the workload collective.
type job struct {
	operation      string
	ranks, perHost int
	sizes          []int
}

// String describes the job.
func (j *job) String() string {
	return fmt.Sprintf("%s, %s with %d per host, %s", j.operation, cli.Plural(j.ranks, "rank"), j.perHost, cli.Plural(len(j.sizes), "size"))
}

// cost orders jobs by their costs.
func (j *job) cost() int { return j.ranks * j.ranks * slices.Max(j.sizes) }

// maxData limits the data of all ranks in an operation: a block from each to each.
const maxData = 2 << 30

// Check returns an error that names the option that is wrong.
func (p *Plan) Check() error {
	for _, name := range p.Operations {
		if !slices.Contains(allOperations(), name) {
			return cli.Errorf("--operation %s: give %s%s", name, cli.Choices(allOperations()), cli.Guess(name, allOperations()))
		}
	}
	for _, l := range []struct {
		flag   string
		values []int
		most   int
	}{{"ranks", p.Ranks, mpirun.MaxRanks}, {"per-host", p.PerHost, mpirun.MaxRanks}, {"sizes", p.Sizes, 1 << 30}} {
		if len(l.values) == 0 {
			return cli.Errorf("--%s: give a number", l.flag)
		}
		for _, n := range l.values {
			if n < 1 || n > l.most {
				return cli.Errorf("--%s %d: give 1 to %d", l.flag, n, l.most)
			}
		}
	}
	if p.Time <= 0 {
		return cli.Errorf("--time %v: give a positive time", p.Time)
	}
	return nil
}

// allOperations returns the names of all operations.
func allOperations() (names []string) {
	for op := range coll.NumOps {
		names = append(names, op.String())
	}
	return names
}

// jobs returns the runs of a plan, and what does not fit into the memory. In real time a run has all
// sizes, because it takes long to start; in simulation it has one, and the cheapest come first.
func (p *Plan) jobs() (all []*job, leftOut []string) {
	names := p.Operations
	if len(names) == 0 {
		names = allOperations()
	}
	for _, perHost := range p.PerHost {
		for _, ranks := range p.Ranks {
			if ranks < 2 || perHost > ranks {
				continue
			}
			sizes := slices.DeleteFunc(slices.Clone(p.Sizes), func(n int) bool { return ranks*ranks*n > maxData })
			slices.Sort(sizes)
			if n := len(p.Sizes) - len(sizes); n > 0 {
				leftOut = append(leftOut, fmt.Sprintf("%s of %s: too much memory", cli.Plural(n, "size"), cli.Plural(ranks, "rank")))
			}
			for _, name := range names {
				all = append(all, p.jobsOf(name, ranks, perHost, sizes)...)
			}
		}
	}
	if p.isSimulated() {
		slices.SortStableFunc(all, func(a, b *job) int { return cmp.Compare(a.cost(), b.cost()) })
	}
	return all, leftOut
}

// jobsOf returns the runs of an operation. Reductions have no sizes but those of whole numbers.
func (p *Plan) jobsOf(name string, ranks, perHost int, sizes []int) (all []*job) {
	if op := slices.Index(allOperations(), name); coll.Op(op).IsReduction() {
		sizes = slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n%8 != 0 })
	} else if coll.Op(op) == coll.Barrier {
		sizes = sizes[:min(1, len(sizes))]
	}
	if p.isSimulated() {
		for _, n := range sizes {
			all = append(all, &job{name, ranks, perHost, []int{n}})
		}
	} else if len(sizes) > 0 {
		all = append(all, &job{name, ranks, perHost, sizes})
	}
	return all
}

func (p *Plan) isSimulated() bool { return p.Tier.Name == mpirun.Tiers()[0] }

// Result has the measurements of a plan.
type Result struct {
	Fabric *tuning.Fabric
	// Points have the measurements, by operation, ranks per host, ranks and size.
	Points []*Point
	// LeftOut says what was not measured.
	LeftOut []string
	Started time.Time
	Took    time.Duration
}

// Measure measures the algorithms of the plan.
func (p *Plan) Measure(ctx context.Context) (*Result, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	r := &Result{Started: time.Now()}
	var err error
	if r.Fabric, err = p.Job.TuningFabric(p.Tier.Name); err != nil {
		return nil, err
	}
	jobs, leftOut := p.jobs()
	r.LeftOut = leftOut
	const extra = 30 * time.Second // after which a job that has begun in time is stopped
	ctx, cancel := context.WithTimeoutCause(ctx, p.Time+extra, errTime)
	defer cancel()
	measure := p.measure
	if measure == nil {
		measure = p.measureJob
	}
	for i, j := range jobs {
		left := p.Time - time.Since(r.Started)
		if left <= 0 {
			r.leaveOut(jobs[i:])
			break
		}
		if p.Progress != nil {
			p.Progress(j.String(), float64(p.Time-left)/float64(p.Time))
		}
		times, err := measure(ctx, j, left/time.Duration(len(jobs)-i))
		if errors.Is(context.Cause(ctx), errTime) {
			r.leaveOut(jobs[i:])
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", j, err)
		}
		r.add(j, times)
	}
	r.Took = time.Since(r.Started)
	slices.SortStableFunc(r.Points, (*Point).compare)
	return r, nil
}

// errTime ends a job that takes too long.
var errTime = errors.New("the time is over")

// leaveOut says which jobs were left out for lack of time.
func (r *Result) leaveOut(jobs []*job) {
	r.LeftOut = append(r.LeftOut, fmt.Sprintf("%s for lack of time, from %v on", cli.Plural(len(jobs), "run"), jobs[0]))
}
