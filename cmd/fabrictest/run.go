package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// runOptions are those of `fabrictest run`.
type runOptions struct {
	scenarios.Selection
	overrides
	program string // how we were called
	on      []string
	out     string
	json    bool
	netem   bool
	seeds   int
	capture cli.Captures
}

// newRunCommand returns the command 'fabrictest run'.
func newRunCommand(o *runOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [SCENARIO...]",
		Short: "Run scenarios",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Patterns = args
			return o.run(cmd)
		},
		ValidArgsFunction: completeScenarios,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.on, "on", nil, "`TIER`s to run on: sim, netns, or sim,netns (default: sim, and netns where it works)")
	tagFlag(cmd, &o.Tags)
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print result.json instead of a table")
	captureFlag(cmd, &o.capture, " (default: all of scenarios that you name, else failing)")
	f.IntVar(&o.seeds, "seeds", 0, "run each scenario with `N` seeds in simulation, and keep no files")
	f.BoolVar(&o.netem, "netem", false, "in namespaces, let the kernel's netem impair links instead of the user-space switch")
	o.overrides.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("on", fixed("sim", "netns", "sim,netns"))
	return cmd
}

// captures returns whose packets are kept: without --capture those of all scenarios if the command
// line names them, else of failing ones.
func (o *runOptions) captures() cli.Captures {
	switch {
	case o.capture != "":
		return o.capture
	case len(o.Patterns) > 0:
		return cli.CaptureAll
	}
	return cli.CaptureFailing
}

// run runs the selected scenarios, writes the report and prints the results. With --seeds, it calls
// runSeeds. SIGUSR1 makes it show the state of all ranks that run in namespaces.
func (o *runOptions) run(cmd *cobra.Command) error {
	began := time.Now()
	seed, err := o.check()
	if err != nil {
		return err
	}
	chosen, err := o.Find()
	if err != nil {
		return err
	}
	if o.given("seeds") {
		return o.runSeeds(cmd, chosen, seed)
	}
	tiers, why, err := runner.Tiers(o.on, o.Cable)
	if err != nil {
		return err
	}
	dir, err := runs.NewFolder(o.out, began)
	if err != nil {
		return err
	}
	stateRequests := make(chan os.Signal, 1)
	signal.Notify(stateRequests, syscall.SIGUSR1)
	defer signal.Stop(stateRequests)
	tasks := o.Tasks(chosen, tiers, lab.Options{Seed: seed, Dir: dir, Netem: o.netem, Capture: o.captures(), StateRequests: stateRequests})
	if len(tasks) == 0 {
		return cli.Errorf("none of the scenarios chosen runs on %s: 'fabrictest list scenarios' says where each does", strings.Join(o.on, " or "))
	}
	out := cmd.OutOrStdout()
	if o.json {
		out = io.Discard
	}
	// The display writes escape sequences: it removes control characters from texts itself.
	show := report.NewDisplay(report.DisplayConfig{Out: withoutEscapeFilter(out), Status: withoutEscapeFilter(cmd.ErrOrStderr()), Total: len(tasks)}, runner.Names(tasks))
	defer show.Close()
	for i := range tasks {
		t := &tasks[i]
		t.Options.Replay = o.replay(t.Given, t.Tier, t.Options.SeedFor(t.Scenario))
		t.Options.OnState = func(all []lab.RankState) { show.Note(t.DescribeState(all)) }
	}
	if why != "" {
		show.Note("In simulation only: " + why)
	}
	run := report.NewRun(o.command(seed), seed, began)
	var ended int
	run.Scenarios, ended = runner.Run(cmd.Context(), tasks, show)
	run.Wall = time.Since(began)
	if err := o.finish(cmd, run, dir, show); err != nil {
		return err
	}
	total := len(tasks)
	return o.verdict(cmd.Context(), run, ended, total, total-len(runner.DropIncompatible(tasks)))
}

// finish writes the result files, and prints the results even if a file cannot be written.
func (o *runOptions) finish(cmd *cobra.Command, run *report.Run, dir string, show *report.Display) error {
	paths, err := report.WriteFolder(dir, run)
	if o.json {
		return errors.Join(err, report.Write(cmd.OutOrStdout(), run))
	}
	return errors.Join(err, show.Finish(run, paths))
}

// verdict returns the error that sets the exit code of a run of total tasks. A starved task was too
// late because the host was busy. The incompatible tasks, whose NICs cannot run them, do not count
// as skipped.
func (o *runOptions) verdict(ctx context.Context, run *report.Run, ended, total, incompatible int) error {
	skipped := run.Counts()[report.Skipped] - incompatible
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %d of %d had ended", ended, total)
	case run.OnlyStarved():
		return exitError(exitStarved)
	case len(run.Bad()) > 0:
		return errFailed
	case skipped > 0 && len(o.on) > 0:
		return fmt.Errorf("%d of %d could not be run on what --on asks for; 'fabrictest doctor' says how to get it", skipped, total)
	}
	return nil
}

// replay is the command line that repeats a scenario on a tier.
func (o *runOptions) replay(given string, tier scenarios.Tier, seed uint64) string {
	l := cli.NewLine(o.program+" run").Args(given).Flag("on", string(tier))
	return o.addTo(l, seed).Switch("netem", o.netem && tier == scenarios.NetNS).String()
}

// command is the command line that repeats the run.
func (o *runOptions) command(seed uint64) string {
	l := cli.NewLine(o.program+" run").Args(o.Patterns...).Flag("tag", o.Tags...).Flag("on", strings.Join(o.on, ","))
	return o.addTo(l, seed).Switch("netem", o.netem).String()
}

const maxSeeds = 10_000_000

// runSeeds runs every scenario in simulation with o.seeds seeds: first, first+1 and so on. It begins
// with 1 if first is 0, which means that --seed was not given.
func (o *runOptions) runSeeds(cmd *cobra.Command, chosen []scenarios.Selected, first uint64) error {
	for _, flag := range []string{"out", "json", "capture", "netem"} {
		if o.given(flag) {
			return cli.Errorf("--seeds keeps no files: leave out --%s, and run the command that is printed for a failure with it", flag)
		}
	}
	if o.seeds < 1 || o.seeds > maxSeeds {
		return cli.Errorf("--seeds %d: give a number in 1..%d", o.seeds, maxSeeds)
	}
	if tiers, err := scenarios.ParseTiers(o.on); err != nil {
		return err
	} else if tiers != nil && !slices.Equal(tiers, []scenarios.Tier{scenarios.Sim}) {
		return cli.Errorf("--seeds is for the simulation, where a seed decides all that happens: leave out --on, or give --on sim")
	}
	r := &runner.Seeds{
		First: max(first, 1), Count: o.seeds, Out: cmd.OutOrStdout(), Status: cmd.ErrOrStderr(),
		Tasks:  runner.DropIncompatible(o.Tasks(chosen, []scenarios.Tier{scenarios.Sim}, lab.Options{})),
		Replay: func(t *runner.Task) string { return o.replay(t.Given, t.Tier, t.Options.Seed) },
	}
	if len(r.Tasks) == 0 {
		return cli.Errorf("none of the scenarios chosen runs in simulation: 'fabrictest list scenarios' says where each does")
	}
	passed, err := r.Run(cmd.Context())
	if err == nil && !passed {
		return errFailed
	}
	return err
}
