package fuzz_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/verbs"
)

// sgl draws memory for a request. ok says that it is valid.
func (m *machine) sgl(t *rapid.T, pd *modelPD) (sgl []verbs.SGE, ok bool) {
	ok = true
	for range choose(m, t, "entries", 1, 1, 0, 2, 3) {
		r, there := live(t, "mr", m.mrs, func(o *modelMR) bool { return o.closed || o.pd != pd })
		if !there || len(r.buf) == 0 {
			continue
		}
		e := verbs.SGEOf(r.MR, 0, len(r.buf))
		if m.oneIn(t, 16, "beyond") {
			e.Length += 8
		}
		ok = ok && !r.closed && r.pd == pd && int(e.Length) == len(r.buf)
		sgl = append(sgl, e)
	}
	return sgl, ok
}

// waiting is the number of requests that may not be complete.
func (l *ledger) waiting() (n int) {
	for _, e := range l.posted {
		if !e.completed && !e.excused {
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
	want := only(!o.closed && (o.state != verbs.QPStateReset || m.iwarp))
	if m.iwarp && o.state == verbs.QPStateReset {
		want = want.and(may) // iWARP's IDLE: receives may be posted
	}
	if len(sgl) > o.caps.MaxRecvSGE || l.waiting() >= o.caps.MaxRecvWR || o.state == verbs.QPStateErr || o.recvCQ.lossy {
		want = want.and(may)
	}
	n, err := o.PostRecv([]verbs.RecvWR{{WRID: l.nextID(), SGL: sgl}})
	m.check(t, "QP.PostRecv", want, err)
	m.checkClosed(t, "QP.PostRecv", o.closed, err)
	m.posted(t, l, n, err, true)
}

// posted records a request if it was accepted.
func (m *machine) posted(t *rapid.T, l *ledger, n int, err error, signaled bool) {
	if (n == 1) != (err == nil) || n > 1 || n < 0 {
		t.Fatalf("%d of one request accepted, %v", n, err)
	}
	if n == 1 {
		l.add(signaled)
	}
}

func (m *machine) postSRQ(t *rapid.T) {
	o, ok := live(t, "srq", m.srqs, func(o *modelSRQ) bool { return o.closed })
	if !ok {
		return
	}
	sgl, _ := m.sgl(t, o.pd)
	want := only(!o.closed)
	if len(sgl) > o.maxSGE || o.recvs.waiting() >= o.maxWR {
		want = want.and(may)
	}
	n, err := o.PostRecv([]verbs.RecvWR{{WRID: o.recvs.nextID(), SGL: sgl}})
	m.check(t, "SRQ.PostRecv", want, err)
	m.checkClosed(t, "SRQ.PostRecv", o.closed, err)
	m.posted(t, o.recvs, n, err, true)
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
	if r, there := live(t, "their mr", m.mrs, func(o *modelMR) bool { return o.closed }); there {
		wr.Remote = verbs.Remote{Addr: r.Addr() + uint64(choose(m, t, "offset", 0, 0, 0, 8, 9)), RKey: r.RKey()}
		wr.InvalidateRKey = r.RKey()
	}
	if m.oneIn(t, 6, "inline") {
		wr.Flags |= verbs.SendInline
		wr.SGL, wr.Inline = nil, make([]byte, rapid.SampledFrom([]int{3, 16, 500, 1 << 16}).Draw(t, "inline bytes"))
		sane = len(wr.Inline) <= o.caps.MaxInline
	}
	if ah, there := live(t, "ah", m.ahs, func(x *modelAH) bool { return x.closed || x.pd != o.pd }); there {
		wr.UD = verbs.UD{AH: ah.AH, QPN: m.peer(t, o), QKey: attackQKey}
		sane = sane && !ah.closed && ah.pd == o.pd
	} else if o.Type() == verbs.QPTypeUD {
		sane = false
	}
	if mw, there := live(t, "mw", m.mws, func(o *modelMW) bool { return o.closed }); there && wr.Opcode == verbs.OpBindMW {
		m.bindTo(t, &wr.Bind, mw)
	}
	l := o.sq
	if l == nil {
		_, err := o.PostSend([]verbs.SendWR{wr})
		m.check(t, "QP.PostSend without a send queue", mustFail, err)
		return
	}
	if wr.Opcode == verbs.OpLocalInv || wr.Opcode == verbs.OpBindMW {
		l = o.localSQ
	}
	wr.WRID = l.nextID()
	want := m.postSendVerdict(o, &wr, sane)
	n, err := o.PostSend([]verbs.SendWR{wr})
	m.check(t, "QP.PostSend in "+o.state.String()+" of "+wr.Opcode.String(), want, err)
	m.checkClosed(t, "QP.PostSend", o.closed, err)
	m.posted(t, l, n, err, wr.Flags&verbs.SendSignaled != 0 || o.all)
}

// postSendVerdict returns the verdict on posting wr. A valid plain send is accepted if the queue
// pair is ready. A device may check other requests at once or later.
func (m *machine) postSendVerdict(o *modelQP, wr *verbs.SendWR, sane bool) verdict {
	switch {
	case o.closed || wr.Opcode == 99:
		return mustFail
	case o.state <= verbs.QPStateRTR && !m.iwarp:
		return mustFail
	case o.state == verbs.QPStateRTS && wr.Opcode == verbs.OpSend && sane && len(wr.SGL) <= o.caps.MaxSendSGE &&
		o.sq.waiting()+o.localSQ.waiting() < o.caps.MaxSendWR && wr.Flags&verbs.SendFence == 0:
		return mustSucceed
	default:
		return may
	}
}

// bindTo draws the region, range and access of a bind.
func (m *machine) bindTo(t *rapid.T, b *verbs.Bind, mw *modelMW) {
	b.MW, b.RKey = mw.MW, verbs.NextRKey(mw.RKey())
	if r, ok := live(t, "mr to bind", m.mrs, func(o *modelMR) bool { return o.closed }); ok {
		r.bound = true
		b.Info = verbs.BindInfo{MR: r.MR, Addr: r.Addr(), Length: uint64(len(r.buf)), Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}
	}
}

// bindMW binds a type 1 window by ibv_bind_mw.
func (m *machine) bindMW(t *rapid.T) {
	o, ok := m.qp(t)
	mw, there := live(t, "mw", m.mws, func(o *modelMW) bool { return o.closed })
	if !ok || !there || o.sq == nil {
		return
	}
	m.observe(t, o)
	var b verbs.Bind
	m.bindTo(t, &b, mw)
	id := o.localSQ.nextID()
	_, err := o.BindMW(mw.MW, id, verbs.SendSignaled, b.Info)
	want := may
	if o.closed || mw.Type() != verbs.MWType1 {
		want = mustFail
	}
	m.check(t, "QP.BindMW", want, err)
	if err == nil {
		o.localSQ.add(true)
	}
}

// finish moves all queue pairs to ERR, checks that all requests complete, and closes everything.
func (m *machine) finish(t *rapid.T) {
	for _, o := range m.qps {
		if o.closed {
			continue
		}
		m.observe(t, o)
		if o.state == verbs.QPStateReset {
			o.excuse() // receives of iWARP may wait for a connection
			continue
		}
		m.lower(t, o, verbs.QPStateErr, mustSucceed)
	}
	m.runFor(t, 1e9)
	for _, o := range m.cqs {
		for !o.closed && m.poll(t, o, 16) > 0 {
			continue
		}
	}
	for i, o := range m.qps {
		for _, l := range []*ledger{o.sq, o.rq, o.localSQ} {
			lossy := o.sendCQ != nil && o.sendCQ.lossy || o.recvCQ != nil && o.recvCQ.lossy
			if l == nil || lossy || o.closed {
				continue
			}
			if err := l.checkCompleted(); err != nil {
				t.Fatalf("queue pair %d (%v): %v", i, o.Type(), err)
			}
		}
	}
	if err := m.memory(); err != nil {
		t.Fatal(err)
	}
	m.closeAll(t)
	if err := m.dev.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := m.world.Run(); err != nil {
		t.Fatalf("after Close: %v", err)
	}
}

// closeAll closes all open objects, users first.
func (m *machine) closeAll(t *rapid.T) {
	group := verbs.GID{0: 0xff, 1: 0x02, 15: 5}
	for _, o := range slices.Backward(m.qps) {
		if !o.closed {
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

// closeEach closes the open objects of one type.
func closeEach[T interface {
	model() *object
	Close() error
}](t *rapid.T, m *machine, kind string, all []T) {
	for _, o := range all {
		if !o.model().closed {
			m.closes(t, kind+".Close, at last", o.model(), mustSucceed, o.Close)
		}
	}
}
