package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

func TestCaseFaults(t *testing.T) {
	d := &conform.Device{Name: "x"}
	r := &conform.Result{ID: "a/b/c", Verdict: conform.Broken, Defective: []conform.Defective{{Defect: "Q", Verdict: conform.Pass}, {Defect: "R", Verdict: conform.Fail}, {Defect: "S", Verdict: conform.Broken, Reason: "panic"}}}
	faults := caseFaults(d, r)
	if len(faults) != 3 || faults[0].Kind != conform.Unsound || faults[1].Defect != "Q" || faults[2].What != "a/b/c: broken with S, which the case should detect: panic" {
		t.Errorf("%+v", faults)
	}
	for _, v := range []conform.Verdict{conform.Unsupported, conform.Starved} {
		if r.Verdict = v; len(caseFaults(d, r)) != 0 {
			t.Errorf("a case that is %s has faults", v)
		}
	}
}

// A defect that no case detects is a fault, unless no case that must detect it was judged.
func TestUndetectedDefectIsFault(t *testing.T) {
	d := &conform.Device{
		Name:    "softroce",
		Results: []conform.Result{{ID: "a/b/passed", Verdict: conform.Pass}, {ID: "a/b/unsupported", Verdict: conform.Unsupported}, {ID: "a/b/starved", Verdict: conform.Starved}},
		DefectChecks: []conform.DefectCheck{
			{Defect: "Detected", Expects: []string{"a/b/passed"}, Caught: []string{"a/b/passed"}},
			{Defect: "Undetected", Expects: []string{"a/b/passed"}, Does: "wrong", Tried: 1},
			{Defect: "NotNamed", Does: "wrong"},
			{Defect: "OnlyUnsupported", Expects: []string{"a/b/unsupported", "a/b/starved"}},
		},
	}
	var notes strings.Builder
	show := conform.NewDisplay(report.DisplayConfig{Out: &notes, Status: &notes}, false)
	run := &conform.Run{Devices: []conform.Device{*d}, Faults: (&Judge{Show: show}).uncaughtDefects(d)}
	var uncaught []string
	for _, f := range run.Faults {
		uncaught = append(uncaught, f.Defect)
		if want := "no case detects Undetected: wrong"; f.Defect == "Undetected" && f.What != want || f.Defect == "NotNamed" && !strings.HasPrefix(f.What, "no case names NotNamed") {
			t.Errorf("%s: %s", f.Defect, f.What)
		}
	}
	if want := []string{"Undetected", "NotNamed"}; !slices.Equal(uncaught, want) || d.DefectChecks[3].Excused == "" {
		t.Errorf("%q are uncaught, want %q; %+v", uncaught, want, d.DefectChecks)
	}
	if run.Good() {
		t.Error("the run is good")
	}
	show.Close()
	if want := "softroce: no case detects OnlyUnsupported: a/b/unsupported, a/b/starved should detect it"; !strings.Contains(notes.String(), want) {
		t.Errorf("notes %q, want %q", notes.String(), want)
	}
}
