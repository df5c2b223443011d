package engine

import (
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// end is a QP of a host with its part of the memory.
type end struct {
	*QP
	h *host
	// Sends take their payload from the first half of its memory, receives go to
	// the second.
	base uint64
	done []verbs.WC
}

// end makes a QP that is ready.
func (h *host) end(reliable bool, edit ...func(*QPConfig)) *end {
	c := QPConfig{Reliable: reliable, QueueConfig: iwarp.QueueConfig{PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq}}
	c.Caps = verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}
	for _, f := range edit {
		f(&c)
	}
	q := must.Get(h.nic.CreateQP(c))(h.w.t)
	e := &end{QP: q, h: h, base: uint64(q.QPN-h.nic.cfg.FirstQPN) * endBytes % (1 << 20)}
	e.ready()
	return e
}

func (e *end) ready() {
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

// sge names n bytes of the end's memory from off on.
func (e *end) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: e.h.mr.Addr + e.base + uint64(off), Length: uint32(n), LKey: verbs.LKey(e.h.mr.Key)}}
}

// bytes is n bytes of the end's memory.
func (e *end) bytes(off, n int) []byte {
	at := e.base + uint64(off)
	return e.h.mem[at : at+uint64(n)]
}

// write fills n bytes of the end's memory with something that depends on seed.
func (e *end) write(off, n, seed int) []byte {
	b := e.bytes(off, n)
	for i := range b {
		b[i] = byte(seed + i*7 + i>>8)
	}
	return b
}

// post posts a request to another end.
func (e *end) post(to *end, wr verbs.SendWR) {
	e.h.w.t.Helper()
	must.Do(e.h.w.t, e.try(to, wr))
}

func (e *end) try(to *end, wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	if wr.UD.QPN == 0 {
		wr.UD.QPN = verbs.QPN(to.QPN)
	}
	if wr.UD.QKey == 0 {
		wr.UD.QKey = testKey
	}
	return e.PostSend(e.h.w.now, &wr, Refs{AH: e.h.ah(to.h.addr)})
}

// send posts a Send of n bytes from the start of the end's memory.
func (e *end) send(to *end, id uint64, n int) {
	e.h.w.t.Helper()
	e.post(to, verbs.SendWR{WRID: id, Opcode: verbs.OpSend, SGL: e.sge(0, n)})
}

// recv posts a receive of n bytes at the receiving half of the end's memory.
func (e *end) recv(id uint64, off, n int) {
	e.h.w.t.Helper()
	must.Do(e.h.w.t, e.PostRecv(&verbs.RecvWR{WRID: id, SGL: e.sge(recvAt+off, n)}))
}

// got returns the completions of an end since the last time, and checks that
// there are count of them.
func (e *end) got(count int) []verbs.WC {
	e.h.w.t.Helper()
	e.h.w.poll()
	done := e.done
	e.done = nil
	if len(done) != count {
		e.h.w.t.Fatalf("%s has %d completions, want %d: %+v", e.Name(), len(done), count, done)
	}
	return done
}

// ok checks that all of an end's completions since the last time are successes.
func (e *end) ok(count int) []verbs.WC {
	e.h.w.t.Helper()
	done := e.got(count)
	for _, wc := range done {
		if wc.Status != verbs.WCSuccess {
			e.h.w.t.Fatalf("%s: %+v", e.Name(), wc)
		}
	}
	return done
}

// own makes a QP and has completions find it.
func (h *host) own(reliable bool, edit ...func(*QPConfig)) *end {
	e := h.end(reliable, edit...)
	e.Owner = e
	return e
}
