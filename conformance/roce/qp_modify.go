package roce

import (
	"fmt"
	"math/bits"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var modifyCases = conformance.Group{DefaultLabels: labelRC}.Cases([]conformance.Case{{
	ID:   "qp/modify/rc-takes-what-it-must-and-may-and-nothing-else",
	Cite: ibta("11.2.4.2, Table 91", "qp/1", "qp/2"), Needs: verbs.CapRC,
	Title:   "Each transition of an RC queue pair requires its attributes, accepts the optional ones and refuses all others",
	Sends:   "nothing",
	Expects: "each transition succeeds with its required attributes, also with each and all optional ones but an alternate path; it is refused, and changes nothing, without a required one, and with any other",
	Defects: []string{"ModifyUnchecked"}, Run: onTransitions(verbs.QPTypeRC, (*qpMover).checkMasks),
}, {
	ID: "qp/modify/rc-refuses-other-transitions", Cite: ibta("11.2.4.2, Table 91", "qp/1"), Needs: verbs.CapRC,
	Title:   "An RC queue pair refuses every state transition that is not in the table",
	Sends:   "nothing",
	Expects: "a refusal of each pair of states that is no transition, with the state alone and with all that the target state otherwise demands",
	Defects: []string{"ModifyUnchecked"}, Run: onTransitions(verbs.QPTypeRC, (*qpMover).checkOtherTransitions),
}, {
	ID: "qp/modify/uc-table", Cite: ibta("11.2.4.2, Table 91", "qp/1", "qp/2"), Needs: verbs.CapUC, Labels: labelUC,
	Title:   "A UC queue pair accepts the transitions and attributes of the UC table, and no others",
	Sends:   "nothing",
	Expects: "every transition succeeds with its required attributes and each optional one but an alternate path; everything else is refused, and changes nothing",
	Defects: []string{"ModifyUnchecked"}, Run: onTransitions(verbs.QPTypeUC, func(m *qpMover) {
		m.checkMasks()
		m.checkOtherTransitions()
	}),
}, {
	ID: "qp/modify/ud-table", Cite: ibta("11.2.4.2, Table 91", "qp/1", "qp/2"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A UD queue pair accepts the transitions and attributes of the UD table, and no others",
	Sends:   "nothing",
	Expects: "every transition succeeds with its required attributes and each optional one; everything else is refused, and changes nothing",
	Defects: []string{"ModifyUnchecked"}, Run: onTransitions(verbs.QPTypeUD, func(m *qpMover) {
		m.checkMasks()
		m.checkOtherTransitions()
	}),
}, {
	ID:   "qp/modify/rc-alternate-path",
	Cite: ibta("11.2.4.2, Table 91", "qp/1"), Needs: verbs.CapRC | verbs.CapAutoMigration,
	Title:   "Each transition of an RC queue pair with an optional alternate path accepts one",
	Sends:   "nothing",
	Expects: "for each transition that has them as optional: success with an alternate path, with one that is armed, and with that and all other optional attributes",
	Defects: []string{"OptionalAttrsRefused"}, Run: onTransitions(verbs.QPTypeRC, (*qpMover).checkAltPaths),
}, {
	ID:   "qp/modify/uc-alternate-path",
	Cite: ibta("11.2.4.2, Table 91", "qp/1"), Needs: verbs.CapUC | verbs.CapAutoMigration, Labels: labelUC,
	Title:   "Each transition of a UC queue pair with an optional alternate path accepts one",
	Sends:   "nothing",
	Expects: "for each transition that has them as optional: success with an alternate path, with one that is armed, and with that and all other optional attributes",
	Defects: []string{"OptionalAttrsRefused"}, Run: onTransitions(verbs.QPTypeUC, (*qpMover).checkAltPaths),
}, {
	ID: "qp/modify/reset-does-not-lead-to-error", Cite: ibta("11.2.4.2, Table 91", "qp/9"), Needs: verbs.CapRC,
	Title:   "A queue pair cannot go from RESET to ERR",
	Sends:   "nothing",
	Expects: "new queue pairs of RC, UC and UD, if supported, and those that were reset refuse it and stay in RESET",
	Defects: []string{"ModifyUnchecked"}, Run: OnPort(func(p *Port) {
		for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
			if !p.Caps.Has(capOf[kind]) {
				continue
			}
			c, fresh := p.connect(Setup{qpType: kind}), p.CreateQP(qpInit(p.Rig, kind, minQPCaps))
			c.ToState(c.QP, verbs.QPStateReset)
			for _, qp := range []verbs.QP{fresh, c.QP} {
				c.MustFail(fmt.Sprintf("%v: RESET to ERR", kind), qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState), nil)
				c.ExpectState(qp, verbs.QPStateReset)
			}
		}
	}),
}, {
	ID:   "qp/modify/refused-change-changes-nothing",
	Cite: conformance.Cite{Doc: "ibv_modify_qp(3)", Rows: []string{"roce/qp/2"}}, Needs: verbs.CapRC,
	Title:   "A refused modify changes neither the state nor any attribute",
	Sends:   "a SEND, when the queue pair is in RTS",
	Expects: "the same attributes before and after a transition to RTR with a bad MTU, a missing attribute, an excess attribute, a P_Key that does not exist, or, if supported, an alternate path with a wrong P_Key or port, and after refused changes in RTR, RTS and SQD; then an ACK",
	Defects: []string{"ModifyHalfway"}, Run: onConn(Setup{state: verbs.QPStateInit, Receives: 1}, func(c *Conn) {
		m := &qpMover{port: c.Port, kind: verbs.QPTypeRC, table: transitions(verbs.QPTypeRC)}
		toRTR := m.find(verbs.QPStateInit, verbs.QPStateRTR)
		good := m.Attr(*toRTR)
		table := []wrongModify{
			{"a path MTU of 77", toRTR.Required, func(a *verbs.QPAttr) { a.PathMTU = 77 }},
			{"a path MTU of 0", toRTR.Required, func(a *verbs.QPAttr) { a.PathMTU = 0 }},
			{"a P_Key that there is not", toRTR.Required | verbs.QPAttrPKeyIndex, func(a *verbs.QPAttr) { a.PKeyIndex = 0xffff }},
			{"no path", toRTR.Required &^ verbs.QPAttrAV, nil},
			{"a timeout", toRTR.Required | verbs.QPAttrTimeout, func(a *verbs.QPAttr) { a.Timeout = 9 }},
		}
		if c.Caps.Has(verbs.CapAutoMigration) {
			keys, mask := uint16(len(c.pkeyTable())), toRTR.Required|verbs.QPAttrAltPath
			table = append(table,
				wrongModify{"an alternate P_Key that there is not", mask, func(a *verbs.QPAttr) { a.AltPKeyIndex = keys }},
				wrongModify{"an alternate path without a port", mask, func(a *verbs.QPAttr) { a.AltPort = 0 }},
				wrongModify{"an alternate address of no port", mask, func(a *verbs.QPAttr) { a.AltAH.Port = 0 }})
		}
		for _, bad := range table {
			a := good
			a.DestQPN, a.RQPSN, a.MaxDestRdAtomic, a.Access = 0x777, 0x888, 2, verbs.AccessRemoteRead
			if bad.wrong != nil {
				bad.wrong(&a)
			}
			c.expectRefusedModify(c.QP, "INIT to RTR with "+bad.what, a, bad.mask|verbs.QPAttrAccessFlags)
		}
		// Each of these changes has some attributes with other values than before.
		other := m.Attr(*toRTR)
		other.Access, other.MinRNRTimer, other.Timeout, other.RetryCnt, other.SQPSN = verbs.AccessRemoteRead, 3, 9, 2, 0x999
		refused := func(what string, to verbs.QPState, mask verbs.QPAttrMask) {
			other.State, other.CurState = to, c.QueryQP(c.QP).State
			c.expectRefusedModify(c.QP, what, other, mask)
		}
		const rts, optional = verbs.QPStateRTS, verbs.QPAttrAccessFlags | verbs.QPAttrMinRNRTimer
		c.ToRTR(c.QP, c.Attr)
		toRTS := m.find(verbs.QPStateRTR, rts).Required
		refused("RTR to RTS without a retry count", rts, optional|toRTS&^verbs.QPAttrRetryCnt)
		refused("RTR to RTS with a path MTU", rts, optional|toRTS|verbs.QPAttrPathMTU)
		c.ToRTS(c.QP, c.Attr)
		refused("RTS to RTS with a PSN", rts, optional|verbs.QPAttrSQPSN)
		refused("RTS to RTR", verbs.QPStateRTR, optional)
		refused("RTS to SQD with a timeout", verbs.QPStateSQD, verbs.QPAttrEnSQDAsyncNotify|verbs.QPAttrTimeout)
		c.toSQD(false)
		c.awaitDrained()
		refused("SQD to SQD with a PSN", verbs.QPStateSQD, optional|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrSQPSN)
		refused("SQD to RTS with a timeout", rts, optional|verbs.QPAttrTimeout)
		c.expectAccepted(0)
	}),
}, {
	ID: "qp/query/state-and-psns-are-the-present-ones", Cite: ibta("", "qp/10"), Needs: verbs.CapRC,
	Title:   "A query returns the next PSNs to send and to expect, and the current state",
	Sends:   "a SEND of three packets and a READ; an ACK for the device's SEND; finally a NAK",
	Expects: "the PSNs after the packets sent and received; and ERR after the NAK",
	Defects: []string{"QueryStale"}, Run: onConn(Setup{Receives: 1, recvLen: 3 << 10}, func(c *Conn) {
		c.expectPSNs(0, 0)
		c.Send(ib.Send(c.PeerPSN(0), Data(2*MTU+1), MTU)...)
		c.expect(c.deviceAck(2, 1))
		c.exchange(c.peerRead(3, 16), ib.ReadResponseOnly(c.PeerPSN(3), 2, nil))
		c.expectPSNs(0, 4)
		c.PostSend(c.QP, c.SendWR(9, 2*MTU))
		c.expect(ib.SendFirst(c.DevicePSN(0), nil))
		c.expect(ib.New(ib.OpSendLast, c.DevicePSN(1), nil))
		c.expectPSNs(2, 4)
		c.Send(c.peerNak(1, ib.NakRemoteOp, 0))
		c.ExpectRecv(1, 2*MTU+1)
		c.ExpectCompletion(9, verbs.WCRemOpErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "qp/query/read-depths-are-as-set", Cite: ibta("", "qp/11"), Needs: verbs.CapRC,
	Title:   "A query returns max_rd_atomic and max_dest_rd_atomic as they were set",
	Sends:   "nothing",
	Expects: "1, 3, 5 and 7 as 1, 3, 5 and 7",
	Defects: []string{"RdAtomicRoundsUp"}, Run: OnPort(func(p *Port) {
		for _, depth := range []uint8{1, 3, 5, 7} {
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = depth, 8-depth }})
			a := c.QueryQP(c.QP)
			c.Check(a.MaxRdAtomic == depth && a.MaxDestRdAtomic == 8-depth,
				fmt.Sprintf("max_rd_atomic %d, max_dest_rd_atomic %d", depth, 8-depth), "%d, %d", a.MaxRdAtomic, a.MaxDestRdAtomic)
		}
	}),
}})

// expectRefusedModify fails the case unless the device refuses a modify of the state and these
// attributes, and changes no attribute. SQDraining is not compared: the send queue may drain
// meanwhile.
func (p *Port) expectRefusedModify(qp verbs.QP, what string, a verbs.QPAttr, mask verbs.QPAttrMask) {
	before := p.QueryQP(qp)
	p.MustFail(what, qp.Modify(a, mask|verbs.QPAttrState), nil)
	after := p.QueryQP(qp)
	before.SQDraining, after.SQDraining = false, false
	p.Check(after == before, fmt.Sprintf("%s: attributes as before: %+v", what, before), "%+v", after)
}

// expectRefused fails the case unless a transition with these attributes is refused, and changes
// nothing.
func (m *qpMover) expectRefused(qp verbs.QP, t rig.Transition, mask verbs.QPAttrMask, what string) {
	m.port.expectRefusedModify(qp, what, m.Attr(t), mask)
	m.port.ExpectState(qp, t.From)
}

// checkMasks fails the case unless every transition succeeds with its required and optional
// attributes, and fails without a required one or with another that is not in m.unspecified.
func (m *qpMover) checkMasks() {
	for _, t := range m.table {
		qp, ok := m.newQP(t.From)
		if !ok {
			continue
		}
		what := t.String()
		rig.EachAttr(t.Required, func(missing verbs.QPAttrMask) {
			m.expectRefused(qp, t, t.Required&^missing, fmt.Sprintf("%s without %v", what, missing))
		})
		rig.EachAttr(rig.EveryAttr&^(t.Required|t.Optional|m.unspecified), func(extra verbs.QPAttrMask) {
			m.expectRefused(qp, t, t.Required|extra, fmt.Sprintf("%s with %v", what, extra))
		})
		m.port.Must(what, m.Modify(qp, t, t.Required))
		m.port.ExpectState(qp, t.To)
		optional := t.Optional &^ rig.MigrationAttrs // checkAltPaths tests these
		rig.EachAttr(optional, func(extra verbs.QPAttrMask) { m.expectTransition(t, t.Required|extra) })
		if bits.OnesCount32(uint32(optional)) > 1 {
			m.expectTransition(t, t.Required|optional)
		}
	}
}

// checkAltPaths fails the case unless transitions with an optional alternate path accept one,
// without and with the migration state. Some devices claim automatic path migration and fail this.
func (m *qpMover) checkAltPaths() {
	for _, t := range m.table {
		if t.Optional&verbs.QPAttrAltPath == 0 {
			continue
		}
		m.expectTransition(t, t.Required|verbs.QPAttrAltPath)
		m.expectTransition(t, t.Required|t.Optional&rig.MigrationAttrs)
		m.expectTransition(t, t.Required|t.Optional)
	}
}

// expectTransition makes a transition of a new queue pair with these attributes, which must
// succeed.
func (m *qpMover) expectTransition(t rig.Transition, mask verbs.QPAttrMask) {
	qp, _ := m.newQP(t.From)
	m.port.Must(fmt.Sprintf("%v to %v with %v", t.From, t.To, mask), m.Modify(qp, t, mask))
	m.port.ExpectState(qp, t.To)
}

// checkOtherTransitions fails the case unless the device refuses every transition that the table
// does not have: with the attributes that others to the same state require, and with none. Another
// case tests RESET to ERR.
func (m *qpMover) checkOtherTransitions() {
	for from := verbs.QPStateReset; from <= verbs.QPStateErr; from++ {
		if from == verbs.QPStateSQE && m.kind == verbs.QPTypeRC { // RC has no SQE
			continue
		}
		qp, ok := m.newQP(from)
		for to := verbs.QPStateReset; ok && to <= verbs.QPStateErr; to++ {
			if m.find(from, to) != nil || from == verbs.QPStateReset && to == verbs.QPStateErr {
				continue
			}
			var masks []verbs.QPAttrMask
			for _, legal := range m.table {
				if legal.To == to && legal.Required != 0 {
					masks = append(masks, legal.Required)
				}
			}
			for _, mask := range append(masks, 0) {
				err := m.Modify(qp, rig.Transition{From: from, To: to}, mask)
				m.port.MustFail(fmt.Sprintf("%v to %v with %v", from, to, mask), err, nil)
				m.port.ExpectState(qp, from)
			}
		}
	}
}

// expectPSNs fails the case unless a query returns the PSNs that follow this number of sent and of
// received packets.
func (c *Conn) expectPSNs(sent, received int) {
	a := c.QueryQP(c.QP)
	c.Check(ib.PSN(a.SQPSN) == c.DevicePSN(sent) && ib.PSN(a.RQPSN) == c.PeerPSN(received),
		fmt.Sprintf("sq_psn %d, rq_psn %d", c.DevicePSN(sent), c.PeerPSN(received)), "%d, %d", a.SQPSN, a.RQPSN)
}

// transitions returns rig.Transitions of a queue pair type, and those to RESET or ERR or from SQE.
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
	port  *Port
	kind  verbs.QPType
	table []rig.Transition
	// unspecified are attributes that a device may accept or reject in every transition.
	unspecified verbs.QPAttrMask
}

// wrongModify is a modification that must be refused: wrong, unless nil, changes an attribute.
type wrongModify struct {
	what  string
	mask  verbs.QPAttrMask
	wrong func(*verbs.QPAttr)
}

// onTransitions makes the body of a case from a function that uses a qpMover.
func onTransitions(kind verbs.QPType, body func(*qpMover)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		m := &qpMover{port: p, kind: kind, table: transitions(kind)}
		if !p.Caps.Has(verbs.CapAutoMigration) {
			m.unspecified = rig.MigrationAttrs
		}
		body(m)
	})
}

// Attr returns valid values of all attributes for a transition.
func (m *qpMover) Attr(t rig.Transition) verbs.QPAttr {
	a := m.port.peerAttr(m.port.Peer)
	a.State, a.CurState = t.To, t.From
	a.DestQPN, a.RQPSN, a.SQPSN, a.Port, a.QKey = peerQPN, firstPeerPSN, firstDevicePSN, 1, udQKey
	a.Access = verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	a.AltAH, a.AltPort, a.PathMigState = a.AH, 1, verbs.MigRearm
	a.AltAH.GRH.DGID = verbs.GIDFrom(m.port.PeerAddr(1))
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
	qp := m.port.CreateQP(qpInit(m.port.Rig, m.kind, verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}))
	current := verbs.QPStateReset
	for _, next := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD} {
		switch {
		case current == state:
			return qp, true
		case state == verbs.QPStateErr && current == verbs.QPStateInit:
			m.port.ToState(qp, verbs.QPStateErr)
			return qp, true
		case state == verbs.QPStateSQE && current == verbs.QPStateRTS:
			return qp, m.failSend(qp)
		}
		t := m.find(current, next)
		m.port.Must(fmt.Sprintf("%v to %v", current, next), m.Modify(qp, *t, t.Required))
		current = next
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

// failSend posts a SEND with a bad key to an unreliable queue pair, which must complete with an
// error. It reports whether the queue pair is then in SQE.
func (m *qpMover) failSend(qp verbs.QP) bool {
	wr := m.port.badSendWR(1)
	if m.kind == verbs.QPTypeUD {
		wr.UD = verbs.UD{AH: m.port.newAH(m.port.PD), QPN: udPeerQPN, QKey: udQKey}
	}
	m.port.PostSend(qp, wr)
	wc := m.port.NextCompletion()
	m.port.Check(wc.Status != verbs.WCSuccess, "a request with a bad key that fails", "it succeeds")
	return m.port.QueryQP(qp).State == verbs.QPStateSQE
}
