package main

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/lab/mpihost"
)

// The error is found within a few runs. With the status, no run fails.
func TestGather(t *testing.T) {
	for _, usesStatus := range []bool{false, true} {
		x := mpihost.Exploration{Fabric: mpihost.Fabric{Ranks: 3}, Misuse: true, Explore: explore.Options{Seed: 1, MaxRuns: 50}}
		mpihost.UseFewBuffers(&x.Options.Carrier)
		report, err := x.Run(t.Context(), gather(usesStatus))
		switch {
		case err != nil:
			t.Fatal(err)
		case usesStatus && report.Failure != nil:
			t.Errorf("with the status: %v", report.Failure.Err)
		case !usesStatus && (report.Failure == nil || !strings.Contains(report.Failure.Err.Error(), "the result of rank 1 is 20")):
			t.Errorf("without the status: %+v", report.Failure)
		}
	}
}
