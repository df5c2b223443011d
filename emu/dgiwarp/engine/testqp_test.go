package engine

import (
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// testQP is a QP of a host with its part of the memory.
type testQP struct {
	*QP
	h    *host
	base uint64 // of its memory: send buffers in the first half, receive buffers in the second
	done []verbs.WC
}

// newQP creates a QP in RTS.
func (h *host) newQP(reliable bool, edit ...func(*QPConfig)) *testQP {
	c := QPConfig{Reliable: reliable, QueueConfig: iwarp.QueueConfig{PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq}}
	c.Caps = verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}
	for _, f := range edit {
		f(&c)
	}
	q := must.Get(h.nic.CreateQP(c))(h.w.t)
	e := &testQP{QP: q, h: h, base: uint64(q.QPN-h.nic.cfg.FirstQPN) * qpMemBytes % (1 << 20)}
	q.Owner = e
	e.toRTS()
	return e
}

// toRTS moves the QP from Reset to RTS.
func (e *testQP) toRTS() {
	e.h.w.t.Helper()
	for _, s := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: testKey}, verbs.QPAttrState | verbs.QPAttrPort | verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState | verbs.QPAttrSQPSN},
	} {
		must.Do(e.h.w.t, e.Modify(s.attr, s.mask))
	}
}

// sge returns n bytes of the QP's memory from off on.
func (e *testQP) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: e.h.mr.Addr + e.base + uint64(off), Length: uint32(n), LKey: verbs.LKey(e.h.mr.Key)}}
}

// bytes returns n bytes of the QP's memory.
func (e *testQP) bytes(off, n int) []byte {
	at := e.base + uint64(off)
	return e.h.mem[at : at+uint64(n)]
}

// fill fills n bytes of the QP's memory with a pattern that depends on seed.
func (e *testQP) fill(off, n, seed int) []byte {
	b := e.bytes(off, n)
	for i := range b {
		b[i] = byte(seed + i*7 + i>>8)
	}
	return b
}

// post posts a signaled request to another QP.
func (e *testQP) post(to *testQP, wr verbs.SendWR) {
	e.h.w.t.Helper()
	must.Do(e.h.w.t, e.tryPost(to, wr))
}

func (e *testQP) tryPost(to *testQP, wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	if wr.UD.QPN == 0 {
		wr.UD.QPN = verbs.QPN(to.QPN)
	}
	if wr.UD.QKey == 0 {
		wr.UD.QKey = testKey
	}
	return e.PostSend(e.h.w.now, &wr, Refs{AH: e.h.ah(to.h.addr)})
}

// send posts a Send of n bytes from the start of the QP's memory.
func (e *testQP) send(to *testQP, id uint64, n int) {
	e.h.w.t.Helper()
	e.post(to, verbs.SendWR{WRID: id, Opcode: verbs.OpSend, SGL: e.sge(0, n)})
}

// recv posts a receive of n bytes at offset off of the QP's receive buffers.
func (e *testQP) recv(id uint64, off, n int) {
	e.h.w.t.Helper()
	must.Do(e.h.w.t, e.PostRecv(&verbs.RecvWR{WRID: id, SGL: e.sge(recvAt+off, n)}))
}

// expectCompletions returns the QP's completions since the last call, and checks their number.
func (e *testQP) expectCompletions(count int) []verbs.WC {
	e.h.w.t.Helper()
	e.h.w.poll()
	done := e.done
	e.done = nil
	if len(done) != count {
		e.h.w.t.Fatalf("%s has %d completions, want %d: %+v", e.Name(), len(done), count, done)
	}
	return done
}

// expectSuccess is expectCompletions that fails the test if one is in error.
func (e *testQP) expectSuccess(count int) []verbs.WC {
	e.h.w.t.Helper()
	done := e.expectCompletions(count)
	for _, wc := range done {
		if wc.Status != verbs.WCSuccess {
			e.h.w.t.Fatalf("%s: %+v", e.Name(), wc)
		}
	}
	return done
}
