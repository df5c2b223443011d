package iwarp

import (
	"math"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

var readRows = map[string]func(*testing.T){
	"rfc5040/4.4/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 8, 16), sge(r, 40, 4)}, to(0x47d32f00, 0x55c99661b6c0))
		g := s.one()
		want := wire.ReadRequest{SinkSTag: wire.STag(r.Key), SinkTO: r.Addr + 8, Size: 20, SrcSTag: 0x47d32f00, SrcTO: 0x55c99661b6c0}
		if g.ReadRequest != want || len(g.Append(nil)) != 46 {
			t.Errorf("%+v", g.ReadRequest)
		}
	},
	"rfc5040/5.2.2/3 rfc5040/5.5/7": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(64, allAccess)
		s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 8, 5), sge(r, 32, 5)}, to(1, 0))
		s.one()
		s.wantSends()
		s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+8, []byte("12345678"), false))
		s.wantSends()
		s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+16, []byte("90"), true))
		s.wantSends("1")
		if string(mem[8:13])+string(mem[32:37]) != "1234567890" || s.sends[0].ByteLen != 10 || s.sends[0].Opcode != verbs.WCOpRDMARead {
			t.Errorf("%q, %+v", mem, s.sends[0])
		}
	},
	"rfc5040/5.2.2/5": func(t *testing.T) {
		for name, c := range map[string]struct {
			seg  func(r *nic.Region) wire.Segment
			want wire.TermError
		}{
			"STag": {func(r *nic.Region) wire.Segment {
				return tagged(wire.OpReadResponse, r.Key^1, r.Addr, make([]byte, 10), true)
			}, wire.TermTaggedSTag},
			"before": {func(r *nic.Region) wire.Segment {
				return tagged(wire.OpReadResponse, r.Key, r.Addr-1, make([]byte, 10), true)
			}, wire.TermTaggedBounds},
			"after": {func(r *nic.Region) wire.Segment {
				return tagged(wire.OpReadResponse, r.Key, r.Addr+10, make([]byte, 1), true)
			}, wire.TermTaggedBounds},
			"over": {func(r *nic.Region) wire.Segment {
				return tagged(wire.OpReadResponse, r.Key, r.Addr+1, make([]byte, 10), true)
			}, wire.TermTaggedBounds},
			"long": {func(r *nic.Region) wire.Segment {
				return tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 11), true)
			}, wire.TermTaggedBounds},
			"wraps": {func(r *nic.Region) wire.Segment {
				return tagged(wire.OpReadResponse, r.Key, ^uint64(0), make([]byte, 2), true)
			}, wire.TermTaggedWrap},
			"wrong response": {func(*nic.Region) wire.Segment { return untagged(wire.OpAtomicResponse, 1, 0, nil, true) }, wire.TermOpOpcode},
		} {
			t.Run(name, func(t *testing.T) {
				s := newSide(t, depth, Policy{})
				r, mem := s.region(64, allAccess)
				s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 10)}, to(1, 0))
				s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 10)}, to(1, 0))
				s.all(1442)
				g := c.seg(r)
				pattern(g.Payload, 1)
				s.in(g)
				s.wantTerminate(c.want, &g)
				s.wantSends("1 IBV_WC_BAD_RESP_ERR", "2 IBV_WC_WR_FLUSH_ERR")
				if string(mem) != string(make([]byte, 64)) {
					t.Errorf("%x was placed", mem)
				}
			})
		}
		t.Run("later segment", func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 10)}, to(1, 0))
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 5), false))
			g := tagged(wire.OpReadResponse, r.Key^0x100, r.Addr+5, make([]byte, 5), true)
			s.in(g)
			s.wantTerminate(wire.TermTaggedSTag, &g)
		})
		t.Run("repeated segment", func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 10)}, to(1, 0))
			s.all(1442)
			g := tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 6), false)
			s.in(g)
			s.in(g)
			s.wantTerminate(wire.TermTaggedBounds, &g)
		})
	},
	"rfc5040/5.2.2/6": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(64, allAccess)
		g := tagged(wire.OpReadResponse, r.Key, r.Addr, []byte("no read"), true)
		s.in(g)
		s.wantTerminate(wire.TermOpOpcode, &g)
		if mem[0] != 0 {
			t.Error("the payload was placed")
		}
	},
	"rfc5040/5.2.2/7": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 20)}, to(1, 0))
		s.all(1442)
		s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 12), false))
		g := tagged(wire.OpReadResponse, r.Key, r.Addr+12, make([]byte, 4), true)
		s.in(g)
		s.wantTerminate(wire.TermTaggedBounds, &g)
		s.wantSends("1 IBV_WC_BAD_RESP_ERR")
	},
	"rfc5040/6.1/2 rfc7306/5.2/2": func(t *testing.T) {
		s := newSide(t, Options{ORD: 3}, Policy{})
		r, _ := s.region(64, allAccess)
		for i := range uint64(4) {
			s.post(2*i, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
			s.post(2*i+1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
		}
		for i := range 8 {
			want := 0
			if i == 0 {
				want = 3
			} else if i < 6 {
				want = 1
			}
			if got := len(s.all(1442)); got != want {
				t.Fatalf("after %d responses %d requests were sent, want %d", i, got, want)
			}
			if i%2 == 0 {
				s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 8), true))
			} else {
				g := untagged(wire.OpAtomicResponse, wire.MSN(i/2+1), 0, nil, true)
				g.AtomicResponse.RequestID = uint32(i + 1)
				s.in(g)
			}
		}
		s.wantAlive()
		s.wantSends("0", "1", "2", "3", "4", "5", "6", "7")
	},
}

func TestReadFailsLocallyWithoutORD(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd} {
		s := newSide(t, Options{IRD: 4}, Policy{})
		r, _ := s.region(8, allAccess)
		s.post(1, op, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
		s.wantTerminate(wire.TermRDMAPLocal, nil)
		s.wantSends("1 IBV_WC_LOC_QP_OP_ERR")
	}
	s := newSide(t, Options{IRD: 4}, Policy{})
	s.post(1, verbs.OpRDMARead, nil, func(r *Request) { r.RTR = true })
	if g := s.one(); g.Control.Opcode != wire.OpReadRequest {
		t.Errorf("the RTR is %v", g.Control.Opcode)
	}
	s.in(tagged(wire.OpReadResponse, 0, 0, nil, true))
	s.wantAlive()
	s.wantSends("1")
}

// The largest ORD has no power of two of 16 bits above it.
func TestRoundedReadLimitOfLargeORD(t *testing.T) {
	l := &Layer{Policy: Policy{SendPolicy: SendPolicy{RoundUpORD: true}}}
	for ord, want := range map[uint16]uint16{0: 1, 3: 4, 1 << 15: 1 << 15, 1<<15 + 1: math.MaxUint16} {
		s := &Stream{ep: &Endpoint{Layer: l}}
		s.ord = ord
		if got := s.readLimit(); got != want {
			t.Errorf("with an ORD of %d: %d, want %d", ord, got, want)
		}
	}
}
