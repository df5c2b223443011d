package simlab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Every scenario that ships holds in simulation.
func TestShippedScenarios(t *testing.T) {
	all, err := os.ReadDir("../../scenarios")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(e.Name(), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s, err := scenarios.Load(os.DirFS("../../scenarios"), e.Name())
			if err != nil {
				t.Fatal(err)
			}
			if !s.RunsOn(scenarios.Sim) {
				return
			}
			r := Run(context.Background(), s, lab.Options{})
			if testing.Verbose() {
				fmt.Printf("%-30s %-8s elapsed %-14v wall %v\n", s.Name, r.Verdict, r.Elapsed, r.Wall)
			}
			if r.Verdict != report.Passed {
				t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
				for _, c := range r.Checks {
					t.Logf("%v %s: want %s, got %s", c.OK, c.Name, c.Want, c.Got)
				}
			}
		})
	}
}
