package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

var requestCases = map[string]defectCase{
	"IRDLeaks": {
		options: Options{IRD: 2},
		talk: func(s *side) {
			for i := range wire.MSN(3) {
				s.in(readRequest(i+1, wire.ReadRequest{}))
				s.all(1442)
			}
			s.note = func() string { return fmt.Sprint("live ", s.stream.Live()) }
		},
		sound:     "live true",
		defective: "live false; silence",
	},
	"IRDUnlimited": {
		options: Options{IRD: 1},
		talk: func(s *side) {
			for i := range wire.MSN(3) {
				s.in(readRequest(i+1, wire.ReadRequest{}))
			}
		},
		sound:     "Terminate 1202c000002e414100000000000000010000000200000000",
		defective: "RDMA Read Response 0; RDMA Read Response 0; RDMA Read Response 0",
	},
	"ReadQueueShared": {
		options: Options{IRD: 1},
		talk: func(s *side) {
			var other Stream
			other.Open(&s.ep, s, Options{IRD: 1})
			g := readRequest(1, wire.ReadRequest{})
			other.Input(g.Append(nil))
			s.in(g)
			other.Drop()
		},
		sound:     "RDMA Read Response 0",
		defective: "Terminate 1202c000002e414100000000000000010000000100000000",
	},
	"SmallReadsFirst": {
		options: Options{IRD: 8},
		talk: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.in(readRequest(1, readOf(r, 0, 64)))
			s.in(atomicRequest(2, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr}))
			s.in(readRequest(3, readOf(r, 0, 32)))
			s.in(readRequest(4, readOf(r, 0, 8)))
		},
		sound:     "RDMA Read Response 64; Atomic Response 0; RDMA Read Response 32; RDMA Read Response 8",
		defective: "RDMA Read Response 8; RDMA Read Response 32; RDMA Read Response 64; Atomic Response 0",
	},
	"AtomicIdIsMSN": {
		talk: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.in(readRequest(1, wire.ReadRequest{}))
			s.in(atomicRequest(2, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr, RequestID: 77}))
			a := s.all(1442)[1]
			s.note = func() string { return fmt.Sprint(a.Untagged.MSN, a.AtomicResponse.RequestID) }
		},
		sound:     "1 77",
		defective: "2 2",
	},
	"WritePerSGE": {
		talk: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 0, 20), sge(r, 32, 0), sge(r, 40, 10)}, to(1, 100))
			s.post(2, verbs.OpRDMAWrite, nil, to(1, 0))
			what := ""
			for _, g := range s.all(1442) {
				what += fmt.Sprint(len(g.Payload), " at ", g.Tagged.TO, " ", g.Control.Last, "; ")
			}
			s.note = func() string { return what }
		},
		sound:     "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; 30 at 100 true; 0 at 0 true; ",
		defective: "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; 20 at 100 true; 10 at 120 true; 0 at 0 true; ",
	},
	"CompletesEarly": {
		talk: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 1)})
			s.post(2, verbs.OpSend, nil)
			early := len(s.sends)
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, []byte{1}, true))
			s.note = func() string { return fmt.Sprint(early, " early, ", len(s.retired), " retired") }
		},
		sound:     "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; 0 early, 2 retired",
		defective: "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; 2 early, 2 retired",
	},
	"AtomicsApart": {
		options: Options{ORD: 1},
		talk: func(s *side) {
			r, _ := s.region(64, allAccess)
			sgl := []verbs.SGE{sge(r, 0, 8)}
			s.post(1, verbs.OpRDMARead, sgl)
			s.post(2, verbs.OpAtomicFetchAdd, sgl)
			s.post(3, verbs.OpAtomicFetchAdd, sgl)
			what := ""
			for range 2 {
				for _, g := range s.all(1442) {
					what += fmt.Sprint(g.Control.Opcode, " ", g.Untagged.MSN, "; ")
				}
				if s.stream.reading.Op == verbs.OpRDMARead {
					s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 8), true))
				}
			}
			s.note = func() string { return what }
		},
		sound:     "send 1 IBV_WC_SUCCESS; RDMA Read Request 1; Atomic Request 2; ",
		defective: "send 1 IBV_WC_SUCCESS; RDMA Read Request 1; Atomic Request 1; ",
	},
	"AtomicResponseUnchecked": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			s.in(untagged(wire.OpAtomicResponse, 1, 0, nil, true)) // nobody has asked
			if !s.stream.Live() {
				return
			}
			s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)})
			s.all(1442)
			s.in(with(untagged(wire.OpAtomicResponse, 2, 0, nil, true), func(g *wire.Segment) { g.AtomicResponse.RequestID = 77 }))
		},
		sound:     "Terminate 0206c000001e414b00000000000000030000000100000000",
		defective: "send 1 IBV_WC_SUCCESS",
	},
}

var endCases = map[string]defectCase{
	"TermRepeated": {
		talk: func(s *side) {
			s.in(tagged(wire.OpWrite, 1, 2, []byte("a"), true))
			s.in(with(untagged(wire.OpSend, 1, 0, nil, true), func(g *wire.Segment) { g.Untagged.QN = 5 }))
			s.in(untagged(wire.OpSend, 1, 0, nil, true)) // good by itself
			s.in(untagged(wire.Opcode(12), 1, 0, nil, true))
		},
		sound:     "Terminate 1100c000000fc140000000010000000000000002",
		defective: "Terminate 1100c000000fc140000000010000000000000002; Terminate 1201c0000012414300000000000000050000000100000000; Terminate 0206c0000012414c00000000000000000000000100000000",
	},
	"TalksAfterTerminate": {
		talk: func(s *side) {
			r, _ := s.region(8, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)})
			s.post(2, verbs.OpSend, []verbs.SGE{sge(r, 0, 8)}, flags(verbs.SendFence))
			s.all(1442)
			s.in(tagged(wire.OpWrite, 1, 2, []byte("a"), true))
		},
		sound:     "send 1 IBV_WC_WR_FLUSH_ERR; send 2 IBV_WC_WR_FLUSH_ERR; Terminate 1100c000000fc140000000010000000000000002",
		defective: "send 1 IBV_WC_WR_FLUSH_ERR; send 2 IBV_WC_WR_FLUSH_ERR; Terminate 1100c000000fc140000000010000000000000002; Send 8",
	},
}
