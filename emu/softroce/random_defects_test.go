package softroce

import (
	"testing"
)

// TestRandomPairFindsDefects proves that the randomised test can fail: with each of
// these defects, some seed among the first two hundred must end in a violation.
func TestRandomPairFindsDefects(t *testing.T) {
	both := func(q Defects) [2]Defects { return [2]Defects{q, q} }
	defects := []struct {
		name    string
		defects [2]Defects
	}{
		{"ack skips read", both(Defects{AckSkipsRead: true})},
		{"ack completes read", both(Defects{AckCompletesRead: true})},
		{"stale ack breaks read", both(Defects{StaleAckBreaksRead: true})},
		{"duplicate read resets message", both(Defects{DupReadResetsMessage: true})},
		{"read retried from its start", both(Defects{ReadRetryFromStart: true})},
		{"PSNs compared as integers", both(Defects{PSNUnsigned: true})},
		{"ICRC not checked", both(Defects{ICRCIgnored: true})},
		{"flush with a wrong ICRC", [2]Defects{{FlushICRCDoubled: true}, {}}},
		{"zero-length read fails", both(Defects{ZeroReadFails: true})},
		{"failure completes receives", both(Defects{ErrCompletesRecvs: true})},
		{"exhausted retries hang", both(Defects{RetryExcHangs: true})},
		{"more reads than granted", [2]Defects{{RdAtomicRoundsUp: true}, {}}},
		{"no limit on reads", [2]Defects{{RdAtomicRoundsUp: true}, {NoRdAtomicLimit: true}}},
		{"UC stops after a loss", both(Defects{UCLossLocksUp: true})},
		{"no traffic class in the header area", both(Defects{NoTClassInArea: true})},
	}
	if testing.Short() {
		defects = defects[:4] // a world is one goroutine: the race detector finds no more in more of them
	}
	for _, defect := range defects {
		t.Run(defect.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				c := newRandomCase(seed)
				c.defects = defect.defects
				if _, err := c.run(); err != nil {
					t.Logf("found: %v", err)
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}
