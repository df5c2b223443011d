package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/verbs"
)

// scriptedLab makes benches without a device. Its cases look at the defects of the bench.
type scriptedLab struct {
	defects []string
	closed  int
}

func (l *scriptedLab) WithBench(_ context.Context, spec conformance.BenchSpec, body func(*conformance.Bench) error) error {
	l.defects = spec.Defects
	return body(&conformance.Bench{Record: spec.Record, Virtual: true, Runtime: zeroClock{}})
}

func (l *scriptedLab) Close() error { l.closed++; return nil }

type zeroClock struct{ conformance.Runtime }

func (zeroClock) Now() time.Duration { return 0 }

type sink struct{ conformance.Wire }

func (sink) Send([]byte) error { return nil }

// scriptedCases returns cases that pass, fail with the defect Bad, fail always or are unsupported.
func scriptedCases(l *scriptedLab) []Case {
	s := &conformance.Suite{Name: "s", DescribeEvent: func(e *conformance.Event) string { return e.Text }}
	violated := conformance.Violated("an ACK", "a NAK")
	bodies := []struct {
		id      string
		defects []string
		run     func(*conformance.Bench) error
	}{
		{"a/b/blind", []string{"Other=1"}, func(*conformance.Bench) error { return nil }},
		{"a/b/detects", []string{"Bad"}, func(*conformance.Bench) error {
			if slices.Contains(l.defects, "Bad") {
				return violated
			}
			return nil
		}},
		{"a/b/fails", []string{"Bad"}, func(b *conformance.Bench) error {
			p := packet.IP{}.Append(nil, []byte("x"))
			return errors.Join(b.Record.RecordWire(zeroClock{}, sink{}).Send(p), violated)
		}},
		{"a/b/notes", []string{"Gone"}, func(b *conformance.Bench) error { b.Note("only text"); return errors.New("panic\n\nstack") }},
		{"a/b/unsupported", []string{"Rare"}, func(*conformance.Bench) error { return fmt.Errorf("no tunnel: %w", conformance.ErrBenchCannot) }},
	}
	for _, c := range bodies {
		s.Cases = append(s.Cases, conformance.Case{ID: c.id, Title: c.id, Defects: c.defects, Run: c.run, Level: conformance.Must})
	}
	return Select(&conformance.Filter{}, []*conformance.Suite{s})
}

func TestRunJudgesCasesAndChecksThem(t *testing.T) {
	lab := new(scriptedLab)
	show := conform.NewDisplay(report.DisplayConfig{Out: io.Discard, Status: io.Discard}, false)
	defer show.Close()
	selected, restored := []string{}, 0
	d := &Device{Name: "dev", Cases: scriptedCases(lab), Known: []Defect{{Name: "Bad"}, {Name: "Other", NeedsNumber: true}, {Name: "Rare"}, {Name: "Unnamed", Mutant: true}}}
	j := &Judge{
		Options: Options{CheckCases: true, Workers: 1, Capture: cli.CaptureFailing}, Devices: []*Device{d}, Dir: t.TempDir(), Started: time.Unix(0, 0), Show: show,
		Hooks: Hooks{
			Open: func(*Device) (Lab, error) { return lab, nil },
			SelectMutant: func(defects []string) (func(), error) {
				selected = append(selected, defects...)
				return func() { restored++ }, nil
			},
			CheckDefect: func(spec string) error {
				if spec == "Gone" {
					return errors.New("unknown")
				}
				return nil
			},
			Replay: func(d *Device, id string) string { return d.Name + " " + id },
		},
	}
	const trials = 5 + 2 + 1 + 1 // all cases, and those of Bad, Other=1 and Rare
	if got := j.Trials(); got != trials {
		t.Errorf("%d trials, want %d", got, trials)
	}
	run := new(conform.Run)
	must.Do(t, j.Run(t.Context(), run))
	if j.Ended != trials || lab.closed != 1 || !slices.Equal(selected, []string{"Bad", "Other=1", "Rare"}) || restored != 3 {
		t.Errorf("%d cases ended, lab closed %d times, defects %q, %d of them restored", j.Ended, lab.closed, selected, restored)
	}
	checkResults(t, j, run.Devices[0].Results)
	var checks, faults []string
	for _, c := range run.Devices[0].DefectChecks {
		checks = append(checks, strings.Join([]string{c.Defect, strings.Repeat("+", c.Tried), "by", strings.Join(c.Caught, ","), "of", strings.Join(c.Expects, ",")}, " "))
	}
	wantChecks := []string{
		"Bad ++ by a/b/detects of a/b/detects,a/b/fails", "Other + by  of a/b/blind", "Rare + by  of a/b/unsupported", "Unnamed  by  of ",
	}
	if !slices.Equal(checks, wantChecks) {
		t.Errorf("checks %q, want %q", checks, wantChecks)
	}
	for _, f := range run.Faults {
		faults = append(faults, strings.TrimSpace(strings.Join([]string{f.Kind, f.Case, f.Defect}, " ")))
	}
	wantFaults := []string{
		string(conform.Unproven) + " a/b/blind Other=1", string(conform.Unsound) + " a/b/fails", string(conform.Unsound) + " a/b/notes",
		string(conform.UnknownDefect) + " a/b/notes Gone", string(conform.Uncaught) + "  Other", string(conform.Uncaught) + "  Unnamed",
	}
	if !slices.Equal(faults, wantFaults) {
		t.Errorf("faults %q, want %q", faults, wantFaults)
	}
	if j.Filtered = true; len(faultsOf(j, run.Devices)) != 4 {
		t.Errorf("some cases were left out, and %q are faults", faultsOf(j, run.Devices))
	}
	if j.WithoutMutants = true; len(j.defectsToTry(d)) != 3 {
		t.Errorf("%d defects to try without mutants, want 3", len(j.defectsToTry(d)))
	}
	if j.WithoutMutants, j.Matrix = false, true; len(j.defectsToTry(d)) != 4 || j.Trials() != 5+4*5 {
		t.Errorf("matrix: %d defects and %d trials, want 4 and 25", len(j.defectsToTry(d)), j.Trials())
	}
	matrix := new(conform.Run)
	must.Do(t, j.Run(t.Context(), matrix))
	if got := matrix.Devices[0].DefectChecks[0]; !slices.Equal(got.Expects, []string{"a/b/detects", "a/b/fails"}) || got.Tried != 5 {
		t.Errorf("matrix: Bad was tried on %d cases, and expected by %q", got.Tried, got.Expects)
	}
	if j.CheckCases = false; j.Trials() != 5 {
		t.Errorf("%d trials without defects, want 5", j.Trials())
	}
}

func faultsOf(j *Judge, devices []conform.Device) []conform.Fault {
	run := &conform.Run{Devices: devices}
	j.addFaults(run)
	return run.Faults
}

// checkResults checks the results of scriptedCases: verdict, reason, ladder and capture.
func checkResults(t *testing.T, j *Judge, results []conform.Result) {
	t.Helper()
	want := []conform.Result{
		{ID: "a/b/blind", Verdict: conform.Pass},
		{ID: "a/b/detects", Verdict: conform.Pass},
		{ID: "a/b/fails", Verdict: conform.Fail, Reason: "want an ACK, got a NAK", Want: "an ACK", Got: "a NAK", Capture: "captures/a/b/fails.pcapng"},
		{ID: "a/b/notes", Verdict: conform.Broken, Reason: "panic", Detail: "stack"},
		{ID: "a/b/unsupported", Verdict: conform.Unsupported, Reason: "no tunnel"},
	}
	if len(results) != len(want) {
		t.Fatalf("%d results, want %d", len(results), len(want))
	}
	for i, w := range want {
		got := results[i]
		if got.ID != w.ID || got.Verdict != w.Verdict || got.Reason != w.Reason || got.Detail != w.Detail || got.Want != w.Want || got.Got != w.Got || got.Capture != w.Capture {
			t.Errorf("%+v, want %+v", got, w)
		}
		if (got.Ladder != nil) != w.Verdict.Bad() || got.Replay != "dev "+w.ID {
			t.Errorf("%s: ladder %v, replay %q", w.ID, got.Ladder, got.Replay)
		}
	}
	files := must.Get(filepath.Glob(filepath.Join(j.Dir, "captures", "*", "*", "*")))(t)
	if len(files) != 1 || must.Get(os.Stat(files[0]))(t).Size() == 0 {
		t.Errorf("captures %q, want one", files)
	}
}

// Results that need attention, and all if asked for, have a ladder diagram.
func TestResultsHaveLadders(t *testing.T) {
	show := conform.NewDisplay(report.DisplayConfig{Out: io.Discard, Status: io.Discard}, false)
	defer show.Close()
	for _, tc := range []struct {
		verdict conformance.Verdict
		options Options
		want    bool
	}{
		{conformance.VerdictPass, Options{}, false},
		{conformance.VerdictUnsupported, Options{}, false},
		{conformance.VerdictFail, Options{}, true},
		{conformance.VerdictDeviates, Options{}, true},
		{conformance.VerdictPass, Options{Ladders: true}, true},
		{conformance.VerdictPass, Options{Capture: cli.CaptureAll}, true},
	} {
		j := &Judge{Options: tc.options, Show: show, Hooks: Hooks{Replay: func(*Device, string) string { return "" }}}
		c := scriptedCases(new(scriptedLab))[0]
		r := j.finishResult(new(Device), c, &conformance.Result{Case: c.Case, Verdict: tc.verdict, Record: new(conformance.Record), Err: errors.New("x")})
		if (r.Ladder != nil) != tc.want {
			t.Errorf("%s with %+v: ladder %v", tc.verdict, tc.options, !tc.want)
		}
	}
}

// With several devices, the capture is in a folder of the device; an error is reported.
func TestCaptureOfSeveralDevices(t *testing.T) {
	record := new(conformance.Record)
	must.Do(t, record.RecordWire(zeroClock{}, sink{}).Send(packet.IP{}.Append(nil, nil)))
	j := &Judge{Devices: make([]*Device, 2), Dir: t.TempDir()}
	if name := must.Get(j.saveCapture(&Device{Name: "dev"}, "a/b/c", record))(t); name != "captures/dev/a/b/c.pcapng" {
		t.Errorf("the capture is %s", name)
	}
	j.Dir = filepath.Join(j.Dir, "captures/dev/a/b/c.pcapng") // a file
	if name, err := j.saveCapture(&Device{Name: "dev"}, "a/b/c", record); err == nil || name != "" {
		t.Errorf("the folder is a file: %s, %v", name, err)
	}
	if got := []string{j.label(&Device{Name: "dev"}, "a/b/c", []string{"Bad"}), (&Judge{Options: Options{CheckCases: true}}).label(nil, "a/b/c", []string{"Bad"}), new(Judge).label(nil, "a/b/c", nil)}; !slices.Equal(got, []string{"a/b/c on dev", "a/b/c with Bad", "a/b/c"}) {
		t.Errorf("labels %q", got)
	}
}

func TestCasesOfListsAreFound(t *testing.T) {
	for _, tc := range []struct {
		filter conformance.Filter
		want   string // of the error
	}{
		{conformance.Filter{IDs: []string{"rc/psn"}, Labels: []string{"service:rc"}}, ""},
		{conformance.Filter{IDs: []string{"rc/psm"}}, `no case is called "rc/psm"; did you mean rc/psn`},
		{conformance.Filter{IDs: []string{"litmuss"}}, `no case is called "litmuss"; did you mean litmus`},
		{conformance.Filter{Labels: []string{"service:rx"}}, "no case has the label service:rx"},
		{conformance.Filter{ExcludeLabels: []string{"service:rx"}}, "no case has the label service:rx"},
		{conformance.Filter{IDs: []string{"rc/psn"}, Labels: []string{"service:ud"}}, "no case meets all conditions"},
	} {
		found, err := FindCases(&tc.filter)
		if (err == nil) != (tc.want == "") || (len(found) > 0) != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %d cases, %v; want %q", tc.filter, len(found), err, tc.want)
		}
	}
}

// A described case has its requirements, defects and devices, and the commands to run it.
func TestDescribeTellsAll(t *testing.T) {
	s := &conformance.Suite{Name: "verbs"}
	c := Case{s, &conformance.Case{
		ID: "a/b/c", Title: "It works", Level: conformance.Must, Needs: verbs.CapXRC, Setup: conformance.Setup{MTU: 1500}, Labels: []string{conformance.Dangerous},
		Sends: "one packet", Expects: "another", Defects: []string{"Bad=1"}, Cite: conformance.Cite{Doc: "RFC 1", Rows: []string{"none/1", "rfc5044/4.1/3"}},
	}}
	cat := Catalog{
		Devices:        []*Device{{Name: "first", Protocol: conformance.RoCE}, {Name: "second", Protocol: conformance.IWARP}},
		DescribeDefect: func(spec string) string { return spec + " is wrong" },
		CheckDefect:    func(string) error { return nil },
	}
	var out strings.Builder
	must.Do(t, cat.Describe(&out, []Case{c, c}, "prog"))
	requirement, _, _ := strings.Cut(must.Get(rowsByID())(t)["rfc5044/4.1/3"].Text, " ")
	for _, want := range []string{
		"a/b/c\n", "      " + requirement, "It works.", "one packet", "another", "XRC", "an MTU of 1500", "first, second", "none/1  (the ledger has no such row)", "rfc5044/4.1/3  MUST",
		"Bad=1: Bad=1 is wrong", "prog conform a/b/c --packets", "prog conform a/b/c --defect Bad=1", "\n\na/b/c",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	cat.CheckDefect = func(string) error { return errors.New("no device has it") }
	must.Do(t, cat.Describe(&out, []Case{c}, "prog"))
	if strings.Contains(out.String(), "--defect") {
		t.Errorf("a defect that no device can have is tried:\n%s", out.String())
	}
	out.Reset()
	cat.CheckDefect = func(string) error { return nil }
	unproven := *c.Case
	unproven.Defects = nil
	must.Do(t, cat.Describe(&out, []Case{{s, &unproven}}, "prog"))
	if strings.Contains(out.String(), "--defect") {
		t.Errorf("a defect of a case that names none:\n%s", out.String())
	}
	listed := cat.ListCases([]Case{c})
	s.Name = "roce"
	if other := cat.devicesOf(s); !slices.Equal(listed[0].Devices, []string{"first", "second"}) || !slices.Equal(other, []string{"first"}) {
		t.Errorf("devices %q of verbs, %q of roce", listed[0].Devices, other)
	}
	out.Reset()
	safe := *c.Case
	safe.ID, safe.Labels = "a/b/safe", nil
	must.Do(t, WriteCases(&out, []Case{c, {s, &safe}}))
	if got := out.String(); !strings.HasPrefix(got, "a/b/c     MUST    RFC 1  It works (dangerous)\na/b/safe  MUST    RFC 1  It works\n") || !strings.Contains(got, "\n2 cases.") {
		t.Errorf("listed as\n%s", got)
	}
	out.Reset()
	safe.ID = strings.Repeat("a", 60)
	must.Do(t, WriteCases(&out, []Case{c, {s, &safe}}))
	if want := fmt.Sprintf("%-56s  MUST    RFC 1  It works (dangerous)\n", "a/b/c"); !strings.HasPrefix(out.String(), want) {
		t.Errorf("with a long ID, listed as\n%s", out.String())
	}
	out.Reset()
	safe.ID, safe.Cite.Section = "a/b/safe", strings.Repeat("1.", 20)
	must.Do(t, WriteCases(&out, []Case{c, {s, &safe}}))
	if want := fmt.Sprintf("a/b/c     MUST    %-27s  It works (dangerous)\n", "RFC 1"); !strings.HasPrefix(out.String(), want) {
		t.Errorf("with a long clause, listed as\n%s", out.String())
	}
}

// A title that is as wide as its column is printed in full.
func TestShortenKeepsTextsThatFit(t *testing.T) {
	for text, want := range map[string]string{"": "", "fünf": "fünf", "fünfe": "fünfe", "sechse": "sech…"} {
		if got := shorten(text, 5); got != want {
			t.Errorf("%q is shortened to %q, want %q", text, got, want)
		}
	}
}

func TestWrapTextKeepsWords(t *testing.T) {
	full := strings.Repeat("a", 43) + " " + strings.Repeat("b", 44)
	if got := wrapText(full, ""); got != full {
		t.Errorf("a line of %d characters was broken: %q", len(full), got)
	}
	const prefix = "  sends    "
	text := strings.Repeat("a word ", 40) + "end"
	lines := strings.Split(wrapText(text, prefix), "\n")
	words := strings.Fields(strings.TrimPrefix(lines[0], prefix))
	for i, line := range lines {
		if len(line) > 88 || i < len(lines)-1 && len(line) < 88-len(" word") {
			t.Errorf("line %d has %d characters: %s", i, len(line), line)
		}
		if i > 0 {
			words = append(words, strings.Fields(line)...)
		}
	}
	if got := strings.Join(words, " "); got != text {
		t.Errorf("wrapped as %q", got)
	}
}

func TestCoverageOfDocuments(t *testing.T) {
	var all, one strings.Builder
	must.Do(t, WriteCoverage(&all, nil))
	must.Do(t, WriteCoverage(&one, []string{"rfc5044"}))
	if !strings.Contains(all.String(), "rfc5040  ") || !strings.Contains(all.String(), "\n100.0 % of the testable MUSTs are covered.\n") || strings.Contains(one.String(), "rfc5040") || strings.Count(one.String(), "\n") < 8 {
		t.Errorf("%s\n%s", all.String(), one.String())
	}
	for line := range strings.Lines(one.String()) {
		if n := len([]rune(line)); n > 103 {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	rows, covered := 0, 0
	for _, d := range must.Get(Documents())(t) {
		for _, s := range d.Sections {
			for _, r := range s.Rows {
				rows++
				covered += min(len(r.Cases), 1)
			}
		}
	}
	if want := len(must.Get(rowsByID())(t)); rows != want || covered < want/2 {
		t.Errorf("the documents for reports have %d rows, %d of them with cases, want %d rows", rows, covered, want)
	}
	if err := WriteCoverage(io.Discard, []string{"rfc5045"}); err == nil || !strings.Contains(err.Error(), `no document "rfc5045"`) {
		t.Errorf("an unknown document: %v", err)
	}
}

func TestDeviationsAreReadFromFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	suites := []*conformance.Suite{{Cases: []conformance.Case{{ID: "a/b/c"}, {ID: "a/b/d"}}}}
	for _, tc := range []struct{ text, want string }{
		{"a/b/c: {reason: firmware 7}\na/b/d: {reason: firmware 8, on: wire}", ""},
		{"a/b/c: {}", `the key "reason" is missing`},
		{"a/b/x: {reason: firmware 7}", `no suite of the device has a case "a/b/x"`},
	} {
		must.Do(t, os.WriteFile(file, []byte(tc.text), 0o666))
		known, err := ReadDeviations(file, "sim", suites)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.text, err, tc.want)
		}
		if err == nil && (len(known) != 1 || known["a/b/c"].Reason != "firmware 7") {
			t.Errorf("%s: %+v", tc.text, known)
		}
	}
	if _, err := ReadDeviations(file+"x", "sim", suites); err == nil {
		t.Error("a missing file was read")
	}
}
