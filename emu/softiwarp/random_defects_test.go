package softiwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

// TestRandomPairFindsDefects proves that the randomised test can fail: with each of
// these defects, some seed among the first hundred must end in a violation.
func TestRandomPairFindsDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("a simulation runs one goroutine at a time: under the race detector TestRandomPair covers the same code")
	}
	both := func(p engine.Policy) [2]engine.Policy { return [2]engine.Policy{p, p} }
	for _, defect := range []struct {
		name   string
		policy [2]engine.Policy
	}{
		{"split trailer", [2]engine.Policy{{MPA: mpa.Policy{FPDUPolicy: mpa.FPDUPolicy{TrailerInOne: true}}}, {}}},
		{"first FPDU stuck", both(engine.Policy{MPA: mpa.Policy{FPDUPolicy: mpa.FPDUPolicy{HoldFirst: true}}})},
		{"sends overtake reads", both(engine.Policy{Stream: iwarp.Policy{SendPolicy: iwarp.SendPolicy{CompleteEarly: true}}})},
	} {
		t.Run(defect.name, func(t *testing.T) {
			t.Parallel()
			mustBeFound(t, defect.policy)
		})
	}
}

// TestMutantsAreFoundAtRandom is TestRandomPairFindsDefects for mutants, which both devices have.
// Only a build with mutants runs it: that of TestOtherTestsFindMutants in package defects.
func TestMutantsAreFoundAtRandom(t *testing.T) {
	if len(mutant.Names()) == 0 {
		t.Skip("this test was built without mutants; the conform step of CI runs it with them")
	}
	for _, name := range []string{"CRCIgnored", "CRCBigEndian", "MarkersDrift", "DeliversTwice", "AtomicReturnsNew", "TailFirst", "WritesPlacedLate"} {
		t.Run(name, func(t *testing.T) {
			if !mutant.Select(name) {
				t.Fatal("no such mutant")
			}
			defer mutant.Select("")
			mustBeFound(t, [2]engine.Policy{})
		})
	}
}

// mustBeFound fails if none of the first hundred seeds finds the defects of two devices.
func mustBeFound(t *testing.T, policy [2]engine.Policy) {
	t.Helper()
	for seed := range uint64(100) {
		c := newRandomCase(seed)
		for i := range c.cfg {
			c.cfg[i].NIC.Policy = policy[i]
		}
		if _, err := c.run(); err != nil {
			t.Logf("found: %v", err)
			return
		}
	}
	t.Error("no seed finds it")
}
