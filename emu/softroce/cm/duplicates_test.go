package cm

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestDuplicateREQGetsMRABeforeAccept(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.connect()
	req := w.pass(w.a, mad.AttrREQ)
	cb := w.b.event(EventRequest).Conn
	w.b.silent()
	for range 3 {
		w.deliver(req)
		w.b.noEvent()
		s := w.b.take(mad.AttrMRA)
		var m mad.MRA
		must.Get(m.Parse(s.body()))(t)
		if m.About != mad.AboutREQ || m.ServiceTimeout != 24 || m.LocalCommID != uint32(cb) || m.RemoteCommID != 0xA0000001 || s.TID != req.TID {
			t.Errorf("MRA %+v", m)
		}
		w.b.inState(cb, StateMRAREQSent)
	}
	if n := w.b.Counters().Duplicates.Of(mad.AttrREQ); n != 3 || w.b.Conns() != 1 {
		t.Errorf("%d duplicates, %d connections", n, w.b.Conns())
	}
}

func TestDuplicateREQRetransmitsREP(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.connect()
	req := w.pass(w.a, mad.AttrREQ)
	cb := w.b.event(EventRequest).Conn
	must.Do(t, w.b.Accept(w.now, cb, answer))
	first := w.b.take(mad.AttrREP)
	due := w.b.NextTimer()
	w.now += 1000
	w.deliver(req)
	if s := w.b.take(mad.AttrREP); s.b != first.b {
		t.Error("the REP changed")
	}
	if w.b.NextTimer() != due {
		t.Error("a duplicate REQ moved the timer")
	}
	w.b.noEvent()

	w.deliver(first)
	w.a.event(EventReply)
	must.Do(t, w.a.ConfirmReply(w.now, w.a.byRemote[remoteKey{guidB, uint32(cb)}].id, nil))
	w.pass(w.a, mad.AttrRTU)
	w.b.event(EventEstablished)
	w.deliver(req) // established: an old copy, which needs no answer
	w.b.silent()
	w.b.noEvent()
}

func TestDuplicateREPRetransmitsRTU(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, _ := w.accepted()
	rep := w.pass(w.b, mad.AttrREP)
	w.a.event(EventReply)

	w.deliver(rep) // the consumer is not ready yet
	w.a.inState(ca, StateMRAREPSent)
	w.pass(w.a, mad.AttrMRA)
	w.deliver(rep)
	w.a.take(mad.AttrMRA)

	must.Do(t, w.a.ConfirmReply(w.now, ca, []byte("ready")))
	rtu := w.a.take(mad.AttrRTU) // lost
	w.deliver(rep)
	if s := w.a.take(mad.AttrRTU); s.b != rtu.b {
		t.Error("the RTU changed")
	}
	w.a.noEvent()
	if n := w.a.Counters().Duplicates.Of(mad.AttrREP); n != 3 {
		t.Errorf("%d duplicate REPs, want 3", n)
	}
}

// A communication ID that is in use cannot start another connection.
func TestREQWithIDInUseIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.inject(addrA, mad.AttrREQ, newREQ())
	w.b.event(EventRequest)
	other := newREQ()
	other.LocalQPN++
	w.inject(addrA, mad.AttrREQ, other)
	if rej := rejOf(t, w.b.take(mad.AttrREJ)); rej.Reason != mad.ReasonDuplicateCommID || rej.RemoteCommID != other.LocalCommID {
		t.Errorf("REJ %+v", rej)
	}
	w.b.noEvent()
	if w.b.Conns() != 1 {
		t.Errorf("%d connections, want 1", w.b.Conns())
	}
}

// In time wait, the IDs of the REQ are in use: an old duplicate does not connect.
func TestOldREQInTimeWaitIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca := w.connect()
	req := w.pass(w.a, mad.AttrREQ)
	cb := w.b.event(EventRequest).Conn
	must.Do(t, w.b.Accept(w.now, cb, answer))
	rep := w.pass(w.b, mad.AttrREP)
	w.a.event(EventReply)
	must.Do(t, w.a.ConfirmReply(w.now, ca, nil))
	w.pass(w.a, mad.AttrRTU)
	w.b.event(EventEstablished)
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	w.pass(w.a, mad.AttrDREQ)
	w.pass(w.b, mad.AttrDREP)
	w.b.event(EventDisconnectRequested)
	w.a.event(EventDisconnected)

	w.deliver(req)
	rej := w.b.take(mad.AttrREJ)
	if m := rejOf(t, rej); m.Reason != mad.ReasonStale || m.About != mad.AboutREQ {
		t.Errorf("REJ %+v", m)
	}
	w.deliver(rej)
	w.a.noEvent()
	w.deliver(rep) // an old REP is disowned, without effect on who is done too
	w.pass(w.a, mad.AttrREJ)
	w.b.noEvent()
	w.b.inState(cb, StateTimeWait)
	// A new connection of the same queue pair may come meanwhile.
	p := offer
	must.Get(w.a.Connect(w.now, p))(t)
	w.pass(w.a, mad.AttrREQ)
	w.b.event(EventRequest)
}

// The peer starts a new connection with the queue pair of an old one.
func TestStaleConnectionIsRejectedAndEnded(t *testing.T) {
	stale := newREQ()
	stale.LocalQPN = offer.QPN

	t.Run("established", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.established()
		w.inject(addrA, mad.AttrREQ, stale)
		if rej := rejOf(t, w.b.take(mad.AttrREJ)); rej.Reason != mad.ReasonStale || rej.RemoteCommID != stale.LocalCommID || rej.LocalCommID != 0 {
			t.Errorf("REJ %+v", rej)
		}
		w.pass(w.b, mad.AttrDREQ)
		w.b.inState(cb, StateDREQSent)
		w.pass(w.a, mad.AttrDREP)
		w.b.event(EventDisconnected)
		w.inject(addrA, mad.AttrREQ, stale) // and then it may
		w.b.event(EventRequest)
	})
	t.Run("DREQ sent", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.established()
		must.Do(t, w.b.Disconnect(w.now, cb, nil))
		w.b.take(mad.AttrDREQ)
		w.inject(addrA, mad.AttrREQ, stale)
		w.b.take(mad.AttrREJ)
		w.b.event(EventDisconnected)
		w.b.inState(cb, StateTimeWait)
		w.inject(addrA, mad.AttrREQ, stale)
		w.b.event(EventRequest)
	})
	t.Run("REP sent", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.accepted()
		w.b.take(mad.AttrREP)
		w.inject(addrA, mad.AttrREQ, stale)
		w.b.take(mad.AttrREJ)
		if e := w.b.event(EventRejected); e.Reason != mad.ReasonStale || !e.ByUs || e.Final {
			t.Errorf("event %+v", e)
		}
		w.b.inState(cb, StateTimeWait)
	})
	t.Run("REQ received", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.requested()
		w.inject(addrA, mad.AttrREQ, stale)
		w.b.take(mad.AttrREJ)
		if e := w.b.event(EventRejected); e.Reason != mad.ReasonStale || !e.ByUs || !e.Final {
			t.Errorf("event %+v", e)
		}
		w.b.inState(cb, StateIdle)
	})
	t.Run("by somebody else", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		_, cb := w.established()
		w.inject(addrC, mad.AttrREQ, stale)
		w.b.take(mad.AttrREJ)
		w.b.silent()
		w.b.inState(cb, StateEstablished)
	})
	t.Run("REP with a queue pair in use", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		ca, _ := w.established()
		p := offer
		p.QPN++
		second := must.Get(w.a.Connect(w.now, p))(t)
		w.pass(w.a, mad.AttrREQ)
		must.Do(t, w.b.Accept(w.now, w.b.event(EventRequest).Conn, answer)) // the same queue pair
		w.pass(w.b, mad.AttrREP)
		w.pass(w.a, mad.AttrDREQ)
		w.pass(w.a, mad.AttrREJ)
		if e := w.a.event(EventRejected); e.Conn != second || e.Reason != mad.ReasonStale || !e.ByUs || !e.Final {
			t.Errorf("event %+v", e)
		}
		w.a.inState(ca, StateDREQSent)
		w.b.event(EventDisconnectRequested)
		if e := w.b.event(EventRejected); e.Reason != mad.ReasonStale || e.About != mad.AboutREP {
			t.Errorf("event %+v", e)
		}
	})
}

// A peer that creates two connections for one REQ gets a REJ for the second REP.
func TestSecondREPOfREQIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, _ := w.accepted()
	rep := w.pass(w.b, mad.AttrREP)
	w.a.event(EventReply)
	must.Do(t, w.a.ConfirmReply(w.now, ca, nil))
	w.a.take(mad.AttrRTU)
	rep.b[mad.HeaderLen] ^= 0x80 // another local ID
	w.deliver(rep)
	rej := rejOf(t, w.a.take(mad.AttrREJ))
	if rej.Reason != mad.ReasonInvalidCommID || rej.About != mad.AboutREP || rej.LocalCommID != uint32(ca) || rej.RemoteCommID != 0x30000001 {
		t.Errorf("REJ %+v", rej)
	}
	w.a.inState(ca, StateEstablished)
}

func TestREPIDsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*mad.REP)
		want   mad.Reason
	}{
		"zero":   {func(m *mad.REP) { m.LocalCommID = 0 }, mad.ReasonInvalidCommID},
		"in use": {func(m *mad.REP) { m.LocalCommID = 0xB0000001 }, mad.ReasonDuplicateCommID},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			w.established()
			p := offer
			p.QPN++
			ca := must.Get(w.a.Connect(w.now, p))(t)
			w.a.take(mad.AttrREQ)
			m := mad.REP{LocalCommID: 9, RemoteCommID: uint32(ca), LocalQPN: 0x999, LocalCAGUID: guidB}
			tc.change(&m)
			w.a.HandleMAD(w.now, addrB, addrA, 0xFFFF, m.Append(mad.NewHeader(mad.AttrREP, 1).Append(nil)))
			if rej := rejOf(t, w.a.take(mad.AttrREJ)); rej.Reason != tc.want || rej.About != mad.AboutREP {
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
		attr, answer mad.Attr
		m            message
	}{
		{mad.AttrREP, mad.AttrREJ, &mad.REP{LocalCommID: 1, RemoteCommID: 2}},
		{mad.AttrRTU, mad.AttrREJ, &mad.RTU{LocalCommID: 1, RemoteCommID: 2}},
		{mad.AttrDREQ, mad.AttrDREP, &mad.DREQ{LocalCommID: 1, RemoteCommID: 2}},
		{mad.AttrLAP, mad.AttrAPR, &mad.LAP{LocalCommID: 1, RemoteCommID: 2}},
		{mad.AttrMRA, 0, &mad.MRA{LocalCommID: 1, RemoteCommID: 2}},
		{mad.AttrREJ, 0, &mad.REJ{LocalCommID: 1, RemoteCommID: 2, About: mad.AboutREP}},
		{mad.AttrREJ, 0, &mad.REJ{LocalCommID: 1, RemoteCommID: 2, About: mad.AboutREQ}},
		{mad.AttrREJ, 0, &mad.REJ{LocalCommID: 1, Reason: mad.ReasonTimeout, InfoLen: 8}},
		{mad.AttrDREP, 0, &mad.DREP{LocalCommID: 1, RemoteCommID: 2}},
		{mad.AttrSIDRREP, 0, &mad.SIDRREP{RequestID: 2}},
	} {
		w := newWorld(t, Config{}, Config{})
		w.inject(addrA, tc.attr, tc.m)
		if tc.answer != 0 {
			s := w.b.take(tc.answer)
			// Both IDs come back, crossed over, in the same transaction.
			if got := s.b[mad.HeaderLen : mad.HeaderLen+8]; string(got) != "\x00\x00\x00\x02\x00\x00\x00\x01" || s.TID != injectTID {
				t.Errorf("%v for %v has IDs %x", s.Attr, tc.attr, got)
			}
			if s.Local != addrB || s.Remote != addrA {
				t.Errorf("%v goes from %v to %v", s.Attr, s.Local, s.Remote)
			}
			if s.Attr == mad.AttrREJ && rejOf(t, s).Reason != mad.ReasonInvalidCommID {
				t.Errorf("REJ %+v", rejOf(t, s))
			}
		}
		w.b.silent()
		w.b.noEvent()
		if n := w.b.Counters().UnknownConn; n != 1 {
			t.Errorf("%v: %d unknown, want 1", tc.attr, n)
		}
	}
}

// Another host that knows the IDs of a connection cannot affect it.
func TestMessagesFromOtherHostAreIgnored(t *testing.T) {
	for _, attr := range []mad.Attr{mad.AttrDREQ, mad.AttrREJ, mad.AttrRTU, mad.AttrLAP, mad.AttrDREP, mad.AttrMRA} {
		w := newWorld(t, Config{}, Config{})
		ca, cb := w.established()
		ids := mad.RTU{LocalCommID: uint32(ca), RemoteCommID: uint32(cb)}
		b := ids.Append(mad.NewHeader(attr, 1).Append(nil))
		if attr == mad.AttrDREQ {
			b = (&mad.DREQ{LocalCommID: uint32(ca), RemoteCommID: uint32(cb), RemoteQPN: answer.QPN}).Append(b[:mad.HeaderLen])
		}
		if attr == mad.AttrREJ || attr == mad.AttrMRA {
			b[mad.HeaderLen+8] = 0x80 // about something else than a REQ
		}
		w.b.HandleMAD(w.now, addrC, addrB, 0xFFFF, b)
		w.b.silent()
		w.b.noEvent()
		w.b.inState(cb, StateEstablished)
		if n := w.b.Counters().BadSource; n != 1 {
			t.Errorf("%v: counted %d, want 1", attr, n)
		}
	}
	w := newWorld(t, Config{}, Config{})
	_, _ = w.accepted()
	rep := w.b.take(mad.AttrREP)
	w.a.HandleMAD(w.now, addrC, addrA, 0xFFFF, rep.b[:])
	w.a.noEvent()
	w.a.silent()
	w.a.HandleMAD(w.now, addrC, addrA, 0xFFFF, (&mad.REJ{RemoteCommID: 0xA0000001}).Append(mad.NewHeader(mad.AttrREJ, 1).Append(nil)))
	w.a.noEvent()
	if n := w.a.Counters().BadSource; n != 2 {
		t.Errorf("counted %d, want 2", n)
	}
	if w.a.NextTimer() == mono.Never {
		t.Error("the REQ is no longer repeated")
	}
}

// A peer cannot use the ID of its REP for a REQ.
func TestREQWithIDOfREPIsRejected(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.a.listen(service)
	_, cb := w.established()
	m := newREQ()
	m.LocalCommID, m.LocalCAGUID, m.LocalQPN = uint32(cb), guidB, answer.QPN
	w.a.HandleMAD(w.now, addrB, addrA, 0xFFFF, m.Append(mad.NewHeader(mad.AttrREQ, 1).Append(nil)))
	if rej := rejOf(t, w.a.take(mad.AttrREJ)); rej.Reason != mad.ReasonDuplicateCommID {
		t.Errorf("REJ %+v", rej)
	}
	w.a.noEvent()
	if n := w.a.Counters().Duplicates.Of(mad.AttrREQ); n != 0 {
		t.Errorf("taken for a copy of a REQ")
	}
}
