package defects

import (
	"flag"
	"os/exec"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

var build = flag.Bool("all", false, "run the tests of other packages with mutants, which builds the engines once more")

// Every mutant applies to the sources. With -all, in the conform step of CI, they build together,
// and tests with random traffic, fuzz targets and interop cases detect those that they name.
func TestOtherTestsFindMutants(t *testing.T) {
	overlay := must.Get(mutant.Overlay("../..", t.TempDir(), Mutants()))(t)
	if !*build {
		return
	}
	for _, c := range []struct{ pkg, name string }{
		{"../softroce", "TestMutantsAreFoundAtRandom"},
		{"../softiwarp", "TestMutantsAreFoundAtRandom"},
		{"../dgiwarp", "TestMutantsKeepRunning"},
		{"../../fuzz", "TestTargetsFindDefects"},
		{"../../fuzz", "TestModelFindsDefects"},
		{"../../conformance/interop", "TestMutantsMakeCasesFail"},
	} {
		out, err := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-run", "^"+c.name+"$", "-v", c.pkg).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+c.name) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

func TestMutantsAreNamedOnce(t *testing.T) {
	names := map[string]bool{}
	for _, m := range Mutants() {
		if names[m.Name] || len(m.Providers) == 0 {
			t.Errorf("%s is named twice, or no provider has it", m.Name)
		}
		names[m.Name] = true
	}
}
