package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
)

// Times and folders differ from run to run.
var (
	wallTime   = regexp.MustCompile(`in [0-9.]+ m?s\.`)
	reportPath = regexp.MustCompile(`Report: .*`)
)

func TestRunIsGolden(t *testing.T) {
	code, out, stderr := call(t, "run", "clean-rc", "exact-drops", "flap-short", "--on", "sim", "--seed", "7", "--capture", "none")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, stderr %q\n%s", code, stderr, out)
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\r") {
		t.Error("colours without a terminal")
	}
	lines := strings.SplitAfter(out, "\n")
	head, rows, rest := lines[0], lines[1:4], lines[4:]
	// Scenarios run concurrently, and are printed when they end.
	slices.Sort(rows)
	text := head + strings.Join(rows, "") + strings.Join(rest, "")
	golden(t, "run", reportPath.ReplaceAllString(wallTime.ReplaceAllString(text, "in a moment."), "Report: …"))
}

// The README shows what simulated scenarios print: the same seed gives the same figures.
func TestREADMEShowsSimulatedResults(t *testing.T) {
	readme := must.Get(os.ReadFile("../../README.md"))(t)
	shown := regexp.MustCompile(`(?m)^ok +(\S+) +sim .*$`).FindAllSubmatch(readme, -1)
	if len(shown) == 0 {
		t.Error("the README shows no result")
	}
	for _, line := range shown {
		_, out, _ := call(t, "run", string(line[1]), "--on", "sim", "--capture", "none")
		got := strings.Join(strings.Fields(out), " ")
		if want := strings.Join(strings.Fields(string(line[0])), " "); !strings.Contains(got, want) {
			t.Errorf("the README shows\n%s\nwhich is not in\n%s", line[0], out)
		}
	}
}

// A run writes its results, captures and scenarios, from which replay repeats it.
func TestRunFolderCanBeReplayed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, out, _ := call(t, "run", "exact-drops", "defect-caught", "--on", "sim", "--defect", "AckCompletesRead", "--out", dir)
	if code != exitFailed && code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	for _, name := range []string{"result.json", "junit.xml", "report.html", "scenarios/exact-drops.yaml", "exact-drops-sim/capture.pcapng.gz"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	run, err := report.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil || len(run.Scenarios) != 2 {
		t.Fatalf("%+v, %v", run, err)
	}
	code, out, stderr := call(t, "replay", dir, "--all", "--capture", "none")
	if strings.Count(out, "the same in every figure") != 2 {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	// Replay detects a changed result.
	text := must.Get(os.ReadFile(filepath.Join(dir, "result.json")))(t)
	other := strings.Replace(string(text), `"messages":`, `"messages":1`, 1)
	must.Do(t, os.WriteFile(filepath.Join(dir, "result.json"), []byte(other), 0o666))
	code, out, _ = call(t, "replay", filepath.Join(dir, "result.json"), "--all", "--capture", "none")
	if code != exitFailed || !strings.Contains(out, "figures differ") {
		t.Errorf("a changed result: exit code %d\n%s", code, out)
	}
	if code, _, stderr := call(t, "run", "pingpong", "--out", dir); code != exitUsage || !strings.Contains(stderr, "is not empty") {
		t.Errorf("into a folder in use: exit code %d, %q", code, stderr)
	}
}

func TestFailedRunPrintsReplayCommand(t *testing.T) {
	code, out, _ := call(t, "run", "loss-5-percent", "--on", "sim", "--defect", "AckCompletesRead", "--capture", "none")
	if code != exitFailed || !strings.Contains(out, "FAIL") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	wantIn(t, out, "--defect AckCompletesRead", cli.GoRun+" run loss-5-percent --on sim --seed", "report.html")
}

func TestRunPrintsJSON(t *testing.T) {
	code, out, stderr := call(t, "run", "pingpong", "--on", "sim", "--json", "--seed", "random", "--messages", "50")
	var run report.Run
	if err := json.Unmarshal([]byte(out), &run); err != nil || code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, %q: %v\n%s", code, stderr, err, out)
	}
	if run.Seed == 0 || run.Scenarios[0].Seed != run.Seed || !strings.Contains(run.Scenarios[0].Replay, "--messages 50") {
		t.Errorf("%+v", run)
	}
}

func TestRunInNamespaces(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	run := runJSON(t, "run", "pingpong", "peer-killed", "--on", "netns")
	for _, r := range run.Scenarios {
		if r.Tier != "netns" || len(r.Ranks) != 2 || r.Ranks[0].MemoryKiB == 0 || len(r.Files) == 0 {
			t.Errorf("%s: %+v", r.Name, r)
		}
	}
}

// Replay uses --netem if the run did, also if the kernel has no netem.
func TestReplayKeepsNetem(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	call(t, "run", "pingpong", "--netem", "--capture", "none", "--out", dir)
	again := filepath.Join(t.TempDir(), "again")
	call(t, "replay", dir, "--all", "--capture", "none", "--out", again)
	for _, dir := range []string{dir, again} {
		run, err := report.ReadFile(filepath.Join(dir, "result.json"))
		if err != nil || len(run.Scenarios) != 2 {
			t.Fatalf("%+v, %v", run, err)
		}
		for _, r := range run.Scenarios {
			if want := r.Tier == "netns"; r.Netem != want || strings.HasSuffix(r.Replay, " --netem") != want {
				t.Errorf("in %s: netem %v, replay command %s", r.Tier, r.Netem, r.Replay)
			}
		}
		if dir != again && !strings.HasSuffix(run.Command, " --netem") {
			t.Errorf("the command of the run is %s", run.Command)
		}
	}
}

func TestRunWithManySeedsCountsFailures(t *testing.T) {
	code, out, stderr := call(t, "run", "clean-rc", "exact-drops", "--seeds", "3", "--seed", "7")
	// On a slow machine, progress is printed.
	stderr = regexp.MustCompile(`(?m)^\d of 6 runs, seed \d, 0 failed, about .* left\n`).ReplaceAllString(stderr, "")
	if code != exitOK || stderr != "" || !strings.HasPrefix(out, "6 runs of 2 scenarios with seeds 7 to 9 in ") || !strings.HasSuffix(out, ": 0 failed.\n") {
		t.Errorf("exit code %d, stderr %q\n%s", code, stderr, out)
	}
}

// Each failed seed is printed with a command that fails for the same reason.
func TestRunWithManySeedsPrintsReplayCommands(t *testing.T) {
	code, out, _ := call(t, "run", "loss-5-percent", "--seeds", "2", "--defect", "AckCompletesRead", "--messages", "50")
	failed := regexp.MustCompile(`(?m)^FAILED  loss-5-percent with seed (\d+): (.*)$`).FindAllStringSubmatch(out, -1)
	if code != exitFailed || len(failed) == 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	for _, f := range failed {
		seed, reason := f[1], f[2]
		replay := "run loss-5-percent --on sim --seed " + seed + " --messages 50 --defect AckCompletesRead"
		if !strings.Contains(out, cli.GoRun+" "+replay+"\n") {
			t.Errorf("seed %s has no command that repeats it:\n%s", seed, out)
		}
		code, again, _ := call(t, append(strings.Fields(replay), "--capture", "none", "--json")...)
		if code != exitFailed || !strings.Contains(again, strings.SplitN(reason, " ", 2)[0]) {
			t.Errorf("seed %s failed: %q; its command gives another result (exit code %d)", seed, reason, code)
		}
	}
}

// A starved run has its own exit code, unless a scenario failed.
func TestStarvedRunHasItsOwnExitCode(t *testing.T) {
	for _, c := range []struct {
		verdicts []report.Verdict
		want     error
	}{
		{[]report.Verdict{report.Passed}, nil},
		{[]report.Verdict{report.Passed, report.Starved}, exitError(exitStarved)},
		{[]report.Verdict{report.Starved, report.Failed}, errFailed},
		{[]report.Verdict{report.Starved, report.Broken}, errFailed},
	} {
		run := &report.Run{}
		for _, v := range c.verdicts {
			run.Scenarios = append(run.Scenarios, report.Result{Verdict: v})
		}
		o := &runOptions{}
		if err := o.verdict(context.Background(), run, len(c.verdicts), len(c.verdicts), 0); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.verdicts, err, c.want)
		}
	}
}
