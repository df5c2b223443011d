package cm

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestDuplicateREQGetsMRABeforeAccept(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.connect()
	req := w.pass(w.a, wire.AttrREQ)
	cb := w.b.event(EventRequest).Conn
	w.b.sendsNothing()
	for range 3 {
		w.deliver(req)
		w.b.noEvent()
		s := w.b.take(wire.AttrMRA)
		var m wire.MRA
		must.Get(m.Parse(s.body()))(t)
		if m.About != wire.AboutREQ || m.ServiceTimeout != 24 || m.LocalCommID != uint32(cb) || m.RemoteCommID != 0xA0000001 || s.TID != req.TID {
			t.Errorf("MRA %+v", m)
		}
		w.b.inState(cb, StateMRAREQSent)
	}
	if n := w.b.Counters().Duplicates[0]; n != 3 || len(w.b.conns) != 1 {
		t.Errorf("%d duplicates, %d connections", n, len(w.b.conns))
	}
}

func TestDuplicateREQRetransmitsREP(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.connect()
	req := w.pass(w.a, wire.AttrREQ)
	cb := w.b.event(EventRequest).Conn
	must.Do(t, w.b.Accept(w.now, cb, answer))
	first := w.b.take(wire.AttrREP)
	due := w.b.NextTimer()
	w.now += 1000
	w.deliver(req)
	if s := w.b.take(wire.AttrREP); s.b != first.b {
		t.Error("the REP changed")
	}
	if w.b.NextTimer() != due {
		t.Error("a duplicate REQ moved the timer")
	}
	w.b.noEvent()

	w.deliver(first)
	w.a.event(EventReply)
	must.Do(t, w.a.ConfirmReply(w.now, w.a.byRemote[remoteKey{guidB, uint32(cb)}].id, nil))
	w.pass(w.a, wire.AttrRTU)
	w.b.event(EventEstablished)
	w.deliver(req) // a duplicate in state Established needs no answer
	w.b.sendsNothing()
	w.b.noEvent()
}

func TestDuplicateREPRetransmitsRTU(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, _ := w.accepted()
	rep := w.pass(w.b, wire.AttrREP)
	w.a.event(EventReply)

	w.deliver(rep) // before ConfirmReply
	w.a.inState(ca, StateMRAREPSent)
	w.pass(w.a, wire.AttrMRA)
	w.deliver(rep)
	w.a.take(wire.AttrMRA)

	must.Do(t, w.a.ConfirmReply(w.now, ca, []byte("ready")))
	rtu := w.a.take(wire.AttrRTU) // lost
	w.deliver(rep)
	if s := w.a.take(wire.AttrRTU); s.b != rtu.b {
		t.Error("the RTU changed")
	}
	w.a.noEvent()
	if n := w.a.Counters().Duplicates[wire.AttrREP-wire.AttrREQ]; n != 3 {
		t.Errorf("%d duplicate REPs, want 3", n)
	}
}

// A communication ID that is in use cannot start another connection.
func TestREQWithIDInUseIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.inject(addrA, wire.AttrREQ, newREQ())
	w.b.event(EventRequest)
	other := newREQ()
	other.LocalQPN++
	w.inject(addrA, wire.AttrREQ, other)
	if rej := rejOf(t, w.b.take(wire.AttrREJ)); rej.Reason != wire.ReasonDuplicateCommID || rej.RemoteCommID != other.LocalCommID {
		t.Errorf("REJ %+v", rej)
	}
	w.b.noEvent()
	if len(w.b.conns) != 1 {
		t.Errorf("%d connections, want 1", len(w.b.conns))
	}
}

// In time wait, the IDs of the REQ are in use: an old duplicate does not connect.
func TestOldREQInTimeWaitIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca := w.connect()
	req := w.pass(w.a, wire.AttrREQ)
	cb := w.b.event(EventRequest).Conn
	must.Do(t, w.b.Accept(w.now, cb, answer))
	rep := w.pass(w.b, wire.AttrREP)
	w.a.event(EventReply)
	must.Do(t, w.a.ConfirmReply(w.now, ca, nil))
	w.pass(w.a, wire.AttrRTU)
	w.b.event(EventEstablished)
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	w.pass(w.a, wire.AttrDREQ)
	w.pass(w.b, wire.AttrDREP)
	w.b.event(EventDisconnectRequested)
	w.a.event(EventDisconnected)

	w.deliver(req)
	rej := w.b.take(wire.AttrREJ)
	if m := rejOf(t, rej); m.Reason != wire.ReasonStale || m.About != wire.AboutREQ {
		t.Errorf("REJ %+v", m)
	}
	w.deliver(rej)
	w.a.noEvent()
	w.deliver(rep) // an old REP gets a REJ, which the passive side ignores
	w.pass(w.a, wire.AttrREJ)
	w.b.noEvent()
	w.b.inState(cb, StateTimeWait)
	// The same queue pair may start a new connection meanwhile.
	p := offer
	must.Get(w.a.Connect(w.now, p))(t)
	w.pass(w.a, wire.AttrREQ)
	w.b.event(EventRequest)
}

// The peer starts a new connection with the queue pair of an old one.
func TestStaleConnectionIsRejectedAndEnded(t *testing.T) {
	stale := newREQ()
	stale.LocalQPN = offer.QPN

	t.Run("established", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.established()
		w.inject(addrA, wire.AttrREQ, stale)
		if rej := rejOf(t, w.b.take(wire.AttrREJ)); rej.Reason != wire.ReasonStale || rej.RemoteCommID != stale.LocalCommID || rej.LocalCommID != 0 {
			t.Errorf("REJ %+v", rej)
		}
		w.pass(w.b, wire.AttrDREQ)
		w.b.inState(cb, StateDREQSent)
		w.pass(w.a, wire.AttrDREP)
		w.b.event(EventDisconnected)
		w.inject(addrA, wire.AttrREQ, stale) // accepted after time wait
		w.b.event(EventRequest)
	})
	t.Run("DREQ sent", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.established()
		must.Do(t, w.b.Disconnect(w.now, cb, nil))
		w.b.take(wire.AttrDREQ)
		w.inject(addrA, wire.AttrREQ, stale)
		w.b.take(wire.AttrREJ)
		w.b.event(EventDisconnected)
		w.b.inState(cb, StateTimeWait)
		w.inject(addrA, wire.AttrREQ, stale)
		w.b.event(EventRequest)
	})
	t.Run("REP sent", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.accepted()
		w.b.take(wire.AttrREP)
		w.inject(addrA, wire.AttrREQ, stale)
		w.b.take(wire.AttrREJ)
		if e := w.b.event(EventRejected); e.Reason != wire.ReasonStale || !e.ByUs || e.Final {
			t.Errorf("event %+v", e)
		}
		w.b.inState(cb, StateTimeWait)
	})
	t.Run("REQ received", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.requested()
		w.inject(addrA, wire.AttrREQ, stale)
		w.b.take(wire.AttrREJ)
		if e := w.b.event(EventRejected); e.Reason != wire.ReasonStale || !e.ByUs || !e.Final {
			t.Errorf("event %+v", e)
		}
		w.b.inState(cb, StateIdle)
	})
	t.Run("REQ from another host", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.established()
		w.inject(addrC, wire.AttrREQ, stale)
		w.b.take(wire.AttrREJ)
		w.b.sendsNothing()
		w.b.inState(cb, StateEstablished)
	})
	t.Run("REP with a queue pair in use", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		ca, _ := w.established()
		p := offer
		p.QPN++
		second := must.Get(w.a.Connect(w.now, p))(t)
		w.pass(w.a, wire.AttrREQ)
		must.Do(t, w.b.Accept(w.now, w.b.event(EventRequest).Conn, answer)) // with the same queue pair
		w.pass(w.b, wire.AttrREP)
		w.pass(w.a, wire.AttrDREQ)
		w.pass(w.a, wire.AttrREJ)
		if e := w.a.event(EventRejected); e.Conn != second || e.Reason != wire.ReasonStale || !e.ByUs || !e.Final {
			t.Errorf("event %+v", e)
		}
		w.a.inState(ca, StateDREQSent)
		w.b.event(EventDisconnectRequested)
		if e := w.b.event(EventRejected); e.Reason != wire.ReasonStale || e.About != wire.AboutREP {
			t.Errorf("event %+v", e)
		}
	})
}

// A peer that creates two connections for one REQ gets a REJ for the second REP.
func TestSecondREPOfREQIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, _ := w.accepted()
	rep := w.pass(w.b, wire.AttrREP)
	w.a.event(EventReply)
	must.Do(t, w.a.ConfirmReply(w.now, ca, nil))
	w.a.take(wire.AttrRTU)
	rep.b[wire.MADHeaderLen] ^= 0x80 // another local ID
	w.deliver(rep)
	rej := rejOf(t, w.a.take(wire.AttrREJ))
	if rej.Reason != wire.ReasonInvalidCommID || rej.About != wire.AboutREP || rej.LocalCommID != uint32(ca) || rej.RemoteCommID != 0x30000001 {
		t.Errorf("REJ %+v", rej)
	}
	w.a.inState(ca, StateEstablished)
}

func TestREPIDsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*wire.REP)
		want   wire.REJReason
	}{
		"zero":   {func(m *wire.REP) { m.LocalCommID = 0 }, wire.ReasonInvalidCommID},
		"in use": {func(m *wire.REP) { m.LocalCommID = 0xB0000001 }, wire.ReasonDuplicateCommID},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			w.established()
			p := offer
			p.QPN++
			ca := must.Get(w.a.Connect(w.now, p))(t)
			w.a.take(wire.AttrREQ)
			m := wire.REP{LocalCommID: 9, RemoteCommID: uint32(ca), LocalQPN: 0x999, LocalCAGUID: guidB}
			tc.change(&m)
			w.a.HandleMAD(w.now, addrB, addrA, 0xFFFF, m.Append(wire.NewMADHeader(wire.AttrREP, 1).Append(nil)))
			if rej := rejOf(t, w.a.take(wire.AttrREJ)); rej.Reason != tc.want || rej.About != wire.AboutREP {
				t.Errorf("REJ %+v", rej)
			}
			if e := w.a.event(EventRejected); e.Conn != ca || e.Reason != tc.want || !e.ByUs || !e.Final {
				t.Errorf("event %+v", e)
			}
		})
	}
}

// Messages for an unknown connection get one answer, if an answer is defined.
func TestMessagesForUnknownConnection(t *testing.T) {
	for _, tc := range []struct {
		attr, answer wire.Attr
		m            message
	}{
		{wire.AttrREP, wire.AttrREJ, &wire.REP{LocalCommID: 1, RemoteCommID: 2}},
		{wire.AttrRTU, wire.AttrREJ, &wire.RTU{LocalCommID: 1, RemoteCommID: 2}},
		{wire.AttrDREQ, wire.AttrDREP, &wire.DREQ{LocalCommID: 1, RemoteCommID: 2}},
		{wire.AttrLAP, wire.AttrAPR, &wire.LAP{LocalCommID: 1, RemoteCommID: 2}},
		{wire.AttrMRA, 0, &wire.MRA{LocalCommID: 1, RemoteCommID: 2}},
		{wire.AttrREJ, 0, &wire.REJ{LocalCommID: 1, RemoteCommID: 2, About: wire.AboutREP}},
		{wire.AttrREJ, 0, &wire.REJ{LocalCommID: 1, RemoteCommID: 2, About: wire.AboutREQ}},
		{wire.AttrREJ, 0, &wire.REJ{LocalCommID: 1, Reason: wire.ReasonTimeout, InfoLen: 8}},
		{wire.AttrDREP, 0, &wire.DREP{LocalCommID: 1, RemoteCommID: 2}},
		{wire.AttrSIDRREP, 0, &wire.SIDRREP{RequestID: 2}},
	} {
		w := newWorld(t, Config{}, Config{})
		w.inject(addrA, tc.attr, tc.m)
		if tc.answer != 0 {
			s := w.b.take(tc.answer)
			// The answer has both IDs exchanged, and the same transaction ID.
			if got := s.b[wire.MADHeaderLen : wire.MADHeaderLen+8]; string(got) != "\x00\x00\x00\x02\x00\x00\x00\x01" || s.TID != injectTID {
				t.Errorf("%v for %v has IDs %x", s.Attr, tc.attr, got)
			}
			if s.Local != addrB || s.Remote != addrA {
				t.Errorf("%v is sent from %v to %v", s.Attr, s.Local, s.Remote)
			}
			if s.Attr == wire.AttrREJ && rejOf(t, s).Reason != wire.ReasonInvalidCommID {
				t.Errorf("REJ %+v", rejOf(t, s))
			}
		}
		w.b.sendsNothing()
		w.b.noEvent()
		if n := w.b.Counters().UnknownConn; n != 1 {
			t.Errorf("%v: %d unknown, want 1", tc.attr, n)
		}
	}
}

// Another host that knows the IDs of a connection cannot affect it.
func TestMessagesFromOtherHostAreIgnored(t *testing.T) {
	for _, attr := range []wire.Attr{wire.AttrDREQ, wire.AttrREJ, wire.AttrRTU, wire.AttrLAP, wire.AttrDREP, wire.AttrMRA} {
		w := newWorld(t, Config{}, Config{})
		ca, cb := w.established()
		ids := wire.RTU{LocalCommID: uint32(ca), RemoteCommID: uint32(cb)}
		b := ids.Append(wire.NewMADHeader(attr, 1).Append(nil))
		if attr == wire.AttrDREQ {
			b = (&wire.DREQ{LocalCommID: uint32(ca), RemoteCommID: uint32(cb), RemoteQPN: answer.QPN}).Append(b[:wire.MADHeaderLen])
		}
		if attr == wire.AttrREJ || attr == wire.AttrMRA {
			b[wire.MADHeaderLen+8] = 0x80 // for another message than a REQ
		}
		w.b.HandleMAD(w.now, addrC, addrB, 0xFFFF, b)
		w.b.sendsNothing()
		w.b.noEvent()
		w.b.inState(cb, StateEstablished)
		if n := w.b.Counters().BadSource; n != 1 {
			t.Errorf("%v: counted %d, want 1", attr, n)
		}
	}
	w := newWorld(t, Config{}, Config{})
	_, _ = w.accepted()
	rep := w.b.take(wire.AttrREP)
	w.a.HandleMAD(w.now, addrC, addrA, 0xFFFF, rep.b[:])
	w.a.noEvent()
	w.a.sendsNothing()
	w.a.HandleMAD(w.now, addrC, addrA, 0xFFFF, (&wire.REJ{RemoteCommID: 0xA0000001}).Append(wire.NewMADHeader(wire.AttrREJ, 1).Append(nil)))
	w.a.noEvent()
	if n := w.a.Counters().BadSource; n != 2 {
		t.Errorf("counted %d, want 2", n)
	}
	if w.a.NextTimer() == mono.Never {
		t.Error("the REQ is no longer retransmitted")
	}
}

// A peer cannot use the ID of its REP for a REQ.
func TestREQWithIDOfREPIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.a.listen(service)
	_, cb := w.established()
	m := newREQ()
	m.LocalCommID, m.LocalCAGUID, m.LocalQPN = uint32(cb), guidB, answer.QPN
	w.a.HandleMAD(w.now, addrB, addrA, 0xFFFF, m.Append(wire.NewMADHeader(wire.AttrREQ, 1).Append(nil)))
	if rej := rejOf(t, w.a.take(wire.AttrREJ)); rej.Reason != wire.ReasonDuplicateCommID {
		t.Errorf("REJ %+v", rej)
	}
	w.a.noEvent()
	if n := w.a.Counters().Duplicates[0]; n != 0 {
		t.Errorf("handled as a duplicate REQ")
	}
}
