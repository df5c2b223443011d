package judge_test

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
)

// A deviation of an unknown case would never become stale.
func TestDeviationsNameCases(t *testing.T) {
	known := make(map[string]bool)
	for _, s := range judge.Suites() {
		for i := range s.Cases {
			known[s.Cases[i].ID] = true
		}
	}
	devices := conformance.DeviatingDevices()
	if len(devices) < 4 {
		t.Errorf("deviations of %v only", devices)
	}
	for _, device := range devices {
		for _, tier := range conformance.Tiers() {
			of, err := conformance.DeviationsOf(device, tier)
			if err != nil {
				t.Error(err)
			}
			for id := range of {
				if !known[id] {
					t.Errorf("deviations/%s.yaml: unknown case %s", device, id)
				}
			}
		}
	}
}
