package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/verbs"
)

// checkErrors checks that each expected completion error occurs at each rank for
// which it is expected, and that no others occur except allowed errors and flushed
// requests. Without expectations there is no check.
func (j *checker) checkErrors() {
	if len(j.want.Errors)+len(j.want.AllowedErrors) == 0 {
		return
	}
	var wrong, seen []string
	timing := true // all problems can result from timeouts
	for i := range j.Ranks {
		r := &j.Ranks[i]
		if r.Report == nil {
			if r.State != Killed {
				wrong = append(wrong, r.name()+" did not report its errors")
				timing = timing && r.endedByTimeout()
			}
			continue
		}
		want, got := errorsOf(j.want.Errors, r.Host), make(map[string]int)
		allowed := slices.Concat(want, errorsOf(j.want.AllowedErrors, r.Host), []string{scenarios.StatusName(verbs.WCWRFlushErr)})
		for _, f := range r.Report.Failures {
			got[statusName(f.Status)]++
		}
		for _, name := range want {
			if got[name] == 0 && r.State != Killed {
				wrong = append(wrong, fmt.Sprintf("%s saw no %q", r.name(), name))
				timing = timing && isTimeoutStatus(name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if !slices.Contains(allowed, name) {
				wrong = append(wrong, fmt.Sprintf("%s saw %d of %q", r.name(), got[name], name))
				timing = timing && isTimeoutStatus(name)
			}
			seen = append(seen, fmt.Sprintf("%s: %d of %q", r.Host, got[name], name))
		}
	}
	j.checkProblems("errors", describeErrors(&j.want), joinNames(seen), wrong)
	j.setTiming(timing)
}

// errorsOf returns the errors that the patterns name for a host.
func errorsOf(by map[string][]string, host string) (names []string) {
	for _, pattern := range slices.Sorted(maps.Keys(by)) {
		if scenarios.MatchHost([]string{pattern}, host) {
			names = append(names, by[pattern]...)
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
	return strings.Join(all, "; ") + "; nothing else"
}

// statusName converts the verbs name of a status to its name in scenarios.
func statusName(verb string) string {
	for _, name := range scenarios.StatusNames() {
		if s, _ := scenarios.Status(name); s.String() == verb {
			return name
		}
	}
	return verb
}
