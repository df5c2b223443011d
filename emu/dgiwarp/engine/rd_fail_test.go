package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// isolated is a QP that goes on after errors.
func isolated(c *QPConfig) { c.Isolate = true }

// Requests to a peer that does not answer fail, the oldest with the reason; the QP
// and its other peers go on, and so does that peer when it is back.
func TestRDFailuresStayWithTheirPeer(t *testing.T) {
	w, a, b := pair(t, true)
	dead := w.host().own(true)
	cut := true
	w.see = func(d *link.Datagram, _ *wire.Packet) bool { return cut && d.Dst.Addr() == dead.h.addr }
	for i := range 3 {
		a.send(dead, uint64(i), 10)
	}
	w.run(12 * time.Second)
	done := a.got(3)
	if done[0].Status != verbs.WCRetryExcErr || done[0].WRID != 0 || done[1].Status != verbs.WCWRFlushErr || done[2].WRID != 2 || a.state != verbs.QPStateRTS {
		t.Errorf("%+v, state %v", done, a.state)
	}
	b.recv(1, 0, 100)
	a.send(b, 3, 10)
	cut = false
	dead.recv(1, 0, 100)
	a.send(dead, 4, 10)
	w.run(time.Second)
	a.ok(2)
	b.ok(1)
	dead.ok(1)
	if len(a.free) != a.Caps.MaxSendWR {
		t.Errorf("%d of %d places of the send queue are free", len(a.free), a.Caps.MaxSendWR)
	}
}

// A peer that restarts: what it had begun ends in error, and it is heard anew.
func TestRDHalfMessagesEnd(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 50_000)
	b.recv(2, 0, 50_000)
	w.see = func(d *link.Datagram, k *wire.Packet) bool { return len(k.ULPDU) > 0 && k.ULPDU[0]&lastFlag != 0 }
	a.send(b, 1, 20_000)
	w.run(time.Millisecond)
	b.got(0)
	w.see = nil
	cfg := *a.h.nic.Config()
	cfg.Secret[5]++
	a.h.start(cfg)
	again := a.h.own(true)
	again.send(b, 2, 100)
	w.run(time.Second)
	again.ok(1)
	done := b.got(2)
	if done[0].WRID != 1 || done[0].Status != verbs.WCWRFlushErr || done[1].Status != verbs.WCSuccess || b.state != verbs.QPStateRTS {
		t.Errorf("%+v, state %v", done, b.state)
	}
	// And one that is never heard of again.
	w.see = func(d *link.Datagram, k *wire.Packet) bool { return len(k.ULPDU) > 0 && k.ULPDU[0]&lastFlag != 0 }
	b.recv(3, 0, 50_000)
	again.send(b, 3, 20_000)
	w.run(time.Minute)
	if wc := b.got(1)[0]; wc.WRID != 3 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
	if wc := again.got(1)[0]; wc.Status != verbs.WCRetryExcErr {
		t.Errorf("%+v", wc)
	}
}

// A request that the peer finds wrong fails with the reason, and by default the
// peer's QP stops.
func TestRDErrorsNameTheRequest(t *testing.T) {
	for _, loss := range []int{0, 20} {
		for _, tc := range []struct {
			name string
			wr   func(a, b *end) verbs.SendWR
			want verbs.WCStatus
			told ddp.TermError
		}{
			{"write", func(a, b *end) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}}
			}, verbs.WCRemAccessErr, ddp.TermTaggedSTag},
			{"read", func(a, b *end) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}}
			}, verbs.WCRemAccessErr, ddp.TermProtInvalidSTag},
			{"send", func(a, b *end) verbs.SendWR {
				b.recv(1, 0, 50)
				return verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 11)}
			}, verbs.WCRemInvReqErr, ddp.TermUntaggedTooLong},
		} {
			w, a, b := pair(t, true)
			w.loss = loss
			b.recv(7, 0, 1000)
			a.send(b, 1, 10)
			w.run(time.Second)
			a.ok(1)
			b.ok(1)
			a.post(b, tc.wr(a, b))
			w.run(2 * time.Second)
			wc := a.got(1)[0]
			r, ok := a.LastError()
			// A write or send may have been acknowledged, and so completed, before it
			// was found wrong: then the error is known by its report alone.
			if wc.Status != tc.want && (tc.name == "read" || wc.Status != verbs.WCSuccess) || !ok || r.Error != tc.told {
				t.Errorf("%s: %v, reported %+v", tc.name, wc.Status, r)
			}
			if b.state != verbs.QPStateErr || a.state != verbs.QPStateRTS {
				t.Errorf("%s: states %v and %v", tc.name, a.state, b.state)
			}
			// More for a QP that has failed is refused.
			a.send(b, 2, 10)
			w.run(15 * time.Second)
			if wc := a.got(1)[0]; wc.Status != verbs.WCRetryExcErr {
				t.Errorf("%s: then %+v", tc.name, wc)
			}
		}
	}
}

// With isolation both go on, after the flow has begun anew.
func TestRDErrorsCanBeIsolated(t *testing.T) {
	for _, loss := range []int{0, 20} {
		w, a, b := pair(t, true, isolated)
		c := w.host().own(true, isolated)
		w.loss, w.late = loss, loss
		for round := range 5 {
			bad := verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}}
			a.post(b, bad)
			w.run(2 * time.Second)
			if wc := a.got(1)[0]; wc.Status != verbs.WCRemAccessErr {
				t.Fatalf("round %d: %+v", round, wc)
			}
			b.recv(1, 0, 100)
			b.recv(2, 0, 100)
			a.send(b, 1, 10)
			c.send(b, 2, 10)
			w.run(2 * time.Second)
			a.ok(1)
			c.ok(1)
			b.ok(2)
			// And in the other direction meanwhile.
			a.recv(1, 0, 100)
			b.send(a, 1, 10)
			w.run(2 * time.Second)
			a.ok(1)
			b.ok(1)
		}
		if a.state != verbs.QPStateRTS || b.state != verbs.QPStateRTS {
			t.Errorf("states %v and %v", a.state, b.state)
		}
	}
}

// Requests that are posted behind one that is wrong, before that is known, are
// flushed; what is posted when it is known goes through, at once.
func TestRDRequestsBehindAnError(t *testing.T) {
	w, a, b := pair(t, true, isolated)
	b.recv(1, 0, 100)
	b.recv(2, 0, 100)
	a.post(b, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}})
	a.send(b, 2, 10)
	w.run(time.Second)
	done := a.got(2)
	if done[0].Status != verbs.WCRemAccessErr || done[1].Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", done)
	}
	a.send(b, 3, 10)
	w.run(time.Second)
	a.ok(1)
}

// A reset QP is another to its peers, even under the same number.
func TestRDResetIsANewLife(t *testing.T) {
	w, a, b := pair(t, true)
	for i := range 3 {
		b.recv(1, 0, 100)
		a.send(b, uint64(i), 10)
		w.run(time.Second)
		b.ok(1)
		a.ok(1)
		must.Do(t, b.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		b.ready()
		b.recv(1, 0, 100)
		// The first one to it fails: the flow is not known. The next begins another.
		a.send(b, 10, 10)
		w.run(time.Second)
		if wc := a.got(1)[0]; wc.Status != verbs.WCRetryExcErr {
			t.Errorf("%+v", wc)
		}
		a.send(b, 11, 10)
		w.run(time.Second)
		a.ok(1)
		b.ok(1)
	}
}

// A local mistake of the program stops its own QP, and the request says why.
func TestRDLocalErrors(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	bad := a.sge(0, 10)
	bad[0].LKey = 77
	a.post(b, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: bad})
	w.run(time.Second)
	if wc := a.got(1)[0]; wc.Status != verbs.WCLocProtErr || a.state != verbs.QPStateErr {
		t.Errorf("%+v, state %v", wc, a.state)
	}
}

// If answers cannot be delivered, what the peer asks next must not vanish: it
// fails, and then the peers begin anew.
func TestRDLostAnswersAreNotHidden(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	b.recv(2, 0, 100)
	remote := verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}
	a.send(b, 1, 10)
	w.run(time.Second)
	a.ok(1)
	b.ok(1)
	cut := true
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		return cut && d.Src.Addr() == b.h.addr && k.Flags.Has(wire.FlagData)
	}
	a.post(b, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMARead, SGL: a.sge(0, 100), Remote: remote})
	// a goes on, and is heard, until b has given up to answer.
	posted := 1
	for ; len(a.done) == 0 && posted < 20; posted++ {
		a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: remote})
		w.run(time.Second)
	}
	done := a.got(posted)
	if done[0].WRID != 2 || done[0].Status != verbs.WCRetryExcErr || done[1].Status != verbs.WCWRFlushErr || posted < 10 || posted > 13 {
		t.Errorf("after %d seconds: %+v", posted, done)
	}
	cut = false
	a.send(b, 4, 10)
	w.run(time.Second)
	a.ok(1)
	b.ok(1)
}

// A flow that must begin anew, since what it asked was refused, waits until it has
// delivered the answers that travel in it.
func TestRDAnswersSurviveRefusals(t *testing.T) {
	w, a, b := pair(t, true, isolated)
	w.loss = 10
	fromA := verbs.Remote{Addr: a.h.mr.Addr, RKey: verbs.RKey(a.h.mr.Key)}
	a.write(0, 100_000, 3)
	for round := range 10 {
		b.post(a, verbs.SendWR{WRID: 7, Opcode: verbs.OpRDMARead, SGL: b.sge(0, 100_000), Remote: fromA})
		w.run(time.Duration(round*20) * time.Microsecond)
		a.post(b, verbs.SendWR{WRID: 8, Opcode: verbs.OpRDMARead, SGL: a.sge(recvAt, 10), Remote: verbs.Remote{RKey: 99}})
		// As soon as that has failed, something else is asked.
		for len(a.done) == 0 {
			w.run(20 * time.Microsecond)
		}
		a.got(1)
		for i := range 3 {
			b.recv(1, recvAt/2, 100)
			a.send(b, uint64(i), 10)
		}
		w.run(5 * time.Second)
		for i, wc := range a.ok(3) {
			if wc.WRID != uint64(i) {
				t.Errorf("request %d completed at place %d", wc.WRID, i)
			}
		}
		b.ok(4)
		if !bytes.Equal(a.bytes(0, 100_000), b.bytes(0, 100_000)) {
			t.Fatal("the read is damaged")
		}
	}
}
