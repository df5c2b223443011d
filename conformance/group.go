package conformance

import (
	"cmp"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Group is the metadata that the cases of a file or of a suite have in common.
type Group struct {
	// Needs and Labels are added to those of each case.
	Needs  verbs.Caps
	Labels []string
	// DefaultLabels are added to those of cases that have none.
	DefaultLabels []string
	// Setup is the configuration of cases that require none.
	Setup Setup
}

// Cases returns the cases with the metadata of the group. The level of a case is Must
// unless it has another.
func (g Group) Cases(cases []Case) []Case { return WithGroup(g, cases) }

// WithGroup is [Group.Cases] for cases of any kind.
func WithGroup[Body any](g Group, cases []CaseOf[Body]) []CaseOf[Body] {
	all := slices.Clone(cases)
	for i := range all {
		c := &all[i]
		c.Needs |= g.Needs
		if len(c.Labels) == 0 {
			c.Labels = g.DefaultLabels
		}
		c.Labels = slices.Concat(g.Labels, c.Labels)
		c.Level = cmp.Or(c.Level, Must)
		if c.Setup == (Setup{}) {
			c.Setup = g.Setup
		}
	}
	return all
}
