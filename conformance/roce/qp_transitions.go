package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// transition is a state transition of a queue pair, with the required and the optional
// attributes.
type transition struct {
	from, to           verbs.QPState
	required, optional verbs.QPAttrMask
}

// Attributes that several transitions have.
const (
	pathAttrs = verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	migAttrs  = verbs.QPAttrAltPath | verbs.QPAttrPathMigState
	portAttrs = verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	// liveAttrs may be changed on the transition to RTS, and in RTS.
	liveAttrs = verbs.QPAttrCurState | migAttrs | verbs.QPAttrAccessFlags
	keyAttrs  = verbs.QPAttrCurState | verbs.QPAttrQKey
)

// transitions returns the transitions of a queue pair type, after Table 91 of the base
// specification.
func transitions(kind verbs.QPType) []transition {
	const (
		reset, start, rtr, rts = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS
		sqd, sqe, failed       = verbs.QPStateSQD, verbs.QPStateSQE, verbs.QPStateErr
	)
	all := []transition{{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify}}
	for _, from := range []verbs.QPState{reset, start, rtr, rts, sqd, sqe, failed} {
		all = append(all, transition{from: from, to: reset})
		if from != reset {
			all = append(all, transition{from: from, to: failed})
		}
	}
	switch kind {
	case verbs.QPTypeUD:
		return append(all,
			transition{reset, start, portAttrs | verbs.QPAttrQKey, 0},
			transition{start, start, 0, portAttrs | verbs.QPAttrQKey},
			transition{start, rtr, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			transition{rtr, rts, verbs.QPAttrSQPSN, keyAttrs},
			transition{rts, rts, 0, keyAttrs},
			transition{sqd, sqd, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			transition{sqd, rts, 0, keyAttrs},
			transition{sqe, rts, 0, keyAttrs},
		)
	case verbs.QPTypeUC:
		return append(all,
			transition{reset, start, portAttrs | verbs.QPAttrAccessFlags, 0},
			transition{start, start, 0, portAttrs | verbs.QPAttrAccessFlags},
			transition{start, rtr, pathAttrs, verbs.QPAttrAltPath | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex},
			transition{rtr, rts, verbs.QPAttrSQPSN, liveAttrs},
			transition{rts, rts, 0, liveAttrs},
			transition{sqd, sqd, 0, verbs.QPAttrAV | migAttrs | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex},
			transition{sqd, rts, 0, liveAttrs},
			transition{sqe, rts, 0, verbs.QPAttrCurState | verbs.QPAttrAccessFlags},
		)
	default: // RC
		const timers = verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
		return append(all,
			transition{reset, start, portAttrs | verbs.QPAttrAccessFlags, 0},
			transition{start, start, 0, portAttrs | verbs.QPAttrAccessFlags},
			transition{
				start, rtr, pathAttrs | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer,
				verbs.QPAttrAltPath | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex,
			},
			transition{rtr, rts, verbs.QPAttrSQPSN | timers, liveAttrs | verbs.QPAttrMinRNRTimer},
			transition{rts, rts, 0, liveAttrs | verbs.QPAttrMinRNRTimer},
			transition{
				sqd, sqd, 0, portAttrs | verbs.QPAttrAV | timers | verbs.QPAttrMaxDestRdAtomic | migAttrs |
					verbs.QPAttrAccessFlags | verbs.QPAttrMinRNRTimer,
			},
			transition{sqd, rts, 0, liveAttrs | verbs.QPAttrMinRNRTimer},
		)
	}
}

// everyAttr are all attributes but the state.
const everyAttr = verbs.QPAttrDestQPN<<1 - 1 - verbs.QPAttrState

// eachAttr calls f for each bit of a mask.
func eachAttr(mask verbs.QPAttrMask, f func(verbs.QPAttrMask)) {
	for bit := verbs.QPAttrMask(1); bit != 0 && bit <= mask; bit <<= 1 {
		if mask&bit != 0 {
			f(bit)
		}
	}
}

// qpMover tests the state transitions of a queue pair type.
type qpMover struct {
	*Port
	kind  verbs.QPType
	table []transition
	// unspecified are attributes that a device may accept or reject.
	unspecified verbs.QPAttrMask
}

// onTransitions makes the body of a case from a function that uses a qpMover.
func onTransitions(kind verbs.QPType, body func(*qpMover)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		m := &qpMover{Port: p, kind: kind, table: transitions(kind)}
		if !p.Caps.Has(verbs.CapAutoMigration) {
			m.unspecified = migAttrs
		}
		body(m)
	})
}

// attr returns valid values of all attributes for a transition.
func (m *qpMover) Attr(t transition) verbs.QPAttr {
	a := m.peerAttr(m.Peer)
	a.State, a.CurState = t.to, t.from
	a.DestQPN, a.RQPSN, a.SQPSN, a.Port, a.QKey = peerQPN, firstPeerPSN, firstDevicePSN, 1, udQKey
	a.Access = verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	a.AltAH, a.AltPort, a.PathMigState = a.AH, 1, verbs.MigRearm
	a.AltAH.GRH.DGID = verbs.GIDFrom(m.PeerAddr(1))
	a.Caps = verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}
	return a
}

// modify tries a transition with these attributes and the state.
func (m *qpMover) Modify(qp verbs.QP, t transition, mask verbs.QPAttrMask) error {
	return qp.Modify(m.Attr(t), mask|verbs.QPAttrState)
}

// newQP returns a new queue pair in a state. It returns false for SQE if the device moves
// queue pairs to ERR instead, which another case tests.
func (m *qpMover) newQP(state verbs.QPState) (verbs.QP, bool) {
	qp, err := m.Device.CreateQP(verbs.QPInit{
		Type: m.kind, PD: m.PD, SendCQ: m.CQ, RecvCQ: m.CQ,
		Caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	m.Must("a queue pair", err)
	at := verbs.QPStateReset
	for _, next := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD} {
		switch {
		case at == state:
			return qp, true
		case state == verbs.QPStateErr && at == verbs.QPStateInit:
			m.toError(qp)
			return qp, true
		case state == verbs.QPStateSQE && at == verbs.QPStateRTS:
			return qp, m.failSend(qp)
		}
		t := m.find(at, next)
		m.Must(fmt.Sprintf("%v to %v", at, next), m.Modify(qp, *t, t.required))
		at = next
	}
	return qp, true
}

// find returns the transition between two states, or nil.
func (m *qpMover) find(from, to verbs.QPState) *transition {
	for i := range m.table {
		if t := &m.table[i]; t.from == from && t.to == to {
			return t
		}
	}
	return nil
}

// failSend makes a send of an unreliable queue pair fail, and reports whether the state
// is SQE then.
func (m *qpMover) failSend(qp verbs.QP) bool {
	mem := m.Memory(8, verbs.AccessLocalWrite)
	sge := mem.SGE(0, 8)
	m.Must("a region that can be deregistered", mem.Close())
	wr := verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: []verbs.SGE{sge}}
	if m.kind == verbs.QPTypeUD {
		ah, err := m.PD.CreateAH(m.peerAttr(m.Peer).AH)
		m.Must("an address handle", err)
		wr.UD = verbs.UD{AH: ah, QPN: udPeerQPN, QKey: udQKey}
	}
	m.PostSend(qp, wr)
	wc := m.NextCompletion()
	m.Check(wc.Status != verbs.WCSuccess, "a request with a bad key that fails", "it succeeds")
	a, err := qp.Query()
	m.Must("a queue pair that can be queried", err)
	return a.State == verbs.QPStateSQE
}
