package softroce

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

// TestRandomPairFindsDefects proves that the randomised test can fail: with each of
// these defects, some seed among the first two hundred must end in a violation.
func TestRandomPairFindsDefects(t *testing.T) {
	both := func(q Defects) [2]Defects { return [2]Defects{q, q} }
	for name, defects := range map[string][2]Defects{
		"ack completes read":      both(Defects{AckCompletesRead: true}),
		"stale ack breaks read":   both(Defects{StaleAckBreaksRead: true}),
		"more reads than granted": {{RdAtomicRoundsUp: true}, {}},
		"no limit on reads":       {{RdAtomicRoundsUp: true}, {NoRdAtomicLimit: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustBeFound(t, defects)
		})
	}
}

// TestMutantsAreFoundAtRandom is the same for mutants. Only a build with mutants has them;
// package mutants runs it in one.
func TestMutantsAreFoundAtRandom(t *testing.T) {
	if len(mutant.Names()) == 0 {
		t.Skip("this test was built without mutants; the conform step of CI runs it with them")
	}
	for _, name := range []string{
		"AckSkipsRead", "DupReadResetsMessage", "ReadRetryFromStart", "PSNUnsigned", "ICRCIgnored", "ZeroReadFails", "ErrCompletesRecvs",
		"RetryExcHangs", "UCLossLocksUp", "NoTClassInArea",
	} {
		t.Run(name, func(t *testing.T) {
			if !mutant.Select(name) {
				t.Fatal("no such mutant")
			}
			defer mutant.Select("")
			mustBeFound(t, [2]Defects{})
		})
	}
}

func mustBeFound(t *testing.T, defects [2]Defects) {
	t.Helper()
	for seed := range uint64(200) {
		c := newRandomCase(seed)
		c.defects = defects
		if _, err := c.run(); err != nil {
			t.Logf("found: %v", err)
			return
		}
	}
	t.Error("no seed finds it")
}
