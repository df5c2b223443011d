package interop_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/internal/must"
)

// The test counts the goroutines of this process, and cannot run in parallel.
func TestRunConnectionsLeaksNothing(t *testing.T) {
	for _, provider := range []string{"softroce", "softiwarp"} {
		s, _ := suite(t, 0, provider)
		s.Ours.Objects = func(context.Context) (map[string]int, error) {
			return map[string]int{"goroutines": runtime.NumGoroutine()}, nil
		}
		done := 0
		result, err := s.RunConnections(t.Context(), 40, func(n int) { done = n })
		if err != nil || !result.OK() || result.Made != 40 || done != 40 {
			t.Errorf("%s: %+v, %v", provider, result, err)
		}
	}
}

func TestRunConnectionsReportsLeaks(t *testing.T) {
	t.Parallel()
	s, _ := suite(t, 0, "softroce")
	s.CloseTimeout = time.Millisecond
	n := 5
	s.Theirs.Objects = func(context.Context) (map[string]int, error) {
		n++
		return map[string]int{"queue pairs": n}, nil
	}
	result, err := s.RunConnections(t.Context(), 2, nil)
	if err != nil || result.OK() || len(result.Leaked) != 1 || !strings.Contains(result.Leaked[0], "theirs: ") || !strings.Contains(result.Leaked[0], "more of queue pairs than before (6)") {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestExceptionsChangeVerdicts(t *testing.T) {
	t.Parallel()
	s, cases := suite(t, 0, "softroce", "AtomicOperandsSwapped")
	s.Exceptions = []interop.Exception{
		{Pattern: "compare-swap/theirs/hand/ipv4", ErrorContains: "octets differ", Reason: "it swaps operands"},
		{Pattern: "compare-swap/theirs/hand/ipv6", ErrorContains: "another error", Reason: "no such error"},
		{Pattern: "send/ours/hand/ipv4", Reason: "it failed before"},
		{Pattern: "send/ours/hand/ipv6", Intermittent: true, Reason: "it fails sometimes"},
	}
	got := make(map[string]interop.Verdict)
	s.OnResult = func(r interop.Result) { got[r.Case.Name()] = r.Verdict }
	for name, want := range map[string]interop.Verdict{
		"compare-swap/theirs/hand/ipv4/8": interop.Known, "compare-swap/theirs/hand/ipv6/8": interop.Fail, "send/ours/hand/ipv4/1": interop.Stale,
		"send/ours/hand/ipv6/1": interop.Pass, "compare-swap/theirs/cm-ours/ipv4/8": interop.Fail,
	} {
		one := must.Get(interop.Matching(cases, name))(t)
		failed, err := s.Run(t.Context(), one)
		if bad := want == interop.Fail || want == interop.Stale; err != nil || got[name] != want || (failed == 1) != bad {
			t.Errorf("%s: %s, %d failed, %v; want %s", name, got[name], failed, err, want)
		}
	}
}
