package lab

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// What may be expected of delivery.
const (
	exactlyOnce = "exactly-once"
	atMostOnce  = "at-most-once"
	anyNumber   = "any"
)

// deliveryOf is what holds where the scenario says nothing: everything arrives
// once where the service promises that, and nothing is said of others. Traffic
// that may give up is let off the first half of it.
func deliveryOf(c *workload.Config) string {
	for _, s := range c.Services {
		if s == "uc" || s == "ud" {
			return anyNumber
		}
	}
	if slices.Contains(c.Excuses, "gives_up") {
		return atMostOnce
	}
	return exactlyOnce
}

// delivered: every message arrives once, or not more than once. What was under
// way from or to a host that was killed is forgiven, but not twice.
func (j *judge) delivered() {
	want := j.want.Delivered
	if want == "" {
		want = deliveryOf(&j.Plan.Scenario.Workload)
	}
	if want == anyNumber {
		return
	}
	var wrong []string
	var arrived, expected int
	late := true // all that is wrong is what ranks missed that gave up
	for i := range j.Ranks {
		r := &j.Ranks[i]
		if r.Report == nil {
			if r.State != Killed {
				wrong = append(wrong, r.name()+" did not say what it received")
				late = late && r.late()
			}
			continue
		}
		for _, f := range r.Report.Flows {
			arrived += f.Arrived
			expected += f.Expected
			if f.Duplicates > 0 {
				wrong = append(wrong, fmt.Sprintf("%s received %d of rank %d's messages twice", r.name(), f.Duplicates, f.Peer))
				late = false
			}
			if want == exactlyOnce && f.Arrived != f.Expected && !j.wasKilled(f.Peer) && r.State != Killed {
				wrong = append(wrong, fmt.Sprintf("%s received %d of rank %d's %d messages", r.name(), f.Arrived, f.Peer, f.Expected))
				late = late && j.gaveUp(r, &f)
			}
		}
	}
	if want == exactlyOnce && expected == 0 && len(wrong) == 0 {
		wrong = append(wrong, "no message was to arrive at all: nothing was tried")
		late = false
	}
	j.verdict("delivered", want, fmt.Sprintf("%d of %d messages, none twice", arrived, expected), wrong)
	j.timing(late)
}

func (j *judge) wasKilled(rank int) bool {
	for i := range j.Ranks {
		if j.Ranks[i].Rank == rank {
			return j.Ranks[i].State == Killed
		}
	}
	return false
}

// memory: what was compared is as it must be. Where the scenario says nothing,
// nobody need have had anything to compare; where it asks, somebody must.
func (j *judge) memory() {
	if j.want.Memory == anyNumber {
		return
	}
	wrong := j.found(func(k workload.ViolationKind) bool { return k == workload.Contents })
	var checked int64
	for i := range j.Ranks {
		if r := j.Ranks[i].Report; r != nil {
			checked += r.MemoryChecked
		}
	}
	if checked == 0 && len(wrong) == 0 {
		if j.want.Memory == "" {
			return
		}
		wrong = append(wrong, "no byte was compared at all: nothing was tried")
	}
	j.verdict("memory", "identical", units.Bytes(checked)+" compared, all as they must be", wrong)
}

// found lists violations of some kinds.
func (j *judge) found(is func(workload.ViolationKind) bool) (all []string) {
	for i := range j.Ranks {
		if r := j.Ranks[i].Report; r != nil {
			for _, v := range r.Violations {
				if is(v.Kind) {
					all = append(all, j.Ranks[i].name()+": "+v.What)
				}
			}
		}
	}
	return all
}

// violations: what the programs found broken, of whatever kind. Those that the
// check of memory has named are counted, and not told again.
func (j *judge) violations() {
	told := func(k workload.ViolationKind) bool { return k == workload.Contents && j.want.Memory != anyNumber }
	named, others := j.found(told), j.found(func(k workload.ViolationKind) bool { return !told(k) })
	n, got := len(named)+len(others), "none"
	switch {
	case n > 0 && len(others) == 0:
		got = fmt.Sprintf("%d, told under memory", n)
	case n > 0:
		got = fmt.Sprintf("%d: %s", n, summary(others))
		if len(named) > 0 {
			got += fmt.Sprintf("; %d told under memory", len(named))
		}
	}
	if j.want.Violations.IsZero() {
		j.check("violations", n == 0, "none", got)
		return
	}
	j.check("violations", j.want.Violations.Contains(uint64(n)), bounds(j.want.Violations), got)
}
