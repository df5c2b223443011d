package iwarp

import (
	"bytes"
	"math"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// readOf returns a Read Request for n octets of r at off.
func readOf(r *nic.Region, off, n int) wire.ReadRequest {
	return wire.ReadRequest{SinkSTag: 0xaaaa5555, SinkTO: 0x1122334455667788, Size: uint32(n), SrcSTag: wire.STag(r.Key), SrcTO: r.Addr + uint64(off)}
}

// readResponse joins the payload of a complete Read Response.
func readResponse(t *testing.T, segs []wire.Segment, q wire.ReadRequest) (b []byte) {
	t.Helper()
	if len(segs) == 0 {
		t.Fatal("no response")
	}
	for i, g := range segs {
		if g.Control.Opcode != wire.OpReadResponse || g.Tagged.STag != q.SinkSTag || g.Tagged.TO != q.SinkTO+uint64(len(b)) || g.Control.Last != (i == len(segs)-1) {
			t.Fatalf("segment %d of the response to %+v is %+v", i, q, g.Header)
		}
		b = append(b, g.Payload...)
	}
	return b
}

var respondRows = map[string]func(*testing.T){
	"rfc5040/4.2/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		g := readRequest(1, readOf(r, 0, 8))
		g.Payload = []byte("tail")
		s.in(g)
		s.wantTerminate(wire.TermUntaggedTooLong, &g)
		for n := range 28 { // too short
			s := newSide(t, depth, Policy{})
			s.stream.Input(piece(wire.OpReadRequest, 1, 0, make([]byte, n), true))
			segs := s.all(1442)
			if len(segs) != 1 || segs[0].Terminate.Error != wire.TermOpUnspecified {
				t.Errorf("%d octets: %+v", n, segs)
			}
		}
	},
	"rfc5040/4.4/2 rfc5040/4.4/3 rfc5040/5.2.1/6 rfc5040/5.2.1/3": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(70000, allAccess)
		pattern(mem, 2)
		s.recv(1)
		for i, n := range []int{1, 1428, 1429, 2856, 60000, 65536} {
			q := readOf(r, i, n)
			s.in(readRequest(wire.MSN(i+1), q))
			if got := readResponse(t, s.all(1442), q); !bytes.Equal(got, mem[i:i+n]) {
				t.Errorf("a read of %d octets returns wrong octets", n)
			}
		}
		s.wantReceived()
		if len(s.recvs) != 1 {
			t.Error("a read consumed a receive")
		}
	},
	"rfc5040/5.2.1/2 rfc5040/5.2.2/2": func(t *testing.T) {
		s := newSide(t, Options{IRD: 3}, Policy{})
		r, _ := s.region(64, allAccess)
		msn := wire.MSN(1)
		for range 5 { // the queue of reads is reused
			for range 3 {
				s.in(readRequest(msn, readOf(r, 0, 8)))
				msn++
			}
			if got := len(s.all(1442)); got != 3 {
				t.Fatalf("%d responses, want 3", got)
			}
		}
		s.wantAlive()
	},
	"rfc5040/6.1/3 rfc5040/8.1.1/4": func(t *testing.T) {
		s := newSide(t, Options{IRD: 3}, Policy{})
		r, _ := s.region(64, allAccess)
		var last wire.Segment
		for i := range 1000 {
			g := readRequest(wire.MSN(i+1), readOf(r, 0, 8))
			if i == 3 {
				last = g
			}
			s.in(g)
		}
		s.wantTerminate(wire.TermUntaggedNoBuffer, &last)
		if got := s.stream.reads.Len(); got != 3 {
			t.Errorf("%d reads are queued", got)
		}
		s = newSide(t, Options{}, Policy{})
		g := readRequest(1, wire.ReadRequest{})
		s.in(g)
		s.wantTerminate(wire.TermUntaggedNoBuffer, &g)
	},
	"rfc5040/5.2.1/5 rfc5040/5.2.2/4 rfc5040/5.5/8": func(t *testing.T) {
		s := newSide(t, Options{IRD: 8}, Policy{})
		r, mem := s.region(8192, allAccess)
		pattern(mem, 7)
		sizes := []int{5000, 1, 0, 3000, 2, 8000, 0, 64}
		var reqs []wire.ReadRequest
		for i, n := range sizes {
			q := readOf(r, i, n)
			q.SinkSTag = wire.STag(i + 1)
			reqs = append(reqs, q)
			s.in(readRequest(wire.MSN(i+1), q))
		}
		segs := s.all(1442)
		for i, q := range reqs {
			end := 0
			for end < len(segs) && !segs[end].Control.Last {
				end++
			}
			if got := readResponse(t, segs[:end+1], q); !bytes.Equal(got, mem[i:i+sizes[i]]) {
				t.Errorf("response %d is wrong", i)
			}
			segs = segs[end+1:]
		}
	},
	"rfc5040/5.2.1/7 rfc5040/5.2.1/10 rfc5040/7.2/4 rfc5040/7.1/4 rfc5042/6.3.5/1": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			r, mem := s.region(64, allAccess)
			writable, _ := s.region(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
			foreign, _ := s.regionOf(s.other, 64, allAccess)
			read := func(stag uint32, to uint64) wire.Segment {
				return readRequest(1, wire.ReadRequest{SinkSTag: 7, SinkTO: 8, Size: 16, SrcSTag: wire.STag(stag), SrcTO: to})
			}
			return mem, []refusal{
				{"unknown STag", read(0xabcdef00, 0), wire.TermProtInvalidSTag},
				{"wrong key octet", read(r.Key^1, r.Addr), wire.TermProtInvalidSTag},
				{"before", read(r.Key, r.Addr-1), wire.TermProtBounds},
				{"over", read(r.Key, r.Addr+56), wire.TermProtBounds},
				{"wraps", read(r.Key, math.MaxUint64-7), wire.TermProtWrap},
				{"another domain", read(foreign.Key, foreign.Addr), wire.TermProtStream},
				{"window of another stream", read(windowOf(s, s.pd, 0x12).Key, r.Addr), wire.TermProtStream},
				{"no right to read", read(writable.Key, writable.Addr), wire.TermProtAccess},
			}
		})
		s := newSide(t, depth, Policy{})
		g := readRequest(1, wire.ReadRequest{SinkSTag: 7, SinkTO: 0x100, Size: 16, SrcSTag: 0xabcdef00})
		s.in(g)
		if term := s.wantTerminate(wire.TermProtInvalidSTag, &g); !term.HasRDMAP || term.Read != g.ReadRequest {
			t.Errorf("%+v", term)
		}
	},
	"rfc5040/5.2.1/8 rfc5042/6.3.5/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		w, _ := s.region(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		for i, stag := range []uint32{0xdeadbeef, 0, w.Key} {
			q := wire.ReadRequest{SinkSTag: 0xaaaa5555, SinkTO: 0x1122334455667788, SrcSTag: wire.STag(stag), SrcTO: math.MaxUint64}
			s.in(readRequest(wire.MSN(i+1), q))
			if got := readResponse(t, s.all(1442), q); len(got) != 0 {
				t.Errorf("%d octets", len(got))
			}
		}
	},
	"rfc5040/5.2.1/9 rfc5042/x/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(64, allAccess)
		pattern(mem, 1)
		s.post(1, verbs.OpSend, []verbs.SGE{sge(r, 0, 64)})
		s.in(readRequest(1, readOf(r, 0, 64)))
		s.in(readRequest(2, wire.ReadRequest{SinkSTag: 3, SinkTO: 4, SrcSTag: 5}))
		s.in(readRequest(3, wire.ReadRequest{SinkSTag: 3, SinkTO: 4, SrcSTag: 5}))
		for _, g := range s.all(1442) {
			if g.Tagged.STag == 3 && len(g.Payload) != 0 {
				t.Errorf("an empty read returns %d octets", len(g.Payload))
			}
		}
	},
	"rfc5040/5.5/3": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("new"), true))
		s.in(readRequest(1, readOf(r, 0, 3)))
		if got := s.one(); string(got.Payload) != "new" {
			t.Errorf("%q", got.Payload)
		}
	},
}

func TestReadResponsePayloadIsNotCopied(t *testing.T) {
	// The payload of a response is the memory itself: the segment is Volatile.
	s := newSide(t, depth, Policy{})
	r, mem := s.region(4096, allAccess)
	s.in(readRequest(1, readOf(r, 0, 4000)))
	if !s.stream.Output(5000, &s.seg) || !s.seg.Volatile || len(s.seg.Payload) != 1 || &s.seg.Payload[0][0] != &mem[0] {
		t.Errorf("%+v", s.seg)
	}
	s.post(1, verbs.OpSend, []verbs.SGE{sge(r, 0, 4000)})
	if !s.stream.Output(5000, &s.seg) || s.seg.Volatile || len(s.seg.Payload) != 1 || &s.seg.Payload[0][0] != &mem[0] {
		t.Errorf("%+v", s.seg)
	}
}

// unaddressable is memory that must be copied.
type unaddressable struct{ b nic.Bytes }

func (m unaddressable) ReadAt(p []byte, off uint64) error  { return m.b.ReadAt(p, off) }
func (m unaddressable) WriteAt(p []byte, off uint64) error { return m.b.WriteAt(p, off) }
func (m unaddressable) Len() uint64                        { return m.b.Len() }
func (m unaddressable) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	return m.b.Update(off, f)
}

func TestUnaddressableMemoryIsCopied(t *testing.T) {
	s := newSide(t, depth, Policy{})
	direct, b := s.region(2000, allAccess)
	pattern(b, 1)
	copied := unaddressable{pattern(make([]byte, 3000), 2)}
	r := must.Get(s.base.RegMR(s.pd, copied, 0, allAccess))(t)
	s.post(1, verbs.OpSend, []verbs.SGE{sge(direct, 0, 2000), sge(r, 0, 3000)})
	var got []byte
	for _, g := range s.all(9000) {
		got = append(got, g.Payload...)
	}
	if want := append(bytes.Clone(b), copied.b...); !bytes.Equal(got, want) {
		t.Error("the payload is not that of the gather list")
	}
	q := readOf(r, 5, 2500)
	s.in(readRequest(1, q))
	if got := readResponse(t, s.all(1442), q); !bytes.Equal(got, copied.b[5:2505]) {
		t.Error("the response differs from the memory")
	}
}

// failingMemory fails every access.
type failingMemory struct{ unaddressable }

func (failingMemory) ReadAt([]byte, uint64) error                        { return nic.ErrMemory }
func (failingMemory) WriteAt([]byte, uint64) error                       { return nic.ErrMemory }
func (failingMemory) Update(uint64, func(uint64) uint64) (uint64, error) { return 0, nic.ErrMemory }

func TestFailingMemoryEndsStream(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*side, *nic.Region) *wire.Segment
		want wire.TermError
	}{
		"write": {func(s *side, r *nic.Region) *wire.Segment {
			g := tagged(wire.OpWrite, r.Key, r.Addr, []byte("x"), true)
			s.in(g)
			return &g
		}, wire.TermDDPLocal},
		"send": {func(s *side, r *nic.Region) *wire.Segment {
			s.recv(1, sge(r, 0, 8))
			g := untagged(wire.OpSend, 1, 0, []byte("x"), true)
			s.in(g)
			return &g
		}, wire.TermDDPLocal},
		"read": {func(s *side, r *nic.Region) *wire.Segment {
			s.in(readRequest(1, readOf(r, 0, 8)))
			return nil
		}, wire.TermRDMAPLocal},
		"atomic": {func(s *side, r *nic.Region) *wire.Segment {
			s.in(atomicRequest(1, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr}))
			return nil
		}, wire.TermRDMAPLocal},
		"source": {func(s *side, r *nic.Region) *wire.Segment {
			s.post(1, verbs.OpSend, []verbs.SGE{sge(r, 0, 8)})
			return nil
		}, wire.TermRDMAPLocal},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			r := must.Get(s.base.RegMR(s.pd, failingMemory{unaddressable{make([]byte, 64)}}, 0, allAccess))(t)
			s.wantTerminate(c.want, c.do(s, r))
		})
	}
}
