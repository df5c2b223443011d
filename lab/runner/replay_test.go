package runner

import (
	"testing"

	"github.com/fabrictest/fabrictest/report"
)

// A replay that passes where the saved run was starved counts as the same result.
func TestStarvedResultsMayPassWhenReplayed(t *testing.T) {
	then, now := &report.Result{Tier: "netns", Verdict: report.Starved}, &report.Result{Tier: "netns", Verdict: report.Passed}
	if same, what := sameOutcome(then, now); !same {
		t.Errorf("a starved result that passes when replayed: %s", what)
	}
	if same, _ := sameOutcome(then, &report.Result{Tier: "netns", Verdict: report.Failed}); same {
		t.Error("a starved result that fails when replayed is the same")
	}
}
