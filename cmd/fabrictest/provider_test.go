package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Scenarios that a provider cannot run are skipped with a reason. The run passes, also with --on.
func TestRunSkipsScenariosThatProviderCannotRun(t *testing.T) {
	run := runJSON(t, "run", "pingpong", "clean-ud", "slow-receiver", "--on", "sim", "--provider", "softiwarp")
	for _, r := range run.Scenarios {
		want, why := report.Skipped, map[string]string{"clean-ud": "soft-iWARP has no ud", "slow-receiver": "receivers post late"}[r.Name]
		if r.Name == "pingpong" {
			want = report.Passed
			if r.Ranks[0].Counters["conns_established"] != 1 {
				t.Errorf("not over iWARP: %v", r.Ranks[0].Counters)
			}
		}
		if r.Verdict != want || !strings.Contains(r.Reason, why) || !strings.Contains(r.Replay, "--provider softiwarp") || r.Provider != "softiwarp" {
			t.Errorf("%s: %s, %q; replay command %s", r.Name, r.Verdict, r.Reason, r.Replay)
		}
	}
	if !strings.Contains(run.Command, "--provider softiwarp") {
		t.Errorf("the command of the run is %s", run.Command)
	}
}

// On dgiwarp, scenarios without a service use rd, and scenarios that need connections are skipped.
func TestRunUsesReliableDatagramsByDefault(t *testing.T) {
	run := runJSON(t, "run", "pingpong", "clean-ud", "slow-receiver", "clean-rc", "qp-error-reconnect", "--on", "sim", "--provider", "dgiwarp")
	for _, r := range run.Scenarios {
		want, why := report.Passed, map[string]string{
			"clean-rc":           "datagram-iWARP has no rc: there are no connections, and its reliable service is rd",
			"qp-error-reconnect": "it reconnects, and datagram-iWARP has no connections",
		}[r.Name]
		if why != "" {
			want = report.Skipped
		}
		if r.Verdict != want || r.Reason != why || r.Provider != "dgiwarp" {
			t.Errorf("%s with %s: %s, %q", r.Name, r.Provider, r.Verdict, r.Reason)
			continue
		}
		if reliable := r.Name == "pingpong" || r.Name == "slow-receiver"; want == report.Passed && reliable != (r.Ranks[0].Counters["rd_peers_made"] == 1) {
			t.Errorf("%s: %v", r.Name, r.Ranks[0].Counters)
		}
	}
}

// Replay uses the provider of the run.
func TestReplayKeepsProvider(t *testing.T) {
	dir := t.TempDir() + "/run"
	if code, out, stderr := call(t, "run", "clean-rc", "--on", "sim", "--provider", "softiwarp", "--capture", "none", "--out", dir); code != exitOK {
		t.Fatalf("%s%s", out, stderr)
	}
	if code, out, _ := call(t, "replay", dir, "--all", "--capture", "none"); code != exitOK || !strings.Contains(out, "the same in every figure") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestDefectSkipsScenariosOfOtherProviders(t *testing.T) {
	run := runJSON(t, "run", "pingpong", "iwarp-killed", "--on", "sim", "--defect", "MSSRoundedDown")
	for _, r := range run.Scenarios {
		if want := map[string]report.Verdict{"pingpong": report.Skipped, "iwarp-killed": report.Passed}[r.Name]; r.Verdict != want {
			t.Errorf("%s: %s, %s", r.Name, r.Verdict, r.Reason)
		}
	}
}

func TestListNamesIncompatibleScenarios(t *testing.T) {
	_, out, _ := call(t, "list", "scenarios", "pingpong", "clean-ud", "--provider", "softiwarp")
	wantIn(t, out, "pingpong  Ping-pong", "1 scenarios.", "1 make no sense with these NICs:\nclean-ud  soft-iWARP has no ud\n")
	_, out, _ = call(t, "list", "scenarios", "iwarp-clean", "clean-ud", "--json")
	var all []lab.ListedScenario
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range all {
		if want := map[string]string{"iwarp-clean": "softiwarp", "clean-ud": "softroce"}[s.Name]; s.Provider != want || s.Unfit != "" {
			t.Errorf("%+v", s)
		}
	}
}

// expectedRows are rows of the ledger by the result of their cases on a profile, with reasons.
type expectedRows struct {
	Fail    []string          `yaml:"fail"`
	Also    map[string]string `yaml:"also"`
	Unasked map[string]string `yaml:"unasked"`
}

// names reports whether a row is one of w.
func (w *expectedRows) names(row string) bool {
	_, also := w.Also[row]
	_, unasked := w.Unasked[row]
	return also || unasked || slices.Contains(w.Fail, row)
}

// sample returns one of every n rows.
func (w *expectedRows) sample(n int) expectedRows {
	some := expectedRows{Also: map[string]string{}, Unasked: map[string]string{}}
	for i, row := range w.Fail {
		if i%n == 0 {
			some.Fail = append(some.Fail, row)
		}
	}
	for i, row := range slices.Sorted(maps.Keys(w.Also)) {
		if i%n == 0 {
			some.Also[row] = w.Also[row]
		}
	}
	for i, row := range slices.Sorted(maps.Keys(w.Unasked)) {
		if i%n == 0 {
			some.Unasked[row] = w.Unasked[row]
		}
	}
	return some
}

var everyProfileCase = flag.Bool("profiles", false, "run all cases with each profile, not only those of some rows in testdata/profiles.yaml")

// A device with the profile of a kernel fails the rows that the kernel violates. Other rows that
// fail are listed with a reason. Without -profiles, only cases of every fourth listed row run.
func TestProfilesFailTheRowsOfTheirKernels(t *testing.T) {
	t.Parallel()
	program, cache := testProgram(t), t.TempDir()
	b := must.Get(os.ReadFile("testdata/profiles.yaml"))(t)
	all := make(map[string]expectedRows)
	must.Do(t, yaml.Unmarshal(b, &all))
	for name, known := range all {
		t.Run(name, func(t *testing.T) {
			want := known
			if !*everyProfileCase {
				want = known.sample(4)
			}
			cmd := exec.Command(program, append(append([]string{"conform", "--json", "--capture", "none"}, casesOf(t, name, &want)...),
				"--as", name, "--without", "slow")...)
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
			out, err := cmd.Output()
			run, errRead := conform.Read(bytes.NewReader(out))
			if errRead != nil {
				t.Fatalf("%v, %v", err, errRead)
			}
			failed := failedRows(run)
			for _, row := range want.Fail {
				if failed[row] == "" {
					t.Errorf("%s passes, but the kernel violates it: does a defect do too little?", row)
				}
			}
			for row, why := range want.Unasked {
				if failed[row] != "" {
					t.Errorf("%s is tested by a case: move it to fail (%s)", row, why)
				}
			}
			for row, why := range want.Also {
				if failed[row] == "" {
					t.Errorf("%s passes: delete it from also (%s)", row, why)
				}
			}
			for row, how := range failed {
				if _, also := known.Also[row]; !also && !slices.Contains(known.Fail, row) {
					t.Errorf("%s fails, but the kernel does not violate it: a defect does too much, or a case requires more than the row: %s", row, how)
				}
			}
		})
	}
	for _, p := range nics.Profiles() {
		if _, ok := all[p.Name]; !ok && p.Name != "siw-6.1" {
			t.Errorf("testdata/profiles.yaml has no %s", p.Name)
		}
	}
	// The profiles of both versions of siw are the same.
	a, errA := nics.FindProfile("siw-6.1")
	c, errC := nics.FindProfile("siw-6.12")
	if errA != nil || errC != nil || !slices.Equal(a.Defects, c.Defects) || !reflect.DeepEqual(a.Restrictions, c.Restrictions) {
		t.Error("siw-6.1 and siw-6.12 differ: testdata/profiles.yaml needs both")
	}
}

// slowCase takes a third of the time of all cases, and fails on none of the profiles.
const slowCase = "cm/life/thousands-of-connections-leave-no-residue"

// casesOf returns the cases for the protocol of a profile, without slowCase and without dialogues,
// which do not tell the rows that they cover apart.
func casesOf(t *testing.T, profile string, want *expectedRows) (ids []string) {
	t.Helper()
	p := must.Get(nics.FindProfile(profile))(t)
	provider := must.Get(nics.Find(p.Provider))(t)
	for _, suite := range judge.SuitesOf(provider.Protocol) {
		for i := range suite.Cases {
			c := &suite.Cases[i]
			if c.ID != slowCase && !strings.HasPrefix(c.ID, "dialogue/") && (*everyProfileCase || slices.ContainsFunc(c.Cite.Rows, want.names)) {
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// failedRows returns the rows with a failed case, and the reason.
func failedRows(run *conform.Run) map[string]string {
	rows := make(map[string]string)
	for _, r := range run.Bad() {
		for _, row := range r.Rows {
			rows[row] = strings.TrimSpace(rows[row] + " " + r.ID + ": " + r.Reason)
		}
	}
	return rows
}
