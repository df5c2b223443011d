package softroce

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects/verbcalls"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

// TestRandomPairFindsDefects proves that the randomised test can fail: with each of
// these defects, some seed among the first two hundred must end in a violation.
func TestRandomPairFindsDefects(t *testing.T) {
	both := func(p engine.RequesterPolicy) [2]engine.Policy {
		return [2]engine.Policy{{RequesterPolicy: p}, {RequesterPolicy: p}}
	}
	roundsUp := [2]verbcalls.Defects{{RdAtomicRoundsUp: true}}
	for name, c := range map[string]randomCase{
		"ack completes read":      {policy: both(engine.RequesterPolicy{AckCompletesReads: true})},
		"stale ack breaks read":   {policy: both(engine.RequesterPolicy{StaleAckEndsRead: true})},
		"more reads than granted": {verbs: roundsUp},
		"no limit on reads":       {verbs: roundsUp, policy: [2]engine.Policy{{}, {ResponderPolicy: engine.ResponderPolicy{ReplaceUnanswered: true}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustBeFound(t, c)
		})
	}
}

// TestMutantsAreFoundAtRandom is the same for mutants. Only a build with mutants has them;
// package defects runs it in one.
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
			mustBeFound(t, randomCase{})
		})
	}
}

func mustBeFound(t *testing.T, with randomCase) {
	t.Helper()
	for seed := range uint64(200) {
		c := newRandomCase(seed)
		c.policy, c.verbs = with.policy, with.verbs
		if _, err := c.run(); err != nil {
			t.Logf("found: %v", err)
			return
		}
	}
	t.Error("no seed finds it")
}
