package lab

import (
	"cmp"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// A run in real time is starved if its processes waited for a CPU long enough to
// expire its timers, and processes outside of the run used the CPUs. Timeouts then
// say nothing about the fabric; lost, duplicated or damaged data still does.

const (
	// minOthersShare is the minimum share of CPU time used by other processes.
	// Competition between the processes of the run itself is no excuse.
	minOthersShare = 0.2
	// minWaitedShare is the minimum share of a process's runnable time that it spent
	// waiting. Short waits add up in a long run without delaying anything.
	minWaitedShare = 0.2
	// maxLate is how late a fault may be executed; a run with later faults is starved.
	maxLate = 250 * time.Millisecond
)

// SchedStat is the time that a process of the run spent on a CPU, and waiting for one.
type SchedStat struct {
	Process     string
	Ran, Waited time.Duration
}

// waitedPart returns the part of its runnable time, 0 to 1, that the process waited for a CPU.
func (w *SchedStat) waitedPart() float64 {
	if w.Waited == 0 {
		return 0
	}
	return float64(w.Waited) / float64(w.Ran+w.Waited)
}

// SetScheduling records how the processes of the run were scheduled: how late the latest step of the
// scenario, such as an injected fault, was executed, and the process that waited for a CPU for the
// largest part of its runnable time. othersShare is the part of all CPU time, 0 to 1, that processes
// outside of the run used.
func (o *Observation) SetScheduling(othersShare float64, all []SchedStat) {
	o.Scheduling = &report.Scheduling{Others: othersShare}
	for _, executed := range o.Steps {
		o.Scheduling.Late = max(o.Scheduling.Late, executed.At-executed.Step.At)
	}
	if len(all) == 0 {
		return
	}
	slowest := slices.MaxFunc(all, func(a, b SchedStat) int { return cmp.Compare(a.waitedPart(), b.waitedPart()) })
	o.Scheduling.Process, o.Scheduling.Waited, o.Scheduling.Ran = slowest.Process, slowest.Waited, slowest.Ran
}

// isStarved reports whether a run in real time got so little CPU time that its timers may have
// expired for this reason: a step was executed very late, or other processes used the CPUs while a
// process of the run waited.
func (o *Observation) isStarved() bool {
	s := o.Scheduling
	if s == nil {
		return false
	}
	w := SchedStat{Ran: s.Ran, Waited: s.Waited}
	return s.Late > maxLate || s.Others >= minOthersShare && w.waitedPart() >= minWaitedShare && s.Waited >= o.shortestTimer()
}

// shortestTimer returns the shortest timeout or time limit of the scenario. A process
// that waited less than that for a CPU cannot have made a timer expire.
func (o *Observation) shortestTimer() time.Duration {
	want := o.Plan.Scenario.ExpectOn(o.Tier)
	shortest := o.Plan.Scenario.Workload.AckTimeout()
	for _, t := range []time.Duration{want.MaxTime, want.Recovery} {
		if t > 0 {
			shortest = min(shortest, t)
		}
	}
	return shortest
}

// endedByTimeout reports whether a rank did not finish because of a timeout only.
func (r *Rank) endedByTimeout() bool { return r.State == Hung || r.State == Errored && r.Timeout }

// isTimeoutStatus reports whether an error, named as in scenarios, can mean a timeout.
func isTimeoutStatus(name string) bool {
	s, ok := scenarios.Status(name)
	return name == workload.PeerLost || ok && (s == verbs.WCRetryExcErr || s == verbs.WCRNRRetryExcErr || s == verbs.WCRespTimeoutErr || s == verbs.WCWRFlushErr)
}

// missingByTimeout reports whether messages of a flow are missing at the receiver r because one of
// its ends timed out. Messages that were acknowledged to the sender, and are missing although r
// finished, are lost; except if a request of r to the sender failed: after that, r counts no messages
// of the sender, but its NIC may still acknowledge some.
func (j *checker) missingByTimeout(r *Rank, f *workload.Flow) bool {
	sender := j.rank(f.Peer)
	if sender == nil {
		return false
	}
	if r.State == Finished && sender.Report != nil && !r.hasFailureWith(sender.Rank) {
		for _, sent := range sender.Report.Flows {
			if sent.Peer == r.Rank && sent.Acked > f.Arrived {
				return false
			}
		}
	}
	return r.endedByTimeout() || sender.endedByTimeout() || r.onlyTimeoutFailures() || sender.onlyTimeoutFailures()
}

// hasFailureWith reports whether a request of a rank to a peer failed.
func (r *Rank) hasFailureWith(peer int) bool {
	return r.Report != nil && slices.ContainsFunc(r.Report.Failures, func(f workload.Failure) bool { return f.Peer == peer })
}

// onlyTimeoutFailures reports whether requests of a rank failed, and all of them by timeouts.
func (r *Rank) onlyTimeoutFailures() bool {
	if r.Report == nil || len(r.Report.Failures) == 0 {
		return false
	}
	return !slices.ContainsFunc(r.Report.Failures, func(f workload.Failure) bool { return !isTimeoutStatus(statusName(f.Status)) })
}
