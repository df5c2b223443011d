package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// call runs the program as a shell would.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(context.Background(), goRun, args, &out, &errs)
	return code, out.String(), errs.String()
}

var (
	wallText = regexp.MustCompile(`Wall time [0-9.]+ s\.`)
	wallJSON = regexp.MustCompile(`"wall_ns": [0-9]+`)
)

// timeless removes what may differ from run to run.
func timeless(s string) string {
	return wallJSON.ReplaceAllString(wallText.ReplaceAllString(s, "Wall time"), `"wall_ns": 0`)
}

// TestRunIsGolden compares whole outputs. They change with every change to what
// happens on the emulated wire: look at the difference, and take it over with
//
//	go test ./cmd/fabrictest -run Golden -update
func TestRunIsGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"table": {"run", "--seed", "7", "--messages", "20", "*/clean", "rc/loss", "ud/ipv4"},
		"json":  {"run", "--seed", "7", "--messages", "20", "rc/clean", "--json"},
		"list":  {"run", "--list"},
		"help":  {"run", "--help"},
		"held":  {"run", "--seed", "7", "--messages", "20", "rc/clean", "--quirk", "cm.NoMRA"},
	} {
		t.Run(name, func(t *testing.T) {
			code, got, stderr := call(t, args...)
			if code != exitOK || stderr != "" {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			file := filepath.Join("testdata", name+".golden")
			got = timeless(got)
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
		})
	}
}

func TestEveryScenarioHolds(t *testing.T) {
	code, out, stderr := call(t, "run", "--seed", "3", "--messages", "10")
	if code != exitOK || strings.Contains(out, verdictFail) {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	for _, s := range scenarios() {
		if !strings.Contains(out, s.network.name) || !strings.Contains(out, s.service) {
			t.Errorf("%s is missing from the table", s.id)
		}
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\r") {
		t.Error("colour or progress in output that goes to no terminal")
	}
}

// Impaired networks must do something, or their rows show nothing.
func TestImpairmentsShow(t *testing.T) {
	args := []string{"run", "--seed", "3", "--messages", "300", "--json"}
	if testing.Short() {
		args = append(args, "*/clean", "*/loss") // under the race detector the rest takes half a minute
	}
	_, out, _ := call(t, args...)
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Rows {
		service, network, _ := strings.Cut(r.ID, "/")
		reliable := service != "uc" && service != "ud"
		clean := network == "clean" || network == "ipv4"
		switch {
		case reliable && r.Delivered != r.Messages:
			t.Errorf("%s: %d of %d delivered", r.ID, r.Delivered, r.Messages)
		case clean && (r.PacketsLost > 0 || r.Resent > 0 || r.Delivered != r.Messages):
			t.Errorf("%s: %+v", r.ID, r)
		case !clean && network != "reorder" && r.PacketsLost == 0:
			t.Errorf("%s: nothing was lost", r.ID)
		case !clean && reliable && r.Resent == 0 && r.ID != "rc-cm/reorder": // calls take turns: one packet has no order
			t.Errorf("%s: nothing was sent again", r.ID)
		case network == "incast" && (r.Marked == 0 || r.CNPs == 0):
			t.Errorf("%s: %d packets marked, %d CNPs", r.ID, r.Marked, r.CNPs)
		case r.GoodputBps == 0 || r.Elapsed == 0:
			t.Errorf("%s: goodput %d in %v", r.ID, r.GoodputBps, r.Elapsed)
		}
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	dir := t.TempDir()
	run := func(seed, file string) (string, []byte) {
		path := filepath.Join(dir, file)
		code, out, stderr := call(t, "run", "--seed", seed, "--messages", "20", "rc/reorder", "ud/loss", "xrc/clean", "--pcap", path)
		if code != exitOK {
			t.Fatalf("exit code %d: %s%s", code, out, stderr)
		}
		capture, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(timeless(out), path, "FILE"), capture
	}
	out1, cap1 := run("11", "a.pcapng")
	out2, cap2 := run("11", "b.pcapng")
	if out1 != out2 {
		t.Errorf("one seed, two outputs:\n%s\n%s", out1, out2)
	}
	if !bytes.Equal(cap1, cap2) {
		t.Error("one seed, two captures")
	}
	out3, cap3 := run("12", "c.pcapng")
	if out1 == out3 || bytes.Equal(cap1, cap3) {
		t.Error("two seeds, one run: is the seed used at all?")
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if hidden, _ := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left)+len(hidden) != 3 {
		t.Errorf("files in the folder: %v %v %v", left, hidden, err)
	}
}

func TestSeedIsRandomAndPrinted(t *testing.T) {
	seeds := map[string]bool{}
	for range 3 {
		_, out, _ := call(t, "run", "--messages", "1", "ud/clean")
		m := regexp.MustCompile(`Seed (\d+)\. To repeat this run:\n\n    (.*)\n`).FindStringSubmatch(out)
		if m == nil || m[2] != "go run ./cmd/fabrictest run ud/clean --seed "+m[1]+" --messages 1" {
			t.Fatalf("no seed and command in\n%s", out)
		}
		seeds[m[1]] = true
	}
	if len(seeds) == 1 {
		t.Error("three runs, one seed")
	}
}

func TestCapturesOfAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new") + "/"
	code, out, stderr := call(t, "run", "--seed", "1", "--messages", "5", "rc/clean", "uc/loss", "--pcap", dir)
	if code != exitOK || !strings.Contains(out, "Captured 2 files in") {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	for _, name := range []string{"rc-clean.pcapng", "uc-loss.pcapng"} {
		b, err := os.ReadFile(dir + name)
		if err != nil || !bytes.HasPrefix(b, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
			t.Errorf("%s: %v, %.4x", name, err, b)
		}
		if want := "go run ./cmd/fabrictest run " + strings.Replace(strings.TrimSuffix(name, ".pcapng"), "-", "/", 1) + " --seed 1"; !bytes.Contains(b, []byte(want)) {
			t.Errorf("%s does not say how it was made", name)
		}
	}
}

// A flawed NIC must be found out, and the way back to the failure be printed.
func TestFlawFails(t *testing.T) {
	args := []string{"run", "--seed", "1", "--messages", "60", "rc/loss", "rc/clean", "--quirk", "AckSkipsRead"}
	code, out, stderr := call(t, args...)
	if code != exitFailed || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{
		"1 of 2 scenarios failed.", "FAIL rc/loss: program host", "IBV_WR_RDMA_READ", "host0, to host1: side A",
		"    go run ./cmd/fabrictest run rc/loss --seed 1 --messages 60 --quirk AckSkipsRead\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, _ = call(t, append(args, "--json")...)
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitFailed || s.Failed != 1 || s.Rows[0].OK == s.Rows[1].OK {
		t.Errorf("exit code %d, %v, %+v", code, err, s)
	}
}

// A NIC that hangs is a failure as well, with what each program waits for.
func TestHangIsReported(t *testing.T) {
	code, out, _ := call(t, "run", "--seed", "1", "--messages", "30", "uc/clean", "rc/loss", "--quirk", "ICRCWrong", "--quirk", "RetryExcHangs")
	if code != exitFailed || !strings.Contains(out, "waits for completion event of host") || !strings.Contains(out, "requests posted") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestUsageErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`unknown command "frobnicate"`:                           {"frobnicate"},
		"unknown flag: --frob":                                   {"run", "--frob"},
		`invalid argument "x" for "--seed"`:                      {"run", "--seed", "x"},
		"--messages 0: give a number in 1..100000":               {"run", "--messages", "0"},
		`no scenario matches "rc/lost"; did you mean rc/loss, `:  {"run", "rc/lost"},
		`no scenario matches "sqr"; did you mean srq`:            {"run", "sqr"},
		`no scenario matches "x/y/z"; 'fabrictest run --list' l`: {"run", "x/y/z"},
		`pattern "[": syntax error`:                              {"run", "["},
		"did you mean AckSkipsRead? 'fabrictest quirks' lists":   {"run", "--quirk", "AckSkips"},
		"no quirk \"PSNUnsinged\"; did you mean PSNUnsigned?":    {"run", "--quirk", "PSNUnsinged"},
		"did you mean cm.LeakTimeWait?":                          {"run", "--quirk", "LeakTimeWait"},
		"it takes a number from 1 on, cm.StopAfterConns=3 say":   {"run", "--quirk", "cm.StopAfterConns"},
		"cm.StopAfterConns=x: it takes a number":                 {"run", "--quirk", "cm.StopAfterConns=x"},
		"only cm.StopAfterConns takes a number":                  {"run", "--quirk", "cm.NoMRA=2"},
		`no quirk "cm.DetourLocal"`:                              {"run", "--quirk", "cm.DetourLocal"},
		"--snaplen 20: give 0 for whole packets":                 {"run", "--snaplen", "20"},
		`unknown command "x" for "fabrictest ver`:                {"version", "x"},
	} {
		code, out, stderr := call(t, args...)
		if code != exitUsage || out != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--help'.") {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q, want %q", args, code, out, stderr, want)
		}
	}
}

func TestPcapInNoFolder(t *testing.T) {
	code, out, stderr := call(t, "run", "--pcap", filepath.Join(t.TempDir(), "no", "such", "file"), "ud/clean")
	if code != exitFailed || out != "" || !strings.Contains(stderr, "folder that exists") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, stderr)
	}
}

func TestInterruptEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	code := execute(ctx, goRun, []string{"run", "--pcap", filepath.Join(dir, "x.pcapng")}, &out, &errs)
	if code != exitFailed || !strings.Contains(errs.String(), context.Canceled.Error()) {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"run", "--help"}, {"help", "run"}} {
		code, out, stderr := call(t, args...)
		if code != exitOK || stderr != "" || !strings.Contains(out, "Examples:") || !strings.Contains(out, "fabrictest run --seed 7") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, stderr)
		}
	}
	code, out, _ := call(t, "version")
	if code != exitOK || !regexp.MustCompile(`^fabrictest \S+.* go\S+ \w+/\w+\n$`).MatchString(out) {
		t.Errorf("version: exit code %d, %q", code, out)
	}
}
