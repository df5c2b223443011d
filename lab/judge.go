package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Judge compares an observation with the scenario's expectations on its tier (simulation or network
// namespaces). It returns a check for each expectation in the scenario, and for those that apply to
// all scenarios. A check whose data the tier does not measure is left out.
func Judge(o *Observation) []report.Check {
	j := &checker{Observation: o, want: o.Plan.Scenario.ExpectOn(o.Tier)}
	j.checkPrograms()
	j.checkKilled()
	j.checkDelivered()
	j.checkMemory()
	j.checkViolations()
	j.checkErrors()
	j.checkCounts()
	j.checkEvents()
	j.checkLimits()
	j.checkRecovery()
	return j.checks
}

// checker collects the checks of an observation.
type checker struct {
	*Observation
	want   scenarios.Expect
	checks []report.Check
}

// add adds a check.
func (j *checker) add(name string, ok bool, want, got string) {
	j.checks = append(j.checks, report.Check{Name: name, Want: want, Got: got, OK: ok})
}

// setLackOfCPUMayExplain sets whether a lack of CPU time may explain why the last check failed. It
// has no effect if the check passed.
func (j *checker) setLackOfCPUMayExplain(mayExplain bool) {
	c := &j.checks[len(j.checks)-1]
	c.Timing = mayExplain && !c.OK
}

// checkProblems adds a check, which fails with a summary of the problems, if there are any.
func (j *checker) checkProblems(name, want, got string, problems []string) {
	if len(problems) > 0 {
		got = summary(problems)
	}
	j.add(name, len(problems) == 0, want, got)
}

// summary joins the first problems in one line.
func summary(all []string) string {
	const maxShown = 3
	text := strings.Join(all[:min(len(all), maxShown)], "; ")
	if more := len(all) - maxShown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func (r *Rank) name() string { return fmt.Sprintf("rank %d on %s", r.Rank, r.Host) }

// checkPrograms checks that the program of every rank ends without an error, except those killed by
// a fault, and that the run was not aborted. AbortReason is empty if the run was not aborted.
func (j *checker) checkPrograms() {
	var wrong []string
	finished := 0
	for i := range j.Ranks {
		r := &j.Ranks[i]
		switch r.State {
		case Finished:
			finished++
		case Killed: // checkKilled checks these
		case Hung:
			cause := exitCause(r)
			if j.AbortReason != "" {
				cause = ": " + j.AbortReason
			}
			wrong = append(wrong, r.name()+" did not end"+cause)
		default:
			wrong = append(wrong, r.name()+" "+r.State+exitCause(r))
		}
	}
	if len(wrong) == 0 && j.AbortReason != "" {
		wrong = append(wrong, j.AbortReason)
	}
	j.checkProblems("programs", "every program ends without an error", fmt.Sprintf("%d of %d did", finished, len(j.Ranks)), wrong)
	// A lack of CPU time causes timeouts: it does not explain other failures.
	failedWithoutTimeout := func(r Rank) bool { return !r.endedByTimeout() && r.State != Finished && r.State != Killed }
	j.setLackOfCPUMayExplain(!slices.ContainsFunc(j.Ranks, failedWithoutTimeout))
}

// exitCause returns the error, signal or exit code of a rank after ": ", for messages; "" if none.
func exitCause(r *Rank) string {
	var all []string
	if r.Err != nil {
		line, _, _ := strings.Cut(r.Err.Error(), "\n")
		all = append(all, line)
	}
	if r.Signal != "" {
		all = append(all, "signal "+r.Signal)
	} else if r.ExitCode != nil && *r.ExitCode != 0 {
		all = append(all, fmt.Sprintf("exit code %d", *r.ExitCode))
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// checkKilled checks that exactly the expected hosts are killed.
func (j *checker) checkKilled() {
	var want, got []string
	for _, h := range j.Plan.Topology.Hosts {
		if scenarios.MatchesAny(j.want.Killed, h.Name) {
			want = append(want, h.Name)
		}
	}
	for i := range j.Ranks { // in the order of hosts, each of which has at most one rank
		if j.Ranks[i].State == Killed {
			got = append(got, j.Ranks[i].Host)
		}
	}
	if len(want)+len(got) > 0 {
		j.add("killed", slices.Equal(want, got), joinNames(want), joinNames(got))
		// With too little CPU time, a host may end before it is killed, but no other is killed.
		isUnexpected := func(host string) bool { return !slices.Contains(want, host) }
		j.setLackOfCPUMayExplain(!slices.ContainsFunc(got, isUnexpected))
	}
}

// joinNames joins names with commas, or returns "none".
func joinNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// checkLimits checks "expect.max_time" and, if ranks are processes, "expect.max_memory".
func (j *checker) checkLimits() {
	if limit := j.want.MaxTime; limit > 0 {
		took := j.workTime()
		j.add("max_time", took <= limit, "at most "+cli.Duration(limit), cli.Duration(took))
		j.setLackOfCPUMayExplain(true) // lack of CPU time makes a run longer
	}
	if limit := int64(j.want.MaxMemory); limit > 0 {
		largest := -1
		for i := range j.Ranks {
			if m := j.Ranks[i].MemoryKiB; m > 0 && (largest < 0 || m > j.Ranks[largest].MemoryKiB) {
				largest = i
			}
		}
		if largest >= 0 { // simulated ranks have no process
			r := &j.Ranks[largest]
			j.add("max_memory", r.MemoryKiB<<10 <= limit, "at most "+cli.Bytes(limit), cli.Bytes(r.MemoryKiB<<10)+" at "+r.name())
		}
	}
}

// workTime returns the longest time of a rank, unless it was killed, from its first request to its
// last completion. If a rank hangs or has no report, it returns the duration of the run.
func (o *Observation) workTime() (longest time.Duration) {
	for i := range o.Ranks {
		switch r := &o.Ranks[i]; {
		case r.State == Killed:
		case r.Report == nil || r.State == Hung:
			return o.Elapsed
		default:
			longest = max(longest, r.Report.Elapsed)
		}
	}
	return longest
}

// checkEvents checks that each event of the scenario occurred, and that its action succeeded.
func (j *checker) checkEvents() {
	all := j.Plan.Scenario.Events
	if len(all) == 0 {
		return
	}
	wrong := slices.Clone(j.EventErrors)
	occurred := 0
	for i := range all {
		if i < len(j.Events) && j.Events[i] > 0 {
			occurred++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("events[%d], %s, did not occur", i, describeEvent(&all[i])))
	}
	j.checkProblems("events", "every event occurs", fmt.Sprintf("%d of %d occurred", occurred, len(all)), wrong)
	// Lack of CPU time makes an event miss its packet only if a rank ended early.
	j.setLackOfCPUMayExplain(len(j.EventErrors) == 0 && slices.ContainsFunc(j.Ranks, func(r Rank) bool { return r.endedByTimeout() }))
}

// describeEvent returns the action of an event and the packet or byte that it names.
func describeEvent(e *scenarios.Event) string {
	text := e.Do
	switch {
	case e.PSN != nil:
		text += fmt.Sprintf(" of PSN %d", *e.PSN)
	case e.Nth > 0:
		text += fmt.Sprintf(" of packet %d", e.Nth)
	case e.Offset != nil:
		text += fmt.Sprintf(" at offset %d", *e.Offset)
	}
	if e.Conn > 0 {
		text += fmt.Sprintf(" of stream %d", e.Conn)
	}
	if e.QP != nil {
		text += fmt.Sprintf(" to queue pair %#x", *e.QP)
	}
	if e.Time > 0 {
		text += fmt.Sprintf(", occurrence %d", e.Time)
	}
	return text
}

// checkCounts checks the counters that have bounds.
func (j *checker) checkCounts() {
	var resent, reconnects, marked, lost uint64
	for i := range j.Ranks {
		resent += j.retransmits(&j.Ranks[i])
		if r := j.Ranks[i].Report; r != nil {
			reconnects += uint64(r.Reconnects)
		}
	}
	for i := range j.Links {
		marked += j.Links[i].Marked
		lost += j.Links[i].LostPackets()
	}
	for _, c := range []struct {
		name string
		want scenarios.Range
		got  uint64
	}{
		{"retransmits", j.want.Retransmits, resent},
		{"reconnects", j.want.Reconnects, reconnects},
		{"marked", j.want.Marked, marked},
		{"lost", j.want.Lost, lost},
	} {
		if !c.want.IsZero() {
			j.add(c.name, c.want.Contains(c.got), describeRange(c.want), fmt.Sprint(c.got))
			j.setLackOfCPUMayExplain(true) // timers and queues affect these counts
		}
	}
}

// describeRange returns a range, which has at least one bound, as text: "at least 1", "2 to 4".
func describeRange(r scenarios.Range) string {
	switch {
	case r.Min == nil:
		return fmt.Sprintf("at most %d", *r.Max)
	case r.Max == nil:
		return fmt.Sprintf("at least %d", *r.Min)
	case *r.Min == *r.Max:
		return fmt.Sprint(*r.Min)
	}
	return fmt.Sprintf("%d to %d", *r.Min, *r.Max)
}
