package simlab

import (
	"context"
	"testing"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
)

// With this seed 16 connections in a row lose no management datagram and are in time wait at
// once, which is as many as the connection manager keeps. The caller waits for one to be
// freed. A manager that frees none is still found out.
func TestCallsWaitUntilAConnectionIsFreed(t *testing.T) {
	for _, s := range shipped(t) {
		if s.Name != "calls-loss" {
			continue
		}
		if r := Run(context.Background(), s, lab.Options{Seed: 914}); r.Verdict != report.Passed {
			t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, r.Detail)
		}
		if r := Run(context.Background(), s, lab.Options{Seed: 914, Quirks: []string{"cm.LeakTimeWait"}}); r.Verdict != report.Failed {
			t.Errorf("with a manager that frees no connections: %s: %s", r.Verdict, r.Reason)
		}
		return
	}
	t.Error("there is no calls-loss")
}
