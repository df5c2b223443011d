package iwarp

import (
	"math"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Segments are counted in 32 bits: a request completes when its segments were accepted, also
// after the counter has wrapped.
func TestSegmentCountersWrap(t *testing.T) {
	s := newSide(t, depth, Policy{})
	s.stream.segmentsOutput, s.stream.segmentsAccepted = math.MaxUint32, math.MaxUint32
	for i := range uint64(3) {
		s.post(i, verbs.OpSend, nil)
		if s.out(1442) == nil {
			t.Fatal("no segment is output")
		}
	}
	s.wantSends()
	s.stream.Accepted(1)
	s.wantSends("0")
	s.stream.Accepted(2)
	s.wantSends("0", "1", "2")

	s.stream.segmentsOutput, s.stream.segmentsAccepted = math.MaxUint32-1, math.MaxUint32-1
	s.post(3, verbs.OpSend, nil) // its last segment is 2^32-1
	s.post(4, verbs.OpSend, nil) // its last segment is 0
	for range 2 {
		s.out(1442)
	}
	s.stream.Accepted(1)
	s.wantSends("0", "1", "2", "3")
}

// A stream is not idle before the layer below has accepted its response.
func TestIdleWaitsUntilSegmentsAreAccepted(t *testing.T) {
	s := newSide(t, depth, Policy{})
	r, _ := s.region(8, allAccess)
	s.in(readRequest(1, readOf(r, 0, 8)))
	if s.stream.Idle() || s.stream.WaitsForPeer() {
		t.Error("idle before the response")
	}
	s.out(1442)
	if s.stream.Idle() || s.stream.WaitsForPeer() {
		t.Error("idle before the response is accepted")
	}
	s.stream.Accepted(1)
	if !s.stream.Idle() || !s.stream.WaitsForPeer() {
		t.Error("not idle after the response was accepted")
	}
}

// After Drop the stream does not wait for segments to be accepted.
func TestDropStopsWaitingForSegments(t *testing.T) {
	for _, terminate := range []bool{false, true} {
		s := newSide(t, depth, Policy{})
		s.post(1, verbs.OpSend, nil)
		s.out(1442)
		s.stream.Fail(wire.TermMPAClosed, terminate)
		if s.stream.Idle() {
			t.Errorf("terminate %v: idle before its segment is accepted", terminate)
		}
		s.stream.Drop()
		if b := s.out(1442); b != nil || !s.stream.Idle() {
			t.Errorf("terminate %v: outputs %x, idle %v", terminate, b, s.stream.Idle())
		}
	}
}

// A Terminate about a completed Write must not fail an unsent Write to the same address.
func TestTerminateDoesNotFailUnsentRequest(t *testing.T) {
	for _, sent := range []bool{false, true} {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(8, allAccess)
		s.post(1, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 0, 8)}, to(9, 64))
		s.all(1442)
		s.wantSends("1")
		s.post(2, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 0, 8)}, to(9, 64))
		want := "2 IBV_WC_WR_FLUSH_ERR"
		if sent {
			s.out(1442)
			want = "2 IBV_WC_REM_ACCESS_ERR"
		}
		g := untagged(wire.OpTerminate, 1, 0, nil, true)
		g.Terminate = wire.Terminate{Error: wire.TermTaggedSTag, HasLength: true, HasDDP: true, DDP: tagged(wire.OpWrite, 9, 64, nil, true).Header}
		s.in(g)
		s.wantSends("1", want)
	}
}

// RFC 7306, 5.4: a Send may be delivered before an earlier atomic is executed, but other
// atomics and reads may not. Local requests wait at a fence.
func TestAtomicsWaitForEarlierReadsSendsDoNot(t *testing.T) {
	s := newSide(t, depth, Policy{})
	r, mem := s.region(4096, allAccess)
	word, _ := s.region(8, allAccess)
	s.recv(1)
	s.in(readRequest(1, readOf(r, 0, 4000)))
	s.in(atomicRequest(2, wire.AtomicRequest{RequestID: 2, STag: wire.STag(r.Key), TO: r.Addr + 4088, AddSwap: 5}))
	s.in(untagged(wire.OpSend, 1, 0, nil, true))
	s.in(tagged(wire.OpWrite, r.Key, r.Addr+4080, []byte{7}, true))
	s.in(readRequest(3, readOf(r, 4088, 8)))
	s.wantReceived("1:0")
	if mem[4088] != 0 || mem[4080] != 7 {
		t.Errorf("after the atomic %d, after the later write %d", mem[4088], mem[4080])
	}
	responses := s.all(1442)
	if last := responses[len(responses)-1]; mem[4088] != 5 || len(last.Payload) != 8 || last.Payload[0] != 5 {
		t.Errorf("after the atomic %d, the later read has %x", mem[4088], last.Payload)
	}

	s.post(2, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(word, 0, 8)}, to(9, 0))
	s.post(3, verbs.OpSend, nil, flags(verbs.SendFence))
	if segs := s.all(1442); len(segs) != 1 {
		t.Fatalf("the fence let %d segments through", len(segs))
	}
	g := untagged(wire.OpAtomicResponse, 1, 0, nil, true)
	g.AtomicResponse.RequestID = 1
	s.in(g)
	if segs := s.all(1442); len(segs) != 1 {
		t.Errorf("%d segments after the fence", len(segs))
	}
	s.wantSends("2", "3")
}
