package runner

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// conform --check-cases tries the defects that a device is known to have: settings and mutants.
func TestKnownDefectsIncludeMutants(t *testing.T) {
	for _, d := range must.Get(new(Selection).Devices())(t) {
		for _, mutant := range []bool{false, true} {
			if !slices.ContainsFunc(d.Known, func(k judge.Defect) bool { return k.Mutant == mutant && nics.IsMutant(k.Name) == mutant }) {
				t.Errorf("%s: no known defect of which 'mutant' is %v", d.Name, mutant)
			}
		}
	}
}
