package judge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestCasesAreWellFormed(t *testing.T) {
	taken := make(map[string]string)
	for _, s := range judge.Suites() {
		for _, err := range s.Check() {
			t.Errorf("%s: %v", s.Name, err)
		}
		for _, c := range s.Cases {
			if other := taken[c.ID]; other != "" && other != s.Name {
				t.Errorf("%s is in the suites %s and %s", c.ID, other, s.Name)
			}
			taken[c.ID] = s.Name
		}
	}
}

// allCases returns the cases of all suites.
func allCases() (cases []conformance.Case) {
	for _, s := range judge.Suites() {
		cases = append(cases, s.Cases...)
	}
	return cases
}

func TestEveryProtocolsSuitesAreListed(t *testing.T) {
	for _, p := range []conformance.Protocol{conformance.RoCE, conformance.IWARP, conformance.DatagramIWARP} {
		for _, s := range judge.SuitesOf(p) {
			if !slices.ContainsFunc(judge.Suites(), func(listed *conformance.Suite) bool { return listed.Name == s.Name }) {
				t.Errorf("Suites lacks %s", s.Name)
			}
		}
	}
}

func TestLabelsMustBeKnown(t *testing.T) {
	must.Do(t, judge.CheckLabels("--label", []string{"service:rc", conformance.Dangerous}, judge.Suites()))
	err := judge.CheckLabels("--label", []string{"service:rc", "service:rx"}, judge.Suites())
	if err == nil || !strings.Contains(err.Error(), "--label service:rx: no case has this label") {
		t.Error(err)
	}
}
