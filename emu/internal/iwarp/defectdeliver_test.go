package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

var deliverCases = map[string]defectCase{
	"DeliversFirstSegment": {
		talk: func(s *side) {
			r, mem := s.region(64, allAccess)
			s.recv(1, sge(r, 0, 4))
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 4, 4)})
			s.all(1442)
			s.in(untagged(wire.OpSend, 1, 0, []byte("ab"), false))
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+4, []byte("ef"), false))
			early := s.log()
			s.in(untagged(wire.OpSend, 1, 2, []byte("cd"), true))
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+6, []byte("gh"), true))
			s.in(with(readRequest(1, wire.ReadRequest{}), func(g *wire.Segment) { g.Control.Last = false }))
			s.note = func() string { return "early: " + early + "; then " + string(mem[:8]) }
		},
		sound:     "send 1 IBV_WC_SUCCESS; recv 1 IBV_WC_SUCCESS 4; early: ; then abcdefgh",
		defective: "send 1 IBV_WC_SUCCESS; recv 1 IBV_WC_SUCCESS 2; RDMA Read Response 0; early: send 1 IBV_WC_SUCCESS; recv 1 IBV_WC_SUCCESS 2; then abcdefgh",
	},
	"DeliversTwice": {
		talk: func(s *side) {
			for id := range uint64(3) {
				s.recv(id)
			}
			s.in(untagged(wire.OpSend, 1, 0, nil, true))
			s.in(untagged(wire.OpSend, 2, 0, nil, true))
		},
		sound:     "recv 0 IBV_WC_SUCCESS 0; recv 1 IBV_WC_SUCCESS 0",
		defective: "recv 0 IBV_WC_SUCCESS 0; recv 1 IBV_WC_SUCCESS 0; recv 2 IBV_WC_SUCCESS 0",
	},
	"LongDeliveredLate": {
		talk: func(s *side) {
			r, _ := s.region(64, allAccess)
			for id := range uint64(4) {
				s.recv(id, sge(r, 0, 4))
			}
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 4, 4)})
			s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 8, 1)})
			s.all(1442)
			s.in(untagged(wire.OpSend, 1, 0, []byte("ab"), false))
			s.in(untagged(wire.OpSend, 1, 2, []byte("cd"), true))
			s.in(untagged(wire.OpSend, 2, 0, []byte("e"), true))
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+4, []byte("fg"), false))
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+6, []byte("hi"), true))
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+8, []byte("j"), true))
			s.in(untagged(wire.OpSend, 3, 0, nil, false))
			s.in(untagged(wire.OpSend, 3, 0, []byte("k"), true))
			s.stream.Close() // nothing is lost of what was held back
		},
		sound:     "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; recv 0 IBV_WC_SUCCESS 4; recv 1 IBV_WC_SUCCESS 1; recv 2 IBV_WC_SUCCESS 1; silence",
		defective: "send 2 IBV_WC_SUCCESS; send 1 IBV_WC_SUCCESS; recv 1 IBV_WC_SUCCESS 1; recv 0 IBV_WC_SUCCESS 4; recv 2 IBV_WC_SUCCESS 1; silence",
	},
	"LongTruncated": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			s.recv(1, sge(r, 0, 3))
			s.recv(2, sge(r, 4, 4))
			s.in(untagged(wire.OpSend, 1, 0, []byte("ab"), false))
			s.in(untagged(wire.OpSend, 1, 2, []byte("cd"), false))
			s.in(untagged(wire.OpSend, 1, 4, []byte("ef"), true))
			s.in(untagged(wire.OpSend, 2, 0, []byte("gh"), true))
			s.shows(mem, 8)
		},
		sound:     `recv 1 IBV_WC_LOC_LEN_ERR 0; Terminate 1205c0000014014300000000000000000000000100000002; "ab\x00\x00\x00\x00\x00\x00"`,
		defective: `recv 1 IBV_WC_SUCCESS 3; recv 2 IBV_WC_SUCCESS 2; "abc\x00gh\x00\x00"`,
	},
	"ZeroSendSkipsReceive": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			s.recv(1, sge(r, 0, 1))
			s.recv(2, sge(r, 0, 1))
			s.in(untagged(wire.OpSend, 1, 0, nil, true))
			s.in(untagged(wire.OpSend, 2, 0, []byte("a"), true))
		},
		sound:     "recv 1 IBV_WC_SUCCESS 0; recv 2 IBV_WC_SUCCESS 1",
		defective: "recv 1 IBV_WC_SUCCESS 1",
	},
	"ImmediateTakesNoReceive": {
		talk: func(s *side) {
			s.recv(1)
			s.in(untagged(wire.OpImmediate, 1, 0, nil, true))
			s.in(untagged(wire.OpImmediate, 2, 0, nil, true))
		},
		sound:     "recv 1 IBV_WC_SUCCESS 0; Terminate 1202c000001a414800000000000000000000000200000000",
		defective: "",
	},
	"EverythingTakesReceive": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			for id := range uint64(3) {
				s.recv(id)
			}
			s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("a"), false))
			s.in(tagged(wire.OpWrite, r.Key, r.Addr+1, []byte("b"), true))
			s.in(readRequest(1, wire.ReadRequest{}))
			s.in(atomicRequest(2, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr}))
		},
		sound:     "RDMA Read Response 0; Atomic Response 0",
		defective: "recv 0 IBV_WC_SUCCESS 0; recv 1 IBV_WC_SUCCESS 0; recv 2 IBV_WC_SUCCESS 0; RDMA Read Response 0; Atomic Response 0",
	},
	"BadSegmentsDropped": {
		talk: func(s *side) {
			r, mem := s.region(8, allAccess)
			s.recv(1, sge(r, 0, 2))
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 4, 2)})
			s.all(1442)
			s.stream.Input([]byte{0x41})                                   // no header
			s.in(tagged(wire.OpWrite, 0x77, 1, []byte("x"), true))         // no such key
			s.in(untagged(wire.OpSend, 1, 0, []byte("abc"), true))         // too long
			s.in(untagged(wire.Opcode(12), 1, 0, nil, true))               // no such opcode
			s.in(readRequest(1, wire.ReadRequest{Size: 1, SrcSTag: 0x77})) // not ours
			s.in(readRequest(2, wire.ReadRequest{Size: 2, SrcSTag: wire.STag(r.Key), SrcTO: r.Addr}))
			s.in(tagged(wire.OpReadResponse, 0x77, 0, []byte("xx"), true)) // not asked for
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+4, []byte("gh"), true))
			s.in(untagged(wire.OpSend, 2, 0, []byte("ef"), true))
			s.in(untagged(wire.OpSend, 3, 0, nil, true)) // no receive
			s.shows(mem, 6)
		},
		sound:     `send 1 IBV_WC_WR_FLUSH_ERR; Terminate 02ff0000; "\x00\x00\x00\x00\x00\x00"`,
		defective: `send 1 IBV_WC_SUCCESS; recv 1 IBV_WC_SUCCESS 2; RDMA Read Response 2; "ef\x00\x00gh"`,
	},
}
