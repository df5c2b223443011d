package cm

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestDREQAndDuplicatesAreAnswered(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	dreq := w.pass(w.a, wire.AttrDREQ)
	w.b.event(EventDisconnectRequested)
	drep := w.b.take(wire.AttrDREP)

	w.deliver(dreq) // during time wait
	if s := w.b.take(wire.AttrDREP); s.b != drep.b {
		t.Error("the DREP changed")
	}
	w.b.noEvent()
	w.tick(w.b)
	w.b.event(EventTimeWaitExit)
	w.b.inState(cb, StateIdle)
	w.deliver(dreq) // after time wait
	if s := w.b.take(wire.AttrDREP); s.b != drep.b {
		t.Error("the DREP changed")
	}
	w.b.noEvent()
	w.deliver(drep)
	w.a.event(EventDisconnected)
	w.deliver(drep)
	w.a.noEvent()
	if n := w.a.Counters().Duplicates[wire.AttrDREP-wire.AttrREQ]; n != 1 {
		t.Errorf("%d duplicate DREPs, want 1", n)
	}
}

// After Disconnect, the agent still answers a DREQ of the peer.
func TestDREQAfterDisconnectIsAnswered(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	must.Do(t, w.b.Disconnect(w.now, cb, nil))
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	fromA, fromB := w.a.take(wire.AttrDREQ), w.b.take(wire.AttrDREQ)
	w.deliver(fromB)
	w.a.event(EventDisconnected)
	w.pass(w.a, wire.AttrDREP)
	w.b.event(EventDisconnected)
	w.deliver(fromA)
	s := w.b.take(wire.AttrDREP)
	if s.TID != fromA.TID {
		t.Errorf("DREP of transaction %x, want %x", s.TID, fromA.TID)
	}
	w.b.noEvent()
}

func TestBothDisconnectAtOnce(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	must.Do(t, w.a.Disconnect(w.now, ca, []byte("a")))
	must.Do(t, w.b.Disconnect(w.now, cb, []byte("b")))
	fromA, fromB := w.a.take(wire.AttrDREQ), w.b.take(wire.AttrDREQ)
	w.deliver(fromA)
	w.deliver(fromB)
	for _, h := range []*host{w.a, w.b} {
		h.event(EventDisconnected)
		h.take(wire.AttrDREP) // lost, without effect
		h.noEvent()
		w.tick(h)
		h.event(EventTimeWaitExit)
		checkEmpty(t, h.Agent)
	}
}

// If the RTU is lost and the peer disconnects, the passive side gets
// EventDisconnectRequested.
func TestDREQInsteadOfRTU(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.confirmed()
	w.a.take(wire.AttrRTU)
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	w.pass(w.a, wire.AttrDREQ)
	w.b.event(EventDisconnectRequested)
	w.pass(w.b, wire.AttrDREP)
	w.b.inState(cb, StateTimeWait)
	w.a.event(EventDisconnected)
}

func TestDREQForAnotherQueuePair(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	w.inject(addrA, wire.AttrDREQ, &wire.DREQ{LocalCommID: uint32(ca), RemoteCommID: uint32(cb), RemoteQPN: answer.QPN + 1})
	w.b.sendsNothing()
	w.b.noEvent()
	w.b.inState(cb, StateEstablished)
	if w.b.Counters().BadQPN != 1 {
		t.Error("the DREQ was not counted")
	}
}

// Close in any state leaves no connection, raises no event and informs the peer.
func TestCloseInEveryState(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reach func(*world) (*host, ConnID)
		sends wire.Attr
	}{
		{"REQ sent", func(w *world) (*host, ConnID) { id := w.connect(); w.a.take(wire.AttrREQ); return w.a, id }, wire.AttrREJ},
		{"REQ received", func(w *world) (*host, ConnID) { _, cb := w.requested(); return w.b, cb }, wire.AttrREJ},
		{"REP sent", func(w *world) (*host, ConnID) { _, cb := w.accepted(); w.b.take(wire.AttrREP); return w.b, cb }, wire.AttrREJ},
		{"REP received", func(w *world) (*host, ConnID) { ca, _ := w.replied(); return w.a, ca }, wire.AttrREJ},
		{"established", func(w *world) (*host, ConnID) { ca, _ := w.established(); return w.a, ca }, wire.AttrDREQ},
		{"DREQ sent", func(w *world) (*host, ConnID) {
			ca, _ := w.established()
			must.Do(w.t, w.a.Disconnect(w.now, ca, nil))
			w.a.take(wire.AttrDREQ)
			return w.a, ca
		}, 0},
		{"SIDR_REQ sent", func(w *world) (*host, ConnID) {
			id := must.Get(w.a.SIDRRequest(w.now, SIDRParam{ServiceID: service, Path: Path{Local: addrA, Remote: addrB}}))(w.t)
			w.a.take(wire.AttrSIDRREQ)
			return w.a, id
		}, 0},
		{"SIDR_REQ received", func(w *world) (*host, ConnID) {
			must.Get(w.a.SIDRRequest(w.now, SIDRParam{ServiceID: service, Path: Path{Local: addrA, Remote: addrB}}))(w.t)
			w.pass(w.a, wire.AttrSIDRREQ)
			return w.b, w.b.event(EventSIDRRequest).Conn
		}, wire.AttrSIDRREP},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{MaxRetries: 2}, Config{})
			h, id := tc.reach(w)
			must.Do(t, h.Close(w.now, id))
			if tc.sends != 0 {
				h.take(tc.sends)
			}
			h.sendsNothing()
			must.Fail(t, "second Close", h.Close(w.now, id), ErrUnknown)
			for h.NextTimer() != mono.Never {
				w.tick(h)
				for {
					if _, ok := h.next(); !ok {
						break
					}
				}
			}
			h.noEvent()
			checkEmpty(t, h.Agent)
		})
	}
}

func TestClosedConnectionAnswersADREQ(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	must.Do(t, w.b.Close(w.now, cb))
	w.b.take(wire.AttrDREQ) // lost
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	w.pass(w.a, wire.AttrDREQ)
	w.pass(w.b, wire.AttrDREP)
	w.a.event(EventDisconnected)
	w.b.noEvent()
}

// A retransmitted DREP has the transaction ID of the duplicate DREQ.
func TestRetransmittedDREPHasNewTransactionID(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	must.Do(t, w.a.Disconnect(w.now, ca, nil))
	w.pass(w.a, wire.AttrDREQ)
	w.b.take(wire.AttrDREP)
	w.inject(addrA, wire.AttrDREQ, &wire.DREQ{LocalCommID: uint32(ca), RemoteCommID: uint32(cb), RemoteQPN: answer.QPN})
	if s := w.b.take(wire.AttrDREP); s.TID != injectTID {
		t.Errorf("DREP of transaction %x, want %x", s.TID, injectTID)
	}
}
