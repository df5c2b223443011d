package judge

import (
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/dgiwarp"
	"github.com/fabrictest/fabrictest/conformance/iwarp"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/conformance/verbsapi"
	"github.com/fabrictest/fabrictest/internal/cli"
)

// Select returns the cases of suites that a filter selects.
func Select(f *conformance.Filter, all []*conformance.Suite) (cases []Case) {
	for _, s := range all {
		for i := range s.Cases {
			if c := &s.Cases[i]; f.Matches(s, c) {
				cases = append(cases, Case{s, c})
			}
		}
	}
	return cases
}

// CheckLabels returns an error for the first label that no case has. flag names their flag.
func CheckLabels(flag string, labels []string, all []*conformance.Suite) error {
	known := Labels(all)
	for _, l := range labels {
		if !slices.Contains(known, l) {
			return cli.Errorf("%s %s: no case has this label; %s", flag, l, cli.DidYouMean(l, known, "fabrictest list cases --json"))
		}
	}
	return nil
}

// ParseLevel reads the value of --level; empty for all levels.
func ParseLevel(text string) (conformance.Level, error) {
	level := conformance.Level(strings.ToUpper(text))
	if text != "" && !slices.Contains([]conformance.Level{conformance.Must, conformance.Should, conformance.May}, level) {
		return "", cli.Errorf("--level %s: the levels are must, should and may", text)
	}
	return level, nil
}

// NoSuchCase returns the error for a pattern that matches no case. It suggests similar IDs, and
// beginnings of IDs: "rc" and "rc/psn" of "rc/psn/gap".
func NoSuchCase(pattern string) error {
	var areas []string
	ids := caseIDs(Suites())
	for _, id := range ids {
		parts := strings.SplitN(id, "/", 3) // every ID has at least two
		areas = append(areas, parts[0], parts[0]+"/"+parts[1])
	}
	slices.Sort(areas)
	return cli.Errorf("no case is called %q; %s", pattern, cli.DidYouMean(pattern, append(slices.Compact(areas), ids...), "fabrictest list cases"))
}

// casesOf returns the cases of suites, in order.
func casesOf(suites []*conformance.Suite) (cases []conformance.Case) {
	for _, s := range suites {
		cases = append(cases, s.Cases...)
	}
	return cases
}

// caseIDs returns the IDs of the cases of suites.
func caseIDs(suites []*conformance.Suite) (ids []string) {
	for _, c := range casesOf(suites) {
		ids = append(ids, c.ID)
	}
	return ids
}

// Labels returns the labels of all cases of some suites, sorted.
func Labels(all []*conformance.Suite) (labels []string) {
	for _, c := range casesOf(all) {
		labels = append(labels, c.AllLabels()...)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// SuitesOf returns the suites for devices of a protocol.
func SuitesOf(p conformance.Protocol) []*conformance.Suite {
	return []*conformance.Suite{suiteOf(p), verbsapi.Suite()}
}

// Suites returns every suite once. Add a new suite here: the command, the specs and the
// ledger use this list.
func Suites() []*conformance.Suite {
	return []*conformance.Suite{suiteOf(conformance.RoCE), suiteOf(conformance.IWARP), suiteOf(conformance.DatagramIWARP), verbsapi.Suite()}
}

// suiteOf returns the suite of a protocol, with its cases of memory ordering.
func suiteOf(p conformance.Protocol) *conformance.Suite {
	var s *conformance.Suite
	var ordering []conformance.Case
	switch p {
	case conformance.RoCE:
		s, ordering = roce.Suite(), litmusRoCE()
	case conformance.IWARP:
		s, ordering = iwarp.Suite(), litmusIWARP()
	case conformance.DatagramIWARP:
		s, ordering = dgiwarp.Suite(), litmusDatagramIWARP()
	}
	s.Cases = append(s.Cases, ordering...)
	return s
}
