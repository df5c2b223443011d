package runner

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A defect that no device is known to have is never tried, and its case proves nothing.
func TestDevicesHaveDefectsNamedByCases(t *testing.T) {
	all := must.Get((&Selection{}).Devices())(t)
	mutants := 0
	for _, d := range all {
		for i := range d.Known {
			if d.Known[i].Mutant {
				mutants++
			}
		}
	}
	if mutants < 100 {
		t.Errorf("the devices have %d mutants", mutants)
	}
	for _, suite := range judge.Suites() {
		for i := range suite.Cases {
			for _, spec := range suite.Cases[i].Defects {
				isIt := func(k judge.Defect) bool { return judge.DefectName(k.Name) == judge.DefectName(spec) }
				if !slices.ContainsFunc(all, func(d *judge.Device) bool { return slices.ContainsFunc(d.Known, isIt) }) {
					t.Errorf("%s names %s, which no device can have", suite.Cases[i].ID, spec)
				}
			}
		}
	}
}
