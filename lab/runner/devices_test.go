package runner

import (
	"testing"

	"github.com/fabrictest/fabrictest/lab/nics"
)

// --check-cases runs cases on devices with mutants, too.
func TestKnownDefectsIncludeMutants(t *testing.T) {
	for _, p := range nics.All() {
		own, mutants := 0, 0
		for _, d := range knownDefects(p) {
			if d.Mutant {
				mutants++
			} else {
				own++
			}
		}
		if own == 0 || mutants == 0 {
			t.Errorf("%s can have %d mutants and %d other defects", p.Name, mutants, own)
		}
	}
}
