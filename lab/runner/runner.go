// Package runner runs what a command asks for: lists of scenarios, on several tiers, with
// many seeds, or again from the folder of an earlier run; conformance cases on emulated
// NICs; and the certification of a device of another host or of a guest's kernel. It calls
// lab/simlab, lab/experiment, lab/nslab and conformance/judge, and collects their results. cmd/fabrictest
// calls it, prints the results and writes them.
package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/experiment"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/lab/simlab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Task is one scenario on one tier.
type Task struct {
	Scenario     *scenarios.Scenario
	Given        string // the name or the file that selected the scenario
	Tier         scenarios.Tier
	Options      lab.Options
	Incompatible string // why it cannot run with the provider or the defects of Overrides; it is skipped
}

// Progress is called when a task starts and ends, by several goroutines. A
// report.Display is one.
type Progress interface {
	Start(name, tier string)
	Done(*report.Result)
}

// maxFabrics is how many scenarios may run at a time in the NetNS tier. Each has many
// processes, which mostly wait for timers.
const maxFabrics = 4

// Run runs tasks in order, one per processor at a time, and at most maxFabrics at a time in network
// namespaces. Tasks of different tiers (simulation, network namespaces) do not run at the same
// time. When ctx is cancelled it returns the results so far, including those of interrupted tasks.
// ended is the number of tasks that were not interrupted.
func Run(ctx context.Context, tasks []Task, show Progress) (results []report.Result, ended int) {
	for len(tasks) > 0 && ctx.Err() == nil {
		n := 1
		for n < len(tasks) && tasks[n].Tier == tasks[0].Tier {
			n++
		}
		workers := runtime.GOMAXPROCS(0)
		if tasks[0].Tier == scenarios.NetNS {
			workers = min(workers, maxFabrics)
		}
		ofTier, endedOfTier := runParallel(ctx, workers, tasks[:n], show)
		results, ended = append(results, ofTier...), ended+endedOfTier
		tasks = tasks[n:]
	}
	return results, ended
}

// runParallel runs tasks, up to a number of workers at a time, and returns when all have ended or
// ctx is cancelled. ended is the number of tasks that were not interrupted.
func runParallel(ctx context.Context, workers int, tasks []Task, show Progress) (results []report.Result, ended int) {
	var started, completed atomic.Int64
	var running sync.WaitGroup
	done := make([]*report.Result, len(tasks))
	for range min(workers, len(tasks)) {
		running.Go(func() {
			for ctx.Err() == nil {
				i := int(started.Add(1)) - 1
				if i >= len(tasks) {
					return
				}
				show.Start(tasks[i].Scenario.Name, string(tasks[i].Tier))
				done[i] = tasks[i].Run(ctx)
				if ctx.Err() == nil { // before Done, which may cancel ctx
					completed.Add(1)
				}
				show.Done(done[i])
			}
		})
	}
	running.Wait()
	for _, r := range done {
		if r != nil {
			results = append(results, *r)
		}
	}
	return results, int(completed.Load())
}

// Run runs the task on its tier, after it has saved the scenario in the run's folder if there is
// one. An incompatible task does not run; its result has the verdict Skipped.
func (t *Task) Run(ctx context.Context) *report.Result {
	if t.Incompatible != "" {
		r := lab.NewResult(t.Scenario, t.Tier, &t.Options)
		r.Verdict, r.Reason = report.Skipped, t.Incompatible
		return r
	}
	if t.Options.Dir != "" {
		if err := t.save(); err != nil {
			r := lab.NewResult(t.Scenario, t.Tier, &t.Options)
			lab.MarkBroken(r, err)
			return r
		}
	}
	if t.Scenario.Experiment != nil {
		return experiment.Run(ctx, t.Scenario, t.Options)
	}
	if t.Tier == scenarios.NetNS {
		return nslab.Run(ctx, t.Scenario, t.Options)
	}
	return simlab.Run(ctx, t.Scenario, t.Options)
}

// scenarioFile returns the path of the copy of a scenario in the folder of a run.
func scenarioFile(dir, name string) string {
	return filepath.Join(dir, "scenarios", name+".yaml")
}

// save writes the scenario to the run's folder, so that the run can be repeated even if
// the original file changes.
func (t *Task) save() error {
	text, err := t.Scenario.Marshal()
	if err != nil {
		return err
	}
	name := scenarioFile(t.Options.Dir, t.Scenario.Name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(name, text, 0o666); err != nil {
		return errors.Join(err, os.Remove(name)) // leave no truncated file
	}
	return nil
}

// Names returns the names of the tasks' scenarios.
func Names(tasks []Task) (names []string) {
	for i := range tasks {
		names = append(names, tasks[i].Scenario.Name)
	}
	return names
}

// Overrides change scenarios before they run.
type Overrides struct {
	Messages int                 // of each flow; 0 for the scenario's own number
	Provider string              // of all NICs; empty for the scenario's own
	Cable    scenarios.CableKind // what connects hosts in real time; empty for the scenario's own
	Defects  []string
}

// Check returns an error if the provider does not exist, or if its NICs (without a provider: NICs
// of all providers) cannot have one of the defects in this build of the program.
func (o *Overrides) Check() error {
	check := nics.CheckRuntimeDefect
	if o.Provider != "" {
		p, err := nics.Find(o.Provider)
		if err != nil {
			return cli.Errorf("--provider: %w", err)
		}
		check = p.CheckRuntimeDefect
	}
	return checkDefects(check, o.Defects)
}

// Tasks applies the overrides to the chosen scenarios, which it modifies, and returns a task for
// each tier and each scenario that runs on the tier. A task that cannot run with the provider or
// the defects gets the reason in Incompatible.
func (o *Overrides) Tasks(chosen []scenarios.Selected, tiers []scenarios.Tier, options lab.Options) (tasks []Task) {
	for i := range chosen {
		s := &chosen[i]
		if o.Provider != "" {
			s.Scenario = lab.WithProvider(s.Scenario, o.Provider)
		}
		if o.Cable != "" && s.Experiment == nil {
			s.Fabric.Cable = o.Cable
		}
		if o.Messages > 0 && s.Experiment == nil {
			s.Workload.Messages = o.Messages
		}
	}
	for _, tier := range tiers {
		for _, s := range chosen {
			if !s.RunsOn(tier) {
				continue
			}
			t := Task{Scenario: s.Scenario, Given: s.Given, Tier: tier, Options: options}
			t.Options.Defects, t.Options.Netem = o.Defects, options.Netem && tier == scenarios.NetNS // a simulation has no netem
			if o.Provider != "" || len(o.Defects) > 0 || o.Cable != "" {                             // without overrides, an incompatibility is an error in the file, which the lab reports
				t.Incompatible = lab.Incompatibility(s.Scenario, tier, o.Defects...)
			}
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// DropIncompatible returns the tasks that can run with the provider and the defects of Overrides.
func DropIncompatible(tasks []Task) []Task {
	return slices.DeleteFunc(tasks, func(t Task) bool { return t.Incompatible != "" })
}

// Tiers returns the named tiers (simulation, network namespaces). Without names it returns both or,
// if network namespaces are not available and the cable needs them, simulation alone, with the
// reason in why.
func Tiers(names []string, cable scenarios.CableKind) (tiers []scenarios.Tier, why string, err error) {
	if tiers, err = scenarios.ParseTiers(names); err != nil || tiers != nil {
		return tiers, "", err
	}
	if unavailable := netns.Available(); unavailable != nil && cable != scenarios.SharedMemory {
		return []scenarios.Tier{scenarios.Sim}, unavailable.Error(), nil
	}
	return []scenarios.Tier{scenarios.Sim, scenarios.NetNS}, "", nil
}

// DescribeState returns a text with the task and the state of each rank, a line or more each.
func (t *Task) DescribeState(all []lab.RankState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s:", t.Scenario.Name, t.Tier)
	for _, r := range all {
		fmt.Fprintf(&b, "\n  rank %d on %s: %s", r.Rank, r.Host, strings.ReplaceAll(strings.TrimSpace(r.State), "\n", "\n    "))
	}
	return b.String()
}
