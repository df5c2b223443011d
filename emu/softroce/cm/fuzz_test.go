package cm

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// script reads choices from bytes. It returns zeros after the end.
type script struct{ b []byte }

func (s *script) next() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

func (s *script) take(n int) []byte {
	b := make([]byte, n)
	s.b = s.b[copy(b, s.b):]
	return b
}

// smallNumber returns a number below 6, so that values repeat.
func (s *script) smallNumber() uint32 { return uint32(s.next() % 6) }

// Operations of a script. A delay precedes each; a byte after it selects whether an event is
// consumed.
const (
	opMessage = iota // a message with IDs that may be in use
	opCall           // a call of the consumer
	opTime           // the next timer fires
	opConnect        // Connect or SIDRRequest
	opEcho           // the agent's last MAD with a byte changed
	opRaw            // a MAD of bytes of the script
	numOps
)

func fuzzAgent() *Agent {
	a := New(Config{CAGUID: guidB, MaxConns: 16, MaxBacklog: 6, MaxOutbox: 32, MaxEvents: 32, MaxListeners: 4})
	for _, id := range []wire.ServiceID{service, 5} {
		if _, err := a.Listen(id, netip.Addr{}, 0); err != nil {
			panic(err)
		}
	}
	return a
}

// runScript drives one agent and checks its tables after every step. Then it closes all
// connections.
func runScript(t testing.TB, b []byte) {
	s := &script{b}
	a := fuzzAgent()
	now := mono.Time(1)
	var echo [wire.MADLen]byte
	for len(s.b) > 0 {
		now += mono.Time(s.next()) << 16
		switch s.next() % numOps {
		case opMessage:
			from := addrA
			if s.next()%16 == 15 {
				from = addrC
			}
			attr, m := scriptMessage(a, s)
			a.HandleMAD(now, from, addrB, 0xFFFF, m.Append(wire.NewMADHeader(attr, 7).Append(nil)))
		case opCall:
			scriptCall(a, s, now)
		case opTime:
			if at := a.NextTimer(); at != mono.Never {
				now = max(now, at)
				a.HandleTimer(now)
			}
		case opConnect:
			p := offer
			p.Path.Local, p.Path.Remote = addrB, addrA
			if s.next()%4 == 0 {
				a.SIDRRequest(now, SIDRParam{ServiceID: 5, Path: p.Path})
			} else {
				a.Connect(now, p)
			}
		case opEcho:
			if out, ok := a.NextMAD(); ok {
				echo = *out.MAD
			}
			echo[s.next()] ^= s.next()
			a.HandleMAD(now, addrA, addrB, 0xFFFF, echo[:])
		case opRaw:
			a.HandleMAD(now, addrA, addrB, 0xFFFF, s.take(wire.MADLen))
		}
		if s.next()&1 == 0 {
			a.NextEvent()
		}
		checkInvariants(t, a)
	}
	closeAll(t, a, now)
}

// scriptMessage returns a message whose IDs may be those of a connection.
func scriptMessage(a *Agent, s *script) (wire.Attr, message) {
	attr := wire.AttrREQ + wire.Attr(s.next()%wire.NumAttrs)
	var ours, theirs, qpn uint32
	if c := pick(a, s.next()); c != nil {
		ours, theirs, qpn = uint32(c.id), c.peer.id, c.localQPN
	}
	if theirs == 0 || s.next()%8 == 7 {
		theirs = s.smallNumber()
	}
	switch attr {
	case wire.AttrREQ:
		m := newREQ()
		m.LocalCommID, m.LocalQPN, m.MaxCMRetries = s.smallNumber(), s.smallNumber(), uint8(s.smallNumber())
		m.Transport, m.ExtTransport = wire.CMTransport(s.next()&3), 1
		m.PrivateData[0] = s.next() / 128
		m.ServiceID = []wire.ServiceID{service, service, 5, 6}[s.next()&3]
		return attr, m
	case wire.AttrMRA:
		return attr, &wire.MRA{LocalCommID: theirs, RemoteCommID: ours, About: wire.About(s.next()), ServiceTimeout: s.next()}
	case wire.AttrREJ:
		m := &wire.REJ{LocalCommID: theirs, RemoteCommID: ours, About: wire.About(s.next() & 3), Reason: wire.REJReason(s.next() % 36)}
		if m.Reason == wire.ReasonTimeout {
			m.RemoteCommID, m.InfoLen = 0, s.next()
			binary.BigEndian.PutUint64(m.Info[:], guidA)
		}
		return attr, m
	case wire.AttrREP:
		return attr, &wire.REP{LocalCommID: theirs, RemoteCommID: ours, LocalCAGUID: guidA, LocalQPN: s.smallNumber(), TargetAckDelay: s.next()}
	case wire.AttrRTU:
		return attr, &wire.RTU{LocalCommID: theirs, RemoteCommID: ours}
	case wire.AttrDREQ:
		return attr, &wire.DREQ{LocalCommID: theirs, RemoteCommID: ours, RemoteQPN: qpn}
	case wire.AttrDREP:
		return attr, &wire.DREP{LocalCommID: theirs, RemoteCommID: ours}
	case wire.AttrSIDRREQ:
		return attr, &wire.SIDRREQ{RequestID: s.smallNumber(), PKey: 0xFFFF, ServiceID: wire.ServiceID(s.smallNumber())}
	case wire.AttrSIDRREP:
		return attr, &wire.SIDRREP{RequestID: ours, InfoLen: s.next()}
	case wire.AttrLAP:
		return attr, &wire.LAP{LocalCommID: theirs, RemoteCommID: ours}
	default:
		return attr, &wire.APR{LocalCommID: theirs, RemoteCommID: ours}
	}
}

// scriptCall calls a method for a connection, in any state.
func scriptCall(a *Agent, s *script, now mono.Time) {
	c := pick(a, s.next())
	if c == nil {
		return
	}
	id := c.id
	switch s.next() % 9 {
	case 0, 1:
		p := answer
		p.QPN = 16 + s.smallNumber()
		a.Accept(now, id, p)
	case 2:
		a.ConfirmReply(now, id, nil)
	case 3:
		a.Reject(now, id, wire.REJReason(s.next()), nil, nil)
	case 4:
		if c.state == StateREQRcvd || c.state == StateREPRcvd {
			a.sendMRA(c)
		}
	case 5:
		a.Disconnect(now, id, nil)
	case 6:
		a.Established(now, id)
	case 7:
		a.Close(now, id)
	case 8:
		a.SIDRReply(now, id, SIDRReplyParam{})
	}
}

// pick returns the connection that choice selects.
func pick(a *Agent, choice byte) *conn {
	if len(a.conns) == 0 {
		return nil
	}
	ids := make([]ConnID, 0, len(a.conns))
	for id := range a.conns {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return a.conns[ids[int(choice)%len(ids)]]
}

// closeAll closes all connections, runs all timers, and checks that the agent has no state.
func closeAll(t testing.TB, a *Agent, now mono.Time) {
	for c := openConn(a); c != nil; c = openConn(a) {
		if err := a.Close(now, c.id); err != nil {
			t.Fatalf("close in state %v: %v", c.state, err)
		}
	}
	for steps := 0; a.NextTimer() != mono.Never; steps++ {
		if steps > 10000 {
			t.Fatal("timers do not end")
		}
		a.HandleTimer(a.NextTimer())
		for a.outbox.Len() > 0 {
			a.NextMAD()
		}
	}
	for a.outbox.Len()+a.events.Len() > 0 {
		a.NextMAD()
		a.NextEvent()
	}
	checkEmpty(t, a)
}

func openConn(a *Agent) *conn {
	for _, c := range a.conns {
		if !c.closed {
			return c
		}
	}
	return nil
}

func TestRandomScripts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	n := 3000
	if testing.Short() {
		n = 300
	}
	for range n {
		b := make([]byte, 100+rng.IntN(3000))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		runScript(t, b)
	}
}

// FuzzAgent drives an agent with arbitrary messages, calls and times.
func FuzzAgent(f *testing.F) {
	// A step is a delay, an operation, its arguments, and whether an event is consumed.
	step := func(args ...byte) []byte { return append(append([]byte{1}, args...), 0) }
	receive := func(attr wire.Attr, args ...byte) []byte {
		i, _ := attr.Index()
		return step(append([]byte{opMessage, 0, byte(i), 0, 0}, args...)...)
	}
	raw := func(attr wire.Attr, m message) []byte {
		return step(append([]byte{opRaw}, m.Append(wire.NewMADHeader(attr, 7).Append(nil))...)...)
	}
	req := receive(wire.AttrREQ, 1, 1, 3, 0, 0, 0)
	accept, establish, disconnect := step(opCall, 0, 0, 1), step(opCall, 0, 6), step(opCall, 0, 5)
	fire := step(opTime)
	f.Add(slices.Concat(req, req, accept, req, receive(wire.AttrRTU), receive(wire.AttrDREQ), receive(wire.AttrDREQ), fire))
	f.Add(slices.Concat(req, accept, fire, establish, receive(wire.AttrDREQ), req, fire))
	f.Add(slices.Concat(step(opConnect, 1), fire, receive(wire.AttrREP, 2, 9), receive(wire.AttrREP, 2, 9), step(opCall, 0, 2), disconnect, receive(wire.AttrDREP)))
	f.Add(slices.Concat(step(opConnect, 1), receive(wire.AttrMRA, 0, 20), fire, receive(wire.AttrREJ, 0, 10), fire))
	f.Add(slices.Concat(step(opConnect, 0), step(opEcho, 40, 1), fire, receive(wire.AttrSIDRREP)))
	f.Add(slices.Concat(receive(wire.AttrSIDRREQ, 3, 5), step(opCall, 0, 8), receive(wire.AttrLAP), receive(wire.AttrAPR)))
	f.Add(slices.Concat(raw(wire.AttrREQ, newREQ()), accept, raw(wire.AttrRTU, &wire.RTU{LocalCommID: 0x01020304, RemoteCommID: 1})))
	f.Fuzz(func(t *testing.T, b []byte) { runScript(t, b) })
}
