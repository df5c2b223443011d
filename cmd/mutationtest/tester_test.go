package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

func TestFlagsThatCannotJudge(t *testing.T) {
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{suite: "some"}, "give devices, mpi or none"},
		{options{suite: suiteNone}, "needs -tests"},
		{options{suite: suiteNone, tests: true}, "name either packages"},
	} {
		if err := c.o.run(nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

// With -cases none, only the package's tests judge, without those that are skipped.
func TestOnlyTestsJudge(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                    "module github.com/fabrictest/fabrictest\n",
		"internal/mutant/names.go":  "package mutant\n\nvar names []string\n",
		"internal/mutant/mutant.go": "package mutant\n\nimport \"os\"\n\nfunc Enter(int) int32 {\n\tfor i, n := range names {\n\t\tif n == os.Getenv(\"" + mutant.Variable + "\") {\n\t\t\treturn int32(i + 1)\n\t\t}\n\t}\n\treturn 0\n}\n",
		"limits/limits.go":          "package limits\n\nfunc Low(x int) int {\n\tif x < 0 {\n\t\tx = 0\n\t}\n\treturn x\n}\n",
		"limits/limits_test.go":     "package limits\n\nimport \"testing\"\n\nfunc TestLow(t *testing.T) {\n\tif Low(-1) != 0 {\n\t\tt.Fail()\n\t}\n}\n\nfunc TestSlow(t *testing.T) { t.Fail() }\n",
	} {
		file := filepath.Join(root, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o777))
		must.Do(t, os.WriteFile(file, []byte(text), 0o666))
	}
	t.Chdir(root)
	o := options{suite: suiteNone, tests: true}
	all := must.Get(o.mutants(t.Context(), root, []string{"./limits"}))(t)
	dir := t.TempDir()
	valid, results, err := o.runCases(t.Context(), dir, all)
	if err != nil {
		t.Fatal(err)
	}
	tests := tester{root: root, dir: dir}
	if err := tests.run(t.Context(), valid, results, 1); err == nil || !strings.Contains(err.Error(), "without mutants") {
		t.Errorf("a test fails without mutants: %v", err)
	}
	tests.skip = "Slow"
	must.Do(t, tests.run(t.Context(), valid, results, 1))
	survive := map[string]bool{"Low: < -> <=": true, "Low: 0 -> 1": true} // with x = -1, they behave the same
	for i := range valid {
		if killed := results[i].KilledBy == "tests"; killed == survive[valid[i].Does] {
			t.Errorf("%s: killed: %v", valid[i].Does, killed)
		}
	}
	if len(valid) != 5 {
		t.Errorf("%d mutants, want 5", len(valid))
	}
}
