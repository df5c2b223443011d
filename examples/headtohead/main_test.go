package main

import (
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/lab/mpihost"
)

// Long messages deadlock in each run, and short ones in none.
func TestExchange(t *testing.T) {
	for bytes, want := range map[int]string{100: "", 100_000: "deadlock: sends head to head"} {
		x := mpihost.Exploration{Fabric: mpihost.Fabric{Ranks: 2}, Misuse: true, Explore: explore.Options{Seed: 1, MaxRuns: 20}}
		mpihost.UseFewBuffers(&x.Options.Carrier)
		report, err := x.Run(t.Context(), exchange(bytes))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if f := report.Failure; f != nil && len(f.Findings) == 1 {
			got = f.Findings[0].Kind
		}
		if got != want {
			t.Errorf("%d bytes: %q, want %q: %+v", bytes, got, want, report.Failure)
		}
	}
}
