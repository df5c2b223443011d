package lab

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// allExpectations is a scenario with every kind of expectation.
const allExpectations = `
fabric: {kind: star, hosts: 4}
events: [{on: [host0], nth: 5, do: drop}]
faults:
  - {at: 10ms, do: down, on: [host1], for: 5ms}
  - {at: 50ms, do: kill, on: [host3]}
workload: {kind: all-to-all, messages: 10, reconnect: true}
expect:
  delivered: exactly-once
  memory: identical
  errors: {host1: [retry exceeded]}
  killed: [host3]
  retransmits: {min: 5, max: 10}
  reconnects: {min: 1, max: 1}
  marked: {max: 20}
  lost: {min: 3}
  max_time: 100ms
  max_memory: 64MiB
  recovery: 3ms
`

// expectedRun returns an observation that meets allExpectations.
func expectedRun(t testing.TB) *Observation {
	p := plan(t, allExpectations)
	o := &Observation{
		Plan: p, Tier: scenarios.NetNS, Elapsed: 90 * time.Millisecond, Events: []uint64{1},
		Links: []report.Link{
			{From: "host0/rdma0", To: "switch0", Lost: map[string]uint64{"event": 1, "link_down": 1}, Marked: 20},
			{From: "switch0", To: "host0/rdma0", Corrupted: 1},
		},
	}
	for i := range p.Steps {
		o.Steps = append(o.Steps, ExecutedStep{Step: &p.Steps[i], At: p.Steps[i].At})
	}
	for i := range 4 {
		r := Rank{Rank: i, Host: p.Topology.Hosts[i].Name, State: Finished, MemoryKiB: 30 << 10}
		r.Report = &workload.Report{Rank: i, Elapsed: 80 * time.Millisecond, MemoryChecked: 1000}
		for k := range 4 {
			if k == i {
				continue
			}
			r.Report.Flows = append(r.Report.Flows, workload.Flow{Peer: k, Posted: 10, Acked: 10, Expected: 10, Arrived: 10, Bytes: 1000})
		}
		r.Report.Counters = []verbs.Counter{{Name: "sent_pkts", Value: 100}, {Name: "retransmitted_pkts", Value: 2}}
		for at := time.Millisecond; at < 80*time.Millisecond; at += time.Millisecond {
			n := uint64(at / time.Millisecond)
			if at > 10*time.Millisecond {
				n = max(10, n-7) // no progress from 10 to 17 ms
			}
			r.Samples = append(r.Samples, workload.Sample{At: at, Messages: n})
		}
		o.Ranks = append(o.Ranks, r)
	}
	o.Ranks[1].Report.Failures = []workload.Failure{{Peer: 3, Status: verbs.WCRetryExcErr.String()}, {Peer: 3, Status: verbs.WCWRFlushErr.String()}}
	o.Ranks[1].Report.FailureCount = 2
	o.Ranks[1].Report.Reconnects = 1
	o.Ranks[3].State, o.Ranks[3].Report = Killed, nil
	o.Ranks[0].Report.Flows[2].Arrived = 4 // from the killed rank
	return o
}

func failed(checks []report.Check) (names []string) {
	for _, c := range checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func TestJudgePassesExpectedRun(t *testing.T) {
	checks := Judge(expectedRun(t))
	for _, c := range checks {
		if !c.OK {
			t.Errorf("%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
	}
	want := strings.Fields("programs killed delivered memory violations errors retransmits reconnects marked lost events max_time max_memory recovery")
	if !slices.Equal(names, want) {
		t.Errorf("checks %v\nwant %v", names, want)
	}
}

func TestJudgeAcceptsOnlyAllowedErrors(t *testing.T) {
	const head = "version: 1\nname: test\ntitle: A test\nfabric: {kind: pair}\nworkload: {kind: stream}\n"
	retry, access := verbs.WCRetryExcErr.String(), verbs.WCRemAccessErr.String()
	for _, tc := range []struct {
		expect string
		saw    []string // by host0
		ok     bool
		want   string
	}{
		{"allowed_errors: {host0: [retry exceeded]}", nil, true, "host0 may: retry exceeded; nothing else"},
		{"allowed_errors: {host0: [retry exceeded]}", []string{retry}, true, ""},
		{"allowed_errors: {host0: [retry exceeded]}", []string{retry, access}, false, ""},
		{"allowed_errors: {host1: [retry exceeded]}", []string{retry}, false, ""},
		{"errors: {host0: [remote access]}, allowed_errors: {\"host*\": [retry exceeded]}", []string{access}, true, "host0: remote access; host* may: retry exceeded; nothing else"},
		{"errors: {host0: [remote access]}, allowed_errors: {\"host*\": [retry exceeded]}", []string{access, retry}, true, ""},
		{"errors: {host0: [remote access]}, allowed_errors: {\"host*\": [retry exceeded]}", []string{retry}, false, ""},
		{"errors: {}", nil, true, "none"},
		{"errors: {}", []string{retry}, false, "none"},
		{"errors: {}", []string{verbs.WCWRFlushErr.String()}, false, ""},
		{"allowed_errors: {}", []string{retry}, false, "none"},
		{"errors: {host0: [retry exceeded]}, in: {sim: {errors: {}}}", []string{retry}, false, "none"},
	} {
		s := must.Get(scenarios.Parse("test.yaml", []byte(head+"expect: {"+tc.expect+"}\n")))(t)
		plan := must.Get(NewPlan(s, Options{}))(t)
		seen := &workload.Report{}
		for _, status := range tc.saw {
			seen.Failures = append(seen.Failures, workload.Failure{Status: status})
		}
		o := &Observation{Plan: plan, Tier: scenarios.Sim, Ranks: []Rank{
			{Rank: 0, Host: "host0", State: Finished, Report: seen}, {Rank: 1, Host: "host1", State: Finished, Report: &workload.Report{}},
		}}
		checks := Judge(o)
		i := slices.IndexFunc(checks, func(c report.Check) bool { return c.Name == "errors" })
		if i < 0 || checks[i].OK != tc.ok || tc.want != "" && checks[i].Want != tc.want {
			t.Errorf("%s, and host0 saw %v: %+v, want %v", tc.expect, tc.saw, checks[max(i, 0)], tc.ok)
		}
	}
}

// Each expectation can fail alone.
func TestJudgeFailsEachUnmetExpectation(t *testing.T) {
	for name, tc := range map[string]struct {
		want   string // the check that fails
		got    string // part of its result
		change func(*Observation)
	}{
		"a program fails": {"programs", "rank 2 on host2 failed: no memory", func(o *Observation) {
			o.Ranks[2].State, o.Ranks[2].Err = Errored, errors.New("no memory\nand more")
		}},
		"a process exits": {"programs", "rank 2 on host2 exited: signal segmentation fault", func(o *Observation) {
			o.Ranks[2].State, o.Ranks[2].Signal = Exited, "segmentation fault"
		}},
		"a process exits with a code": {"programs", "exit code 3", func(o *Observation) { o.Ranks[2].State, o.Ranks[2].ExitCode = Exited, new(3) }},
		"a program hangs": {"programs", "rank 2 on host2 did not end: deadlock", func(o *Observation) {
			o.AbortReason, o.Ranks[2].State, o.Elapsed = "deadlock", Hung, 99*time.Millisecond
		}},
		"another host is killed": {"killed", "host2, host3", func(o *Observation) { o.Ranks[2].State = Killed }},
		"no host is killed": {"killed", "none", func(o *Observation) {
			o.Ranks[3].State, o.Ranks[3].Report = Finished, &workload.Report{}
			o.Ranks[0].Report.Flows[2].Arrived = 10
		}},
		"a message is missing":                       {"delivered", "received 9 of rank 1's 10 messages", func(o *Observation) { o.Ranks[2].Report.Flows[1].Arrived = 9 }},
		"a message is duplicated":                    {"delivered", "1 of rank 1's messages twice", func(o *Observation) { o.Ranks[2].Report.Flows[1].Duplicates = 1 }},
		"a message of the killed rank is duplicated": {"delivered", "1 of rank 3's messages twice", func(o *Observation) { o.Ranks[0].Report.Flows[2].Duplicates = 1 }},
		"an error is missing":                        {"errors", `rank 1 on host1 saw no "retry exceeded"`, func(o *Observation) { o.Ranks[1].Report.Failures = nil }},
		"another error occurs": {"errors", `rank 1 on host1 saw 1 of "remote access"`, func(o *Observation) {
			o.Ranks[1].Report.Failures = append(o.Ranks[1].Report.Failures, workload.Failure{Status: verbs.WCRemAccessErr.String()})
		}},
		"an error elsewhere": {"errors", `rank 2 on host2 saw 1 of "retry exceeded"`, func(o *Observation) {
			o.Ranks[2].Report.Failures = []workload.Failure{{Status: verbs.WCRetryExcErr.String()}}
		}},
		"too few retransmits":     {"retransmits", "4", func(o *Observation) { o.Ranks[0].Report.Counters = nil }},
		"too many retransmits":    {"retransmits", "14", func(o *Observation) { o.Ranks[0].Counters = []verbs.Counter{{Name: "retransmitted_pkts", Value: 10}} }},
		"no reconnect":            {"reconnects", "0", func(o *Observation) { o.Ranks[1].Report.Reconnects = 0 }},
		"too many marks":          {"marked", "21", func(o *Observation) { o.Links[1].Marked = 1 }},
		"too few losses":          {"lost", "2", func(o *Observation) { o.Links[1].Corrupted = 0 }},
		"max_time exceeded":       {"max_time", "101 ms", func(o *Observation) { o.Ranks[0].Report.Elapsed = 101 * time.Millisecond }},
		"max_memory exceeded":     {"max_memory", "65.0 MiB at rank 2", func(o *Observation) { o.Ranks[2].MemoryKiB = 65 << 10 }},
		"an event does not occur": {"events", "events[0], drop of packet 5, did not occur", func(o *Observation) { o.Events[0] = 0 }},
		"an event fails":          {"events", "no such field", func(o *Observation) { o.EventErrors = []string{"no such field"} }},
		"recovery is slow": {"recovery", "4 ms after host1/rdma0 down at 10 ms", func(o *Observation) {
			for i := range o.Ranks[1].Samples {
				if s := &o.Ranks[1].Samples[i]; s.At < 19*time.Millisecond {
					s.Messages = min(s.Messages, 10)
				}
			}
		}},
		"no recovery": {"recovery", "rank 1 on host1 received nothing after host1/rdma0 down", func(o *Observation) {
			o.Ranks[1].Samples = o.Ranks[1].Samples[:12]
			o.Ranks[1].Report.Flows[2].Arrived = 3 // of the killed rank
		}},
		"the workload ends before the fault": {"recovery", "no message was received after any fault", func(o *Observation) {
			for i := range o.Ranks {
				o.Ranks[i].Samples = o.Ranks[i].Samples[:9]
			}
		}},
	} {
		o := expectedRun(t)
		tc.change(o)
		checks := Judge(o)
		if got := failed(checks); !slices.Equal(got, []string{tc.want}) {
			t.Errorf("%s: %v fail, want %s", name, got, tc.want)
			continue
		}
		i := slices.IndexFunc(checks, func(c report.Check) bool { return c.Name == tc.want })
		if !strings.Contains(checks[i].Got, tc.got) {
			t.Errorf("%s: got %q, want %q in it", name, checks[i].Got, tc.got)
		}
	}
}

func TestMemoryCheckCountsOnlyContentViolations(t *testing.T) {
	corruption := workload.Violation{Kind: traffic.Contents, What: "host0 with host1 on rail 0: message 3: 4 in a row differ"}
	order := workload.Violation{Kind: traffic.Delivery, What: "host0 with host1 on rail 0: message 3 arrived before byte 7 of memory"}
	unknownID := workload.Violation{Kind: traffic.Completion, What: "host0: a completion with the unknown work request ID 0x1"}
	for _, tc := range []struct {
		found []workload.Violation
		want  []string
		got   string // of violations
	}{
		{[]workload.Violation{corruption}, []string{"memory", "violations"}, "1, listed under memory"},
		{[]workload.Violation{order}, []string{"violations"}, "1: rank 2 on host2: " + order.What},
		{[]workload.Violation{unknownID, corruption, corruption}, []string{"memory", "violations"}, "3: rank 2 on host2: " + unknownID.What + "; 2 listed under memory"},
	} {
		o := expectedRun(t)
		o.Ranks[2].Report.Violations = tc.found
		checks := Judge(o)
		if got := failed(checks); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v fail, want %v", tc.found, got, tc.want)
		}
		i := slices.IndexFunc(checks, func(c report.Check) bool { return c.Name == "violations" })
		if checks[i].Got != tc.got {
			t.Errorf("%v: got %q, want %q", tc.found, checks[i].Got, tc.got)
		}
	}
}

func TestMemoryCheckFailsIfNothingWasCompared(t *testing.T) {
	for text, want := range map[string][]string{"": nil, ", memory: identical": {"memory"}, ", memory: any": nil} {
		p := plan(t, "fabric: {kind: pair}\nexpect: {delivered: any"+text+"}\n")
		if got := failed(Judge(&Observation{Plan: p, Ranks: []Rank{{State: Finished, Report: &workload.Report{}}}})); !slices.Equal(got, want) {
			t.Errorf("%q: %v fail, want %v", text, got, want)
		}
	}
}

// The reason has the beginning of the text, and the check all of it.
func TestReasonIsShortened(t *testing.T) {
	o := expectedRun(t)
	long := strings.Repeat("byte 7 is wrong, ", 40)
	o.Ranks[2].Report.Violations = []workload.Violation{{Kind: traffic.Contents, What: long}}
	r := NewResult(o.Plan.Scenario, o.Tier, &Options{})
	o.FillResult(r)
	if len(r.Reason) > maxReason+len(" …") || !strings.HasPrefix(r.Reason, "memory: rank 2 on host2: byte 7") || !strings.HasSuffix(r.Reason, " …") {
		t.Errorf("%d bytes: %s", len(r.Reason), r.Reason)
	}
	all := ""
	for _, c := range r.Checks {
		all += c.Got
	}
	if n := strings.Count(all, long); n != 1 {
		t.Errorf("the text is in %d checks", n)
	}
}

// A scenario may expect violations, to show that a defect is found.
func TestJudgeRequiresExpectedViolations(t *testing.T) {
	p := plan(t, "fabric: {kind: pair}\nexpect: {violations: {min: 1}, delivered: any, memory: any}\n")
	o := &Observation{Plan: p, Ranks: []Rank{{State: Finished, Report: &workload.Report{}}}}
	if got := failed(Judge(o)); !slices.Equal(got, []string{"violations"}) {
		t.Errorf("without violations: %v", got)
	}
	o.Ranks[0].Report.Violations = []workload.Violation{{Kind: traffic.Contents, What: "byte 7 is wrong"}}
	if got := failed(Judge(o)); len(got) != 0 {
		t.Errorf("with violations: %v", got)
	}
}

func TestDefaultDelivery(t *testing.T) {
	for text, want := range map[string]string{
		"workload: {kind: stream, messages: 1}":                                        exactlyOnce,
		"workload: {kind: random, services: [rc, xrc], messages: 10}":                  exactlyOnce,
		"workload: {kind: random, services: [rc], messages: 10, excuses: [gives_up]}":  atMostOnce,
		"workload: {kind: random, services: [rc, ud], messages: 10, excuses: [loses]}": anything,
		"workload: {kind: random, services: [uc], messages: 10, excuses: [loses]}":     anything,
	} {
		s := parse(t, "fabric: {kind: pair}\n"+text+"\n")
		if got := defaultDelivery(&s.Workload); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestJudgeOmitsUnmeasuredMemory(t *testing.T) {
	o := expectedRun(t)
	for i := range o.Ranks {
		o.Ranks[i].MemoryKiB = 0
	}
	if slices.ContainsFunc(Judge(o), func(c report.Check) bool { return c.Name == "max_memory" }) {
		t.Error("a check of memory that was not measured")
	}
}

func TestJudgeUsesExpectationsOfTier(t *testing.T) {
	p := plan(t, "fabric: {kind: pair}\nexpect: {lost: {max: 0}, delivered: any, in: {sim: {lost: {min: 1}}}}\n")
	for tier, want := range map[scenarios.Tier][]string{scenarios.Sim: {"lost"}, scenarios.NetNS: nil} {
		if got := failed(Judge(&Observation{Plan: p, Tier: tier})); !slices.Equal(got, want) {
			t.Errorf("%s: %v", tier, got)
		}
	}
}

// A fault that repeats before recovery is judged by its last repetition.
func TestRecoveryIsMeasuredAfterLastRepetition(t *testing.T) {
	p := plan(t, `
fabric: {kind: pair}
faults: [{at: 10ms, do: down, on: [host1], for: 1ms, times: 3, every: 3ms}]
expect: {recovery: 5ms, delivered: any}
`)
	o := &Observation{Plan: p}
	for i := range p.Steps {
		o.Steps = append(o.Steps, ExecutedStep{Step: &p.Steps[i], At: p.Steps[i].At})
	}
	flows := []workload.Flow{{Peer: 1, Posted: 10}}
	got := []workload.Flow{{Peer: 0, Expected: 10, Arrived: 10}}
	o.Ranks = []Rank{
		{Rank: 0, Host: "host0", State: Finished, Report: &workload.Report{Flows: flows}},
		{Rank: 1, Host: "host1", State: Finished, Report: &workload.Report{Flows: got}, Samples: []workload.Sample{
			{At: 9 * time.Millisecond, Messages: 5}, {At: 20 * time.Millisecond, Messages: 6},
		}},
	}
	faults := o.faults()
	if len(faults) != 3 || faults[0].Recovered != nil || faults[1].Recovered != nil || faults[2].Recovered == nil || *faults[2].Recovered != 3*time.Millisecond {
		t.Errorf("%+v", faults)
	}
	if faults[2].At != 16*time.Millisecond || faults[2].Until != 17*time.Millisecond || !slices.Equal(faults[2].On, []string{"host1/rdma0"}) {
		t.Errorf("%+v", faults[2])
	}
	if got := failed(Judge(o)); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestFillResult(t *testing.T) {
	o := expectedRun(t)
	opts := Options{Replay: "fabrictest run test --seed 3", Seed: 3}
	r := NewResult(o.Plan.Scenario, o.Tier, &opts)
	o.FillResult(r)
	if r.Verdict != report.Passed || r.Reason != "" || r.Name != "test" || r.Tier != "netns" || r.Seed != 3 || r.Replay != opts.Replay {
		t.Errorf("%s: %s; %s on %s, seed %d, %s", r.Verdict, r.Reason, r.Name, r.Tier, r.Seed, r.Replay)
	}
	if len(r.Ranks) != 4 || r.Ranks[0].Messages != 24 || r.Ranks[0].Resent != 2 || r.Ranks[1].Reconn != 1 || r.Ranks[1].Failures != 2 || len(r.Ranks[0].Samples) != 79 {
		t.Errorf("rank 0: %d messages, %d retransmits, %d samples", r.Ranks[0].Messages, r.Ranks[0].Resent, len(r.Ranks[0].Samples))
	}
	if r.Ranks[3].State != Killed || r.Ranks[3].Messages != 72 {
		t.Errorf("the killed rank: %d messages, %+v", r.Ranks[3].Messages, r.Ranks[3].State)
	}
	o.Ranks[2].State, o.Ranks[2].Err, o.Ranks[2].Waiting = Errored, errors.New("no memory"), "it was at work\non something"
	o.FillResult(r)
	if r.Verdict != report.Failed || r.Reason != "programs: want every program ends without an error, got rank 2 on host2 failed: no memory" || r.Detail != "rank 2 on host2 failed: no memory\n  it was at work\n  on something" {
		t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
	}
	MarkBroken(r, errors.New("the disk is full\nat byte 7"))
	if r.Verdict != report.Broken || r.Reason != "the disk is full" || !strings.HasSuffix(r.Detail, "at byte 7") {
		t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
	}
}
