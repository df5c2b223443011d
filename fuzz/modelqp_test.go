package fuzz_test

import (
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

func (m *machine) openXRCD(t *rapid.T) {
	x, err := m.dev.OpenXRCD()
	m.check(t, "OpenXRCD", m.has(verbs.CapXRC), err)
	if err == nil {
		m.xrcds = append(m.xrcds, &modelXRCD{XRCD: x})
	}
}

func (m *machine) closeXRCD(t *rapid.T) {
	if o, ok := live(t, "xrcd", m.xrcds, func(o *modelXRCD) bool { return o.gone }); ok {
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
	want := only(!pd.gone && in.MaxWR >= 1 && in.MaxWR <= m.attr.MaxSRQWR && in.MaxSGE <= m.attr.MaxSRQSGE).and(m.has(verbs.CapSRQ))
	if o.xrc = m.oneIn(t, 4, "xrc"); o.xrc {
		in.Type = verbs.SRQXRC
		want = want.and(m.has(verbs.CapXRC))
		x, hasX := live(t, "xrcd", m.xrcds, func(o *modelXRCD) bool { return o.gone })
		cq, hasCQ := m.cq(t)
		if hasX {
			in.XRCD = x.XRCD
			want = want.and(only(!x.gone))
			uses = append(uses, &x.object)
		}
		if hasCQ {
			in.CQ = cq.CQ
			want = want.and(only(!cq.gone))
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
	o.born(uses...)
	o.books = m.books.open("shared receive queue", false)
	m.srqs = append(m.srqs, o)
}

func (m *machine) closeSRQ(t *rapid.T) {
	if o, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.gone }); ok {
		m.closes(t, "SRQ.Close", &o.object, o.closing(), o.SRQ.Close)
	}
}

func (m *machine) modifySRQ(t *rapid.T) {
	o, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.gone })
	if !ok {
		return
	}
	limit := rapid.SampledFrom([]int{0, 1, 1 << 20, -1}).Draw(t, "limit")
	want := only(!o.gone && limit >= 0 && limit < 1<<20)
	if limit > 0 && limit < 1<<20 && o.maxWR < limit {
		want = want.and(may)
	}
	err := o.Modify(verbs.SRQAttr{Limit: limit}, verbs.SRQLimit)
	m.check(t, "SRQ.Modify", want, err)
	m.gone(t, "SRQ.Modify", o.gone, err)
	attr, err := o.Query()
	m.check(t, "SRQ.Query", only(!o.gone), err)
	if err == nil && (attr.MaxWR < o.maxWR || attr.MaxSGE < o.maxSGE) {
		t.Fatalf("a shared receive queue of %d with %d entries, asked for %d and %d", attr.MaxWR, attr.MaxSGE, o.maxWR, o.maxSGE)
	}
}
