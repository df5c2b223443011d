package nslab

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

func needNamespaces(t *testing.T) {
	t.Helper()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
}

// run runs a scenario given by its text, or one that ships by its name.
func run(t *testing.T, text string, opts lab.Options) *report.Result {
	t.Helper()
	needNamespaces(t)
	if !strings.Contains(text, "\n") {
		all := must.Get(scenarios.Builtin())(t)
		i := slices.IndexFunc(all, func(s *scenarios.Scenario) bool { return s.Name == text })
		if i < 0 {
			t.Fatalf("no scenario %s", text)
		}
		return runUnstarved(t, all[i], opts)
	}
	s := must.Get(scenarios.Parse("test.yaml", []byte("version: 1\nname: test\ntitle: A test\n"+text)))(t)
	return runUnstarved(t, s, opts)
}

// runUnstarved runs a scenario, and repeats it up to three times while the machine is too busy.
func runUnstarved(t *testing.T, s *scenarios.Scenario, opts lab.Options) *report.Result {
	t.Helper()
	r := Run(t.Context(), s, opts)
	for range 3 {
		if r.Verdict != report.Starved {
			break
		}
		t.Log(r.Reason)
		r = Run(t.Context(), s, opts)
	}
	return r
}

func passed(t *testing.T, r *report.Result) {
	t.Helper()
	if r.Verdict != report.Passed {
		t.Fatalf("%s on %s: %s: %s\n%s", r.Name, r.Tier, r.Verdict, r.Reason, r.Detail)
	}
}

// passesOnce runs a scenario up to four times until it passes. Devices retransmit
// after milliseconds, so that a busy machine may exceed its bounds.
func passesOnce(t *testing.T, name string) {
	t.Helper()
	const tries = 4
	for range tries - 1 {
		r := run(t, name, lab.Options{})
		if r.Verdict == report.Passed {
			return
		}
		t.Logf("%s: %s: %s", name, r.Verdict, r.Reason)
	}
	passed(t, run(t, name, lab.Options{}))
}

// part selects scenarios of TestQuickScenariosPass; by default every sixth one runs.
var part = testutil.PartFlag()

func TestQuickScenariosPass(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the timers of scenarios are too short for ranks under the race detector; other tests cover the same code there")
	}
	needNamespaces(t)
	all := must.Get(scenarios.Builtin())(t)
	n := 0
	for _, s := range all {
		if s.RunsOn(scenarios.NetNS) && slices.Contains(s.Tags, "quick") {
			n++
			if !part.Sample(n, 6) {
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				passesOnce(t, s.Name)
			})
		}
	}
	if n < 5 {
		t.Errorf("only %d scenarios are tagged quick", n)
	}
}

func TestResultHasReportsCountersAndFiles(t *testing.T) {
	dir := t.TempDir()
	r := run(t, "flap-short", lab.Options{Dir: dir, Capture: cli.CaptureAll})
	passed(t, r)
	if len(r.Ranks) != 2 || len(r.Faults) != 1 || r.Faults[0].Recovered == nil {
		t.Fatalf("%d ranks, faults %+v", len(r.Ranks), r.Faults)
	}
	retransmitted := uint64(0)
	for _, k := range r.Ranks {
		retransmitted += k.Resent
		if len(k.Samples) == 0 || len(k.Marks) == 0 || k.MemoryKiB < 1000 || k.State != lab.Finished || *k.ExitCode != 0 {
			t.Errorf("rank %d: %d samples, marks %v, %d KiB, %s", k.Rank, len(k.Samples), k.Marks, k.MemoryKiB, k.State)
		}
		for i := 1; i < len(k.Samples); i++ {
			if k.Samples[i].At < k.Samples[i-1].At || k.Samples[i].Bytes < k.Samples[i-1].Bytes {
				t.Fatalf("rank %d: sample %d decreases", k.Rank, i)
			}
		}
	}
	if retransmitted == 0 {
		t.Error("no retransmission after the link was down")
	}
	for _, l := range r.Links {
		if l.Packets == 0 || l.Bytes == 0 {
			t.Errorf("%s to %s: %+v", l.From, l.To, l)
		}
	}
	captures := 0
	for _, f := range r.Files {
		if _, err := os.Stat(filepath.Join(dir, f.Path)); err != nil {
			t.Error(err)
		}
		if f.Kind == "capture" {
			captures++
		}
	}
	if captures != 2 {
		t.Errorf("files %+v, want the captures of two hosts", r.Files)
	}
}

// The random losses of a port depend on the seed only, on both tiers.
func TestLossIsCounted(t *testing.T) {
	t.Parallel()
	r := run(t, `
fabric: {kind: pair}
impair: [{on: [host0], way: out, loss: 10%}]
workload: {kind: stream, op: send, messages: 400, bytes: 1KiB, timeout: 60ms}
`, lab.Options{Seed: 3})
	passed(t, r)
	out, back := r.Links[0], r.Links[1]
	if out.Lost["loss"] == 0 || len(back.Lost) != 0 || !out.Impaired {
		t.Errorf("lost %v there and %v back", out.Lost, back.Lost)
	}
}

func TestPartitionSeparatesHosts(t *testing.T) {
	t.Parallel()
	r := run(t, `
fabric: {kind: star, hosts: 4}
faults: [{at: 50ms, for: 400ms, do: partition, groups: [[host0, host1], [host2, host3]]}]
workload: {kind: all-to-all, messages: 250, bytes: 1KiB, think: 2ms, timeout: 100ms}
expect: {retransmits: {min: 1}}
`, lab.Options{})
	passed(t, r)
	partitioned := uint64(0)
	for _, l := range r.Links {
		partitioned += l.Lost["partition"]
	}
	if partitioned == 0 {
		t.Errorf("the partition dropped no packet: %+v", r.Links)
	}
}

func TestHungRunReportsRankStates(t *testing.T) {
	t.Parallel()
	r := run(t, `
limit: 700ms
fabric: {kind: pair}
faults: [{at: 100ms, do: down, on: [host0]}]
workload: {kind: stream, op: send, messages: 2000, bytes: 1KiB, think: 1ms, timeout: 1s}
`, lab.Options{})
	if r.Verdict != report.Failed && r.Verdict != report.Starved || !strings.Contains(r.Reason, "700ms") && !strings.Contains(r.Detail, "700ms") && !strings.Contains(r.Reason+r.Detail, "limit") {
		t.Fatalf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
	}
	for _, k := range r.Ranks {
		if k.State != lab.Hung || k.Waiting == "" {
			t.Errorf("rank %d: %s, waiting for %q", k.Rank, k.State, k.Waiting)
		}
	}
}

func TestUnknownDefectIsBroken(t *testing.T) {
	t.Parallel()
	r := run(t, `
fabric: {kind: pair}
nic: {defects: [NoSuchDefect]}
workload: {kind: pingpong, messages: 10}
`, lab.Options{})
	if r.Verdict == report.Passed || !strings.Contains(r.Reason+r.Detail, "NoSuchDefect") {
		t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
	}
}

func TestStarvedRunIsRepeatedOnce(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		verdicts []report.Verdict // of the attempts
		runs     int
		want     report.Verdict
	}{
		{"passed", context.Background(), []report.Verdict{report.Passed}, 1, report.Passed},
		{"failed", context.Background(), []report.Verdict{report.Failed}, 1, report.Failed},
		{"broken", context.Background(), []report.Verdict{report.Broken}, 1, report.Broken},
		{"starved, then passed", context.Background(), []report.Verdict{report.Starved, report.Passed}, 2, report.Passed},
		{"starved, then failed", context.Background(), []report.Verdict{report.Starved, report.Failed}, 2, report.Failed},
		{"starved twice", context.Background(), []report.Verdict{report.Starved, report.Starved}, 2, report.Starved},
		{"starved and interrupted", ended, []report.Verdict{report.Starved}, 1, report.Starved},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs := 0
			r := repeatStarved(c.ctx, func() *report.Result {
				runs++
				return &report.Result{Verdict: c.verdicts[runs-1], Reason: "attempt", Wall: time.Second, Scheduling: &report.Scheduling{Others: 0.5}}
			})
			if r.Verdict != c.want || runs != c.runs || r.Wall != time.Duration(runs)*time.Second {
				t.Errorf("%s after %d runs and %v, want %s after %d", r.Verdict, runs, r.Wall, c.want, c.runs)
			}
			if runs > 1 && (r.First == nil || r.First.Reason != "attempt" || r.First.Wall != time.Second || r.First.Scheduling.Others != 0.5) || runs == 1 && r.First != nil {
				t.Errorf("the first attempt is %+v", r.First)
			}
		})
	}
}
