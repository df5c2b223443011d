package conformance

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Choice says which cases to run.
type Choice struct {
	// IDs are identifiers, their beginnings ("rc/psn"), patterns with *, ? and [], or
	// names of suites. None means all.
	IDs []string
	// Level is the weakest level wanted; empty for all.
	Level Level
	// Labels must all be there: those of [Case.AllLabels].
	Labels []string
	// Without are labels none of which may be there.
	Without []string
	// Dangerous takes cases that can harm a real device, too.
	Dangerous bool
}

// NoCaseError says that a pattern chooses nothing.
type NoCaseError struct{ Pattern string }

// Error names the pattern.
func (e *NoCaseError) Error() string {
	return fmt.Sprintf("no case is called %s: `fabrictest conform list` has them all", e.Pattern)
}

// From returns the cases of a suite that are chosen, in the suite's order.
func (c *Choice) From(s *Suite) (chosen []*Case) {
	for i := range s.Cases {
		if k := &s.Cases[i]; c.takes(s, k) {
			chosen = append(chosen, k)
		}
	}
	return chosen
}

// Unused returns an error for the first pattern that chooses none of the cases.
func (c *Choice) Unused(suites ...*Suite) error {
	for _, p := range c.IDs {
		used := false
		for _, s := range suites {
			used = used || p == s.Name || slices.ContainsFunc(s.Cases, func(k Case) bool { return matches(p, k.ID) })
		}
		if !used {
			return &NoCaseError{p}
		}
	}
	return nil
}

func (c *Choice) takes(s *Suite, k *Case) bool {
	if len(c.IDs) > 0 && !slices.ContainsFunc(c.IDs, func(p string) bool { return p == s.Name || matches(p, k.ID) }) {
		return false
	}
	if c.Level != "" && rank(k.Level) > rank(c.Level) || k.Dangerous() && !c.Dangerous {
		return false
	}
	has := k.AllLabels()
	for _, l := range c.Labels {
		if !slices.Contains(has, l) {
			return false
		}
	}
	return !slices.ContainsFunc(c.Without, func(l string) bool { return slices.Contains(has, l) })
}

// matches reports whether a pattern means an ID, or what it is below.
func matches(pattern, id string) bool {
	if strings.HasPrefix(id, pattern) && (len(id) == len(pattern) || id[len(pattern)] == '/' || strings.HasSuffix(pattern, "/")) {
		return true
	}
	if !strings.ContainsAny(pattern, `*?[\`) {
		return false
	}
	// A star ends at a slash; a pattern of fewer parts means all below what it matches.
	depth := strings.Count(pattern, "/") + 1
	parts := strings.SplitN(id, "/", depth+1)
	ok, err := path.Match(pattern, strings.Join(parts[:min(depth, len(parts))], "/"))
	return err == nil && ok
}

func rank(l Level) int { return slices.Index([]Level{Must, Should, May}, l) }

// AllLabels are those of the case and those that follow from what it is: level and
// document.
func (c *Case) AllLabels() []string {
	doc, _, _ := strings.Cut(strings.ToLower(c.Cite.Doc), "(") // the section of a manual page
	doc = strings.ReplaceAll(doc, " ", "")
	return append([]string{"level:" + strings.ToLower(string(c.Level)), "spec:" + doc, "area:" + c.Area()}, c.Labels...)
}
