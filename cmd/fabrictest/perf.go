package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/experiment"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report/ranks"
	"github.com/fabrictest/fabrictest/scenarios"
)

// newPerfCommand returns the command `fabrictest perf`.
func newPerfCommand(program string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure latency, bandwidth, rates and memory of NICs and of MPI, and compare results",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// hidden returns the command of a process that a measurement starts with args, such as "perf
	// lab-process".
	hidden := func(args []string, main func() error) *cobra.Command {
		name := args[len(args)-1]
		return &cobra.Command{
			Use: name, Hidden: true, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return main() },
		}
	}
	cmd.AddCommand(
		newPerfBenchCommand(perf.Lat, "Measure the latency of messages, as ib_send_lat does"),
		newPerfBenchCommand(perf.BW, "Measure the bandwidth of messages, as ib_write_bw does"),
		newPerfBenchCommand(perf.MsgRate, "Measure the rate of small messages"),
		newPerfBenchCommand(perf.Register, "Measure the time to register and deregister memory"),
		newMeasureCommand("quick", "Measure soft-RoCE beside plain UDP, in less than a minute", perflab.Quick),
		newMeasureCommand("iwarp", "Measure soft-iWARP beside plain TCP, and datagram-iWARP, in about a minute", perflab.IWARP),
		newPerfMemoryCommand(&perfMemory{program: program}), newPerfScaleCommand(),
		newPerfImportCommand(), newPerfCompareCommand(), newPerfHistoryCommand(), newPerfSensitivityCommand(),
		newPerfGateCommand(), newPerfFitCommand(), newPerfCheckCommand(),
		hidden(perflab.LabArgs, perflab.LabMain), hidden(perflab.HostArgs, perflab.HostMain), hidden(perflab.ScaleArgs, perflab.ScaleMain),
	)
	return cmd
}

// newMeasureCommand returns the command `fabrictest perf NAME`, which prints the result of measure,
// and fails if a target is missed.
func newMeasureCommand(name, short string, measure func(context.Context, perflab.Options) (*perf.Result, error)) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
	return withJSON(cmd, "print the result, with every sample, as JSON", func(cmd *cobra.Command, _ []string) (listing, error) {
		progress := newProgressLine(cmd.ErrOrStderr())
		result, err := measure(cmd.Context(), perflab.Options{Progress: progress.Report})
		progress.Clear()
		if err != nil {
			return listing{}, err
		}
		return listing{value: result, write: result.WriteTable, failed: result.Verdict() == perf.Missed}, nil
	})
}

// newPerfSensitivityCommand returns the command `fabrictest perf sensitivity`.
func newPerfSensitivityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sensitivity SCENARIO",
		Short: "Show which parameters of a platform change the figures of an experiment",
		Args:  cobra.MatchAll(atLeast(1, "name a scenario with an experiment"), cobra.MaximumNArgs(1)), ValidArgsFunction: completeScenarios,
	}
	var seedText string
	seedFlag(cmd, &seedText, "1", "happens", "")
	return withJSON(cmd, printsJSON, func(cmd *cobra.Command, args []string) (listing, error) {
		seed, err := cli.ParseSeed(seedText, defaultSeed)
		if err != nil {
			return listing{}, err
		}
		chosen, err := scenarios.FindExperiment(args[0])
		if err != nil {
			return listing{}, err
		}
		progress := newProgressLine(cmd.ErrOrStderr())
		s, err := experiment.Measure(cmd.Context(), chosen, seed, progress.Report)
		progress.Clear()
		if err != nil {
			return listing{}, err
		}
		return listing{value: s, write: s.WriteTable}, nil
	})
}

// newPerfScaleCommand returns the command `fabrictest perf scale`.
func newPerfScaleCommand() *cobra.Command {
	var o perflab.ScalePlan
	var gib uint64
	var page string
	cmd := &cobra.Command{Use: "scale", Short: "Measure CPU time and memory of simulations by their size, with exponents", Args: cobra.NoArgs}
	f := cmd.Flags()
	f.StringSliceVar(&o.Only, "only", nil, "measure the `CURVE` only: "+cli.Choices(perflab.ScaleCurveNames())+"; may be repeated")
	f.DurationVar(&o.Time, "time", 2*time.Minute, "leave out points that do not fit into this `TIME` of the processor in all")
	f.Uint64Var(&gib, "memory", 4, "leave out points that need more `GIB` of memory")
	f.IntVar(&o.Repeat, "repeat", 1, "measure each point so often: 'perf compare' needs five samples")
	pageFlag(cmd, &page)
	completeFlag(cmd, "only", fixed(perflab.ScaleCurveNames()...))
	return withJSON(cmd, "print a recorded run, for 'perf compare'", func(cmd *cobra.Command, _ []string) (l listing, err error) {
		progress := newProgressLine(cmd.ErrOrStderr())
		o.Progress, o.Memory = progress.Report, gib<<30
		r, err := o.Run(cmd.Context())
		progress.Clear()
		if err != nil {
			return l, err
		}
		return listing{value: &r.Run, write: r.WriteTable}, cli.WriteFile(page, r.WritePage)
	})
}

// perfMemory is `fabrictest perf memory`.
type perfMemory struct {
	mpirun.MemoryPlan
	out, seed string
	json      bool
	program   string // how we were called
}

// newPerfMemoryCommand returns the command 'fabrictest perf memory'.
func newPerfMemoryCommand(o *perfMemory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Measure the communication memory of ranks, by design, pattern and number",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.main(cmd) },
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Ranks, "ranks", []int{4, 8, 16, 32, 64, 128, 256, 512, 1024}, "numbers of ranks")
	f.StringSliceVar(&o.Experiments, "only", nil, "measure `WHAT` only: "+cli.Choices(mpirun.MemoryExperiments())+"; may be repeated")
	f.StringSliceVar(&o.Designs, "design", nil, "with the design `NAME` only: "+cli.Choices(mpirun.Designs())+"; may be repeated")
	f.StringSliceVar(&o.Workloads, "workload", nil, "with the workload `NAME` only, of those above; may be repeated")
	seedFlag(cmd, &o.seed, "1", "happens", "")
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print ranks.json instead of a table")
	_ = cmd.RegisterFlagCompletionFunc("design", fixed(mpirun.Designs()...))
	_ = cmd.RegisterFlagCompletionFunc("only", fixed(mpirun.MemoryExperiments()...))
	return cmd
}

// main measures the selected experiments and writes a report.
func (o *perfMemory) main(cmd *cobra.Command) (err error) {
	began := time.Now()
	if o.Seed, err = cli.ParseSeed(o.seed, defaultSeed); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	dir, err := rankRuns.NewFolder(o.out, began)
	if err != nil {
		return err
	}
	run := ranks.NewRun(o.command(o.Seed), o.Seed, began)
	progress := newProgressLine(cmd.ErrOrStderr())
	run.Memory, err = o.Measure(cmd.Context(), progress.Report)
	progress.Clear()
	run.Wall = time.Since(began)
	return errors.Join(err, o.finish(cmd, run, dir))
}

// finish writes the result files and prints the results.
func (o *perfMemory) finish(cmd *cobra.Command, run *ranks.Run, dir string) error {
	paths, err := ranks.WriteFolder(dir, run)
	if o.json {
		return errors.Join(err, ranks.Write(cmd.OutOrStdout(), run))
	}
	out := cmd.OutOrStdout()
	for i := range run.Memory {
		run.Memory[i].WriteTable(out)
	}
	if paths.HTML != "" {
		fmt.Fprintln(out, "report:", paths.HTML)
	}
	return err
}

// command is the command line that repeats the measurement.
func (o *perfMemory) command(seed uint64) string {
	l := cli.NewLine(o.program+" perf memory").Flag("ranks", o.RankList()).Flag("only", o.Experiments...).Flag("design", o.Designs...).Flag("workload", o.Workloads...)
	if seed != defaultSeed {
		l.Flag("seed", fmt.Sprint(seed))
	}
	return l.String()
}
