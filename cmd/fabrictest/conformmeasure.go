package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/runner"
)

func newConformMeasureCommand(o *conformOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "Measure how devices recover from packet loss and congestion",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return o.runMeasure(cmd, args) },
	}
	o.given, o.Capture = cmd.Flags().Changed, judge.CaptureNone
	deviceFlag(cmd, &o.Names, "measure", runner.Measurable())
	tierFlag(cmd, &o.on)
	seedFlag(cmd, &o.seed, "", "is chosen", " (default 1)")
	defectFlag(cmd, &o.Defects, "the device")
	profileFlag(cmd, &o.Profile)
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print conformance.json instead of a table")
	return cmd
}

// runMeasure measures the devices, in new namespaces if that is needed.
func (o *conformOptions) runMeasure(cmd *cobra.Command, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	j, err := o.PlanMeasurement()
	if err != nil {
		return err
	}
	dir, err := conformRuns.NewFolder(o.out, time.Now())
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
	return o.addConditions(cmdline.NewLine(o.program+" conform measure").Flag("device", o.Names...), seed).String()
}
