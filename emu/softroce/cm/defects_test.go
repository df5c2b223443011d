package cm

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// Each defect does what it says; the tests of the sound agent show what it
// would do without.

func defective(t *testing.T, q Defects) *world {
	t.Helper()
	return newWorld(t, Config{}, Config{Defects: q})
}

func (w *world) defectCounted() {
	w.t.Helper()
	if w.b.Counters().Defect == 0 {
		w.t.Error("the defect was not counted")
	}
}

func TestDefectIgnoreREQ(t *testing.T) {
	w := defective(t, Defects{IgnoreREQ: true})
	w.connect()
	w.pass(w.a, mad.AttrREQ)
	w.b.silent()
	w.b.noEvent()
	w.defectCounted()
}

func TestDefectStopAfterConns(t *testing.T) {
	w := defective(t, Defects{StopAfterConns: 2})
	for i := range 2 {
		w.injectREQ(i)
		must(t, w.b.Reject(w.now, w.b.event(EventRequest).Conn, mad.ReasonConsumer, nil, nil))
		w.b.take(mad.AttrREJ)
	}
	checkEmpty(t, w.b.Agent)
	w.injectREQ(2)
	w.b.silent()
	w.b.noEvent()
	w.defectCounted()
}

func TestDefectLeakTimeWait(t *testing.T) {
	w := newWorld(t, Config{}, Config{MaxConns: 2, Defects: Defects{LeakTimeWait: true}})
	for i := range 2 {
		p, q := offer, answer
		p.QPN += uint32(i)
		q.QPN += uint32(i)
		ca, err := w.a.Connect(w.now, p)
		must(t, err)
		w.pass(w.a, mad.AttrREQ)
		cb := w.b.event(EventRequest).Conn
		must(t, w.b.Accept(w.now, cb, q))
		w.pass(w.b, mad.AttrREP)
		w.a.event(EventReply)
		must(t, w.a.ConfirmReply(w.now, ca, nil))
		w.pass(w.a, mad.AttrRTU)
		w.b.event(EventEstablished)
		must(t, w.a.Disconnect(w.now, ca, nil))
		w.pass(w.a, mad.AttrDREQ)
		w.pass(w.b, mad.AttrDREP)
		w.a.event(EventDisconnected)
		w.b.event(EventDisconnectRequested)
		w.tick(w.b)
		w.b.event(EventTimeWaitExit)
	}
	w.connect()
	w.pass(w.a, mad.AttrREQ)
	if rej := rejOf(t, w.b.take(mad.AttrREJ)); rej.Reason != mad.ReasonNoResources {
		t.Errorf("REJ %+v", rej)
	}
	w.defectCounted()
}

func TestDefectIgnoreUnknownService(t *testing.T) {
	w := defective(t, Defects{IgnoreUnknownService: true})
	m := newREQ()
	m.ServiceID++
	w.inject(addrA, mad.AttrREQ, m)
	w.inject(addrA, mad.AttrSIDRREQ, &mad.SIDRREQ{RequestID: 1, PKey: 0xFFFF, ServiceID: service + 1})
	w.b.silent()
	w.defectCounted()
	m.ServiceID, m.MTU = service, 0 // other faults are answered
	w.inject(addrA, mad.AttrREQ, m)
	w.b.take(mad.AttrREJ)
}

func TestDefectRejectWithoutCommID(t *testing.T) {
	w := defective(t, Defects{RejectWithoutCommID: true})
	m := newREQ()
	m.ServiceID++
	w.inject(addrA, mad.AttrREQ, m)
	if rej := rejOf(t, w.b.take(mad.AttrREJ)); rej.RemoteCommID != 0 || rej.Reason != mad.ReasonInvalidServiceID {
		t.Errorf("REJ %+v", rej)
	}
}

func TestDefectNoRetransmitREP(t *testing.T) {
	w := defective(t, Defects{NoRetransmitREP: true})
	_, cb := w.accepted()
	w.b.take(mad.AttrREP)
	for range 15 {
		w.tick(w.b)
		w.b.silent()
		w.b.inState(cb, StateREPSent)
	}
	w.tick(w.b)
	w.b.event(EventTimedOut)
	if got := w.now; got != mono.Time(1).Add(16*mad.Timeout(20)) {
		t.Errorf("gave up at %v", got)
	}
	w.defectCounted()
}

func TestDefectDuplicateREQSecondConn(t *testing.T) {
	w := defective(t, Defects{DuplicateREQSecondConn: true})
	w.inject(addrA, mad.AttrREQ, newREQ())
	w.inject(addrA, mad.AttrREQ, newREQ())
	first, second := w.b.event(EventRequest).Conn, w.b.event(EventRequest).Conn
	must(t, w.b.Accept(w.now, first, AcceptParam{QPN: 5}))
	must(t, w.b.Accept(w.now, second, AcceptParam{QPN: 6}))
	var m1, m2 mad.REP
	_, err1 := m1.Parse(w.b.take(mad.AttrREP).body())
	_, err2 := m2.Parse(w.b.take(mad.AttrREP).body())
	if err1 != nil || err2 != nil || m1.LocalQPN != 5 || m2.LocalQPN != 6 || m1.LocalCommID == m2.LocalCommID {
		t.Errorf("REPs %+v and %+v", m1, m2)
	}
}

func TestDefectRejectZeroLID(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*mad.REQ)
		want   mad.Reason
	}{
		"primary":   {func(m *mad.REQ) { m.Primary.RemoteLID = 0 }, mad.ReasonPrimaryLID},
		"alternate": {func(m *mad.REQ) { m.Alternate = mad.Path{LocalGID: mad.GIDOf(addrC)} }, mad.ReasonAlternateLID},
	} {
		w := defective(t, Defects{RejectZeroLID: true})
		m := newREQ()
		tc.change(m)
		w.inject(addrA, mad.AttrREQ, m)
		if rej := rejOf(t, w.b.take(mad.AttrREJ)); rej.Reason != tc.want {
			t.Errorf("%s: REJ %+v", name, rej)
		}
		w.inject(addrA, mad.AttrREQ, newREQ()) // 0xFFFF is fine
		w.b.event(EventRequest)
	}
}

func TestDefectNoDREPWhenDisconnected(t *testing.T) {
	w := defective(t, Defects{NoDREPWhenDisconnected: true})
	ca, _ := w.established()
	must(t, w.a.Disconnect(w.now, ca, nil))
	dreq := w.pass(w.a, mad.AttrDREQ)
	w.b.take(mad.AttrDREP) // the first is answered
	w.b.event(EventDisconnectRequested)
	w.deliver(dreq)
	w.b.silent()
	w.tick(w.b)
	w.b.event(EventTimeWaitExit)
	w.deliver(dreq)
	w.b.silent()
	w.defectCounted()
}

func TestDefectIgnoreCommEst(t *testing.T) {
	w := defective(t, Defects{IgnoreCommEst: true})
	_, cb := w.confirmed()
	must(t, w.b.Established(w.now, cb))
	w.b.noEvent()
	w.b.inState(cb, StateREPSent)
	w.pass(w.a, mad.AttrRTU) // an RTU still works
	w.b.event(EventEstablished)
	w.defectCounted()
}

func TestDefectAcceptAnyPrivateVersion(t *testing.T) {
	w := defective(t, Defects{AcceptAnyPrivateVersion: true})
	m := newREQ()
	m.PrivateData[0], m.PrivateData[1] = 1, 0x90
	w.inject(addrA, mad.AttrREQ, m)
	w.b.event(EventRequest)
	w.b.silent()
}

func TestDefectNoMRA(t *testing.T) {
	w := defective(t, Defects{NoMRA: true})
	_, cb := w.requested()
	w.tick(w.a)
	w.pass(w.a, mad.AttrREQ)
	w.b.silent()
	w.b.inState(cb, StateREQRcvd)
	w.defectCounted()

	w = newWorld(t, Config{Defects: Defects{NoMRA: true}}, Config{})
	ca, _ := w.accepted()
	rep := w.pass(w.b, mad.AttrREP)
	w.deliver(rep)
	w.a.silent()
	w.a.inState(ca, StateREPRcvd)
}

func TestDefectSIDRZeroQKey(t *testing.T) {
	w := defective(t, Defects{SIDRZeroQKey: true})
	_, err := w.a.SIDRRequest(w.now, lookup)
	must(t, err)
	w.pass(w.a, mad.AttrSIDRREQ)
	must(t, w.b.SIDRReply(w.now, w.b.event(EventSIDRRequest).Conn, SIDRReplyParam{QPN: 4, QKey: mad.UDQKey}))
	if r := sidrRepOf(t, w.b.take(mad.AttrSIDRREP)); r.QKey != 0 || r.QPN != 4 {
		t.Errorf("SIDR_REP %+v", r)
	}
}

func TestDefectDetour(t *testing.T) {
	w := defective(t, Defects{DetourLocal: addrB, DetourRemote: addrA})
	w.a.addr, w.b.addr = addrA6, addrB6
	p := offer
	p.Path.Local, p.Path.Remote = addrA6, addrB6
	_, err := w.a.Connect(w.now, p)
	must(t, err)
	w.pass(w.a, mad.AttrREQ)
	must(t, w.b.Accept(w.now, w.b.event(EventRequest).Conn, answer))
	if s := w.b.take(mad.AttrREP); s.Local != addrB || s.Remote != addrA {
		t.Errorf("REP of an IPv6 connection travels from %v to %v", s.Local, s.Remote)
	}
}
