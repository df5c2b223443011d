package judge

import (
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/dgiwarp"
	"github.com/fabrictest/fabrictest/conformance/iwarp"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/conformance/verbsapi"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// Select returns the cases of suites that a filter selects.
func Select(f *conformance.Filter, all []*conformance.Suite) (cases []Case) {
	for _, s := range all {
		for _, c := range f.Select(s) {
			cases = append(cases, Case{s, c})
		}
	}
	return cases
}

// CheckLabels returns an error for the first of labels, the values of flag, that no case of the
// suites has.
func CheckLabels(flag string, labels []string, all []*conformance.Suite) error {
	known := Labels(all)
	for _, l := range labels {
		if !slices.Contains(known, l) {
			return cmdline.Errorf("%s %s: no case has this label; %s", flag, l, cmdline.DidYouMean(l, known, "fabrictest list cases --json"))
		}
	}
	return nil
}

// ParseLevel reads the value of --level; empty for all levels.
func ParseLevel(text string) (conformance.Level, error) {
	level := conformance.Level(strings.ToUpper(text))
	if text != "" && !slices.Contains([]conformance.Level{conformance.Must, conformance.Should, conformance.May}, level) {
		return "", cmdline.Errorf("--level %s: give must, should or may", text)
	}
	return level, nil
}

// NoSuchCase returns the error for a pattern that matches no case. It suggests similar IDs.
func NoSuchCase(pattern string) error {
	return cmdline.Errorf("no case is called %q; %s", pattern, cmdline.DidYouMean(pattern, append(caseAreas(), caseIDs(Suites())...), "fabrictest list cases"))
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

// caseAreas returns the beginnings of all case IDs: "rc" and "rc/psn" of "rc/psn/gap".
func caseAreas() (areas []string) {
	for _, id := range caseIDs(Suites()) {
		parts := strings.SplitN(id, "/", 3)
		areas = append(areas, parts[0], parts[0]+"/"+parts[1])
	}
	slices.Sort(areas)
	return slices.Compact(areas)
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
	switch p {
	case conformance.RoCE:
		return []*conformance.Suite{roceSuite(), verbsapi.Suite()}
	case conformance.IWARP:
		return []*conformance.Suite{iwarpSuite(), verbsapi.Suite()}
	case conformance.DatagramIWARP:
		return []*conformance.Suite{dgiwarpSuite(), verbsapi.Suite()}
	default:
		return nil
	}
}

// Suites returns every suite once. Add a new suite here: the command, the specs and the
// ledger use this list.
func Suites() []*conformance.Suite {
	return []*conformance.Suite{roceSuite(), iwarpSuite(), dgiwarpSuite(), verbsapi.Suite()}
}

// roceSuite, iwarpSuite and dgiwarpSuite add the cases of memory ordering to the suite of a
// protocol.

func roceSuite() *conformance.Suite { return withCases(roce.Suite(), litmusRoCE()) }

func iwarpSuite() *conformance.Suite { return withCases(iwarp.Suite(), litmusIWARP()) }

func dgiwarpSuite() *conformance.Suite { return withCases(dgiwarp.Suite(), litmusDatagramIWARP()) }

// withCases adds cases to a suite.
func withCases(s *conformance.Suite, more []conformance.Case) *conformance.Suite {
	s.Cases = append(s.Cases, more...)
	return s
}
