package softroce

import (
	"testing"
)

// TestFlawsAreFoundAtRandom proves that the randomised test can fail: with each of
// these flaws, some seed among the first two hundred must end in a violation.
func TestFlawsAreFoundAtRandom(t *testing.T) {
	both := func(q Quirks) [2]Quirks { return [2]Quirks{q, q} }
	flaws := []struct {
		name   string
		quirks [2]Quirks
	}{
		{"ack skips read", both(Quirks{AckSkipsRead: true})},
		{"ack completes read", both(Quirks{AckCompletesRead: true})},
		{"stale ack breaks read", both(Quirks{StaleAckBreaksRead: true})},
		{"duplicate read resets message", both(Quirks{DupReadResetsMessage: true})},
		{"read retried from its start", both(Quirks{ReadRetryFromStart: true})},
		{"PSNs compared as integers", both(Quirks{PSNUnsigned: true})},
		{"ICRC not checked", both(Quirks{ICRCIgnored: true})},
		{"flush with a wrong ICRC", [2]Quirks{{FlushICRCDoubled: true}, {}}},
		{"zero-length read fails", both(Quirks{ZeroReadFails: true})},
		{"failure completes receives", both(Quirks{ErrCompletesRecvs: true})},
		{"exhausted retries hang", both(Quirks{RetryExcHangs: true})},
		{"more reads than granted", [2]Quirks{{RdAtomicRoundsUp: true}, {}}},
		{"no limit on reads", [2]Quirks{{RdAtomicRoundsUp: true}, {NoRdAtomicLimit: true}}},
		{"UC stops after a loss", both(Quirks{UCLossLocksUp: true})},
		{"no traffic class in the header area", both(Quirks{NoTClassInArea: true})},
	}
	if testing.Short() {
		flaws = flaws[:4] // a world is one goroutine: the race detector finds no more in more of them
	}
	for _, flaw := range flaws {
		t.Run(flaw.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				c := newRandomCase(seed)
				c.quirks = flaw.quirks
				if _, err := c.run(); err != nil {
					t.Logf("found: %v", err)
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}
