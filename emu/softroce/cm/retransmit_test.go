package cm

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// expectRetransmits runs the timers of h and checks that it sends the same MAD n more times, after
// wait each. It returns the deadline after that.
func (w *world) expectRetransmits(h *host, first *sent, wait time.Duration, n int) mono.Time {
	w.t.Helper()
	at := w.now
	for i := range n {
		at = at.Add(wait)
		if got := h.NextTimer(); got != at {
			w.t.Fatalf("retransmission %d of %v is due at %v, want %v", i+1, first.Attr, got, at)
		}
		h.HandleTimer(at - 1)
		h.sendsNothing()
		w.tick(h)
		if s := h.take(first.Attr); s.b != first.b {
			w.t.Fatalf("retransmission %d of %v differs:\n%x\n%x", i+1, first.Attr, s.b, first.b)
		}
		h.sendsNothing()
		h.noEvent()
	}
	at = at.Add(wait)
	if got := h.NextTimer(); got != at {
		w.t.Fatalf("after %d retransmissions of %v the next deadline is %v, want %v", n, first.Attr, got, at)
	}
	return at
}

func rejOf(t *testing.T, s *sent) *wire.REJ {
	t.Helper()
	m := new(wire.REJ)
	must.Get(m.Parse(s.body()))(t)
	return m
}

func TestREQIsRetransmittedUntilRetriesEnd(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca := w.connect()
	end := w.expectRetransmits(w.a, w.a.take(wire.AttrREQ), wire.CMTimeout(20)+wire.CMTimeout(17), 15)
	if end != mono.Time(1).Add(16*(wire.CMTimeout(20)+wire.CMTimeout(17))) {
		t.Errorf("last deadline %v", end)
	}
	w.tick(w.a)
	if e := w.a.event(EventTimedOut); e.Conn != ca || !e.Final || e.State != StateREQSent {
		t.Errorf("event %+v", e)
	}
	rej := rejOf(t, w.a.take(wire.AttrREJ))
	if rej.Reason != wire.ReasonTimeout || rej.LocalCommID != uint32(ca) || rej.RemoteCommID != 0 ||
		binary.BigEndian.Uint64(rej.AdditionalInfo()) != guidA {
		t.Errorf("REJ %+v", rej)
	}
	checkEmpty(t, w.a.Agent)
	if c := w.a.Counters(); c.Sent[0] != 16 || c.Resent[0] != 15 {
		t.Errorf("counted %d REQs, %d of them retransmitted", c.Sent[0], c.Resent[0])
	}
}

func TestREPIsRetransmittedUntilRetriesEnd(t *testing.T) {
	w := newWorld(t, Config{}, Config{ResponseTimeout: 10, MaxRetries: 2}) // those of the requester apply
	ca, cb := w.accepted()
	w.expectRetransmits(w.b, w.b.take(wire.AttrREP), wire.CMTimeout(20), 15)
	w.tick(w.b)
	if e := w.b.event(EventTimedOut); e.Conn != cb || e.Final || e.State != StateREPSent {
		t.Errorf("event %+v", e)
	}
	rej := rejOf(t, w.pass(w.b, wire.AttrREJ))
	if rej.Reason != wire.ReasonTimeout || rej.LocalCommID != uint32(cb) || rej.RemoteCommID != uint32(ca) || len(rej.AdditionalInfo()) != 8 {
		t.Errorf("REJ %+v", rej)
	}
	// The requester got no REP, but gets the REJ.
	if e := w.a.event(EventRejected); e.Reason != wire.ReasonTimeout || !e.Final || e.ByUs {
		t.Errorf("event %+v", e)
	}
	w.b.inState(cb, StateTimeWait)
	w.tick(w.b)
	w.b.event(EventTimeWaitExit)
	checkEmpty(t, w.b.Agent)
}

func TestDREQIsRetransmittedUntilRetriesEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		active bool
		wait   time.Duration
	}{
		"active":  {true, wire.CMTimeout(20) + wire.CMTimeout(17)},
		"passive": {false, wire.CMTimeout(20)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{MaxRetries: 3}, Config{})
			ca, cb := w.established()
			h, id := w.b, cb
			if tc.active {
				h, id = w.a, ca
			}
			must.Do(t, h.Disconnect(w.now, id, []byte("bye")))
			w.expectRetransmits(h, h.take(wire.AttrDREQ), tc.wait, 3)
			w.tick(h)
			if e := h.event(EventTimedOut); e.State != StateDREQSent || e.Final {
				t.Errorf("event %+v", e)
			}
			h.inState(id, StateTimeWait)
			w.tick(h)
			h.event(EventTimeWaitExit)
			checkEmpty(t, h.Agent)
		})
	}
}

func TestSIDRREQIsRetransmittedUntilRetriesEnd(t *testing.T) {
	w := newWorld(t, Config{MaxRetries: 4, ResponseTimeout: 12}, Config{})
	id := must.Get(w.a.SIDRRequest(w.now, SIDRParam{ServiceID: service, Path: Path{Local: addrA, Remote: addrB}}))(t)
	w.expectRetransmits(w.a, w.a.take(wire.AttrSIDRREQ), wire.CMTimeout(12), 4)
	w.tick(w.a)
	if e := w.a.event(EventTimedOut); e.Conn != id || !e.Final || e.State != StateSIDRREQSent {
		t.Errorf("event %+v", e)
	}
	checkEmpty(t, w.a.Agent)
}

func TestMRAExtendsOneTimeout(t *testing.T) {
	w := newWorld(t, Config{MaxRetries: 2}, Config{})
	ca, cb := w.requested()
	w.now = 5000
	w.b.delayReply(cb, 22)
	w.b.inState(cb, StateMRAREQSent)
	mra := w.pass(w.b, wire.AttrMRA)
	if e := w.a.event(EventMRA); e.ServiceTimeout != 22 {
		t.Errorf("event %+v", e)
	}
	w.a.inState(ca, StateMRAREQRcvd)
	put := mono.Time(5000).Add(wire.CMTimeout(22) + wire.CMTimeout(17))
	if got := w.a.NextTimer(); got != put {
		t.Errorf("REQ is retransmitted at %v, want %v", got, put)
	}
	w.now = 6000
	w.deliver(mra) // a duplicate does not add delay
	if got := w.a.NextTimer(); got != put {
		t.Errorf("a second MRA moved the deadline to %v", got)
	}
	if n := w.a.Counters().Duplicates[wire.AttrMRA-wire.AttrREQ]; n != 1 {
		t.Errorf("%d duplicate MRAs, want 1", n)
	}
	w.tick(w.a)
	w.a.inState(ca, StateREQSent)
	w.pass(w.a, wire.AttrREQ)
	w.pass(w.b, wire.AttrMRA) // a duplicate REQ gets the MRA again
	w.a.event(EventMRA)
	if got, want := w.a.NextTimer(), w.now.Add(wire.CMTimeout(22)+wire.CMTimeout(17)); got != want {
		t.Errorf("REQ is retransmitted at %v, want %v", got, want)
	}
	// Each MRA uses up a retry, so that a peer cannot delay for ever.
	w.tick(w.a)
	w.a.take(wire.AttrREQ)
	w.tick(w.a)
	if e := w.a.event(EventTimedOut); !e.Final {
		t.Errorf("event %+v", e)
	}
}

func TestMRADelaysRetransmissionOfREP(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.replied()
	w.now = 5000
	w.a.delayReply(ca, 21)
	w.a.inState(ca, StateMRAREPSent)
	w.pass(w.a, wire.AttrMRA)
	w.b.event(EventMRA)
	w.b.inState(cb, StateMRAREPRcvd)
	if got, want := w.b.NextTimer(), mono.Time(5000).Add(wire.CMTimeout(21)+wire.CMTimeout(17)); got != want {
		t.Errorf("REP is retransmitted at %v, want %v", got, want)
	}
	w.tick(w.b)
	w.b.inState(cb, StateREPSent)
	w.pass(w.b, wire.AttrREP)
	w.pass(w.a, wire.AttrMRA) // for the duplicate REP
	w.b.event(EventMRA)
	must.Do(t, w.a.ConfirmReply(w.now, ca, nil))
	w.pass(w.a, wire.AttrRTU)
	w.b.event(EventEstablished)
}

// Timeout codes of peers are limited by the configuration.
func TestPeerTimeoutsAreBounded(t *testing.T) {
	for code, want := range map[uint8]time.Duration{0: wire.CMTimeout(8), 8: wire.CMTimeout(8), 9: wire.CMTimeout(9), 26: wire.CMTimeout(26), 31: wire.CMTimeout(26)} {
		w := newWorld(t, Config{}, Config{})
		req := newREQ()
		req.LocalRespTimeout = code
		w.inject(addrA, wire.AttrREQ, req)
		must.Do(t, w.b.Accept(w.now, w.b.event(EventRequest).Conn, answer))
		if got := w.b.NextTimer(); got != w.now.Add(want) {
			t.Errorf("code %d: REP is retransmitted after %v, want %v", code, got-w.now, want)
		}
	}
}

func TestTimersAreHandledInOrder(t *testing.T) {
	w := newWorld(t, Config{MaxRetries: 1}, Config{})
	var ids []ConnID
	for range 50 { // all at one instant: ties break in the order of the calls
		ids = append(ids, w.connect())
	}
	for range ids {
		w.a.take(wire.AttrREQ)
	}
	w.tick(w.a)
	for i, id := range ids {
		if s := w.a.take(wire.AttrREQ); binary.BigEndian.Uint32(s.body()) != uint32(id) {
			t.Fatalf("retransmission %d is of another connection", i)
		}
	}
	w.tick(w.a)
	for i, id := range ids {
		if e := w.a.event(EventTimedOut); e.Conn != id {
			t.Fatalf("event %d is of another connection", i)
		}
	}
	if w.a.NextTimer() != mono.Never {
		t.Error("a timer is armed")
	}
}

func TestRequireRTUIgnoresData(t *testing.T) {
	w := newWorld(t, Config{}, Config{RequireRTU: true})
	_, cb := w.confirmed()
	must.Do(t, w.b.Established(w.now, cb))
	w.b.noEvent()
	w.b.inState(cb, StateREPSent)
	w.pass(w.a, wire.AttrRTU) // an RTU still works
	w.b.event(EventEstablished)
}
