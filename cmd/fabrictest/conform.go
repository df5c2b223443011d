package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/mutate"
	"github.com/fabrictest/fabrictest/lab/devices"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

// conformOptions are those of `fabrictest conform`.
type conformOptions struct {
	conformance.Filter
	program    string // how we were called
	devices    []string
	level      string
	on         string
	seed       string
	defects    []string
	profile    string
	checkCases bool
	matrix     bool
	deviations string
	capture    judge.Captures
	out        string
	json       bool
	packets    bool
	workers    int
	schedules  int
	given      func(flag string) bool // on the command line
}

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
	o.given = f.Changed
	deviceFlag(cmd, &o.devices, "judge", nics.Names())
	levelFlag(cmd, &o.level)
	labelFlag(cmd, &o.Labels)
	withoutFlag(cmd, &o.ExcludeLabels, ", as in slow")
	f.BoolVar(&o.IncludeDangerous, "dangerous", false, "also run cases that can crash or wedge a real device")
	tierFlag(cmd, &o.on)
	seedFlag(cmd, &o.seed, "", "cases choose", " (default 1)")
	defectFlag(cmd, &o.defects, "the device")
	profileFlag(cmd, &o.profile)
	f.BoolVar(&o.checkCases, "check-cases", false, "check the cases: on a device without defects, and on one with each defect that they name")
	f.BoolVar(&o.matrix, "matrix", false, "with --check-cases, run every case on devices with every defect")
	f.StringVar(&o.deviations, "deviations", "", "`FILE` with the known deviations of the device, and their reasons (default: those that are known of emulated devices)")
	f.Var(&o.capture, "capture", "whose packets to keep: failing, all or none")
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print conformance.json instead of a table")
	f.BoolVar(&o.packets, "packets", false, "print what happened in every case, and not in failing ones alone")
	f.IntVar(&o.schedules, "schedules", 0, "explore `N` schedules in each case that explores several: litmus/*, linear/* (default: 1000 and 4; in namespaces 24 and 4)")
	f.IntVar(&o.workers, "workers", 0, "how many cases run at a time (default: one for each processor; in namespaces one)")
	_ = cmd.RegisterFlagCompletionFunc("capture", fixed(string(judge.CaptureFailing), string(judge.CaptureAll), string(judge.CaptureNone)))
	cmd.AddCommand(newConformShowCommand(o.program), newConformCoverageCommand(), newConformMeasureCommand(&conformOptions{program: o.program, capture: judge.CaptureNone}))
	return cmd
}

func (o *conformOptions) run(cmd *cobra.Command, args []string) error {
	began := time.Now()
	j, err := o.plan()
	if err != nil {
		return err
	}
	dir, err := conformRuns.NewFolder(o.out, began)
	if err != nil {
		return err
	}
	if devices.NeedsMutants(j) {
		why := mutate.Possible()
		if why == nil {
			return runWithMutants(cmd, args, dir)
		}
		if err := devices.DropMutants(j, why); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Defects that are built into devices are left out: %v\n", why)
	}
	if o.mustUnshare() {
		return runUnshared(cmd, args, dir)
	}
	out := cmd.OutOrStdout()
	if o.json {
		out = io.Discard
	}
	j.Dir, j.Started = dir, began
	j.Show = conform.NewDisplay(report.DisplayConfig{Out: uncleaned(out), Status: uncleaned(cmd.ErrOrStderr()), Total: j.Trials()}, o.packets)
	defer j.Show.Close()
	run := &conform.Run{
		Version: conform.Version, Tool: report.ToolVersion(), Command: o.command(j.Seed), Seed: j.Seed,
		Started: began, Machine: report.ThisMachine(), Tier: o.on, Part: o.part(),
	}
	if run.Documents, err = judge.Documents(); err != nil {
		return err
	}
	if err := j.Run(cmd.Context(), run); err != nil && cmd.Context().Err() == nil {
		return err
	}
	run.Wall = time.Since(began)
	if err := o.finish(cmd, run, j); err != nil {
		return err
	}
	return o.verdict(cmd.Context(), run, j)
}

// finish writes the result files and prints the results. Results are printed even if a
// file cannot be written.
func (o *conformOptions) finish(cmd *cobra.Command, run *conform.Run, j *judge.Judge) error {
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
	case !run.Good():
		return errFailed
	}
	return nil
}
