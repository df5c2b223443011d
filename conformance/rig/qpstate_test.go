package rig

import (
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestTransitionsReachEveryState(t *testing.T) {
	const reset, initState, rtr = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR
	const rts, sqd, errState = verbs.QPStateRTS, verbs.QPStateSQD, verbs.QPStateErr
	for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv} {
		at := map[verbs.QPState]bool{reset: true}
		for _, w := range Transitions(kind) {
			if !at[w.From] {
				t.Errorf("%v: no transition to %v, the start of one to %v", kind, w.From, w.To)
			}
			if !HasTransition(kind, w.From, w.To) {
				t.Errorf("%v: %v to %v is in the table, but illegal", kind, w.From, w.To)
			}
			if w.Required&w.Optional != 0 || (w.Required|w.Optional)&verbs.QPAttrState != 0 {
				t.Errorf("%v: %v to %v has an attribute that is both required and optional, or the state", kind, w.From, w.To)
			}
			at[w.To] = true
		}
		for _, state := range []verbs.QPState{initState, rtr, rts, sqd} {
			if !at[state] {
				t.Errorf("%v: no transition to %v", kind, state)
			}
		}
		if HasTransition(kind, reset, errState) || HasTransition(kind, initState, rts) || !HasTransition(kind, sqd, reset) {
			t.Errorf("%v: RESET to ERR or INIT to RTS is legal, or SQD to RESET is not", kind)
		}
	}
}

func TestEachAttrVisitsEveryBitOnce(t *testing.T) {
	var got verbs.QPAttrMask
	n := 0
	EachAttr(EveryAttr, func(bit verbs.QPAttrMask) { got |= bit; n++ })
	if got != EveryAttr || n != 20 {
		t.Errorf("%d bits, %v; want the 20 attributes other than the state", n, got)
	}
	EachAttr(0, func(bit verbs.QPAttrMask) { t.Errorf("%v for an empty mask", bit) })
}
