package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// faultInterval is one fault with its measured begin and end.
type faultInterval struct {
	begin, end time.Duration // end is 0 if the fault did not end
	step       *Step
	ranks      []int // indices in Observation.Ranks of the affected ranks
	// recovered is the time from the end until all affected ranks have received a
	// message again; nil if unknown.
	recovered    *time.Duration
	notRecovered string // name of a rank that received nothing more, though messages were missing
}

// faultIntervals returns the time between begin and end of each fault that was executed, the ranks
// that it affected, and the time that the recovery took.
func (o *Observation) faultIntervals() []faultInterval {
	var all []faultInterval
	for i := range o.Steps {
		step := &o.Steps[i]
		if !step.Undo {
			interval := faultInterval{begin: step.At, step: step.Step, ranks: o.affectedRanks(step.Step)}
			if step.Do == scenarios.QPError { // has no duration
				interval.end = step.At
			}
			all = append(all, interval)
			continue
		}
		for k := range all {
			if all[k].step.Fault == step.Fault && all[k].step.Repetition == step.Repetition {
				all[k].end = step.At
			}
		}
	}
	for k := range all {
		o.measureRecovery(all, k)
	}
	return all
}

// affectedRanks returns the ranks on the hosts of a fault, or at the hosts of its ports, and all
// ranks if the fault is at a link between switches.
func (o *Observation) affectedRanks(s *Step) (ranks []int) {
	ports := slices.Concat(s.Ports, slices.Concat(s.Groups...))
	for i := range o.Ranks {
		isAffected := slices.ContainsFunc(s.Hosts, func(h int) bool { return o.Plan.Topology.Hosts[h].Name == o.Ranks[i].Host })
		for _, k := range ports {
			p := &o.Plan.Ports[k]
			// A port without a host belongs to a trunk between switches, which any flow may use.
			isAffected = isAffected || p.Node == o.Ranks[i].Host || p.Host < 0
		}
		if isAffected {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// measureRecovery sets recovered of fault k, the time from its end until the last of the affected
// ranks received again, or notRecovered, a rank that did not. For a rank that only sends, its
// receivers count. A rank that the next fault affects before it receives again is left out, and so
// is one that was killed or has received everything.
func (o *Observation) measureRecovery(all []faultInterval, k int) {
	s := &all[k]
	stillActive := s.end == 0 && s.step.Do != scenarios.QPError // a QP error may be at time 0
	if s.step.Do == scenarios.Kill || stillActive {
		return
	}
	var worst time.Duration
	measured := false
	for _, i := range o.receivers(s.ranks) {
		r := &o.Ranks[i]
		at, ok := nextDelivery(r, s.end)
		if next := o.nextFault(all, k, i); next > 0 && (!ok || at > next) {
			continue // the next fault began before this rank received again
		}
		switch {
		case ok:
			worst, measured = max(worst, at-s.end), true
		case r.State == Killed || receivedAll(r): // it needs no more messages
		default:
			s.notRecovered = r.name()
		}
	}
	if measured && s.notRecovered == "" {
		s.recovered = &worst
	}
}

// receivers returns those of the ranks that receive messages or have no report, and, for each rank
// that only sends, the ranks that it sends to. Ranks are indices in o.Ranks.
func (o *Observation) receivers(ranks []int) (all []int) {
	add := func(i int) {
		if !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	for _, i := range ranks {
		r := o.Ranks[i].Report
		if r == nil {
			add(i)
			continue
		}
		receives := false
		for _, f := range r.Flows {
			receives = receives || f.Expected > 0
		}
		if receives {
			add(i)
			continue
		}
		for _, f := range r.Flows {
			if k := slices.IndexFunc(o.Ranks, func(other Rank) bool { return other.Rank == f.Peer }); k >= 0 {
				add(k)
			}
		}
	}
	return all
}

// nextDelivery returns the time of the first sample after a time in which the rank has received
// more messages than before; false if there is none.
func nextDelivery(r *Rank, after time.Duration) (time.Duration, bool) {
	before := uint64(0)
	for _, s := range r.Samples {
		if s.At <= after {
			before = s.Messages
		} else if s.Messages > before {
			return s.At, true
		}
	}
	return 0, false
}

// nextFault returns the begin of the first fault, after the end of fault k, that keeps the rank
// from receiving: a fault of the rank itself, or of a rank that sends to it and receives
// nothing, because the recovery after such a fault shows only at the ranks to which it sends. It returns
// 0 if there is none.
func (o *Observation) nextFault(all []faultInterval, k, rank int) time.Duration {
	for _, s := range all[k+1:] {
		if s.begin >= all[k].end && slices.Contains(o.receivers(s.ranks), rank) {
			return s.begin
		}
	}
	return 0
}

// receivedAll reports whether a rank has received all expected messages.
func receivedAll(r *Rank) bool {
	if r.Report == nil {
		return false
	}
	for _, f := range r.Report.Flows {
		if f.Arrived < f.Expected {
			return false
		}
	}
	return true
}

// checkRecovery checks that traffic continues within "expect.recovery" after each fault.
func (j *checker) checkRecovery() {
	limit := j.want.Recovery
	if limit == 0 {
		return
	}
	var wrong []string
	var worst time.Duration
	measured := 0
	for _, s := range j.faultIntervals() {
		fault := fmt.Sprintf("%s at %s", j.Plan.DescribeStep(s.step), cli.Duration(s.begin))
		switch {
		case s.notRecovered != "":
			wrong = append(wrong, fmt.Sprintf("%s received nothing after %s", s.notRecovered, fault))
		case s.recovered == nil:
		default:
			measured++
			worst = max(worst, *s.recovered)
			if *s.recovered > limit {
				wrong = append(wrong, fmt.Sprintf("%s after %s", cli.Duration(*s.recovered), fault))
			}
		}
	}
	if measured == 0 && len(wrong) == 0 {
		wrong = append(wrong, "no message was received after any fault: did the workload end before?")
	}
	j.checkProblems("recovery", "within "+cli.Duration(limit), fmt.Sprintf("%s at worst, after %s", cli.Duration(worst), cli.Plural(measured, "fault")), wrong)
	j.setLackOfCPUMayExplain(true) // lack of CPU time can delay the recovery
}

// faults returns the faults for the report. The end of a fault without a duration is 0.
func (o *Observation) faults() (all []report.Fault) {
	for _, s := range o.faultIntervals() {
		fault := report.Fault{At: s.begin, What: o.Plan.DescribeStep(s.step), On: o.Plan.stepTargets(s.step), Recovered: s.recovered}
		if s.step.Do != scenarios.QPError {
			fault.Until = s.end
		}
		all = append(all, fault)
	}
	return all
}
