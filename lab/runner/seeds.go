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

	"github.com/fabrictest/fabrictest/internal/cli"
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
func (s *Seeds) total() int { return s.Count * len(s.Tasks) }

// Run runs all tasks with all seeds, prints each failure when it happens, and at the end a summary
// with the command that repeats each. It reports whether all passed.
func (s *Seeds) Run(ctx context.Context) (passed bool, err error) {
	s.began = time.Now()
	s.lastProgress = s.began
	s.runAll(ctx)
	s.summarize()
	if ctx.Err() != nil {
		return false, fmt.Errorf("interrupted: %d of %d runs had ended", s.ended, s.total())
	}
	return len(s.failures) == 0, nil
}

// runAll runs all tasks with all seeds, one per processor at a time.
func (s *Seeds) runAll(ctx context.Context) {
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), s.total()) {
		workers.Go(func() {
			for {
				run, ok := s.nextRun(ctx)
				if !ok {
					return
				}
				t := s.Tasks[run%len(s.Tasks)]
				t.Options.Seed = s.First + uint64(run/len(s.Tasks))
				t.Options.Replay = s.Replay(&t)
				r := t.Run(ctx)
				if ctx.Err() == nil { // else the run was interrupted
					s.record(run, r)
				}
			}
		})
	}
	workers.Wait()
}

// nextRun returns the index of the next run to start; false if there is none or ctx is cancelled.
func (s *Seeds) nextRun(ctx context.Context) (run int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run = s.started; ctx.Err() != nil || run == s.total() {
		return 0, false
	}
	s.started++
	return run, true
}

// record records the result of a run, prints failures, and prints progress every progressInterval.
func (s *Seeds) record(run int, r *report.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	if r.Verdict != report.Passed {
		s.failures = append(s.failures, seedFailure{run, r.Replay})
		fmt.Fprintf(s.Out, "%s  %s with seed %d: %s\n", strings.ToUpper(string(r.Verdict)), r.Name, r.Seed, r.Reason)
	}
	now := time.Now()
	if now.Sub(s.lastProgress) >= progressInterval {
		s.lastProgress = now
		left := time.Duration(float64(now.Sub(s.began)) / float64(s.ended) * float64(s.total()-s.ended))
		fmt.Fprintf(s.Status, "%d of %d runs, seed %d, %d failed, about %s left\n",
			s.ended, s.total(), r.Seed, len(s.failures), cli.Duration(left.Round(time.Second)))
	}
}

// summarize prints the totals, and the command that repeats each failure.
func (s *Seeds) summarize() {
	fmt.Fprintf(s.Out, "%s of %s with seeds %d to %d in %s: %d failed.\n", cli.Plural(s.ended, "run"), cli.Plural(len(s.Tasks), "scenario"),
		s.First, s.First+uint64(s.Count)-1, cli.Duration(time.Since(s.began)), len(s.failures))
	if len(s.failures) > 0 {
		slices.SortFunc(s.failures, func(a, b seedFailure) int { return a.run - b.run })
		fmt.Fprint(s.Out, "\nTo repeat them:\n\n")
		for _, f := range s.failures {
			fmt.Fprintf(s.Out, "    %s\n", f.replay)
		}
	}
}
