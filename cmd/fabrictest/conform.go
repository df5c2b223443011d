package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/scenarios"
)

// conformOptions are those of `fabrictest conform` and `fabrictest conform measure`.
type conformOptions struct {
	runner.Conformance
	program         string // how we were called
	on, level, seed string
	out             string
	json            bool
	given           func(flag string) bool // on the command line
}

// newConformCommand returns the command 'fabrictest conform'.
func newConformCommand(o *conformOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conform [CASE...]",
		Short: "Check devices against the specifications, clause by clause",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.IDs = args
			return o.run(cmd, args)
		},
		ValidArgsFunction: completeCases,
	}
	f := cmd.Flags()
	o.given, o.Capture = f.Changed, cli.CaptureFailing
	deviceFlag(cmd, &o.Names, "judge", nics.Names())
	levelFlag(cmd, &o.level)
	labelFlag(cmd, &o.Labels)
	withoutFlag(cmd, &o.ExcludeLabels, ", as in slow")
	tierFlag(cmd, &o.on)
	seedFlag(cmd, &o.seed, "", "cases choose", " (default 1)")
	defectFlag(cmd, &o.Defects, "the device")
	profileFlag(cmd, &o.Profile)
	f.BoolVar(&o.CheckCases, "check-cases", false, "check the cases: on a device without defects, and on one with each defect that they name")
	f.BoolVar(&o.Matrix, "matrix", false, "with --check-cases, run every case on devices with every defect")
	f.StringVar(&o.Deviations, "deviations", "", "`FILE` with the known deviations of the device, and their reasons (default: those that are known of emulated devices)")
	captureFlag(cmd, &o.Capture, "")
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print conformance.json instead of a table")
	f.BoolVar(&o.Ladders, "packets", false, "print what happened in every case, and not in failing ones alone")
	f.IntVar(&o.Schedules, "schedules", 0, "explore `N` schedules in each case that explores several: litmus/*, linear/* (default: 1000 and 4; in namespaces 24 and 4)")
	f.IntVar(&o.Workers, "workers", 0, "how many cases run at a time (default: one for each processor; in namespaces one)")
	cmd.AddCommand(newConformShowCommand(o.program), newConformCoverageCommand(), newConformMeasureCommand(&conformOptions{program: o.program}))
	return cmd
}

// run runs the cases on the devices. If it needs mutants (defects made by changes of the source
// code), it runs the command again in a build with them; without the sources, it leaves them out.
// If the cases run in namespaces, it runs the command again in new ones.
func (o *conformOptions) run(cmd *cobra.Command, args []string) error {
	// Each case creates a small world, which becomes garbage: collect less often, but do not let
	// garbage fill the memory of a small machine.
	debug.SetGCPercent(400)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(1 << 30)
	}
	j, dir, err := o.plan(o.Plan)
	if err != nil {
		return err
	}
	if runner.NeedsMutants(j) {
		unavailable := mutant.CheckAvailable()
		if unavailable == nil {
			return runWithMutants(cmd, args, dir)
		}
		if err := runner.DropMutants(j, unavailable); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Defects that are built into devices are left out: %v\n", unavailable)
	}
	if o.mustUnshare() {
		return runUnshared(cmd, args, dir)
	}
	run := o.start(cmd, j, dir, j.Trials())
	defer j.Show.Close()
	run.Command = o.command(j.Seed)
	if run.Documents, err = judge.Documents(); err != nil {
		return err
	}
	if err := j.Run(cmd.Context(), run); err != nil && cmd.Context().Err() == nil {
		return err
	}
	if err := o.finish(cmd, run, j); err != nil {
		return err
	}
	return o.verdict(cmd.Context(), run, j)
}

// plan checks the flags, plans the run, and creates the folder for its results.
func (o *conformOptions) plan(makePlan func() (*judge.Judge, error)) (j *judge.Judge, dir string, err error) {
	if err := o.check(); err != nil {
		return nil, "", err
	}
	if j, err = makePlan(); err != nil {
		return nil, "", err
	}
	dir, err = conformRuns.NewFolder(o.out, time.Now())
	return j, dir, err
}

// check checks the flags, and sets the fields of runner.Conformance that are no flags themselves.
func (o *conformOptions) check() (err error) {
	if o.Seed, err = cli.ParseSeed(o.seed, defaultSeed); err != nil {
		return err
	}
	if o.Level, err = judge.ParseLevel(o.level); err != nil {
		return err
	}
	for flag, n := range map[string]int{"workers": o.Workers, "schedules": o.Schedules} {
		if o.given(flag) && n < 1 {
			return cli.Errorf("--%s %d: give a number from 1 on", flag, n)
		}
	}
	o.Tier = scenarios.Tier(o.on)
	o.Replay = func(device, id string) string { return o.replay(device, id, o.Seed) }
	return nil
}

// start starts the display of progress, and returns a run without results. total is the number of
// cases to run, or of devices to measure. The run's Part is set if cases were left out.
func (o *conformOptions) start(cmd *cobra.Command, j *judge.Judge, dir string, total int) *conform.Run {
	out := cmd.OutOrStdout()
	if o.json {
		out = io.Discard
	}
	run := conform.NewRun(j.Seed, o.on)
	run.Part = j.Filtered
	j.Dir, j.Started = dir, run.Started
	j.Show = conform.NewDisplay(report.DisplayConfig{Out: withoutEscapeFilter(out), Status: withoutEscapeFilter(cmd.ErrOrStderr()), Total: total}, j.Ladders)
	return run
}

// finish writes the result files and prints the results, even if a file cannot be written.
func (o *conformOptions) finish(cmd *cobra.Command, run *conform.Run, j *judge.Judge) error {
	run.Wall = time.Since(run.Started)
	paths, err := conform.WriteFolder(j.Dir, run)
	if o.json {
		return errors.Join(err, conform.Write(cmd.OutOrStdout(), run))
	}
	return errors.Join(err, j.Show.Finish(run, paths))
}

// verdict returns the error that sets the exit code.
func (o *conformOptions) verdict(ctx context.Context, run *conform.Run, j *judge.Judge) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %d of %d had ended", j.Ended, j.Trials())
	case run.OnlyStarved():
		return exitError(exitStarved)
	case !run.Good():
		return errFailed
	}
	return nil
}

// command is the command line that repeats the run.
func (o *conformOptions) command(seed uint64) string {
	l := cli.NewLine(o.program+" conform").Args(o.IDs...).Flag("device", o.Names...).Flag("level", strings.ToLower(o.level))
	l.Flag("label", o.Labels...).Flag("without", o.ExcludeLabels...)
	return o.addConditions(l, seed).Switch("check-cases", o.CheckCases).Switch("matrix", o.Matrix).String()
}

// replay is the command line that repeats one case.
func (o *conformOptions) replay(device, id string, seed uint64) string {
	return o.addConditions(cli.NewLine(o.program+" conform "+id).Flag("device", device), seed).String()
}

// addConditions adds the flags that affect verdicts to a command line.
func (o *conformOptions) addConditions(l *cli.Line, seed uint64) *cli.Line {
	l.Flag("on", o.on).Flag("seed", fmt.Sprint(seed)).Flag("as", o.Profile).Flag("defect", o.Defects...)
	return l.Number("schedules", uint64(o.Schedules)).Flag("deviations", o.Deviations)
}

// newConformMeasureCommand returns the command 'fabrictest conform measure'.
func newConformMeasureCommand(o *conformOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "Measure how devices recover from packet loss and congestion",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return o.runMeasure(cmd, args) },
	}
	o.given, o.Capture = cmd.Flags().Changed, cli.CaptureNone
	deviceFlag(cmd, &o.Names, "measure", runner.Measurable())
	tierFlag(cmd, &o.on)
	seedFlag(cmd, &o.seed, "", "is chosen", " (default 1)")
	defectFlag(cmd, &o.Defects, "the device")
	profileFlag(cmd, &o.Profile)
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print conformance.json instead of a table")
	return cmd
}

// runMeasure measures the devices, in new namespaces if that is needed. It sets the run's Part,
// which marks incomplete results, because no cases run.
func (o *conformOptions) runMeasure(cmd *cobra.Command, args []string) error {
	j, dir, err := o.plan(o.PlanMeasurement)
	if err != nil {
		return err
	}
	if o.mustUnshare() {
		return runUnshared(cmd, args, dir)
	}
	run := o.start(cmd, j, dir, len(j.Devices))
	defer j.Show.Close()
	run.Command, run.Part = o.measureCommand(j.Seed), true
	err = runner.Measure(cmd.Context(), j, run)
	return errors.Join(o.finish(cmd, run, j), err)
}

// measureCommand is the command line that repeats the run.
func (o *conformOptions) measureCommand(seed uint64) string {
	return o.addConditions(cli.NewLine(o.program+" conform measure").Flag("device", o.Names...), seed).String()
}
