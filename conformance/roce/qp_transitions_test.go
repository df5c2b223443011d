package roce

import (
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestTransitionsAreWellFormed(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
		seen := make(map[[2]verbs.QPState]bool)
		for _, tr := range transitions(kind) {
			way := [2]verbs.QPState{tr.from, tr.to}
			if seen[way] {
				t.Errorf("%v: %v to %v is there twice", kind, tr.from, tr.to)
			}
			seen[way] = true
			if both := tr.must & tr.may; both != 0 {
				t.Errorf("%v: %v to %v demands %v, and leaves it open", kind, tr.from, tr.to, both)
			}
			if odd := (tr.must | tr.may) &^ everyAttr; odd != 0 {
				t.Errorf("%v: %v to %v has %v, which is implied or nothing", kind, tr.from, tr.to, odd)
			}
			if tr.to == verbs.QPStateSQE || tr.from == verbs.QPStateReset && tr.to == verbs.QPStateErr {
				t.Errorf("%v: nobody goes from %v to %v", kind, tr.from, tr.to)
			}
		}
		for state := verbs.QPStateReset; state <= verbs.QPStateErr; state++ {
			if !seen[[2]verbs.QPState{state, verbs.QPStateReset}] {
				t.Errorf("%v: there is no way back from %v", kind, state)
			}
		}
	}
}

func TestEachAttrVisitsEveryBitOnce(t *testing.T) {
	var sum verbs.QPAttrMask
	n := 0
	eachAttr(everyAttr, func(bit verbs.QPAttrMask) {
		n++
		sum |= bit
	})
	// All 21 attributes but the state.
	if n != 20 || sum != everyAttr {
		t.Errorf("%d bits, %v", n, sum)
	}
}
