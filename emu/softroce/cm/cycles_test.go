package cm

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// cycle connects and disconnects the same queue pairs, and waits for the end of time wait.
func (w *world) cycle() {
	ca, cb := w.established()
	h, id := w.a, ca
	if ca%2 == 0 {
		h, id = w.b, cb
	}
	must.Do(w.t, h.Disconnect(w.now, id, nil))
	for _, h := range []*host{w.a, w.b, w.a} { // DREQ, DREP
		for {
			s, ok := h.next()
			if !ok {
				break
			}
			w.deliver(s)
		}
	}
	w.now = max(w.a.NextTimer(), w.b.NextTimer())
	for _, h := range []*host{w.a, w.b} {
		h.HandleTimer(w.now)
		for {
			e, ok := h.NextEvent()
			if !ok {
				w.t.Fatal("no final event")
			}
			if e.Final {
				break
			}
		}
	}
}

func TestTenThousandConnectionsLeaveNoState(t *testing.T) {
	w := newWorld(t, Config{MaxConns: 4}, Config{MaxConns: 4})
	for range 10000 {
		w.cycle()
		checkEmpty(t, w.a.Agent)
		checkEmpty(t, w.b.Agent)
	}

	if c := w.b.Counters(); c.Received[0] != 10000 || c.Refused != 0 {
		t.Errorf("counters %+v", c)
	}
}

// Queue pairs can be reused before the end of time wait.
func TestReconnectAtOnce(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	for range 1000 {
		ca, _ := w.established()
		must.Do(t, w.a.Disconnect(w.now, ca, nil))
		w.pass(w.a, wire.AttrDREQ)
		w.pass(w.b, wire.AttrDREP)
		w.a.event(EventDisconnected)
		w.b.event(EventDisconnectRequested)
		w.now += 1000
	}
	if len(w.a.conns) != 1000 || len(w.b.conns) != 1000 {
		t.Errorf("%d and %d in time wait, want 1000", len(w.a.conns), len(w.b.conns))
	}
	w.now = w.now.Add(wire.CMTimeout(20))
	for _, h := range []*host{w.a, w.b} {
		h.HandleTimer(w.now)
		for range 1000 {
			h.event(EventTimeWaitExit)
		}
		checkEmpty(t, h.Agent)
	}
}

// BenchmarkCycle measures connect and disconnect of both sides: five MADs, until
// both have left time wait.
func BenchmarkCycle(b *testing.B) {
	active, passive := New(Config{CAGUID: guidA}), New(Config{CAGUID: guidB})
	must.Get(passive.Listen(service, netip.Addr{}, 0))(b)
	now := mono.Time(1)
	move := func(from, to *Agent) {
		for {
			out, ok := from.NextMAD()
			if !ok {
				return
			}
			to.HandleMAD(now, out.Local, out.Remote, out.PKey, out.MAD[:])
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		id, err := active.Connect(now, offer)
		move(active, passive)
		req, _ := passive.NextEvent()
		err = errors.Join(err, passive.Accept(now, req.Conn, answer))
		move(passive, active)
		active.NextEvent()
		err = errors.Join(err, active.ConfirmReply(now, id, nil))
		move(active, passive)
		passive.NextEvent()
		err = errors.Join(err, active.Disconnect(now, id, nil))
		move(active, passive)
		move(passive, active)
		now = max(active.NextTimer(), passive.NextTimer())
		active.HandleTimer(now)
		passive.HandleTimer(now)
		for active.events.Len()+passive.events.Len() > 0 {
			active.NextEvent()
			passive.NextEvent()
		}
		if err != nil || len(active.conns)+len(passive.conns) != 0 {
			b.Fatal(err)
		}
	}
}
