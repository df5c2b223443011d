package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// isolated makes an error of a peer end only the flow of that peer, and not the QP.
func isolated(c *QPConfig) { c.Isolate = true }

// Requests to an unreachable peer fail. Requests to other peers succeed, and so do later ones to
// that peer when it is reachable.
func TestRDUnreachablePeerDoesNotFailOthers(t *testing.T) {
	w, a, b := pair(t, true)
	unreachable := w.host().newQP(true)
	dropping := true
	w.intercept = func(d *link.Datagram, _ *wire.Packet) bool { return dropping && d.Dst.Addr() == unreachable.h.addr }
	for i := range 3 {
		a.send(unreachable, uint64(i), 10)
	}
	w.run(12 * time.Second)
	done := a.expectCompletions(3)
	if done[0].Status != verbs.WCRetryExcErr || done[0].WRID != 0 || done[1].Status != verbs.WCWRFlushErr || done[2].WRID != 2 || a.state != verbs.QPStateRTS {
		t.Errorf("%+v, state %v", done, a.state)
	}
	b.recv(1, 0, 100)
	a.send(b, 3, 10)
	dropping = false
	unreachable.recv(1, 0, 100)
	a.send(unreachable, 4, 10)
	w.run(time.Second)
	a.expectSuccess(2)
	b.expectSuccess(1)
	unreachable.expectSuccess(1)
	if len(a.free) != a.Caps.MaxSendWR {
		t.Errorf("%d of %d send queue entries are free", len(a.free), a.Caps.MaxSendWR)
	}
}

// If a peer restarts, its incomplete message is flushed, and its new messages arrive.
func TestRDIncompleteMessageIsFlushed(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 50_000)
	b.recv(2, 0, 50_000)
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool { return len(k.ULPDU) > 0 && k.ULPDU[0]&lastFlag != 0 }
	a.send(b, 1, 20_000)
	w.run(time.Millisecond)
	b.expectCompletions(0)
	w.intercept = nil
	cfg := *a.h.nic.Config()
	cfg.Secret[5]++
	a.h.start(cfg)
	restarted := a.h.newQP(true)
	restarted.send(b, 2, 100)
	w.run(time.Second)
	restarted.expectSuccess(1)
	done := b.expectCompletions(2)
	if done[0].WRID != 1 || done[0].Status != verbs.WCWRFlushErr || done[1].Status != verbs.WCSuccess || b.state != verbs.QPStateRTS {
		t.Errorf("%+v, state %v", done, b.state)
	}
	// The same if the peer sends no more.
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool { return len(k.ULPDU) > 0 && k.ULPDU[0]&lastFlag != 0 }
	b.recv(3, 0, 50_000)
	restarted.send(b, 3, 20_000)
	w.run(time.Minute)
	if wc := b.expectCompletions(1)[0]; wc.WRID != 3 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
	if wc := restarted.expectCompletions(1)[0]; wc.Status != verbs.WCRetryExcErr {
		t.Errorf("%+v", wc)
	}
}

// A request that is invalid at the peer fails, and by default moves the peer's QP to error.
func TestRDRemoteErrorFailsRequest(t *testing.T) {
	for _, loss := range []int{0, 20} {
		for _, tc := range []struct {
			name     string
			wr       func(a, b *testQP) verbs.SendWR
			want     verbs.WCStatus
			reported ddp.TermError
			msn      ddp.MSN // of the message in error; a tagged one has none
		}{
			{"write", func(a, b *testQP) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}}
			}, verbs.WCRemAccessErr, ddp.TermTaggedSTag, 0},
			{"read", func(a, b *testQP) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}}
			}, verbs.WCRemAccessErr, ddp.TermProtInvalidSTag, 1},
			{"send", func(a, b *testQP) verbs.SendWR {
				b.recv(1, 0, 50)
				return verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 11)}
			}, verbs.WCRemInvReqErr, ddp.TermUntaggedTooLong, 2},
		} {
			w, a, b := pair(t, true)
			w.lossPercent = loss
			b.recv(7, 0, 1000)
			a.send(b, 1, 10)
			w.run(time.Second)
			a.expectSuccess(1)
			b.expectSuccess(1)
			a.post(b, tc.wr(a, b))
			w.run(2 * time.Second)
			wc := a.expectCompletions(1)[0]
			r, ok := a.LastError()
			// The peer may acknowledge a write or send, which completes it, before it finds the
			// error: then LastError alone has the error.
			if wc.Status != tc.want && (tc.name == "read" || wc.Status != verbs.WCSuccess) || !ok || r.Error != tc.reported {
				t.Errorf("%s: %v, reported %+v", tc.name, wc.Status, r)
			}
			if want := tc.msn; r.MSN != want || r.HasMSN != (want != 0) {
				t.Errorf("%s: reported MSN %d (%v), want %d", tc.name, r.MSN, r.HasMSN, want)
			}
			if b.state != verbs.QPStateErr || a.state != verbs.QPStateRTS {
				t.Errorf("%s: states %v and %v", tc.name, a.state, b.state)
			}
			// The failed QP refuses further requests.
			a.send(b, 2, 10)
			w.run(15 * time.Second)
			if wc := a.expectCompletions(1)[0]; wc.Status != verbs.WCRetryExcErr {
				t.Errorf("%s: next request: %+v", tc.name, wc)
			}
		}
	}
}

// Isolated QPs stay in RTS, and the flow restarts after an error.
func TestRDIsolatedQPSurvivesPeerErrors(t *testing.T) {
	for _, loss := range []int{0, 20} {
		w, a, b := pair(t, true, isolated)
		c := w.host().newQP(true, isolated)
		w.lossPercent, w.latePercent = loss, loss
		for round := range 5 {
			bad := verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}}
			a.post(b, bad)
			w.run(2 * time.Second)
			if wc := a.expectCompletions(1)[0]; wc.Status != verbs.WCRemAccessErr {
				t.Fatalf("round %d: %+v", round, wc)
			}
			b.recv(1, 0, 100)
			b.recv(2, 0, 100)
			a.send(b, 1, 10)
			c.send(b, 2, 10)
			w.run(2 * time.Second)
			a.expectSuccess(1)
			c.expectSuccess(1)
			b.expectSuccess(2)
			// The other direction works too.
			a.recv(1, 0, 100)
			b.send(a, 1, 10)
			w.run(2 * time.Second)
			a.expectSuccess(1)
			b.expectSuccess(1)
		}
		if a.state != verbs.QPStateRTS || b.state != verbs.QPStateRTS {
			t.Errorf("states %v and %v", a.state, b.state)
		}
	}
}

// Requests posted after an invalid one are flushed, until its error is reported.
func TestRDErrorFlushesLaterRequests(t *testing.T) {
	w, a, b := pair(t, true, isolated)
	b.recv(1, 0, 100)
	b.recv(2, 0, 100)
	a.post(b, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 99}})
	a.send(b, 2, 10)
	w.run(time.Second)
	done := a.expectCompletions(2)
	if done[0].Status != verbs.WCRemAccessErr || done[1].Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", done)
	}
	a.send(b, 3, 10)
	w.run(time.Second)
	a.expectSuccess(1)
}

// A reset QP does not know the flows of its peers.
func TestRDResetEndsFlows(t *testing.T) {
	w, a, b := pair(t, true)
	for i := range 3 {
		b.recv(1, 0, 100)
		a.send(b, uint64(i), 10)
		w.run(time.Second)
		b.expectSuccess(1)
		a.expectSuccess(1)
		must.Do(t, b.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		b.toRTS()
		b.recv(1, 0, 100)
		// The first request fails, since its flow is unknown. The next starts a new flow.
		a.send(b, 10, 10)
		w.run(time.Second)
		if wc := a.expectCompletions(1)[0]; wc.Status != verbs.WCRetryExcErr {
			t.Errorf("%+v", wc)
		}
		a.send(b, 11, 10)
		w.run(time.Second)
		a.expectSuccess(1)
		b.expectSuccess(1)
	}
}

func TestRDLocalErrorMovesQPToError(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	bad := a.sge(0, 10)
	bad[0].LKey = 77
	a.post(b, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: bad})
	w.run(time.Second)
	if wc := a.expectCompletions(1)[0]; wc.Status != verbs.WCLocProtErr || a.state != verbs.QPStateErr {
		t.Errorf("%+v, state %v", wc, a.state)
	}
}

// If responses are lost, the following requests fail too. Then the flow restarts.
func TestRDLostResponsesFailRequests(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	b.recv(2, 0, 100)
	remote := verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}
	a.send(b, 1, 10)
	w.run(time.Second)
	a.expectSuccess(1)
	b.expectSuccess(1)
	dropping := true
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		return dropping && d.Src.Addr() == b.h.addr && k.Flags.Has(wire.FlagData)
	}
	a.post(b, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMARead, SGL: a.sge(0, 100), Remote: remote})
	// The requests of a arrive until b stops to retransmit responses.
	posted := 1
	for ; len(a.done) == 0 && posted < 20; posted++ {
		a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: remote})
		w.run(time.Second)
	}
	done := a.expectCompletions(posted)
	if done[0].WRID != 2 || done[0].Status != verbs.WCRetryExcErr || done[1].Status != verbs.WCWRFlushErr || posted < 10 || posted > 13 {
		t.Errorf("after %d seconds: %+v", posted, done)
	}
	dropping = false
	a.send(b, 4, 10)
	w.run(time.Second)
	a.expectSuccess(1)
	b.expectSuccess(1)
}

// If a peer restarts while it has not acknowledged responses, its new flow is accepted.
func TestRDRestartedPeerWithLostResponsesIsServed(t *testing.T) {
	w, a, b := pair(t, true)
	remote := verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		return d.Src.Addr() == b.h.addr && k.Flags.Has(wire.FlagData)
	}
	a.post(b, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: a.sge(0, 100), Remote: remote})
	w.run(time.Millisecond)
	w.intercept = nil
	cfg := *a.h.nic.Config()
	cfg.Secret[5]++
	a.h.start(cfg)
	restarted := a.h.newQP(true)
	b.recv(2, 0, 100)
	restarted.send(b, 2, 10)
	w.run(time.Second)
	restarted.expectSuccess(1)
	b.expectSuccess(1)
}

// A flow restarts after a refused request only when the responses in it were delivered.
func TestRDFlowRestartsAfterItsResponses(t *testing.T) {
	w, a, b := pair(t, true, isolated)
	w.lossPercent = 10
	fromA := verbs.Remote{Addr: a.h.mr.Addr, RKey: verbs.RKey(a.h.mr.Key)}
	a.fill(0, 100_000, 3)
	for round := range 10 {
		b.post(a, verbs.SendWR{WRID: 7, Opcode: verbs.OpRDMARead, SGL: b.sge(0, 100_000), Remote: fromA})
		w.run(time.Duration(round*20) * time.Microsecond)
		a.post(b, verbs.SendWR{WRID: 8, Opcode: verbs.OpRDMARead, SGL: a.sge(recvAt, 10), Remote: verbs.Remote{RKey: 99}})
		// Post other requests as soon as that one has failed.
		for len(a.done) == 0 {
			w.run(20 * time.Microsecond)
		}
		a.expectCompletions(1)
		for i := range 3 {
			b.recv(1, recvAt/2, 100)
			a.send(b, uint64(i), 10)
		}
		w.run(5 * time.Second)
		for i, wc := range a.expectSuccess(3) {
			if wc.WRID != uint64(i) {
				t.Errorf("request %d completed at position %d", wc.WRID, i)
			}
		}
		b.expectSuccess(4)
		if !bytes.Equal(a.bytes(0, 100_000), b.bytes(0, 100_000)) {
			t.Fatal("the READ data differs")
		}
	}
}

// An error message about a response ends the responder stream, any other the requester stream.
func TestRDErrorMessageEndsStreamOfItsSegment(t *testing.T) {
	p := &peer{requester: new(peerStream), responder: new(peerStream)}
	for op, want := range map[ddp.Opcode]*peerStream{
		ddp.OpSend: p.requester, ddp.OpReadRequest: p.requester, ddp.OpReadResponse: p.responder, ddp.OpAtomicResponse: p.responder,
	} {
		about := ddp.Terminate{Error: ddp.TermUntaggedTooLong, HasLength: true, HasDDP: true, SegmentLength: 18}
		about.DDP.Control = ddp.NewControl(op, lastSegment)
		about.DDP.Control.Tagged = op == ddp.OpReadResponse
		if got := p.terminatedStream(about.Append(nil)); got != want {
			t.Errorf("about opcode %v: the responder %v, want %v", op, got == p.responder, want == p.responder)
		}
	}
	none := ddp.Terminate{Error: ddp.TermRDMAPLocal}
	if got := p.terminatedStream(none.Append(nil)); got != p.requester {
		t.Error("an error message about no segment ends the responder")
	}
}
