package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/perf/record"
)

// readRun reads a recorded run: a file, or a folder whose files are repetitions of one run.
func readRun(name string) (*record.Run, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, &cmdline.Error{Err: err}
	}
	files := []string{name}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(name, "*")); err != nil || len(files) == 0 {
			return nil, cmdline.Errorf("%s has no files", name)
		}
	}
	runs, err := readRuns(files)
	if err != nil {
		return nil, err
	}
	runs[0].Merge(runs[1:]...)
	return runs[0], nil
}

// readRuns reads a run from each file.
func readRuns(files []string) (runs []*record.Run, err error) {
	for _, f := range files {
		r, err := record.ReadFile(f)
		if err != nil {
			return nil, &cmdline.Error{Err: err}
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// newPerfImportCommand is `fabrictest perf import`.
func newPerfImportCommand() *cobra.Command {
	var asGo bool
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Convert the output of perftest, OSU, IMB or Go benchmarks to a recorded run",
		Args:  atLeast(1, "name the files with the output of a benchmark"),
		RunE: func(cmd *cobra.Command, args []string) error {
			runs, err := readRuns(args)
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

// newPerfCompareCommand is `fabrictest perf compare`.
func newPerfCompareCommand() *cobra.Command {
	var o record.Options
	var floor float64
	cmd := &cobra.Command{
		Use:   "compare BEFORE AFTER",
		Short: "Compare two recorded runs, such as those of two firmware versions",
		Args:  cobra.MatchAll(atLeast(2, "name two runs: files, or folders with a file for each repetition"), cobra.MaximumNArgs(2)),
	}
	cmd.Flags().Float64Var(&floor, "floor", 2, "`PERCENT` of difference that do not matter")
	return withJSON(cmd, "print the comparison as JSON", func(_ *cobra.Command, args []string) (listing, error) {
		if !(floor >= 0 && floor < 100) {
			return listing{}, cmdline.Errorf("--floor %v: give 0 to 100", floor)
		}
		before, err := readRun(args[0])
		if err != nil {
			return listing{}, err
		}
		after, err := readRun(args[1])
		if err != nil {
			return listing{}, err
		}
		o.Floor = max(floor/100, 1e-9) // 0 would be the default
		c, err := record.Compare(before, after, o)
		if err != nil {
			return listing{}, cmdline.Errorf("%s and %s: %w", args[0], args[1], err)
		}
		return listing{value: c, write: c.WriteTable, failed: c.Counts()[record.Worse] > 0}, nil
	})
}

// newPerfHistoryCommand is `fabrictest perf history`.
func newPerfHistoryCommand() *cobra.Command {
	var floor float64
	cmd := &cobra.Command{
		Use:   "history RUN...",
		Short: "Find the runs of a history since which a figure has changed",
		Args:  atLeast(1, "name the files of the runs, in any order"),
	}
	cmd.Flags().Float64Var(&floor, "floor", 2, "`PERCENT` of change that do not matter")
	return withJSON(cmd, "print the changes as JSON", func(_ *cobra.Command, args []string) (listing, error) {
		runs, err := readRuns(args)
		if err != nil {
			return listing{}, err
		}
		ordered, changes := record.History(runs, floor/100)
		return listing{value: changes, write: func(w io.Writer) error { return record.WriteHistory(w, ordered, changes) }}, nil
	})
}
