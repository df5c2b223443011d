package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/internal/process"
)

// Runner runs and judges many cases.
type Runner struct {
	Lab Lab
	Options
	// Workers is how many cases run at a time.
	Workers int
	// Done, if not nil, is called with every result, one call at a time.
	Done func(Result)
	// BeforeRepeat, if not nil, is called before a case is repeated, with its result and the
	// share of CPU time that other processes used meanwhile. It is for labs in real time,
	// where a busy machine can expire timers: a case that fails there runs up to three times. If
	// other processes used most of the CPU time each time, its verdict is VerdictStarved.
	BeforeRepeat func(r Result, othersShare float64)
}

const (
	// busyShare is the CPU share of other processes from which a failed case is repeated.
	busyShare = 0.2
	// starvedShare is the CPU share of other processes from which a failure says nothing about the
	// device, if it was as large in all attempts.
	starvedShare = 0.5
	maxAttempts  = 3
)

// Run runs the cases and returns the results in the order of the cases. When ctx is
// cancelled it returns the results of the cases that have ended, and the error of ctx.
func (r *Runner) Run(ctx context.Context, cases []*Case) ([]Result, error) {
	runs := make([]caseRun, len(cases))
	for i, c := range cases {
		runs[i] = caseRun{c, r.Options}
	}
	return r.runAll(ctx, runs)
}

// caseRun is one case with its options.
type caseRun struct {
	c   *Case
	opt Options
}

// runAll runs cases, each with its own options, in r.Workers goroutines. When ctx is cancelled it
// returns the results of the cases that have ended, and the error of ctx.
func (r *Runner) runAll(ctx context.Context, runs []caseRun) ([]Result, error) {
	var (
		results = make([]Result, len(runs))
		doneMu  sync.Mutex // serializes the calls of r.Done
		workers sync.WaitGroup
		next    = make(chan int) // indices of runs
	)
	for range max(1, min(r.Workers, len(runs))) {
		workers.Go(func() {
			for i := range next {
				res := r.judge(ctx, runs[i])
				if ctx.Err() != nil {
					continue // the case was interrupted and has no verdict
				}
				results[i] = res
				if r.Done != nil {
					doneMu.Lock()
					r.Done(res)
					doneMu.Unlock()
				}
			}
		})
	}
feed:
	for _, i := range startOrder(runs, r.Workers) {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return slices.DeleteFunc(results, func(res Result) bool { return res.Case == nil }), err
	}
	return results, nil
}

// startOrder returns the indices of runs in the order in which they start. With several workers slow
// cases start first, so that the last case to end does not run alone for long.
func startOrder(runs []caseRun, workers int) []int {
	var slow, others []int
	for i, run := range runs {
		if workers > 1 && slices.Contains(run.c.Labels, Slow) {
			slow = append(slow, i)
		} else {
			others = append(others, i)
		}
	}
	return append(slow, others...)
}

// judge runs a case and returns its result. If r.BeforeRepeat is set, it repeats a case that failed
// or broke while other processes kept the machine busy, unless the case is dangerous or the device's
// host crashed, for which lack of CPU time is no reason. A case runs at most maxAttempts times; if other
// processes used most of the CPU time in all of them, the result is starved.
func (r *Runner) judge(ctx context.Context, run caseRun) Result {
	if r.BeforeRepeat == nil {
		return Judge(ctx, r.Lab, run.c, run.opt)
	}
	leastShare := 1.0 // of all attempts
	for attempt := 1; ; attempt++ {
		before, _ := sampleCPU()
		res := Judge(ctx, r.Lab, run.c, run.opt)
		failed := res.Verdict == VerdictFail || res.Verdict == VerdictBroken
		_, crashed := errors.AsType[*CrashError](res.Err)
		if !failed || crashed || run.c.Dangerous() || ctx.Err() != nil {
			return res
		}
		after, _ := sampleCPU()
		othersShare := process.OthersShare(before, after)
		leastShare = min(leastShare, othersShare)
		if othersShare < busyShare {
			return res
		}
		if attempt == maxAttempts {
			if leastShare >= starvedShare {
				res.Verdict = VerdictStarved
				res.Err = fmt.Errorf("not judged: in each of %d attempts other processes used %.0f %% of the CPU time or more; the last: %w", attempt, 100*leastShare, res.Err)
			}
			return res
		}
		r.BeforeRepeat(res, othersShare)
	}
}

// sampleCPU is a variable that tests replace.
var sampleCPU = process.SampleCPU

// Schedules returns how many schedules (orders of concurrent events) a case explores: the
// number in [Options], or defaultNumber if that is 0.
func (b *Bench) Schedules(defaultNumber int) int {
	return cmp.Or(b.schedules, defaultNumber)
}

// Progress tells the caller of Judge how many of the orders of concurrent events a case has
// explored so far: done of total.
func (b *Bench) Progress(done, total int) {
	if b.progress != nil {
		b.progress(done, total)
	}
}
