package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

const (
	maxSeeds = 10_000_000
	// progressEvery is how often a run of many seeds says how far it is.
	progressEvery = 10 * time.Second
)

// runSeeds runs every scenario with many seeds in simulation, from first on. It keeps
// nothing but the failures, which their commands repeat.
func (o *runOptions) runSeeds(cmd *cobra.Command, chosen []choice, first uint64) error {
	for _, flag := range []string{"out", "json", "capture", "netem"} {
		if o.given(flag) {
			return cmdline.Errorf("--seeds keeps no files: leave out --%s, and run the command that is printed for a failure with it", flag)
		}
	}
	if o.seeds < 1 || o.seeds > maxSeeds {
		return cmdline.Errorf("--seeds %d: give a number in 1..%d", o.seeds, maxSeeds)
	}
	if tiers, err := parseTiers(o.on); err != nil {
		return err
	} else if tiers != nil && !slices.Equal(tiers, []scenarios.Tier{scenarios.Sim}) {
		return cmdline.Errorf("--seeds is for the simulation, where a seed decides all that happens: leave out --on, or give --on sim")
	}
	c := &campaign{first: max(first, 1), seeds: o.seeds, out: cmd.OutOrStdout(), status: cmd.ErrOrStderr(), began: time.Now()}
	for _, s := range chosen {
		t := task{scenario: s.Scenario, tier: scenarios.Sim, opts: lab.Options{Defects: o.defects}}
		if !s.RunsOn(scenarios.Sim) || (o.provider != "" || len(o.defects) > 0) && lab.Incompatibility(s.Scenario, scenarios.Sim, o.defects...) != "" {
			continue
		}
		c.tasks = append(c.tasks, t)
		c.replay = append(c.replay, func(seed uint64) string {
			return fmt.Sprintf("%s run %s --on sim%s", o.program, cmdline.Quote(s.given), o.words(seed))
		})
	}
	if len(c.tasks) == 0 {
		return cmdline.Errorf("none of the scenarios chosen runs in simulation: 'fabrictest list' says where each does")
	}
	c.run(cmd.Context())
	return c.finish(cmd.Context())
}

// campaign is many seeds of the same scenarios. All seeds run side by side, the
// lowest first.
type campaign struct {
	first  uint64
	seeds  int
	tasks  []task
	replay []func(seed uint64) string // by task
	out    io.Writer
	status io.Writer
	began  time.Time

	mu       sync.Mutex
	taken    int // runs begun, of all scenarios and seeds
	ended    int
	failures []seedFailure
	told     time.Time // when progress was last printed
}

// seedFailure is a run that did not pass.
type seedFailure struct {
	run    int
	result *report.Result
	replay string
}

func (c *campaign) total() int { return c.seeds * len(c.tasks) }

func (c *campaign) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), c.total()) {
		workers.Go(func() {
			for {
				run, ok := c.take(ctx)
				if !ok {
					return
				}
				t := c.tasks[run%len(c.tasks)]
				t.opts.Seed = c.first + uint64(run/len(c.tasks))
				t.opts.Replay = c.replay[run%len(c.tasks)](t.opts.Seed)
				r := t.run(ctx)
				if ctx.Err() == nil { // else it was interrupted
					c.done(run, r)
				}
			}
		})
	}
	workers.Wait()
}

func (c *campaign) take(ctx context.Context) (run int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run = c.taken; ctx.Err() != nil || run == c.total() {
		return 0, false
	}
	c.taken++
	return run, true
}

// done notes what came of a run, and says how far the campaign is.
func (c *campaign) done(run int, r *report.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if r.Verdict != report.Passed {
		c.failures = append(c.failures, seedFailure{run, r, r.Replay})
		fmt.Fprintf(c.out, "%s  %s with seed %d: %s\n", strings.ToUpper(string(r.Verdict)), r.Name, r.Seed, r.Reason)
	}
	now := time.Now()
	if c.told.IsZero() {
		c.told = c.began
	}
	if now.Sub(c.told) >= progressEvery {
		c.told = now
		left := time.Duration(float64(now.Sub(c.began)) / float64(c.ended) * float64(c.total()-c.ended))
		fmt.Fprintf(c.status, "%d of %d runs, seed %d, %d failed, about %s left\n",
			c.ended, c.total(), r.Seed, len(c.failures), units.Duration(left.Round(time.Second)))
	}
}

// finish sums up, with the command that repeats each failure.
func (c *campaign) finish(ctx context.Context) error {
	fmt.Fprintf(c.out, "%s of %s with seeds %d to %d in %s: %d failed.\n", units.Plural(c.ended, "run"), units.Plural(len(c.tasks), "scenario"),
		c.first, c.first+uint64(c.seeds)-1, units.Duration(time.Since(c.began)), len(c.failures))
	if len(c.failures) > 0 {
		slices.SortFunc(c.failures, func(a, b seedFailure) int { return a.run - b.run })
		fmt.Fprint(c.out, "\nTo repeat them:\n\n")
		for _, f := range c.failures {
			fmt.Fprintf(c.out, "    %s\n", f.replay)
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %d of %d runs had ended", c.ended, c.total())
	case len(c.failures) > 0:
		return errFailed
	}
	return nil
}
