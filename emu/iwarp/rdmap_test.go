package iwarp

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var sendRows = map[string]func(*testing.T){
	"rfc5040/4.1/5": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		w := boundWindow(s)
		s.recv(1)
		g := untagged(wire.OpSend, 1, 0, nil, true)
		g.Untagged.Invalidate = wire.STag(w.Key)
		s.in(g)
		s.wantAlive()
		if !w.Bound() || s.received[0].Flags != 0 {
			t.Error("a plain Send has invalidated a window")
		}
	},
	"rfc5040/5.3/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.recv(1)
		s.recv(2)
		s.in(untagged(wire.OpSend, 1, 0, nil, true))
		s.in(untagged(wire.OpSend, 2, 0, nil, true))
		s.wantReceived("1:0", "2:0")
		g := untagged(wire.OpSend, 3, 0, nil, true)
		s.in(g)
		s.wantTerminate(wire.TermUntaggedNoBuffer, &g)
	},
	"rfc5040/5.3/8": func(t *testing.T) {
		for _, op := range []wire.Opcode{wire.OpSendInv, wire.OpSendSEInv} {
			s := newSide(t, depth, Policy{})
			w := boundWindow(s)
			r, _ := s.region(16, allAccess)
			s.recv(1, sge(r, 0, 16))
			g := untagged(op, 1, 0, []byte("half"), false)
			g.Untagged.Invalidate = wire.STag(w.Key)
			s.in(g)
			if !w.Bound() {
				t.Fatal("invalidated before the end of the message")
			}
			g = untagged(op, 1, 4, []byte("half"), true)
			g.Untagged.Invalidate = wire.STag(w.Key)
			s.in(g)
			s.wantReceived("1:8")
			c := s.received[0]
			if w.Bound() || c.Flags != verbs.WCWithInv || c.InvalidatedRKey != verbs.RKey(w.Key) || c.solicited != (op == wire.OpSendSEInv) {
				t.Errorf("bound %v, completion %+v", w.Bound(), c)
			}
			bad := tagged(wire.OpWrite, w.Key, r.Addr, []byte("late"), true)
			s.in(bad)
			s.wantTerminate(wire.TermTaggedSTag, &bad)
		}
	},
	"rfc5040/5.3/9 rfc5040/7.2/3": func(t *testing.T) {
		for _, op := range []wire.Opcode{wire.OpSendInv, wire.OpSendSEInv} {
			for name, stag := range map[string]func(*side) uint32{
				"unknown":        func(*side) uint32 { return 0xabcdef00 },
				"another domain": func(s *side) uint32 { return windowOf(s, s.other, 0x11).Key },
				"another stream": func(s *side) uint32 { return windowOf(s, s.pd, 0x12).Key },
			} {
				t.Run(op.String()+" of "+name, func(t *testing.T) {
					s := newSide(t, depth, Policy{})
					s.recv(1)
					g := untagged(op, 1, 0, nil, true)
					g.Untagged.Invalidate = wire.STag(stag(s))
					s.in(g)
					s.wantTerminate(wire.TermProtNoInvalidate, &g)
					s.wantReceived("1 IBV_WC_REM_INV_REQ_ERR")
				})
			}
		}
	},
}

// boundWindow returns a type 2 window bound to the QP of the stream.
func boundWindow(s *side) *nic.Window { return windowOf(s, s.pd, 0x11) }

func windowOf(s *side, pd nic.PD, qpn uint32) *nic.Window {
	s.t.Helper()
	r, _ := s.regionOf(pd, 64, allAccess)
	w := must.Get(s.base.AllocMW(pd, verbs.MWType2))(s.t)
	b := nic.Bind{Region: r, Addr: r.Addr, Len: 64, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead, Key: w.Key + 1, PD: pd, QPN: qpn}
	must.Do(s.t, s.base.Mem.Bind(w, b))
	return w
}

var writeRows = map[string]func(*testing.T){
	"rfc5040/4.1/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		g := tagged(wire.OpWrite, 0, 0, nil, true)
		g.Control.Tagged = false
		g.Payload = make([]byte, 8)
		s.in(g)
		s.wantTerminate(wire.TermOpOpcode, &g)
	},
	"rfc5040/5.1/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(16, allAccess)
		s.recv(1)
		s.in(tagged(wire.OpWrite, r.Key, r.Addr+3, []byte("hello"), true))
		s.wantReceived()
		if string(mem[3:8]) != "hello" || len(s.recvs) != 1 {
			t.Errorf("%q, %d receives remain", mem, len(s.recvs))
		}
	},
	"rfc5040/5.1/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(3, allAccess)
		copy(mem, "123")
		for i := range 3 {
			s.post(uint64(i), verbs.OpRDMAWrite, []verbs.SGE{sge(r, i, 1)}, to(9, 0x1000))
		}
		var got []byte
		for _, g := range s.all(1442) {
			got = append(got, g.Payload...)
		}
		if string(got) != "123" {
			t.Errorf("octets in the order %q", got)
		}
	},
	"rfc5040/5.1/3": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(4000, allAccess)
		pattern(mem, 9)
		s.post(1, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 3000, 1000), sge(r, 0, 1), sge(r, 0, 0), sge(r, 10, 1000)}, to(9, 0x1000))
		var got []byte
		lasts := 0
		for _, g := range s.all(1442) {
			if g.Tagged.STag != 9 {
				t.Errorf("STag %#x", g.Tagged.STag)
			}
			if g.Control.Last {
				lasts++
			}
			got = append(got, g.Payload...)
		}
		if want := bytes.Join([][]byte{mem[3000:4000], mem[:1], mem[10:1010]}, nil); lasts != 1 || !bytes.Equal(got, want) {
			t.Errorf("%d messages of %d octets", lasts, len(got))
		}
	},
}
