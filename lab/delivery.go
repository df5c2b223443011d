package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Values of expect.delivered; anything is also one of expect.memory.
const (
	exactlyOnce = "exactly-once"
	atMostOnce  = "at-most-once"
	anything    = "any"
)

// defaultDelivery returns the default of "expect.delivered": exactly once for reliable services, at
// most once if the workload excuses that connections give up, and any for uc and ud.
func defaultDelivery(c *workload.Config) string {
	for _, s := range c.Services {
		if s == "uc" || s == "ud" {
			return anything
		}
	}
	if slices.Contains(c.Excuses, "gives_up") {
		return atMostOnce
	}
	return exactlyOnce
}

// checkDelivered checks that every message arrives once, or at most once, as is expected. Messages
// from or to a killed host may be missing, but not duplicated.
func (j *checker) checkDelivered() {
	want := j.want.Delivered
	if want == "" {
		want = defaultDelivery(&j.Plan.Scenario.Workload)
	}
	if want == anything {
		return
	}
	var wrong []string
	var arrived, expected int
	onlyTimeouts := true // all problems can result from timeouts, and so from a lack of CPU time
	for i := range j.Ranks {
		r := &j.Ranks[i]
		if r.Report == nil {
			if r.State != Killed {
				wrong = append(wrong, r.name()+" did not report its messages")
				onlyTimeouts = onlyTimeouts && r.endedByTimeout()
			}
			continue
		}
		for _, f := range r.Report.Flows {
			arrived += f.Arrived
			expected += f.Expected
			if f.Duplicates > 0 {
				wrong = append(wrong, fmt.Sprintf("%s received %d of rank %d's messages twice", r.name(), f.Duplicates, f.Peer))
				onlyTimeouts = false
			}
			peer := j.rank(f.Peer)
			peerKilled := peer != nil && peer.State == Killed
			if want == exactlyOnce && f.Arrived != f.Expected && !peerKilled && r.State != Killed {
				wrong = append(wrong, fmt.Sprintf("%s received %d of rank %d's %d messages", r.name(), f.Arrived, f.Peer, f.Expected))
				onlyTimeouts = onlyTimeouts && j.missingByTimeout(r, &f)
			}
		}
	}
	if want == exactlyOnce && expected == 0 && len(wrong) == 0 {
		wrong = append(wrong, "no message was expected: the workload sent none")
		onlyTimeouts = false
	}
	j.checkProblems("delivered", want, fmt.Sprintf("%d of %d messages, none twice", arrived, expected), wrong)
	j.setLackOfCPUMayExplain(onlyTimeouts)
}

// rank returns the observation of a rank by its number; nil if there is none.
func (o *Observation) rank(number int) *Rank {
	for i := range o.Ranks {
		if o.Ranks[i].Rank == number {
			return &o.Ranks[i]
		}
	}
	return nil
}

// checkMemory checks that received memory had the expected contents wherever the ranks' programs
// compared it. If the scenario has "expect.memory", some memory must have been compared.
func (j *checker) checkMemory() {
	if j.want.Memory == anything {
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
	j.checkProblems("memory", "identical", cli.Bytes(checked)+" compared, all identical", wrong)
}

// violationTexts returns the broken guarantees of the transport (violations) that ranks reported,
// of the kinds that match accepts.
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

// checkViolations checks the number of violations: broken guarantees of the transport that the
// ranks' programs found. Without an expectation there must be none. Wrong contents of memory count,
// but are not listed if checkMemory lists them.
func (j *checker) checkViolations() {
	inMemoryCheck := func(k traffic.ViolationKind) bool { return k == traffic.Contents && j.want.Memory != anything }
	inMemory, others := j.violationTexts(inMemoryCheck), j.violationTexts(func(k traffic.ViolationKind) bool { return !inMemoryCheck(k) })
	n, got := len(inMemory)+len(others), "none"
	switch {
	case n > 0 && len(others) == 0:
		got = fmt.Sprintf("%d, listed under memory", n)
	case n > 0:
		got = fmt.Sprintf("%d: %s", n, summary(others))
		if len(inMemory) > 0 {
			got += fmt.Sprintf("; %d listed under memory", len(inMemory))
		}
	}
	if j.want.Violations.IsZero() {
		j.add("violations", n == 0, "none", got)
		return
	}
	j.add("violations", j.want.Violations.Contains(uint64(n)), describeRange(j.want.Violations), got)
}

// checkErrors checks that each rank that was not killed saw the completion errors that are expected
// at its host, and that no rank saw others, except allowed and flushed ones. An empty expectation
// ({}) does not allow flushed ones either. Without expectations (nil) it checks nothing.
func (j *checker) checkErrors() {
	if j.want.Errors == nil && j.want.AllowedErrors == nil {
		return
	}
	var flushed []string // flushed requests follow other errors
	if len(j.want.Errors)+len(j.want.AllowedErrors) > 0 {
		flushed = []string{scenarios.StatusName(verbs.WCWRFlushErr)}
	}
	var wrong, seen []string
	onlyTimeouts := true // all problems can result from timeouts, and so from a lack of CPU time
	for i := range j.Ranks {
		r := &j.Ranks[i]
		if r.Report == nil {
			if r.State != Killed {
				wrong = append(wrong, r.name()+" did not report its errors")
				onlyTimeouts = onlyTimeouts && r.endedByTimeout()
			}
			continue
		}
		want, got := errorsOf(j.want.Errors, r.Host), make(map[string]int)
		allowed := slices.Concat(want, errorsOf(j.want.AllowedErrors, r.Host), flushed)
		for _, f := range r.Report.Failures {
			got[statusName(f.Status)]++
		}
		for _, name := range want {
			if got[name] == 0 && r.State != Killed {
				wrong = append(wrong, fmt.Sprintf("%s saw no %q", r.name(), name))
				onlyTimeouts = onlyTimeouts && isTimeoutStatus(name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if !slices.Contains(allowed, name) {
				wrong = append(wrong, fmt.Sprintf("%s saw %d of %q", r.name(), got[name], name))
				onlyTimeouts = onlyTimeouts && isTimeoutStatus(name)
			}
			seen = append(seen, fmt.Sprintf("%s: %d of %q", r.Host, got[name], name))
		}
	}
	j.checkProblems("errors", describeErrors(&j.want), joinNames(seen), wrong)
	j.setLackOfCPUMayExplain(onlyTimeouts)
}

// errorsOf returns the names of the errors for a host. byPattern has them by patterns of hosts.
func errorsOf(byPattern map[string][]string, host string) (names []string) {
	for _, pattern := range slices.Sorted(maps.Keys(byPattern)) {
		if scenarios.MatchesAny([]string{pattern}, host) {
			names = append(names, byPattern[pattern]...)
		}
	}
	return names
}

// describeErrors returns the errors that a scenario expects and allows, as text.
func describeErrors(want *scenarios.Expect) string {
	all := make([]string, 0, len(want.Errors)+len(want.AllowedErrors))
	for _, pattern := range slices.Sorted(maps.Keys(want.Errors)) {
		all = append(all, pattern+": "+strings.Join(want.Errors[pattern], ", "))
	}
	for _, pattern := range slices.Sorted(maps.Keys(want.AllowedErrors)) {
		all = append(all, pattern+" may: "+strings.Join(want.AllowedErrors[pattern], ", "))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ") + "; nothing else"
}

// statusName returns the name that scenarios use for the verbs.WCStatus whose String is text, or
// text if they have none.
func statusName(text string) string {
	for _, name := range scenarios.StatusNames() {
		if s, _ := scenarios.Status(name); s.String() == text {
			return name
		}
	}
	return text
}
