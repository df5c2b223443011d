package cm

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

var (
	addrA  = netip.MustParseAddr("10.77.0.12")
	addrB  = netip.MustParseAddr("10.77.0.11")
	addrC  = netip.MustParseAddr("10.77.0.13")
	addrA6 = netip.MustParseAddr("fd77::12")
	addrB6 = netip.MustParseAddr("fd77::11")
)

const (
	guidA = 0x505400fffe770012
	guidB = 0x505400fffe770011
)

var service = wire.IPService(wire.PortSpaceTCP, 7174)

// host is an agent with an address, for tests.
type host struct {
	*Agent
	t    testing.TB
	addr netip.Addr
}

// world is two hosts and the current time.
type world struct {
	t    testing.TB
	now  mono.Time
	a, b *host
}

// newWorld returns two hosts of which b listens on service.
func newWorld(t testing.TB, a, b Config) *world {
	t.Helper()
	a.CAGUID, b.CAGUID = guidA, guidB
	if a.FirstCommID == 0 {
		a.FirstCommID = 0xA0000001
	}
	if b.FirstCommID == 0 {
		b.FirstCommID = 0xB0000001
	}
	w := &world{t: t, now: 1, a: &host{New(a), t, addrA}, b: &host{New(b), t, addrB}}
	w.b.listen(service)
	t.Cleanup(func() {
		checkInvariants(t, w.a.Agent)
		checkInvariants(t, w.b.Agent)
	})
	return w
}

func (h *host) listen(id wire.ServiceID) ListenID {
	h.t.Helper()
	l := must.Get(h.Listen(id, netip.Addr{}, 0))(h.t)
	return l
}

// sent is a MAD that an agent has sent.
type sent struct {
	Outgoing
	wire.MADHeader
	b [wire.MADLen]byte
}

func (s *sent) body() []byte { return s.b[wire.MADHeaderLen:] }

// take removes one MAD from h's outbox and checks its attribute.
func (h *host) take(want wire.Attr) *sent {
	h.t.Helper()
	s, ok := h.next()
	if !ok {
		h.t.Fatalf("%v sends nothing, want a %v", h.addr, want)
	}
	if s.Attr != want {
		h.t.Fatalf("%v sends a %v, want a %v", h.addr, s.Attr, want)
	}
	return s
}

func (h *host) next() (*sent, bool) {
	h.t.Helper()
	out, ok := h.NextMAD()
	if !ok {
		return nil, false
	}
	s := &sent{Outgoing: out, b: *out.MAD}
	s.MAD = &s.b
	must.Get(s.Parse(s.b[:]))(h.t)
	return s, true
}

// sendsNothing checks that h has no MAD to send.
func (h *host) sendsNothing() {
	h.t.Helper()
	if s, ok := h.next(); ok {
		h.t.Fatalf("%v sends a %v, want none", h.addr, s.Attr)
	}
}

// event removes one event from h and checks its kind.
func (h *host) event(want EventKind) Event {
	h.t.Helper()
	e, ok := h.NextEvent()
	if !ok {
		h.t.Fatalf("%v has no event, want %v", h.addr, want)
	}
	if e.Kind != want {
		h.t.Fatalf("%v has event %v (%+v), want %v", h.addr, e.Kind, e, want)
	}
	return e
}

func (h *host) noEvent() {
	h.t.Helper()
	if e, ok := h.NextEvent(); ok {
		h.t.Fatalf("%v has event %v (%+v), want none", h.addr, e.Kind, e)
	}
}

// delayReply sends an MRA with a service timeout, as for a duplicate.
func (h *host) delayReply(id ConnID, serviceTimeout uint8) {
	h.cfg.MRATimeout = serviceTimeout
	h.sendMRA(h.conns[id])
}

// stateOf returns the state of a connection; StateIdle if there is none.
func stateOf(a *Agent, id ConnID) State {
	if c := a.conns[id]; c != nil {
		return c.state
	}
	return StateIdle
}

func (h *host) inState(id ConnID, want State) {
	h.t.Helper()
	if got := stateOf(h.Agent, id); got != want {
		h.t.Fatalf("%v: connection %#x is in state %q, want %q", h.addr, uint32(id), got, want)
	}
}

// deliver passes a MAD to its destination.
func (w *world) deliver(s *sent) {
	w.t.Helper()
	to := w.b
	if s.Remote == w.a.addr {
		to = w.a
	}
	to.HandleMAD(w.now, s.Local, s.Remote, s.PKey, s.b[:])
	checkInvariants(w.t, to.Agent)
}

// pass delivers one MAD of h to the other host and checks its attribute.
func (w *world) pass(h *host, want wire.Attr) *sent {
	w.t.Helper()
	s := h.take(want)
	w.deliver(s)
	return s
}

// tick advances the time to h's next deadline and handles it.
func (w *world) tick(h *host) {
	w.t.Helper()
	at := h.NextTimer()
	if at == mono.Never {
		w.t.Fatalf("%v has no timer", h.addr)
	}
	w.now = at
	h.HandleTimer(w.now)
	checkInvariants(w.t, h.Agent)
}

var (
	offer  = ConnectParam{ServiceID: service, Path: Path{Local: addrA, Remote: addrB, MTU: 3}, QPN: 0x1f, StartPSN: 0x458185, RespRes: 1, InitDepth: 1, RetryCount: 7, RNRRetry: 7, SrcPort: 0xbf64}
	answer = AcceptParam{QPN: 0x2f, StartPSN: 0x4bcf5b, RespRes: 1, InitDepth: 1, RNRRetry: 7, TargetAckDelay: 15}
)

func (w *world) connect() ConnID {
	w.t.Helper()
	id := must.Get(w.a.Connect(w.now, offer))(w.t)
	return id
}

// requested delivers a REQ to b.
func (w *world) requested() (ca, cb ConnID) {
	w.t.Helper()
	ca = w.connect()
	w.pass(w.a, wire.AttrREQ)
	return ca, w.b.event(EventRequest).Conn
}

// accepted leaves b's REP in its outbox.
func (w *world) accepted() (ca, cb ConnID) {
	w.t.Helper()
	ca, cb = w.requested()
	must.Do(w.t, w.b.Accept(w.now, cb, answer))
	return ca, cb
}

// replied delivers b's REP to a.
func (w *world) replied() (ca, cb ConnID) {
	w.t.Helper()
	ca, cb = w.accepted()
	w.pass(w.b, wire.AttrREP)
	w.a.event(EventReply)
	return ca, cb
}

// confirmed leaves a's RTU in its outbox.
func (w *world) confirmed() (ca, cb ConnID) {
	w.t.Helper()
	ca, cb = w.replied()
	must.Do(w.t, w.a.ConfirmReply(w.now, ca, nil))
	return ca, cb
}

func (w *world) established() (ca, cb ConnID) {
	w.t.Helper()
	ca, cb = w.confirmed()
	w.pass(w.a, wire.AttrRTU)
	w.b.event(EventEstablished)
	return ca, cb
}

// newREQ returns a REQ as a would send it.
func newREQ() *wire.REQ {
	m := &wire.REQ{
		LocalCommID: 0x01020304, ServiceID: service, LocalCAGUID: guidA, LocalQPN: 0x4321, RespRes: 1, InitDepth: 1,
		RemoteRespTimeout: 20, LocalRespTimeout: 20, StartPSN: 0x777, RetryCount: 7, PKey: 0xFFFF, MTU: 3, RNRRetry: 7, MaxCMRetries: 15,
		Primary: wire.CMPath{
			LocalLID: wire.LIDNone, RemoteLID: wire.LIDNone, LocalGID: wire.GIDOf(addrA), RemoteGID: wire.GIDOf(addrB),
			HopLimit: 64, AckTimeout: 17,
		},
	}
	ip := wire.NewCMAHeader(addrA, addrB, 0x9999)
	copy(m.PrivateData[:], ip.Append(nil))
	return m
}

const injectTID = 0x1122

// inject delivers a message to b.
func (w *world) inject(from netip.Addr, attr wire.Attr, m message) {
	w.t.Helper()
	w.injectRaw(from, wire.NewMADHeader(attr, injectTID), m)
}

func (w *world) injectRaw(from netip.Addr, h wire.MADHeader, m message) {
	w.t.Helper()
	w.b.HandleMAD(w.now, from, addrB, 0xFFFF, m.Append(h.Append(nil)))
	checkInvariants(w.t, w.b.Agent)
}

// List returns every counter once.
func TestListHasEveryCounter(t *testing.T) {
	var c Counters
	next := uint64(0)
	for i := range reflect.TypeFor[Counters]().NumField() {
		switch f := reflect.ValueOf(&c).Elem().Field(i).Addr().Interface().(type) {
		case *PerMessage:
			for j := range f {
				next++
				f[j] = next
			}
		case *uint64:
			next++
			*f = next
		}
	}
	names := map[string]bool{}
	for i, l := range c.List() {
		if l.Value != uint64(i+1) || names[l.Name] {
			t.Errorf("%d: %s %d", i, l.Name, l.Value)
		}
		names[l.Name] = true
	}
	if len(names) != int(next) {
		t.Errorf("%d of %d counters are listed", len(names), next)
	}
	if !names["cm_rcvd_sidr_req"] || !names["cm_events_full"] {
		t.Errorf("names %v", names)
	}
}
