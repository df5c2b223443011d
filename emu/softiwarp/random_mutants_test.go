package softiwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/flaw"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// TestFlawsAreFoundAtRandom proves that the randomised test can fail: with each of
// these flaws, some seed among the first hundred must end in a violation.
func TestFlawsAreFoundAtRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("a world is one goroutine: the race detector finds nothing in it that TestRandomPair does not show it")
	}
	both := func(q Quirks) [2]Quirks { return [2]Quirks{q, q} }
	for _, mutant := range []struct {
		name   string
		quirks [2]Quirks
		flaws  flaw.Quirks // of the first
	}{
		{name: "CRC not checked", quirks: both(Quirks{MPA: mpa.Quirks{CRCIgnored: true}})},
		{name: "CRC in the wrong order", quirks: [2]Quirks{{MPA: mpa.Quirks{CRCBigEndian: true}}, {}}},
		{name: "CRC without the marker before the length", flaws: flaw.Quirks{CRCSkipsMarker: true}},
		{name: "markers drift", quirks: [2]Quirks{{MPA: mpa.Quirks{MarkersDrift: true}}, {}}},
		{name: "a cut trailer", quirks: [2]Quirks{{MPA: mpa.Quirks{TrailerCut: true}}, {}}},
		{name: "first FPDU stuck", quirks: both(Quirks{MPA: mpa.Quirks{FirstFPDUStuck: true}})},
		{name: "sends overtake reads", quirks: both(Quirks{Stream: iwarp.Lax{SendsOvertake: true}})},
		{name: "a message delivered twice", quirks: both(Quirks{Stream: iwarp.Lax{DeliversTwice: true}})},
		{name: "the last segment first", flaws: flaw.Quirks{TailFirst: true}},
		{name: "a Write placed late", flaws: flaw.Quirks{WritesPlacedLate: true}},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				c := newRandomCase(seed)
				for i := range c.cfg {
					c.cfg[i].NIC.Quirks = mutant.quirks[i]
				}
				c.cfg[0].Flaws = mutant.flaws
				if _, err := c.run(); err != nil {
					t.Logf("found: %v", err)
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}
