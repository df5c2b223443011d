package experiment

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
// a build with them runs it: that of TestRegressionsBuild. A regression changes the results of no
// case that does not call its functions, and each case can only add kinds of changes, so that cases
// are measured until one shows the kind.
func TestGateFindsRegressions(t *testing.T) {
	if len(mutant.Names()) == 0 {
		t.Skip("this test was built without regressions; the gate step of CI runs it with them")
	}
	want := must.Get(ParseGateRecord(string(must.Get(os.ReadFile("gate.txt"))(t))))(t)
	cases := GateCases()
	called := make([][]int, len(cases)) // the functions of regressions that each case calls
	for i := range cases {
		called[i] = mutant.Trace(func() { must.Get(cases[i].Measure())(t) })
	}
	for _, m := range regressions(t) {
		number := slices.Index(mutant.Names(), m.Name)
		if number < 0 {
			t.Fatalf("%s is not built in", m.Name)
		}
		found := false
		for i := range cases {
			changed := func(f int) bool { return slices.Contains(mutant.Functions()[number], f) }
			if !found && slices.ContainsFunc(called[i], changed) {
				found = findsRegression(t, m, cases[i:i+1], want)
			}
		}
		if !found {
			t.Errorf("%s: the gate does not say %q", m.Name, m.Imitates)
		}
	}
}

// findsRegression reports whether the gate names the kind of regression m when it compares one case
// with its record want. It logs the changes that the gate then prints, for a reader of the test.
func findsRegression(t *testing.T, m mutant.Mutant, one []GateCase, want GateRecord) bool {
	t.Helper()
	mutant.Select(m.Name)
	got, err := MeasureGate(one)
	mutant.Select("")
	if err != nil {
		t.Errorf("%s: %v", m.Name, err)
	}
	name := one[0].Name()
	d := GateRecord{name: want[name]}.Compare(got)
	found := slices.ContainsFunc(d.effects(), func(e gateEffect) bool { return strings.HasSuffix(e.key, m.Imitates) })
	if found {
		var text strings.Builder
		must.Do(t, d.WriteText(&text))
		summary, _, _ := strings.Cut(text.String(), "\n\n")
		t.Logf("%s: %s\n%s", m.Name, m.Does, summary)
	}
	return found
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
	out, err := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", overlay, "-run", "^TestGateFindsRegressions$", "-v", ".").CombinedOutput()
	if t.Logf("%s", out); err != nil || !strings.Contains(string(out), "--- PASS: TestGateFindsRegressions") {
		t.Error(err)
	}
}

// Two measurements of a case are equal with another seed than that of the record, too.
func TestGateMeasuresTheSameAgain(t *testing.T) {
	var cases []GateCase
	for _, c := range GateCases() {
		if c.Bytes == 4096 {
			c.seed = 1
			cases = append(cases, c)
		}
	}
	first := must.Get(MeasureGate(cases))(t)
	if d := first.Compare(must.Get(MeasureGate(cases))(t)); !d.Same() || len(first) != len(cases) {
		t.Errorf("%+v", d.Changes)
	}
}

func TestGateRecordIsReadAgain(t *testing.T) {
	r := GateRecord{"b": {{"path: x", Value{N: 5, Unit: "ns"}}, {"path: x", Value{N: 6, Unit: "ns"}}}, "a, 8 B": {{"copy", Value{N: 2, Bytes: 64}}}}
	var text strings.Builder
	must.Do(t, r.Write(&text))
	again := must.Get(ParseGateRecord(text.String()))(t)
	if d := r.Compare(again); !d.Same() || len(again) != 2 {
		t.Errorf("%+v\n%s", d, text.String())
	}
	slices.Reverse(again["b"])
	delete(again, "a, 8 B")
	d := r.Compare(again)
	if len(d.Changes) != 1 || d.Changes[0].Key != "order of path: x" || !slices.Equal(d.Missing, []string{"a, 8 B"}) {
		t.Errorf("a changed order, and a case less: %+v", d)
	}
}
