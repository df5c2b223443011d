package simlab

import (
	"context"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Every scenario that ships holds in simulation.
func TestShippedScenarios(t *testing.T) {
	all, err := scenarios.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if !s.RunsOn(scenarios.Sim) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := Run(context.Background(), s, lab.Options{})
			t.Logf("%v of its own time, %v on the wall", r.Elapsed, r.Wall)
			if r.Verdict == report.Passed {
				return
			}
			t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
			for _, c := range r.Checks {
				t.Logf("%v %s: want %s, got %s", c.OK, c.Name, c.Want, c.Got)
			}
		})
	}
}
