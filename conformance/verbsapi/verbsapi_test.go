package verbsapi

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestTransitionsReachEveryState(t *testing.T) {
	for _, s := range services {
		at := map[verbs.QPState]bool{reset: true}
		for _, w := range rig.Transitions(s.kind) {
			if !at[w.From] {
				t.Errorf("%s: no transition to %v, the start of one to %v", s.name, w.From, w.To)
			}
			if !hasTransition(s.kind, w.From, w.To) {
				t.Errorf("%s: %v to %v is in the table, but illegal", s.name, w.From, w.To)
			}
			if w.Required&w.Optional != 0 || (w.Required|w.Optional)&verbs.QPAttrState != 0 {
				t.Errorf("%s: %v to %v has an attribute that is both required and optional, or the state", s.name, w.From, w.To)
			}
			at[w.To] = true
		}
		for _, state := range []verbs.QPState{initState, rtr, rts, sqd} {
			if !at[state] {
				t.Errorf("%s: no transition to %v", s.name, state)
			}
		}
		if hasTransition(s.kind, reset, errState) || hasTransition(s.kind, initState, rts) || !hasTransition(s.kind, sqd, reset) {
			t.Errorf("%s: RESET to ERR or INIT to RTS is legal, or SQD to RESET is not", s.name)
		}
	}
}

func TestEachAttrVisitsEveryBitOnce(t *testing.T) {
	var got verbs.QPAttrMask
	n := 0
	rig.EachAttr(rig.EveryAttr, func(bit verbs.QPAttrMask) { got |= bit; n++ })
	if got != rig.EveryAttr || n != 20 {
		t.Errorf("%d bits, %v; want the 20 attributes other than the state", n, got)
	}
	rig.EachAttr(0, func(bit verbs.QPAttrMask) { t.Errorf("%v for an empty mask", bit) })
}

func TestCheckPrivateDataAllowsZeroPadding(t *testing.T) {
	want := []byte{1, 2, 3}
	for _, c := range []struct {
		got []byte
		ok  bool
	}{
		{[]byte{1, 2, 3}, true},
		{[]byte{1, 2, 3, 0, 0}, true},
		{[]byte{1, 2, 3, 0, 4}, false},
		{[]byte{1, 2}, false},
		{nil, false},
		{[]byte{9, 1, 2, 3}, false},
	} {
		err := rig.Catch(func() { checkPrivateData(&rig.Rig{}, "a test", c.got, want) })
		if (err == nil) != c.ok || err != nil && !conformance.IsViolation(err) {
			t.Errorf("private data % x for % x: %v", c.got, want, err)
		}
	}
}

func TestCheckTaskOrderDetectsReordering(t *testing.T) {
	e := &endpoint{Rig: &rig.Rig{}, mem: &rig.Memory{Buf: rig.Pattern(64, 0)}}
	next := make([]int, 2)
	for _, b := range []byte{0, 16, 1, 17, 18} {
		if err := rig.Catch(func() { e.checkTaskOrder(b, next) }); err != nil {
			t.Errorf("byte %d: %v", b, err)
		}
	}
	if err := rig.Catch(func() { e.checkTaskOrder(4, next) }); err == nil {
		t.Error("no error for byte 4 of the first task before bytes 2 and 3")
	}
}
