package judge_test

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
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

func TestEveryProtocolsSuitesAreListed(t *testing.T) {
	all := make(map[string]bool)
	for _, s := range judge.Suites() {
		all[s.Name] = true
	}
	for _, p := range []conformance.Protocol{conformance.RoCE, conformance.IWARP, conformance.DatagramIWARP} {
		of := judge.SuitesOf(p)
		if len(of) == 0 {
			t.Errorf("no suites for %s", p)
		}
		for _, s := range of {
			if !all[s.Name] {
				t.Errorf("All lacks %s", s.Name)
			}
		}
	}
}
