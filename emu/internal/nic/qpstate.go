package nic

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// CheckModify checks that a QP of this type may make the transition with these attributes.
func CheckModify(typ verbs.QPType, from, to verbs.QPState, mask verbs.QPAttrMask) error {
	r, ok := ruleFor(transition{typ, from, to})
	if !ok {
		return transitionError(typ, from, to)
	}
	mask &^= verbs.QPAttrState
	if missing := r.required &^ mask; missing != 0 {
		return fmt.Errorf("%w: %v from %v to %v also needs %v", verbs.ErrInvalid, typ, from, to, missing)
	}
	if extra := mask &^ (r.required | r.optional); extra != 0 {
		return fmt.Errorf("%w: %v from %v to %v does not take %v", verbs.ErrInvalid, typ, from, to, extra)
	}
	return nil
}

// Transition checks a modify_qp of a QP in state current and returns the new state. Without
// QPAttrState the QP stays in current, and only attributes that may change in this state are valid.
//
// QPAttrCurState is the state that the consumer assumes. A QP can leave RTS by
// itself, so the request fails if the assumption is wrong.
func Transition(typ verbs.QPType, current verbs.QPState, attr *verbs.QPAttr, mask verbs.QPAttrMask) (verbs.QPState, error) {
	if mask&verbs.QPAttrCurState != 0 {
		if err := checkCurState(current, attr.CurState); err != nil {
			return current, err
		}
	}
	to := current
	if mask&verbs.QPAttrState != 0 {
		to = attr.State
	}
	if err := CheckModify(typ, current, to, mask); err != nil {
		return current, err
	}
	return to, nil
}

// checkCurState compares the QPAttrCurState attribute with the current state. Only
// states with a transition to RTS are valid.
func checkCurState(current, named verbs.QPState) error {
	switch named {
	case verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD, verbs.QPStateSQE:
	default:
		return fmt.Errorf("%w: %v names %v; it may name %v, %v, %v or %v", verbs.ErrInvalid, verbs.QPAttrCurState, named,
			verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD, verbs.QPStateSQE)
	}
	if named != current {
		return fmt.Errorf("%w: %v names %v, but the QP is in %v", verbs.ErrInvalid, verbs.QPAttrCurState, named, current)
	}
	return nil
}

// ruleFor returns the attributes that a transition requires and permits; false if the transition is
// not permitted. Transitions to RESET and ERR have no attributes and are not in rules.
func ruleFor(e transition) (rule, bool) {
	if !typeAndStatesExist(e) {
		return rule{}, false
	}
	switch e.to {
	case verbs.QPStateReset:
		return rule{}, true
	case verbs.QPStateErr: // not from RESET
		return rule{}, e.from != verbs.QPStateReset
	}
	r, ok := rules[e]
	return r, ok
}

// typeAndStatesExist reports whether e names a QP type of the table, and states of verbs.
func typeAndStatesExist(e transition) bool {
	_, ok := rules[transition{e.typ, verbs.QPStateReset, verbs.QPStateInit}]
	return ok && e.from <= verbs.QPStateErr && e.to <= verbs.QPStateErr
}

// transitionError returns the error for an invalid transition, which lists the valid ones.
func transitionError(typ verbs.QPType, from, to verbs.QPState) error {
	var targets []string
	for s := verbs.QPStateReset; s <= verbs.QPStateErr; s++ {
		if _, ok := ruleFor(transition{typ, from, s}); ok {
			targets = append(targets, s.String())
		}
	}
	if targets == nil {
		return fmt.Errorf("%w: no state changes known for %v in %v", verbs.ErrInvalid, typ, from)
	}
	return fmt.Errorf("%w: %v cannot go from %v to %v, only to %s", verbs.ErrInvalid, typ, from, to, strings.Join(targets, ", "))
}
