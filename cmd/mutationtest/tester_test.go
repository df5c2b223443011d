package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

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

// A run hangs if it uses hardly any CPU time for a minute. CPU time that decreases, because a
// descendant was lost, and another run begin a new minute.
func TestRunWithoutCPUTimeHangs(t *testing.T) {
	var d hangDetector
	begun := time.Now()
	for i, c := range []struct {
		run   string
		cpu   time.Duration
		at    time.Duration
		hangs bool
	}{
		{"a", time.Second, 0, false},
		{"a", time.Second + idleCPU, maxIdle, false},
		{"a", time.Second + idleCPU, maxIdle + 1, true},
		{"a", time.Second + idleCPU + 1, maxIdle + 2, false},
		{"a", time.Second, 2*maxIdle + 3, false},
		{"a", time.Second, 3*maxIdle + 4, true},
		{"b", time.Second, 3*maxIdle + 5, false},
	} {
		if got := d.check(c.run, c.cpu, begun.Add(c.at)); got != c.hangs {
			t.Errorf("%d: hangs: %v", i, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	const stat = "17 (a) b (c) S 4 17 17 0 -1 4194560 1 2 3 4 100 20 3 4000 20 0 1 0 2"
	if s, ok := parseStat(stat); !ok || s != (processStat{parent: 4, ticks: 4123}) {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, bad := range []string{"", "17 (a) S 4", strings.Replace(stat, "S 4", "S x", 1), strings.Replace(stat, "4000", "x", 1)} {
		if s, ok := parseStat(bad); ok {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

// The CPU time of a process includes that of its descendants.
func TestTreeCPUTimeCountsDescendants(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc/PID/stat")
	}
	cmd := exec.Command("sh", "-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo; read x'; :")
	in := must.Get(cmd.StdinPipe())(t) // the shells end when it is closed
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	must.Get(out.Read(make([]byte, 1)))(t) // the inner shell has counted
	if used, ok := treeCPUTime(cmd.Process.Pid); !ok || used < 20*time.Millisecond {
		t.Errorf("%v, %v", used, ok)
	}
	if used, ok := treeCPUTime(-1); ok {
		t.Errorf("of no process: %v", used)
	}
}
