package iwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

var checkRows = map[string]func(*testing.T){
	"rfc5040/7.2/1 rfc6580/3.4/1": func(t *testing.T) {
		for op := wire.OpAtomicResponse + 1; op < 16; op++ {
			for _, isTagged := range []bool{false, true} {
				s := newSide(t, depth, Policy{})
				g := wire.Segment{}
				g.Control = wire.NewControl(op, true)
				g.Control.Tagged = isTagged
				g.Untagged.MSN = 1
				if isTagged {
					g.Untagged.MSN = 0
				}
				s.in(g)
				s.wantTerminate(wire.TermOpOpcode, &g)
			}
		}
	},
	"rfc5040/7.2/2": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			mem := sendRig(s)
			var list []refusal
			for _, v := range []uint8{0, 2, 3} {
				set := func(g *wire.Segment) { g.Control.RDMAPVersion = v }
				list = append(list,
					refusal{"write", with(tagged(wire.OpWrite, 1, 2, nil, true), set), wire.TermOpVersion},
					refusal{"send", with(untagged(wire.OpSend, 1, 0, nil, true), set), wire.TermOpVersion},
					refusal{"read", with(readRequest(1, wire.ReadRequest{}), set), wire.TermOpVersion})
			}
			return mem, list
		})
	},
	"rfc7306/8.2/1": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			mem := sendRig(s)
			var list []refusal
			for _, op := range []wire.Opcode{wire.OpImmediate, wire.OpImmediateSE, wire.OpAtomicRequest, wire.OpAtomicResponse} {
				g := untagged(op, 1, 0, nil, true)
				list = append(list,
					refusal{op.String() + " DV", with(g, func(g *wire.Segment) { g.Control.DDPVersion = 0 }), wire.TermUntaggedVersion},
					refusal{op.String() + " RV", with(g, func(g *wire.Segment) { g.Control.RDMAPVersion = 0 }), wire.TermOpVersion},
					refusal{op.String() + " T", with(g, func(g *wire.Segment) {
						g.Control.Tagged, g.Untagged, g.Tagged = true, wire.Untagged{}, wire.Tagged{STag: 1}
					}), wire.TermOpOpcode},
					refusal{op.String() + " MSN", with(g, func(g *wire.Segment) { g.Untagged.MSN = 7 }), wire.TermUntaggedMSN})
			}
			return mem, list
		})
	},
	"rfc5040/8.1.1/3 rfc5042/6.4.5/1": func(t *testing.T) {
		// A region may be used by every stream of its domain, so no peer may invalidate it.
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		s.recv(1)
		g := untagged(wire.OpSendInv, 1, 0, nil, true)
		g.Untagged.Invalidate = wire.STag(r.Key)
		s.in(g)
		s.wantTerminate(wire.TermProtNoInvalidate, &g)
		if _, _, err := s.base.Mem.Remote(r.Key, nic.TargetQP{PD: s.pd, QPN: 0x12}, r.Addr, 8, verbs.AccessRemoteRead); err != nil {
			t.Errorf("other streams cannot access the region: %v", err)
		}
	},
}

var securityRows = map[string]func(*testing.T){
	"rfc5042/6.1.1/1": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			s.recv(1)
			r, mem := s.regionOf(s.other, 64, allAccess)
			w := windowOf(s, s.other, 0x11)
			return mem, []refusal{
				{"write", tagged(wire.OpWrite, r.Key, r.Addr, []byte{1}, true), wire.TermTaggedStream},
				{"read", readRequest(1, readOf(r, 0, 8)), wire.TermProtStream},
				{"atomic", atomicRequest(1, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr}), wire.TermProtStream},
				{"invalidate", with(untagged(wire.OpSendInv, 1, 0, nil, true), func(g *wire.Segment) { g.Untagged.Invalidate = wire.STag(w.Key) }), wire.TermProtNoInvalidate},
			}
		})
	},
}

func TestQPAccessFlagsRestrictMemoryAccess(t *testing.T) {
	for name, c := range map[string]struct {
		access verbs.Access
		seg    func(r *nic.Region) wire.Segment
	}{
		"write": {verbs.AccessRemoteRead, func(r *nic.Region) wire.Segment { return tagged(wire.OpWrite, r.Key, r.Addr, []byte{1}, true) }},
		"read":  {verbs.AccessRemoteWrite, func(r *nic.Region) wire.Segment { return readRequest(1, readOf(r, 0, 8)) }},
		"atomic": {verbs.AccessRemoteWrite, func(r *nic.Region) wire.Segment {
			return atomicRequest(1, wire.AtomicRequest{STag: wire.STag(r.Key), TO: r.Addr})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			r, mem := s.region(64, allAccess)
			s.ep.Access = c.access
			g := c.seg(r)
			s.in(g)
			s.wantTerminate(wire.TermProtAccess, &g)
			if mem[0] != 0 {
				t.Error("the request was executed")
			}
		})
	}
}

func TestConsortiumStreamsHaveVersionZero(t *testing.T) {
	s := newSide(t, Options{IRD: 1, ORD: 1, Consortium: true}, Policy{})
	s.post(1, verbs.OpSend, nil)
	if g := s.one(); g.Control.DDPVersion != 0 || g.Control.RDMAPVersion != 0 {
		t.Errorf("%+v", g.Control)
	}
	s.recv(1)
	g := untagged(wire.OpSend, 1, 0, nil, true)
	g.Control.DDPVersion, g.Control.RDMAPVersion = 0, 0
	s.in(g)
	s.wantReceived("1:0")
	s.in(untagged(wire.OpSend, 2, 0, nil, true)) // of version 1
	if got := s.one(); got.Terminate.Error != wire.TermUntaggedVersion {
		t.Errorf("%v", got.Terminate.Error)
	}
}

func TestOpcodeChangeWithinMessageTerminates(t *testing.T) {
	for name, c := range map[string]struct{ first, second wire.Opcode }{
		"send to solicited": {wire.OpSend, wire.OpSendSE},
		"send to immediate": {wire.OpSend, wire.OpImmediate},
		"immediate to send": {wire.OpImmediate, wire.OpSend},
		"read to atomic":    {wire.OpReadRequest, wire.OpAtomicRequest},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			r, _ := s.region(64, allAccess)
			s.recv(1, sge(r, 0, 64))
			s.recv(2, sge(r, 0, 64))
			s.stream.Input(piece(c.first, 1, 0, []byte("ab"), false))
			s.wantAlive()
			s.stream.Input(piece(c.second, 1, 2, []byte("cd"), false))
			if segs := s.all(1442); len(segs) != 1 || segs[0].Terminate.Error != wire.TermOpOpcode {
				t.Errorf("%+v", segs)
			}
		})
	}
}

func TestControlMessagesMayHaveSeveralSegments(t *testing.T) {
	s := newSide(t, depth, Policy{})
	r, mem := s.region(64, allAccess)
	copy(mem, "contents")
	q := readOf(r, 0, 8)
	whole := q.Append(nil)
	for i, b := range whole {
		s.stream.Input(piece(wire.OpReadRequest, 1, uint32(i), []byte{b}, i == len(whole)-1))
	}
	if got := readResponse(t, s.all(1442), q); string(got) != "contents" {
		t.Errorf("%q", got)
	}
	req := wire.AtomicRequest{RequestID: 5, STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 1}
	whole = req.Append(nil)
	s.stream.Input(piece(wire.OpAtomicRequest, 2, 0, whole[:50], false))
	s.stream.Input(piece(wire.OpAtomicRequest, 2, 50, whole[50:], true))
	if g := s.one(); g.Control.Opcode != wire.OpAtomicResponse || g.AtomicResponse.RequestID != 5 {
		t.Errorf("%+v", g)
	}
	s.recv(7)
	s.stream.Input(piece(wire.OpImmediate, 1, 0, []byte{0, 0, 0}, false))
	s.stream.Input(piece(wire.OpImmediate, 1, 3, []byte{9, 0, 0, 0, 0}, true))
	s.wantReceived("7:0")
	if s.received[0].Imm != 9 {
		t.Errorf("%+v", s.received[0])
	}
	s.stream.Input(piece(wire.OpReadRequest, 3, 0, make([]byte, 20), false))
	s.stream.Input(piece(wire.OpReadRequest, 3, 20, make([]byte, 9), true)) // one octet too many
	if g := s.one(); g.Terminate.Error != wire.TermUntaggedTooLong {
		t.Errorf("%v", g.Terminate.Error)
	}
}
