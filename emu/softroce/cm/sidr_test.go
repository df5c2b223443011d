package cm

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

var lookup = SIDRParam{ServiceID: service, Path: Path{Local: addrA, Remote: addrB}, SrcPort: 5}

func sidrRepOf(t *testing.T, s *sent) *wire.SIDRREP {
	t.Helper()
	m := new(wire.SIDRREP)
	must.Get(m.Parse(s.body()))(t)
	return m
}

func TestSIDRCarriesAllFields(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	p := lookup
	p.PrivateData = bytes.Repeat([]byte{7}, 180)
	must.Get(w.a.SIDRRequest(w.now, p))(t)
	w.pass(w.a, wire.AttrSIDRREQ)
	e := w.b.event(EventSIDRRequest)
	if !bytes.Equal(e.PrivateData, p.PrivateData) {
		t.Errorf("private data %x", e.PrivateData)
	}
	must.Do(t, w.b.SIDRReply(w.now, e.Conn, SIDRReplyParam{Status: wire.SIDRRedirect, QPN: 3, QKey: 4, Info: []byte("there"), PrivateData: bytes.Repeat([]byte{9}, 136)}))
	w.pass(w.b, wire.AttrSIDRREP)
	e = w.a.event(EventSIDRReply)
	if r := e.SIDRReply; r.Status != wire.SIDRRedirect || r.QPN != 3 || r.QKey != 4 || string(r.Info) != "there" || !bytes.Equal(e.PrivateData, bytes.Repeat([]byte{9}, 136)) {
		t.Errorf("reply %+v", r)
	}
}

func TestDuplicateSIDRREQ(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	must.Get(w.a.SIDRRequest(w.now, lookup))(t)
	req := w.pass(w.a, wire.AttrSIDRREQ)
	id := w.b.event(EventSIDRRequest).Conn
	w.deliver(req) // before SIDRReply: no second event
	w.b.noEvent()
	w.b.sendsNothing()
	must.Do(t, w.b.SIDRReply(w.now, id, SIDRReplyParam{QPN: 1}))
	rep := w.b.take(wire.AttrSIDRREP) // lost
	w.deliver(req)                    // the agent answers it without an event
	w.b.noEvent()
	if again := w.pass(w.b, wire.AttrSIDRREP); again.b != rep.b {
		t.Error("the SIDR_REP changed")
	}
	w.a.event(EventSIDRReply)
	w.deliver(rep) // a duplicate
	w.a.noEvent()
	checkEmpty(t, w.a.Agent)
	checkEmpty(t, w.b.Agent)
}

func TestInvalidSIDRREQsAreRejected(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*wire.SIDRREQ)
		want   wire.SIDRStatus
	}{
		"service":        {func(m *wire.SIDRREQ) { m.ServiceID++ }, wire.SIDRUnsupportedService},
		"header version": {func(m *wire.SIDRREQ) { m.PrivateData[0] = 1 }, wire.SIDRRejected},
		"IP version":     {func(m *wire.SIDRREQ) { m.PrivateData[1] = 0x70 }, wire.SIDRRejected},
		"partition":      {func(m *wire.SIDRREQ) { m.PKey = 0x8003 }, wire.SIDRRejected},
	} {
		w := newWorld(t, Config{}, Config{})
		m := &wire.SIDRREQ{RequestID: 0x55, PKey: 0xFFFF, ServiceID: service}
		ip := wire.NewCMAHeader(addrA, addrB, 1)
		copy(m.PrivateData[:], ip.Append(nil))
		tc.change(m)
		w.inject(addrA, wire.AttrSIDRREQ, m)
		s := w.b.take(wire.AttrSIDRREP)
		if r := sidrRepOf(t, s); r.Status != tc.want || r.RequestID != 0x55 || r.ServiceID != m.ServiceID || r.QPN != 0 || s.TID != injectTID {
			t.Errorf("%s: SIDR_REP %+v", name, r)
		}
		w.b.noEvent()
		checkEmpty(t, w.b.Agent)
	}
}

func TestSIDRCallsRejectInvalidParameters(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	p := lookup
	p.PrivateData = make([]byte, 181)
	must.Fail(t, "SIDRRequest(181 bytes)", must.Err(w.a.SIDRRequest(w.now, p)), wire.ErrTooLong)
	p = lookup
	p.Path.Remote = addrB6
	must.Fail(t, "SIDRRequest(two families)", must.Err(w.a.SIDRRequest(w.now, p)), ErrParam)
	must.Get(w.a.SIDRRequest(w.now, lookup))(t)
	w.pass(w.a, wire.AttrSIDRREQ)
	id := w.b.event(EventSIDRRequest).Conn
	for name, p := range map[string]SIDRReplyParam{
		"QPN": {QPN: 1 << 24}, "info": {Info: make([]byte, 73)}, "private": {PrivateData: make([]byte, 137)},
	} {
		if err := w.b.SIDRReply(w.now, id, p); !errors.Is(err, ErrParam) && !errors.Is(err, wire.ErrTooLong) {
			t.Errorf("%s: SIDRReply = %v", name, err)
		}
	}
	w.b.sendsNothing()
	w.b.inState(id, StateSIDRREQRcvd)
}

// A SIDR_REP from another host, or for another type of request, is ignored.
func TestUnexpectedSIDRREPIsIgnored(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	id := must.Get(w.a.SIDRRequest(w.now, lookup))(t)
	conn := w.connect()
	for _, from := range []struct {
		host bool
		m    message
		attr wire.Attr
	}{
		{false, &wire.SIDRREP{RequestID: uint32(id)}, wire.AttrSIDRREP},
		{true, &wire.SIDRREP{RequestID: uint32(conn)}, wire.AttrSIDRREP},
		{true, &wire.REP{LocalCommID: 9, RemoteCommID: uint32(id)}, wire.AttrREP},
		{true, &wire.MRA{LocalCommID: 9, RemoteCommID: uint32(id)}, wire.AttrMRA},
		{true, &wire.REJ{RemoteCommID: uint32(id)}, wire.AttrREJ},
		{true, &wire.DREP{RemoteCommID: uint32(id)}, wire.AttrDREP},
	} {
		src := addrC
		if from.host {
			src = addrB
		}
		w.a.HandleMAD(w.now, src, addrA, 0xFFFF, from.m.Append(wire.NewMADHeader(from.attr, 1).Append(nil)))
		w.a.noEvent()
		w.a.inState(id, StateSIDRREQSent)
		w.a.inState(conn, StateREQSent)
	}
}

// answeredSIDR delivers a SIDR_REQ of a to b, and returns it and b's SIDR_REP, which is not
// delivered.
func (w *world) answeredSIDR() (req, rep *sent) {
	must.Get(w.a.SIDRRequest(w.now, SIDRParam{ServiceID: service, Path: Path{Local: addrA, Remote: addrB}}))(w.t)
	req = w.pass(w.a, wire.AttrSIDRREQ)
	must.Do(w.t, w.b.SIDRReply(w.now, w.b.event(EventSIDRRequest).Conn, SIDRReplyParam{QPN: 0x20, QKey: 7}))
	return req, w.b.take(wire.AttrSIDRREP)
}

// A saved SIDR_REP is not sent after its lifetime, for another transaction, or after many later
// ones.
func TestSavedSIDRREPExpires(t *testing.T) {
	t.Run("after the lifetime", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		req, _ := w.answeredSIDR()
		w.now += mono.Time(2 * time.Minute)
		w.deliver(req)
		w.b.sendsNothing()
		w.b.event(EventSIDRRequest)
	})
	t.Run("another transaction", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		req, _ := w.answeredSIDR()
		req.b[15]++ // transaction ID
		w.deliver(req)
		w.b.sendsNothing()
		w.b.event(EventSIDRRequest)
	})
	t.Run("more than maxSIDRAnswers", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		req, _ := w.answeredSIDR()
		for range maxSIDRAnswers {
			w.answeredSIDR()
		}
		w.deliver(req)
		w.b.sendsNothing()
		if n := len(w.b.sidrAnswers); n != maxSIDRAnswers {
			t.Errorf("%d replies are saved", n)
		}
	})
}
