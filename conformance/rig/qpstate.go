package rig

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Attributes that state transitions have in common.
const (
	PortAttrs      = verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	PathAttrs      = verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	ResponderAttrs = verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	RequesterAttrs = verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	// MigrationAttrs are those of an alternate path.
	MigrationAttrs = verbs.QPAttrAltPath | verbs.QPAttrPathMigState
	// EveryAttr are all attributes but the state.
	EveryAttr = verbs.QPAttrDestQPN<<1 - 1 - verbs.QPAttrState
)

// Transition is a state transition of a queue pair, with its required and optional attributes.
type Transition struct {
	From, To           verbs.QPState
	Required, Optional verbs.QPAttrMask
}

func (t Transition) String() string { return fmt.Sprintf("%v to %v", t.From, t.To) }

// Transitions returns the transitions of a queue pair type, after Table 91 of the IBTA
// specification, volume 1, and ibv_modify_qp(3), except those to RESET and ERR and from SQE.
func Transitions(qpType verbs.QPType) []Transition {
	const ( // states, then sets of optional attributes
		reset, initState, rtr = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR
		rts, sqd              = verbs.QPStateRTS, verbs.QPStateSQD
		connectedRTS          = verbs.QPAttrCurState | verbs.QPAttrAccessFlags | MigrationAttrs
		datagramRTS           = verbs.QPAttrCurState | verbs.QPAttrQKey
		toRTR                 = verbs.QPAttrAltPath | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex
	)
	switch qpType {
	case verbs.QPTypeUD:
		return []Transition{ // from, to, required attributes, optional attributes
			{reset, initState, PortAttrs | verbs.QPAttrQKey, 0},
			{initState, initState, 0, PortAttrs | verbs.QPAttrQKey},
			{initState, rtr, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			{rtr, rts, verbs.QPAttrSQPSN, datagramRTS},
			{rts, rts, 0, datagramRTS},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
			{sqd, rts, 0, datagramRTS},
		}
	case verbs.QPTypeUC:
		return []Transition{
			{reset, initState, PortAttrs | verbs.QPAttrAccessFlags, 0},
			{initState, initState, 0, PortAttrs | verbs.QPAttrAccessFlags},
			{initState, rtr, PathAttrs, toRTR},
			{rtr, rts, verbs.QPAttrSQPSN, connectedRTS},
			{rts, rts, 0, connectedRTS},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, verbs.QPAttrAV | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex | MigrationAttrs},
			{sqd, rts, 0, connectedRTS},
		}
	default: // RC; the queue pairs of XRC have the attributes of a requester or of a responder only
		requester, responder := RequesterAttrs, ResponderAttrs
		switch qpType {
		case verbs.QPTypeXRCSend:
			responder = 0
		case verbs.QPTypeXRCRecv:
			requester = verbs.QPAttrTimeout // Linux requires it although the QP sends no requests
		}
		rnrTimer := responder & verbs.QPAttrMinRNRTimer
		return []Transition{
			{reset, initState, PortAttrs | verbs.QPAttrAccessFlags, 0},
			{initState, initState, 0, PortAttrs | verbs.QPAttrAccessFlags},
			{initState, rtr, PathAttrs | responder, toRTR},
			{rtr, rts, verbs.QPAttrSQPSN | requester, connectedRTS | rnrTimer},
			{rts, rts, 0, connectedRTS | rnrTimer},
			{rts, sqd, 0, verbs.QPAttrEnSQDAsyncNotify},
			{sqd, sqd, 0, PortAttrs | verbs.QPAttrAV | requester | responder | verbs.QPAttrAccessFlags | MigrationAttrs},
			{sqd, rts, 0, connectedRTS | rnrTimer},
		}
	}
}

// HasTransition reports whether a queue pair type has this transition: one of [Transitions], from
// any state to RESET, from any but RESET to ERR, or from SQE of UC and UD to RTS.
func HasTransition(qpType verbs.QPType, from, to verbs.QPState) bool {
	switch {
	case to == verbs.QPStateReset:
		return true
	case to == verbs.QPStateErr:
		return from != verbs.QPStateReset
	case from == verbs.QPStateSQE:
		return to == verbs.QPStateRTS && (qpType == verbs.QPTypeUC || qpType == verbs.QPTypeUD)
	}
	return slices.ContainsFunc(Transitions(qpType), func(t Transition) bool { return t.From == from && t.To == to })
}

// EachAttr calls f for each bit of a mask.
func EachAttr(mask verbs.QPAttrMask, f func(verbs.QPAttrMask)) {
	for bit := verbs.QPAttrMask(1); bit != 0 && bit <= mask; bit <<= 1 {
		if mask&bit != 0 {
			f(bit)
		}
	}
}

// ToInit moves a queue pair from RESET to INIT, with qKey if it is UD, else with the access rights.
func (r *Rig) ToInit(qp verbs.QP, access verbs.Access, qKey uint32) {
	mask := verbs.QPAttrState | PortAttrs | verbs.QPAttrAccessFlags
	if qp.Type() == verbs.QPTypeUD {
		mask = verbs.QPAttrState | PortAttrs | verbs.QPAttrQKey
	}
	r.Must("a queue pair in INIT", qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: access, QKey: qKey}, mask))
}

// ToRTR moves a queue pair from INIT to RTR, with those of the attributes that its type requires.
func (r *Rig) ToRTR(qp verbs.QP, a verbs.QPAttr) {
	mask := verbs.QPAttrState
	switch qp.Type() {
	case verbs.QPTypeUD:
	case verbs.QPTypeRC, verbs.QPTypeXRCRecv:
		mask |= PathAttrs | ResponderAttrs
	default:
		mask |= PathAttrs
	}
	a.State = verbs.QPStateRTR
	r.Must("a queue pair in RTR", qp.Modify(a, mask))
}

// ToRTS moves a queue pair from RTR to RTS, with those of the attributes that its type requires.
func (r *Rig) ToRTS(qp verbs.QP, a verbs.QPAttr) {
	mask := verbs.QPAttrState | verbs.QPAttrSQPSN
	switch qp.Type() {
	case verbs.QPTypeRC, verbs.QPTypeXRCSend:
		mask |= RequesterAttrs
	case verbs.QPTypeXRCRecv:
		mask |= verbs.QPAttrTimeout // Linux requires it although the QP sends no requests
	}
	a.State = verbs.QPStateRTS
	r.Must("a queue pair in RTS", qp.Modify(a, mask))
}

// ToState moves a queue pair to a state without attributes: RESET, SQD, ERR; RTS from SQD or SQE.
func (r *Rig) ToState(qp verbs.QP, state verbs.QPState) {
	r.Must(fmt.Sprintf("a queue pair in %v", state), qp.Modify(verbs.QPAttr{State: state}, verbs.QPAttrState))
}

// QueryQP returns the attributes of a queue pair.
func (r *Rig) QueryQP(qp verbs.QP) verbs.QPAttr {
	return Result(qp.Query())(r, "a queue pair that can be queried")
}

// QueryDevice returns the attributes of the device.
func (r *Rig) QueryDevice() verbs.DeviceAttr {
	return Result(r.Device.QueryDevice())(r, "a device that can be queried")
}

// QueryPort returns the attributes of port 1.
func (r *Rig) QueryPort() verbs.PortAttr {
	return Result(r.Device.QueryPort(1))(r, "a port that can be queried")
}
