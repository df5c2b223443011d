package judge

import (
	"io"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

func TestFaultsOfACase(t *testing.T) {
	d := &conform.Device{Name: "x"}
	r := &conform.Result{ID: "a/b/c", Verdict: conform.Broken, Defective: []conform.Defective{{Defect: "Q", Verdict: conform.Pass}, {Defect: "R", Verdict: conform.Fail}, {Defect: "S", Verdict: conform.Broken, Reason: "panic"}}}
	faults := caseFaults(d, r)
	if len(faults) != 3 || faults[0].Kind != conform.Unsound || faults[1].Defect != "Q" || faults[2].What != "a/b/c: broken with S, which the case should detect: panic" {
		t.Errorf("%+v", faults)
	}
	if r.Verdict = conform.Unsupported; len(caseFaults(d, r)) != 0 {
		t.Error("a case that is not supported has something to prove")
	}
}

// A defect that no case detects is a fault, unless all cases that must detect it were left
// out or are unsupported.
func TestUndetectedDefectIsAFault(t *testing.T) {
	dangerous := ""
	for _, suite := range SuitesOf(conformance.RoCE) {
		for i := range suite.Cases {
			if c := &suite.Cases[i]; c.Dangerous() && dangerous == "" {
				dangerous = DefectName(c.Defects[0])
			}
		}
	}
	device := func() *conform.Device {
		return &conform.Device{
			Name:    "softroce",
			Results: []conform.Result{{ID: "a/b/asked", Verdict: conform.Pass}, {ID: "a/b/unasked", Verdict: conform.Unsupported}},
			DefectChecks: []conform.DefectCheck{
				{Defect: "Noticed", Expects: []string{"a/b/asked"}, Caught: []string{"a/b/asked"}},
				{Defect: "Unnoticed", Expects: []string{"a/b/asked"}, Does: "wrong"},
				{Defect: "Nobodys", Does: "wrong"},
				{Defect: "Unasked", Expects: []string{"a/b/unasked"}},
				{Defect: dangerous},
			},
		}
	}
	show := conform.NewDisplay(report.DisplayConfig{Out: io.Discard, Status: io.Discard}, false)
	defer show.Close()
	for _, everything := range []bool{false, true} {
		j := &Judge{Options: Options{Dangerous: everything}, Show: show}
		d := device()
		run := &conform.Run{Devices: []conform.Device{*d}, Faults: j.uncaughtDefects(&Device{Name: "softroce", Protocol: conformance.RoCE}, d)}
		var red []string
		for _, f := range run.Faults {
			red = append(red, f.Defect)
		}
		want := []string{"Unnoticed", "Nobodys"}
		if everything {
			want = append(want, dangerous)
		}
		if !slices.Equal(red, want) || d.DefectChecks[3].Excused == "" || (d.DefectChecks[4].Excused == "") != everything {
			t.Errorf("dangerous cases %v: %q are red, want %q; %+v", everything, red, want, d.DefectChecks)
		}
		if run.Good() {
			t.Error("the run is good")
		}
	}
}
