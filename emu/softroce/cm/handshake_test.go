package cm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// MADs of Linux in rping and udaddy, without trailing zeros. With the same parameters the agent
// sends the same bytes except for the transaction ID.
const (
	linuxREQ     = "010702030000000000000002024088d80010000000000000d8884002000000000000000001061c06505400fffe770012000000000000000000001f0100000001000000a0458185a7ffff37f0ffffffff00000000000000000000ffff0a4d000c00000000000000000000ffff0a4d000b749220000040008800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040bf640000000000000000000000000a4d000c0000000000000000000000000a4d000b"
	linuxREP     = "010702030000000000000002024088d80013000000000000cbb122a4d88840020000000000001f00000000004bcf5b00010178e0505400fffe770011"
	linuxRTU     = "010702030000000000000002024088d80014000000000000d8884002cbb122a4"
	linuxDREQ    = "010702030000000000000002024088d80015000000000000d8884002cbb122a400001f"
	linuxDREP    = "010702030000000000000002024088d80016000000000000cbb122a4d8884002"
	linuxSIDRREQ = "010702030000000000000002024088d90017000000000000d9884002ffff00000000000001111c060040aef90000000000000000000000000a4d000c0000000000000000000000000a4d000b"
	linuxSIDRREP = "010702030000000000000002024088d90018000000000000d988400200000000000020000000000001111c0601234567"
)

func hexBytes(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(s))(t)
	return append(b, make([]byte, wire.MADLen-len(b))...)
}

// checkMAD compares a MAD with that of Linux, except for the transaction ID.
func checkMAD(t *testing.T, s *sent, linux string) {
	t.Helper()
	want := hexBytes(t, linux)
	copy(want[8:16], s.b[8:16])
	if !bytes.Equal(s.b[:], want) {
		t.Errorf("%v is\n %x, want\n %x", s.Attr, s.b, want)
	}
}

func TestMADsMatchLinux(t *testing.T) {
	w := newWorld(t, Config{FirstCommID: 0xd8884002}, Config{FirstCommID: 0xcbb122a4})
	p, q := offer, answer
	p.QPN, q.QPN = 0x1f, 0x1f
	ca := must.Get(w.a.Connect(w.now, p))(t)
	req := w.pass(w.a, wire.AttrREQ)
	checkMAD(t, req, linuxREQ)
	cb := w.b.event(EventRequest).Conn
	must.Do(t, w.b.Accept(w.now, cb, q))
	rep := w.pass(w.b, wire.AttrREP)
	checkMAD(t, rep, linuxREP)
	w.a.event(EventReply)
	must.Do(t, w.a.ConfirmReply(w.now, ca, nil))
	rtu := w.pass(w.a, wire.AttrRTU)
	checkMAD(t, rtu, linuxRTU)
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	dreq := w.pass(w.a, wire.AttrDREQ)
	checkMAD(t, dreq, linuxDREQ)
	drep := w.pass(w.b, wire.AttrDREP)
	checkMAD(t, drep, linuxDREP)
	if rep.TID != req.TID || rtu.TID != req.TID || drep.TID != dreq.TID {
		t.Errorf("transactions: REQ %x, REP %x, RTU %x, DREQ %x, DREP %x", req.TID, rep.TID, rtu.TID, dreq.TID, drep.TID)
	}
}

func TestSIDRMADsMatchLinux(t *testing.T) {
	udp := wire.IPService(wire.PortSpaceUDP, 7174)
	w := newWorld(t, Config{FirstCommID: 0xd9884002}, Config{})
	w.b.listen(udp)
	ca := must.Get(w.a.SIDRRequest(w.now, SIDRParam{ServiceID: udp, Path: Path{Local: addrA, Remote: addrB}, SrcPort: 0xaef9}))(t)
	checkMAD(t, w.pass(w.a, wire.AttrSIDRREQ), linuxSIDRREQ)
	e := w.b.event(EventSIDRRequest)
	if r := e.SIDRRequest; r.ServiceID != udp || r.Local != addrB || r.Remote != addrA || r.SrcAddr != addrA ||
		r.SrcPort != 0xaef9 || r.PKey != 0xffff || len(e.PrivateData) != 180 {
		t.Errorf("request %+v", r)
	}
	must.Do(t, w.b.SIDRReply(w.now, e.Conn, SIDRReplyParam{QPN: 0x20, QKey: wire.UDQKey}))
	checkMAD(t, w.pass(w.b, wire.AttrSIDRREP), linuxSIDRREP)
	e = w.a.event(EventSIDRReply)
	if r := e.SIDRReply; e.Conn != ca || !e.Final || r.Status != wire.SIDRValid || r.QPN != 0x20 || r.QKey != wire.UDQKey || r.ServiceID != udp {
		t.Errorf("reply %+v %+v", e, r)
	}
	checkEmpty(t, w.a.Agent)
	checkEmpty(t, w.b.Agent)
}

// The agent parses a REQ sent by Linux.
func TestParsesLinuxREQ(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	w.b.HandleMAD(w.now, addrA, addrB, 0xffff, hexBytes(t, linuxREQ))
	e := w.b.event(EventRequest)
	want := Request{
		REQ: e.Request.REQ, Listen: 1,
		Path:      Path{Local: addrB, Remote: addrA, FlowLabel: 0x74922, HopLimit: 64, PKey: 0xffff, MTU: 3, LocalAckTimeout: 17},
		Transport: RC, RemoteQPN: 0x1f, SrcPort: 48996, SrcAddr: addrA,
	}
	r := e.Request
	if *r != want || r.ServiceID != service || r.LocalCAGUID != guidA || r.StartPSN != 0x458185 || r.RespRes != 1 || r.InitDepth != 1 || r.RetryCount != 7 || r.RNRRetry != 7 {
		t.Errorf("request\n %+v, want\n %+v", *e.Request, want)
	}
	if len(e.PrivateData) != 56 {
		t.Errorf("%d bytes of private data, want 56", len(e.PrivateData))
	}
}

func TestHandshakeCarriesAllFields(t *testing.T) {
	for _, tc := range []struct {
		name          string
		local, remote netip.Addr
		transport     Transport
		service       wire.ServiceID
		private       int
	}{
		{"RC over IPv4", addrA, addrB, RC, service, 56},
		{"RC over IPv6", addrA6, addrB6, RC, service, 56},
		{"UC over IPv6", addrA6, addrB6, UC, wire.IPService(wire.PortSpaceIB, 9), 56},
		{"XRC over IPv6", addrA6, addrB6, XRC, 0x1000000000000042, 92},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			w.a.addr, w.b.addr = tc.local, tc.remote
			if tc.service != service {
				w.b.listen(tc.service)
			}
			fill := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }
			p := ConnectParam{
				ServiceID: tc.service, Transport: tc.transport, QPN: 0xABCDEF, StartPSN: 0xFFFFFF, RespRes: 3, InitDepth: 4,
				RetryCount: 5, RNRRetry: 6, SRQ: true, E2EFlow: true, SrcPort: 77, PrivateData: fill(tc.private),
				Path: Path{Local: tc.local, Remote: tc.remote, FlowLabel: 0xFFFFF, TrafficClass: 0x68, HopLimit: 9, PKey: 0x7FFF, MTU: 5, Rate: 18, SL: 3, LocalAckTimeout: 14},
			}
			ca := must.Get(w.a.Connect(w.now, p))(t)
			s := w.pass(w.a, wire.AttrREQ)
			if s.Local != tc.local || s.Remote != tc.remote || s.PKey != 0x7FFF || s.FlowLabel != 0xFFFFF || s.TrafficClass != 0x68 || s.HopLimit != 9 {
				t.Errorf("REQ is sent with %+v", s.Outgoing)
			}
			e := w.b.event(EventRequest)
			r := e.Request
			path := Path{Local: tc.remote, Remote: tc.local, FlowLabel: 0xFFFFF, TrafficClass: 0x68, HopLimit: 9, PKey: 0x7FFF, MTU: 5, Rate: 18, SL: 3, LocalAckTimeout: 14}
			if r.Path != path || r.Transport != tc.transport || r.RemoteQPN != p.QPN || r.StartPSN != p.StartPSN || r.RespRes != 3 ||
				r.InitDepth != 4 || r.RetryCount != 5 || r.RNRRetry != 6 || !r.SRQ || !r.E2EFlow || !bytes.Equal(e.PrivateData, p.PrivateData) {
				t.Errorf("request %+v", r)
			}
			must.Do(t, w.b.Accept(w.now, e.Conn, AcceptParam{QPN: 0x123456, StartPSN: 0x654321, RespRes: 7, InitDepth: 8, RNRRetry: 1, TargetAckDelay: 9, SRQ: true, E2EFlow: true, PrivateData: fill(196)}))
			s = w.pass(w.b, wire.AttrREP)
			if s.Local != tc.remote || s.Remote != tc.local || s.FlowLabel != 0xFFFFF || s.TrafficClass != 0x68 {
				t.Errorf("REP is sent with %+v", s.Outgoing)
			}
			var rep wire.REP
			if _, err := rep.Parse(s.body()); err != nil || tc.transport == XRC && rep.LocalQPN != 0 {
				t.Errorf("QP number %#x in the REP of an XRC target, want 0 (%v)", rep.LocalQPN, err)
			}
			re := w.a.event(EventReply)
			if r := re.Reply; r.LocalCAGUID != guidB || r.RemoteQPN != 0x123456 || r.StartPSN != 0x654321 || r.RespRes != 7 || r.InitDepth != 8 ||
				r.TargetAckDelay != 9 || r.RNRRetry != 1 || !r.SRQ || !r.E2EFlow || !bytes.Equal(re.PrivateData, fill(196)) {
				t.Errorf("reply %+v", r)
			}
			must.Do(t, w.a.ConfirmReply(w.now, ca, fill(224)))
			w.pass(w.a, wire.AttrRTU)
			if e := w.b.event(EventEstablished); e.ByData || !bytes.Equal(e.PrivateData, fill(224)) {
				t.Errorf("established %+v", e)
			}
			must.Do(t, w.b.Disconnect(w.now, e.Conn, fill(220)))
			s = w.pass(w.b, wire.AttrDREQ)
			var dreq wire.DREQ
			if _, err := dreq.Parse(s.body()); err != nil || dreq.RemoteQPN != p.QPN {
				t.Errorf("DREQ for queue pair %#x, want %#x", dreq.RemoteQPN, p.QPN)
			}
			if e := w.a.event(EventDisconnectRequested); !bytes.Equal(e.PrivateData, fill(220)) || e.Final {
				t.Errorf("disconnect %+v", e)
			}
			w.pass(w.a, wire.AttrDREP)
			w.b.event(EventDisconnected)
			for _, h := range []*host{w.a, w.b} {
				w.tick(h)
				if e := h.event(EventTimeWaitExit); !e.Final {
					t.Error("time wait ends without a final event")
				}
				checkEmpty(t, h.Agent)
			}
		})
	}
}

func TestLoopbackWithinOneAgent(t *testing.T) {
	h := &host{New(Config{CAGUID: guidA}), t, addrA}
	h.listen(service)
	w := &world{t: t, now: 1, a: h, b: h}
	p := offer
	p.Path.Remote = addrA
	ca := must.Get(h.Connect(w.now, p))(t)
	w.pass(h, wire.AttrREQ)
	cb := h.event(EventRequest).Conn
	must.Do(t, h.Accept(w.now, cb, answer))
	w.pass(h, wire.AttrREP)
	h.event(EventReply)
	must.Do(t, h.ConfirmReply(w.now, ca, nil))
	w.pass(h, wire.AttrRTU)
	h.event(EventEstablished)
	must.Do(t, h.Disconnect(w.now, cb, nil))
	w.pass(h, wire.AttrDREQ)
	h.event(EventDisconnectRequested)
	w.pass(h, wire.AttrDREP)
	h.event(EventDisconnected)
	w.tick(h)
	w.tick(h)
	h.event(EventTimeWaitExit)
	h.event(EventTimeWaitExit)
	checkEmpty(t, h.Agent)
}

// Data may arrive before the RTU or without it.
func TestDataEstablishesThePassiveSide(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	_, cb := w.confirmed()
	must.Do(t, w.b.Established(w.now, cb))
	if e := w.b.event(EventEstablished); !e.ByData {
		t.Error("established by an RTU that was not delivered")
	}
	w.b.inState(cb, StateEstablished)
	if at := w.b.NextTimer(); at != mono.Never {
		t.Errorf("the REP is to be retransmitted at %v", at)
	}
	must.Do(t, w.b.Established(w.now, cb)) // the second packet
	w.pass(w.a, wire.AttrRTU)              // late
	w.b.noEvent()
	if n := w.b.Counters().Duplicates[wire.AttrRTU-wire.AttrREQ]; n != 1 {
		t.Errorf("%d duplicate RTUs, want 1", n)
	}
}

func TestTimeWaitLastsForPacketLifetime(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	w.now = 1000
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	w.pass(w.a, wire.AttrDREQ)
	w.pass(w.b, wire.AttrDREP)
	// a uses twice the packet lifetime and b's ACK delay; b uses their sum.
	if got, want := w.a.NextTimer(), mono.Time(1000).Add(wire.CMTimeout(17)+wire.CMTimeout(15)); got != want {
		t.Errorf("active side leaves time wait at %v, want %v", got, want)
	}
	if got, want := w.b.NextTimer(), mono.Time(1000).Add(wire.CMTimeout(17)); got != want {
		t.Errorf("passive side leaves time wait at %v, want %v", got, want)
	}
	w.b.HandleTimer(w.b.NextTimer().Add(-time.Nanosecond))
	w.b.inState(cb, StateTimeWait)
	w.tick(w.b)
	w.b.inState(cb, StateIdle)
}

func TestCallsRejectInvalidParameters(t *testing.T) {
	w := newWorld(t, Config{MaxMTU: 3}, Config{})
	for name, change := range map[string]func(*ConnectParam){
		"QPN":            func(p *ConnectParam) { p.QPN = 1 << 24 },
		"PSN":            func(p *ConnectParam) { p.StartPSN = 1 << 24 },
		"retry count":    func(p *ConnectParam) { p.RetryCount = 8 },
		"RNR retry":      func(p *ConnectParam) { p.RNRRetry = 8 },
		"transport":      func(p *ConnectParam) { p.Transport = 3 },
		"no MTU":         func(p *ConnectParam) { p.Path.MTU = 0 },
		"MTU too large":  func(p *ConnectParam) { p.Path.MTU = 4 },
		"flow label":     func(p *ConnectParam) { p.Path.FlowLabel = 1 << 20 },
		"rate":           func(p *ConnectParam) { p.Path.Rate = 64 },
		"SL":             func(p *ConnectParam) { p.Path.SL = 16 },
		"ACK timeout":    func(p *ConnectParam) { p.Path.LocalAckTimeout = 32 },
		"partition":      func(p *ConnectParam) { p.Path.PKey = 0x8001 },
		"two families":   func(p *ConnectParam) { p.Path.Remote = addrB6 },
		"no address":     func(p *ConnectParam) { p.Path.Local = netip.Addr{} },
		"any address":    func(p *ConnectParam) { p.Path.Remote = netip.IPv4Unspecified() },
		"multicast":      func(p *ConnectParam) { p.Path.Remote = netip.MustParseAddr("224.0.0.1") },
		"private data":   func(p *ConnectParam) { p.PrivateData = make([]byte, 57) },
		"private, no IP": func(p *ConnectParam) { p.ServiceID, p.PrivateData = 5, make([]byte, 93) },
	} {
		p := offer
		change(&p)
		if _, err := w.a.Connect(w.now, p); !errors.Is(err, ErrParam) && !errors.Is(err, wire.ErrTooLong) {
			t.Errorf("%s: Connect = %v", name, err)
		}
	}
	checkEmpty(t, w.a.Agent)

	_, cb := w.requested()
	for name, p := range map[string]AcceptParam{
		"QPN":       {QPN: 1 << 24},
		"PSN":       {StartPSN: 1 << 24},
		"RNR retry": {RNRRetry: 8},
		"ACK delay": {TargetAckDelay: 32},
		"private":   {PrivateData: make([]byte, 197)},
	} {
		if err := w.b.Accept(w.now, cb, p); !errors.Is(err, ErrParam) && !errors.Is(err, wire.ErrTooLong) {
			t.Errorf("%s: Accept = %v", name, err)
		}
	}
	w.b.inState(cb, StateREQRcvd)
	w.b.sendsNothing()
}

// Every call fails in every state in which it is not allowed.
func TestCallsRejectWrongState(t *testing.T) {
	calls := map[string]func(h *host, now mono.Time, id ConnID) error{
		"Accept":       func(h *host, now mono.Time, id ConnID) error { return h.Accept(now, id, answer) },
		"Reject":       func(h *host, now mono.Time, id ConnID) error { return h.Reject(now, id, wire.ReasonConsumer, nil, nil) },
		"ConfirmReply": func(h *host, now mono.Time, id ConnID) error { return h.ConfirmReply(now, id, nil) },
		"Established":  func(h *host, now mono.Time, id ConnID) error { return h.Established(now, id) },
		"Disconnect":   func(h *host, now mono.Time, id ConnID) error { return h.Disconnect(now, id, nil) },
		"SIDRReply":    func(h *host, now mono.Time, id ConnID) error { return h.SIDRReply(now, id, SIDRReplyParam{}) },
	}
	allowed := map[State][]string{
		StateREQSent:     {},
		StateREQRcvd:     {"Accept", "Reject"},
		StateREPSent:     {"Reject", "Established"},
		StateREPRcvd:     {"Reject", "ConfirmReply"},
		StateEstablished: {"Established", "Disconnect"},
		StateDREQSent:    {},
		StateTimeWait:    {},
	}
	reach := map[State]func(*world) (*host, ConnID){
		StateREQSent: func(w *world) (*host, ConnID) { return w.a, w.connect() },
		StateREQRcvd: func(w *world) (*host, ConnID) { _, cb := w.requested(); return w.b, cb },
		StateREPSent: func(w *world) (*host, ConnID) { _, cb := w.accepted(); return w.b, cb },
		StateREPRcvd: func(w *world) (*host, ConnID) { ca, _ := w.replied(); return w.a, ca },
		StateEstablished: func(w *world) (*host, ConnID) {
			ca, _ := w.established()
			return w.a, ca
		},
		StateDREQSent: func(w *world) (*host, ConnID) {
			ca, _ := w.established()
			must.Do(w.t, w.a.Disconnect(w.now, ca, nil))
			return w.a, ca
		},
		StateTimeWait: func(w *world) (*host, ConnID) {
			ca, cb := w.established()
			must.Do(w.t, w.a.Disconnect(w.now, ca, nil))
			w.pass(w.a, wire.AttrDREQ)
			return w.b, cb
		},
	}
	for state, ok := range allowed {
		for name, call := range calls {
			w := newWorld(t, Config{}, Config{})
			h, id := reach[state](w)
			h.inState(id, state)
			err := call(h, w.now, id)
			want := false
			for _, n := range ok {
				want = want || n == name
			}
			if (err == nil) != want || err != nil && !errors.Is(err, ErrState) {
				t.Errorf("%s in state %q = %v", name, state, err)
			}
			must.Fail(t, fmt.Sprintf("%s of an unknown ID", name), call(h, w.now, 0xDEAD), ErrUnknown)
		}
	}
}
