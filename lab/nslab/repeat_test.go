package nslab

import (
	"context"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/report"
)

func TestStarvedRunIsRepeatedOnce(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		verdicts []report.Verdict // of the attempts
		runs     int
		want     report.Verdict
	}{
		{"passed", context.Background(), []report.Verdict{report.Passed}, 1, report.Passed},
		{"failed", context.Background(), []report.Verdict{report.Failed}, 1, report.Failed},
		{"broken", context.Background(), []report.Verdict{report.Broken}, 1, report.Broken},
		{"starved, then passed", context.Background(), []report.Verdict{report.Starved, report.Passed}, 2, report.Passed},
		{"starved, then failed", context.Background(), []report.Verdict{report.Starved, report.Failed}, 2, report.Failed},
		{"starved twice", context.Background(), []report.Verdict{report.Starved, report.Starved}, 2, report.Starved},
		{"starved and interrupted", ended, []report.Verdict{report.Starved}, 1, report.Starved},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs := 0
			r := repeatStarved(c.ctx, func() *report.Result {
				runs++
				return &report.Result{Verdict: c.verdicts[runs-1], Reason: "attempt", Wall: time.Second, Scheduling: &report.Scheduling{Others: 0.5}}
			})
			if r.Verdict != c.want || runs != c.runs || r.Wall != time.Duration(runs)*time.Second {
				t.Errorf("%s after %d runs and %v, want %s after %d", r.Verdict, runs, r.Wall, c.want, c.runs)
			}
			if runs > 1 && (r.First == nil || r.First.Reason != "attempt" || r.First.Wall != time.Second || r.First.Scheduling.Others != 0.5) || runs == 1 && r.First != nil {
				t.Errorf("the first attempt is %+v", r.First)
			}
		})
	}
}
