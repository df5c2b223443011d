package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

func newConformMeasureCommand(o *conformOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "Measure how devices recover from packet loss and congestion",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return o.runMeasure(cmd, args) },
	}
	o.given = cmd.Flags().Changed
	deviceFlag(cmd, &o.devices, "measure", measurable())
	tierFlag(cmd, &o.on)
	seedFlag(cmd, &o.seed, "", "is chosen", " (default 1)")
	defectFlag(cmd, &o.defects, "the device")
	profileFlag(cmd, &o.profile)
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print conformance.json instead of a table")
	return cmd
}

// measurable returns the providers whose devices can be measured.
func measurable() []string {
	return nics.NamesWith(func(p *nics.Provider) bool { return p.Protocol == conformance.RoCE })
}

// planMeasure checks the flags, and returns the devices to measure.
func (o *conformOptions) planMeasure() (*judge.Judge, error) {
	j, err := o.judge()
	if err != nil {
		return nil, err
	}
	if len(o.devices) == 0 && o.profile == "" {
		o.devices = measurable()
	}
	j.Devices, err = o.selection().Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range j.Devices {
		if d.Protocol != conformance.RoCE {
			return nil, cmdline.Errorf("%s cannot be measured: what is lost is not for its device to repeat, or not to be left out by its peer; %s can", d.Name, strings.Join(measurable(), ", "))
		}
	}
	return j, nil
}

func (o *conformOptions) runMeasure(cmd *cobra.Command, args []string) error {
	began := time.Now()
	j, err := o.planMeasure()
	if err != nil {
		return err
	}
	dir, err := conformRuns.NewFolder(o.out, began)
	if err != nil {
		return err
	}
	if o.mustUnshare() {
		return runUnshared(cmd, args, dir)
	}
	out := cmd.OutOrStdout()
	if o.json {
		out = io.Discard
	}
	j.Dir, j.Started = dir, began
	j.Show = conform.NewDisplay(report.DisplayConfig{Out: uncleaned(out), Status: uncleaned(cmd.ErrOrStderr()), Total: len(j.Devices)}, false)
	defer j.Show.Close()
	run := &conform.Run{
		Version: conform.Version, Tool: report.ToolVersion(), Command: o.measureCommand(j.Seed), Seed: j.Seed,
		Started: began, Machine: report.ThisMachine(), Tier: o.on, Part: true,
	}
	var failed error
	for _, d := range j.Devices {
		r := d.Report()
		j.Show.Start(d.Name)
		var err error
		r.Measured, err = j.Measure(cmd.Context(), d)
		j.Show.End(d.Name)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("measure %s: %w", r.Label(), err))
		}
		run.Devices = append(run.Devices, r)
	}
	run.Wall = time.Since(began)
	return errors.Join(o.finish(cmd, run, j), failed)
}

// measureCommand is the command line that repeats the run.
func (o *conformOptions) measureCommand(seed uint64) string {
	return o.addConditions(cmdline.NewLine(o.program+" conform measure").Flag("device", o.devices...), seed).String()
}
