package main

import (
	"context"
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/report"
)

// A run that was starved has an exit code of its own, unless something failed too.
func TestStarvedRunHasItsOwnExitCode(t *testing.T) {
	for _, c := range []struct {
		verdicts []report.Verdict
		want     error
	}{
		{[]report.Verdict{report.Passed}, nil},
		{[]report.Verdict{report.Passed, report.Starved}, exitError(exitStarved)},
		{[]report.Verdict{report.Starved, report.Failed}, errFailed},
		{[]report.Verdict{report.Starved, report.Broken}, errFailed},
	} {
		run := &report.Run{}
		for _, v := range c.verdicts {
			run.Scenarios = append(run.Scenarios, report.Result{Verdict: v})
		}
		o := &runOptions{}
		if err := o.verdict(context.Background(), run, len(c.verdicts), len(c.verdicts), 0); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.verdicts, err, c.want)
		}
	}
}
