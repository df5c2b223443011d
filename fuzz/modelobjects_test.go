package fuzz_test

import (
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

func (m *machine) pd(t *rapid.T) (*modelPD, bool) {
	return live(t, "pd", m.pds, func(o *modelPD) bool { return o.closed })
}

func (m *machine) cq(t *rapid.T) (*modelCQ, bool) {
	return live(t, "cq", m.cqs, func(o *modelCQ) bool { return o.closed })
}

func (m *machine) allocPD(t *rapid.T) {
	pd, err := m.dev.AllocPD()
	m.check(t, "AllocPD", mustSucceed, err)
	m.pds = append(m.pds, &modelPD{PD: pd})
}

func (m *machine) closePD(t *rapid.T) {
	if o, ok := m.pd(t); ok {
		m.closes(t, "PD.Close", &o.object, o.closing(), o.PD.Close)
	}
}

// accesses are the access flags to test.
var accesses = []verbs.Access{
	allAccess | verbs.AccessMWBind, allAccess, 0, verbs.AccessLocalWrite, verbs.AccessRemoteRead,
	verbs.AccessLocalWrite | verbs.AccessMWBind, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic,
	allAccess | verbs.AccessZeroBased, allAccess | verbs.AccessRelaxedOrdering, 1 << 15,
}

func (m *machine) regMR(t *rapid.T) {
	pd, ok := m.pd(t)
	if !ok {
		return
	}
	size := choose(m, t, "size", 256, 1, 64, 0)
	at := m.taken + 16
	if at+size > len(m.arena) {
		return
	}
	in := verbs.MRInit{
		Buf:    m.arena[at : at+size],
		Addr:   choose(m, t, "addr", 0, 0x1000, ^uint64(0)-8),
		Access: choose(m, t, "access", accesses...),
	}
	want := only(!pd.closed)
	const stores = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	switch {
	case in.Access&stores != 0 && in.Access&verbs.AccessLocalWrite == 0:
		want = mustFail
	case size == 0 || in.Access&(1<<15) != 0 || in.Access&verbs.AccessZeroBased != 0:
		want = want.and(may)
	case in.Addr > 1<<60:
		want = want.and(may)
	}
	mr, err := pd.RegMR(in)
	m.check(t, "RegMR", want, err)
	m.checkClosed(t, "RegMR", pd.closed, err)
	if err != nil {
		return
	}
	if mr.Len() != size || in.Addr != 0 && in.Access&verbs.AccessZeroBased == 0 && mr.Addr() != in.Addr {
		t.Fatalf("region of %d bytes at %#x, want %d at %#x", mr.Len(), mr.Addr(), size, in.Addr)
	}
	for _, other := range m.mrs {
		if !other.closed && (other.LKey() == mr.LKey() || other.RKey() == mr.RKey()) {
			t.Fatalf("two regions have key %#x", mr.RKey())
		}
	}
	m.taken = at + size
	r := &modelMR{MR: mr, pd: pd, buf: in.Buf, access: in.Access}
	if in.Access&verbs.AccessLocalWrite == 0 {
		r.held = slices.Clone(r.buf)
	}
	r.created(&pd.object)
	m.mrs = append(m.mrs, r)
}

func (m *machine) closeMR(t *rapid.T) {
	o, ok := live(t, "mr", m.mrs, func(o *modelMR) bool { return o.closed })
	if !ok {
		return
	}
	want := o.closing()
	if o.bound && !o.closed {
		want = may // a window may still be bound to it
	}
	if m.closes(t, "MR.Close", &o.object, want, o.MR.Close) {
		o.held = slices.Clone(o.buf)
	}
}

func (m *machine) allocMW(t *rapid.T) {
	pd, ok := m.pd(t)
	if !ok {
		return
	}
	typ := choose(m, t, "type", verbs.MWType1, verbs.MWType2, 0, 3)
	want := only(!pd.closed)
	switch typ {
	case verbs.MWType1:
		want = want.and(m.has(verbs.CapMWType1))
	case verbs.MWType2:
		want = want.and(m.has(verbs.CapMWType2))
	default:
		want = mustFail
	}
	mw, err := pd.AllocMW(typ)
	m.check(t, "AllocMW", want, err)
	if err == nil {
		o := &modelMW{MW: mw, pd: pd}
		o.created(&pd.object)
		m.mws = append(m.mws, o)
	}
}

func (m *machine) closeMW(t *rapid.T) {
	if o, ok := live(t, "mw", m.mws, func(o *modelMW) bool { return o.closed }); ok {
		m.closes(t, "MW.Close", &o.object, o.closing(), o.MW.Close)
	}
}

func (m *machine) createAH(t *rapid.T) {
	pd, ok := m.pd(t)
	if !ok {
		return
	}
	attr := m.toSelf()
	want := only(!pd.closed && m.attr.Caps&(verbs.CapUD|verbs.CapRD) != 0)
	switch choose(m, t, "wrong", 0, 0, 0, 0, 0, 1, 2, 3) {
	case 1:
		attr.Port, want = 9, want.and(may)
	case 2:
		attr.GRH.SGIDIndex, want = 200, want.and(may)
	case 3:
		attr.GRH.DGID, want = verbs.GID{}, want.and(may)
	}
	ah, err := pd.CreateAH(attr)
	m.check(t, "CreateAH", want, err)
	if err == nil {
		o := &modelAH{AH: ah, pd: pd}
		o.created(&pd.object)
		m.ahs = append(m.ahs, o)
	}
}

// toSelf is the address of the device itself.
func (m *machine) toSelf() verbs.AHAttr {
	return verbs.AHAttr{GRH: verbs.GRH{DGID: verbs.GIDFrom(m.addr), HopLimit: 64}, Port: 1}
}

func (m *machine) closeAH(t *rapid.T) {
	if o, ok := live(t, "ah", m.ahs, func(o *modelAH) bool { return o.closed }); ok {
		m.closes(t, "AH.Close", &o.object, o.closing(), o.AH.Close)
	}
}

func (m *machine) createChannel(t *rapid.T) {
	ch, err := m.dev.CreateCompChannel()
	m.check(t, "CreateCompChannel", mustSucceed, err)
	m.chans = append(m.chans, &modelChannel{CompChannel: ch})
}

func (m *machine) closeChannel(t *rapid.T) {
	o, ok := live(t, "channel", m.chans, func(o *modelChannel) bool { return o.closed })
	if !ok {
		return
	}
	want := o.closing()
	if !o.closed && o.users > 0 {
		want = may // libibverbs returns an error; a device may also detach its queues
	}
	m.closes(t, "CompChannel.Close", &o.object, want, o.CompChannel.Close)
}

// waitEvent takes a completion event. Only armed queues may have one.
func (m *machine) waitEvent(t *rapid.T) {
	o, ok := live(t, "channel", m.chans, func(o *modelChannel) bool { return o.closed })
	if !ok {
		return
	}
	cq, err := o.Wait(0)
	m.check(t, "CompChannel.Wait", only(!o.closed).and(may), err)
	if err != nil {
		m.checkClosed(t, "CompChannel.Wait", o.closed, err)
		return
	}
	i := slices.IndexFunc(m.cqs, func(c *modelCQ) bool { return c.CQ == cq })
	if i < 0 || m.cqs[i].channel != o || m.cqs[i].closed {
		t.Fatalf("an event of a completion queue that is closed, or of another channel")
	}
	if m.cqs[i].armed--; m.cqs[i].armed < 0 {
		t.Fatalf("an event of a completion queue that was not armed")
	}
}

func (m *machine) createCQ(t *rapid.T) {
	depth := choose(m, t, "depth", 512, 512, 512, 512, 512, 4, 1, 0, -1, m.attr.MaxCQE+1)
	in := verbs.CQInit{Depth: depth}
	want := only(depth >= 1 && depth <= m.attr.MaxCQE)
	ch, with := live(t, "channel", m.chans, func(o *modelChannel) bool { return o.closed })
	if with = with && choose(m, t, "with a channel", true, false); with {
		in.Channel = ch.CompChannel
		want = want.and(only(!ch.closed))
	}
	cq, err := m.dev.CreateCQ(in)
	m.check(t, "CreateCQ", want, err)
	if err != nil {
		return
	}
	if cq.Depth() < depth {
		t.Fatalf("completion queue of %d, want %d", cq.Depth(), depth)
	}
	o := &modelCQ{CQ: cq, lossy: depth < 512}
	if with {
		o.channel = ch
		o.created(&ch.object)
	}
	m.cqs = append(m.cqs, o)
}

func (m *machine) closeCQ(t *rapid.T) {
	if o, ok := m.cq(t); ok {
		m.closes(t, "CQ.Close", &o.object, o.closing(), o.CQ.Close)
	}
}

func (m *machine) armCQ(t *rapid.T) {
	o, ok := m.cq(t)
	if !ok {
		return
	}
	want := only(!o.closed && o.channel != nil)
	if o.channel != nil && o.channel.closed {
		want = want.and(may)
	}
	err := o.ReqNotify(rapid.Bool().Draw(t, "solicited only"))
	m.check(t, "CQ.ReqNotify", want, err)
	m.checkClosed(t, "CQ.ReqNotify", o.closed && o.channel != nil, err)
	if err == nil {
		o.armed++
	}
}

func (m *machine) resizeCQ(t *rapid.T) {
	o, ok := m.cq(t)
	if !ok {
		return
	}
	depth := rapid.SampledFrom([]int{600, 3, 0, m.attr.MaxCQE + 1}).Draw(t, "depth")
	want := only(!o.closed && depth >= 1 && depth <= m.attr.MaxCQE).and(m.has(verbs.CapResizeCQ))
	if depth < 512 {
		want = want.and(may) // pending completions must fit
	}
	err := o.Resize(depth)
	m.check(t, "CQ.Resize", want, err)
	m.checkClosed(t, "CQ.Resize", o.closed, err)
	if err == nil {
		o.lossy = o.lossy || depth < 512
		if o.Depth() < depth {
			t.Fatalf("a completion queue of %d, resized to %d", o.Depth(), depth)
		}
	}
}

// pollCQ polls completions. Each must be of an outstanding request.
func (m *machine) pollCQ(t *rapid.T) {
	if o, ok := m.cq(t); ok {
		m.poll(t, o, rapid.IntRange(0, 9).Draw(t, "room"))
	}
}

func (m *machine) poll(t *rapid.T, o *modelCQ, room int) int {
	wcs := make([]verbs.WC, room)
	n, err := o.Poll(wcs)
	want := only(!o.closed)
	if o.lossy {
		want = want.and(may)
	}
	m.check(t, "CQ.Poll", want, err)
	m.checkClosed(t, "CQ.Poll", o.closed, err)
	if n > room || err != nil && n > 0 {
		t.Fatalf("CQ.Poll into %d: %d, %v", room, n, err)
	}
	for i := range wcs[:n] {
		if err := m.ledgers.complete(&wcs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (m *machine) waitAsync(t *rapid.T) {
	e, err := m.dev.WaitAsync(0)
	m.check(t, "WaitAsync", may, err)
	if err != nil {
		if !errors.Is(err, verbs.ErrTimeout) {
			t.Fatalf("WaitAsync: %v", err)
		}
		return
	}
	if e.QP != nil && !slices.ContainsFunc(m.qps, func(q *modelQP) bool { return q.QP == e.QP && !q.closed }) {
		t.Fatalf("an event %v of a closed queue pair", e.Type)
	}
	if e.CQ != nil && !slices.ContainsFunc(m.cqs, func(c *modelCQ) bool { return c.CQ == e.CQ && !c.closed }) {
		t.Fatalf("an event %v of a closed completion queue", e.Type)
	}
}
