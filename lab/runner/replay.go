package runner

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// ReadRun reads the result of a run from path, its folder or result.json, and returns the folder.
func ReadRun(path string) (run *report.Run, folder string, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, report.ResultFile)
	}
	if run, err = report.ReadFile(path); err != nil {
		return nil, "", cli.Errorf("%w: name the folder of a run, or its %s", err, report.ResultFile)
	}
	return run, filepath.Dir(path), nil
}

// Replay selects results of a saved run to be repeated.
type Replay struct {
	Scenarios []string         // patterns of names; empty for all
	Tiers     []scenarios.Tier // empty for all
	Passed    bool             // repeat scenarios that passed, too, if none is named
}

// Select returns the results of a saved run to repeat: those that match the names and tiers (sim,
// netns). Without names it omits scenarios that passed, unless r.Passed is set. It omits all
// skipped ones.
func (r *Replay) Select(saved *report.Run) (selected []*report.Result, err error) {
	for i := range saved.Scenarios {
		res := &saved.Scenarios[i]
		switch {
		case res.Verdict == report.Skipped,
			r.Tiers != nil && !slices.Contains(r.Tiers, scenarios.Tier(res.Tier)),
			len(r.Scenarios) > 0 && !scenarios.MatchesAny(r.Scenarios, res.Name),
			len(r.Scenarios) == 0 && !r.Passed && res.Verdict == report.Passed:
			continue
		}
		selected = append(selected, res)
	}
	if len(selected) == 0 && len(r.Scenarios) > 0 {
		return nil, cli.Errorf("no scenario of the run matches; the run has %d results", len(saved.Scenarios))
	}
	return selected, nil
}

// ReplayTask returns a task that runs the scenario of a saved result again, with the same seed,
// defects and options. folder, that of the saved run, has a copy of the scenario. The task
// writes its files to dir, with captures of packets as capture says.
func ReplayTask(folder string, r *report.Result, dir string, capture cli.Captures) (Task, error) {
	s, err := scenarios.Load(cli.DirFS(folder), scenarioFile("", r.Name))
	if err != nil {
		return Task{}, fmt.Errorf("the copy of scenario %s in the run's folder: %w", r.Name, err)
	}
	return Task{Scenario: s, Tier: scenarios.Tier(r.Tier), Options: lab.Options{
		Seed: r.Seed, Dir: dir, Defects: r.Defects, Netem: r.Netem, Replay: r.Replay, Capture: capture,
	}}, nil
}

// Compare compares the results of a replay with those of the saved run, by index. It prints a line
// for each, and reports whether all are the same.
func Compare(w io.Writer, saved []*report.Result, replayed []report.Result) (same bool, err error) {
	same = true
	for i := range replayed {
		equal, comparison := sameOutcome(saved[i], &replayed[i])
		same = same && equal
		if _, err := fmt.Fprintf(w, "%s on %s: %s\n", replayed[i].Name, replayed[i].Tier, comparison); err != nil {
			return false, err
		}
	}
	return same, nil
}

// sameOutcome reports whether a scenario that was run again had the same result as before, and
// describes the comparison. In simulation every figure must be the same, in namespaces only the
// verdict. A scenario that starved before, because the host was too busy, may also pass now.
func sameOutcome(saved, replayed *report.Result) (same bool, text string) {
	if saved.Verdict == report.Starved && replayed.Verdict == report.Passed {
		return true, "the machine was too busy then, and the scenario passed now"
	}
	if saved.Verdict != replayed.Verdict {
		return false, fmt.Sprintf("%s then, %s now", saved.Verdict, replayed.Verdict)
	}
	if saved.Tier != string(scenarios.Sim) {
		return true, fmt.Sprintf("%s again", replayed.Verdict)
	}
	a, b := reproduciblePart(saved), reproduciblePart(replayed)
	if a == b {
		return true, fmt.Sprintf("%s again, the same in every figure", replayed.Verdict)
	}
	return false, fmt.Sprintf("%s again, but figures differ: the run is not reproducible, which is a bug of fabrictest: please report it with both result.json files", replayed.Verdict)
}

// reproduciblePart returns the part of a result that depends on the seed alone, as JSON.
func reproduciblePart(r *report.Result) string {
	part := *r
	part.Wall, part.Files, part.Replay = 0, nil, ""
	text, _ := json.Marshal(part)
	return string(text)
}
