package iwarp

import (
	"math"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// refusal is a segment that must end the stream.
type refusal struct {
	name string
	seg  wire.Segment
	want wire.TermError
}

// refused passes each segment to a new stream and checks the Terminate. prepare registers the
// memory, which must not change.
func refused(t *testing.T, prepare func(*side) (nic.Bytes, []refusal)) {
	probe := newSide(t, depth, Policy{})
	_, list := prepare(probe)
	for i := range list {
		t.Run(list[i].name, func(t *testing.T) {
			s := newSide(t, depth, Policy{})
			mem, list := prepare(s)
			before := string(mem)
			c := &list[i]
			s.in(c.seg)
			s.wantTerminate(c.want, &c.seg)
			if string(mem) != before {
				t.Error("memory has changed")
			}
		})
	}
}

func with(g wire.Segment, f func(*wire.Segment)) wire.Segment {
	f(&g)
	return g
}

// sendRig is a stream with one receive of 16 octets.
func sendRig(s *side) nic.Bytes {
	r, mem := s.region(16, allAccess)
	s.recv(1, sge(r, 0, 16))
	return mem
}

var ddpErrorRows = map[string]func(*testing.T){
	"rfc5041/7.1/1 rfc7306/4.1/2": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			mem := sendRig(s)
			var list []refusal
			for op := wire.OpReadRequest; op <= wire.OpAtomicResponse; op++ {
				info, _ := op.Info()
				if info.Tagged || op == wire.OpTerminate {
					continue
				}
				for _, q := range []wire.QN{0, 1, 2, 3, 4, math.MaxUint32} {
					if q != info.Queue {
						list = append(list, refusal{op.String(), with(untagged(op, 1, 0, nil, true), func(g *wire.Segment) { g.Untagged.QN = q }), wire.TermUntaggedQN})
					}
				}
			}
			return mem, list
		})
	},
	"rfc5041/7.1/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(16, allAccess)
		s.recv(1, sge(r, 0, 16))
		s.in(untagged(wire.OpSend, 1, 0, []byte("first"), true))
		s.wantAlive()
		g := untagged(wire.OpSend, 2, 0, []byte("second"), true)
		s.in(g)
		s.wantTerminate(wire.TermUntaggedNoBuffer, &g)
		s.wantReceived("1:5")
	},
	"rfc5041/7.1/3": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			return sendRig(s), []refusal{
				{"send", untagged(wire.OpSend, 1, 4, []byte("abcd"), true), wire.TermUntaggedMO},
				{"read", with(readRequest(1, wire.ReadRequest{}), func(g *wire.Segment) { g.Untagged.MO = 4 }), wire.TermUntaggedMO},
				{"atomic", with(atomicRequest(1, wire.AtomicRequest{}), func(g *wire.Segment) { g.Untagged.MO = 4 }), wire.TermUntaggedMO},
				{"immediate", untagged(wire.OpImmediate, 1, 8, nil, true), wire.TermUntaggedMO},
				{"atomic response", untagged(wire.OpAtomicResponse, 1, 1, nil, true), wire.TermUntaggedMO},
			}
		})
		// Also within a message.
		s := newSide(t, depth, Policy{})
		sendRig(s)
		s.in(untagged(wire.OpSend, 1, 0, []byte("ab"), false))
		g := untagged(wire.OpSend, 1, 3, []byte("cd"), true)
		s.in(g)
		s.wantTerminate(wire.TermUntaggedMO, &g)
	},
	"rfc5041/7.1/4 rfc5040/5.3/4": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		mem := sendRig(s)
		g := untagged(wire.OpSend, 1, 0, make([]byte, 20), true)
		pattern(g.Payload, 1)
		s.in(g)
		s.wantTerminate(wire.TermUntaggedTooLong, &g)
		s.wantReceived("1 IBV_WC_LOC_LEN_ERR")
		if string(mem) != string(make([]byte, 16)) {
			t.Errorf("%x was placed", mem)
		}
		s = newSide(t, depth, Policy{})
		sendRig(s)
		s.in(untagged(wire.OpSend, 1, 0, make([]byte, 16), false))
		g = untagged(wire.OpSend, 1, 16, make([]byte, 1), true)
		s.in(g)
		s.wantTerminate(wire.TermUntaggedTooLong, &g)
		s.wantReceived("1 IBV_WC_LOC_LEN_ERR")
	},
	"rfc5041/7.1/5": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			mem := sendRig(s)
			var list []refusal
			for _, op := range []wire.Opcode{wire.OpSend, wire.OpSendSEInv, wire.OpImmediate, wire.OpReadRequest, wire.OpAtomicRequest, wire.OpAtomicResponse} {
				for _, msn := range []wire.MSN{0, 2, math.MaxUint32} {
					list = append(list, refusal{op.String(), untagged(op, msn, 0, nil, true), wire.TermUntaggedMSN})
				}
			}
			return mem, list
		})
	},
	"rfc5041/7.1/6 rfc5041/7.1/7 rfc5041/7.1/8 rfc5041/7.1/9 rfc5041/7.1/10 rfc5041/8.2/1 rfc5042/6.2.1/1 rfc5041/7.1/13 rfc5041/7.2/1 rfc5040/7.1/3": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			r, mem := s.region(64, allAccess)
			readable, _ := s.region(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			foreign, _ := s.regionOf(s.other, 64, allAccess)
			b := pattern(make([]byte, 16), 5)
			return mem, []refusal{
				{"unknown STag", tagged(wire.OpWrite, 0xabcdef00, r.Addr, b, true), wire.TermTaggedSTag},
				{"STag 0", tagged(wire.OpWrite, 0, r.Addr, b, true), wire.TermTaggedSTag},
				{"wrong key octet", tagged(wire.OpWrite, r.Key^1, r.Addr, b, true), wire.TermTaggedSTag},
				{"no right to write", tagged(wire.OpWrite, readable.Key, readable.Addr, b, true), wire.TermProtAccess},
				{"before the base", tagged(wire.OpWrite, r.Key, r.Addr-1, b, true), wire.TermTaggedBounds},
				{"after the end", tagged(wire.OpWrite, r.Key, r.Addr+64, b, true), wire.TermTaggedBounds},
				{"over the end", tagged(wire.OpWrite, r.Key, r.Addr+56, b, true), wire.TermTaggedBounds},
				{"one over the end", tagged(wire.OpWrite, r.Key, r.Addr+49, b, false), wire.TermTaggedBounds},
				{"wraps", tagged(wire.OpWrite, r.Key, math.MaxUint64-7, b, true), wire.TermTaggedWrap},
				{"another domain", tagged(wire.OpWrite, foreign.Key, foreign.Addr, b, true), wire.TermTaggedStream},
			}
		})
	},
	"rfc5041/7.1/11 rfc5041/7.1/12 rfc5040/7.1/5": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(64, allAccess)
		first := tagged(wire.OpWrite, r.Key, r.Addr+60, []byte("abcdefgh"), true)
		s.in(first)
		s.in(tagged(wire.OpWrite, 7, r.Addr, []byte("bad"), true))
		for range 10 {
			s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("good"), true))
		}
		s.wantTerminate(wire.TermTaggedBounds, &first)
		if string(mem) != string(make([]byte, 64)) {
			t.Errorf("%q was placed", mem)
		}
		if segs := s.all(1442); len(segs) != 0 {
			t.Errorf("after the Terminate: %+v", segs)
		}
		if s.layer.Count.SegmentsDropped != 11 || s.layer.Count.TerminatesSent.Of(wire.TermTaggedBounds) != 1 {
			t.Errorf("counted %+v", s.layer.Count)
		}
	},
	"rfc5041/7.2/2": func(t *testing.T) {
		refused(t, func(s *side) (nic.Bytes, []refusal) {
			mem := sendRig(s)
			var list []refusal
			for _, v := range []uint8{0, 2, 3} {
				set := func(g *wire.Segment) { g.Control.DDPVersion = v }
				list = append(list,
					refusal{"tagged", with(tagged(wire.OpWrite, 1, 2, nil, true), set), wire.TermTaggedVersion},
					refusal{"untagged", with(untagged(wire.OpSend, 1, 0, nil, true), set), wire.TermUntaggedVersion})
			}
			return mem, list
		})
	},
	"rfc5041/8.2/2 rfc5042/6.1.1/2": func(t *testing.T) {
		// A type 2 window is bound to one queue pair: the others of its domain may not
		// use it.
		for _, owner := range []uint32{0x11, 0x12} {
			s := newSide(t, depth, Policy{})
			r, mem := s.region(64, allAccess)
			w := must.Get(s.base.AllocMW(s.pd, verbs.MWType2))(t)
			bind := nic.Bind{Region: r, Addr: r.Addr, Len: 32, Access: verbs.AccessRemoteWrite, Key: w.Key + 1, PD: s.pd, QPN: owner}
			must.Do(t, s.base.Mem.Bind(w, bind))
			g := tagged(wire.OpWrite, w.Key, r.Addr, []byte("x"), true)
			s.in(g)
			if owner == 0x11 {
				s.wantAlive()
				if mem[0] != 'x' {
					t.Error("the stream cannot write to its window")
				}
				continue
			}
			s.wantTerminate(wire.TermTaggedStream, &g)
			if mem[0] != 0 {
				t.Error("the stream wrote to the window of another queue pair")
			}
		}
	},
	"rfc5041/8.3.1/1 rfc5042/6.2.2/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(64, allAccess)
		s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("before"), false))
		must.Do(t, s.base.DeregMR(r))
		g := tagged(wire.OpWrite, r.Key, r.Addr+6, []byte("after"), true)
		s.in(g)
		s.wantTerminate(wire.TermTaggedSTag, &g)
		if string(mem[:12]) != "before\x00\x00\x00\x00\x00\x00" {
			t.Errorf("%q", mem[:12])
		}
	},
}
