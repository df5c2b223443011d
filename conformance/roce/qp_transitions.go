package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// transitions returns all transitions of a queue pair type.
func transitions(kind verbs.QPType) []rig.Transition {
	all := rig.Transitions(kind)
	for from := verbs.QPStateReset; from <= verbs.QPStateErr; from++ {
		all = append(all, rig.Transition{From: from, To: verbs.QPStateReset})
		if from != verbs.QPStateReset {
			all = append(all, rig.Transition{From: from, To: verbs.QPStateErr})
		}
	}
	toRTS := rig.Transition{From: verbs.QPStateSQE, To: verbs.QPStateRTS}
	switch kind {
	case verbs.QPTypeRC: // has no SQE
		return all
	case verbs.QPTypeUD:
		toRTS.Optional = verbs.QPAttrCurState | verbs.QPAttrQKey
	case verbs.QPTypeUC:
		toRTS.Optional = verbs.QPAttrCurState | verbs.QPAttrAccessFlags
	}
	return append(all, toRTS)
}

// qpMover tests the state transitions of a queue pair type.
type qpMover struct {
	*Port
	kind  verbs.QPType
	table []rig.Transition
	// unspecified are attributes that a device may accept or reject.
	unspecified verbs.QPAttrMask
}

// onTransitions makes the body of a case from a function that uses a qpMover.
func onTransitions(kind verbs.QPType, body func(*qpMover)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		m := &qpMover{Port: p, kind: kind, table: transitions(kind)}
		if !p.Caps.Has(verbs.CapAutoMigration) {
			m.unspecified = rig.MigrationAttrs
		}
		body(m)
	})
}

// Attr returns valid values of all attributes for a transition.
func (m *qpMover) Attr(t rig.Transition) verbs.QPAttr {
	a := m.peerAttr(m.Peer)
	a.State, a.CurState = t.To, t.From
	a.DestQPN, a.RQPSN, a.SQPSN, a.Port, a.QKey = peerQPN, firstPeerPSN, firstDevicePSN, 1, udQKey
	a.Access = verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	a.AltAH, a.AltPort, a.PathMigState = a.AH, 1, verbs.MigRearm
	a.AltAH.GRH.DGID = verbs.GIDFrom(m.PeerAddr(1))
	a.Caps = verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}
	return a
}

// Modify tries a transition with these attributes and the state.
func (m *qpMover) Modify(qp verbs.QP, t rig.Transition, mask verbs.QPAttrMask) error {
	return qp.Modify(m.Attr(t), mask|verbs.QPAttrState)
}

// newQP returns a new queue pair in a state. It returns false for SQE if the device moves
// queue pairs to ERR instead, which another case tests.
func (m *qpMover) newQP(state verbs.QPState) (verbs.QP, bool) {
	qp := m.CreateQP(qpInit(m.Rig, m.kind, verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}))
	at := verbs.QPStateReset
	for _, next := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD} {
		switch {
		case at == state:
			return qp, true
		case state == verbs.QPStateErr && at == verbs.QPStateInit:
			m.ToState(qp, verbs.QPStateErr)
			return qp, true
		case state == verbs.QPStateSQE && at == verbs.QPStateRTS:
			return qp, m.failSend(qp)
		}
		t := m.find(at, next)
		m.Must(fmt.Sprintf("%v to %v", at, next), m.Modify(qp, *t, t.Required))
		at = next
	}
	return qp, true
}

// find returns the transition between two states, or nil.
func (m *qpMover) find(from, to verbs.QPState) *rig.Transition {
	for i := range m.table {
		if t := &m.table[i]; t.From == from && t.To == to {
			return t
		}
	}
	return nil
}

// failSend makes a send of an unreliable queue pair fail, and reports whether the state
// is SQE then.
func (m *qpMover) failSend(qp verbs.QP) bool {
	wr := m.badSendWR(1)
	if m.kind == verbs.QPTypeUD {
		ah, err := m.PD.CreateAH(m.peerAttr(m.Peer).AH)
		m.Must("an address handle", err)
		wr.UD = verbs.UD{AH: ah, QPN: udPeerQPN, QKey: udQKey}
	}
	m.PostSend(qp, wr)
	wc := m.NextCompletion()
	m.Check(wc.Status != verbs.WCSuccess, "a request with a bad key that fails", "it succeeds")
	return m.QueryQP(qp).State == verbs.QPStateSQE
}
