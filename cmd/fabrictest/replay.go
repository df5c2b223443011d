package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// replayOptions are those of `fabrictest replay`.
type replayOptions struct {
	program string
	out     string
	on      []string
	capture cli.Captures
	all     bool
	trace   bool
	pcap    string
	html    string
}

// newReplayCommand returns the command 'fabrictest replay'.
func newReplayCommand(o *replayOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "replay {RUN | FILE} [SCENARIO...]",
		Short:             "Repeat a saved run, and compare the results",
		Args:              atLeast(1, `name a run: its folder, or "last" for the latest`),
		ValidArgsFunction: completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if files := mpirun.ReplayFiles(args[0]); len(files) > 0 {
				return o.replayFiles(cmd, files)
			}
			return o.run(cmd, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.on, "on", nil, "only what was run on these `TIER`s")
	outFlag(cmd, &o.out)
	captureFlag(cmd, &o.capture, "")
	f.BoolVar(&o.all, "all", false, "also what passed")
	f.BoolVar(&o.trace, "trace", false, "of a run of 'fabrictest explore': print a sequence diagram")
	f.StringVar(&o.html, "html", "", "of a run of 'fabrictest explore': write a page with a sequence diagram to `FILE`")
	f.StringVar(&o.pcap, "pcap", "", "of a run of 'fabrictest explore': write its packets to `FILE`")
	_ = cmd.RegisterFlagCompletionFunc("on", fixed("sim", "netns"))
	return cmd
}

// run repeats scenarios of a saved run, and compares the results. It repeats the named scenarios;
// without names those that failed, or with --all every scenario.
func (o *replayOptions) run(cmd *cobra.Command, from string, names []string) error {
	began := time.Now()
	replay := runner.Replay{Scenarios: names, Passed: o.all}
	var err error
	if replay.Tiers, err = scenarios.ParseTiers(o.on); err != nil {
		return err
	}
	folder := from
	if from == "last" {
		if folder, err = runs.Last(); err != nil {
			return err
		}
	}
	saved, folder, err := runner.ReadRun(folder)
	if err != nil {
		return err
	}
	picked, err := replay.Select(saved)
	if err != nil {
		return err
	}
	if len(picked) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Everything passed in that run: --all runs it again all the same.")
		return err
	}
	dir, err := runs.NewFolder(o.out, began)
	if err != nil {
		return err
	}
	var tasks []runner.Task
	for _, r := range picked {
		t, err := runner.ReplayTask(folder, r, dir, o.capture)
		if err != nil {
			return err
		}
		tasks = append(tasks, t)
	}
	show := report.NewDisplay(report.DisplayConfig{Out: withoutEscapeFilter(cmd.OutOrStdout()), Status: withoutEscapeFilter(cmd.ErrOrStderr()), Total: len(tasks)}, runner.Names(tasks))
	defer show.Close()
	run := report.NewRun(o.command(from, names), saved.Seed, began)
	var ended int
	run.Scenarios, ended = runner.Run(cmd.Context(), tasks, show)
	run.Wall = time.Since(began)
	paths, err := report.WriteFolder(dir, run)
	if err := errors.Join(err, show.Finish(run, paths)); err != nil {
		return err
	}
	if cmd.Context().Err() != nil {
		return fmt.Errorf("interrupted: %d of %d had ended", ended, len(tasks))
	}
	same, err := runner.Compare(cmd.OutOrStdout(), picked, run.Scenarios)
	if err == nil && !same {
		return errFailed
	}
	return err
}

// command is the command line that replays the same scenarios again.
func (o *replayOptions) command(from string, names []string) string {
	return cli.NewLine(o.program+" replay").Args(from).Args(names...).Flag("on", strings.Join(o.on, ",")).Switch("all", o.all).String()
}
