package verbsapi

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// transition is a state transition of a queue pair, with the required and the optional
// attributes.
type transition struct {
	from, to           verbs.QPState
	required, optional verbs.QPAttrMask
}

const (
	reset, initState, rtr, rts = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS
	sqd, sqe, errState         = verbs.QPStateSQD, verbs.QPStateSQE, verbs.QPStateErr
)

// everyState lists the states in the order in which a queue pair passes them.
var everyState = []verbs.QPState{reset, initState, rtr, rts, sqd, sqe, errState}

// migration are the attributes of an alternate path. They have their own cases, because
// some devices claim path migration and refuse them.
const migration = verbs.QPAttrAltPath | verbs.QPAttrPathMigState

// transitionsOf returns the transitions of a queue pair type, except those to RESET and
// ERR, which are the same for all types. It follows the table of ibv_modify_qp(3).
func transitionsOf(kind verbs.QPType) []transition {
	const (
		live  = verbs.QPAttrCurState | verbs.QPAttrAccessFlags | migration
		keyed = verbs.QPAttrCurState | verbs.QPAttrQKey
	)
	switch kind {
	case verbs.QPTypeUD:
		return []transition{
			{reset, initState, initAttrs | verbs.QPAttrQKey, 0},
			{initState, initState, 0, initAttrs | verbs.QPAttrQKey},
			{initState, rtr, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			{rtr, rts, verbs.QPAttrSQPSN, keyed},
			{rts, rts, 0, keyed},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			{sqd, rts, 0, keyed},
		}
	case verbs.QPTypeUC:
		return []transition{
			{reset, initState, initAttrs | verbs.QPAttrAccessFlags, 0},
			{initState, initState, 0, initAttrs | verbs.QPAttrAccessFlags},
			{initState, rtr, rtrAttrs, verbs.QPAttrAltPath | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex},
			{rtr, rts, verbs.QPAttrSQPSN, live},
			{rts, rts, 0, live},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, verbs.QPAttrAV | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex | migration},
			{sqd, rts, 0, live},
		}
	default:
		return []transition{
			{reset, initState, initAttrs | verbs.QPAttrAccessFlags, 0},
			{initState, initState, 0, initAttrs | verbs.QPAttrAccessFlags},
			{initState, rtr, rtrAttrs | responderSide, verbs.QPAttrAltPath | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex},
			{rtr, rts, verbs.QPAttrSQPSN | requesterSide, live | verbs.QPAttrMinRNRTimer},
			{rts, rts, 0, live | verbs.QPAttrMinRNRTimer},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, initAttrs | verbs.QPAttrAV | requesterSide | responderSide | verbs.QPAttrAccessFlags | migration},
			{sqd, rts, 0, live | verbs.QPAttrMinRNRTimer},
		}
	}
}

// isLegal reports whether a queue pair type has a transition. Every state leads to RESET,
// every state but RESET to ERR, and SQE to RTS if the type has SQE.
func isLegal(kind verbs.QPType, from, to verbs.QPState) bool {
	switch {
	case to == reset, to == errState && from != reset, from == sqe && to == rts && kind != verbs.QPTypeRC:
		return true
	}
	for _, t := range transitionsOf(kind) {
		if t.from == from && t.to == to {
			return true
		}
	}
	return false
}

// qpMover tests the state transitions of a queue pair type.
type qpMover struct {
	*rig.Rig
	kind verbs.QPType
	// unspecified are attributes that a device may accept or reject: those of a feature
	// that it does not claim.
	unspecified verbs.QPAttrMask
}

// newQPMover ends the case as unsupported if queue pairs of the type cannot be connected by
// ibv_modify_qp.
func newQPMover(r *rig.Rig, kind verbs.QPType) *qpMover {
	m := &qpMover{Rig: r, kind: kind}
	if kind != verbs.QPTypeUD {
		requireModifyConnect(r)
	}
	if !r.Caps.Has(verbs.CapAutoMigration) {
		m.unspecified = migration
	}
	return m
}

// attr returns valid values of all attributes for a transition.
func (m *qpMover) attr(from, to verbs.QPState) verbs.QPAttr {
	path := m.PathTo(m.Rig)
	return verbs.QPAttr{
		State: to, CurState: from, Port: 1, QKey: qKey, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
		AH: path, PathMTU: verbs.MTU512, DestQPN: 0x345, RQPSN: 0x111111, SQPSN: 0x222222,
		MaxDestRdAtomic: 3, MinRNRTimer: 9, Timeout: 11, RetryCnt: 5, RNRRetry: 4, MaxRdAtomic: 2,
		AltAH: path, AltPort: 1, PathMigState: verbs.MigRearm, Caps: smallCaps,
	}
}

// modify tries a transition with these attributes and the state.
func (m *qpMover) modify(qp verbs.QP, from, to verbs.QPState, mask verbs.QPAttrMask) error {
	return qp.Modify(m.attr(from, to), mask|verbs.QPAttrState)
}

// newQPIn returns a new queue pair in a state.
func (m *qpMover) newQPIn(state verbs.QPState) verbs.QP {
	qp := newQP(m.Rig, verbs.QPInit{Type: m.kind, PD: m.PD, SendCQ: m.CQ, RecvCQ: m.CQ, Caps: smallCaps})
	now := reset
	for _, t := range transitionsOf(m.kind) {
		switch {
		case now == state:
			return qp
		case state == errState && now == initState:
			toState(m.Rig, qp, errState)
			return qp
		case t.from == now && t.to != now:
			m.Must(fmt.Sprintf("%v to %v", now, t.to), m.modify(qp, now, t.to, t.required))
			if now = t.to; now == sqd {
				m.awaitDrained(qp)
			}
		}
	}
	return qp
}

// awaitDrained waits until an idle queue pair in SQD has drained, because it may not be
// modified before. Other cases check the draining state itself.
func (m *qpMover) awaitDrained(qp verbs.QP) {
	const step = time.Millisecond
	for left := 100 * step; left > 0 && queryQP(m.Rig, qp).SQDraining; left -= step {
		m.Sleep(step)
	}
}

// eachAttr calls f for each bit of a mask.
func eachAttr(mask verbs.QPAttrMask, f func(verbs.QPAttrMask)) {
	for bit := verbs.QPAttrMask(1); bit != 0 && bit <= mask; bit <<= 1 {
		if mask&bit != 0 {
			f(bit)
		}
	}
}
