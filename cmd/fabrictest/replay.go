package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// replayOptions are those of `fabrictest replay`.
type replayOptions struct {
	program string
	out     string
	on      []string
	capture captureMode
	all     bool
}

func newReplayCommand(program string) *cobra.Command {
	return newReplayCommandOf(&replayOptions{program: program, capture: captureFull})
}

func newReplayCommandOf(o *replayOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay RUN [SCENARIO...]",
		Short: "Repeat a saved run, and compare the results",
		Long: `Repeat a saved run with its scenarios and seeds, and compare the results. RUN is its
folder or its result.json; "last" is the latest in the user's cache. Without SCENARIO,
the scenarios that did not pass are run; with --all, all of them.

In simulation the results must be identical, to the last counter; differences are
listed, and are bugs of fabrictest. In namespaces only the verdict is compared. Whole packets are captured unless --capture says otherwise.

To run a scenario with a seed, without a saved run: fabrictest run NAME --seed N.

Exit codes: 0 the results are the same, 1 they differ, 2 wrong arguments; 130 ended by
Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.`,
		Example: `  fabrictest replay last
  fabrictest replay out/ loss-5-percent --on sim
  fabrictest replay result.json --all --out again/`,
		Args:              atLeast(1, `name a run: its folder, or "last" for the latest`),
		ValidArgsFunction: completeRuns,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1:]) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.on, "on", nil, "only what was run on these `TIER`s")
	f.StringVar(&o.out, "out", "", "`FOLDER` for results, to be made (default: in the user's cache)")
	f.Var(&o.capture, "capture", "capture packets: full or none")
	f.BoolVar(&o.all, "all", false, "also what passed")
	_ = cmd.RegisterFlagCompletionFunc("on", fixed("sim", "netns"))
	return cmd
}

func (o *replayOptions) run(cmd *cobra.Command, from string, only []string) error {
	began := time.Now()
	saved, folder, err := savedRun(from)
	if err != nil {
		return err
	}
	picked, err := o.pick(saved, only)
	if err != nil {
		return err
	}
	if len(picked) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Everything passed in that run: --all runs it again all the same.")
		return err
	}
	dir, err := runs.newFolder(o.out, began)
	if err != nil {
		return err
	}
	var tasks []task
	for _, r := range picked {
		s, err := scenarios.Load(regularfile.DirFS(folder), savedScenario("", r.Name))
		if err != nil {
			return fmt.Errorf("the run's own copy of %s: %w", r.Name, err)
		}
		t := task{scenario: s, tier: scenarios.Tier(r.Tier), opts: lab.Options{Seed: r.Seed, Dir: dir, Defects: r.Defects, Netem: r.Netem, Replay: r.Replay}}
		t.opts.Capture = o.capture == captureFull
		tasks = append(tasks, t)
	}
	show := report.NewDisplay(report.DisplayConfig{Out: uncleaned(cmd.OutOrStdout()), Status: uncleaned(cmd.ErrOrStderr()), Total: len(tasks)}, names(tasks))
	defer show.Close()
	run := &report.Run{
		Version: report.Version, Tool: toolVersion(), Command: o.command(from, only), Seed: saved.Seed,
		Started: began, Machine: thisMachine(),
	}
	var ended int
	run.Scenarios, ended = conduct(cmd.Context(), tasks, show)
	run.Wall = time.Since(began)
	paths, err := report.WriteFolder(dir, run)
	if err := errors.Join(err, show.Finish(run, paths)); err != nil {
		return err
	}
	if cmd.Context().Err() != nil {
		return fmt.Errorf("interrupted: %d of %d had ended", ended, len(tasks))
	}
	return compare(cmd.OutOrStdout(), picked, run.Scenarios)
}

// command is the command line that repeats it.
func (o *replayOptions) command(from string, only []string) string {
	words := []string{o.program + " replay", quote(from)}
	for _, name := range only {
		words = append(words, quote(name))
	}
	if len(o.on) > 0 {
		words = append(words, "--on "+strings.Join(o.on, ","))
	}
	if o.all {
		words = append(words, "--all")
	}
	return strings.Join(words, " ")
}

// savedRun reads the result of a run, and says in which folder it lies.
func savedRun(from string) (*report.Run, string, error) {
	if from == "last" {
		folder, err := runs.root()
		if err != nil {
			return nil, "", err
		}
		dirs := runs.ended(folder)
		if len(dirs) == 0 {
			return nil, "", usagef("there is no run in %s", folder)
		}
		from = filepath.Join(folder, dirs[len(dirs)-1])
	}
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		from = filepath.Join(from, resultFile)
	}
	run, err := report.ReadFile(from)
	if err != nil {
		return nil, "", usagef("%w: name the folder of a run, or its %s", err, resultFile)
	}
	return run, filepath.Dir(from), nil
}

// pick chooses what to run again.
func (o *replayOptions) pick(saved *report.Run, only []string) (picked []*report.Result, err error) {
	tiers, err := parseTiers(o.on)
	if err != nil {
		return nil, err
	}
	for i := range saved.Scenarios {
		r := &saved.Scenarios[i]
		switch {
		case r.Verdict == report.Skipped,
			tiers != nil && !slices.Contains(tiers, scenarios.Tier(r.Tier)),
			len(only) > 0 && !matchesAny(only, r.Name),
			len(only) == 0 && !o.all && r.Verdict == report.Passed:
			continue
		}
		picked = append(picked, r)
	}
	if len(picked) == 0 && len(only) > 0 {
		return nil, usagef("the run has no scenario like that; it has %d results", len(saved.Scenarios))
	}
	return picked, nil
}

// compare holds results against those of the saved run.
func compare(w io.Writer, then []*report.Result, now []report.Result) error {
	differ := 0
	for i := range now {
		same, what := sameOutcome(then[i], &now[i])
		if !same {
			differ++
		}
		if _, err := fmt.Fprintf(w, "%s on %s: %s\n", now[i].Name, now[i].Tier, what); err != nil {
			return err
		}
	}
	if differ > 0 {
		return errFailed
	}
	return nil
}

// sameOutcome compares two runs of the same: all of them in simulation, the
// verdict elsewhere.
func sameOutcome(then, now *report.Result) (same bool, what string) {
	if then.Verdict == report.Starved && now.Verdict == report.Passed {
		return true, "the machine was too busy then, and it passed now"
	}
	if then.Verdict != now.Verdict {
		return false, fmt.Sprintf("%s then, %s now", then.Verdict, now.Verdict)
	}
	if then.Tier != string(scenarios.Sim) {
		return true, fmt.Sprintf("%s again", now.Verdict)
	}
	a, b := essence(then), essence(now)
	if a == b {
		return true, fmt.Sprintf("%s again, the same in every figure", now.Verdict)
	}
	return false, fmt.Sprintf("%s again, but figures differ: the run is not reproducible, which is a defect of fabrictest's: please report it with both result.json", now.Verdict)
}

// essence is what must be the same in every run of one seed.
func essence(r *report.Result) string {
	e := *r
	e.Wall, e.Files, e.Replay = 0, nil, ""
	text, _ := json.Marshal(e)
	return string(text)
}
