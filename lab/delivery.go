package lab

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
)

// Values of expect.delivered.
const (
	exactlyOnce = "exactly-once"
	atMostOnce  = "at-most-once"
	anyNumber   = "any"
)

// defaultDelivery returns the delivery that is checked if the scenario does not
// say: exactly once for reliable services, at most once if connections may fail,
// and any for uc and ud.
func defaultDelivery(c *workload.Config) string {
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

// checkDelivered checks that every message arrives once, or at most once. Messages
// from or to a killed host may be missing, but not duplicated.
func (j *checker) checkDelivered() {
	want := j.want.Delivered
	if want == "" {
		want = defaultDelivery(&j.Plan.Scenario.Workload)
	}
	if want == anyNumber {
		return
	}
	var wrong []string
	var arrived, expected int
	timing := true // all problems can result from timeouts
	for i := range j.Ranks {
		r := &j.Ranks[i]
		if r.Report == nil {
			if r.State != Killed {
				wrong = append(wrong, r.name()+" did not report its messages")
				timing = timing && r.endedByTimeout()
			}
			continue
		}
		for _, f := range r.Report.Flows {
			arrived += f.Arrived
			expected += f.Expected
			if f.Duplicates > 0 {
				wrong = append(wrong, fmt.Sprintf("%s received %d of rank %d's messages twice", r.name(), f.Duplicates, f.Peer))
				timing = false
			}
			if want == exactlyOnce && f.Arrived != f.Expected && !j.wasKilled(f.Peer) && r.State != Killed {
				wrong = append(wrong, fmt.Sprintf("%s received %d of rank %d's %d messages", r.name(), f.Arrived, f.Peer, f.Expected))
				timing = timing && j.missingByTimeout(r, &f)
			}
		}
	}
	if want == exactlyOnce && expected == 0 && len(wrong) == 0 {
		wrong = append(wrong, "no message was expected: the workload sent none")
		timing = false
	}
	j.checkProblems("delivered", want, fmt.Sprintf("%d of %d messages, none twice", arrived, expected), wrong)
	j.setTiming(timing)
}

func (j *checker) wasKilled(rank int) bool {
	for i := range j.Ranks {
		if j.Ranks[i].Rank == rank {
			return j.Ranks[i].State == Killed
		}
	}
	return false
}

// checkMemory checks that compared memory was identical. If the scenario asks for
// it, some memory must have been compared.
func (j *checker) checkMemory() {
	if j.want.Memory == anyNumber {
		return
	}
	wrong := j.violationTexts(func(k traffic.ViolationKind) bool { return k == traffic.Contents })
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
		wrong = append(wrong, "no memory was compared")
	}
	j.checkProblems("memory", "identical", textfmt.Bytes(checked)+" compared, all identical", wrong)
}

// violationTexts returns the violations of the kinds that match accepts.
func (j *checker) violationTexts(match func(traffic.ViolationKind) bool) (all []string) {
	for i := range j.Ranks {
		if r := j.Ranks[i].Report; r != nil {
			for _, v := range r.Violations {
				if match(v.Kind) {
					all = append(all, j.Ranks[i].name()+": "+v.What)
				}
			}
		}
	}
	return all
}

// checkViolations checks the number of violations that programs found. Those in the
// memory check are counted, and not repeated.
func (j *checker) checkViolations() {
	inMemoryCheck := func(k traffic.ViolationKind) bool { return k == traffic.Contents && j.want.Memory != anyNumber }
	named, others := j.violationTexts(inMemoryCheck), j.violationTexts(func(k traffic.ViolationKind) bool { return !inMemoryCheck(k) })
	n, got := len(named)+len(others), "none"
	switch {
	case n > 0 && len(others) == 0:
		got = fmt.Sprintf("%d, listed under memory", n)
	case n > 0:
		got = fmt.Sprintf("%d: %s", n, summary(others))
		if len(named) > 0 {
			got += fmt.Sprintf("; %d listed under memory", len(named))
		}
	}
	if j.want.Violations.IsZero() {
		j.add("violations", n == 0, "none", got)
		return
	}
	j.add("violations", j.want.Violations.Contains(uint64(n)), bounds(j.want.Violations), got)
}
