package conformance

import (
	"slices"
	"testing"
)

func TestSlowCasesStartFirst(t *testing.T) {
	slow, fast := &Case{Labels: []string{"service:rc", Slow}}, &Case{}
	runs := []caseRun{{c: fast}, {c: slow}, {c: fast}, {c: slow}}
	if got := startOrder(runs, 2); !slices.Equal(got, []int{1, 3, 0, 2}) {
		t.Errorf("two workers start %v", got)
	}
	if got := startOrder(runs, 1); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("one worker starts %v", got)
	}
}
