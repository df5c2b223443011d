package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/verbs"
)

// errors: the completion errors that are expected occur at every rank that they
// are expected of, and no others do but those that are allowed. What is flushed
// behind one of them, at either end, need not be named. Without expectations nothing
// is looked at. A rank that was killed cannot say what it saw.
func (j *judge) errors() {
	if len(j.want.Errors)+len(j.want.AllowedErrors) == 0 {
		return
	}
	var wrong, seen []string
	late := true // only errors are missing, or too many, that follow from timeouts
	for i := range j.Ranks {
		r := &j.Ranks[i]
		if r.Report == nil {
			if r.State != Killed {
				wrong = append(wrong, r.name()+" did not say what it saw")
				late = late && r.late()
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
				late = late && lateStatus(name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if !slices.Contains(allowed, name) {
				wrong = append(wrong, fmt.Sprintf("%s saw %d of %q", r.name(), got[name], name))
				late = late && lateStatus(name)
			}
			seen = append(seen, fmt.Sprintf("%s: %d of %q", r.Host, got[name], name))
		}
	}
	j.verdict("errors", describeErrors(&j.want), list(seen), wrong)
	j.timing(late)
}

// errorsOf are the errors that patterns name for a host.
func errorsOf(by map[string][]string, host string) (names []string) {
	for _, pattern := range slices.Sorted(maps.Keys(by)) {
		if scenarios.MatchHost([]string{pattern}, host) {
			names = append(names, by[pattern]...)
		}
	}
	return names
}

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

// statusName is what scenarios call a status that a Failure gives by its verbs
// name.
func statusName(verb string) string {
	for _, name := range scenarios.StatusNames() {
		if s, _ := scenarios.Status(name); s.String() == verb {
			return name
		}
	}
	return verb
}
