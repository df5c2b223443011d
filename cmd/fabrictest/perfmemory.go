package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/work"
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

func newPerfMemoryCommand(program string) *cobra.Command {
	return newPerfMemoryCommandOf(&perfMemory{program: program})
}

func newPerfMemoryCommandOf(o *perfMemory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Measure the communication memory of ranks, by design, pattern and number",
		Long: `Measure how many bytes a rank of the runtime has registered for communication, by
kind, in simulated worlds:

  curves   every design of channels with partners that are few, that grow with the
           logarithm of the ranks, and that are all ranks, against their number
  thesis   connections beside datagrams with CG, MG, LU, SMG and RADIX on 4, 16 and 64
           ranks, equipped as in the dissertation on datagram-iWARP, beside its table
  survey   rings and shared receives with the NAS benchmarks, SuperLU and HPL on 64
           ranks, equipped as in the paper on MVAPICH's eager designs, beside its tables

Where everybody talks to everybody, all ranks are measured up to 64; beyond, one rank that
talks to all others, which has as much: a million connections would not fit.

Everything up to 1024 ranks takes ten minutes or so on two processors, and up to 16 some
seconds. It leaves a folder with ranks.json and report.html, which has the charts.`,
		Example: `  fabrictest perf memory
  fabrictest perf memory --ranks 4,8,16
  fabrictest perf memory --only survey --out survey/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.main(cmd) },
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.ranks, "ranks", []int{4, 8, 16, 32, 64, 128, 256, 512, 1024}, "numbers of ranks")
	f.StringSliceVar(&o.only, "only", nil, "measure `WHAT` only: "+eitherOf(memoryExperiments())+"; may be repeated")
	f.StringSliceVar(&o.designs, "design", nil, "with the design `NAME` only: "+eitherOf(designNames())+"; may be repeated")
	f.StringSliceVar(&o.works, "workload", nil, "with the workload `NAME` only, of those above; may be repeated")
	f.StringVar(&o.seed, "seed", "1", "`N` decides all that happens by chance; \"random\" draws one")
	f.StringVar(&o.out, "out", "", "`FOLDER` for results, to be made (default: in the user's cache)")
	f.BoolVar(&o.json, "json", false, "print ranks.json instead of a table")
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

// plannedMemory is an experiment and the runs that it takes.
type plannedMemory struct {
	work.MemoryExperiment
	runs []work.MemoryRun
}

// plan works out what to run, or says what is wrong with how it was asked.
func (o *perfMemory) plan() (all []plannedMemory, runs int, err error) {
	for _, n := range o.ranks {
		if n < 2 || n > maxRanks {
			return nil, 0, usagef("--ranks %d: give 2 to %d", n, maxRanks)
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
			return nil, 0, usagef("--workload %s: %w", name, err)
		}
	}
	for _, name := range o.designs {
		if _, err := oneOf("design", name, designNames()); err != nil {
			return nil, 0, err
		}
	}
	for _, e := range work.MemoryExperiments() {
		if len(o.only) > 0 && !slices.Contains(o.only, e.Name) {
			continue
		}
		if len(o.designs) > 0 {
			e.Designs = slices.DeleteFunc(e.Designs, func(d carrier.Design) bool { return !slices.Contains(o.designs, string(d)) })
		}
		if len(o.works) > 0 {
			e.Patterns = slices.DeleteFunc(e.Patterns, func(p work.MemoryPattern) bool { return !slices.Contains(o.works, p.Workload) })
		}
		p := plannedMemory{MemoryExperiment: e}
		if p.runs, err = e.Runs(o.ranks); err != nil {
			return nil, 0, err
		}
		if len(p.runs) > 0 {
			all, runs = append(all, p), runs+len(p.runs)
		}
	}
	if runs == 0 {
		return nil, 0, usagef("nothing to measure with --ranks %s: thesis is about 4, 16 and 64 ranks, survey about 64, and each has workloads and designs of its own", rankList(o.ranks))
	}
	return all, runs, nil
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
	dir, err := rankRuns.newFolder(o.out, began)
	if err != nil {
		return err
	}
	run := &ranks.Run{Tool: toolVersion(), Command: o.command(seed), Seed: seed, Started: began, Machine: thisMachine()}
	progress := newPerfProgress(cmd.ErrOrStderr())
	done := 0
	var failed error
	for i := range plan {
		config, err := ranks.ValuesOf(plan[i].Config)
		if err != nil {
			return err
		}
		e := ranks.Experiment{Name: plan[i].Name, Config: config}
		for k := range plan[i].runs {
			if failed == nil {
				r := &plan[i].runs[k]
				progress.report(r.String(), float64(done)/float64(total))
				var p ranks.Point
				if p, failed = measureApart(cmd.Context(), memoryJob{*r, plan[i].Config, seed}); failed == nil {
					e.Points = append(e.Points, p)
				}
				done++
			}
		}
		if len(e.Points) > 0 {
			run.Memory = append(run.Memory, e)
		}
	}
	progress.clear()
	run.Wall = time.Since(began)
	return errors.Join(failed, o.finish(cmd, run, dir))
}

// finish leaves behind what there is, and shows it.
func (o *perfMemory) finish(cmd *cobra.Command, run *ranks.Run, dir string) error {
	paths, err := ranks.WriteFolder(dir, run)
	if o.json {
		return errors.Join(err, ranks.Write(cmd.OutOrStdout(), run))
	}
	out := cmd.OutOrStdout()
	for i := range run.Memory {
		printMemory(out, &run.Memory[i])
	}
	if paths.HTML != "" {
		fmt.Fprintln(out, "report:", paths.HTML)
	}
	return err
}

// printMemory prints the bytes a rank of an experiment: a line for each pattern and
// design, a column for each number of ranks.
func printMemory(w io.Writer, e *ranks.Experiment) {
	type line struct{ pattern, design string }
	var lines []line
	var counts []int
	cells := map[line]map[int]string{}
	for i := range e.Points {
		p := &e.Points[i]
		l := line{p.Workload, p.Design}
		if cells[l] == nil {
			cells[l] = map[int]string{}
			lines = append(lines, l)
		}
		if !slices.Contains(counts, p.Ranks) {
			counts = append(counts, p.Ranks)
		}
		cells[l][p.Ranks] = units.Bytes(uint64(p.Bytes.Mean))
	}
	slices.Sort(counts)
	fmt.Fprintf(w, "%-26s", e.Name+": a rank, on average")
	for _, n := range counts {
		fmt.Fprintf(w, " %9d", n)
	}
	fmt.Fprintln(w)
	last := ""
	for _, l := range lines {
		name := l.pattern
		if name == last {
			name = ""
		}
		last = l.pattern
		fmt.Fprintf(w, "  %-10s %-13s", name, l.design)
		for _, n := range counts {
			fmt.Fprintf(w, " %9s", cells[l][n])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// command is the command line that repeats it.
func (o *perfMemory) command(seed uint64) string {
	words := []string{o.program + " perf memory --ranks " + rankList(o.ranks)}
	for _, name := range o.only {
		words = append(words, "--only "+name)
	}
	for _, name := range o.designs {
		words = append(words, "--design "+name)
	}
	for _, name := range o.works {
		words = append(words, "--workload "+name)
	}
	if seed != 1 {
		words = append(words, fmt.Sprintf("--seed %d", seed))
	}
	return strings.Join(words, " ")
}

func rankList(all []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]")
}
