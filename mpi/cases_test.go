package mpi_test

import (
	"maps"
	"slices"
	"testing"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/mpi"
)

// part selects cases of TestConformanceCases; by default every seventh one runs.
var part = testutil.PartFlag()

// The conformance cases hold for any order of events: on a fabric that delivers at random
// times, without credits, without NIC atomics, and with every rank in a goroutine.
func TestConformanceCases(t *testing.T) {
	all := configurations()
	names := slices.Sorted(maps.Keys(all))
	for i, c := range cases.Cases() {
		if !part.Sample(i, 7) {
			continue
		}
		name := names[i%len(names)]
		if cases.NeedsBackground(&c) {
			name = "rget background"
		}
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel() // some cases sleep
			one := map[string]mpi.Options{name: all[name]}
			runConfigurations(t, one, c.Setup.Ranks, func(w *mpi.World) error { return cases.RunOn(&c, cases.On(w)) })
		})
	}
}
