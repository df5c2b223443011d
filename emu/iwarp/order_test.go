package iwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var orderRows = map[string]func(*testing.T){
	"rfc5040/5.5/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(4096, allAccess)
		s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 4000)}, to(1, 0))
		s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 4000, 1)}, to(1, 0))
		s.all(1442)
		s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 4000), true))
		s.wantSends("1")
		s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+4000, make([]byte, 1), true))
		s.wantSends("1", "2")
	},
	"rfc5040/5.5/5": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(4096, allAccess)
		s.post(1, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 0, 4000)}, to(1, 0))
		s.post(2, verbs.OpSend, []verbs.SGE{sge(r, 0, 1)})
		for range 4 {
			if s.out(1442) == nil {
				t.Fatal("too few segments")
			}
		}
		if s.out(1442) != nil {
			t.Fatal("too many segments")
		}
		s.stream.Accepted(2)
		s.wantSends()
		s.stream.Accepted(1)
		s.wantSends("1")
		if s.stream.Idle() {
			t.Error("idle before its segment is accepted")
		}
		s.stream.Accepted(1)
		s.wantSends("1", "2")
		if !s.stream.Idle() {
			t.Error("not idle although all segments are accepted")
		}
	},
	"rfc5040/5.5/6": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		w := boundWindow(s)
		s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
		s.post(2, verbs.OpSend, []verbs.SGE{sge(r, 0, 8)})
		s.post(3, verbs.OpLocalInv, nil, func(q *Request) { q.Invalidate = w.Key })
		s.post(4, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
		s.post(5, verbs.OpRDMAWrite, nil, to(1, 0))
		s.all(1442)
		s.wantSends()
		if w.Bound() {
			t.Error("the window is still bound")
		}
		s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 8), true))
		s.wantSends("1", "2", "3")
		g := untagged(wire.OpAtomicResponse, 1, 0, nil, true)
		g.AtomicResponse.RequestID = 2
		s.in(g)
		s.wantSends("1", "2", "3", "4", "5")
	},
	"rfc5040/5.5/9": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		s.recv(1)
		s.in(readRequest(1, readOf(r, 0, 8)))
		s.in(untagged(wire.OpSend, 1, 0, nil, true))
		s.wantReceived("1:0") // before the response to the read
		if got := s.one(); got.Control.Opcode != wire.OpReadResponse {
			t.Errorf("%+v", got)
		}
	},
	"rfc5040/5.5/10": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		w := boundWindow(s)
		s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
		s.post(2, verbs.OpLocalInv, nil, flags(verbs.SendFence), func(q *Request) { q.Invalidate = w.Key })
		s.post(3, verbs.OpSend, nil)
		if segs := s.all(1442); len(segs) != 1 || !w.Bound() {
			t.Errorf("the fence let %d segments through", len(segs))
		}
		if s.stream.WaitsForPeer() != true || s.stream.Idle() {
			t.Error("WaitsForPeer is false at the fence")
		}
		s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 8), true))
		if segs := s.all(1442); len(segs) != 1 || w.Bound() {
			t.Errorf("%d segments after the fence", len(segs))
		}
		s.wantSends("1", "2", "3")
	},
	"rfc5040/6.1/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.stream.Input(make([]byte, 40))
		if g := s.one(); g.Terminate.Error != wire.TermUntaggedVersion {
			t.Errorf("40 zero octets: %v", g.Terminate.Error)
		}
		for n := range 18 {
			s := newSide(t, depth, Policy{})
			b := untagged(wire.OpSend, 1, 0, nil, true)
			s.stream.Input(b.Append(nil)[:n])
			if g := s.one(); g.Terminate.Error != wire.TermOpUnspecified || g.Terminate.HasDDP {
				t.Errorf("a segment of %d octets: %+v", n, g.Terminate)
			}
		}
	},
}

func TestRequestsAndResponsesAlternate(t *testing.T) {
	s := newSide(t, Options{IRD: 8, ORD: 8}, Policy{})
	r, _ := s.region(4096, allAccess)
	for i := range uint64(4) {
		s.post(i, verbs.OpRDMAWriteImm, []verbs.SGE{sge(r, 0, 3000)}, to(1, 0))
	}
	for i := range 4 {
		s.in(readRequest(wire.MSN(i+1), readOf(r, 0, 3000)))
	}
	got := ""
	for _, g := range s.all(1442) {
		got += map[wire.Opcode]string{wire.OpWrite: "w", wire.OpImmediate: "i ", wire.OpReadResponse: "r"}[g.Control.Opcode]
		if g.Control.Opcode == wire.OpReadResponse && g.Control.Last {
			got += " "
		}
	}
	if want := "wwwi rrr wwwi rrr wwwi rrr wwwi rrr "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFullCQEndsStreamOnce(t *testing.T) {
	for name, do := range map[string]func(*side){
		"send": func(s *side) {
			for i := range uint64(3) {
				s.post(i, verbs.OpSend, nil)
			}
			for s.out(1442) != nil {
			}
			s.stream.Accepted(3)
		},
		"receive": func(s *side) {
			s.recv(1)
			s.in(untagged(wire.OpSend, 1, 0, nil, true))
		},
		"read": func(s *side) {
			r, _ := s.region(8, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
			s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 8), true))
		},
		"local": func(s *side) {
			w := boundWindow(s)
			s.post(1, verbs.OpLocalInv, nil, func(q *Request) { q.Invalidate = w.Key })
			s.post(2, verbs.OpSend, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			s.fullCQ = true
			do(s)
			s.wantTerminate(wire.TermRDMAPLocal, nil)
			if len(s.retired) != len(s.sends) {
				t.Errorf("%d requests completed, %d retired", len(s.sends), len(s.retired))
			}
		})
	}
}

func TestBindExecutesInPostingOrder(t *testing.T) {
	s := newSide(t, depth, Policy{})
	r, _ := s.region(64, allAccess)
	w := must.Get(s.base.AllocMW(s.pd, verbs.MWType2))(t)
	bind := func(q *Request) {
		q.Window = w
		q.Bind.Region, q.Bind.Addr, q.Bind.Len, q.Bind.Access, q.Bind.Key, q.Bind.PD, q.Bind.QPN = r, r.Addr, 32, verbs.AccessRemoteRead, w.Key+1, s.pd, 0x11
	}
	s.post(1, verbs.OpBindMW, nil, bind)
	s.post(2, verbs.OpSend, nil)
	if g := s.one(); g.Control.Opcode != wire.OpSend || !w.Bound() {
		t.Errorf("%v, bound %v", g.Control.Opcode, w.Bound())
	}
	s.wantSends("1", "2")
	s.post(3, verbs.OpBindMW, nil, bind) // the window is bound already
	s.wantTerminate(wire.TermRDMAPLocal, nil)
	s.wantSends("1", "2", "3 IBV_WC_MW_BIND_ERR")
}
