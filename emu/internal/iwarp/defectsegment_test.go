package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// segmentCases are about checks that are made, but not everywhere.
var segmentCases = map[string]defectCase{
	"AnswerNumberUnchecked": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			s.recv(1)
			s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)})
			s.all(1442)
			s.in(with(untagged(wire.OpAtomicResponse, 2, 0, nil, true), func(g *wire.Segment) { g.AtomicResponse.RequestID = 1 }))
			s.in(untagged(wire.OpImmediate, 7, 0, nil, true))
		},
		sound:     "send 1 " + flushed + "; Terminate 1203c000001e414b00000000000000030000000200000000",
		defective: "send 1 IBV_WC_SUCCESS; recv 1 IBV_WC_SUCCESS 0",
	},
	"SecondSegmentOffset": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			s.recv(1, sge(r, 0, 8))
			s.in(untagged(wire.OpSend, 1, 0, []byte("ab"), false))
			s.in(untagged(wire.OpSend, 1, 6, []byte("cd"), true))
			s.in(untagged(wire.OpSend, 2, 1, nil, true))
			s.shows(mem, 8)
		},
		sound:     `recv 1 IBV_WC_WR_FLUSH_ERR 0; Terminate 1204c0000014414300000000000000000000000100000006; "ab\x00\x00\x00\x00\x00\x00"`,
		defective: `recv 1 IBV_WC_SUCCESS 4; Terminate 1204c0000012414300000000000000000000000200000001; "abcd\x00\x00\x00\x00"`,
	},
	"SecondSegmentNumber": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			s.recv(1, sge(r, 0, 8))
			s.in(untagged(wire.OpSend, 1, 0, []byte("ab"), false))
			s.in(untagged(wire.OpSend, 2, 2, []byte("cd"), true))
			s.in(untagged(wire.OpSend, 3, 0, nil, true))
		},
		sound:     "recv 1 " + flushed + " 0; Terminate 1203c0000014414300000000000000000000000200000002",
		defective: "recv 1 IBV_WC_SUCCESS 4; Terminate 1203c0000012414300000000000000000000000300000000",
	},
	"TaggedVersionUnchecked": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			other := func(g *wire.Segment) { g.Control.RDMAPVersion = 2 }
			s.in(with(tagged(wire.OpWrite, r.Key, r.Addr, []byte("ab"), true), other))
			s.in(with(untagged(wire.OpSend, 1, 0, nil, true), other))
			s.shows(mem, 2)
		},
		sound:     `Terminate 0205c0000010c180000001000000560000000000; "\x00\x00"`,
		defective: `Terminate 0205c0000012418300000000000000000000000100000000; "ab"`,
	},
	"ReadResponseDDPVersion": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			other := func(g *wire.Segment) { g.Control.DDPVersion = 2 }
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 2)})
			s.all(1442)
			s.in(with(tagged(wire.OpReadResponse, r.Key, r.Addr, []byte("ab"), true), other))
			s.in(with(tagged(wire.OpWrite, r.Key, r.Addr, nil, true), other))
		},
		sound:     "send 1 " + flushed + "; Terminate 1104c0000010c242000001000000560000000000",
		defective: "send 1 IBV_WC_SUCCESS; Terminate 1104c000000ec240000001000000560000000000",
	},
	"SecondSegmentRights": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			shut, mem := s.region(8, verbs.AccessLocalWrite)
			s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("ab"), false))
			s.in(tagged(wire.OpWrite, shut.Key, shut.Addr, []byte("cd"), true))
			s.in(tagged(wire.OpWrite, shut.Key, shut.Addr, []byte("ef"), true))
			s.shows(mem, 2)
		},
		sound:     `Terminate 0102c0000010c140000002000000560000020000; "\x00\x00"`,
		defective: `Terminate 0102c0000010c140000002000000560000020000; "cd"`,
	},
	"QPRightsIgnored": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			s.ep.Access = 0
			s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("ab"), true))
			s.in(readRequest(1, readOf(r, 0, 8)))
			s.in(atomicRequest(2, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr}))
			s.shows(mem, 2)
		},
		sound:     `Terminate 0102c0000010c140000001000000560000000000; "\x00\x00"`,
		defective: `RDMA Read Response 8; Atomic Response 0; "ab"`,
	},
	"ImmediateDropped": {
		talk: func(s *side) {
			s.in(untagged(wire.OpImmediate, 1, 0, nil, true))
			s.in(untagged(wire.OpSend, 2, 0, nil, true))
		},
		sound:     "Terminate 1202c000001a414800000000000000000000000100000000",
		defective: "Terminate 1202c0000012414300000000000000000000000200000000",
	},
	"EmptySendKeepsKey": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			w, other := s.window(r), s.window(r)
			for id := range uint64(2) {
				s.recv(id, sge(r, 0, 8))
			}
			closing := func(key uint32) func(*wire.Segment) {
				return func(g *wire.Segment) { g.Untagged.Invalidate = wire.STag(key) }
			}
			s.in(with(untagged(wire.OpSendInv, 1, 0, nil, true), closing(w.Key)))
			s.in(with(untagged(wire.OpSendInv, 2, 0, []byte("a"), true), closing(other.Key)))
			s.note = func() string { return fmt.Sprint("bound ", w.Bound(), other.Bound()) }
		},
		sound:     "recv 0 IBV_WC_SUCCESS 0; recv 1 IBV_WC_SUCCESS 1; bound false false",
		defective: "recv 0 IBV_WC_SUCCESS 0; recv 1 IBV_WC_SUCCESS 1; bound true false",
	},
}
