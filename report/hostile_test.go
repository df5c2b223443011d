package report_test

import (
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report"
)

// hostileRun is a run whose every string is hostile.
func hostileRun() *report.Run {
	run := sampleRun()
	testutil.Poison(run, testutil.Hostile)
	for i := range run.Scenarios {
		run.Scenarios[i].Verdict = report.Verdicts()[i%4]
	}
	return run
}
