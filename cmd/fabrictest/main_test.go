package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/netns"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// TestMain lets the test binary be the program, if it is called so, and the
// processes that the program starts itself as.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "fabrictest" {
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
	os.Exit(m.Run())
}

// call runs the program as a shell would.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out, errs bytes.Buffer
	code = execute(context.Background(), cmdline.GoRun, args, &out, &errs)
	return code, out.String(), errs.String()
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

// Help is what people read first: it changes on purpose only.
func TestHelpIsGolden(t *testing.T) {
	for _, words := range []string{"", "run", "list scenarios", "list cases", "list defects", "replay", "lab up", "lab exec", "lab set", "lab down", "lab list", "doctor", "capture show", "perf", "perf quick", "perf iwarp", "perf memory", "conform", "conform show", "conform coverage"} {
		code, out, stderr := call(t, append(strings.Fields(words), "--help")...)
		if code != exitOK || stderr != "" {
			t.Fatalf("%s --help: exit code %d, %q", words, code, stderr)
		}
		golden(t, strings.TrimSuffix("help-"+strings.ReplaceAll(words, " ", "-"), "-"), out)
	}
}

func TestEveryCommandHasExamples(t *testing.T) {
	for _, c := range newRootCommand("fabrictest").Commands() {
		if !c.Hidden && (c.Example == "" || c.Short == "") && c.Name() != "help" && c.Name() != "completion" && !c.HasSubCommands() {
			t.Errorf("%s has no example, or says nothing of itself", c.Name())
		}
	}
}

func TestWrongCalls(t *testing.T) {
	for words, want := range map[string]string{
		"run loss-1-percant":                            "did you mean loss-1-percent",
		"run --tag losss":                               "did you mean loss",
		"run --on hardware":                             "--on hardware: give sim, netns",
		"run --seed soon":                               "--seed soon: give a number",
		"run --messages -3":                             "--messages -3",
		"run --defect AckCompletesRed":                  "did you mean AckCompletesRead",
		"run --defect AckSkipsRead":                     "only 'fabrictest conform' has it",
		"run --defect cm.StopAfterConns=x":              "takes no number",
		"run nowhere.yaml":                              "nowhere.yaml",
		"run --capture some":                            "give full or none",
		"lab up --rdma roce":                            "--rdma roce: the kernel has rxe (RoCE) and siw (iWARP)",
		"run calls-loss --on netns":                     "none of the scenarios chosen runs on netns",
		"run '[' ":                                      "pattern",
		"replay nowhere":                                "name the folder of a run",
		"lab exec -n 2":                                 "behind --, as in",
		"lab set host1":                                 "name a port and what is to become of it",
		"replay":                                        "name a run: its folder, or",
		"rnu":                                           "unknown command \"rnu\"; did you mean run?",
		"run --sed 3":                                   "unknown flag --sed; did you mean --seed?",
		"run --messages 0":                              "--messages 0: give a number in 1..",
		"run testdata":                                  "testdata is a folder: name the files in it, testdata/*.yaml",
		"run testdata/q*.yaml":                          "no file matches testdata/q*.yaml",
		"lab up --rails 9":                              "fabrictest: --rails 9: give 1 to 8\n",
		"lab up --rails 0":                              "fabrictest: --rails 0: give 1 to 8\n",
		"lab up --mtu 5":                                "fabrictest: --mtu 5: give 1280 to 65535\n",
		"lab up --leaves 2":                             "fabrictest: --leaves: only a fat-tree has them",
		"lab up --fabric ring":                          "fabrictest: --fabric ring: ring is none of pair, star, fat-tree\n",
		"lab up --lab a/b":                              "invalid lab name",
		"lab exec -n 1 -- ls":                           "fabrictest: --hosts 1: give 2 to 1024\n",
		"lab exec -n 2 ls":                              "behind --",
		"lab exec -n 2 host0 -- ls":                     "leave out host0",
		"lab exec -n 2 -- no-such-program-here":         "no-such-program-here",
		"lab exec -- ls":                                "name one host",
		"lab exec -n 2 --fabric ring -- ls":             "ring",
		"lab exec -n 2 --like loss-* -- ls":             "name one",
		"lab up --hosts 100000":                         "hosts",
		"lab set host0 loss=1% --lab no-such-lab-is-up": "no lab called no-such-lab-is-up is up",
		"lab down no-such-lab-is-up":                    "no lab called no-such-lab-is-up is up",
		"list cases rc/psm":                             "did you mean rc/psn",
		"frobnicate":                                    "unknown command",
	} {
		args := strings.Fields(strings.ReplaceAll(words, "'", ""))
		code, out, stderr := call(t, args...)
		if code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stderr %q, stdout %q; want %q", words, code, stderr, out, want)
		}
	}
}

// A mistake in a file is no matter of how the command is called.
func TestMistakesInFilesDoNotPointToTheHelp(t *testing.T) {
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

// What is printed to be pasted must work where it is pasted.
func TestInvocation(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "ft")
	must.Do(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	for arg0, want := range map[string]string{
		"ft": "ft", "./ft": "./ft", "../x/ft": "../x/ft", program: program,
		"/tmp/go-build123/b001/exe/fabrictest": cmdline.GoRun, "/home/x/my tools/ft": "'/home/x/my tools/ft'",
	} {
		if got := cmdline.Invocation(arg0); got != want {
			t.Errorf("%s: %s, want %s", arg0, got, want)
		}
	}
	t.Setenv("PATH", dir)
	if got := cmdline.Invocation(program); got != "ft" {
		t.Errorf("on PATH: %s", got)
	}
}

// Ctrl-C ends a run with the exit code that shells expect of it.
func TestInterruptedRun(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(interruptedError{sig})
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		var out, errs bytes.Buffer
		code := execute(ctx, cmdline.GoRun, []string{"run", "pingpong", "--on", "sim"}, &out, &errs)
		if code != want || !strings.Contains(errs.String(), "interrupted: 0 of 1 had ended") {
			t.Errorf("%v: exit code %d, %q", sig, code, errs.String())
		}
	}
}

func TestVersionSaysWhatItDoesNotKnow(t *testing.T) {
	if _, out, _ := call(t, "version"); !strings.Contains(out, " commit ") { // a test binary has none
		t.Error(out)
	}
}
