package report_test

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
)

func junit(t *testing.T, run *report.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, report.WriteJUnit(&b, run))
	return b.Bytes()
}

func TestJUnitIsGolden(t *testing.T) {
	testutil.Golden(t, "testdata/junit.golden.xml", junit(t, sampleRun()), *update)
}

// parsedJUnit is what a CI server reads of it.
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
				t.Errorf("%s: %d cases, says %d", s.Name, len(s.Cases), s.Tests)
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
			t.Errorf("%s: counted %d, %d, %d, %d, says %+v", name, cases, failures, errs, skipped, p)
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
	if !run.OnlyStarved() || run.Repeated() != 0 {
		t.Error("a run with a starved result and nothing else that is bad is not only starved")
	}
	if run.Scenarios = append(run.Scenarios, report.Result{Verdict: report.Failed}); run.OnlyStarved() {
		t.Error("a run with a failure is only starved")
	}
}
