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
	return fmt.Sprintf("no case matches %s: `fabrictest list cases` lists all cases", e.Pattern)
}

// CheckPatterns returns a *NoCaseError for the first pattern in IDs that matches neither a
// case nor the name of a suite.
func (f *Filter) CheckPatterns(suites ...*Suite) error {
	for _, pattern := range f.IDs {
		matched := false
		for _, s := range suites {
			matched = matched || pattern == s.Name || slices.ContainsFunc(s.Cases, func(c Case) bool { return matchesPattern(pattern, c.ID) })
		}
		if !matched {
			return &NoCaseError{pattern}
		}
	}
	return nil
}

// Matches reports whether the filter selects case c of suite s.
func (f *Filter) Matches(s *Suite, c *Case) bool {
	if len(f.IDs) > 0 && !slices.ContainsFunc(f.IDs, func(pattern string) bool { return pattern == s.Name || matchesPattern(pattern, c.ID) }) {
		return false
	}
	tooWeak := f.Level != "" && weakness(c.Level) > weakness(f.Level)
	if tooWeak || c.Dangerous() && !f.IncludeDangerous {
		return false
	}
	labels := c.AllLabels()
	for _, required := range f.Labels {
		if !slices.Contains(labels, required) {
			return false
		}
	}
	return !slices.ContainsFunc(f.ExcludeLabels, func(excluded string) bool { return slices.Contains(labels, excluded) })
}

// matchesPattern reports whether a pattern matches a case ID, or its first elements ("rc/psn").
func matchesPattern(pattern, id string) bool {
	if strings.HasPrefix(id, pattern) && (len(id) == len(pattern) || id[len(pattern)] == '/' || strings.HasSuffix(pattern, "/")) {
		return true
	}
	if !strings.ContainsAny(pattern, `*?[\`) {
		return false
	}
	// A star matches no slash: the pattern is compared with as many elements of the ID as it has.
	depth := strings.Count(pattern, "/") + 1
	parts := strings.SplitN(id, "/", depth+1)
	ok, err := path.Match(pattern, strings.Join(parts[:min(depth, len(parts))], "/"))
	return err == nil && ok
}

// weakness returns 0 for Must, the strongest level, 1 for Should, and 2 for May.
func weakness(l Level) int { return slices.Index([]Level{Must, Should, May}, l) }

// AllLabels returns the labels of the case, after labels for its level, document and area, such as
// "level:must", "spec:rfc5040" and "area:rc".
func (c *CaseOf[Body]) AllLabels() []string {
	doc, _, _ := strings.Cut(strings.ToLower(c.Cite.Doc), "(") // without the section of a manual page: ibv_post_send(3)
	doc = strings.ReplaceAll(doc, " ", "")
	area, _, _ := strings.Cut(c.ID, "/")
	return append([]string{"level:" + strings.ToLower(string(c.Level)), "spec:" + doc, "area:" + area}, c.Labels...)
}

// MatchingNames returns the cases whose name, or first elements of the name, match a pattern
// of path.Match: "rc/*" also matches "rc/psn/wrap".
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
