package fuzz_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

// sgl draws memory for a request. ok says that nothing is wrong with it.
func (m *machine) sgl(t *rapid.T, pd *modelPD) (sgl []verbs.SGE, ok bool) {
	ok = true
	for range choose(m, t, "entries", 1, 1, 0, 2, 3) {
		r, there := live(t, "mr", m.mrs, func(o *modelMR) bool { return o.gone || o.pd != pd })
		if !there || len(r.buf) == 0 {
			continue
		}
		e := verbs.SGEOf(r.MR, 0, len(r.buf))
		if m.oneIn(t, 16, "beyond") {
			e.Length += 8
		}
		ok = ok && !r.gone && r.pd == pd && int(e.Length) == len(r.buf)
		sgl = append(sgl, e)
	}
	return sgl, ok
}

// waiting is how many requests of a queue may not be complete.
func (l *ledger) waiting() (n int) {
	for _, e := range l.posted {
		if !e.over && !e.excused {
			n++
		}
	}
	return n
}

func (m *machine) postRecv(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	m.observe(t, o)
	sgl, _ := m.sgl(t, o.pd)
	l := o.rq
	if l == nil {
		_, err := o.PostRecv([]verbs.RecvWR{{WRID: 1 << 40, SGL: sgl}})
		m.check(t, "QP.PostRecv without a receive queue", mustFail, err)
		return
	}
	want := only(!o.gone && (o.state != verbs.QPStateReset || m.iwarp))
	if m.iwarp && o.state == verbs.QPStateReset {
		want = want.and(may) // iWARP's IDLE, where receives may be posted
	}
	if len(sgl) > o.caps.MaxRecvSGE || l.waiting() >= o.caps.MaxRecvWR || o.state == verbs.QPStateErr || o.recvCQ.lossy {
		want = want.and(may)
	}
	n, err := o.PostRecv([]verbs.RecvWR{{WRID: l.nextID(), SGL: sgl}})
	m.check(t, "QP.PostRecv", want, err)
	m.gone(t, "QP.PostRecv", o.gone, err)
	m.posted(t, l, n, err, true)
}

// posted notes what was taken of one request.
func (m *machine) posted(t *rapid.T, l *ledger, n int, err error, signaled bool) {
	if (n == 1) != (err == nil) || n > 1 || n < 0 {
		t.Fatalf("%d of one request taken, %v", n, err)
	}
	if n == 1 {
		l.add(signaled)
	}
}

func (m *machine) postSRQ(t *rapid.T) {
	o, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.gone })
	if !ok {
		return
	}
	sgl, _ := m.sgl(t, o.pd)
	want := only(!o.gone)
	if len(sgl) > o.maxSGE || o.books.waiting() >= o.maxWR {
		want = want.and(may)
	}
	n, err := o.PostRecv([]verbs.RecvWR{{WRID: o.books.nextID(), SGL: sgl}})
	m.check(t, "SRQ.PostRecv", want, err)
	m.gone(t, "SRQ.PostRecv", o.gone, err)
	m.posted(t, o.books, n, err, true)
}

var opcodes = []verbs.WROpcode{
	verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp,
	verbs.OpAtomicFetchAdd, verbs.OpSendInv, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpFlush, verbs.OpAtomicWrite, 99,
}

func (m *machine) postSend(t *rapid.T) {
	o, ok := m.qp(t)
	if !ok {
		return
	}
	m.observe(t, o)
	wr := verbs.SendWR{
		Opcode: rapid.SampledFrom(opcodes).Draw(t, "opcode"),
		Flags:  verbs.SendFlags(rapid.IntRange(0, 7).Draw(t, "flags")), Imm: 7,
	}
	var sane bool
	wr.SGL, sane = m.sgl(t, o.pd)
	if r, there := live(t, "their mr", m.mrs, func(o *modelMR) bool { return o.gone }); there {
		wr.Remote = verbs.Remote{Addr: r.Addr() + uint64(choose(m, t, "offset", 0, 0, 0, 8, 9)), RKey: r.RKey()}
		wr.InvalidateRKey = r.RKey()
	}
	if m.oneIn(t, 6, "inline") {
		wr.Flags |= verbs.SendInline
		wr.SGL, wr.Inline = nil, make([]byte, rapid.SampledFrom([]int{3, 16, 500, 1 << 16}).Draw(t, "inline bytes"))
		sane = len(wr.Inline) <= o.caps.MaxInline
	}
	if ah, there := live(t, "ah", m.ahs, func(x *modelAH) bool { return x.gone || x.pd != o.pd }); there {
		wr.UD = verbs.UD{AH: ah.AH, QPN: m.peer(t, o), QKey: siegeKey}
		sane = sane && !ah.gone && ah.pd == o.pd
	} else if o.Type() == verbs.QPTypeUD {
		sane = false
	}
	if mw, there := live(t, "mw", m.mws, func(o *modelMW) bool { return o.gone }); there && wr.Opcode == verbs.OpBindMW {
		m.bindTo(t, &wr.Bind, mw)
	}
	l := o.sq
	if l == nil {
		_, err := o.PostSend([]verbs.SendWR{wr})
		m.check(t, "QP.PostSend without a send queue", mustFail, err)
		return
	}
	if wr.Opcode == verbs.OpLocalInv || wr.Opcode == verbs.OpBindMW {
		l = o.aside
	}
	wr.WRID = l.nextID()
	want := m.sending(o, &wr, sane)
	n, err := o.PostSend([]verbs.SendWR{wr})
	m.check(t, "QP.PostSend in "+o.state.String()+" of "+wr.Opcode.String(), want, err)
	m.gone(t, "QP.PostSend", o.gone, err)
	m.posted(t, l, n, err, wr.Flags&verbs.SendSignaled != 0 || o.all)
}

// sending is what comes of posting wr. A plain send that is sane is taken where the
// queue pair is ready; what else a device checks at once, and what later, is its own
// affair.
func (m *machine) sending(o *modelQP, wr *verbs.SendWR, sane bool) verdict {
	switch {
	case o.gone || wr.Opcode == 99:
		return mustFail
	case o.state <= verbs.QPStateRTR && !m.iwarp:
		return mustFail
	case o.state == verbs.QPStateRTS && wr.Opcode == verbs.OpSend && sane && len(wr.SGL) <= o.caps.MaxSendSGE &&
		o.sq.waiting()+o.aside.waiting() < o.caps.MaxSendWR && wr.Flags&verbs.SendFence == 0:
		return mustSucceed
	default:
		return may
	}
}

// bindTo draws what to bind a window to.
func (m *machine) bindTo(t *rapid.T, b *verbs.Bind, mw *modelMW) {
	b.MW, b.RKey = mw.MW, verbs.NextRKey(mw.RKey())
	if r, ok := live(t, "mr to bind", m.mrs, func(o *modelMR) bool { return o.gone }); ok {
		r.bound = true
		b.Info = verbs.BindInfo{MR: r.MR, Addr: r.Addr(), Length: uint64(len(r.buf)), Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}
	}
}

// bindMW binds a type 1 window by its own verb.
func (m *machine) bindMW(t *rapid.T) {
	o, ok := m.qp(t)
	mw, there := live(t, "mw", m.mws, func(o *modelMW) bool { return o.gone })
	if !ok || !there || o.sq == nil {
		return
	}
	m.observe(t, o)
	var b verbs.Bind
	m.bindTo(t, &b, mw)
	id := o.aside.nextID()
	_, err := o.BindMW(mw.MW, id, verbs.SendSignaled, b.Info)
	want := may
	if o.gone || mw.Type() != verbs.MWType1 {
		want = mustFail
	}
	m.check(t, "QP.BindMW", want, err)
	if err == nil {
		o.aside.add(true)
	}
}

// finish takes everything down in order. Nothing may be left, and nothing may be in
// the way.
func (m *machine) finish(t *rapid.T) {
	for _, o := range m.qps {
		if o.gone {
			continue
		}
		m.observe(t, o)
		if o.state == verbs.QPStateReset {
			o.excuse() // iWARP's may have receives, which wait for a connection
			continue
		}
		m.lower(t, o, verbs.QPStateErr, mustSucceed)
	}
	m.let(t, 1e9)
	for _, o := range m.cqs {
		for !o.gone && m.poll(t, o, 16) > 0 {
			continue
		}
	}
	for i, o := range m.qps {
		for _, l := range []*ledger{o.sq, o.rq, o.aside} {
			lossy := o.sendCQ != nil && o.sendCQ.lossy || o.recvCQ != nil && o.recvCQ.lossy
			if l == nil || lossy || o.gone {
				continue
			}
			if err := l.left(); err != nil {
				t.Fatalf("queue pair %d (%v): %v", i, o.Type(), err)
			}
		}
	}
	if err := m.memory(); err != nil {
		t.Fatal(err)
	}
	m.closeAll(t)
	if err := m.dev.Close(); err != nil {
		t.Fatalf("closing the device: %v", err)
	}
	if err := m.world.Run(); err != nil {
		t.Fatalf("after the end: %v", err)
	}
}

// closeAll closes what is open, users before what they use.
func (m *machine) closeAll(t *rapid.T) {
	group := verbs.GID{0: 0xff, 1: 0x02, 15: 5}
	for _, o := range slices.Backward(m.qps) {
		if !o.gone {
			if o.groups {
				_ = o.DetachMulticast(group)
			}
			m.closes(t, "QP.Close, at last", &o.object, mustSucceed, o.QP.Close)
		}
	}
	closeEach(t, m, "SRQ", m.srqs)
	closeEach(t, m, "MW", m.mws)
	closeEach(t, m, "MR", m.mrs)
	closeEach(t, m, "AH", m.ahs)
	closeEach(t, m, "CQ", m.cqs)
	closeEach(t, m, "XRCD", m.xrcds)
	closeEach(t, m, "CompChannel", m.chans)
	closeEach(t, m, "PD", m.pds)
}

// closeEach closes the objects of one kind that are open.
func closeEach[T interface {
	model() *object
	Close() error
}](t *rapid.T, m *machine, kind string, all []T) {
	for _, o := range all {
		if !o.model().gone {
			m.closes(t, kind+".Close, at last", o.model(), mustSucceed, o.Close)
		}
	}
}
