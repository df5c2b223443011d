package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// TestMain makes the test binary the program if it is called fabrictest, or one of its processes.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "fabrictest" {
		main()
	}
	if slices.Equal(os.Args[1:], perflab.ScaleArgs) {
		main()
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case nslab.LabCommand, nslab.RankCommand, live.ServeCommand, live.ProgramCommand:
			main()
		case "conform":
			if netns.IsUnshared() {
				main()
			}
		}
	}
	debug.SetGCPercent(400) // hundreds of small worlds are created and become garbage
	os.Exit(m.Run())
}

// call runs a command of the program in this process.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out, errs bytes.Buffer
	code = execute(context.Background(), cli.GoRun, args, &out, &errs)
	return code, out.String(), errs.String()
}

// wantIn checks that a text contains all of want.
func wantIn(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

// runJSON calls a command that runs scenarios and must succeed, and returns its result.
func runJSON(t *testing.T, args ...string) (run report.Run) {
	t.Helper()
	code, out, stderr := call(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &run); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %q: %v\n%s", code, stderr, err, out)
	}
	return run
}

// golden compares with a file in testdata, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want := must.Get(os.ReadFile(file))(t)
	if got != string(want) {
		t.Errorf("output differs from %s:\n%s\nIf it should: go test ./cmd/fabrictest -run Golden -update", file, got)
	}
}

func TestHelpIsGolden(t *testing.T) {
	for _, command := range []string{"", "run", "list scenarios", "list cases", "list defects", "replay", "lab up", "lab exec", "lab set", "lab down", "lab list", "doctor", "capture show", "perf", "perf quick", "perf iwarp", "perf memory", "perf scale", "conform", "conform show", "conform coverage"} {
		code, out, stderr := call(t, append(strings.Fields(command), "--help")...)
		if code != exitOK || stderr != "" {
			t.Fatalf("%s --help: exit code %d, %q", command, code, stderr)
		}
		golden(t, strings.TrimSuffix("help-"+strings.ReplaceAll(command, " ", "-"), "-"), out)
	}
}

func TestEveryCommandHasExamples(t *testing.T) {
	for _, c := range newRootCommand("fabrictest").Commands() {
		if !c.Hidden && (c.Example == "" || c.Short == "") && c.Name() != "help" && c.Name() != "completion" && !c.HasSubCommands() {
			t.Errorf("%s has no example, or no description", c.Name())
		}
	}
}

// Each command line of testdata/wrongcalls.txt is rejected with its exit code and message.
func TestInvalidCommandLinesAreRejected(t *testing.T) {
	everywhere, linux, _ := strings.Cut(string(must.Get(os.ReadFile("testdata/wrongcalls.txt"))(t)), "# These need Linux.\n")
	if runtime.GOOS == "linux" {
		everywhere += linux
	}
	for line := range strings.Lines(everywhere) {
		left, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if !ok {
			continue
		}
		exit, args, _ := strings.Cut(left, "  ")
		code, out, stderr := call(t, strings.Fields(args)...)
		if fmt.Sprint(code) != exit || stderr == "" || !strings.Contains(stderr, strings.ReplaceAll(want, `\n`, "\n")) {
			t.Errorf("%s: exit code %d, stderr %q, stdout %q; want %s and %q", args, code, stderr, out, exit, want)
		}
	}
}

// The help of a command does not help against an error in a file.
func TestFileErrorsDoNotMentionHelp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	must.Do(t, os.WriteFile(file, []byte("version: 1\nname: mine\n"), 0o666))
	code, _, stderr := call(t, "run", file)
	if code != exitUsage || !strings.Contains(stderr, "mine.yaml:") || strings.Contains(stderr, "--help") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := call(t, "run", "--defect", "Foo"); code != exitUsage || strings.Count(stderr, "lists all") != 1 {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// Invocation returns a command that works in the current folder.
func TestInvocationCanBePasted(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "ft")
	must.Do(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	for arg0, want := range map[string]string{
		"ft": "ft", "./ft": "./ft", "../x/ft": "../x/ft", program: program,
		"/tmp/go-build123/b001/exe/fabrictest": cli.GoRun, "/home/x/my tools/ft": "'/home/x/my tools/ft'",
		"/home/u/cache/19/19b2000000000000000000000000000000000000000000000000000000000000-d/fabrictest": cli.GoRun,
	} {
		if got := cli.Invocation(arg0); got != want {
			t.Errorf("%s: %s, want %s", arg0, got, want)
		}
	}
	t.Setenv("PATH", dir)
	if got := cli.Invocation(program); got != "ft" {
		t.Errorf("on PATH: %s", got)
	}
}

// A run that a signal ends exits with 128 and the number of the signal.
func TestInterruptedRunHasSignalExitCode(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(interruptedError{sig})
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		var out, errs bytes.Buffer
		code := execute(ctx, cli.GoRun, []string{"run", "pingpong", "--on", "sim"}, &out, &errs)
		if code != want || !strings.Contains(errs.String(), "interrupted: 0 of 1 had ended") {
			t.Errorf("%v: exit code %d, %q", sig, code, errs.String())
		}
	}
}

func TestVersionPrintsCommit(t *testing.T) {
	if _, out, _ := call(t, "version"); !strings.Contains(out, " commit ") { // a test binary has none
		t.Error(out)
	}
}

func TestCompletionsHaveTypedPrefix(t *testing.T) {
	for _, c := range []struct {
		command string
		typed   string
		want    string
	}{
		{"run", "loss", "loss-1-percent"},
		{"run --tag", "qu", "quick"},
		{"run --defect", "Ack", "AckCompletesRead"},
		{"run --on", "n", "netns"},
		{"lab up --like", "incast", "incast-ecn"},
		{"lab exec --like", "incast", "incast-ecn"},
		{"lab up --fabric", "f", "fat-tree"},
		{"conform", "rc/psn/gap", "rc/psn/gap-naked-once"},
		{"conform show", "mpa/fpdu", "mpa/fpdu/layout"},
		{"conform --label", "service:r", "service:rc"},
		{"conform --as", "rxe", "rxe-6.12"},
		{"conform --device", "softi", "softiwarp"},
		{"conform --defect", "AckPSN", "AckPSNOff"},
		{"replay", "la", "last"},
		{"replay last", "loss", "loss-1-percent"},
	} {
		_, out, _ := call(t, append([]string{"__complete"}, append(strings.Fields(c.command), c.typed)...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if !strings.Contains(out, c.want) {
			t.Errorf("%s %s<TAB>: no %s in\n%s", c.command, c.typed, c.want, out)
		}
		for _, l := range lines[:len(lines)-1] { // the last is a directive
			if !strings.HasPrefix(l, c.typed) {
				t.Errorf("%s %s<TAB> offers %s", c.command, c.typed, l)
			}
		}
	}
}
