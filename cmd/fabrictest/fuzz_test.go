package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/fuzz"
	"github.com/fabrictest/fabrictest/internal/must"
)

// writeFuzzTree writes a source tree with targets, and a go command whose test programs are the
// shell scripts of the packages.
func writeFuzzTree(t *testing.T, scripts map[string]string, targets ...string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the go command of this test is a shell script")
	}
	root, bin := t.TempDir(), t.TempDir()
	files := map[string]string{
		filepath.Join(root, "go.mod"):              "module " + fuzz.Module + "\n",
		filepath.Join(root, "fuzz", "targets.txt"): strings.Join(targets, "\n"),
		filepath.Join(bin, "go"): `#!/bin/sh
case $1 in
  env) echo "` + root + `/cache" ;;
  test) # -c -fuzz=^Fuzz -o FILE PACKAGE
    [ "$2 $3" = "-c -fuzz=^Fuzz" ] || { echo "unexpected: $*"; exit 3; }
    [ -f "$6/script" ] || { echo "cannot build $6"; exit 1; }
    { echo '#!/bin/sh'; cat "$6/script"; } > "$5"; chmod +x "$5"
    echo "$6" >> built ;;
esac
`,
	}
	for pkg, script := range scripts {
		files[filepath.Join(root, pkg, "script")] = script
	}
	for name, text := range files {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o755)))
	}
	t.Chdir(root)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func callFuzz(ctx context.Context, args ...string) (code int, out, status string) {
	var stdout, stderr bytes.Buffer
	code = execute(ctx, "fabrictest", append([]string{"fuzz"}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

const goodScript = `
echo "fuzz: elapsed: 0s, gathering baseline coverage: 0/5 completed"
echo "fuzz: elapsed: 3s, execs: 1000 (333/sec), new interesting: 2 (total: 7)"
echo "fuzz: elapsed: 6s, execs: 123456 (40000/sec), new interesting: 3 (total: 8)" >&2
echo "PASS"
echo "$@" >> args
`

func TestFuzzRunsEveryTarget(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	writeFuzzTree(t, map[string]string{"a": goodScript, "b/c": goodScript}, "./a FuzzOne", "./a FuzzTwo", "./b/c FuzzThree")
	code, out, status := callFuzz(context.Background(), "--for", "6s")
	if code != exitOK || status != "" {
		t.Fatalf("exit code %d, stderr %q", code, status)
	}
	wantIn(t, out, "ok           a.FuzzOne", "b/c.FuzzThree       123 456", "3 targets: 3 passed; 370 368 executions in")
	// Programs are built once, and run in the folder of their package.
	built, _ := os.ReadFile("built")
	if string(built) != "./a\n./b/c\n" {
		t.Errorf("built %q", built)
	}
	args, _ := os.ReadFile("a/args")
	wantIn(t, string(args), "-test.run=^$", "-test.fuzz=^FuzzOne$", "-test.fuzz=^FuzzTwo$", "-test.fuzztime=2s", "cache/fuzz/"+fuzz.Module+"/a")
	if files, _ := filepath.Glob(filepath.Join(os.TempDir(), "fabrictest-fuzz-*")); len(files) > 0 {
		t.Errorf("temporary files were not removed: %v", files)
	}
}

func TestFuzzReportsFailures(t *testing.T) {
	writeFuzzTree(t, map[string]string{
		"a": `echo "--- FAIL: FuzzOne"; echo "    a wrong result"; echo "fuzz: minimizing 7-byte failing input file" >&2; mkdir -p testdata/fuzz/FuzzOne; : > testdata/fuzz/FuzzOne/0abc
echo "    Failing input written to testdata/fuzz/FuzzOne/0abc"; exit 1`,
		"b": `echo "failure while testing seed corpus entry: FuzzTwo/seed#3"; exit 1`,
		"d": goodScript,
		"e": `echo "testing: warning: no fuzz tests to fuzz"; echo PASS`,
	}, "./a FuzzOne", "./b FuzzTwo", "./c FuzzThree", "./d FuzzFour", "./e FuzzFive")
	code, out, _ := callFuzz(context.Background(), "--each", "1s")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	wantIn(t, out,
		"failed       a.FuzzOne", "    a wrong result", "the input is in a/testdata/fuzz/FuzzOne/0abc", "to repeat it: go test ./a -run '^FuzzOne/0abc$'",
		"to repeat it: go test ./b -run '^FuzzTwo/seed#3$'", "broken       c.FuzzThree", "cannot build ./c", "ok           d.FuzzFour",
		"absent       e.FuzzFive", "5 targets: 1 passed, 2 failed, 1 broken, 1 absent",
	)
	if strings.Contains(out, "minimizing") {
		t.Errorf("progress lines in the output of a failure:\n%s", out)
	}
	code, out, _ = callFuzz(context.Background(), "--each", "1s", "--json", "FuzzOne", "d")
	var run fuzz.Summary
	if err := json.Unmarshal([]byte(out), &run); err != nil || code != exitFailed {
		t.Fatalf("%v, exit code %d: %s", err, code, out)
	}
	if len(run.Targets) != 2 || run.Executions != 123456 || run.Targets[0].Verdict != fuzz.Failed || run.Targets[0].Failures[0].File != "a/testdata/fuzz/FuzzOne/0abc" {
		t.Errorf("%+v", run)
	}
}

// A target that ends with "context deadline exceeded" is retried, and passes after three tries.
func TestFuzzRetriesAfterDeadlineExceeded(t *testing.T) {
	const once = `[ -f again ] || { : > again; echo "    context deadline exceeded"; echo FAIL; exit 1; }` + goodScript
	writeFuzzTree(t, map[string]string{"a": once, "b": `echo x >> tries; echo "    context deadline exceeded"; exit 1`}, "./a FuzzOne", "./b FuzzTwo")
	code, out, _ := callFuzz(context.Background(), "--each", "1s")
	tries, _ := os.ReadFile("b/tries")
	if code != exitOK || !strings.Contains(out, "2 targets: 2 passed") || string(tries) != "x\nx\nx\n" {
		t.Errorf("exit code %d after %q tries:\n%s", code, tries, out)
	}
}

func TestFuzzStopsWhenInterrupted(t *testing.T) {
	writeFuzzTree(t, map[string]string{
		"a": `trap 'echo "fuzz: elapsed: 1s, execs: 77 (70/sec)"; exit 1' INT; : > begun; while :; do sleep 0.05; done`,
		"b": goodScript,
	}, "./a FuzzOne", "./b FuzzTwo")
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		for _, err := os.Stat("a/begun"); err != nil; _, err = os.Stat("a/begun") {
			time.Sleep(time.Millisecond)
		}
		cancel(interruptedError{syscall.SIGINT})
	}()
	code, out, _ := callFuzz(ctx, "--each", "1m")
	if code != 128+int(syscall.SIGINT) || !strings.Contains(out, "interrupted  a.FuzzOne            77") || !strings.Contains(out, "1 interrupted, 1 not begun") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestFuzzReportsUsageErrors(t *testing.T) {
	writeFuzzTree(t, map[string]string{"a": goodScript}, "./a FuzzOne", "./a FuzzOther")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--list"}, exitOK, ""},
		{[]string{"FuzzOnf"}, exitUsage, `no fuzz target "FuzzOnf": did you mean FuzzOne`},
		{[]string{"quite-different"}, exitUsage, "'fabrictest fuzz --list' shows all targets"},
		{[]string{"--for", "1m", "--each", "1s"}, exitUsage, "none of the others can be"},
		{[]string{"--for", "0s"}, exitUsage, "more than nothing"},
	} {
		code, out, status := callFuzz(context.Background(), c.args...)
		if code != c.code || !strings.Contains(status, c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, code, status)
		}
		if c.code == exitOK && out != "a.FuzzOne\na.FuzzOther\n" {
			t.Errorf("list:\n%s", out)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if code, _, status := callFuzz(context.Background()); code != exitFailed || !strings.Contains(status, "not on PATH: install Go") {
		t.Errorf("without the go command: exit code %d, %s", code, status)
	}
	t.Chdir(t.TempDir())
	if code, _, status := callFuzz(context.Background()); code != exitFailed || !strings.Contains(status, "run it in a clone of the repository") {
		t.Errorf("without a source tree: exit code %d, %s", code, status)
	}
}

func TestFuzzHelpIsGolden(t *testing.T) {
	code, out, _ := callFuzz(context.Background(), "--help")
	if code != exitOK {
		t.Fatal(out)
	}
	golden(t, "help-fuzz", out)
}
