package main

import (
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
)

// The program is robust only with the flush.
func TestPass(t *testing.T) {
	for flushes, want := range map[bool]mpihost.Verdict{false: mpihost.NotRobust, true: mpihost.Robust} {
		x := mpihost.Exploration{Fabric: mpihost.Fabric{Ranks: 2}, Explore: explore.Options{Seed: 1, MaxRuns: 12}, ShrinkRuns: -1}
		x.Options.Progress = mpi.Background
		mpihost.UseFewBuffers(&x.Options.Carrier)
		robust, report, err := x.Robust(t.Context(), pass(flushes))
		if err != nil {
			t.Fatal(err)
		}
		if robust.Verdict != want {
			t.Errorf("with a flush %v: %s, want %s: %+v", flushes, robust.Verdict, want, report.Failure)
		}
	}
}
