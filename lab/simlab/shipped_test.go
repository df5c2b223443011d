package simlab

import (
	"context"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

func TestShippedScenariosPass(t *testing.T) {
	for _, s := range shipped(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			holds(t, s)
		})
	}
}

func TestShippedScenariosPassWithOtherProviders(t *testing.T) {
	for _, p := range nics.All() {
		ran := 0
		for _, s := range shipped(t) {
			other := lab.WithProvider(s, p.Name)
			if other == s || lab.Incompatibility(other, scenarios.Sim) != "" {
				continue
			}
			ran++
			t.Run(p.Name+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				holds(t, other)
			})
		}
		if ran < 4 {
			t.Errorf("%d scenarios make sense with %s", ran, p.Name)
		}
	}
}

func shipped(t *testing.T) []*scenarios.Scenario {
	t.Helper()
	all := must.Get(scenarios.Builtin())(t)
	return slices.DeleteFunc(all, func(s *scenarios.Scenario) bool { return !s.RunsOn(scenarios.Sim) })
}

func holds(t *testing.T, s *scenarios.Scenario) {
	t.Helper()
	r := Run(context.Background(), s, lab.Options{})
	t.Logf("%v of its own time, %v on the wall", r.Elapsed, r.Wall)
	if r.Verdict == report.Passed {
		return
	}
	t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
	for _, c := range r.Checks {
		t.Logf("%v %s: want %s, got %s", c.OK, c.Name, c.Want, c.Got)
	}
}
