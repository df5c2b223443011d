package verbsapi

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	reset, initState, rtr, rts = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS
	sqd, sqe, errState         = verbs.QPStateSQD, verbs.QPStateSQE, verbs.QPStateErr
)

// everyState lists the states in the order in which a queue pair passes them.
var everyState = []verbs.QPState{reset, initState, rtr, rts, sqd, sqe, errState}

// isLegal reports whether a queue pair type has a transition. Every state leads to RESET,
// every state but RESET to ERR, and SQE to RTS if the type has SQE.
func isLegal(kind verbs.QPType, from, to verbs.QPState) bool {
	switch {
	case to == reset, to == errState && from != reset, from == sqe && to == rts && kind != verbs.QPTypeRC:
		return true
	}
	for _, t := range rig.Transitions(kind) {
		if t.From == from && t.To == to {
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
		m.unspecified = rig.MigrationAttrs
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
	for _, t := range rig.Transitions(m.kind) {
		switch {
		case now == state:
			return qp
		case state == errState && now == initState:
			m.ToState(qp, errState)
			return qp
		case t.From == now && t.To != now:
			m.Must(fmt.Sprintf("%v to %v", now, t.To), m.modify(qp, now, t.To, t.Required))
			if now = t.To; now == sqd {
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
	for left := 100 * step; left > 0 && m.QueryQP(qp).SQDraining; left -= step {
		m.Sleep(step)
	}
}
