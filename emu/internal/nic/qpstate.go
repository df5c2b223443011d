package nic

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// CheckModify says whether a consumer may take a QP of this type from one state to
// another with these attributes.
func CheckModify(typ verbs.QPType, from, to verbs.QPState, mask verbs.QPAttrMask) error {
	r, ok := lookup(edge{typ, from, to})
	if !ok {
		return illegal(typ, from, to)
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

// Transition works out what a modify asks of a QP that is in state current, and
// returns the state it leads to. Without QPAttrState the QP stays where it is,
// which is a change of its own with its own attributes.
//
// QPAttrCurState is the consumer's belief about the present state. A QP can
// leave RTS unasked, so belief and truth may differ; then the request was meant
// for another situation and is refused.
func Transition(typ verbs.QPType, current verbs.QPState, attr *verbs.QPAttr, mask verbs.QPAttrMask) (verbs.QPState, error) {
	if mask&verbs.QPAttrCurState != 0 {
		if err := checkBelief(current, attr.CurState); err != nil {
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

// checkBelief compares the state a consumer names with the true one. Only the
// states from which a QP is taken to RTS may be named.
func checkBelief(current, named verbs.QPState) error {
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

func lookup(e edge) (rule, bool) {
	if !known(e) {
		return rule{}, false
	}
	switch e.to {
	case verbs.QPStateReset:
		return rule{}, true
	case verbs.QPStateErr: // a QP in RESET has nothing that could fail
		return rule{}, e.from != verbs.QPStateReset
	}
	r, ok := legal[e]
	return r, ok
}

// known reports whether type and states exist. The table cannot tell: the ways
// to RESET and ERR are not in it.
func known(e edge) bool {
	_, ok := legal[edge{e.typ, verbs.QPStateReset, verbs.QPStateInit}]
	return ok && e.from <= verbs.QPStateErr && e.to <= verbs.QPStateErr
}

// illegal explains a change that does not exist by those that do.
func illegal(typ verbs.QPType, from, to verbs.QPState) error {
	var targets []string
	for s := verbs.QPStateReset; s <= verbs.QPStateErr; s++ {
		if _, ok := lookup(edge{typ, from, s}); ok {
			targets = append(targets, s.String())
		}
	}
	if targets == nil {
		return fmt.Errorf("%w: no state changes known for %v in %v", verbs.ErrInvalid, typ, from)
	}
	return fmt.Errorf("%w: %v cannot go from %v to %v, only to %s", verbs.ErrInvalid, typ, from, to, strings.Join(targets, ", "))
}
