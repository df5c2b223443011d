package layers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// RuleSet is an architecture.
type RuleSet struct {
	Boundaries []Boundary
	Purities   []Purity
	Cgo        CgoRule
	// Later lists folders that rules speak of and that are not there yet. A rule
	// starts to hold when its folder appears; the entry must then go, so that a
	// later renaming cannot switch the rule off unseen.
	Later []string
}

// Check holds the tree to the rules and returns every breach, by place. The
// error is about the check itself: code that does not compile, no go command.
func (s RuleSet) Check(t *Tree) ([]Finding, error) {
	found := s.misspelt(t)
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

// misspelt finds patterns that no longer mean anything.
func (s RuleSet) misspelt(t *Tree) []Finding {
	var found []Finding
	complain := func(format string, args ...any) {
		f := Finding{Msg: fmt.Sprintf(format, args...)}
		if !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	used := map[string]bool{}
	look := func(rule string, patterns []string) {
		for _, p := range patterns {
			used[p] = true
			switch {
			case strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
				if isOurs(p) && len(t.match([]string{p}, nil)) == 0 && !slices.Contains(s.Later, p) {
					complain("rule %q: %s matches no package: misspelt, moved, or to be listed in Later?", rule, p)
				}
			case p != "std" && !t.anyStandard(p):
				complain("rule %q: %s is not in the standard library: misspelt? Our own folders begin with ./", rule, p)
			}
		}
	}
	for _, b := range s.Boundaries {
		look(b.Name, slices.Concat(b.From, b.Except, b.Only, b.Never))
		for p := range b.Because {
			look(b.Name, []string{p})
		}
	}
	for _, p := range s.Purities {
		look(p.Name, slices.Concat(p.From, p.Except))
	}
	look("cgo", s.Cgo.In)
	for _, p := range s.Later {
		if len(t.match([]string{p}, nil)) > 0 {
			complain("%s is here now: delete it from Later, so that its rules cannot be switched off by renaming it", p)
		}
		if !used[p] {
			complain("%s is in Later, and no rule speaks of it", p)
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
