package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// exploreOptions are those of `fabrictest explore`.
type exploreOptions struct {
	run         mpirun.Config
	settings    mpirun.Settings
	search      mpihost.ExploreJob
	seed, order string
	placement   string
	buffers     string
	out         string
}

// Values of --order and --buffers.
const (
	orderKept, orderSprayed    = "in-order", "sprayed"
	buffersFew, buffersDefault = "few", "default"
)

// sprayBound is how many packets may overtake another with --order sprayed.
const sprayBound = 4

// newExploreCommand returns the command 'fabrictest explore'.
func newExploreCommand(o *exploreOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "explore -n RANKS {PROGRAM | WORKLOAD} [ARGUMENT...]",
		Short:             "Search the schedules of a multi-rank program for one that fails",
		ValidArgsFunction: completeWorkloads,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.main(cmd, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // words after the program are its arguments
	f.IntVarP(&o.run.Ranks, "ranks", "n", 2, "how many ranks")
	f.IntVar(&o.run.PerHost, "per-host", 1, "ranks on each host")
	f.IntVar(&o.run.Rails, "rails", 1, "NICs of each host, each on a subnet of its own")
	choiceFlag(cmd, &o.search.Strategy, "strategy", explore.PCT, "`NAME`: "+cli.Choices(explore.Strategies()), explore.Strategies()...)
	f.IntVar(&o.search.Depth, "depth", 0, "`N` of pct: one more than the changes of priority (default: 3); of exhaustive: the choices that differ from the first run (default: no limit)")
	f.IntVar(&o.search.Runs, "runs", 0, "at most `N` runs (default: 10000, or no limit with --time)")
	f.DurationVar(&o.search.Time, "time", 0, "stop after `TIME`")
	f.IntVar(&o.search.Faults, "faults", 0, "in each run up to `N` packets are lost, duplicated or overtaken")
	choiceFlag(cmd, &o.order, "order", orderKept, "`ORDER` of the packets of a link: "+orderKept+", or "+orderSprayed+" as by adaptive routing", orderKept, orderSprayed)
	f.DurationVar(&o.search.Reorder, "reorder", 2*time.Microsecond, "events and ranks whose times differ by up to `TIME` may come in any order")
	choiceFlag(cmd, &o.placement, "placement", sim.Strict.String(), "`ORDER` in which the writes of a NIC become visible in memory: strict; relaxed, where only completions, READs and atomics come after them; weakest, where pieces of 64 bytes have no order and atomics overtake them", sim.Placements()...)
	f.BoolVar(&o.search.Robust, "robust", false, "compare the results with those under --order in-order --placement strict (without these options: those under --order sprayed --placement relaxed)")
	f.BoolVar(&o.search.Misuse, "misuse", true, "fail runs that break rules of MPI: mismatched calls, leaked requests, deadlocks")
	f.BoolVar(&o.search.Races, "races", false, "also fail runs with data races of windows and buffers")
	f.IntVar(&o.search.Parallel, "parallel", 0, "`N` runs at a time (default: 1 for programs, which may have global variables; the processors for workloads)")
	f.IntVar(&o.search.ShrinkRuns, "shrink", 0, "shrink a failing path with at most `N` runs (default: 2000); -1: do not")
	choiceFlag(cmd, &o.buffers, "buffers", buffersFew, "`AMOUNT` of the runtime: "+buffersFew+", which makes runs fast, or "+buffersDefault, buffersFew, buffersDefault)
	providerFlag(cmd, &o.run.Provider, nics.Default, "the NICs are those of", "")
	f.IntVar(&o.run.MTU, "mtu", 0, "largest IP packet, in `BYTES` (default: 4200)")
	seedFlag(cmd, &o.seed, "1", "is chosen", "")
	choiceFlag(cmd, &o.settings.Design, "design", "", "`NAME`: "+cli.Choices(mpirun.Designs())+" (default: what suits the NICs)", mpirun.Designs()...)
	choiceFlag(cmd, &o.settings.Protocol, "protocol", "", "of large messages, `NAME`: "+cli.Choices(mpirun.Protocols())+" (default: "+mpirun.Protocols()[0]+")", mpirun.Protocols()...)
	choiceFlag(cmd, &o.settings.Progress, "progress", "", "`MODE`: "+cli.Choices(mpirun.ProgressModes())+" (default: "+mpirun.ProgressModes()[0]+")", mpirun.ProgressModes()...)
	f.IntVar(&o.settings.EagerLimit, "eager", 0, "`BYTES` of the largest message that is sent eagerly (default: what the buffers hold)")
	f.DurationVar(&o.run.Limit, "limit", 0, "virtual `TIME` after which a run counts as hung (default: 1m)")
	f.StringVar(&o.out, "out", "", "`FILE` for a run that fails (default: PROGRAM"+mpirun.ReplaySuffix+")")
	return cmd
}

// main explores a program, and prints the result.
func (o *exploreOptions) main(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Errorf("name a program or a workload, as in 'fabrictest explore -n 2 ./my-ranks'")
	}
	if err := o.apply(args); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintln(out, o.describe(args))
	result, err := mpirun.Explore(cmd.Context(), o.run, func(string) {}, func(p explore.Progress) {
		fmt.Fprintln(cmd.ErrOrStderr(), "  "+exploredCounts(&p.Counts, p.Elapsed))
	})
	if err != nil {
		return err
	}
	if result.Robust != nil {
		return o.printRobust(out, args, result)
	}
	return o.print(out, args, result)
}

// apply checks the flags and makes the job.
func (o *exploreOptions) apply(args []string) (err error) {
	s := &o.search
	for _, n := range []struct {
		flag     string
		value    int
		min, max int
	}{
		{"depth", s.Depth, 0, 1 << 20},
		{"runs", s.Runs, 0, 1 << 40},
		{"faults", s.Faults, 0, 1 << 20},
		{"parallel", s.Parallel, 0, 1 << 10},
		{"shrink", s.ShrinkRuns, -1, 1 << 40},
	} {
		if n.value < n.min || n.value > n.max {
			return cli.Errorf("--%s %d: give %d to %d", n.flag, n.value, n.min, n.max)
		}
	}
	if s.Reorder < 0 || s.Time < 0 {
		return cli.Errorf("--reorder and --time cannot be negative")
	}
	if s.Reorder == 0 {
		s.Reorder = -1 // 0 would be the default
	}
	if _, err := mpirun.ChoiceIndex("strategy", s.Strategy, explore.Strategies()); err != nil {
		return err
	}
	order, err := mpirun.ChoiceIndex("order", o.order, []string{orderKept, orderSprayed})
	if err != nil {
		return err
	}
	s.Spray = order * sprayBound
	if err := s.Placement.UnmarshalText([]byte(o.placement)); err != nil {
		return cli.Errorf("--%w", err)
	}
	buffers, err := mpirun.ChoiceIndex("buffers", o.buffers, []string{buffersFew, buffersDefault})
	if err != nil {
		return err
	}
	if s.Robust && s.Spray == 0 && s.Placement == sim.Strict {
		o.order, s.Spray, o.placement, s.Placement = orderSprayed, sprayBound, sim.Relaxed.String(), sim.Relaxed
	}
	if s.Runs == 0 && s.Time == 0 {
		s.Runs = 10_000
	}
	s.Output = s.Robust && !mpirun.IsWorkload(args[0]) // workloads print times
	if s.Parallel == 0 {
		s.Parallel = 1
		if mpirun.IsWorkload(args[0]) {
			s.Parallel = runtime.GOMAXPROCS(0)
		}
	}
	if o.run.Seed, err = cli.ParseSeed(o.seed, defaultSeed); err != nil {
		return err
	}
	o.settings.Loss, o.settings.On, o.settings.FewBuffers = "0%", mpirun.Tiers()[0], buffers == 0
	if err := o.settings.Apply(&o.run); err != nil {
		return err
	}
	o.run.Explore = s
	o.run.Args, err = mpirun.RankArgs(args, o.run.Ranks, o.run.Seed)
	return err
}

// describe says what is explored.
func (o *exploreOptions) describe(args []string) string {
	limit := cli.Plural(o.search.Runs, "run")
	if o.search.Time > 0 {
		limit = o.search.Time.String()
	}
	return fmt.Sprintf("Exploring %s on %s: %s for %s, links %s, placement %s, up to %s, events within %v in any order",
		cli.Join(args), cli.Plural(o.run.Ranks, "rank"), o.search.Strategy, limit, o.order, o.placement, cli.Plural(o.search.Faults, "fault"), max(o.search.Reorder, 0))
}

// exploredCounts are the numbers of an exploration, in one line.
func exploredCounts(c *explore.Counts, elapsed time.Duration) string {
	text := fmt.Sprintf("%s in %.1f s (%.0f/s), %s, up to %s", cli.Plural(c.Runs, "run"), elapsed.Seconds(), float64(c.Runs)/elapsed.Seconds(),
		cli.Plural(c.Outcomes, "distinct outcome"), cli.Plural(c.Deepest, "choice"))
	if c.Queued > 0 {
		return text + fmt.Sprintf("; at least %s left", cli.Plural(c.Queued, "run"))
	}
	return text + fmt.Sprintf("; the next run has a new outcome with probability %.2f", c.Unseen)
}

// print prints the result, and writes the replay file of a run that failed.
func (o *exploreOptions) print(out io.Writer, args []string, r *mpihost.Explored) error {
	fmt.Fprintln(out, exploredCounts(&r.Counts, r.Elapsed))
	if r.Failure == nil {
		switch {
		case r.Finished && o.search.Depth > 0:
			_, err := fmt.Fprintf(out, "No run failed: all runs with up to %d choices that differ from the first were run.\n", o.search.Depth)
			return err
		case r.Finished:
			_, err := fmt.Fprintln(out, "No run failed: all runs were run.")
			return err
		}
		_, err := fmt.Fprintln(out, "No run failed. Not all runs were run.")
		return err
	}
	printFailure(out, r.Failure)
	return o.writeReplay(out, args, r.Failure)
}

// writeReplay writes the replay file of a run that failed. It returns errFailed if it can.
func (o *exploreOptions) writeReplay(out io.Writer, args []string, failure *mpihost.ExploredFailure) error {
	name := cmp.Or(o.out, strings.TrimSuffix(filepath.Base(args[0]), ".exe")+mpirun.ReplaySuffix)
	if err := mpirun.WriteReplay(name, args, o.run.Job, failure); err != nil {
		return err
	}
	fmt.Fprintf(out, "Repeat it with: fabrictest replay %s\n", cli.Quote(name))
	return errFailed
}

// printFailure prints the error of a run that failed, and its choices that are not the default.
func printFailure(out io.Writer, f *mpihost.ExploredFailure) {
	fmt.Fprintf(out, "FAILED: %s\n", f.Error)
	for _, finding := range f.Findings {
		for _, p := range finding.Places {
			fmt.Fprintf(out, "  %s: rank %d, %s at %s:%d\n", finding.Kind, p.Rank, p.Call, p.File, p.Line)
		}
	}
	changes := strings.Count(f.Changes, "\n")
	if changes == 0 {
		fmt.Fprintln(out, "It fails with the default of every choice: in each run of the simulation.")
		return
	}
	fmt.Fprintf(out, "It differs from the default in %s (number, kind, picked/of):\n", cli.Plural(changes, "choice"))
	for line := range strings.Lines(f.Changes) {
		fmt.Fprint(out, "  "+line)
	}
}
