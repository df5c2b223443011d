package fuzz_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

// way is how a queue pair of a type takes the usual steps, and what each must have.
var way = map[verbs.QPType][3]verbs.QPAttrMask{
	verbs.QPTypeRC: rcMasks, verbs.QPTypeUC: ucMasks, verbs.QPTypeUD: udMasks,
	verbs.QPTypeXRCRecv: {rcMasks[0], rcMasks[1], verbs.QPAttrSQPSN | verbs.QPAttrTimeout},
	verbs.QPTypeXRCSend: {rcMasks[0], ucMasks[1], rcMasks[2]},
}

// peer draws a queue pair of the same kind, itself among them.
func (m *machine) peer(t *rapid.T, o *modelQP) verbs.QPN {
	same := slices.DeleteFunc(slices.Clone(m.qps), func(q *modelQP) bool { return q.gone || q.Type() != o.Type() })
	if q, ok := pick(t, "peer", same); ok {
		return q.QPN()
	}
	return 0x777
}

func (m *machine) attrs(t *rapid.T, o *modelQP) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: verbs.MTU256, RQPSN: 5, SQPSN: 5, DestQPN: m.peer(t, o), Access: everyRight, Port: 1, AH: m.toSelf(),
		MaxRdAtomic: 2, MaxDestRdAtomic: 2, MinRNRTimer: 1, Timeout: 8, RetryCnt: 2, RNRRetry: 2, QKey: siegeKey,
	}
}

// rise takes a queue pair a usual step, or all that are left.
func (m *machine) riseQP(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	m.raise(t, o, rapid.Bool().Draw(t, "all the way"))
}

func (m *machine) raise(t *rapid.T, o *modelQP, all bool) {
	attr := m.attrs(t, o)
	for o.state < verbs.QPStateRTS {
		attr.State = o.state + 1
		want := only(!o.gone)
		if m.iwarp { // where only the connection manager goes beyond INIT
			want = want.and(may)
		}
		before := o.state
		err := o.Modify(attr, verbs.QPAttrState|way[o.Type()][o.state])
		m.check(t, "QP.Modify to "+attr.State.String(), want, err)
		m.gone(t, "QP.Modify", o.gone, err)
		if err == nil {
			o.state = attr.State
		}
		m.observe(t, o)
		if !all || err != nil || o.state == before {
			return
		}
	}
}

// outfit makes what a program has when it begins to talk: two queue pairs of a type,
// ready, with all that they need.
func (m *machine) outfit(t *rapid.T) {
	m.plain = true
	defer func() { m.plain = false }()
	typ := rapid.SampledFrom(qpTypes[:3]).Draw(t, "outfit")
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

// lowerQP takes a queue pair to RESET or ERR, which it may be at any time.
func (m *machine) lowerQP(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	to := rapid.SampledFrom([]verbs.QPState{verbs.QPStateReset, verbs.QPStateErr}).Draw(t, "to")
	want := only(!o.gone)
	if to == verbs.QPStateErr && o.state == verbs.QPStateReset {
		want = want.and(may) // it has nothing that could fail
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

// modifyQP asks for anything. What no device may allow is known; the rest is for
// the device to say, and whether the queue pair is where it said is checked.
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
		mask = way[o.Type()][o.state] ^ 1<<rapid.IntRange(0, 20).Draw(t, "bit")
	}
	want := only(!o.gone).and(may)
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

// impossible are the changes that no queue pair of any type makes.
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
