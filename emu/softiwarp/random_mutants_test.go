package softiwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// TestFlawsAreFoundAtRandom proves that the randomised test can fail: with each of
// these flaws, some seed among the first hundred must end in a violation.
func TestFlawsAreFoundAtRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("a world is one goroutine: the race detector finds nothing in it that TestRandomPair does not show it")
	}
	both := func(q Quirks) [2]Quirks { return [2]Quirks{q, q} }
	for _, flaw := range []struct {
		name   string
		quirks [2]Quirks
	}{
		{"CRC not checked", both(Quirks{MPA: mpa.Quirks{CRCIgnored: true}})},
		{"CRC in the wrong order", [2]Quirks{{MPA: mpa.Quirks{CRCBigEndian: true}}, {}}},
		{"CRC without the marker before the length", [2]Quirks{{MPA: mpa.Quirks{CRCSkipsMarker: true}}, {}}},
		{"markers drift", [2]Quirks{{MPA: mpa.Quirks{MarkersDrift: true}}, {}}},
		{"a cut trailer", [2]Quirks{{MPA: mpa.Quirks{TrailerCut: true}}, {}}},
		{"handed up before the check", both(Quirks{MPA: mpa.Quirks{HandsUpFirst: true}})},
		{"first FPDU stuck", both(Quirks{MPA: mpa.Quirks{FirstFPDUStuck: true}})},
		{"sends overtake reads", both(Quirks{Stream: iwarp.Lax{SendsOvertake: true}})},
	} {
		t.Run(flaw.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				c := newRandomCase(seed)
				for i := range c.cfg {
					c.cfg[i].NIC.Quirks = flaw.quirks[i]
				}
				if _, err := c.run(); err != nil {
					t.Logf("found: %v", err)
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}
