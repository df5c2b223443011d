package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report/conform"
)

// conformJSON calls the command with --json and returns its exit code and results.
func conformJSON(t *testing.T, args ...string) (int, *conform.Run) {
	t.Helper()
	code, out, stderr := call(t, append([]string{"conform", "--json", "--capture", "none"}, args...)...)
	run, err := conform.Read(strings.NewReader(out))
	if err != nil {
		t.Fatalf("exit code %d, %q: %v", code, stderr, err)
	}
	return code, run
}

func TestConformIsGolden(t *testing.T) {
	code, out, stderr := call(t, "conform", "rc/psn/gap-naked-once", "mpa/fpdu/layout")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, %q\n%s", code, stderr, out)
	}
	out = reportPath.ReplaceAllString(wallTime.ReplaceAllString(out, "in a moment."), "Report: …")
	golden(t, "conform", out)
}

// A failed case is reported with its row, ladder, capture and replay command.
func TestConformReportsDefect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, out, _ := call(t, "conform", "rc/psn", "--defect", "AckPSNOff", "--seed", "7", "--out", dir)
	wantIn(t, out,
		"FAIL rc/psn/gap-naked-once, softroce", "MUST, IBTA", "roce/rc/psn/6", "want  ", "got   ", "NAK psn",
		cli.GoRun+" conform rc/psn/gap-naked-once --device softroce --on sim --seed 7 --defect AckPSNOff",
	)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	for _, name := range []string{"conformance.json", "junit.xml", "report.html"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	run, err := conform.ReadFile(filepath.Join(dir, conform.ResultFile))
	if err != nil || len(run.Bad()) == 0 {
		t.Fatalf("%+v, %v", run, err)
	}
	for _, r := range run.Bad() {
		if all := testutil.ReadCaptureFile(t, filepath.Join(dir, filepath.FromSlash(r.Capture))); len(all) == 0 || r.Ladder == nil {
			t.Errorf("%s: %d packets, ladder %v", r.ID, len(all), r.Ladder)
		}
	}
	if code, _, stderr := call(t, "conform", "rc/psn", "--out", dir); code != exitUsage || !strings.Contains(stderr, "is not empty") {
		t.Errorf("into a folder in use: exit code %d, %q", code, stderr)
	}
}

// Runs with the same seed have the same results, down to the packets.
func TestConformIsDeterministic(t *testing.T) {
	results := func() string {
		_, run := conformJSON(t, "rc/rnr", "rc/tmo", "--device", "softroce", "--defect", "JiffyTimers", "--seed", "3")
		text := must.Get(json.Marshal(run.Devices))(t)
		return took.ReplaceAllString(string(text), "")
	}
	if a, b := results(), results(); a != b {
		t.Error("two runs with one seed differ")
	}
}

var took = regexp.MustCompile(`"took":\d+,`)

// devicesOf returns the names of the providers of some protocols.
func devicesOf(protocols ...conformance.Protocol) []string {
	return nics.NamesWith(func(p *nics.Provider) bool { return slices.Contains(protocols, p.Protocol) })
}

func TestConformChoosesDevices(t *testing.T) {
	both, roce, iwarp := devicesOf(conformance.RoCE, conformance.IWARP), devicesOf(conformance.RoCE), devicesOf(conformance.IWARP)
	withDefect := nics.NamesWith(func(p *nics.Provider) bool { return p.CheckDefect("FixedHopLimit") == nil })
	for line, want := range map[string][]string{
		"rc/psn/gap-naked-once mpa/fpdu/layout":                    both,
		"rc/psn/gap-naked-once mpa/fpdu/layout --device softiwarp": nil,
		"mpa/fpdu/layout": iwarp,
		"--label area:icrc --level must --defect FixedHopLimit": withDefect,
		"rc/psn/gap-naked-once --as rxe-6.1":                    {"softroce as rxe-6.1"},
		"mpa/fpdu/layout --device softiwarp --device softiwarp": {"softiwarp"},
		"rc/inv/free-window-leaves-the-device-alive":            roce,
	} {
		if want == nil {
			if code, _, stderr := call(t, append([]string{"conform"}, strings.Fields(line)...)...); code != exitUsage || !strings.Contains(stderr, "no case for softiwarp") {
				t.Errorf("%s: exit code %d, %q", line, code, stderr)
			}
			continue
		}
		_, run := conformJSON(t, strings.Fields(line)...)
		var names []string
		for i := range run.Devices {
			names = append(names, run.Devices[i].Label())
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: %s, want %s", line, names, want)
		}
	}
}

func TestKnownDeviationsPass(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deviations.yaml")
	write := func(text string) {
		must.Do(t, os.WriteFile(file, []byte(text), 0o666))
	}
	const id = "rc/psn/ack-of-what-was-never-sent-ignored"
	args := []string{"rc/psn/requests-count-by-one", id, "--device", "softroce", "--deviations", file}
	write(id + ": {reason: made up, seen-on: this test}\n")
	code, run := conformJSON(t, append(args, "--defect", "GhostAckCompletes")...)
	if r := run.Devices[0].Results; code != exitOK || r[1].Verdict != conform.Deviates || r[1].Deviation != "made up (seen on this test)" || r[1].Got == "" {
		t.Errorf("exit code %d, %+v", code, r)
	}
	code, run = conformJSON(t, args...)
	if r := run.Devices[0].Results; code != exitFailed || r[1].Verdict != conform.Stale {
		t.Errorf("exit code %d, %+v", code, r)
	}
	// A deviation known on another tier does not apply, and is not stale.
	write(id + ": {reason: made up, on: netns}\n")
	if code, run = conformJSON(t, append(args, "--defect", "GhostAckCompletes")...); code != exitFailed || run.Devices[0].Results[1].Verdict != conform.Fail {
		t.Errorf("exit code %d, %+v", code, run.Devices[0].Results)
	}
	if code, run = conformJSON(t, args...); code != exitOK || run.Devices[0].Results[1].Verdict != conform.Pass {
		t.Errorf("exit code %d, %+v", code, run.Devices[0].Results)
	}
	for text, want := range map[string]string{
		"rc/psn/gap-naked-once: {reason: x, on: hw}": "must be one of sim, netns, wire",
		"rc/psn/gap-naked-onec: {reason: x}":         "did you mean rc/psn/gap-naked-once",
		"rc/psn/gap-naked-once: {why: x}":            "field why not found",
		"rc/psn/gap-naked-once: {}":                  `the key "reason" is missing`,
		"- rc":                                       "cannot unmarshal",
	} {
		write(text)
		if code, _, stderr := call(t, append([]string{"conform"}, args...)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q", text, code, stderr)
		}
	}
}

// --check-cases runs each case on its defects, and counts the cases that catch a defect. The test
// leaves the clone, because mutants take long: the conform step of CI runs them.
func TestCheckCasesRunsDefectsOfCases(t *testing.T) {
	t.Chdir(t.TempDir())
	// All these cases name defects that are not mutants.
	args := strings.Fields("acc/event cm/rtu ev/qp uc/error wc/flags recovery/timeout recovery/rnr --device softroce --check-cases")
	code, run := conformJSON(t, args...)
	if code != exitOK || len(run.Faults) > 0 {
		t.Errorf("exit code %d: %+v", code, run.Faults)
	}
	for _, r := range run.Devices[0].Results {
		if len(r.Defective) == 0 {
			t.Errorf("%s was run on no defect", r.ID)
		}
		for _, f := range r.Defective {
			if f.Verdict != conform.Fail {
				t.Errorf("%s: %s with %s", r.ID, f.Verdict, f.Defect)
			}
		}
	}
	caught := 0
	for _, m := range run.Devices[0].DefectChecks {
		if len(m.Caught) > 0 {
			caught++
		}
	}
	if caught < 6 || caught == len(run.Devices[0].DefectChecks) {
		t.Errorf("%d of %d defects are caught by some of the cases", caught, len(run.Devices[0].DefectChecks))
	}
}

func TestMatrixRunsEveryCaseOnEveryDefect(t *testing.T) {
	t.Chdir(t.TempDir())
	_, run := conformJSON(t, "rc/psn/gap-naked-once", "rc/psn/requests-count-by-one", "--device", "softroce", "--check-cases", "--matrix")
	p := must.Get(nics.Find("softroce"))(t)
	for _, m := range run.Devices[0].DefectChecks {
		if m.Tried != 2 && p.CheckDefect(m.Defect) == nil { // some defects need a value
			t.Errorf("%s: %d cases were run", m.Defect, m.Tried)
		}
	}
}

func TestListShowAndCoveragePrintCases(t *testing.T) {
	_, out, _ := call(t, "list", "cases", "rc/psn")
	if !strings.Contains(out, "rc/psn/gap-naked-once ") || strings.Contains(out, "mpa/") {
		t.Error(out)
	}
	_, out, _ = call(t, "list", "cases", "--json")
	var all []judge.ListedCase
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) < 500 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	_, out, _ = call(t, "conform", "show", "rc/psn/gap-naked-once")
	golden(t, "conform-show", out)
	_, out, _ = call(t, "conform", "coverage")
	if !strings.Contains(out, "roce  RoCEv2") || strings.Contains(out, "RC: PSNs") {
		t.Error(out)
	}
	_, out, _ = call(t, "conform", "coverage", "roce")
	if !strings.Contains(out, "  RC: PSNs") || strings.Contains(out, "rfc5044") {
		t.Error(out)
	}
}

func TestConformInNamespaces(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	code, out, stderr := call(t, "conform", "rc/psn/gap-naked-once", "mpa/fpdu/layout", "--on", "netns", "--out", dir, "--defect", "AckPSNOff", "--device", "softroce")
	if code != exitUsage || !strings.Contains(stderr, "no case for softroce") {
		t.Errorf("exit code %d, %q, %q", code, out, stderr)
	}
	code, out, stderr = call(t, "conform", "rc/psn/gap-naked-once", "mpa/fpdu/layout", "--on", "netns", "--out", dir)
	if want := fmt.Sprintf("All %d cases pass", len(devicesOf(conformance.RoCE, conformance.IWARP))); code != exitOK || !strings.Contains(out, want) {
		t.Errorf("exit code %d, %q, %q", code, out, stderr)
	}
	if run, err := conform.ReadFile(filepath.Join(dir, conform.ResultFile)); err != nil || run.Tier != "netns" || strings.Contains(run.Command, "--out") {
		t.Errorf("%+v, %v", run, err)
	}
	if code, out, stderr = call(t, "conform", "rc/psn/gap-naked-once", "--on", "netns", "--defect", "AckPSNOff"); code != exitFailed || !strings.Contains(out, "--on netns") {
		t.Errorf("exit code %d, %q, %q", code, out, stderr)
	}
}

func TestInterruptedConformHasSignalExitCode(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interruptedError{syscall.SIGINT})
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out, errs bytes.Buffer
	if code := execute(ctx, cli.GoRun, []string{"conform", "rc/psn"}, &out, &errs); code != 130 || !strings.Contains(errs.String(), "interrupted: 0 of") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

// Measurements are printed, written and drawn; those of a defective device differ.
func TestMeasureReportsLatencies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, out, stderr := call(t, "conform", "measure", "--out", dir)
	if code != exitOK || !strings.Contains(out, "nak/generation") || !strings.Contains(out, "from the packet after a gap to the NAK") {
		t.Fatalf("exit code %d, %q, %q", code, out, stderr)
	}
	sound, err := conform.ReadFile(filepath.Join(dir, conform.ResultFile))
	if err != nil || len(sound.Devices) != len(devicesOf(conformance.RoCE)) || !strings.HasPrefix(sound.Command, cli.GoRun+" conform measure --device softroce") {
		t.Fatalf("%+v, %v", sound, err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !strings.Contains(string(page), "position of the packet that is lost, of 8") {
		t.Errorf("no chart in a page of %d bytes, %v", len(page), err)
	}
	_, out, _ = call(t, "conform", "measure", "--json", "--defect", "NAKWaitsForTimer")
	defective := must.Get(conform.Read(strings.NewReader(out)))(t)
	for _, name := range []string{"nak/reaction/first", "loss/at-3/retransmission"} {
		if a, b := measured(sound, name), measured(defective, name); b < 100*a {
			t.Errorf("%s: %g us, with the defect %g us", name, a, b)
		}
	}
	for flags, want := range map[string]string{
		"--device softiwarp":     "softiwarp cannot be measured",
		"--as siw-6.12":          "softiwarp cannot be measured",
		"--device x":             "no provider",
		"--defect Nonsense":      "Nonsense",
		"--on moon":              "give sim or netns",
		"nak/generation":         "unknown command",
		"--device softroce --as": "needs an argument",
	} {
		if code, _, stderr := call(t, append([]string{"conform", "measure"}, strings.Fields(flags)...)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("measure %s: exit code %d, %q", flags, code, stderr)
		}
	}
}

func measured(run *conform.Run, name string) float64 {
	for _, m := range run.Devices[0].Measured {
		if m.Name == name {
			return m.Median
		}
	}
	return -1
}

func TestListDefectsListsAll(t *testing.T) {
	_, plain, _ := call(t, "list", "defects")
	_, out, _ := call(t, "list", "defects", "--json")
	var listed []nics.Defect
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != len(nics.AllDefects()) {
		t.Fatalf("%d defects, %v", len(listed), err)
	}
	for _, q := range listed {
		if !strings.Contains(plain, q.Name+" ") || !strings.Contains(plain, q.Does) {
			t.Errorf("%s is not in the plain list", q.Name)
		}
	}
}

func TestDoctorListsKernelGuests(t *testing.T) {
	_, out, _ := call(t, "doctor")
	wantIn(t, out, "kernel guests  ", "libibverbs  ")
}
