package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// Each outcome of a test's table names all registers and variables in order. A typing
// error would make an outcome impossible.
func TestOutcomesNameAllRegistersAndVariables(t *testing.T) {
	for _, test := range []litmusTest{
		writeThenRead, writeThenWrite, sendBehindWrites, fencedWriteBehindRead, fencedAddBehindRead, addBehindWrite,
		readBehindAdd, completionBehindRead, readsInOrder, concurrentAdds, concurrentSwaps,
	} {
		regs, variables := test.names()
		for _, outcome := range slices.Concat(test.Allowed, test.Unfenced) {
			var names []string
			for _, part := range strings.Fields(outcome) {
				name, _, _ := strings.Cut(part, "=")
				names = append(names, name)
			}
			if want := slices.Concat(regs, variables); !slices.Equal(names, want) {
				t.Errorf("%s: the outcome %q has %v, the test %v", test.Name, outcome, names, want)
			}
		}
	}
}

func TestUnfencedOutcomesAreAllowedWithoutFences(t *testing.T) {
	if fencedWriteBehindRead.allows("r0=1 x=1", true) || !fencedWriteBehindRead.allows("r0=1 x=1", false) || !fencedWriteBehindRead.allows("r0=0 x=1", true) {
		t.Error("only the fence forbids r0=1")
	}
	if got := fencedWriteBehindRead.Threads[0].String(); got != "read x -> r0; fence, write x=1" {
		t.Error(got)
	}
}

// runOn runs a test over some schedules on devices without defects.
func runOn(t *testing.T, provider string, test litmusTest, schedules int) (seen litmusOutcomes, err error) {
	t.Helper()
	p := must.Get(nics.Find(provider))(t)
	err = bench.InSimulation(p, bench.SimOptions{}).WithBench(t.Context(), conformance.BenchSpec{Seed: 1}, func(b *conformance.Bench) (err error) {
		seen, err = test.run(b, schedules)
		return err
	})
	return seen, err
}

// The schedules reach rare allowed outcomes. Otherwise the absence of forbidden outcomes
// would prove little.
func TestSchedulesReachRareOutcomes(t *testing.T) {
	for _, c := range []struct {
		provider string
		test     litmusTest
		want     []string
	}{
		{"softroce", fencedWriteBehindRead, []string{"r0=1 x=1", "r0=torn x=1"}},
		{"softroce", readsInOrder, readsInOrder.Allowed},
		{"softroce", concurrentAdds, concurrentAdds.Allowed},
		{"softiwarp", fencedWriteBehindRead, []string{"r0=1 x=1"}},
		{"softiwarp", readsInOrder, readsInOrder.Allowed},
	} {
		got := must.Get(runOn(t, c.provider, c.test, 500))(t)
		for _, o := range c.want {
			if got[o] == 0 {
				t.Errorf("%s, %s: %q was never seen: %v", c.provider, c.test.Name, o, got)
			}
		}
	}
}

// A forbidden outcome is reported with its schedule.
func TestForbiddenOutcomeIsViolation(t *testing.T) {
	wrong := writeThenRead
	wrong.Allowed = []string{"r0=0 x=1"}
	_, err := runOn(t, "softroce", wrong, 10)
	if !conformance.IsViolation(err) || !strings.Contains(err.Error(), "r0=1 x=1, in schedule 0") {
		t.Error(err)
	}
}
