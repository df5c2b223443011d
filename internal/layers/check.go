package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// RuleSet are the rules of a module.
type RuleSet struct {
	Boundaries []Boundary
	Purities   []Purity
	Cgo        CgoRule
	// Planned lists directories in rules that do not exist yet. Check reports an
	// entry whose directory exists, so that renaming it cannot disable a rule.
	Planned []string
}

// Check returns all violations, sorted by position. The error means that the check could
// not run, for example because code does not compile.
func (s RuleSet) Check(t *Tree) ([]Finding, error) {
	found := s.unmatchedPatterns(t)
	for _, b := range s.Boundaries {
		found = append(found, b.check(t)...)
	}
	impure, err := checkPurity(t, s.Purities)
	if err != nil {
		return nil, err
	}
	found = append(found, impure...)
	found = append(found, s.Cgo.check(t)...)
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(
			strings.Compare(a.Pos.Filename, b.Pos.Filename),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			strings.Compare(a.Msg, b.Msg))
	})
	return found, nil
}

// unmatchedPatterns reports patterns that match no package, and wrong entries of Planned.
func (s RuleSet) unmatchedPatterns(t *Tree) []Finding {
	var found []Finding
	report := func(format string, args ...any) {
		f := Finding{Msg: fmt.Sprintf(format, args...)}
		if !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	used := map[string]bool{}
	checkPatterns := func(rule string, patterns []string) {
		for _, p := range patterns {
			used[p] = true
			switch {
			case strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
				if isOurs(p) && len(t.match([]string{p}, nil)) == 0 && !slices.Contains(s.Planned, p) {
					report("rule %q: %s matches no package: misspelt, moved, or to be listed in Planned?", rule, p)
				}
			case p != "std" && !t.anyStandard(p):
				report("rule %q: %s is not in the standard library: misspelt? Our own folders begin with ./", rule, p)
			}
		}
	}
	for _, b := range s.Boundaries {
		checkPatterns(b.Name, slices.Concat(b.From, b.Except, b.Only, b.Never))
		for p := range b.Because {
			checkPatterns(b.Name, []string{p})
		}
	}
	for _, p := range s.Purities {
		checkPatterns(p.Name, slices.Concat(p.From, p.Except))
	}
	checkPatterns("cgo", s.Cgo.In)
	for _, p := range s.Planned {
		if len(t.match([]string{p}, nil)) > 0 {
			report("%s is here now: delete it from Planned, so that its rules cannot be switched off by renaming it", p)
		}
		if !used[p] {
			report("%s is in Planned, and no rule speaks of it", p)
		}
	}
	return found
}

// anyStandard reports whether the pattern names anything in the standard
// library.
func (t *Tree) anyStandard(pattern string) bool {
	for name := range t.std {
		if matchPattern(pattern, name) {
			return true
		}
	}
	return false
}
