package cm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestConsumerRejectsARequest(t *testing.T) {
	for name, delayed := range map[string]bool{"at once": false, "after an MRA": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			ca, cb := w.requested()
			wantID := uint32(0) // the peer does not know our ID
			if delayed {
				w.b.delayReply(cb, 20)
				w.pass(w.b, wire.AttrMRA)
				w.a.event(EventMRA)
				wantID = uint32(cb)
			}
			must.Do(t, w.b.Reject(w.now, cb, wire.ReasonPortRedirect, []byte("info"), []byte("private")))
			s := w.pass(w.b, wire.AttrREJ)
			if rej := rejOf(t, s); rej.LocalCommID != wantID || rej.RemoteCommID != uint32(ca) || rej.About != wire.AboutREQ {
				t.Errorf("REJ %+v", rej)
			}
			e := w.a.event(EventRejected)
			if e.Conn != ca || !e.Final || e.ByUs || e.Reason != wire.ReasonPortRedirect || string(e.Info) != "info" ||
				!bytes.HasPrefix(e.PrivateData, []byte("private")) || len(e.PrivateData) != wire.REJPrivateLen {
				t.Errorf("event %+v", e)
			}
			checkEmpty(t, w.a.Agent)
			checkEmpty(t, w.b.Agent)
		})
	}
}

func TestConsumerRejectsAReply(t *testing.T) {
	for name, delayed := range map[string]bool{"at once": false, "after an MRA": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			ca, cb := w.replied()
			if delayed {
				w.a.delayReply(ca, 20)
				w.pass(w.a, wire.AttrMRA)
				w.b.event(EventMRA)
			}
			must.Do(t, w.a.Reject(w.now, ca, wire.ReasonResponderResources, nil, nil))
			if rej := rejOf(t, w.pass(w.a, wire.AttrREJ)); rej.LocalCommID != uint32(ca) || rej.RemoteCommID != uint32(cb) || rej.About != wire.AboutREP {
				t.Errorf("REJ %+v", rej)
			}
			if e := w.b.event(EventRejected); e.Conn != cb || e.Reason != wire.ReasonResponderResources || e.About != wire.AboutREP || e.Final {
				t.Errorf("event %+v", e)
			}
			checkEmpty(t, w.a.Agent)
			w.b.inState(cb, StateTimeWait)
		})
	}
}

// The consumer revokes an Accept before the RTU arrives.
func TestRejectAfterAccept(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.confirmed()
	must.Do(t, w.b.Reject(w.now, cb, wire.ReasonConsumer, nil, nil))
	w.b.inState(cb, StateTimeWait)
	w.b.take(wire.AttrREJ) // lost
	w.pass(w.a, wire.AttrRTU)
	if rej := rejOf(t, w.pass(w.b, wire.AttrREJ)); rej.Reason != wire.ReasonInvalidCommID {
		t.Errorf("REJ %+v", rej)
	}
	if e := w.a.event(EventDisconnected); e.Conn != ca || e.Final {
		t.Errorf("event %+v", e)
	}
	w.a.inState(ca, StateTimeWait)
}

func TestLIDReasonsAreNeverSent(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	_, cb := w.requested()
	for _, r := range []wire.REJReason{wire.ReasonPrimaryLID, wire.ReasonAlternateLID} {
		must.Fail(t, fmt.Sprintf("Reject(%d)", uint16(r)), w.b.Reject(w.now, cb, r, nil, nil), ErrParam)
	}
	must.Fail(t, "Reject with 73 bytes of info", w.b.Reject(w.now, cb, wire.ReasonConsumer, make([]byte, 73), nil), wire.ErrTooLong)
	must.Fail(t, "Reject with 149 private bytes", w.b.Reject(w.now, cb, wire.ReasonConsumer, nil, make([]byte, 149)), wire.ErrTooLong)
	w.b.sendsNothing()
	w.b.inState(cb, StateREQRcvd)
}

// A REJ in each state: the event and the next state.
func TestREJInEveryState(t *testing.T) {
	other := func(local, remote ConnID) *wire.REJ {
		return &wire.REJ{LocalCommID: uint32(remote), RemoteCommID: uint32(local), About: wire.AboutOther, Reason: wire.ReasonConsumer}
	}
	for _, tc := range []struct {
		name  string
		reach func(*world) (h *host, id, peer ConnID)
		event EventKind
		next  State
	}{
		{"REQ sent", func(w *world) (*host, ConnID, ConnID) { return w.a, w.connect(), 7 }, EventRejected, StateIdle},
		{"REQ received", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.requested()
			return w.b, cb, ca
		}, EventRejected, StateIdle},
		{"MRA(REQ) sent", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.requested()
			w.b.delayReply(cb, 20)
			return w.b, cb, ca
		}, EventRejected, StateIdle},
		{"MRA(REQ) received", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.requested()
			w.b.delayReply(cb, 20)
			w.pass(w.b, wire.AttrMRA)
			w.a.event(EventMRA)
			return w.a, ca, cb
		}, EventRejected, StateIdle},
		{"REP sent", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.accepted()
			return w.b, cb, ca
		}, EventRejected, StateTimeWait},
		{"REP received", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.replied()
			return w.a, ca, cb
		}, EventRejected, StateTimeWait},
		{"MRA(REP) sent", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.replied()
			w.a.delayReply(ca, 20)
			return w.a, ca, cb
		}, EventRejected, StateTimeWait},
		{"MRA(REP) received", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.replied()
			w.a.delayReply(ca, 20)
			w.pass(w.a, wire.AttrMRA)
			w.b.event(EventMRA)
			return w.b, cb, ca
		}, EventRejected, StateTimeWait},
		{"established, active", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.established()
			return w.a, ca, cb
		}, EventDisconnected, StateTimeWait},
		{"established, passive", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.established()
			return w.b, cb, ca
		}, EventDisconnected, StateTimeWait},
		{"DREQ sent", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.established()
			must.Do(w.t, w.a.Disconnect(w.now, ca, nil))
			return w.a, ca, cb
		}, EventDisconnected, StateTimeWait},
		{"time wait", func(w *world) (*host, ConnID, ConnID) {
			ca, cb := w.established()
			must.Do(w.t, w.a.Disconnect(w.now, ca, nil))
			w.pass(w.a, wire.AttrDREQ)
			w.b.event(EventDisconnectRequested)
			return w.b, cb, ca
		}, 0, StateTimeWait},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			h, id, peer := tc.reach(w)
			from := addrB
			if h == w.b {
				from = addrA
			}
			h.HandleMAD(w.now, from, h.addr, 0xFFFF, other(id, peer).Append(wire.NewMADHeader(wire.AttrREJ, 1).Append(nil)))
			checkInvariants(t, h.Agent)
			if tc.event == 0 {
				h.noEvent()
			} else if e := h.event(tc.event); e.Final != (tc.next == StateIdle) {
				t.Errorf("event %+v", e)
			}
			h.inState(id, tc.next)
		})
	}
}

func TestStaleREJEntersTimeWait(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca := w.connect()
	w.a.take(wire.AttrREQ)
	rej := wire.REJ{RemoteCommID: uint32(ca), About: wire.AboutREQ, Reason: wire.ReasonStale}
	w.a.HandleMAD(w.now, addrB, addrA, 0xFFFF, rej.Append(wire.NewMADHeader(wire.AttrREJ, 1).Append(nil)))
	if e := w.a.event(EventRejected); e.Final || e.Reason != wire.ReasonStale {
		t.Errorf("event %+v", e)
	}
	w.a.inState(ca, StateTimeWait)
	w.tick(w.a)
	w.a.event(EventTimeWaitExit)
	checkEmpty(t, w.a.Agent)
}

// A requester that times out before it knows the remote ID sends its GUID.
func TestTimeoutREJBeforeREP(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.requested()
	must.Do(t, w.a.Close(w.now, ca))
	w.pass(w.a, wire.AttrREJ)
	if e := w.b.event(EventRejected); e.Conn != cb || e.Reason != wire.ReasonTimeout || !e.Final {
		t.Errorf("event %+v", e)
	}
	must.Fail(t, "Accept", w.b.Accept(w.now, cb, answer), ErrUnknown)
	checkEmpty(t, w.a.Agent)
	checkEmpty(t, w.b.Agent)
}

// A REJ for a duplicate REQ that arrives after the REP is ignored.
func TestLateREJOfREQIsIgnored(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca := w.connect()
	req := w.pass(w.a, wire.AttrREQ)
	must.Do(t, w.b.Reject(w.now, w.b.event(EventRequest).Conn, wire.ReasonConsumer, nil, nil))
	rej := w.b.take(wire.AttrREJ)
	w.deliver(req)
	must.Do(t, w.b.Accept(w.now, w.b.event(EventRequest).Conn, answer))
	w.pass(w.b, wire.AttrREP)
	w.a.event(EventReply)
	w.deliver(rej)
	w.a.noEvent()
	w.a.inState(ca, StateREPRcvd)
	if n := w.a.Counters().WrongState; n != 1 {
		t.Errorf("counted %d, want 1", n)
	}
}
