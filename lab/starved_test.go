package lab

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// busy is the scheduling of a run on a loaded machine, quiet on an idle one.
var (
	busy  = report.Scheduling{Others: 0.6, Process: "rank 1", Waited: time.Second, Ran: time.Second}
	quiet = report.Scheduling{Others: 0.02, Process: "rank 1", Waited: time.Second, Ran: time.Second}
)

// A failure that a lack of CPU time can cause is excused on a loaded machine only. Other failures
// are not excused.
func TestStarvationExcusesOnlyTimingFailures(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *Observation)
		timing bool
	}{
		{"max_time exceeded", func(o *Observation) { o.Ranks[0].Report.Elapsed = time.Minute }, true},
		{"too few retransmissions", func(o *Observation) { o.Ranks[0].Report.Counters, o.Ranks[1].Report.Counters = nil, nil }, true},
		{"too many marks", func(o *Observation) { o.Links[0].Marked = 1000 }, true},
		{"no recovery", func(o *Observation) { o.Ranks[1].Samples = nil }, true},
		{"stuck program", func(o *Observation) {
			o.Ranks[0].State, o.Ranks[0].Err, o.Ranks[0].Timeout, o.Ranks[0].Report = Errored, errors.New("timeout"), true, nil
		}, true},
		{"hung program", func(o *Observation) { o.Ranks[0].State, o.Ranks[0].Report = Hung, nil }, true},
		{"retries exceeded, messages missing", func(o *Observation) {
			o.Ranks[0].Report.Failures = []workload.Failure{{Status: verbs.WCRetryExcErr.String()}}
			o.Ranks[0].Report.Flows[0].Acked = 4 // to rank 1
			o.Ranks[1].Report.Flows[0].Arrived = 4
		}, true},
		{"retries exceeded at the receiver, messages missing", func(o *Observation) {
			o.Ranks[1].Report.Failures = append(o.Ranks[1].Report.Failures, workload.Failure{Peer: 0, Status: verbs.WCRetryExcErr.String()})
			o.Ranks[1].Report.Flows[0].Arrived = 4 // all 10 are acknowledged to rank 0
		}, true},
		{"expected timeout not seen", func(o *Observation) { o.Ranks[1].Report.Failures = nil }, true},
		{"host not killed in time", func(o *Observation) {
			o.Ranks[3] = o.Ranks[2]
			o.Ranks[3].Rank, o.Ranks[3].Host = 3, "host3"
			o.Ranks[0].Report.Flows[2].Arrived = 10
		}, true},

		{"program failed", func(o *Observation) {
			o.Ranks[0].State, o.Ranks[0].Err = Errored, errors.New("connection with rank 1: bad P_Key")
		}, false},
		{"process crashed", func(o *Observation) { o.Ranks[0].State, o.Ranks[0].Signal = Exited, "SIGSEGV" }, false},
		{"message lost", func(o *Observation) { o.Ranks[1].Report.Flows[0].Arrived-- }, false},
		{"acknowledged message lost, and a timeout", func(o *Observation) {
			o.Ranks[0].Report.Failures = []workload.Failure{{Status: verbs.WCRetryExcErr.String()}}
			o.Ranks[1].Report.Flows[0].Arrived-- // all 10 are acknowledged to rank 0
		}, false},
		{"message duplicated", func(o *Observation) { o.Ranks[1].Report.Flows[0].Duplicates = 1 }, false},
		{"wrong bytes", func(o *Observation) {
			o.Ranks[0].Report.Violations = []workload.Violation{{Kind: traffic.Contents, What: "octet 7 is 1, not 2"}}
		}, false},
		{"messages swapped", func(o *Observation) {
			o.Ranks[0].Report.Violations = []workload.Violation{{Kind: traffic.Delivery, What: "message 7 before 6"}}
		}, false},
		{"unexpected error", func(o *Observation) {
			o.Ranks[1].Report.Failures = append(o.Ranks[1].Report.Failures, workload.Failure{Status: verbs.WCRemAccessErr.String()})
		}, false},
		{"expected error that needs no timer not seen", func(o *Observation) {
			o.Plan.Scenario.Expect.Errors = map[string][]string{"host1": {"retry exceeded", "remote access"}}
		}, false},
		{"too much memory", func(o *Observation) { o.Ranks[0].MemoryKiB = 1 << 30 }, false},
		{"event did not occur", func(o *Observation) { o.Events[0] = 0 }, false},
		{"another host killed", func(o *Observation) { o.Ranks[2].State, o.Ranks[2].Report = Killed, nil }, false},
		{"late and corrupted", func(o *Observation) {
			o.Ranks[0].Report.Elapsed = time.Minute
			o.Ranks[0].Report.Violations = []workload.Violation{{Kind: traffic.Contents, What: "octet 7 is 1, not 2"}}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for s, want := range map[*report.Scheduling]report.Verdict{nil: report.Failed, &quiet: report.Failed, &busy: report.Failed} {
				if c.timing && s == &busy {
					want = report.Starved
				}
				o := expectedRun(t)
				c.change(o)
				o.Scheduling = s
				var r report.Result
				if o.FillResult(&r); r.Verdict != want {
					t.Errorf("scheduled %+v: %s, want %s: %s", s, r.Verdict, want, r.Reason)
				}
				if r.Verdict == report.Starved && !strings.Contains(r.Reason, "other processes, or a CPU limit, took 60 % of the processors") {
					t.Errorf("reason %q", r.Reason)
				}
			}
		})
	}
}

func TestPassedRunIsNotStarved(t *testing.T) {
	o := expectedRun(t)
	o.Scheduling = &busy
	var r report.Result
	if o.FillResult(&r); r.Verdict != report.Passed || r.Scheduling != &busy {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

func TestStarvedNeedsLongWaitsAndOtherLoad(t *testing.T) {
	o := expectedRun(t) // its shortest time limit is recovery, 3 ms
	for _, c := range []struct {
		s    report.Scheduling
		want bool
	}{
		{busy, true},
		{quiet, false},
		{report.Scheduling{Others: 0.6, Waited: 2 * time.Millisecond, Ran: time.Millisecond}, false},
		{report.Scheduling{Others: 0.6, Waited: 4 * time.Millisecond, Ran: time.Millisecond}, true},
		{report.Scheduling{Others: 0.6, Waited: 100 * time.Millisecond, Ran: 10 * time.Second}, false},
		{report.Scheduling{Others: 0.6}, false},
		{report.Scheduling{Late: 251 * time.Millisecond}, true},
		{report.Scheduling{Late: 249 * time.Millisecond}, false},
	} {
		if o.Scheduling = &c.s; o.isStarved() != c.want {
			t.Errorf("%+v: %v", c.s, !c.want)
		}
	}
	o.SetScheduling(0.5, []SchedStat{{"the lab process", time.Second, time.Second}, {"rank 0", time.Millisecond, time.Second}, {"rank 1", time.Second, 0}})
	if s := o.Scheduling; s.Process != "rank 0" || s.Others != 0.5 || s.Waited != time.Second || s.Late != 0 {
		t.Errorf("%+v", s)
	}
	o.Steps[1].At += time.Second
	if o.SetScheduling(0, nil); o.Scheduling.Late != time.Second || !o.isStarved() {
		t.Errorf("%+v", o.Scheduling)
	}
}
