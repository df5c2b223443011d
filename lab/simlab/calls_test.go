package simlab

import (
	"context"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// With this seed 16 connections in a row lose no MAD and are in time wait at the
// same time: the maximum of the connection manager. The client waits until one is
// freed.
func TestCallsWaitUntilAConnectionIsFreed(t *testing.T) {
	for _, s := range shipped(t) {
		if s.Name != "calls-loss" {
			continue
		}
		if r := Run(context.Background(), s, lab.Options{Seed: 914}); r.Verdict != report.Passed {
			t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
		}
		return
	}
	t.Error("there is no calls-loss")
}
