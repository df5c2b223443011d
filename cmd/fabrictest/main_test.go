package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/lab/nslab"
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
		case nslab.LabCommand, nslab.RankCommand, live.ServeCommand, live.OnceCommand:
			main()
		}
	}
	os.Exit(m.Run())
}

// call runs the program as a shell would.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out, errs bytes.Buffer
	code = execute(context.Background(), goRun, args, &out, &errs)
	return code, out.String(), errs.String()
}

// golden compares with a file in testdata, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("output differs from %s:\n%s\nIf it should: go test ./cmd/fabrictest -run Golden -update", file, got)
	}
}

// Help is what people read first: it changes on purpose only.
func TestHelpIsGolden(t *testing.T) {
	for _, words := range []string{"", "run", "list", "replay", "up", "exec", "set", "down", "labs", "doctor", "quirks", "pcap", "perf", "perf quick"} {
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
		"run loss-1-percant":                        "did you mean loss-1-percent",
		"run --tag losss":                           "did you mean loss",
		"run --on hardware":                         "--on hardware: give sim, netns",
		"run --seed soon":                           "--seed soon: give a number",
		"run --messages -3":                         "--messages -3",
		"run --quirk AckSkipsRad":                   "did you mean AckSkipsRead",
		"run --quirk cm.StopAfterConns=x":           "it takes a number",
		"run nowhere.yaml":                          "nowhere.yaml",
		"run --capture some":                        "give headers, full or none",
		"run calls-loss --on netns":                 "none of the scenarios chosen runs on netns",
		"run '[' ":                                  "pattern",
		"replay nowhere":                            "name the folder of a run",
		"exec -n 2":                                 "requires at least 1 arg",
		"exec -n 2 ls":                              "behind --",
		"exec -n 2 host0 -- ls":                     "leave out host0",
		"exec -n 2 -- no-such-program-here":         "no-such-program-here",
		"exec -- ls":                                "name one host",
		"exec -n 2 --fabric ring -- ls":             "ring",
		"exec -n 2 --like loss-* -- ls":             "name one",
		"up --hosts 100000":                         "hosts",
		"set host0 loss=1% --lab no-such-lab-is-up": "no lab called no-such-lab-is-up is up",
		"down no-such-lab-is-up":                    "no lab called no-such-lab-is-up is up",
		"frobnicate":                                "unknown command",
	} {
		args := strings.Fields(strings.ReplaceAll(words, "'", ""))
		code, out, stderr := call(t, args...)
		if code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stderr %q, stdout %q; want %q", words, code, stderr, out, want)
		}
	}
}
