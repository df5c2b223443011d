package iwarp

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// peerAtomic executes an atomic of the peer on the first word of r and returns the original value.
func (s *side) peerAtomic(msn wire.MSN, r *nic.Region, req wire.AtomicRequest) uint64 {
	s.t.Helper()
	req.STag, req.TO = wire.STag(r.Key), r.Addr
	s.in(atomicRequest(msn, req))
	g := s.one()
	if g.Control.Opcode != wire.OpAtomicResponse || g.AtomicResponse.RequestID != req.RequestID {
		s.t.Fatalf("response %+v", g)
	}
	return g.AtomicResponse.Original
}

func word(mem nic.Bytes) uint64       { return binary.LittleEndian.Uint64(mem) }
func setWord(mem nic.Bytes, v uint64) { binary.LittleEndian.PutUint64(mem, v) }

var atomicRows = map[string]func(*testing.T){
	"rfc7306/1.1/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{ReceivePolicy: ReceivePolicy{NoExtensions: true}})
		for op := wire.OpImmediate; op <= wire.OpAtomicResponse; op++ {
			s := newSide(t, depth, Policy{ReceivePolicy: ReceivePolicy{NoExtensions: true}})
			g := untagged(op, 1, 0, nil, true)
			s.in(g)
			s.wantTerminate(wire.TermOpOpcode, &g)
		}
		s.wantAlive()
	},
	"rfc7306/5/1 rfc7306/5.1.1/3 rfc7306/5.1.2/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(16, allAccess)
		setWord(mem, 42)
		if got := s.peerAtomic(1, r, wire.AtomicRequest{AddSwap: 5}); got != 42 || word(mem) != 47 {
			t.Errorf("FetchAdd fetched %d, memory has %d", got, word(mem))
		}
		swap := wire.AtomicRequest{Op: wire.AtomicCompareSwap, AddSwap: 9, AddSwapMask: math.MaxUint64, Compare: 1, CompareMask: math.MaxUint64}
		if got := s.peerAtomic(2, r, swap); got != 47 || word(mem) != 47 {
			t.Errorf("CmpSwap of another value fetched %d, memory has %d", got, word(mem))
		}
		swap.Compare = 47
		if got := s.peerAtomic(3, r, swap); got != 47 || word(mem) != 9 {
			t.Errorf("CmpSwap fetched %d, memory has %d", got, word(mem))
		}
		s.in(atomicRequest(4, wire.AtomicRequest{RequestID: 0xcafebabe, STag: wire.STag(r.Key), TO: r.Addr}))
		if b := s.out(1442); hex.EncodeToString(b) != "414b00000000000000030000000400000000cafebabe0000000000000009" {
			t.Errorf("%x", b)
		}
	},
	"rfc7306/5/2 rfc7306/5.2.1/5": func(t *testing.T) {
		s := newSide(t, Options{IRD: 100}, Policy{})
		r, mem := s.region(16, allAccess)
		for i := range 100 {
			s.in(atomicRequest(wire.MSN(i+1), wire.AtomicRequest{RequestID: uint32(i), STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 1}))
		}
		for i, g := range s.all(1442) {
			if g.AtomicResponse != (wire.AtomicResponse{RequestID: uint32(i), Original: uint64(i)}) {
				t.Fatalf("response %d: %+v", i, g.AtomicResponse)
			}
		}
		if word(mem) != 100 {
			t.Errorf("sum %d", word(mem))
		}
	},
	"rfc7306/5/3 rfc7306/5.2.2/1 rfc7306/5.2.2/2 rfc7306/5.2.1/4": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(16, allAccess)
		s.recv(1)
		s.in(readRequest(1, readOf(r, 0, 8)))
		s.in(atomicRequest(2, wire.AtomicRequest{RequestID: 0xcafebabe, STag: wire.STag(r.Key), TO: r.Addr}))
		s.in(atomicRequest(3, wire.AtomicRequest{RequestID: 7, STag: wire.STag(r.Key), TO: r.Addr}))
		segs := s.all(1442)
		if len(segs) != 3 || segs[0].Control.Opcode != wire.OpReadResponse {
			t.Fatalf("%+v", segs)
		}
		for i, id := range []uint32{0xcafebabe, 7} {
			g := segs[i+1]
			if g.Control.Tagged || g.Untagged != (wire.Untagged{QN: 3, MSN: wire.MSN(i + 1)}) || g.AtomicResponse.RequestID != id {
				t.Errorf("%+v", g)
			}
		}
		s.wantReceived()
		if len(s.recvs) != 1 {
			t.Error("an atomic consumed a receive")
		}
	},
	"rfc7306/5.1.1/1 rfc7306/5.1.2/3 rfc7306/8.1/1": func(t *testing.T) {
		for _, op := range []wire.AtomicOp{wire.AtomicFetchAdd, wire.AtomicCompareSwap} {
			for off := uint64(1); off < 8; off++ {
				s := newSide(t, depth, Policy{})
				r, mem := s.region(32, allAccess)
				g := atomicRequest(1, wire.AtomicRequest{Op: op, STag: wire.STag(r.Key), TO: r.Addr + off, AddSwap: 1, AddSwapMask: math.MaxUint64})
				s.in(g)
				if term := s.wantTerminate(wire.TermOpStream, &g); term.HasRDMAP {
					t.Error("the Terminate has an RDMAP header")
				}
				if string(mem) != string(make([]byte, 32)) {
					t.Error("the atomic was executed")
				}
			}
		}
	},
	"rfc7306/5.1.1/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(16, allAccess)
		setWord(mem, 0xffffffff)
		s.peerAtomic(1, r, wire.AtomicRequest{AddSwap: 1, AddSwapMask: 0x80000000})
		if word(mem) != 0 {
			t.Errorf("%#x", word(mem))
		}
		setWord(mem, 0xffffffff)
		s.peerAtomic(2, r, wire.AtomicRequest{AddSwap: 1})
		if word(mem) != 0x100000000 {
			t.Errorf("%#x", word(mem))
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			a, b, tops := rnd.Uint64(), rnd.Uint64(), rnd.Uint64()&rnd.Uint64()
			if got, want := addFields(a, b, tops), addBits(a, b, tops); got != want {
				t.Fatalf("%#x + %#x in fields of %#x = %#x, want %#x", a, b, tops, got, want)
			}
		}
	},
	"rfc7306/5.1.2/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(16, allAccess)
		setWord(mem, 0x1122334455667788)
		// It compares the upper half and stores the lower half.
		s.peerAtomic(1, r, wire.AtomicRequest{
			Op: wire.AtomicCompareSwap, Compare: 0x11223344_00000000, CompareMask: 0xffffffff_00000000,
			AddSwap: 0xaaaaaaaa_bbbbbbbb, AddSwapMask: 0x00000000_ffffffff,
		})
		if word(mem) != 0x11223344_bbbbbbbb {
			t.Errorf("%#x", word(mem))
		}
		s.peerAtomic(2, r, wire.AtomicRequest{
			Op: wire.AtomicCompareSwap, Compare: 0x11223345_00000000, CompareMask: 0xffffffff_00000000, AddSwapMask: math.MaxUint64,
		})
		if word(mem) != 0x11223344_bbbbbbbb {
			t.Errorf("%#x", word(mem))
		}
	},
	"rfc7306/5.2.1/1 rfc7306/5.2.1/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(16, allAccess)
		s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 8, 8)}, to(0xa1b2c300, 0x1000), func(q *Request) { q.Atomic.CompareAdd = 5 })
		s.post(2, verbs.OpAtomicCmpAndSwp, []verbs.SGE{sge(r, 8, 8)}, to(0xa1b2c300, 0x1008), func(q *Request) {
			q.Atomic = verbs.Atomic{CompareAdd: 0xbeef, Swap: 0xdead}
		})
		for i, want := range []string{
			"414a000000000000000100000001000000000000000000000001a1b2c3000000000000001000000000000000000500000000000000000000000000000000ffffffffffffffff",
			"414a000000000000000100000002000000000000000200000002a1b2c3000000000000001008000000000000deadffffffffffffffff000000000000beefffffffffffffffff",
		} {
			if b := s.out(1442); hex.EncodeToString(b) != want || len(b) != 70 {
				t.Errorf("request %d is %x, want %s", i, b, want)
			}
		}
		// A FetchAdd ignores reserved bits and the fields that it does not use.
		if got := s.peerAtomic(1, r, wire.AtomicRequest{Reserved: 0xfffffff, AddSwap: 3, Compare: 77, CompareMask: 1}); got != 0 || word(mem) != 3 {
			t.Errorf("fetched %d, memory has %d", got, word(mem))
		}
	},
	"rfc7306/5.2.1/3": func(t *testing.T) {
		for _, op := range []wire.AtomicOp{1, 3, 4, 7, 8, 15} {
			s := newSide(t, depth, Policy{})
			r, mem := s.region(16, allAccess)
			g := atomicRequest(1, wire.AtomicRequest{Op: op, STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 1})
			s.in(g)
			s.wantTerminate(wire.TermOpOpcode, &g)
			if word(mem) != 0 {
				t.Error("the atomic was executed")
			}
		}
	},
	"rfc7306/5.2.2/3": func(t *testing.T) {
		respond := func(id uint32) wire.Segment {
			g := untagged(wire.OpAtomicResponse, 1, 0, nil, true)
			g.AtomicResponse.RequestID = id
			return g
		}
		s := newSide(t, depth, Policy{})
		g := respond(1)
		s.in(g)
		s.wantTerminate(wire.TermOpOpcode, &g)

		s = newSide(t, depth, Policy{})
		r, _ := s.region(16, allAccess)
		s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
		s.all(1442)
		g = respond(2)
		s.in(g)
		s.wantTerminate(wire.TermOpUnspecified, &g)
		s.wantSends("1 IBV_WC_BAD_RESP_ERR")

		for _, n := range []int{0, 11, 13} {
			s = newSide(t, depth, Policy{})
			r, _ = s.region(16, allAccess)
			s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
			s.all(1442)
			s.stream.Input(piece(wire.OpAtomicResponse, 1, 0, make([]byte, n), true))
			if segs := s.all(1442); len(segs) != 1 || s.stream.Live() {
				t.Errorf("a response of %d octets is accepted", n)
			}
		}
	},
	"rfc7306/5.4/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(16, allAccess)
		s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 3), sge(r, 8, 5)}, to(1, 0))
		s.all(1442)
		s.wantSends()
		g := untagged(wire.OpAtomicResponse, 1, 0, nil, true)
		g.AtomicResponse = wire.AtomicResponse{RequestID: 1, Original: 0x0807060504030201}
		s.in(g)
		s.wantSends("1")
		if string(mem) != "\x01\x02\x03\x00\x00\x00\x00\x00\x04\x05\x06\x07\x08\x00\x00\x00" || s.sends[0].Opcode != verbs.WCOpFetchAdd || s.sends[0].ByteLen != 8 {
			t.Errorf("%x, %+v", mem, s.sends[0])
		}
	},
	"rfc7306/5.4/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(16, allAccess)
		g := atomicRequest(1, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 1})
		g.Control.Last = false
		s.in(g)
		s.wantAlive()
		if segs := s.all(1442); len(segs) != 0 || word(mem) != 0 {
			t.Errorf("%+v, %d", segs, word(mem))
		}
	},
	"rfc7306/5.4/3": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(16, allAccess)
		for i := range 2 {
			s.in(atomicRequest(wire.MSN(i+1), wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 1}))
		}
		s.in(readRequest(3, readOf(r, 0, 8)))
		segs := s.all(1442)
		if len(segs) != 3 || segs[0].AtomicResponse.Original != 0 || segs[1].AtomicResponse.Original != 1 || string(segs[2].Payload) != "\x02\x00\x00\x00\x00\x00\x00\x00" {
			t.Errorf("%+v", segs)
		}
	},
}

// addBits is addFields one bit at a time.
func addBits(a, b, tops uint64) (sum uint64) {
	carry := uint64(0)
	for i := range 64 {
		x, y := a>>i&1, b>>i&1
		sum |= (x ^ y ^ carry) << i
		carry = x&y | x&carry | y&carry
		if tops>>i&1 == 1 {
			carry = 0
		}
	}
	return sum
}

func TestResponseForDeregisteredMemoryFailsAtomic(t *testing.T) {
	s := newSide(t, depth, Policy{})
	r, _ := s.region(8, allAccess)
	s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)}, to(1, 0x10))
	request := s.one()
	must.Do(t, s.base.DeregMR(r))
	response := untagged(wire.OpAtomicResponse, 1, 0, nil, true)
	response.AtomicResponse = wire.AtomicResponse{RequestID: request.AtomicRequest.RequestID, Original: 7}
	s.in(response)
	s.wantTerminate(wire.TermDDPLocal, &response)
	s.wantSends("1 IBV_WC_LOC_PROT_ERR")
}
