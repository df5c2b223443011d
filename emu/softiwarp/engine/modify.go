package engine

import (
	"math"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// settable are the attributes that Modify accepts. Port and P_Key index have one value each,
// for programs that set them. The connection negotiates the read depths.
const settable = verbs.QPAttrState | verbs.QPAttrCurState | verbs.QPAttrAccessFlags | verbs.QPAttrPort | verbs.QPAttrPKeyIndex

// Modify changes the attributes that mask selects, all or none. Only a Conn brings a QP to RTS.
func (q *QP) Modify(now mono.Time, a verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.nic.clock = now
	to := q.state
	if mask&verbs.QPAttrState != 0 {
		to = a.State
	}
	if err := q.checkModify(&a, mask, to); err != nil {
		return err
	}
	if mask&verbs.QPAttrAccessFlags != 0 {
		q.attr.Access = a.Access & iwarp.RemoteAccess
		q.Access = q.attr.Access
	}
	if mask&verbs.QPAttrState != 0 {
		q.changeState(now, to)
	}
	return nil
}

// checkModify returns an error if Modify may not set the attributes in mask, or not enter state to.
func (q *QP) checkModify(a *verbs.QPAttr, mask verbs.QPAttrMask, to verbs.QPState) error {
	invalid := func(why string, args ...any) error { return q.OpError("modify_qp", verbs.ErrInvalid, why, args...) }
	has := func(m verbs.QPAttrMask) bool { return mask&m != 0 }
	switch {
	case q.gone():
		return invalid("the QP was destroyed")
	case has(verbs.QPAttrCurState) && a.CurState != q.state:
		return invalid("state is %v, not %v", q.state, a.CurState)
	case mask&^settable != 0:
		return invalid("attributes %#x have no meaning for iWARP", uint32(mask&^settable))
	case has(verbs.QPAttrPort) && a.Port != 1:
		return invalid("port %d, there is only port 1", a.Port)
	case has(verbs.QPAttrPKeyIndex) && a.PKeyIndex != 0:
		return invalid("P_Key index %d, there is only 0", a.PKeyIndex)
	case !has(verbs.QPAttrState):
		return nil
	case to > verbs.QPStateErr:
		return invalid("there is no state %d", to)
	case (to == verbs.QPStateRTR || to == verbs.QPStateRTS) && to != q.state:
		return invalid("%v to %v: only a connection makes a QP ready, by connect or accept", q.state, to)
	case !mayModify(q.state, to):
		return invalid("a QP cannot change from %v to %v", q.state, to)
	}
	return nil
}

// mayModify reports whether Modify allows a change of state. checkModify has refused changes to RTR
// and RTS; only a QP in RTS may change to SQD or SQE.
func mayModify(from, to verbs.QPState) bool {
	switch to {
	case verbs.QPStateReset, verbs.QPStateErr:
		return true
	case verbs.QPStateInit:
		return from == verbs.QPStateReset || from == verbs.QPStateInit
	default:
		return from == verbs.QPStateRTS
	}
}

// changeState enters the state that Modify requested. SQD is iWARP's Closing state, SQE Terminate.
func (q *QP) changeState(now mono.Time, to verbs.QPState) {
	switch to {
	case verbs.QPStateReset:
		q.dropConn()
	case verbs.QPStateInit:
		q.state = to
	case verbs.QPStateSQD:
		if q.sq.count() > 0 || q.conn == nil {
			q.failNow() // the RDMA Consortium's verbs require a connection and an empty send queue
			return
		}
		q.conn.Disconnect(now)
	case verbs.QPStateSQE:
		q.stream.Fail(wire.TermRDMAPLocal, sendTerminate)
	case verbs.QPStateErr:
		q.failNow()
	}
}

// failNow moves the QP to ERR and aborts its connection, unless the connection is still being
// set up: then receiveReply ends it.
func (q *QP) failNow() {
	if c := q.conn; c != nil && c.state >= Accepted {
		c.abort(ErrAborted)
	}
	if q.state != verbs.QPStateErr {
		q.fail(verbs.QPStateErr)
	}
}

// Query returns the attributes. With a connection, the read depths are the negotiated ones.
func (q *QP) Query() verbs.QPAttr {
	a := q.attr
	a.State, a.CurState, a.Caps = q.state, q.state, q.Caps
	a.SQDraining = q.state == verbs.QPStateSQD && q.sq.count() > 0
	if c := q.conn; c != nil && c.state >= Accepted {
		a.MaxRdAtomic, a.MaxDestRdAtomic = uint8(min(c.depths.ord, math.MaxUint8)), uint8(min(c.depths.ird, math.MaxUint8))
	}
	return a
}
