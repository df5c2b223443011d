package conform_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
)

// judged is a run of a few verdicts on two devices.
func judged() *conform.Run {
	rows := []conform.Row{{ID: "roce/rc/psn/1"}, {ID: "roce/uc/1"}}
	run := &conform.Run{
		Wall: 1234 * time.Millisecond,
		Documents: []conform.Document{
			{Key: "roce", Title: "RoCEv2", Sections: []conform.Section{{Title: "RC: PSNs", Rows: rows[:1]}, {Title: "UC", Rows: rows[1:]}}},
			{Key: "rfc5044", Title: "RFC 5044", Sections: []conform.Section{{Title: "4.1", Rows: []conform.Row{{ID: "rfc5044/4.1/1"}}}}},
		},
	}
	one := func(id, row string, v conform.Verdict) conform.Result {
		return conform.Result{ID: id, Title: "The device does what " + id + " says", Cite: "IBTA C9-1", Level: "MUST", Rows: []string{row}, Verdict: v, Replay: "fabrictest conform " + id + " --seed 1"}
	}
	roce := conform.Device{Name: "softroce", Results: []conform.Result{
		one("rc/psn/a", "roce/rc/psn/1", conform.Pass), one("rc/psn/b", "roce/rc/psn/1", conform.Fail), one("uc/x/y", "roce/uc/1", conform.Unsupported), one("q/q/q", "nowhere", conform.Stale),
		one("rc/psn/c", "roce/rc/psn/1", conform.Deviates), one("uc/x/z", "roce/uc/1", conform.Unsupported),
	}}
	bad := &roce.Results[1]
	bad.Reason, bad.Want, bad.Got, bad.Capture = "want one, got two\x1b[2J", "one", "two\x1b[2J", "captures/rc/psn/b.pcapng"
	bad.Ladder = new(conform.Ladder)
	for i := range 20 {
		bad.Ladder.Steps = append(bad.Ladder.Steps, conform.Step{At: time.Duration(i) * time.Microsecond, Kind: conform.Came, Text: fmt.Sprintf("ACK psn %d", i)})
	}
	roce.Results[2].Reason, roce.Results[5].Reason = "the device does not claim UC", "the device does not claim UC"
	known := &roce.Results[4]
	known.Want, known.Got, known.Deviation = "one\x1b", "three", "A reason that is so long that it does not fit into a line of a terminal by any means, and so is broken: firmware 7 (seen on\x1b firmware 7)"
	roce.Results[3].Reason = "q/q/q passes: delete its deviation"
	roce.DefectChecks = []conform.DefectCheck{{Defect: "A", Caught: []string{"rc/psn/a"}}, {Defect: "B"}, {Defect: "C", Excused: "this bench cannot ask"}}
	run.Faults = []conform.Fault{{Kind: conform.Uncaught, Device: "softroce", Defect: "B", What: "no case notices B"}}
	run.Devices = []conform.Device{roce, {Name: "softiwarp", As: "siw-6.12", Results: []conform.Result{one("mpa/x/y", "rfc5044/4.1/1", conform.Pass)}}}
	return run
}

func judge(t *testing.T, cfg report.DisplayConfig, ladders bool, run *conform.Run) {
	t.Helper()
	d := conform.NewDisplay(cfg, ladders)
	for i := range run.Devices {
		for j := range run.Devices[i].Results {
			r := &run.Devices[i].Results[j]
			d.Start(r.ID)
			d.Done(r.ID, r)
		}
	}
	d.Start("rc/psn/a with B")
	d.End("rc/psn/a with B")
	must.Do(t, d.Finish(run, report.Paths{HTML: "runs/7/report.html", Result: "runs/7/conformance.json"}))
}

func TestVerdictsAreGolden(t *testing.T) {
	var out, status bytes.Buffer
	judge(t, report.DisplayConfig{Out: &out, Status: &status}, false, judged())
	testutil.Golden(t, "testdata/verdicts.golden", out.Bytes(), *update)
	if status.Len() > 0 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("progress or colours where there is no terminal: %q", status.String())
	}
	// Of one device every section is told.
	run := judged()
	run.Devices, run.Faults = run.Devices[:1], nil
	run.Devices[0].Results = run.Devices[0].Results[:1]
	run.Devices[0].DefectChecks = nil
	out.Reset()
	judge(t, report.DisplayConfig{Out: &out, Status: &status}, true, run)
	testutil.Golden(t, "testdata/verdicts-passing.golden", out.Bytes(), *update)
}

func TestTextsAreEscapedForTerminal(t *testing.T) {
	var out bytes.Buffer
	judge(t, report.DisplayConfig{Out: &out}, true, hostileRun())
	testutil.CheckTerminal(t, out.String())
}
