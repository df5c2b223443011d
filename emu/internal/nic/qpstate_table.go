package nic

import "github.com/fabrictest/fabrictest/verbs"

// Short names for the table.
const (
	rc      = verbs.QPTypeRC
	uc      = verbs.QPTypeUC
	ud      = verbs.QPTypeUD
	xrcSend = verbs.QPTypeXRCSend
	xrcRecv = verbs.QPTypeXRCRecv

	reset  = verbs.QPStateReset
	qpInit = verbs.QPStateInit
	rtr    = verbs.QPStateRTR
	rts    = verbs.QPStateRTS
	sqd    = verbs.QPStateSQD
	sqe    = verbs.QPStateSQE

	cur    = verbs.QPAttrCurState
	notify = verbs.QPAttrEnSQDAsyncNotify
	access = verbs.QPAttrAccessFlags
	pkey   = verbs.QPAttrPKeyIndex
	port   = verbs.QPAttrPort
	qkey   = verbs.QPAttrQKey
	av     = verbs.QPAttrAV
	sqPSN  = verbs.QPAttrSQPSN
	alt    = verbs.QPAttrAltPath
	mig    = verbs.QPAttrPathMigState
	rnr    = verbs.QPAttrMinRNRTimer

	timeout      = verbs.QPAttrTimeout
	rdAtomic     = verbs.QPAttrMaxQPRdAtomic
	destRdAtomic = verbs.QPAttrMaxDestRdAtomic
)

// Attribute groups.
const (
	// connect has the attributes of the peer of a connected QP.
	connect = av | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	// respond has the attributes of a reliable responder.
	respond = destRdAtomic | rnr
	// retry has the retry counts of a reliable requester.
	retry = verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry
	// request has the attributes of a reliable requester.
	request = timeout | retry | rdAtomic
	// repath may be changed on a connected QP in any state from RTR on.
	repath = alt | access | mig
)

type transition struct {
	typ      verbs.QPType
	from, to verbs.QPState
}

type rule struct{ required, optional verbs.QPAttrMask }

// rules lists the transitions with their required and optional attributes. Transitions to
// RESET, and to ERR from all states but RESET, are valid without attributes; others that
// are not listed are invalid.
//
// XRC splits an RC QP into an initiator and a target, which need only the attributes of a
// requester and of a responder. SQE exists for UC and UD only.
var rules = map[transition]rule{
	{rc, reset, qpInit}:      {required: pkey | port | access},
	{uc, reset, qpInit}:      {required: pkey | port | access},
	{ud, reset, qpInit}:      {required: pkey | port | qkey},
	{xrcSend, reset, qpInit}: {required: pkey | port | access},
	{xrcRecv, reset, qpInit}: {required: pkey | port | access},

	{rc, qpInit, qpInit}:      {optional: pkey | port | access},
	{uc, qpInit, qpInit}:      {optional: pkey | port | access},
	{ud, qpInit, qpInit}:      {optional: pkey | port | qkey},
	{xrcSend, qpInit, qpInit}: {optional: pkey | port | access},
	{xrcRecv, qpInit, qpInit}: {optional: pkey | port | access},

	{rc, qpInit, rtr}:      {required: connect | respond, optional: pkey | access | alt},
	{uc, qpInit, rtr}:      {required: connect, optional: pkey | access | alt},
	{ud, qpInit, rtr}:      {optional: pkey | qkey},
	{xrcSend, qpInit, rtr}: {required: connect, optional: pkey | access | alt},
	{xrcRecv, qpInit, rtr}: {required: connect | respond, optional: pkey | access | alt},

	{rc, rtr, rts}:      {required: sqPSN | request, optional: cur | repath | rnr},
	{uc, rtr, rts}:      {required: sqPSN, optional: cur | repath},
	{ud, rtr, rts}:      {required: sqPSN, optional: cur | qkey},
	{xrcSend, rtr, rts}: {required: sqPSN | request, optional: cur | repath},
	{xrcRecv, rtr, rts}: {required: sqPSN | timeout, optional: cur | repath | rnr},

	{rc, rts, rts}:      {optional: cur | repath | rnr},
	{uc, rts, rts}:      {optional: cur | repath},
	{ud, rts, rts}:      {optional: cur | qkey},
	{xrcSend, rts, rts}: {optional: cur | repath},
	{xrcRecv, rts, rts}: {optional: cur | repath | rnr},

	{rc, rts, sqd}:      {optional: notify},
	{uc, rts, sqd}:      {optional: notify},
	{ud, rts, sqd}:      {optional: notify},
	{xrcSend, rts, sqd}: {optional: notify},
	{xrcRecv, rts, sqd}: {optional: notify},

	{rc, sqd, sqd}:      {optional: port | pkey | av | request | respond | repath},
	{uc, sqd, sqd}:      {optional: pkey | av | repath},
	{ud, sqd, sqd}:      {optional: pkey | qkey},
	{xrcSend, sqd, sqd}: {optional: port | pkey | av | request | repath},
	{xrcRecv, sqd, sqd}: {optional: port | pkey | av | timeout | respond | repath},

	{rc, sqd, rts}:      {optional: cur | repath | rnr},
	{uc, sqd, rts}:      {optional: cur | repath},
	{ud, sqd, rts}:      {optional: cur | qkey},
	{xrcSend, sqd, rts}: {optional: cur | repath},
	{xrcRecv, sqd, rts}: {optional: cur | repath | rnr},

	{uc, sqe, rts}: {optional: cur | access},
	{ud, sqe, rts}: {optional: cur | qkey},
}
