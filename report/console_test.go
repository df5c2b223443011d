package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
)

func names(run *report.Run) []string {
	var all []string
	for i := range run.Scenarios {
		all = append(all, run.Scenarios[i].Name)
	}
	return all
}

// show displays a whole run.
func show(t *testing.T, cfg report.DisplayConfig, run *report.Run) {
	t.Helper()
	cfg.Total = len(run.Scenarios)
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	d := report.NewDisplay(cfg, names(run))
	for i := range run.Scenarios {
		d.Start(run.Scenarios[i].Name, run.Scenarios[i].Tier)
	}
	for i := range run.Scenarios {
		d.Done(&run.Scenarios[i])
	}
	must.Do(t, d.Finish(run, report.Paths{HTML: "runs/7/report.html", Result: "runs/7/result.json", JUnit: "runs/7/junit.xml"}))
}

func TestPlainOutputIsGolden(t *testing.T) {
	var out, status bytes.Buffer
	show(t, report.DisplayConfig{Out: &out, Status: &status}, sampleRun())
	testutil.Golden(t, "testdata/plain.golden", out.Bytes(), *update)
	if status.Len() > 0 {
		t.Errorf("progress without a terminal: %q", status.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "\x1b") || strings.HasSuffix(line, " \n") {
			t.Errorf("%q", line)
		}
	}
}

func TestPassingRunIsGolden(t *testing.T) {
	run := sampleRun()
	run.Scenarios = []report.Result{run.Scenarios[0], run.Scenarios[2], run.Scenarios[6]}
	var out bytes.Buffer
	show(t, report.DisplayConfig{Out: &out, Status: &out}, run)
	testutil.Golden(t, "testdata/passing.golden", out.Bytes(), *update)
}

func TestColumnsLineUp(t *testing.T) {
	var out bytes.Buffer
	d := report.NewDisplay(report.DisplayConfig{Out: &out, Status: &out}, []string{"rc-clean", "a-longer-name"})
	d.Done(&report.Result{Name: "rc-clean", Tier: "sim", Verdict: report.Passed})
	d.Done(&report.Result{
		Name: "a-longer-name", Tier: "netns", Verdict: report.Passed, Elapsed: 59 * time.Second,
		Ranks: []report.Rank{{Messages: 40_000_000, Bytes: 999 << 30, Resent: 9_999_999}},
		Links: []report.Link{{Lost: map[string]uint64{"loss": 9_999_999}}},
	})
	d.Close()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, l := range lines {
		if utf8.RuneCountInString(l) != utf8.RuneCountInString(lines[0]) || utf8.RuneCountInString(l) > 100 {
			t.Errorf("%d columns:\n%s", utf8.RuneCountInString(l), out.String())
		}
	}
}

// TestFailureReasonIsPrintedOnce: a row has the beginning of the reason, and the summary all of it,
// under the check that failed.
func TestFailureReasonIsPrintedOnce(t *testing.T) {
	long := "rank 0 on host0: " + strings.Repeat("byte 7 is wrong, ", 30) + "and so on"
	run := &report.Run{Scenarios: []report.Result{{
		Name: "a", Tier: "sim", Verdict: report.Failed, Reason: "memory: want identical, got " + long,
		Checks: []report.Check{
			{Name: "memory", Want: "identical", Got: long},
			{Name: "delivered", Want: "exactly-once", Got: "9 of 9", OK: true},
			{Name: "violations", Want: "none", Got: "1, listed under memory"},
		},
	}}}
	for _, cols := range []int{0, 80, 20} {
		var out bytes.Buffer
		cfg := report.DisplayConfig{Out: &out, Status: &bytes.Buffer{}, Getenv: func(string) string { return "dumb" }}
		if cols > 0 {
			cfg.Out = struct {
				*bytes.Buffer
				fixed
			}{&out, fixed(cols)}
		}
		show(t, cfg, run)
		if n := strings.Count(out.String(), "and so on"); n != 1 {
			t.Errorf("%d columns: printed %d times\n%s", cols, n, out.String())
		}
		if !strings.Contains(out.String(), "\nFAIL a on sim: memory, violations\n") {
			t.Errorf("%d columns: no heading that names the checks\n%s", cols, out.String())
		}
		row := strings.Split(out.String(), "\n")[1]
		if most := max(cols, 50); !strings.HasPrefix(row, "FAIL    a ") || cols > 0 && utf8.RuneCountInString(row) > most || utf8.RuneCountInString(row) > 120 {
			t.Errorf("%d columns: %d in %q", cols, utf8.RuneCountInString(row), row)
		}
	}
}

type fixed int

func (f fixed) Columns() int { return int(f) }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no reader") }

func TestFinishReturnsWriteError(t *testing.T) {
	d := report.NewDisplay(report.DisplayConfig{Out: brokenWriter{}, Status: &bytes.Buffer{}}, nil)
	d.Done(&report.Result{Verdict: report.Passed})
	if err := d.Finish(&report.Run{}, report.Paths{}); err == nil {
		t.Error("no error")
	}
}

// Starved results differ from failures, and have advice.
func TestStarvedResultsHaveAdvice(t *testing.T) {
	first := &report.Attempt{Reason: "the machine is too busy: the first time", Wall: time.Second}
	run := &report.Run{Scenarios: []report.Result{
		{Name: "a", Tier: "netns", Verdict: report.Passed, First: first},
		{Name: "b", Tier: "netns", Verdict: report.Starved, Reason: "the machine is too busy: the second time", First: first},
	}}
	var out bytes.Buffer
	show(t, report.DisplayConfig{Out: &out}, run)
	for _, want := range []string{
		"STARVED  b", "STARVED b on netns: the machine is too busy: the second time; the first attempt: the machine is too busy: the first time",
		"1 starved, 1 passed", "1 passed only when repeated", "Starved 1: other processes kept the processors busy, twice. Repeat with fewer",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// A name cannot move the cursor or clear the screen.
func TestTextsAreEscapedForTerminal(t *testing.T) {
	var out bytes.Buffer
	show(t, report.DisplayConfig{Out: &out}, hostileRun())
	testutil.CheckTerminal(t, out.String())
}

func junit(t *testing.T, run *report.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, report.WriteJUnit(&b, run))
	return b.Bytes()
}

func TestJUnitIsGolden(t *testing.T) {
	testutil.Golden(t, "testdata/junit.golden.xml", junit(t, sampleRun()), *update)
}

// parsedJUnit has the fields that a CI server reads.
type parsedJUnit struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Skipped  int `xml:"skipped,attr"`
	Suites   []struct {
		Name  string `xml:"name,attr"`
		Tests int    `xml:"tests,attr"`
		Cases []struct {
			Name    string  `xml:"name,attr"`
			Time    float64 `xml:"time,attr"`
			Failure []struct {
				Message string `xml:"message,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
			Error   []struct{} `xml:"error"`
			Skipped []struct{} `xml:"skipped"`
			Out     string     `xml:"system-out"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func TestJUnitCountsAgree(t *testing.T) {
	for name, run := range map[string]*report.Run{"sample": sampleRun(), "hostile": hostileRun(), "empty": {}} {
		var p parsedJUnit
		if err := xml.Unmarshal(junit(t, run), &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := run.Counts()
		if p.Tests != len(run.Scenarios) || p.Failures != n[report.Failed] || p.Errors != n[report.Broken]+n[report.Starved] || p.Skipped != n[report.Skipped] {
			t.Errorf("%s: %+v of %v", name, p, n)
		}
		cases, failures, errs, skipped := 0, 0, 0, 0
		for _, s := range p.Suites {
			if s.Tests != len(s.Cases) {
				t.Errorf("%s: %d cases, the attribute is %d", s.Name, len(s.Cases), s.Tests)
			}
			for _, c := range s.Cases {
				cases++
				failures += len(c.Failure)
				errs += len(c.Error)
				skipped += len(c.Skipped)
				if !strings.Contains(c.Out, "replay: ") {
					t.Errorf("%s: no replay command", c.Name)
				}
			}
		}
		if cases != p.Tests || failures != p.Failures || errs != p.Errors || skipped != p.Skipped {
			t.Errorf("%s: counted %d, %d, %d, %d, the attributes are %+v", name, cases, failures, errs, skipped, p)
		}
	}
}

func TestStarvedResultIsAnErrorOfItsOwnType(t *testing.T) {
	run := &report.Run{Scenarios: []report.Result{{
		Name: "a", Tier: "netns", Verdict: report.Starved, Reason: "the machine is too busy",
		First: &report.Attempt{Reason: "too busy at first"},
	}}}
	var b bytes.Buffer
	must.Do(t, report.WriteJUnit(&b, run))
	for _, want := range []string{`<error message="the machine is too busy" type="starved">`, `name="first attempt" value="too busy at first"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is missing in\n%s", want, b.String())
		}
	}
	if !run.OnlyStarved() || run.RepeatedCount() != 0 {
		t.Error("a run whose only problem is a starved result is not OnlyStarved")
	}
	if run.Scenarios = append(run.Scenarios, report.Result{Verdict: report.Failed}); run.OnlyStarved() {
		t.Error("a run with a failure is OnlyStarved")
	}
}
