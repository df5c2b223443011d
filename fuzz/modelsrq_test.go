package fuzz_test

import (
	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

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
