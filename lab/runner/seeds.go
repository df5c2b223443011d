package runner

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report"
)

// progressInterval is the time between two progress lines of a run with many seeds.
const progressInterval = 10 * time.Second

// Seeds runs the same tasks with many seeds, the lowest first, one per processor at a
// time. It keeps no files.
type Seeds struct {
	First  uint64
	Count  int // of seeds
	Tasks  []Task
	Replay func(t *Task) string // the command line that repeats a task with its seed
	Out    io.Writer            // for failures and the summary
	Status io.Writer            // for progress

	began        time.Time
	mu           sync.Mutex
	started      int // runs, of all scenarios and seeds
	ended        int
	failures     []seedFailure
	lastProgress time.Time // when progress was last printed
}

// seedFailure is a run that did not pass.
type seedFailure struct {
	run    int // index: seed by seed, and task by task for each
	replay string
}

// total returns the number of runs.
func (c *Seeds) total() int { return c.Count * len(c.Tasks) }

// Run runs all tasks with all seeds, prints each failure when it happens, and at the end a summary
// with the command that repeats each. It reports whether all passed.
func (c *Seeds) Run(ctx context.Context) (passed bool, err error) {
	c.began = time.Now()
	c.lastProgress = c.began
	c.runAll(ctx)
	c.summarize()
	if ctx.Err() != nil {
		return false, fmt.Errorf("interrupted: %d of %d runs had ended", c.ended, c.total())
	}
	return len(c.failures) == 0, nil
}

// runAll runs all tasks with all seeds, one per processor at a time.
func (c *Seeds) runAll(ctx context.Context) {
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), c.total()) {
		workers.Go(func() {
			for {
				run, ok := c.nextRun(ctx)
				if !ok {
					return
				}
				t := c.Tasks[run%len(c.Tasks)]
				t.Options.Seed = c.First + uint64(run/len(c.Tasks))
				t.Options.Replay = c.Replay(&t)
				r := t.Run(ctx)
				if ctx.Err() == nil { // else the run was interrupted
					c.record(run, r)
				}
			}
		})
	}
	workers.Wait()
}

// nextRun returns the index of the next run to start; false if there is none or ctx is cancelled.
func (c *Seeds) nextRun(ctx context.Context) (run int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run = c.started; ctx.Err() != nil || run == c.total() {
		return 0, false
	}
	c.started++
	return run, true
}

// record records the result of a run, prints failures, and prints progress every progressInterval.
func (c *Seeds) record(run int, r *report.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if r.Verdict != report.Passed {
		c.failures = append(c.failures, seedFailure{run, r.Replay})
		fmt.Fprintf(c.Out, "%s  %s with seed %d: %s\n", strings.ToUpper(string(r.Verdict)), r.Name, r.Seed, r.Reason)
	}
	now := time.Now()
	if now.Sub(c.lastProgress) >= progressInterval {
		c.lastProgress = now
		left := time.Duration(float64(now.Sub(c.began)) / float64(c.ended) * float64(c.total()-c.ended))
		fmt.Fprintf(c.Status, "%d of %d runs, seed %d, %d failed, about %s left\n",
			c.ended, c.total(), r.Seed, len(c.failures), textfmt.Duration(left.Round(time.Second)))
	}
}

// summarize prints the totals, and the command that repeats each failure.
func (c *Seeds) summarize() {
	fmt.Fprintf(c.Out, "%s of %s with seeds %d to %d in %s: %d failed.\n", textfmt.Plural(c.ended, "run"), textfmt.Plural(len(c.Tasks), "scenario"),
		c.First, c.First+uint64(c.Count)-1, textfmt.Duration(time.Since(c.began)), len(c.failures))
	if len(c.failures) > 0 {
		slices.SortFunc(c.failures, func(a, b seedFailure) int { return a.run - b.run })
		fmt.Fprint(c.Out, "\nTo repeat them:\n\n")
		for _, f := range c.failures {
			fmt.Fprintf(c.Out, "    %s\n", f.replay)
		}
	}
}
