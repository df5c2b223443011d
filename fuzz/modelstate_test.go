package fuzz_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

// rtsMasks are the required attributes of the transitions to RTS, by type.
var rtsMasks = map[verbs.QPType][3]verbs.QPAttrMask{
	verbs.QPTypeRC: rcMasks, verbs.QPTypeUC: ucMasks, verbs.QPTypeUD: udMasks,
	verbs.QPTypeXRCRecv: {rcMasks[0], rcMasks[1], verbs.QPAttrSQPSN | verbs.QPAttrTimeout},
	verbs.QPTypeXRCSend: {rcMasks[0], ucMasks[1], rcMasks[2]},
}

// peer draws a queue pair of the same type, perhaps o.
func (m *machine) peer(t *rapid.T, o *modelQP) verbs.QPN {
	same := slices.DeleteFunc(slices.Clone(m.qps), func(q *modelQP) bool { return q.closed || q.Type() != o.Type() })
	if q, ok := pick(t, "peer", same); ok {
		return q.QPN()
	}
	return 0x777
}

func (m *machine) attrs(t *rapid.T, o *modelQP) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: verbs.MTU256, RQPSN: 5, SQPSN: 5, DestQPN: m.peer(t, o), Access: allAccess, Port: 1, AH: m.toSelf(),
		MaxRdAtomic: 2, MaxDestRdAtomic: 2, MinRNRTimer: 1, Timeout: 8, RetryCnt: 2, RNRRetry: 2, QKey: attackQKey,
	}
}

// riseQP moves a queue pair to the next state, or to RTS.
func (m *machine) riseQP(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	m.raise(t, o, rapid.Bool().Draw(t, "to RTS"))
}

func (m *machine) raise(t *rapid.T, o *modelQP, all bool) {
	attr := m.attrs(t, o)
	for o.state < verbs.QPStateRTS {
		attr.State = o.state + 1
		want := only(!o.closed)
		if m.iwarp { // only the connection manager goes beyond INIT
			want = want.and(may)
		}
		before := o.state
		err := o.Modify(attr, verbs.QPAttrState|rtsMasks[o.Type()][o.state])
		m.check(t, "QP.Modify to "+attr.State.String(), want, err)
		m.checkClosed(t, "QP.Modify", o.closed, err)
		if err == nil {
			o.state = attr.State
		}
		m.observe(t, o)
		if !all || err != nil || o.state == before {
			return
		}
	}
}

// createReadyQPs creates two queue pairs of a type in RTS, with the objects that they need.
func (m *machine) createReadyQPs(t *rapid.T) {
	m.plain = true
	defer func() { m.plain = false }()
	typ := rapid.SampledFrom(qpTypes[:3]).Draw(t, "type")
	if !m.attr.Caps.Has(typeCaps[typ]) {
		typ = verbs.QPTypeUD
	}
	if m.iwarp {
		typ = verbs.QPTypeRC
	}
	m.allocPD(t)
	m.createChannel(t)
	m.createCQ(t)
	m.regMR(t)
	m.createAH(t)
	m.allocMW(t)
	for range 2 {
		m.createQPOf(t, typ)
	}
	for _, o := range m.qps {
		m.raise(t, o, true)
	}
}

// lowerQP moves a queue pair to RESET or ERR, which is allowed in every state.
func (m *machine) lowerQP(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	to := rapid.SampledFrom([]verbs.QPState{verbs.QPStateReset, verbs.QPStateErr}).Draw(t, "to")
	want := only(!o.closed)
	if to == verbs.QPStateErr && o.state == verbs.QPStateReset {
		want = want.and(may) // it has no queues that could fail
	}
	m.lower(t, o, to, want)
}

func (m *machine) lower(t *rapid.T, o *modelQP, to verbs.QPState, want verdict) {
	err := o.Modify(verbs.QPAttr{State: to}, verbs.QPAttrState)
	m.check(t, "QP.Modify to "+to.String(), want, err)
	if err != nil {
		return
	}
	if o.state = to; to == verbs.QPStateReset {
		o.excuse()
	}
	m.observe(t, o)
}

// modifyQP draws any transition and attributes. The model knows the transitions that must fail;
// after others it checks the state.
func (m *machine) modifyQP(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	m.observe(t, o)
	attr := m.attrs(t, o)
	attr.State = verbs.QPState(rapid.IntRange(0, 8).Draw(t, "state"))
	attr.CurState = verbs.QPState(rapid.IntRange(0, 6).Draw(t, "current"))
	attr.Port = rapid.SampledFrom([]uint8{1, 0, 9}).Draw(t, "port")
	attr.PathMTU = verbs.MTU(rapid.IntRange(0, 7).Draw(t, "mtu"))
	attr.MinRNRTimer, attr.Timeout = rapid.Byte().Draw(t, "rnr timer"), rapid.Byte().Draw(t, "timeout")
	attr.RetryCnt, attr.RNRRetry = rapid.Byte().Draw(t, "retries"), rapid.Byte().Draw(t, "rnr retries")
	attr.MaxRdAtomic, attr.MaxDestRdAtomic = rapid.Byte().Draw(t, "reads"), rapid.Byte().Draw(t, "their reads")
	attr.RQPSN, attr.SQPSN = rapid.Uint32().Draw(t, "rq psn"), rapid.Uint32().Draw(t, "sq psn")
	attr.PKeyIndex = uint16(rapid.IntRange(0, 2).Draw(t, "pkey"))
	attr.Access = rapid.SampledFrom(accesses).Draw(t, "access")
	mask := verbs.QPAttrMask(rapid.Uint32Range(0, 1<<21).Draw(t, "mask"))
	if o.state <= verbs.QPStateRTR && rapid.Bool().Draw(t, "near the usual step") {
		mask = rtsMasks[o.Type()][o.state] ^ 1<<rapid.IntRange(0, 20).Draw(t, "bit")
	}
	want := only(!o.closed).and(may)
	if mask&verbs.QPAttrState != 0 && impossible(o.state, attr.State) {
		want = mustFail
	}
	err := o.Modify(attr, mask)
	m.check(t, "QP.Modify with "+mask.String(), want, err)
	if err == nil && mask&verbs.QPAttrState != 0 {
		if o.state = attr.State; o.state == verbs.QPStateReset {
			o.excuse()
		}
	}
	m.observe(t, o)
}

// impossible reports whether no queue pair of any type has the transition.
func impossible(from, to verbs.QPState) bool {
	switch {
	case to > verbs.QPStateErr || to == verbs.QPStateSQE:
		return true
	case to == verbs.QPStateReset || to == verbs.QPStateErr || to == from:
		return false
	case from == verbs.QPStateErr:
		return true
	case to == verbs.QPStateInit:
		return from != verbs.QPStateReset
	case to == verbs.QPStateRTR:
		return from != verbs.QPStateInit
	case to == verbs.QPStateRTS:
		return from < verbs.QPStateRTR
	default: // SQD
		return from != verbs.QPStateRTS
	}
}
