package racecheck_test

import "testing"

// written are the programs whose label was decided by hand: a program races if its lines say so.
var written = []struct {
	category string
	ranks    int
	programs []func(rank)
}{
	{"sync: local buffer", 2, []func(rank){
		fenceLoadInPhase, fenceLoadAfterPhase, lockLoadBeforeUnlock, lockLoadAfterUnlock, flushLoadBefore, flushLoadAfter,
		flushLocalAllLoadBefore, flushLocalAllLoadAfter, requestLoadBeforeWait, requestLoadAfterWait, startLoadBeforeComplete, startLoadAfterComplete,
	}},
	{"sync: origin and target", 2, []func(rank){
		flushAllWithoutBarrier, flushAllAndBarrier, lockAllLoadInEpoch, unlockAllLoadBeforeBarrier, unlockAllLoadAfterBarrier,
		unlockAfterBarrier, unlockLoadBeforeBarrier, unlockLoadAfterBarrier, lockOfOtherWindowAsSignal, exclusiveLockOfBoth,
		loadBeforeReceive, loadAfterReceive, polling,
	}},
	{"sync: origin and target", 3, []func(rank){loadAfterMessageOfThird}},
	{"sync: two origins", 3, []func(rank){
		fenceTwoOriginsInPhase, fenceTwoOriginsInTwoPhases, twoOriginsInOneExposure, twoOriginsInTwoExposures,
		exclusiveLockOfTwoOrigins, putAfterMessageOfOtherOrigin,
	}},
	{"sync: same origin", 2, []func(rank){
		sameOriginPutGet, sameOriginPutFlushGet, sameOriginPutFlushLocalGet, sameOriginGetFlushLocalGet,
	}},
}

// Every race of the programs that were labelled by hand is found with both lines, and nothing else.
func TestWrittenPrograms(t *testing.T) {
	for _, group := range written {
		for _, program := range group.programs {
			name, lines := markedLines(program)
			v, text := judge(group.ranks, program, lines)
			if v != truePositive && v != trueNegative {
				t.Errorf("%s: %s: %s: %s", group.category, name, v, text)
			}
		}
	}
}
