package conformance

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Filter selects the cases to run.
type Filter struct {
	// IDs are case IDs, prefixes of them ("rc/psn"), patterns with *, ? and [], or names
	// of suites. Empty selects all.
	IDs []string
	// Level is the weakest level to include; empty for all.
	Level Level
	// Labels are required, all of them; see [Case.AllLabels].
	Labels []string
	// ExcludeLabels exclude every case that has one of them.
	ExcludeLabels []string
	// IncludeDangerous includes cases that can harm a real device.
	IncludeDangerous bool
}

// NoCaseError is the error for a pattern that matches no case.
type NoCaseError struct{ Pattern string }

func (e *NoCaseError) Error() string {
	return fmt.Sprintf("no case is called %s: `fabrictest list cases` has them all", e.Pattern)
}

// Select returns the selected cases of a suite, in the suite's order.
func (c *Filter) Select(s *Suite) (chosen []*Case) {
	for i := range s.Cases {
		if k := &s.Cases[i]; c.matches(s, k) {
			chosen = append(chosen, k)
		}
	}
	return chosen
}

// CheckPatterns returns an error for the first pattern that matches no case.
func (c *Filter) CheckPatterns(suites ...*Suite) error {
	for _, p := range c.IDs {
		used := false
		for _, s := range suites {
			used = used || p == s.Name || slices.ContainsFunc(s.Cases, func(k Case) bool { return matchesPattern(p, k.ID) })
		}
		if !used {
			return &NoCaseError{p}
		}
	}
	return nil
}

func (c *Filter) matches(s *Suite, k *Case) bool {
	if len(c.IDs) > 0 && !slices.ContainsFunc(c.IDs, func(p string) bool { return p == s.Name || matchesPattern(p, k.ID) }) {
		return false
	}
	if c.Level != "" && rank(k.Level) > rank(c.Level) || k.Dangerous() && !c.IncludeDangerous {
		return false
	}
	has := k.AllLabels()
	for _, l := range c.Labels {
		if !slices.Contains(has, l) {
			return false
		}
	}
	return !slices.ContainsFunc(c.ExcludeLabels, func(l string) bool { return slices.Contains(has, l) })
}

// matchesPattern reports whether a pattern matches an ID or a prefix of it.
func matchesPattern(pattern, id string) bool {
	if strings.HasPrefix(id, pattern) && (len(id) == len(pattern) || id[len(pattern)] == '/' || strings.HasSuffix(pattern, "/")) {
		return true
	}
	if !strings.ContainsAny(pattern, `*?[\`) {
		return false
	}
	// A star does not match a slash, and a short pattern matches a prefix of the ID.
	depth := strings.Count(pattern, "/") + 1
	parts := strings.SplitN(id, "/", depth+1)
	ok, err := path.Match(pattern, strings.Join(parts[:min(depth, len(parts))], "/"))
	return err == nil && ok
}

func rank(l Level) int { return slices.Index([]Level{Must, Should, May}, l) }

// AllLabels returns the labels of the case with those for its level, document and area.
func (c *CaseOf[Body]) AllLabels() []string {
	doc, _, _ := strings.Cut(strings.ToLower(c.Cite.Doc), "(") // the section of a manual page
	doc = strings.ReplaceAll(doc, " ", "")
	return append([]string{"level:" + strings.ToLower(string(c.Level)), "spec:" + doc, "area:" + c.Area()}, c.Labels...)
}

// MatchingNames returns the cases whose name matches a pattern of path.Match. A pattern
// with fewer elements than a name matches every name below it.
func MatchingNames[C interface{ Name() string }](cases []C, pattern string) (matching []C, err error) {
	for _, c := range cases {
		for name := c.Name(); name != "."; name = path.Dir(name) {
			ok, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", pattern, err)
			}
			if ok {
				matching = append(matching, c)
				break
			}
		}
	}
	return matching, nil
}
