package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// spell is a fault from its beginning to its end.
type spell struct {
	begin, end time.Duration // end 0: it lasted
	step       *Step
	ranks      []int // indices in Ranks of those that it touched
	// recovered is how long after the end the last of them got something again;
	// nil where that cannot be said.
	recovered *time.Duration
	never     string // who did not, though there was more to come
}

// spells pairs the steps that were done, and measures how traffic recovered.
func (o *Observed) spells() []spell {
	var all []spell
	for i := range o.Steps {
		d := &o.Steps[i]
		if !d.Undo {
			s := spell{begin: d.At, step: d.Step, ranks: o.touched(d.Step)}
			if d.Do == scenarios.QPError { // over as soon as it is done
				s.end = d.At
			}
			all = append(all, s)
			continue
		}
		for k := range all {
			if all[k].step.Fault == d.Fault && all[k].step.Round == d.Round {
				all[k].end = d.At
			}
		}
	}
	for k := range all {
		o.measure(all, k)
	}
	return all
}

// touched returns the ranks on the hosts of a fault.
func (o *Observed) touched(s *Step) (ranks []int) {
	ports := slices.Concat(s.Ports, slices.Concat(s.Groups...))
	for i := range o.Ranks {
		hit := slices.ContainsFunc(s.Hosts, func(h int) bool { return o.Plan.Topology.Hosts[h].Name == o.Ranks[i].Host })
		for _, k := range ports {
			p := &o.Plan.Ports[k]
			// A trunk carries whatever its hash gives it: it touches everybody.
			hit = hit || p.Node == o.Ranks[i].Host || p.Host < 0
		}
		if hit {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// measure finds when the ranks that spell k touched received again after its
// end. One that only sends is asked for by those it sends to.
func (o *Observed) measure(all []spell, k int) {
	s := &all[k]
	if s.step.Do == scenarios.Kill || (s.end == 0 && s.step.Do != scenarios.QPError) {
		return
	}
	var worst time.Duration
	measured := false
	for _, i := range o.receivers(s.ranks) {
		r := &o.Ranks[i]
		at, ok := nextDelivery(r, s.end)
		if next := o.nextSpell(all, k, i); next > 0 && (!ok || at > next) {
			continue // the next fault came before this rank could recover from this one
		}
		switch {
		case ok:
			worst, measured = max(worst, at-s.end), true
		case r.State == Killed || complete(r):
		default:
			s.never = r.name()
		}
	}
	if measured && s.never == "" {
		s.recovered = &worst
	}
}

// receivers are the ranks among those given that messages are sent to, and of
// those that only send, the ranks that they send to.
func (o *Observed) receivers(ranks []int) (all []int) {
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
			if k := slices.IndexFunc(o.Ranks, func(x Rank) bool { return x.Rank == f.Peer }); k >= 0 {
				add(k)
			}
		}
	}
	return all
}

// nextDelivery returns when a rank has first been seen to have received more
// than it had at a time. It is as exact as the rank's samples are dense.
func nextDelivery(r *Rank, after time.Duration) (time.Duration, bool) {
	had := uint64(0)
	for _, s := range r.Samples {
		if s.At <= after {
			had = s.Messages
		} else if s.Messages > had {
			return s.At, true
		}
	}
	return 0, false
}

// nextSpell returns when the next fault that touches a rank began; 0 if none did.
func (o *Observed) nextSpell(all []spell, k, rank int) time.Duration {
	for _, s := range all[k+1:] {
		if s.begin >= all[k].end && slices.Contains(o.receivers(s.ranks), rank) {
			return s.begin
		}
	}
	return 0
}

// complete reports that a rank has all that it was to receive.
func complete(r *Rank) bool {
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

// recovery: after each fault, traffic flows again soon enough.
func (j *judge) recovery() {
	most := j.want.Recovery
	if most == 0 {
		return
	}
	var wrong []string
	var worst time.Duration
	measured := 0
	for _, s := range j.spells() {
		what := fmt.Sprintf("%s at %s", j.Plan.What(s.step), units.Duration(s.begin))
		switch {
		case s.never != "":
			wrong = append(wrong, fmt.Sprintf("%s received nothing after %s", s.never, what))
		case s.recovered == nil:
		default:
			measured++
			worst = max(worst, *s.recovered)
			if *s.recovered > most {
				wrong = append(wrong, fmt.Sprintf("%s after %s", units.Duration(*s.recovered), what))
			}
		}
	}
	if measured == 0 && len(wrong) == 0 {
		wrong = append(wrong, "no traffic was seen after any fault: did the workload end before?")
	}
	j.verdict("recovery", "within "+units.Duration(most), fmt.Sprintf("%s at worst, after %s", units.Duration(worst), units.Plural(measured, "fault")), wrong)
	j.timing(true)
}

// faults are the spells as a report has them.
func (o *Observed) faults() (all []report.Fault) {
	for _, s := range o.spells() {
		all = append(all, report.Fault{At: s.begin, Until: s.step.end(s.end), What: o.Plan.What(s.step), On: o.Plan.on(s.step), Recovered: s.recovered})
	}
	return all
}

// end is when a fault was over, 0 for one that is over in an instant.
func (s *Step) end(at time.Duration) time.Duration {
	if s.Do == scenarios.QPError {
		return 0
	}
	return at
}
