package softiwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects/iwarpwire"
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// TestRandomPairFindsDefects proves that the randomised test can fail: with each of
// these wireDefects, some seed among the first hundred must end in a violation.
func TestRandomPairFindsDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("a simulation runs one goroutine at a time: under the race detector TestRandomPair covers the same code")
	}
	both := func(q Defects) [2]Defects { return [2]Defects{q, q} }
	for _, defect := range []struct {
		name        string
		defects     [2]Defects
		wireDefects iwarpwire.Defects // of the first
	}{
		{name: "CRC not checked", defects: both(Defects{MPA: mpa.Defects{CRCIgnored: true}})},
		{name: "CRC in the wrong order", defects: [2]Defects{{MPA: mpa.Defects{CRCBigEndian: true}}, {}}},
		{name: "CRC without the marker before the length", wireDefects: iwarpwire.Defects{CRCSkipsMarker: true}},
		{name: "markers drift", defects: [2]Defects{{MPA: mpa.Defects{MarkersDrift: true}}, {}}},
		{name: "a cut trailer", defects: [2]Defects{{MPA: mpa.Defects{TrailerCut: true}}, {}}},
		{name: "first FPDU stuck", defects: both(Defects{MPA: mpa.Defects{FirstFPDUStuck: true}})},
		{name: "sends overtake reads", defects: both(Defects{Stream: iwarp.Defects{SendsOvertake: true}})},
		{name: "a message delivered twice", defects: both(Defects{Stream: iwarp.Defects{DeliversTwice: true}})},
		{name: "the last segment first", wireDefects: iwarpwire.Defects{TailFirst: true}},
		{name: "a Write placed late", wireDefects: iwarpwire.Defects{WritesPlacedLate: true}},
	} {
		t.Run(defect.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				c := newRandomCase(seed)
				for i := range c.cfg {
					c.cfg[i].NIC.Defects = defect.defects[i]
				}
				c.cfg[0].Defects = defect.wireDefects
				if _, err := c.run(); err != nil {
					t.Logf("found: %v", err)
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}
