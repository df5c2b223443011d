package calibrate

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

var update = flag.Bool("update", false, "write gate.txt")

// The results of all cases are those of the record. After a change that is meant, write the new
// record with -update, and review its difference.
func TestGate(t *testing.T) {
	got := must.Get(MeasureGate(GateCases()))(t)
	if *update {
		f := must.Get(os.Create("gate.txt"))(t)
		must.Do(t, got.Write(f))
		must.Do(t, f.Close())
	}
	want := must.Get(ParseGateRecord(string(must.Get(os.ReadFile("gate.txt"))(t))))(t)
	if d := want.Compare(got); !d.Same() {
		var text strings.Builder
		must.Do(t, d.WriteText(&text))
		t.Error(text.String())
	}
}

// The gate finds each regression of testdata/regressions.txt, and names the kind of its change. Only
// a build with them runs it: that of TestRegressionsBuild.
func TestGateFindsRegressions(t *testing.T) {
	if len(mutant.Names()) == 0 {
		t.Skip("this test was built without regressions; the gate step of CI runs it with them")
	}
	want := must.Get(ParseGateRecord(string(must.Get(os.ReadFile("gate.txt"))(t))))(t)
	for _, m := range regressions(t) {
		if !mutant.Select(m.Name) {
			t.Fatalf("%s is not built in", m.Name)
		}
		got, err := MeasureGate(GateCases())
		mutant.Select("")
		d := want.Compare(got)
		var text strings.Builder
		must.Do(t, d.WriteText(&text))
		summary, _, _ := strings.Cut(text.String(), "\n\n")
		t.Logf("%s: %s\n%s", m.Name, m.Does, summary)
		if err != nil || !slices.ContainsFunc(d.effects(), func(e effect) bool { return strings.HasSuffix(e.key, m.Imitates) }) {
			t.Errorf("%s: %v, and the gate does not say %q", m.Name, err, m.Imitates)
		}
	}
}

// regressions returns those of testdata/regressions.txt. Imitates is the kind of the change.
func regressions(t *testing.T) []mutant.Mutant {
	t.Helper()
	const name = "testdata/regressions.txt"
	return must.Get(mutant.Parse(name, string(must.Get(os.ReadFile(name))(t))))(t)
}

var all = flag.Bool("all", false, "run the gate with regressions, which builds it once more")

// The regressions apply to the sources. With -all, in the gate step of CI, the gate finds them.
func TestRegressionsBuild(t *testing.T) {
	overlay := must.Get(mutant.Overlay("../..", t.TempDir(), regressions(t)))(t)
	if !*all {
		return
	}
	out, err := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-run", "^TestGateFindsRegressions$", "-v", ".").CombinedOutput()
	if t.Logf("%s", out); err != nil || !strings.Contains(string(out), "--- PASS: TestGateFindsRegressions") {
		t.Error(err)
	}
}
