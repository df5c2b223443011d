package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Judge holds what was observed against what the scenario expects on that tier:
// a check for every expectation that was written down, and for those that always
// hold. A check that the tier cannot make is left out, not passed.
func Judge(o *Observed) []report.Check {
	j := &judge{Observed: o, want: o.Plan.Scenario.ExpectOn(o.Tier)}
	j.programs()
	j.killed()
	j.delivered()
	j.memory()
	j.violations()
	j.errors()
	j.counts()
	j.events()
	j.limits()
	j.recovery()
	return j.checks
}

type judge struct {
	*Observed
	want   scenarios.Expect
	checks []report.Check
}

func (j *judge) check(name string, ok bool, want, got string) {
	j.checks = append(j.checks, report.Check{Name: name, Want: want, Got: got, OK: ok})
}

// timing says of the check made last that, if it is not met, a starved machine can be
// the cause.
func (j *judge) timing(can bool) {
	c := &j.checks[len(j.checks)-1]
	c.Timing = can && !c.OK
}

// verdict is a check that is met unless something is wrong; wrong lists what is.
func (j *judge) verdict(name, want, good string, wrong []string) {
	if len(wrong) > 0 {
		good = summary(wrong)
	}
	j.check(name, len(wrong) == 0, want, good)
}

// summary puts the first of many complaints on a line.
func summary(all []string) string {
	const enough = 3
	text := strings.Join(all[:min(len(all), enough)], "; ")
	if more := len(all) - enough; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// name is how complaints call a rank.
func (r *Rank) name() string { return fmt.Sprintf("rank %d on %s", r.Rank, r.Host) }

// programs: every program comes to its end, but for those that a fault kills.
func (j *judge) programs() {
	var wrong []string
	finished := 0
	for i := range j.Ranks {
		r := &j.Ranks[i]
		switch r.State {
		case Finished:
			finished++
		case Killed: // killed sees to it
		case Hung:
			because := why(r) // of one that gave up by itself
			if j.Observed.Hung != "" {
				because = ": " + j.Observed.Hung
			}
			wrong = append(wrong, r.name()+" did not end"+because)
		default:
			wrong = append(wrong, r.name()+" "+r.State+why(r))
		}
	}
	if len(wrong) == 0 && j.Observed.Hung != "" {
		wrong = append(wrong, j.Observed.Hung)
	}
	j.verdict("programs", "every program comes to its end", fmt.Sprintf("%d of %d did", finished, len(j.Ranks)), wrong)
	j.timing(!slices.ContainsFunc(j.Ranks, func(r Rank) bool { return !r.late() && r.State != Finished && r.State != Killed }))
}

func why(r *Rank) string {
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

// killed: the hosts that are to be killed are, and no other.
func (j *judge) killed() {
	var want, got []string
	for _, h := range j.Plan.Topology.Hosts {
		if scenarios.MatchHost(j.want.Killed, h.Name) {
			want = append(want, h.Name)
		}
	}
	for i := range j.Ranks {
		if j.Ranks[i].State == Killed {
			got = append(got, j.Ranks[i].Host)
		}
	}
	if len(want)+len(got) > 0 {
		j.check("killed", slices.Equal(want, got), list(want), list(got))
		// A host may have ended before it was killed, and none may be killed besides.
		j.timing(!slices.ContainsFunc(got, func(host string) bool { return !slices.Contains(want, host) }))
	}
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// limits: not too long, not too much memory.
func (j *judge) limits() {
	if most := j.want.MaxTime; most > 0 {
		took := j.workTime()
		j.check("max_time", took <= most, "at most "+units.Duration(most), units.Duration(took))
		j.timing(true)
	}
	if most := int64(j.want.MaxMemory); most > 0 {
		largest := -1
		for i := range j.Ranks {
			if m := j.Ranks[i].MemoryKiB; m > 0 && (largest < 0 || m > j.Ranks[largest].MemoryKiB) {
				largest = i
			}
		}
		if largest >= 0 { // a simulated rank has no process of its own to measure
			r := &j.Ranks[largest]
			j.check("max_memory", r.MemoryKiB<<10 <= most, "at most "+units.Bytes(most), units.Bytes(r.MemoryKiB<<10)+" at "+r.name())
		}
	}
}

// workTime is how long the workload took: from a rank's first request to its
// last completion, of the rank that took longest. What starting and stopping
// takes differs from tier to tier and is no part of it. A rank that cannot say
// took all of the run.
func (o *Observed) workTime() (longest time.Duration) {
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

// events: each of them happened, and did what it says.
func (j *judge) events() {
	all := j.Plan.Scenario.Events
	if len(all) == 0 {
		return
	}
	wrong := slices.Clone(j.EventErrors)
	happened := 0
	for i := range all {
		if i < len(j.Events) && j.Events[i] > 0 {
			happened++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("events[%d], %s, never did", i, describe(&all[i])))
	}
	j.verdict("events", "every event happens", fmt.Sprintf("%d of %d did", happened, len(all)), wrong)
	// Without a rank that gave up, every packet was there for events to happen to.
	j.timing(len(j.EventErrors) == 0 && slices.ContainsFunc(j.Ranks, func(r Rank) bool { return r.late() }))
}

func describe(e *scenarios.Event) string {
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
		text += fmt.Sprintf(", time %d", e.Time)
	}
	return text
}

// counts: what is counted lies within its bounds.
func (j *judge) counts() {
	var resent, reconnects, marked, lost uint64
	for i := range j.Ranks {
		resent += j.resent(&j.Ranks[i])
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
			j.check(c.name, c.want.Contains(c.got), bounds(c.want), fmt.Sprint(c.got))
			j.timing(true) // these are packets, whose number depends on timers and queues
		}
	}
}

func bounds(r scenarios.Range) string {
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
