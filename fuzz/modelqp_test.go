package fuzz_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

// modelQP is a queue pair. Its state is that of the model, or one that it may have
// come to by itself.
type modelQP struct {
	object
	verbs.QP
	pd             *modelPD
	sendCQ, recvCQ *modelCQ
	srq            *modelSRQ
	state          verbs.QPState
	sq, rq         *ledger // nil where there is none
	aside          *ledger // requests without a peer, on RD
	caps           verbs.QPCaps
	all            bool // every request is signaled
	groups         bool // it may be a member of one
}

var qpTypes = []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUD, verbs.QPTypeUC, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv, 77}

// typeCaps are what a device has to claim for each.
var typeCaps = map[verbs.QPType]verbs.Caps{
	verbs.QPTypeRC: verbs.CapRC, verbs.QPTypeUC: verbs.CapUC, verbs.QPTypeUD: verbs.CapUD,
	verbs.QPTypeXRCSend: verbs.CapXRC, verbs.QPTypeXRCRecv: verbs.CapXRC,
}

func (m *machine) qp(t *rapid.T) (*modelQP, bool) {
	return live(t, "qp", m.qps, func(o *modelQP) bool { return o.gone })
}

func (m *machine) createQP(t *rapid.T) {
	m.createQPOf(t, rapid.SampledFrom(qpTypes).Draw(t, "type"))
}

func (m *machine) createQPOf(t *rapid.T, typ verbs.QPType) {
	in := verbs.QPInit{Type: typ, Caps: verbs.QPCaps{MaxSendWR: 6, MaxRecvWR: 6, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 16}}
	in.SignalAll = rapid.Bool().Draw(t, "signal all")
	o := &modelQP{}
	var uses []*object
	want := only(typeCaps[typ] != 0 && m.attr.Caps.Has(typeCaps[typ]))
	need := func(ok bool, x *object) {
		if want = want.and(only(ok && !x.gone)); ok {
			uses = append(uses, x)
		}
	}
	if typ == verbs.QPTypeXRCRecv {
		in.Caps = verbs.QPCaps{}
		x, ok := live(t, "xrcd", m.xrcds, func(o *modelXRCD) bool { return o.gone })
		if !ok {
			x = &modelXRCD{}
		} else {
			in.XRCD = x.XRCD
		}
		need(ok, &x.object)
	} else {
		pd, ok := m.pd(t)
		if !ok {
			return
		}
		o.pd, in.PD = pd, pd.PD
		need(true, &pd.object)
		cq, ok := m.cq(t)
		if !ok {
			return
		}
		o.sendCQ, in.SendCQ = cq, cq.CQ
		need(true, &cq.object)
		if typ != verbs.QPTypeXRCSend {
			cq, _ := m.cq(t)
			if cq == nil {
				return
			}
			o.recvCQ, in.RecvCQ = cq, cq.CQ
			need(true, &cq.object)
			if srq, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.gone }); ok && choose(m, t, "shared", false, true) {
				o.srq, in.SRQ, in.Caps.MaxRecvWR, in.Caps.MaxRecvSGE = srq, srq.SRQ, 0, 0
				need(true, &srq.object)
				if srq.xrc {
					want = want.and(may)
				}
			}
		}
	}
	switch choose(m, t, "wrong", 0, 0, 0, 0, 0, 0, 1, 2, 3, 4) {
	case 1:
		in.PD, want = nil, only(typ == verbs.QPTypeXRCRecv).and(want)
	case 2:
		in.SendCQ, want = nil, only(typ == verbs.QPTypeXRCRecv).and(want)
	case 3:
		in.Caps.MaxSendWR, want = m.attr.MaxQPWR+1, mustNot
	case 4:
		in.Caps.MaxSendSGE, want = -1, want.and(may)
	}
	qp, err := m.dev.CreateQP(in)
	m.check(t, "CreateQP", want, err)
	if err != nil {
		return
	}
	for _, q := range m.qps {
		if !q.gone && q.QPN() == qp.QPN() {
			t.Fatalf("two queue pairs have number %#x", qp.QPN())
		}
	}
	o.QP, o.caps, o.all = qp, in.Caps, in.SignalAll
	if o.sendCQ != nil {
		o.sq = m.books.open("send queue", !m.rd) // on RD, each peer has an order of its own
		o.aside = o.sq
		if m.rd {
			o.aside = m.books.open("send queue, without a peer", true)
		}
	}
	if o.recvCQ != nil && o.srq == nil {
		o.rq = m.books.open("receive queue", !m.rd && typ != verbs.QPTypeUD)
	}
	o.born(uses...)
	m.qps = append(m.qps, o)
	m.observe(t, o)
}

// observe asks a queue pair for its state. It may have failed since, but not
// otherwise changed.
func (m *machine) observe(t *rapid.T, o *modelQP) {
	attr, err := o.Query()
	m.check(t, "QP.Query", only(!o.gone), err)
	m.gone(t, "QP.Query", o.gone, err)
	if err != nil {
		return
	}
	byItself := o.state >= verbs.QPStateRTR && (attr.State == verbs.QPStateErr || attr.State == verbs.QPStateSQE)
	// An overrun of a completion queue fails a queue pair in any state that takes receives.
	byItself = byItself || o.state == verbs.QPStateInit && attr.State == verbs.QPStateErr
	if attr.State != o.state && !byItself {
		t.Fatalf("a queue pair that was in %v is in %v", o.state, attr.State)
	}
	o.state = attr.State
}

func (m *machine) closeQP(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	want := o.closing()
	if o.groups && !o.gone {
		want = may
	}
	if m.closes(t, "QP.Close", &o.object, want, o.QP.Close) {
		o.excuse()
	}
}

// excuse forgets what was posted: completions of it may still come, or not.
func (o *modelQP) excuse() {
	for _, l := range []*ledger{o.sq, o.rq, o.aside} {
		if l == nil {
			continue
		}
		for i := range l.posted {
			if e := &l.posted[i]; !e.over {
				e.excused = true
			}
		}
	}
}

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
		want = mustNot
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

func (m *machine) multicast(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	group := verbs.GIDFrom(m.addr)
	want := only(!o.gone).and(may)
	if rapid.Bool().Draw(t, "a group") {
		group = verbs.GID{0: 0xff, 1: 0x02, 15: 5}
		want = only(!o.gone && o.Type() == verbs.QPTypeUD).and(m.has(verbs.CapMulticast))
	}
	err := o.AttachMulticast(group)
	m.check(t, "QP.AttachMulticast", want, err)
	o.groups = o.groups || err == nil
	if rapid.Bool().Draw(t, "detach") {
		m.check(t, "QP.DetachMulticast", only(err == nil).and(may), o.DetachMulticast(group))
	}
}

// pass lets time pass.
func (m *machine) pass(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{10 * time.Microsecond, time.Millisecond, time.Second}).Draw(t, "time")
	m.let(t, d)
}

func (m *machine) let(t *rapid.T, d time.Duration) {
	if err := m.world.RunUntil(m.world.Now().Add(d)); err != nil {
		t.Fatalf("while %v passed: %v", d, err)
	}
}
