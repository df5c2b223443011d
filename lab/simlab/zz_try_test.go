package simlab

import (
	"context"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

func TestTrySeeds(t *testing.T) {
	all, err := scenarios.Builtin()
	if err != nil { t.Fatal(err) }
	for _, s := range all {
		if !s.RunsOn(scenarios.Sim) { continue }
		t.Run(s.Name, func(t *testing.T) {
		t.Parallel()
		for seed := uint64(2); seed < 22; seed++ {
			r := Run(context.Background(), s, lab.Options{Seed: seed})
			if r.Verdict != report.Passed { fmt.Printf("SEED %-20s %d %s: %.250s\n", s.Name, seed, r.Verdict, r.Reason) }
		}
		})
	}
}
