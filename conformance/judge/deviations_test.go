package judge_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A deviation of an unknown case would never become stale.
func TestDeviationsNameCases(t *testing.T) {
	known := make(map[string]bool)
	for _, c := range allCases() {
		known[c.ID] = true
	}
	files := must.Get(filepath.Glob(ledgerDir + "/deviations/*.yaml"))(t)
	if len(files) < 4 {
		t.Errorf("only %d files of deviations", len(files))
	}
	for _, file := range files {
		all := 0
		for _, tier := range conformance.Tiers() {
			of := must.Get(conformance.DeviationsOf(strings.TrimSuffix(filepath.Base(file), ".yaml"), tier))(t)
			all += len(of)
			for id := range of {
				if !known[id] {
					t.Errorf("%s: unknown case %s", file, id)
				}
			}
		}
		if all == 0 {
			t.Errorf("%s: no deviation on any tier", file)
		}
	}
}
