package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/lab/simlab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// task is one scenario on one tier.
type task struct {
	scenario *scenarios.Scenario
	tier     scenarios.Tier
	opts     lab.Options
	unfit    string // why it makes no sense with the NICs that it was given
}

// audience is told how tasks are getting on, by several goroutines; a
// report.Display is one.
type audience interface {
	Start(name, tier string)
	Done(*report.Result)
}

// conduct runs tasks in order: several at a time in simulation, which keeps one
// processor busy each, and one at a time in namespaces, where a fabric needs all
// the machine has. A cancelled context ends it: what was under way then is among the results as
// far as it got, and ended does not count it.
func conduct(ctx context.Context, tasks []task, show audience) (results []report.Result, ended int) {
	for len(tasks) > 0 && ctx.Err() == nil {
		n := 1
		for n < len(tasks) && tasks[n].tier == tasks[0].tier {
			n++
		}
		width := 1
		if tasks[0].tier == scenarios.Sim {
			width = runtime.GOMAXPROCS(0)
		}
		more, whole := inParallel(ctx, width, tasks[:n], show)
		results, ended = append(results, more...), ended+whole
		tasks = tasks[n:]
	}
	return results, ended
}

// inParallel runs tasks, width of them at a time, and returns when none is under
// way any more.
func inParallel(ctx context.Context, width int, tasks []task, show audience) (results []report.Result, ended int) {
	var taken, whole atomic.Int64
	var workers sync.WaitGroup
	done := make([]*report.Result, len(tasks))
	for range min(width, len(tasks)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(taken.Add(1)) - 1
				if i >= len(tasks) {
					return
				}
				show.Start(tasks[i].scenario.Name, string(tasks[i].tier))
				done[i] = tasks[i].run(ctx)
				if ctx.Err() == nil { // asked before anybody can have seen the result, and interrupts
					whole.Add(1)
				}
				show.Done(done[i])
			}
		})
	}
	workers.Wait()
	for _, r := range done {
		if r != nil {
			results = append(results, *r)
		}
	}
	return results, int(whole.Load())
}

func (t *task) run(ctx context.Context) *report.Result {
	if t.unfit != "" {
		r := lab.NewResult(t.scenario, t.tier, &t.opts)
		r.Verdict, r.Reason = report.Skipped, t.unfit
		return r
	}
	if t.opts.Dir != "" {
		if err := t.save(); err != nil {
			r := lab.NewResult(t.scenario, t.tier, &t.opts)
			lab.MarkBroken(r, err)
			return r
		}
	}
	if t.tier == scenarios.NetNS {
		return nslab.Run(ctx, t.scenario, t.opts)
	}
	return simlab.Run(ctx, t.scenario, t.opts)
}

// savedScenario is where the folder of a run keeps a scenario as it was run.
func savedScenario(dir, name string) string {
	return filepath.Join(dir, "scenarios", name+".yaml")
}

// save keeps the scenario in the run's folder, so that the run can be repeated
// when the file has changed.
func (t *task) save() error {
	text, err := t.scenario.Marshal()
	if err != nil {
		return err
	}
	name := savedScenario(t.opts.Dir, t.scenario.Name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(name, text, 0o666); err != nil {
		return errors.Join(err, os.Remove(name)) // half of it is worse than none
	}
	return nil
}

// plainWord matches what no shell changes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote is a word as a shell wants it.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
