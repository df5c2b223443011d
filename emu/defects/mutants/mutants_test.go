package mutants

import (
	"flag"
	"os/exec"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/mutate"
)

var withFuzzAndInterop = flag.Bool("all", false, "also run the tests of fuzz targets and of interop cases with mutants, which takes a minute")

// Every mutant applies to the sources, all of them build together, and the tests with
// random traffic find those that they name. So do fuzz targets and interop cases, which
// the conform step of CI asks for.
func TestOtherTestsFindMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the engines once more")
	}
	overlay, err := mutate.Overlay("../../..", t.TempDir(), All())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{"TestMutantsAreFoundAtRandom": "../../softroce"}
	if *withFuzzAndInterop {
		tests["TestTargetsFindDefects"], tests["TestMutantsMakeCasesFail"] = "../../../fuzz", "../../../conformance/interop"
	}
	for name, pkg := range tests {
		out, err := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-run", "^"+name+"$", "-v", pkg).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

func TestMutantsAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range All() {
		if seen[m.Name] || len(m.Providers) == 0 {
			t.Errorf("%s is named twice, or no provider has it", m.Name)
		}
		seen[m.Name] = true
	}
}
