package cm

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

func (w *world) injectREQ(i int) {
	w.t.Helper()
	m := newREQ()
	m.LocalCommID += uint32(i)
	m.LocalQPN += uint32(i)
	w.inject(addrA, wire.AttrREQ, m)
}

func TestBacklogIsLimited(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	small := wire.IPService(wire.PortSpaceTCP, 1)
	must.Get(w.b.Listen(small, netip.Addr{}, 2))(t)
	req := func(i uint32) {
		m := newREQ()
		m.ServiceID = small
		m.LocalCommID += i
		m.LocalQPN += i
		w.inject(addrA, wire.AttrREQ, m)
	}
	req(0)
	req(1)
	req(2)
	w.b.sendsNothing() // dropped without a REJ: the peer retransmits
	first := w.b.event(EventRequest).Conn
	second := w.b.event(EventRequest).Conn
	w.b.noEvent()
	if w.b.Counters().BacklogFull != 1 {
		t.Error("not counted")
	}
	w.injectREQ(50) // the backlog of another listener
	w.b.event(EventRequest)

	must.Do(t, w.b.Accept(w.now, first, answer)) // frees one place in the backlog
	req(2)
	w.b.event(EventRequest)
	req(3)
	w.b.noEvent()
	must.Do(t, w.b.Reject(w.now, second, wire.ReasonConsumer, nil, nil))
	req(3)
	w.b.event(EventRequest)
	// A SIDR request takes a place, too.
	m := &wire.SIDRREQ{RequestID: 1, PKey: 0xFFFF, ServiceID: small}
	ip := wire.NewCMAHeader(addrA, addrB, 1)
	copy(m.PrivateData[:], ip.Append(nil))
	w.inject(addrA, wire.AttrSIDRREQ, m)
	w.b.noEvent()
	if n := w.b.Counters().BacklogFull; n != 3 {
		t.Errorf("counted %d, want 3", n)
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	w := newWorld(t, Config{MaxConns: 1}, Config{MaxConns: 2})
	w.connect()
	must.Fail(t, "Connect", must.Err(w.a.Connect(w.now, offer)), ErrLimit)
	must.Fail(t, "SIDRRequest", must.Err(w.a.SIDRRequest(w.now, lookup)), ErrLimit)
	w.injectREQ(0)
	w.injectREQ(1)
	w.b.sendsNothing()
	w.injectREQ(2)
	if rej := rejOf(t, w.b.take(wire.AttrREJ)); rej.Reason != wire.ReasonNoResources {
		t.Errorf("REJ %+v", rej)
	}
	m := &wire.SIDRREQ{RequestID: 1, PKey: 0xFFFF, ServiceID: service}
	ip := wire.NewCMAHeader(addrA, addrB, 1)
	copy(m.PrivateData[:], ip.Append(nil))
	w.inject(addrA, wire.AttrSIDRREQ, m)
	if r := sidrRepOf(t, w.b.take(wire.AttrSIDRREP)); r.Status != wire.SIDRNoQP {
		t.Errorf("SIDR_REP %+v", r)
	}
	if n := w.b.Counters().ConnLimit; n != 2 {
		t.Errorf("counted %d, want 2", n)
	}
}

func TestOutboxIsLimited(t *testing.T) {
	w := newWorld(t, Config{}, Config{MaxOutbox: 3})
	for range 10 {
		w.inject(addrA, wire.AttrDREQ, &wire.DREQ{LocalCommID: 1, RemoteCommID: 2})
	}
	for range 3 {
		w.b.take(wire.AttrDREP)
	}
	w.b.sendsNothing()
	if n := w.b.Counters().OutboxFull; n != 7 {
		t.Errorf("counted %d, want 7", n)
	}
}

func TestEventsAreLimited(t *testing.T) {
	w := newWorld(t, Config{}, Config{MaxEvents: 2})
	for i := range 5 {
		w.injectREQ(i)
	}
	w.b.event(EventRequest)
	w.b.event(EventRequest)
	w.b.noEvent()
	if n := w.b.Counters().EventsFull; n != 3 || len(w.b.conns) != 2 {
		t.Errorf("counted %d, want 3; %d connections", n, len(w.b.conns))
	}
	w.injectREQ(4) // retransmitted
	w.b.event(EventRequest)
}

func TestListeners(t *testing.T) {
	w := newWorld(t, Config{}, Config{MaxListeners: 3})
	must.Fail(t, "Listen twice", must.Err(w.b.Listen(service, netip.Addr{}, 1)), ErrInUse)
	own := must.Get(w.b.Listen(service, addrB, 1))(t)
	elsewhere := must.Get(w.b.Listen(service, addrC, 1))(t)
	must.Fail(t, "fourth Listen", must.Err(w.b.Listen(service+1, netip.Addr{}, 1)), ErrLimit)
	w.injectREQ(0)
	if e := w.b.event(EventRequest); e.Request.Listen != own {
		t.Errorf("listener %d got the request for %d", e.Request.Listen, own)
	}
	must.Do(t, w.b.CloseListen(own))
	w.injectREQ(1)
	if e := w.b.event(EventRequest); e.Request.Listen != 1 {
		t.Errorf("listener %d got the request for listener 1", e.Request.Listen)
	}
	must.Do(t, w.b.CloseListen(1))
	w.injectREQ(2)
	if rej := rejOf(t, w.b.take(wire.AttrREJ)); rej.Reason != wire.ReasonInvalidServiceID {
		t.Errorf("REJ %+v", rej)
	}
	must.Do(t, w.b.CloseListen(elsewhere))
	must.Fail(t, "CloseListen twice", w.b.CloseListen(elsewhere), ErrUnknown)
}

// A pending request can be answered after CloseListen.
func TestRequestIsAnsweredAfterCloseListen(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	_, cb := w.requested()
	must.Do(t, w.b.CloseListen(1))
	must.Do(t, w.b.Accept(w.now, cb, answer))
	w.pass(w.b, wire.AttrREP)
	w.a.event(EventReply)
}

// Communication IDs wrap around and skip 0 and IDs in use.
func TestCommIDsWrap(t *testing.T) {
	w := newWorld(t, Config{FirstCommID: 0xFFFFFFFE}, Config{})
	for _, want := range []ConnID{0xFFFFFFFE, 0xFFFFFFFF, 1} {
		if got := w.connect(); got != want {
			t.Fatalf("ID %#x, want %#x", got, want)
		}
	}
	w.a.nextCommID = 0xFFFFFFFE
	if got := w.connect(); got != 2 {
		t.Errorf("ID %#x, want 2", got)
	}
}

func TestNamesOfStatesAndEvents(t *testing.T) {
	if len(stateNames) != int(StateSIDRREQRcvd)+1 || StateTimeWait.String() != "time wait" || State(99).String() != "state 99" {
		t.Error("wrong names of states")
	}
	if len(eventNames) != int(EventSIDRReply)+1 || EventTimeWaitExit.String() != "time wait exit" || EventKind(99).String() != "event 99" {
		t.Error("wrong names of events")
	}
}
