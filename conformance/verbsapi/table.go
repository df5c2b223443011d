package verbsapi

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// transition is a way from one state to another: what a modify has to name, and what it
// may name besides.
type transition struct {
	from, to  verbs.QPState
	must, may verbs.QPAttrMask
}

const (
	reset, start, rtr, rts = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS
	sqd, sqe, failed       = verbs.QPStateSQD, verbs.QPStateSQE, verbs.QPStateErr
)

// everyState lists them in the order in which a queue pair goes through them.
var everyState = []verbs.QPState{reset, start, rtr, rts, sqd, sqe, failed}

// migration are the attributes of an alternate path. Whether a way takes them is a question
// of its own: they belong to a feature that devices claim, and are known to refuse.
const migration = verbs.QPAttrAltPath | verbs.QPAttrPathMigState

// forward returns the ways of a service that lead on: those to RESET and ERR are the
// same for all. It follows the table of ibv_modify_qp(3), which is IBTA's.
func forward(kind verbs.QPType) []transition {
	const (
		live  = verbs.QPAttrCurState | verbs.QPAttrAccessFlags | migration
		keyed = verbs.QPAttrCurState | verbs.QPAttrQKey
	)
	switch kind {
	case verbs.QPTypeUD:
		return []transition{
			{reset, start, initAttrs | verbs.QPAttrQKey, 0},
			{start, start, 0, initAttrs | verbs.QPAttrQKey},
			{start, rtr, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			{rtr, rts, verbs.QPAttrSQPSN, keyed},
			{rts, rts, 0, keyed},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			{sqd, rts, 0, keyed},
		}
	case verbs.QPTypeUC:
		return []transition{
			{reset, start, initAttrs | verbs.QPAttrAccessFlags, 0},
			{start, start, 0, initAttrs | verbs.QPAttrAccessFlags},
			{start, rtr, rtrAttrs, verbs.QPAttrAltPath | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex},
			{rtr, rts, verbs.QPAttrSQPSN, live},
			{rts, rts, 0, live},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, verbs.QPAttrAV | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex | migration},
			{sqd, rts, 0, live},
		}
	default:
		return []transition{
			{reset, start, initAttrs | verbs.QPAttrAccessFlags, 0},
			{start, start, 0, initAttrs | verbs.QPAttrAccessFlags},
			{start, rtr, rtrAttrs | responderSide, verbs.QPAttrAltPath | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex},
			{rtr, rts, verbs.QPAttrSQPSN | requesterSide, live | verbs.QPAttrMinRNRTimer},
			{rts, rts, 0, live | verbs.QPAttrMinRNRTimer},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, initAttrs | verbs.QPAttrAV | requesterSide | responderSide | verbs.QPAttrAccessFlags | migration},
			{sqd, rts, 0, live | verbs.QPAttrMinRNRTimer},
		}
	}
}

// legal reports whether a service has a way from one state to another. Every state leads
// to RESET, and every one but RESET to ERR; SQE leads back to RTS where there is one.
func legal(kind verbs.QPType, from, to verbs.QPState) bool {
	switch {
	case to == reset, to == failed && from != reset, from == sqe && to == rts && kind != verbs.QPTypeRC:
		return true
	}
	for _, t := range forward(kind) {
		if t.from == from && t.to == to {
			return true
		}
	}
	return false
}

// mover takes queue pairs of a service along their ways.
type mover struct {
	*rig.Rig
	kind verbs.QPType
	// open are attributes that the device need neither take nor refuse: those of a
	// feature that it does not claim.
	open verbs.QPAttrMask
}

func newMover(r *rig.Rig, kind verbs.QPType) *mover {
	m := &mover{Rig: r, kind: kind}
	if kind != verbs.QPTypeUD {
		needsByHand(r)
	}
	if !r.Caps.Has(verbs.CapAutoMigration) {
		m.open = migration
	}
	return m
}

// attr are right attributes for a transition, whatever the mask is.
func (m *mover) attr(from, to verbs.QPState) verbs.QPAttr {
	path := m.PathTo(m.Rig)
	return verbs.QPAttr{
		State: to, CurState: from, Port: 1, QKey: qKey, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
		AH: path, PathMTU: verbs.MTU512, DestQPN: 0x345, RQPSN: 0x111111, SQPSN: 0x222222,
		MaxDestRdAtomic: 3, MinRNRTimer: 9, Timeout: 11, RetryCnt: 5, RNRRetry: 4, MaxRdAtomic: 2,
		AltAH: path, AltPort: 1, PathMigState: verbs.MigRearm, Caps: small,
	}
}

// modify tries a transition with these attributes besides the state.
func (m *mover) modify(qp verbs.QP, from, to verbs.QPState, mask verbs.QPAttrMask) error {
	return qp.Modify(m.attr(from, to), mask|verbs.QPAttrState)
}

// at returns a fresh queue pair in a state.
func (m *mover) at(state verbs.QPState) verbs.QP {
	qp := newQP(m.Rig, verbs.QPInit{Type: m.kind, PD: m.PD, SendCQ: m.CQ, RecvCQ: m.CQ, Caps: small})
	now := reset
	for _, t := range forward(m.kind) {
		switch {
		case now == state:
			return qp
		case state == failed && now == start:
			toState(m.Rig, qp, failed)
			return qp
		case t.from == now && t.to != now:
			m.Must(fmt.Sprintf("%v to %v", now, t.to), m.modify(qp, now, t.to, t.must))
			if now = t.to; now == sqd {
				m.drained(qp)
			}
		}
	}
	return qp
}

// drained gives a queue pair that stops the time to do so: before that nothing of it may
// be changed. It has nothing to send, and whether it tells the truth of that is for other
// cases to ask.
func (m *mover) drained(qp verbs.QP) {
	const step = time.Millisecond
	for left := 100 * step; left > 0 && query(m.Rig, qp).SQDraining; left -= step {
		m.Sleep(step)
	}
}

// each calls f with the bits of a mask.
func each(mask verbs.QPAttrMask, f func(verbs.QPAttrMask)) {
	for bit := verbs.QPAttrMask(1); bit != 0 && bit <= mask; bit <<= 1 {
		if mask&bit != 0 {
			f(bit)
		}
	}
}
