package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// perfMemory is `fabrictest perf memory`.
type perfMemory struct {
	ranks   []int
	only    []string
	designs []string
	works   []string
	out     string
	seed    string
	json    bool
	program string // how we were called
}

func newPerfMemoryCommand(o *perfMemory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Measure the communication memory of ranks, by design, pattern and number",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.main(cmd) },
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.ranks, "ranks", []int{4, 8, 16, 32, 64, 128, 256, 512, 1024}, "numbers of ranks")
	f.StringSliceVar(&o.only, "only", nil, "measure `WHAT` only: "+cmdline.Choices(memoryExperiments())+"; may be repeated")
	f.StringSliceVar(&o.designs, "design", nil, "with the design `NAME` only: "+cmdline.Choices(designNames())+"; may be repeated")
	f.StringSliceVar(&o.works, "workload", nil, "with the workload `NAME` only, of those above; may be repeated")
	seedFlag(cmd, &o.seed, "1", "happens", "")
	outFlag(cmd, &o.out)
	jsonFlag(cmd, &o.json, "print ranks.json instead of a table")
	_ = cmd.RegisterFlagCompletionFunc("design", fixed(designNames()...))
	_ = cmd.RegisterFlagCompletionFunc("only", fixed(memoryExperiments()...))
	return cmd
}

func memoryExperiments() (names []string) {
	for _, e := range work.MemoryExperiments() {
		names = append(names, e.Name)
	}
	return names
}

// plan checks the flags, and returns the experiments with the number of all runs.
func (o *perfMemory) plan() (all []work.PlannedMemory, runs int, err error) {
	for _, n := range o.ranks {
		if n < 2 || n > maxRanks {
			return nil, 0, cmdline.Errorf("--ranks %d: give 2 to %d", n, maxRanks)
		}
	}
	slices.Sort(o.ranks)
	o.ranks = slices.Compact(o.ranks)
	for _, name := range o.only {
		if _, err := oneOf("only", name, memoryExperiments()); err != nil {
			return nil, 0, err
		}
	}
	for _, name := range o.works {
		if _, err := work.Find(name); err != nil {
			return nil, 0, cmdline.Errorf("--workload %s: %w", name, err)
		}
	}
	for _, name := range o.designs {
		if _, err := oneOf("design", name, designNames()); err != nil {
			return nil, 0, err
		}
	}
	all, err = work.MemorySelection{Experiments: o.only, Designs: o.designs, Workloads: o.works}.Plan(o.ranks)
	for i := range all {
		runs += len(all[i].Runs)
	}
	if err == nil && runs == 0 {
		err = cmdline.Errorf("nothing to measure with --ranks %s: thesis is about 4, 16 and 64 ranks, survey about 64, and each has workloads and designs of its own", rankList(o.ranks))
	}
	return all, runs, err
}

func (o *perfMemory) main(cmd *cobra.Command) error {
	began := time.Now()
	seed, err := parseSeed(o.seed, 1)
	if err != nil {
		return err
	}
	plan, total, err := o.plan()
	if err != nil {
		return err
	}
	dir, err := rankRuns.NewFolder(o.out, began)
	if err != nil {
		return err
	}
	run := &ranks.Run{Tool: report.ToolVersion(), Command: o.command(seed), Seed: seed, Started: began, Machine: report.ThisMachine()}
	progress := newProgressLine(cmd.ErrOrStderr())
	done := 0
	var failed error
	for i := range plan {
		config, err := ranks.ValuesOf(plan[i].Config)
		if err != nil {
			return err
		}
		e := ranks.Experiment{Name: plan[i].Name, Config: config}
		for k := range plan[i].Runs {
			if failed == nil {
				r := &plan[i].Runs[k]
				progress.Report(r.String(), float64(done)/float64(total))
				var p ranks.Point
				if p, failed = mpirun.MeasureMemory(cmd.Context(), mpirun.MemoryJob{Run: *r, Config: plan[i].Config, Seed: seed}); failed == nil {
					e.Points = append(e.Points, p)
				}
				done++
			}
		}
		if len(e.Points) > 0 {
			run.Memory = append(run.Memory, e)
		}
	}
	progress.Clear()
	run.Wall = time.Since(began)
	return errors.Join(failed, o.finish(cmd, run, dir))
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

// command is the command line that repeats it.
func (o *perfMemory) command(seed uint64) string {
	l := cmdline.NewLine(o.program+" perf memory").Flag("ranks", rankList(o.ranks)).Flag("only", o.only...).Flag("design", o.designs...).Flag("workload", o.works...)
	if seed != 1 {
		l.Flag("seed", fmt.Sprint(seed))
	}
	return l.String()
}

func rankList(all []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]")
}
