package fuzz_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

// modelQP is a queue pair with its state: that of the last transition, or ERR after a failure.
type modelQP struct {
	object
	verbs.QP
	pd             *modelPD
	sendCQ, recvCQ *modelCQ
	srq            *modelSRQ
	state          verbs.QPState
	sq, rq         *ledger // nil if it has none
	localSQ        *ledger // requests without a peer, on RD
	caps           verbs.QPCaps
	all            bool // every request is signaled
	groups         bool // it may be in a multicast group
}

var qpTypes = []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUD, verbs.QPTypeUC, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv, 77}

// typeCaps are the capabilities that a device needs for each type.
var typeCaps = map[verbs.QPType]verbs.Caps{
	verbs.QPTypeRC: verbs.CapRC, verbs.QPTypeUC: verbs.CapUC, verbs.QPTypeUD: verbs.CapUD,
	verbs.QPTypeXRCSend: verbs.CapXRC, verbs.QPTypeXRCRecv: verbs.CapXRC,
}

func (m *machine) qp(t *rapid.T) (*modelQP, bool) {
	return live(t, "qp", m.qps, func(o *modelQP) bool { return o.closed })
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
		if want = want.and(only(ok && !x.closed)); ok {
			uses = append(uses, x)
		}
	}
	if typ == verbs.QPTypeXRCRecv {
		in.Caps = verbs.QPCaps{}
		x, ok := live(t, "xrcd", m.xrcds, func(o *modelXRCD) bool { return o.closed })
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
			if srq, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.closed }); ok && choose(m, t, "shared", false, true) {
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
		in.Caps.MaxSendWR, want = m.attr.MaxQPWR+1, mustFail
	case 4:
		in.Caps.MaxSendSGE, want = -1, want.and(may)
	}
	qp, err := m.dev.CreateQP(in)
	m.check(t, "CreateQP", want, err)
	if err != nil {
		return
	}
	for _, q := range m.qps {
		if !q.closed && q.QPN() == qp.QPN() {
			t.Fatalf("two queue pairs have number %#x", qp.QPN())
		}
	}
	o.QP, o.caps, o.all = qp, in.Caps, in.SignalAll
	if o.sendCQ != nil {
		o.sq = m.ledgers.open("send queue", !m.rd) // RD orders only requests to the same peer
		o.localSQ = o.sq
		if m.rd {
			o.localSQ = m.ledgers.open("send queue, without a peer", true)
		}
	}
	if o.recvCQ != nil && o.srq == nil {
		o.rq = m.ledgers.open("receive queue", !m.rd && typ != verbs.QPTypeUD)
	}
	o.created(uses...)
	m.qps = append(m.qps, o)
	m.observe(t, o)
}

// observe queries the state of a queue pair. It may have failed, but not changed otherwise.
func (m *machine) observe(t *rapid.T, o *modelQP) {
	attr, err := o.Query()
	m.check(t, "QP.Query", only(!o.closed), err)
	m.checkClosed(t, "QP.Query", o.closed, err)
	if err != nil {
		return
	}
	byItself := o.state >= verbs.QPStateRTR && (attr.State == verbs.QPStateErr || attr.State == verbs.QPStateSQE)
	// An overrun of a completion queue fails a queue pair in any state that takes receives.
	byItself = byItself || o.state == verbs.QPStateInit && attr.State == verbs.QPStateErr
	if attr.State != o.state && !byItself {
		t.Fatalf("queue pair was in %v and is in %v", o.state, attr.State)
	}
	o.state = attr.State
}

func (m *machine) closeQP(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	want := o.closing()
	if o.groups && !o.closed {
		want = may
	}
	if m.closes(t, "QP.Close", &o.object, want, o.QP.Close) {
		o.excuse()
	}
}

// excuse marks the posted requests: they may complete or not.
func (o *modelQP) excuse() {
	for _, l := range []*ledger{o.sq, o.rq, o.localSQ} {
		if l == nil {
			continue
		}
		for i := range l.posted {
			if e := &l.posted[i]; !e.completed {
				e.excused = true
			}
		}
	}
}

func (m *machine) multicast(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	group := verbs.GIDFrom(m.addr)
	want := only(!o.closed).and(may)
	if rapid.Bool().Draw(t, "a group") {
		group = verbs.GID{0: 0xff, 1: 0x02, 15: 5}
		want = only(!o.closed && o.Type() == verbs.QPTypeUD).and(m.has(verbs.CapMulticast))
	}
	err := o.AttachMulticast(group)
	m.check(t, "QP.AttachMulticast", want, err)
	o.groups = o.groups || err == nil
	if rapid.Bool().Draw(t, "detach") {
		m.check(t, "QP.DetachMulticast", only(err == nil).and(may), o.DetachMulticast(group))
	}
}

// pass runs the world for some time.
func (m *machine) pass(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{10 * time.Microsecond, time.Millisecond, time.Second}).Draw(t, "time")
	m.runFor(t, d)
}

func (m *machine) runFor(t *rapid.T, d time.Duration) {
	if err := m.world.RunUntil(m.world.Now().Add(d)); err != nil {
		t.Fatalf("during %v: %v", d, err)
	}
}

func (m *machine) openXRCD(t *rapid.T) {
	x, err := m.dev.OpenXRCD()
	m.check(t, "OpenXRCD", m.has(verbs.CapXRC), err)
	if err == nil {
		m.xrcds = append(m.xrcds, &modelXRCD{XRCD: x})
	}
}

func (m *machine) closeXRCD(t *rapid.T) {
	if o, ok := live(t, "xrcd", m.xrcds, func(o *modelXRCD) bool { return o.closed }); ok {
		m.closes(t, "XRCD.Close", &o.object, o.closing(), o.XRCD.Close)
	}
}

func (m *machine) createSRQ(t *rapid.T) {
	pd, ok := m.pd(t)
	if !ok {
		return
	}
	in := verbs.SRQInit{
		PD:     pd.PD,
		MaxWR:  choose(m, t, "max wr", 8, 8, 1, 0, m.attr.MaxSRQWR+1),
		MaxSGE: choose(m, t, "max sge", 2, 2, 1, m.attr.MaxSRQSGE+1),
	}
	o := &modelSRQ{pd: pd, maxWR: in.MaxWR, maxSGE: in.MaxSGE}
	uses := []*object{&pd.object}
	want := only(!pd.closed && in.MaxWR >= 1 && in.MaxWR <= m.attr.MaxSRQWR && in.MaxSGE <= m.attr.MaxSRQSGE).and(m.has(verbs.CapSRQ))
	if o.xrc = m.oneIn(t, 4, "xrc"); o.xrc {
		in.Type = verbs.SRQXRC
		want = want.and(m.has(verbs.CapXRC))
		x, hasX := live(t, "xrcd", m.xrcds, func(o *modelXRCD) bool { return o.closed })
		cq, hasCQ := m.cq(t)
		if hasX {
			in.XRCD = x.XRCD
			want = want.and(only(!x.closed))
			uses = append(uses, &x.object)
		}
		if hasCQ {
			in.CQ = cq.CQ
			want = want.and(only(!cq.closed))
			uses = append(uses, &cq.object)
		}
		want = want.and(only(hasX && hasCQ))
	}
	srq, err := m.dev.CreateSRQ(in)
	m.check(t, "CreateSRQ", want, err)
	if err != nil {
		return
	}
	o.SRQ = srq
	o.created(uses...)
	o.recvs = m.ledgers.open("shared receive queue", false)
	m.srqs = append(m.srqs, o)
}

func (m *machine) closeSRQ(t *rapid.T) {
	if o, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.closed }); ok {
		m.closes(t, "SRQ.Close", &o.object, o.closing(), o.SRQ.Close)
	}
}

func (m *machine) modifySRQ(t *rapid.T) {
	o, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.closed })
	if !ok {
		return
	}
	limit := rapid.SampledFrom([]int{0, 1, 1 << 20, -1}).Draw(t, "limit")
	want := only(!o.closed && limit >= 0 && limit < 1<<20)
	if limit > 0 && limit < 1<<20 && o.maxWR < limit {
		want = want.and(may)
	}
	err := o.Modify(verbs.SRQAttr{Limit: limit}, verbs.SRQLimit)
	m.check(t, "SRQ.Modify", want, err)
	m.checkClosed(t, "SRQ.Modify", o.closed, err)
	attr, err := o.Query()
	m.check(t, "SRQ.Query", only(!o.closed), err)
	if err == nil && (attr.MaxWR < o.maxWR || attr.MaxSGE < o.maxSGE) {
		t.Fatalf("shared receive queue of %d with %d SGEs, want %d and %d", attr.MaxWR, attr.MaxSGE, o.maxWR, o.maxSGE)
	}
}
