package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// A run in real time is starved if its processes had to wait for a processor for so
// long that its timers could expire, and processes outside of it were the cause. What
// then comes too late says nothing of the fabric. What is lost, doubled or damaged
// does, however busy the machine is.

const (
	// othersShare is how much of the processors others must have used. A run whose own
	// processes compete for the processors behaves as it does on any quiet machine of
	// that size: its failures are its own.
	othersShare = 0.2
	// waitedShare is how much of the time in which a process was runnable it must have
	// waited. Short waits add up over a long run, and delay nothing.
	waitedShare = 0.2
	// maxLate is how long after its time a fault may be done before what follows from it
	// says nothing of the fabric.
	maxLate = 250 * time.Millisecond
)

// Waits is how long a process of the run was on a processor, and how long it waited
// for one.
type Waits struct {
	Process     string
	Ran, Waited time.Duration
}

// share is the part of the time in which the process could have run that it waited.
func (w *Waits) share() float64 {
	if w.Waited == 0 {
		return 0
	}
	return float64(w.Waited) / float64(w.Ran+w.Waited)
}

// Schedule notes how the processes of the run were scheduled, others being the share
// of the processors that was used outside of it.
func (o *Observed) Schedule(others float64, all []Waits) {
	o.Scheduling = &report.Scheduling{Others: others, Late: o.lateness()}
	if len(all) == 0 {
		return
	}
	most := slices.MaxFunc(all, func(a, b Waits) int {
		switch sa, sb := a.share(), b.share(); {
		case sa < sb:
			return -1
		case sa > sb:
			return 1
		}
		return 0
	})
	o.Scheduling.Process, o.Scheduling.Waited, o.Scheduling.Ran = most.Process, most.Waited, most.Ran
}

// lateness is how late the fault came that was most behind its time.
func (o *Observed) lateness() (most time.Duration) {
	for _, d := range o.Steps {
		most = max(most, d.At-d.Step.At)
	}
	return most
}

// starved reports whether the run was.
func (o *Observed) starved() bool {
	s := o.Scheduling
	if s == nil {
		return false
	}
	w := Waits{Ran: s.Ran, Waited: s.Waited}
	return s.Late > maxLate || s.Others >= othersShare && w.share() >= waitedShare && s.Waited >= o.shortestTimer()
}

// shortestTimer is the shortest time that the scenario relies on: a process that
// waited for less than that in all has made none of its timers expire.
func (o *Observed) shortestTimer() time.Duration {
	want := o.Plan.Scenario.ExpectOn(o.Tier)
	least := o.Plan.Scenario.Workload.AckTimeout()
	for _, t := range []time.Duration{want.MaxTime, want.Recovery} {
		if t > 0 {
			least = min(least, t)
		}
	}
	return least
}

// excuse makes a failure of a starved run Starved, if a matter of time is all that
// went wrong.
func (o *Observed) excuse(r *report.Result) {
	if !o.starved() || slices.ContainsFunc(r.Checks, func(c report.Check) bool { return !c.OK && !c.Timing }) {
		return
	}
	r.Verdict, r.Reason = report.Starved, fmt.Sprintf("the machine is too busy: %v; then %s", o.Scheduling, r.Reason)
}

// late reports whether a rank did not come to its end because something took too
// long: it did not crash, and nothing it met was wrong.
func (r *Rank) late() bool { return r.State == Hung || r.State == Errored && r.Timeout }

// lateStatus reports whether a completion status, as scenarios call it, can follow
// from a timeout alone.
func lateStatus(name string) bool {
	s, ok := scenarios.Status(name)
	return ok && (s == verbs.WCRetryExcErr || s == verbs.WCRNRRetryExcErr || s == verbs.WCRespTimeoutErr || s == verbs.WCWRFlushErr)
}

// gaveUp reports whether rank r misses messages of a flow because one of its ends gave
// up. If the sender was told that they had arrived, and the receiver came to its end,
// they are lost.
func (j *judge) gaveUp(r *Rank, f *workload.Flow) bool {
	k := slices.IndexFunc(j.Ranks, func(x Rank) bool { return x.Rank == f.Peer })
	if k < 0 {
		return false
	}
	from := &j.Ranks[k]
	if r.State == Finished && from.Report != nil {
		for _, back := range from.Report.Flows {
			if back.Peer == r.Rank && back.Acked > f.Arrived {
				return false
			}
		}
	}
	return r.late() || from.late() || r.timedOut() || from.timedOut()
}

// timedOut reports whether requests of a rank failed by a timeout, and by nothing
// else.
func (r *Rank) timedOut() bool {
	if r.Report == nil || len(r.Report.Failures) == 0 {
		return false
	}
	return !slices.ContainsFunc(r.Report.Failures, func(f workload.Failure) bool { return !lateStatus(statusName(f.Status)) })
}
