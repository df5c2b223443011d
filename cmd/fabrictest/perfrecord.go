package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/experiment"
	"github.com/fabrictest/fabrictest/perf/record"
	"github.com/fabrictest/fabrictest/report"
)

// newPerfImportCommand returns the command `fabrictest perf import`.
func newPerfImportCommand() *cobra.Command {
	var asGo bool
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Convert the output of perftest, OSU, IMB or Go benchmarks to a recorded run",
		Args:  atLeast(1, "name the files with the output of a benchmark"),
		RunE: func(cmd *cobra.Command, args []string) error {
			runs, err := record.LoadAll(args)
			if err != nil {
				return err
			}
			runs[0].Merge(runs[1:]...)
			if asGo {
				return runs[0].WriteGo(cmd.OutOrStdout())
			}
			return runs[0].Write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asGo, "go", false, "print Go's benchmark format, for benchstat")
	return cmd
}

// newPerfCompareCommand returns the command `fabrictest perf compare`.
func newPerfCompareCommand() *cobra.Command {
	var o record.Options
	var floor float64
	var page string
	cmd := &cobra.Command{
		Use:   "compare BEFORE AFTER",
		Short: "Compare two recorded runs, such as those of two firmware versions",
		Args:  cobra.MatchAll(atLeast(2, "name two runs: files, or folders with a file for each repetition"), cobra.MaximumNArgs(2)),
	}
	cmd.Flags().Float64Var(&floor, "floor", 2, "`PERCENT` of difference that do not matter")
	pageFlag(cmd, &page)
	return withJSON(cmd, "print the comparison as JSON", func(_ *cobra.Command, args []string) (listing, error) {
		if !(floor >= 0 && floor < 100) {
			return listing{}, cli.Errorf("--floor %v: give 0 to 100", floor)
		}
		before, err := record.Load(args[0])
		if err != nil {
			return listing{}, err
		}
		after, err := record.Load(args[1])
		if err != nil {
			return listing{}, err
		}
		o.Floor = max(floor/100, 1e-9) // 0 would be the default
		c, err := record.Compare(before, after, o)
		if err != nil {
			return listing{}, cli.Errorf("%s and %s: %w", args[0], args[1], err)
		}
		err = cli.WriteFile(page, func(w io.Writer) error { return report.WriteComparison(w, c, before, after, args[0], args[1]) })
		return listing{value: c, write: c.WriteTable, failed: c.Counts()[record.Worse] > 0}, err
	})
}

// newPerfHistoryCommand returns the command `fabrictest perf history`.
func newPerfHistoryCommand() *cobra.Command {
	var floor float64
	var page string
	cmd := &cobra.Command{
		Use:   "history RUN...",
		Short: "Find the runs of a history since which a figure has changed",
		Args:  atLeast(1, "name the files of the runs, in any order"),
	}
	cmd.Flags().Float64Var(&floor, "floor", 2, "`PERCENT` of change that do not matter")
	pageFlag(cmd, &page)
	return withJSON(cmd, "print the changes as JSON", func(_ *cobra.Command, args []string) (listing, error) {
		runs, err := record.LoadAll(args)
		if err != nil {
			return listing{}, err
		}
		ordered, changes := record.History(runs, floor/100)
		err = cli.WriteFile(page, func(w io.Writer) error { return report.WriteHistory(w, ordered, changes) })
		return listing{value: changes, write: func(w io.Writer) error { return record.WriteHistory(w, ordered, changes) }}, err
	})
}

// pageFlag adds --html to a command.
func pageFlag(cmd *cobra.Command, page *string) {
	cmd.Flags().StringVar(page, "html", "", "also write a page with charts to `FILE`")
}

// newPerfGateCommand returns the command `fabrictest perf gate`.
func newPerfGateCommand() *cobra.Command {
	var update bool
	cmd := &cobra.Command{Use: "gate", Short: "Compare simulated times and numbers of events with the record in the sources", Args: cobra.NoArgs}
	cmd.Flags().BoolVar(&update, "update", false, "write the new record, in a clone of the sources")
	return withJSON(cmd, "print the differences as JSON", func(*cobra.Command, []string) (listing, error) {
		d, err := experiment.Gate(update)
		if err != nil {
			return listing{}, err
		}
		return listing{value: d, write: d.WriteText, failed: !d.Same() && !update}, nil
	})
}

// newPerfCheckCommand returns the command `fabrictest perf check`.
func newPerfCheckCommand() *cobra.Command {
	var o experiment.CheckOptions
	cmd := &cobra.Command{
		Use: "check --against PLATFORM|RUN RUN", Short: "Check a recorded run against the model of its platform, or an earlier run",
		Args: cobra.MatchAll(atLeast(1, "name a run"), cobra.MaximumNArgs(1)),
	}
	cmd.Flags().StringVar(&o.Against, "against", "", "`NAME` of a platform, or a file of a platform (.yaml) or run")
	cmd.Flags().Float64Var(&o.Percent, "band", 0, "`PERCENT` by which a series may differ (default: 15 from a platform, 2 from a run)")
	_ = cmd.MarkFlagRequired("against")
	return withJSON(cmd, "print all series as JSON", func(_ *cobra.Command, args []string) (listing, error) {
		c, err := o.Run(args[0])
		if err != nil {
			return listing{}, err
		}
		return listing{value: c, write: c.WriteText, failed: len(c.Outside()) > 0}, nil
	})
}

// newPerfFitCommand returns the command `fabrictest perf fit`.
func newPerfFitCommand() *cobra.Command {
	var o experiment.FitOptions
	cmd := &cobra.Command{Use: "fit --platform NAME RUN...", Short: "Fit the parameters of a platform to measured curves", Args: atLeast(1, "name recorded runs")}
	cmd.Flags().StringVar(&o.Platform, "platform", "", "`NAME` or file of the platform to begin with")
	cmd.Flags().StringSliceVar(&o.Parameters, "parameter", nil, "fit the parameter `NAME`; may be repeated (default: those that were fitted before)")
	cmd.Flags().StringVar(&o.Out, "out", "", "write the platform to `FILE`")
	_ = cmd.MarkFlagRequired("platform")
	return withJSON(cmd, "print the fit as JSON", func(_ *cobra.Command, args []string) (listing, error) {
		f, err := o.Run(args)
		if err != nil {
			return listing{}, err
		}
		return listing{value: f, write: f.WriteText}, nil
	})
}
