package nic

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// eachEdge visits every type × from × to, legal or not.
func eachEdge(visit func(e transition)) {
	for _, typ := range allTypes {
		for from := verbs.QPStateReset; from <= verbs.QPStateErr; from++ {
			for to := verbs.QPStateReset; to <= verbs.QPStateErr; to++ {
				visit(transition{typ, from, to})
			}
		}
	}
}

// eachBit visits all 32 attribute bits, those without a name included.
func eachBit(visit func(bit verbs.QPAttrMask)) {
	for i := range 32 {
		visit(1 << i)
	}
}

// checkInvalid fails the test unless err is an invalid-argument error that mentions
// all of names.
func checkInvalid(t *testing.T, err error, names ...any) {
	t.Helper()
	if !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("error is %v, want ErrInvalid", err)
		return
	}
	for _, n := range names {
		if !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("%q does not mention %v", err, n)
		}
	}
}

func TestTransitionRulesMatchTable(t *testing.T) {
	rules := want(t)
	legalCount := 0
	eachEdge(func(e transition) {
		exp, ok := rules[e]
		if r, got := ruleFor(e); got != ok || r != exp {
			t.Errorf("%v %v to %v: got %v, must %v, may %v; want %v, %v, %v",
				e.typ, e.from, e.to, got, r.required, r.optional, ok, exp.required, exp.optional)
		}
		if ok {
			legalCount++
			return
		}
		checkInvalid(t, CheckModify(e.typ, e.from, e.to, ^verbs.QPAttrMask(0)), e.typ, e.from, e.to)
		checkInvalid(t, CheckModify(e.typ, e.from, e.to, verbs.QPAttrState), "only to", verbs.QPStateReset)
	})
	if legalCount != 42+5*7+5*6 {
		t.Errorf("%d legal transitions, want 42 of the table, 35 to RESET and 30 to ERR", legalCount)
	}
}

func TestTransitionsCheckEveryAttribute(t *testing.T) {
	for e, r := range want(t) {
		required, permitted := r.required|verbs.QPAttrState, r.required|r.optional|verbs.QPAttrState
		for _, mask := range []verbs.QPAttrMask{required, permitted, permitted &^ verbs.QPAttrState} {
			if err := CheckModify(e.typ, e.from, e.to, mask); err != nil {
				t.Errorf("with %v: %v", mask, err)
			}
		}
		eachBit(func(bit verbs.QPAttrMask) {
			switch {
			case r.required&bit != 0:
				checkInvalid(t, CheckModify(e.typ, e.from, e.to, permitted&^bit), e.typ, e.from, e.to, "also needs "+bit.String())
			case permitted&bit == 0:
				checkInvalid(t, CheckModify(e.typ, e.from, e.to, required|bit), e.typ, e.from, e.to, "does not take "+bit.String())
			default:
				if err := CheckModify(e.typ, e.from, e.to, required|bit); err != nil {
					t.Errorf("with optional %v: %v", bit, err)
				}
			}
		})
	}
}

func TestErrorListsMissingAttributes(t *testing.T) {
	err := CheckModify(verbs.QPTypeRC, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrQKey)
	const msg = "invalid argument: IBV_QPT_RC from IBV_QPS_INIT to IBV_QPS_RTR also needs " +
		"IBV_QP_PATH_MTU|IBV_QP_RQ_PSN|IBV_QP_MIN_RNR_TIMER|IBV_QP_MAX_DEST_RD_ATOMIC|IBV_QP_DEST_QPN"
	if err == nil || err.Error() != msg {
		t.Errorf("got  %v\nwant %v", err, msg)
	}
}

func TestErrorListsValidTransitions(t *testing.T) {
	err := CheckModify(verbs.QPTypeRC, verbs.QPStateReset, verbs.QPStateRTS, verbs.QPAttrState)
	const msg = "invalid argument: IBV_QPT_RC cannot go from IBV_QPS_RESET to IBV_QPS_RTS, only to IBV_QPS_RESET, IBV_QPS_INIT"
	if err == nil || err.Error() != msg {
		t.Errorf("got  %v\nwant %v", err, msg)
	}
}

func TestUnknownTypesAndStatesAreRejected(t *testing.T) {
	const raw, beyond = verbs.QPType(8), verbs.QPStateErr + 1
	for _, e := range []transition{
		{raw, verbs.QPStateReset, verbs.QPStateInit},
		{raw, verbs.QPStateRTS, verbs.QPStateReset},
		{raw, verbs.QPStateRTS, verbs.QPStateErr},
		{rc, beyond, verbs.QPStateReset},
		{rc, beyond, verbs.QPStateErr},
		{rc, verbs.QPStateRTS, beyond},
	} {
		if _, ok := ruleFor(e); ok {
			t.Errorf("%v %v to %v is rules", e.typ, e.from, e.to)
		}
		checkInvalid(t, CheckModify(e.typ, e.from, e.to, 0), e.typ, e.from)
	}
}

func TestTransition(t *testing.T) {
	const state, cur = verbs.QPAttrState, verbs.QPAttrCurState
	toRTS := verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	for _, tc := range []struct {
		name     string
		typ      verbs.QPType
		current  verbs.QPState
		attr     verbs.QPAttr
		mask     verbs.QPAttrMask
		to       verbs.QPState
		mentions []any // nil: accepted
	}{
		{"state absent stays", rc, verbs.QPStateRTS, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrMinRNRTimer, verbs.QPStateRTS, nil},
		{"nothing at all in RESET", rc, verbs.QPStateReset, verbs.QPAttr{}, 0, verbs.QPStateReset, nil},
		{"RTR has no change to itself", rc, verbs.QPStateRTR, verbs.QPAttr{}, verbs.QPAttrMinRNRTimer, 0, []any{"IBV_QPS_RTR to IBV_QPS_RTR"}},
		{"attribute of another change", rc, verbs.QPStateRTS, verbs.QPAttr{}, verbs.QPAttrAV, 0, []any{verbs.QPAttrAV}},
		{"state named", rc, verbs.QPStateRTR, verbs.QPAttr{State: verbs.QPStateRTS}, state | toRTS, verbs.QPStateRTS, nil},
		{"belief true", rc, verbs.QPStateRTR, verbs.QPAttr{State: verbs.QPStateRTS, CurState: verbs.QPStateRTR}, state | cur | toRTS, verbs.QPStateRTS, nil},
		{"belief false", rc, verbs.QPStateRTR, verbs.QPAttr{State: verbs.QPStateRTS, CurState: verbs.QPStateRTS}, state | cur | toRTS, 0, []any{verbs.QPStateRTS, verbs.QPStateRTR}},
		{"belief overtaken by a send error", ud, verbs.QPStateSQE, verbs.QPAttr{State: verbs.QPStateRTS, CurState: verbs.QPStateRTS}, state | cur, 0, []any{verbs.QPStateSQE}},
		{"leaving SQE knowingly", ud, verbs.QPStateSQE, verbs.QPAttr{State: verbs.QPStateRTS, CurState: verbs.QPStateSQE}, state | cur, verbs.QPStateRTS, nil},
		{"true belief where none is taken", rc, verbs.QPStateRTS, verbs.QPAttr{State: verbs.QPStateErr, CurState: verbs.QPStateRTS}, state | cur, 0, []any{verbs.QPAttrCurState}},
		{"INIT may not be named", rc, verbs.QPStateInit, verbs.QPAttr{CurState: verbs.QPStateInit}, cur, 0, []any{"may name"}},
		{"RESET may not be named", rc, verbs.QPStateReset, verbs.QPAttr{CurState: verbs.QPStateReset}, cur, 0, []any{"may name"}},
		{"ERR may not be named", rc, verbs.QPStateErr, verbs.QPAttr{State: verbs.QPStateReset, CurState: verbs.QPStateErr}, state | cur, 0, []any{"may name"}},
		{"ERR from RESET", rc, verbs.QPStateReset, verbs.QPAttr{State: verbs.QPStateErr}, state, 0, []any{verbs.QPStateReset, verbs.QPStateErr}},
		{"RESET with an attribute", rc, verbs.QPStateRTS, verbs.QPAttr{}, state | verbs.QPAttrPort, 0, []any{verbs.QPAttrPort}},
		{"no such state", rc, verbs.QPStateRTS, verbs.QPAttr{State: 7}, state, 0, []any{"IBV_QPS(7)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			to, err := Transition(tc.typ, tc.current, &tc.attr, tc.mask)
			if tc.mentions != nil {
				checkInvalid(t, err, tc.mentions...)
				if to != tc.current {
					t.Errorf("after an error the state is %v, want %v", to, tc.current)
				}
				return
			}
			if err != nil || to != tc.to {
				t.Errorf("got %v, %v; want %v", to, err, tc.to)
			}
		})
	}
}

// CheckModify checks each attribute bit independently.
func TestCheckModifyChecksEachAttribute(t *testing.T) {
	r, _ := ruleFor(transition{rc, verbs.QPStateRTR, verbs.QPStateRTS})
	bad := verbs.QPAttrAV | verbs.QPAttrQKey
	universe := r.required | r.optional | bad
	accepted := 0
	for sub := universe; ; sub = (sub - 1) & universe {
		ok := CheckModify(verbs.QPTypeRC, verbs.QPStateRTR, verbs.QPStateRTS, sub) == nil
		if ok != (sub&r.required == r.required && sub&bad == 0) {
			t.Fatalf("mask %v: accepted %v", sub, ok)
		}
		if ok {
			accepted++
		}
		if sub == 0 {
			break
		}
	}
	if n := 1 << bits.OnesCount32(uint32(r.optional)); accepted != n {
		t.Errorf("%d masks accepted, want %d", accepted, n)
	}
}

func TestCheckModifyDoesNotAllocate(t *testing.T) {
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	if n := testing.AllocsPerRun(100, func() {
		must.Do(t, CheckModify(verbs.QPTypeRC, verbs.QPStateReset, verbs.QPStateInit, mask))
	}); n != 0 {
		t.Errorf("CheckModify allocates %v times", n)
	}
}
