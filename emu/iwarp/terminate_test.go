package iwarp

import (
	"encoding/hex"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(s))(t)
	return b
}

// terminateFrom returns a Terminate segment of the peer.
func terminateFrom(term wire.Terminate) wire.Segment {
	g := untagged(wire.OpTerminate, 1, 0, nil, true)
	g.Terminate = term
	return g
}

var terminateRows = map[string]func(*testing.T){
	"rfc5040/4.8/1 rfc5040/4.8/3": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.stream.Fail(wire.TermMPACRC, true)
		if b := s.out(1442); hex.EncodeToString(b) != "4147000000000000000200000001000000002002"+"0000" {
			t.Errorf("%x", b)
		}
		// Reserved bits of a received Terminate are ignored.
		s = newSide(t, depth, Policy{})
		s.in(terminateFrom(wire.Terminate{Error: wire.TermMPACRC, Reserved: 0x00ff}))
		if len(s.ended) != 1 || s.ended[0].Error != wire.TermMPACRC {
			t.Errorf("%+v", s.ended)
		}
	},
	"rfc5040/4.8/2": func(t *testing.T) {
		known := map[wire.TermError]bool{}
		for _, e := range reasons {
			known[e] = true
		}
		for _, e := range []wire.TermError{
			wire.TermRDMAPLocal, wire.TermProtInvalidSTag, wire.TermOpStream, wire.TermUntaggedMO, wire.TermMPANoRTR,
		} {
			if !known[e] {
				t.Errorf("%v is not counted by name", e)
			}
		}
		if len(known) != len(reasons) || len(reasons) != 33 {
			t.Errorf("%d reasons", len(reasons))
		}
	},
	"rfc5040/4.8/4 rfc5040/4.8/5": func(t *testing.T) {
		for _, c := range []struct {
			name string
			do   func(*side)
			len  int
		}{
			{"layer 2", func(s *side) { s.stream.Fail(wire.TermMPAMarker, true) }, 22},
			{"0/0", func(s *side) { s.post(1, verbs.OpSend, []verbs.SGE{{Length: 1}}) }, 22},
			{"0/1 Write", func(s *side) {
				r, _ := s.region(8, verbs.AccessLocalWrite)
				s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte{1}, true))
			}, 38},
			{"0/1 Read", func(s *side) { s.in(readRequest(1, wire.ReadRequest{Size: 1})) }, 70},
			{"0/1 Atomic", func(s *side) { s.in(atomicRequest(1, wire.AtomicRequest{STag: 4})) }, 42},
			{"0/2", func(s *side) {
				s.in(with(readRequest(1, wire.ReadRequest{}), func(g *wire.Segment) { g.Control.RDMAPVersion = 0 }))
			}, 42},
			{"1/1", func(s *side) { s.in(tagged(wire.OpWrite, 1, 1, []byte{1}, true)) }, 38},
			{"1/2", func(s *side) { s.in(untagged(wire.OpSend, 1, 0, nil, true)) }, 42},
		} {
			s := newSide(t, depth, Policy{})
			c.do(s)
			b := s.out(1442)
			g := parse(t, b)
			if len(b) != c.len || len(g.Payload) != 0 {
				t.Errorf("%s: %d octets, want %d: %+v", c.name, len(b), c.len, g.Terminate)
			}
		}
	},
	"rfc5040/4.8/6": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(1<<20, allAccess)
		q := readOf(r, 0, 1<<20)
		g := readRequest(1, q)
		s.in(g)
		for range 3 {
			if s.out(1442) == nil {
				t.Fatal("no response")
			}
		}
		must.Do(t, s.base.DeregMR(r))
		term := s.wantTerminate(wire.TermProtInvalidSTag, &g)
		q.SinkTO += 3 * 1428
		q.SrcTO += 3 * 1428
		q.Size -= 3 * 1428
		if !term.HasRDMAP || term.Read != q {
			t.Errorf("the Terminate has %+v, want %+v", term.Read, q)
		}
	},
	"rfc5040/5.4/1 rfc5040/6.2.1/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.in(untagged(wire.OpSend, 1, 0, nil, true))
		g := s.one()
		if g.Control != wire.NewControl(wire.OpTerminate, true) || g.Untagged != (wire.Untagged{QN: 2, MSN: 1}) {
			t.Errorf("%+v", g.Header)
		}
	},
	"rfc5040/5.4/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(4096, allAccess)
		s.post(1, verbs.OpSend, []verbs.SGE{sge(r, 0, 4000)})
		s.in(readRequest(1, readOf(r, 0, 4000)))
		if s.out(1442) == nil {
			t.Fatal("no segment is output")
		}
		s.stream.Fail(wire.TermRDMAPLocal, true)
		if g := s.one(); g.Control.Opcode != wire.OpTerminate {
			t.Errorf("%v", g.Control.Opcode)
		}
		s.stream.Fail(wire.TermRDMAPLocal, true)
		s.in(readRequest(2, readOf(r, 0, 8)))
		if segs := s.all(1442); len(segs) != 0 {
			t.Errorf("after the Terminate: %+v", segs)
		}
	},
	"rfc5040/5.4/3 rfc5040/5.4/5 rfc5040/5.4/6 rfc5040/6.2.1/2 rfc6580/3.1/1": func(t *testing.T) {
		for _, e := range []wire.TermError{wire.TermOpOpcode, wire.TermProtAccess, {Layer: 0, Type: 0, Code: 0x5a}} {
			s := newSide(t, depth, Policy{})
			r, _ := s.region(64, allAccess)
			for i := range uint64(4) {
				s.post(2*i, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
				s.post(2*i+1, verbs.OpSend, nil)
			}
			s.all(1442)
			s.in(terminateFrom(wire.Terminate{Error: e, HasLength: true}))
			if len(s.ended) != 1 || s.ended[0] != (End{Cause: ByTerminate, Error: e}) {
				t.Errorf("Ended was called with %+v", s.ended)
			}
			if term, received := s.stream.Ended(); !received || term.Error != e {
				t.Errorf("Ended() = %+v, %v", term, received)
			}
			if len(s.sends) != 8 || len(s.retired) != 8 {
				t.Errorf("%d of 8 completed, %d retired", len(s.sends), len(s.retired))
			}
			if segs := s.all(1442); len(segs) != 0 || s.layer.Count.TerminatesReceived.Of(e) != 1 {
				t.Errorf("output %+v", segs)
			}
		}
	},
	"rfc5040/5.4/4 rfc6580/3.3/1": func(t *testing.T) {
		for name, g := range map[string]wire.Segment{
			"queue":   with(terminateFrom(wire.Terminate{}), func(g *wire.Segment) { g.Untagged.QN = 0 }),
			"MSN":     with(terminateFrom(wire.Terminate{}), func(g *wire.Segment) { g.Untagged.MSN = 2 }),
			"offset":  with(terminateFrom(wire.Terminate{}), func(g *wire.Segment) { g.Untagged.MO = 4 }),
			"not L":   with(terminateFrom(wire.Terminate{}), func(g *wire.Segment) { g.Control.Last = false }),
			"T":       with(terminateFrom(wire.Terminate{}), func(g *wire.Segment) { g.Control.Tagged = true }),
			"version": with(terminateFrom(wire.Terminate{}), func(g *wire.Segment) { g.Control.RDMAPVersion = 2 }),
		} {
			s := newSide(t, depth, Policy{})
			s.in(g)
			if segs := s.all(1442); len(segs) != 0 || len(s.ended) != 1 || s.ended[0].Terminate || s.layer.Count.SilentEnds != 1 {
				t.Errorf("%s: output %+v, ended %+v", name, segs, s.ended)
			}
		}
		s := newSide(t, depth, Policy{})
		s.stream.Input(piece(wire.OpTerminate, 1, 0, []byte{0x11, 0}, true)) // truncated
		if segs := s.all(1442); len(segs) != 0 || len(s.ended) != 1 {
			t.Errorf("output %+v, ended %+v", segs, s.ended)
		}
		s = newSide(t, depth, Policy{})
		s.in(terminateFrom(wire.Terminate{Error: wire.TermError{Layer: 2, Type: 2, Code: 3}})) // MPA has no type 2
		if s.layer.Count.TerminatesReceived.Of(wire.TermError{Layer: 15}) != 1 {
			t.Error("an unassigned error is not counted as one")
		}
		s.in(terminateFrom(wire.Terminate{Error: wire.TermMPACRC})) // a second Terminate is dropped
		if len(s.ended) != 1 {
			t.Errorf("%+v", s.ended)
		}
	},
	"rfc5040/7.1/1 rfc5040/7.1/2": func(t *testing.T) {
		for name, c := range map[string]struct {
			post func(*side)
			want string
		}{
			"send":       {func(s *side) { s.post(1, verbs.OpSend, []verbs.SGE{{Length: 8, LKey: 5}}) }, "1 IBV_WC_LOC_PROT_ERR"},
			"write":      {func(s *side) { s.post(1, verbs.OpRDMAWrite, []verbs.SGE{{Length: 8, LKey: 5}}) }, "1 IBV_WC_LOC_PROT_ERR"},
			"read":       {func(s *side) { s.post(1, verbs.OpRDMARead, []verbs.SGE{{Length: 8, LKey: 5}}) }, "1 IBV_WC_LOC_PROT_ERR"},
			"atomic":     {func(s *side) { s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{{Length: 8, LKey: 5}}) }, "1 IBV_WC_LOC_PROT_ERR"},
			"invalidate": {func(s *side) { s.post(1, verbs.OpLocalInv, nil) }, "1 IBV_WC_LOC_PROT_ERR"},
			"read into read-only memory": {func(s *side) {
				r, _ := s.region(8, verbs.AccessRemoteRead)
				s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)})
			}, "1 IBV_WC_LOC_PROT_ERR"},
			"second SGE": {func(s *side) { // nothing of the first SGE may be sent
				r, _ := s.region(4000, allAccess)
				s.post(1, verbs.OpSend, []verbs.SGE{sge(r, 0, 4000), {Length: 1, LKey: 5}})
			}, "1 IBV_WC_LOC_PROT_ERR"},
		} {
			t.Run(name, func(t *testing.T) {
				s := newSide(t, depth, Policy{})
				c.post(s)
				s.post(2, verbs.OpSend, nil)
				if g := s.one(); g.Terminate.Error != wire.TermRDMAPLocal || g.Terminate.HasDDP || g.Terminate.HasLength {
					t.Errorf("%+v", g.Terminate)
				}
				s.wantSends(c.want, "2 IBV_WC_WR_FLUSH_ERR")
				if len(s.ended) != 1 || s.ended[0].Cause != ByRequest {
					t.Errorf("%+v", s.ended)
				}
			})
		}
	},
}

func TestTerminateFailsItsRequest(t *testing.T) {
	// The requests of a stream, and Terminates of the peer about them.
	for name, c := range map[string]struct {
		term func(r *Request) wire.Terminate
		want []string
	}{
		"read by its header": {func(*Request) wire.Terminate {
			return wire.Terminate{
				Error: wire.TermProtBounds, HasLength: true, HasDDP: true, HasRDMAP: true,
				DDP:  readRequest(16, wire.ReadRequest{}).Header, // the number is wrong, as soft-iWARP's is
				Read: wire.ReadRequest{SinkSTag: 0x300, SinkTO: 0x3010, Size: 8, SrcSTag: 3},
			}
		}, []string{"1 IBV_WC_WR_FLUSH_ERR", "2 IBV_WC_REM_ACCESS_ERR", "3 IBV_WC_WR_FLUSH_ERR", "4 IBV_WC_WR_FLUSH_ERR"}},
		"read by its number": {func(*Request) wire.Terminate {
			return wire.Terminate{Error: wire.TermOpStream, HasLength: true, HasDDP: true, DDP: readRequest(2, wire.ReadRequest{}).Header}
		}, []string{"1 IBV_WC_WR_FLUSH_ERR", "2 IBV_WC_REM_OP_ERR", "3 IBV_WC_WR_FLUSH_ERR", "4 IBV_WC_WR_FLUSH_ERR"}},
		"send": {func(*Request) wire.Terminate {
			return wire.Terminate{Error: wire.TermUntaggedNoBuffer, HasLength: true, HasDDP: true, DDP: untagged(wire.OpSend, 1, 0, nil, true).Header}
		}, []string{"1 IBV_WC_WR_FLUSH_ERR", "2 IBV_WC_WR_FLUSH_ERR", "3 IBV_WC_REM_INV_REQ_ERR", "4 IBV_WC_WR_FLUSH_ERR"}},
		"write": {func(*Request) wire.Terminate {
			return wire.Terminate{Error: wire.TermTaggedBounds, HasLength: true, HasDDP: true, DDP: tagged(wire.OpWrite, 4, 0x44, nil, true).Header}
		}, []string{"1 IBV_WC_WR_FLUSH_ERR", "2 IBV_WC_WR_FLUSH_ERR", "3 IBV_WC_WR_FLUSH_ERR", "4 IBV_WC_REM_ACCESS_ERR"}},
		"unknown address": {func(*Request) wire.Terminate {
			return wire.Terminate{Error: wire.TermTaggedBounds, HasLength: true, HasDDP: true, DDP: tagged(wire.OpWrite, 4, 0x80, nil, true).Header}
		}, []string{"1 IBV_WC_WR_FLUSH_ERR", "2 IBV_WC_WR_FLUSH_ERR", "3 IBV_WC_WR_FLUSH_ERR", "4 IBV_WC_WR_FLUSH_ERR"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)}, to(1, 0x10))
			read := s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 64)}, to(3, 0x30))
			s.post(3, verbs.OpSend, nil)
			s.post(4, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 0, 64)}, to(4, 0x40))
			s.all(1442)
			term := c.term(read)
			if term.HasRDMAP {
				term.Read.SinkSTag, term.Read.SinkTO = wire.STag(r.Key), r.Addr+0x10
			}
			s.in(terminateFrom(term))
			s.wantSends(c.want...)
		})
	}
}

func TestStatusOfRefusedRequestFollowsTerminateError(t *testing.T) {
	for e, want := range map[wire.TermError]verbs.WCStatus{
		wire.TermProtBounds:       verbs.WCRemAccessErr,
		wire.TermProtNoInvalidate: verbs.WCRemAccessErr,
		wire.TermTaggedSTag:       verbs.WCRemAccessErr,
		wire.TermOpStream:         verbs.WCRemOpErr,
		wire.TermOpGlobal:         verbs.WCRemOpErr,
		wire.TermOpUnspecified:    verbs.WCRemOpErr,
		wire.TermOpOpcode:         verbs.WCRemInvReqErr,
		wire.TermOpVersion:        verbs.WCRemInvReqErr,
		wire.TermUntaggedNoBuffer: verbs.WCRemInvReqErr,
		wire.TermUntaggedTooLong:  verbs.WCRemInvReqErr,
		wire.TermRDMAPLocal:       verbs.WCRemOpErr,
		wire.TermDDPLocal:         verbs.WCRemOpErr,
		wire.TermMPACRC:           verbs.WCRemOpErr,
	} {
		s := newSide(t, depth, Policy{})
		s.post(1, verbs.OpRDMARead, nil) // the Send does not complete before it
		s.post(2, verbs.OpSend, nil)
		s.all(1442)
		s.in(terminateFrom(wire.Terminate{Error: e, HasLength: true, HasDDP: true, DDP: untagged(wire.OpSend, 1, 0, nil, true).Header}))
		t.Log(e)
		s.wantSends("1 IBV_WC_WR_FLUSH_ERR", "2 "+want.String())
	}
}

func TestEventOfInvalidSegmentFollowsTerminateError(t *testing.T) {
	for e, want := range map[wire.TermError]verbs.AsyncEventType{
		wire.TermProtAccess:       verbs.EventQPAccessErr,
		wire.TermProtNoInvalidate: verbs.EventQPAccessErr,
		wire.TermTaggedSTag:       verbs.EventQPAccessErr,
		wire.TermTaggedBounds:     verbs.EventQPAccessErr,
		wire.TermTaggedVersion:    verbs.EventQPReqErr,
		wire.TermUntaggedVersion:  verbs.EventQPReqErr,
		wire.TermUntaggedNoBuffer: verbs.EventQPReqErr,
		wire.TermOpOpcode:         verbs.EventQPReqErr,
		wire.TermRDMAPLocal:       verbs.EventQPFatal,
		wire.TermDDPLocal:         verbs.EventQPFatal,
	} {
		if got := PeerErrorEvent(e); got != want {
			t.Errorf("%v: %v, want %v", e, got, want)
		}
	}
}

// A Terminate usually arrives before a long message is sent completely.
func TestTerminateFailsPartlySentRequest(t *testing.T) {
	terminateFor := func(e wire.TermError, g wire.Segment) wire.Segment {
		return terminateFrom(wire.Terminate{Error: e, HasLength: true, HasDDP: true, DDP: g.Header})
	}
	for name, c := range map[string]struct {
		op   verbs.WROpcode
		term wire.Segment
		want string
	}{
		"write":                 {verbs.OpRDMAWrite, terminateFor(wire.TermTaggedBounds, tagged(wire.OpWrite, 4, 0x40, nil, false)), "2 IBV_WC_REM_ACCESS_ERR"},
		"write to another STag": {verbs.OpRDMAWrite, terminateFor(wire.TermTaggedBounds, tagged(wire.OpWrite, 5, 0x40, nil, false)), "2 IBV_WC_WR_FLUSH_ERR"},
		"send":                  {verbs.OpSend, terminateFor(wire.TermUntaggedNoBuffer, untagged(wire.OpSend, 2, 0, nil, false)), "2 IBV_WC_REM_INV_REQ_ERR"},
		"an earlier send":       {verbs.OpSend, terminateFor(wire.TermUntaggedNoBuffer, untagged(wire.OpSend, 1, 0, nil, true)), "2 IBV_WC_WR_FLUSH_ERR"},
		"unsent immediate":      {verbs.OpRDMAWriteImm, terminateFor(wire.TermUntaggedNoBuffer, untagged(wire.OpImmediate, 0, 0, nil, true)), "2 IBV_WC_WR_FLUSH_ERR"},
	} {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(2000, allAccess)
		s.post(1, verbs.OpSend, nil)
		s.all(1442)
		s.sends = nil
		s.post(2, c.op, []verbs.SGE{sge(r, 0, 2000)}, to(4, 0x40))
		s.post(3, c.op, []verbs.SGE{sge(r, 0, 2000)}, to(4, 0x40))
		s.out(1442)
		s.in(c.term)
		t.Log(name)
		s.wantSends(c.want, "3 IBV_WC_WR_FLUSH_ERR")
	}
}

func TestTerminatesOfSoftIWARPAreParsed(t *testing.T) {
	for _, c := range []struct {
		name, ulpdu string
		responder   bool
		want        wire.TermError
	}{
		{"V19", "414700000000000000020000000100000000" + "02020000", false, wire.TermMPACRC},
		{"V20", "414700000000000000020000000100000000" + "21060000", false, wire.TermUntaggedVersion},
		{"V21", "414700000000000000020000000100000000" + "20060000", false, wire.TermOpOpcode},
		{"V22", "414700000000000000020000000100000000" + "210103000010414300000000000000010000000100000000", false, wire.TermUntaggedQN},
		{"V23", "414700000000000000020000000100000000" + "110003000010c140abcdef000000000000000000", false, wire.TermTaggedSTag},
		{"V24", "414700000000000000020000000100000000" + "10000700000041410000000000000001000000100000000000000007000000000000010000000010abcdef000000000000000000", false, wire.TermProtInvalidSTag},
		{"V25", "414700000000000000020000000100000000" + "200703000000414100000000000000010000000100000000", false, wire.TermOpStream},
		{"V26, to a responder", "414700000000000000020000000100000000" + "02060000", true, wire.TermMPANotEnoughReads},
		{"V26, to an initiator", "414700000000000000020000000100000000" + "02060000", false, wire.TermOpOpcode},
		{"D2", "414700000000000000020000000100000000" + "1100c000001ec140abcdef000000000000000000", false, wire.TermTaggedSTag},
	} {
		s := newSide(t, Options{IRD: 4, ORD: 4, Responder: c.responder}, Policy{})
		s.stream.Input(unhex(t, c.ulpdu))
		if len(s.ended) != 1 || s.ended[0].Error != c.want || s.ended[0].Cause != ByTerminate {
			t.Errorf("%s: %+v, want %v", c.name, s.ended, c.want)
		}
	}
}
