package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// In virtual time the figures of a platform are the same in every run.
func TestPerfBenchmarksOfPlatform(t *testing.T) {
	for _, c := range []struct {
		args string
		row  string
	}{
		{"lat --verb write", " 8       1000           0.78           0.78         0.78             0.78           0.00            0.78                   0.78\n"},
		{"lat --verb write --sizes 8..32 --iterations 50 --pairs 2", " 32      100 "},
		{"bw --verb write --sizes 1M --iterations 20 --report-gbits", " 1048576    20             370.75             370.75               0.044197\n"},
		{"rate --iterations 1000 --inline 64", " 64         1000           3340.31            3335.25              54.644809\n"},
		{"register --sizes 4K,1M --iterations 10", " 1048576 10             36.16          36.16        36.16            36.16          0.00            36.16                  36.16\n"},
	} {
		code, out, errs := call(t, append(strings.Fields("perf "+c.args), "--platform", "connectx7-ndr")...)
		if code != exitOK || !strings.Contains(out, c.row) {
			t.Errorf("perf %s: exit code %d, want the row\n%s\n%s%s", c.args, code, c.row, out, errs)
		}
	}
}

// Texts and recorded runs of the same benchmark have the same series, which can be compared.
func TestPerfBenchmarksAreComparable(t *testing.T) {
	dir := t.TempDir()
	histogram := filepath.Join(dir, "times.hgrm")
	var files []string
	for i, args := range []string{"--json", "", "--platform connectx7-ndr"} {
		code, out, errs := call(t, strings.Fields("perf lat --verb read --repeat 6 --iterations 100 "+args)...)
		if code != exitOK {
			t.Fatalf("%s: exit code %d: %s", args, code, errs)
		}
		files = append(files, filepath.Join(dir, string(rune('a'+i))))
		must.Do(t, os.WriteFile(files[i], []byte(out), 0o666))
	}
	if code, out, errs := call(t, "perf", "compare", files[0], files[1]); code != exitOK || !strings.Contains(out, "3 comparisons: 3 same.") {
		t.Errorf("the same times: exit code %d\n%s%s", code, out, errs)
	}
	if code, out, errs := call(t, "perf", "compare", files[0], files[2]); code != exitOK || !strings.Contains(out, "3 comparisons: 3 better.") {
		t.Errorf("a faster platform: exit code %d\n%s%s", code, out, errs)
	}
	if code, _, errs := call(t, "perf", "lat", "--iterations", "50", "--histogram", histogram); code != exitOK {
		t.Fatal(errs)
	}
	wantIn(t, string(must.Get(os.ReadFile(histogram))(t)), "1/(1-Percentile)", "Total count    =           50]")
}

func TestPerfBenchmarkErrorsNameTheOption(t *testing.T) {
	for args, want := range map[string]string{
		"lat --verb push":                         "--verb push: give send, write",
		"lat --sizes 4..2":                        "--sizes 4..2: give sizes such as",
		"lat --sizes 9G":                          "--sizes 9G: give sizes such as",
		"lat --verb write --sizes 4":              "programs poll the last 8 bytes of a message: give 8 bytes or more",
		"lat --verb fetch_add --sizes 16":         "--sizes: atomics have 8 bytes",
		"lat --transport ud --verb read":          "the transport ud does not support it",
		"lat --transport ud --sizes 8K":           "a datagram has at most 4096, the path MTU: give smaller sizes",
		"lat --transport uc --provider softiwarp": "--transport: softiwarp: the device has no transport uc",
		"lat --provider hard":                     "--provider: no provider \"hard\"",
		"lat --platform hal9000":                  "no platform is called \"hal9000\"",
		"lat --on netns --platform connectx7-ndr": "--platform: on netns time is real",
		"lat --on netns --pairs 2":                "--pairs: on netns a host has one process",
		"lat --sizes 8,16 --histogram /nowhere/x": "/nowhere/x",
		"lat server.example":                      "name the one of this host with --device",
		"bw --qps 5000":                           "--qps 5000: give 1 to 4096",
		"bw --cq-mod 200":                         "--cq-mod 200: give 0 to 128",
		"bw --transport uc --verb write":          "over uc nothing tells that a WRITE has arrived",
		"bw --both-ways --provider softiwarp":     "over iwarp, sends go one way",
		"bw --inline 100000":                      "--inline 100000: give 0 to 65536",
		"register --repeat -1":                    "--repeat -1: give 1 to 1000",
		"rate --inline 60000 --provider softroce": "60000 bytes inline, limit 512",
	} {
		code, out, errs := call(t, append([]string{"perf"}, strings.Fields(args)...)...)
		if code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("perf %s: exit code %d, want %q:\n%s%s", args, code, want, out, errs)
		}
	}
	if ibv.Linked {
		t.Skip("this program has libibverbs")
	}
	if code, _, errs := call(t, "perf", "lat", "--device", "mlx5_0"); code == exitOK || !strings.Contains(errs, "built without libibverbs") {
		t.Errorf("--device: exit code %d: %s", code, errs)
	}
}

// The limits of perf scale apply, and its result is a recorded run and a page with charts.
func TestPerfScale(t *testing.T) {
	page := filepath.Join(t.TempDir(), "scale.html")
	code, out := runWithTimeout(t, "perf", "scale", "--only", "packets", "--time", "1us", "--html", page)
	if code != exitOK || !strings.Contains(out, "Left out: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	wantIn(t, string(must.Get(os.ReadFile(page))(t)), "left out: ", "without NICs")
	if code, _, errs := call(t, "perf", "scale", "--only", "packet"); code != exitUsage || !strings.Contains(errs, "--only packet: give ranks") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
