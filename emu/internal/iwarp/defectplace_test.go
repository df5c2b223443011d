package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// shows notes the first octets of a memory.
func (s *side) shows(mem nic.Bytes, n int) {
	s.note = func() string { return fmt.Sprintf("%q", mem[:n]) }
}

// window returns a bound window of type 2.
func (s *side) window(r *nic.Region) *nic.Window {
	s.t.Helper()
	w, err := s.base.AllocMW(s.pd, verbs.MWType2)
	if err == nil {
		err = s.base.Mem.Bind(w, nic.Bind{Region: r, Addr: r.Addr, Len: 8, Access: verbs.AccessRemoteRead, Key: w.Key, PD: s.pd, QPN: s.ep.QPN})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

var placeCases = map[string]defectCase{
	"ZeroLengthChecked": {
		talk:      func(s *side) { s.in(tagged(wire.OpWrite, 1, 2, nil, true)); s.in(readRequest(1, wire.ReadRequest{})) },
		sound:     "RDMA Read Response 0",
		defective: "Terminate 1100c000000ec140000000010000000000000002",
	},
	"KeyOctetIgnored": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			s.in(tagged(wire.OpWrite, r.Key^3, r.Addr, []byte("ab"), true))
			s.shows(mem, 2)
		},
		sound:     `Terminate 1100c0000010c140000001030000560000000000; "\x00\x00"`,
		defective: `"ab"`,
	},
	"WriteRightsUnchecked": {
		talk: func(s *side) {
			r, mem := s.region(8, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("ab"), true))
			s.shows(mem, 2)
		},
		sound:     `Terminate 0102c0000010c140000001000000560000000000; "\x00\x00"`,
		defective: `"ab"`,
	},
	"PageBounds": {
		talk: func(s *side) {
			r, mem := s.region(100, allAccess)
			s.in(tagged(wire.OpWrite, r.Key, r.Addr+98, []byte("abcd"), true))
			s.in(readRequest(1, readOf(r, 4000, 96)))
			s.in(readRequest(2, readOf(r, 4000, 97)))
			s.note = func() string { return fmt.Sprintf("%q", mem[98:]) }
		},
		sound:     `Terminate 1101c0000012c140000001000000560000000062; "\x00\x00"`,
		defective: `RDMA Read Response 96; Terminate 0101e000002e414100000000000000010000000200000000aaaa5555112233445566778800000061000001000000560000000fa0; "ab"`,
	},
	"PlacesWhatFits": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			s.in(tagged(wire.OpWrite, r.Key, r.Addr+6, []byte("abcd"), true))
			s.shows(mem, 8)
		},
		sound:     `Terminate 1101c0000012c140000001000000560000000006; "\x00\x00\x00\x00\x00\x00\x00\x00"`,
		defective: `Terminate 1101c0000012c140000001000000560000000006; "\x00\x00\x00\x00\x00\x00ab"`,
	},
	"SinkChecked": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			q := readOf(r, 0, 8)
			q.SinkSTag = wire.STag(r.Key)
			s.in(readRequest(1, q))
			q.SinkSTag = 0x77
			s.in(readRequest(2, q))
		},
		sound:     "RDMA Read Response 8; RDMA Read Response 8",
		defective: "RDMA Read Response 8; Terminate 0100e000002e41410000000000000001000000020000000000000077112233445566778800000008000001000000560000000000",
	},
	"ResponseUnmatched": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 4)}, to(1, 0))
			s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 2, 2)}, to(1, 0))
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+4, []byte("abcd"), true))
			s.in(tagged(wire.OpReadResponse, 0x77, 9, []byte("ef"), true))
			s.shows(mem, 8)
		},
		sound:     `send 1 IBV_WC_BAD_RESP_ERR; send 2 IBV_WC_WR_FLUSH_ERR; Terminate 1101c0000012c142000001000000560000000004; "\x00\x00\x00\x00\x00\x00\x00\x00"`,
		defective: `send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; "\x00\x00efabcd"`,
	},
	"InvalidateIgnored": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			w := s.window(r)
			s.recv(1)
			s.in(with(untagged(wire.OpSendInv, 1, 0, nil, true), func(g *wire.Segment) { g.Untagged.Invalidate = wire.STag(w.Key) }))
			s.note = func() string { return fmt.Sprint("bound ", w.Bound()) }
		},
		sound:     "recv 1 IBV_WC_SUCCESS 0; bound false",
		defective: "recv 1 IBV_WC_SUCCESS 0; bound true",
	},
	"AnySendInvalidates": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			w := s.window(r)
			s.recv(1)
			s.recv(2)
			s.in(with(untagged(wire.OpSend, 1, 0, nil, true), func(g *wire.Segment) { g.Untagged.Invalidate = 0x77 }))
			s.in(with(untagged(wire.OpSend, 2, 0, nil, true), func(g *wire.Segment) { g.Untagged.Invalidate = wire.STag(w.Key) }))
			s.note = func() string { return fmt.Sprint("bound ", w.Bound()) }
		},
		sound:     "recv 1 IBV_WC_SUCCESS 0; recv 2 IBV_WC_SUCCESS 0; bound true",
		defective: "recv 1 IBV_WC_SUCCESS 0; recv 2 IBV_WC_SUCCESS 0; bound false",
	},
	"SolicitedInvalidateUnchecked": {
		talk: func(s *side) {
			for i, op := range []wire.Opcode{wire.OpSendSEInv, wire.OpSendInv} {
				s.recv(uint64(i))
				s.in(with(untagged(op, wire.MSN(i+1), 0, nil, true), func(g *wire.Segment) { g.Untagged.Invalidate = 0x77 }))
			}
		},
		sound:     "recv 0 IBV_WC_REM_INV_REQ_ERR 0; Terminate 0109c0000012414600000077000000000000000100000000",
		defective: "recv 0 IBV_WC_SUCCESS 0; solicited; recv 1 IBV_WC_REM_INV_REQ_ERR 0; Terminate 0109c0000012414400000077000000000000000200000000",
	},
	"AtomicAlignedTo4": {
		talk: func(s *side) {
			r, mem := s.region(16, allAccess)
			s.in(atomicRequest(1, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr + 4, AddSwap: 'a'}))
			s.in(atomicRequest(2, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr + 2, AddSwap: 'a'}))
			s.shows(mem, 8)
		},
		sound:     `Terminate 0207c0000046414a00000000000000010000000100000000; "\x00\x00\x00\x00\x00\x00\x00\x00"`,
		defective: `Atomic Response 0; Terminate 0207c0000046414a00000000000000010000000200000000; "\x00\x00\x00\x00a\x00\x00\x00"`,
	},
	"AtomicReturnsNew": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			mem[0] = 5
			s.in(atomicRequest(1, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 7}))
			was := s.one().AtomicResponse.Original
			s.note = func() string { return fmt.Sprint(was, mem[0]) }
		},
		sound:     "5 12",
		defective: "12 12",
	},
	"FetchAddCompares": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			for i, compare := range []uint64{1, 0} { // 0 under 255 matches the second time too
				s.in(atomicRequest(wire.MSN(i+1), wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 2, Compare: compare, CompareMask: 255}))
			}
			s.in(atomicRequest(3, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 8, CompareMask: ^uint64(0)}))
			s.all(1442)
			s.note = func() string { return fmt.Sprint(mem[0]) }
		},
		sound:     "12",
		defective: "10",
	},
	"AtomicTorn": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			var later []func()
			s.layer.Later = func(do func()) { later = append(later, do) }
			var was []uint64
			for i := range wire.MSN(2) {
				s.in(atomicRequest(i+1, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 2}))
				was = append(was, s.one().AtomicResponse.Original)
			}
			for _, do := range later {
				do()
			}
			s.note = func() string { return fmt.Sprint(was, mem[0]) }
		},
		sound:     "[0 2] 4",
		defective: "[0 0] 2",
	},
}
