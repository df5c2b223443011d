package main

import (
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/lab/mpihost"
)

// The deadlock is found with both calls. With one order of the locks, no run fails.
func TestCount(t *testing.T) {
	for _, sameOrder := range []bool{false, true} {
		x := mpihost.Exploration{Fabric: mpihost.Fabric{Ranks: 2}, Misuse: true, Explore: explore.Options{Seed: 1, MaxRuns: 30}, ShrinkRuns: -1}
		mpihost.UseFewBuffers(&x.Options.Carrier)
		report, err := x.Run(t.Context(), count(sameOrder))
		if err != nil {
			t.Fatal(err)
		}
		var findings []explore.Finding
		if report.Failure != nil {
			findings = report.Failure.Findings
		}
		switch {
		case sameOrder && report.Failure != nil:
			t.Errorf("with one order: %v", report.Failure.Err)
		case !sameOrder && (len(findings) != 1 || findings[0].Kind != "deadlock: window locks" || len(findings[0].Places) != 2):
			t.Errorf("with opposite orders: %+v", report.Failure)
		}
	}
}
