package iwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// An empty Write is sent before all queued requests and completes none.
func TestEmptyWriteIsSentBeforeQueuedRequests(t *testing.T) {
	s := newSide(t, Options{IRD: 1, ORD: 1}, Policy{})
	r, _ := s.region(64, allAccess)
	s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(3, 0))
	s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 8, 8)}, to(3, 8)) // waits for the first
	if got := s.all(1442); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	if !s.stream.SendEmptyWrite() || s.stream.WaitsForPeer() {
		t.Error("the empty Write is not scheduled")
	}
	if g := s.one(); g.Control.Opcode != wire.OpWrite || !g.Control.Last || len(g.Payload) > 0 {
		t.Errorf("%+v", g)
	}
	s.wantSends()
	s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 8), true))
	if g := s.one(); g.Control.Opcode != wire.OpReadRequest || g.Untagged.MSN != 2 {
		t.Errorf("%+v", g)
	}
	s.wantSends("1")
	s.wantAlive()
}

// Messages are not interleaved: the rest of a partly sent message replaces the empty Write.
func TestEmptyWriteDoesNotInterruptMessage(t *testing.T) {
	s := newSide(t, depth, Policy{})
	r, _ := s.region(2000, allAccess)
	s.post(1, verbs.OpRDMAWriteImm, []verbs.SGE{sge(r, 0, 2000)}, to(3, 0))
	for range 2 {
		s.out(1442)
		if s.stream.SendEmptyWrite() {
			t.Error("scheduled within a message")
		}
	}
	if g := parse(t, s.out(1442)); g.Control.Opcode != wire.OpImmediate {
		t.Errorf("%+v", g)
	}
	if !s.stream.SendEmptyWrite() {
		t.Error("not scheduled between messages")
	}
	s.stream.Fail(wire.TermRDMAPLocal, true)
	if s.stream.SendEmptyWrite() {
		t.Error("scheduled after the end of the stream")
	}
	if g := parse(t, s.out(1442)); g.Control.Opcode != wire.OpTerminate || s.out(1442) != nil {
		t.Errorf("%+v", g)
	}
}

func TestPeerIgnoresEmptyWrite(t *testing.T) {
	s := newSide(t, Options{}, Policy{})
	s.in(tagged(wire.OpWrite, uint32(AnySTag), 0, nil, true))
	s.in(tagged(wire.OpWrite, 0, 0, nil, true))
	s.wantAlive()
	s.wantReceived()
	if s.out(1442) != nil {
		t.Error("an empty Write has a response")
	}
}
