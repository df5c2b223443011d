package iwarp

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// everyMessage makes a stream output one message of each kind and returns the segments.
func everyMessage(t *testing.T, limit int) []wire.Segment {
	s := newSide(t, Options{IRD: 8, ORD: 8}, Policy{})
	r, mem := s.region(8192, allAccess)
	pattern(mem, 1)
	src := []verbs.SGE{sge(r, 0, 2500)}
	s.post(1, verbs.OpSend, src)
	s.post(2, verbs.OpSend, src, flags(verbs.SendSolicited))
	s.post(3, verbs.OpSendInv, src, func(q *Request) { q.Invalidate = 0x4711 })
	s.post(4, verbs.OpSendInv, src, flags(verbs.SendSolicited))
	s.post(5, verbs.OpRDMAWrite, src, to(9, 100))
	s.post(6, verbs.OpRDMAWriteImm, src, to(9, 100))
	s.post(7, verbs.OpSendImm, nil, flags(verbs.SendSolicited))
	s.post(8, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 64)}, to(9, 100))
	s.post(9, verbs.OpAtomicFetchAdd, []verbs.SGE{sge(r, 0, 8)}, to(9, 104))
	s.post(10, verbs.OpAtomicCmpAndSwp, []verbs.SGE{sge(r, 8, 8)}, to(9, 104))
	s.in(readRequest(1, wire.ReadRequest{SinkSTag: 5, SinkTO: 77, Size: 3000, SrcSTag: wire.STag(r.Key), SrcTO: r.Addr + 16}))
	s.in(atomicRequest(2, wire.AtomicRequest{RequestID: 3, STag: wire.STag(r.Key), TO: r.Addr}))
	s.in(readRequest(3, wire.ReadRequest{SinkSTag: 5, SinkTO: 77}))
	segs := s.all(limit)
	s.wantAlive()
	s.in(untagged(wire.OpSend, 9, 0, nil, true)) // always invalid
	return append(segs, s.all(limit)...)
}

var ddpSendRows = map[string]func(*testing.T){
	"rfc5041/4.1/1 rfc5041/4.1/6 rfc5041/4.1/8 rfc5040/3.1/1 rfc5040/4.1/1 rfc5040/4.1/3 rfc7306/4.1/1 rfc5040/5.3/1 rfc5040/5.2.1/1 rfc5040/5.2.2/1": func(t *testing.T) {
		seen := map[wire.Opcode]int{}
		for _, g := range everyMessage(t, 1442) {
			c := g.Control
			seen[c.Opcode]++
			info, ok := c.Opcode.Info()
			if !ok || !c.Consistent() || c.DDPReserved != 0 || c.RDMAPReserved != 0 || c.DDPVersion != 1 || c.RDMAPVersion != 1 {
				t.Errorf("%v: control %+v", c.Opcode, c)
			}
			if !c.Tagged && g.Untagged.QN != info.Queue {
				t.Errorf("%v on queue %d", c.Opcode, g.Untagged.QN)
			}
			if !info.Class.Has(wire.Invalidates) && g.Untagged.Invalidate != 0 {
				t.Errorf("%v: Invalidate STag %#x", c.Opcode, g.Untagged.Invalidate)
			}
		}
		for op := wire.OpWrite; op <= wire.OpAtomicResponse; op++ {
			if seen[op] == 0 && op != wire.OpImmediate {
				t.Errorf("no %v was sent", op)
			}
		}
	},
	"rfc5041/4.1/3 rfc5041/4.1/4 rfc5041/4.2/2 rfc5041/4.3/2 rfc5041/4.3/5 rfc5041/5.3/2 rfc5041/5.2/2 rfc5041/5.2/3 rfc5040/5.2/1": func(t *testing.T) {
		// The segments of a message have the same header but for offset and L, offsets
		// that count up, and L on the last only.
		var first *wire.Segment
		next := uint64(0)
		for _, g := range everyMessage(t, 1442) {
			if first == nil {
				first, next = &g, g.Tagged.TO
				if g.Untagged.MO != 0 {
					t.Errorf("%v begins at offset %d", g.Control.Opcode, g.Untagged.MO)
				}
			}
			at := g.Tagged.TO
			if !g.Control.Tagged {
				at = uint64(g.Untagged.MO)
			}
			if g.Control.Opcode != first.Control.Opcode || g.Tagged.STag != first.Tagged.STag || g.Untagged.QN != first.Untagged.QN ||
				g.Untagged.MSN != first.Untagged.MSN || g.Untagged.Invalidate != first.Untagged.Invalidate {
				t.Errorf("%+v is followed by %+v", first.Header, g.Header)
			}
			if at != next {
				t.Errorf("%v at offset %d, want %d", g.Control.Opcode, at, next)
			}
			next += uint64(len(g.Payload))
			if g.Control.Last {
				first = nil
			}
		}
		if first != nil {
			t.Errorf("%v has no last segment", first.Control.Opcode)
		}
	},
	"rfc5041/4.2/1 rfc5041/4.3/1 rfc5041/5.2/1 rfc5041/4.2/3": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(4096, allAccess)
		pattern(mem, 3)
		s.post(1, verbs.OpSend, []verbs.SGE{sge(r, 1, 1000), sge(r, 2000, 1500)})
		s.post(2, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 0, 2500)}, to(0x01020304, 0x1122334455667701))
		want := append(bytes.Clone(mem[1:1001]), mem[2000:3500]...)
		var sizes []int
		var got []byte
		for i, b := 0, s.out(1442); b != nil; i, b = i+1, s.out(1442) {
			head := map[int]string{
				0: "\x01\x43\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00",
				1: "\x41\x43\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x05\x90",
				2: "\x81\x40\x01\x02\x03\x04\x11\x22\x33\x44\x55\x66\x77\x01",
				3: "\xc1\x40\x01\x02\x03\x04\x11\x22\x33\x44\x55\x66\x7c\x95",
			}[i]
			if !bytes.HasPrefix(b, []byte(head)) {
				t.Errorf("segment %d begins % x, want % x", i, b[:18], head)
			}
			sizes = append(sizes, len(b)-len(head))
			got = append(got, b[len(head):]...)
		}
		if want = append(want, mem[:2500]...); !bytes.Equal(got, want) {
			t.Error("the payload is not that of the gather lists")
		}
		if len(sizes) != 4 || sizes[0] != 1424 || sizes[1] != 1076 || sizes[2] != 1428 || sizes[3] != 1072 {
			t.Errorf("payloads of %d octets", sizes)
		}
	},
	"rfc5041/4.3/3 rfc5040/5.2.1/4 rfc5040/5.3/7 rfc7306/5.2/1 rfc7306/6.3/1": func(t *testing.T) {
		numbers := map[wire.QN]wire.MSN{}
		for _, g := range everyMessage(t, 1442) {
			if g.Control.Tagged {
				continue
			}
			if want := numbers[g.Untagged.QN] + 1; g.Untagged.MSN != want {
				t.Errorf("%v has number %d in queue %d, want %d", g.Control.Opcode, g.Untagged.MSN, g.Untagged.QN, want)
			}
			if g.Control.Last {
				numbers[g.Untagged.QN]++
			}
		}
		// Four Sends and two Immediate Data; a Read and two atomics; a Terminate; an
		// Atomic Response.
		if numbers[0] != 6 || numbers[1] != 3 || numbers[2] != 1 || numbers[3] != 1 {
			t.Errorf("messages by queue: %v", numbers)
		}
	},
	"rfc5041/4.3/4": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.stream.sendMSN[wire.QueueSend], s.stream.recvMSN[wire.QueueSend] = 0xffffffff, 0xffffffff
		s.post(1, verbs.OpSend, nil)
		s.post(2, verbs.OpSend, nil)
		segs := s.all(1442)
		if len(segs) != 2 || segs[0].Untagged.MSN != 0xffffffff || segs[1].Untagged.MSN != 0 {
			t.Errorf("%+v", segs)
		}
		for id := range uint64(2) {
			s.recv(id)
			s.in(untagged(wire.OpSend, 0xffffffff+wire.MSN(id), 0, nil, true))
		}
		s.wantAlive()
		s.wantReceived("0:0", "1:0")
	},
	"rfc5041/5.2/5 rfc5040/5.1/4 rfc5041/5.2/6": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.post(1, verbs.OpSend, nil)
		s.post(2, verbs.OpRDMAWrite, nil, to(1, 2))
		s.in(readRequest(1, wire.ReadRequest{SinkSTag: 3, SinkTO: 4, SrcSTag: 0xdeadbeef}))
		var lengths []int
		for b := s.out(1442); b != nil; b = s.out(1442) {
			lengths = append(lengths, len(b))
			s.stream.Accepted(1)
		}
		if len(lengths) != 3 || lengths[0] != 18 || lengths[1] != 14 || lengths[2] != 14 {
			t.Errorf("segments of %d octets, want 18, 14 and 14 in some order", lengths)
		}
		s.wantSends("1", "2")
		s.recv(7)
		s.recv(8)
		s.in(untagged(wire.OpSend, 1, 0, nil, true))
		s.in(tagged(wire.OpWrite, 0xdead, 1, nil, true))
		s.in(untagged(wire.OpSend, 2, 0, nil, true))
		s.wantReceived("7:0", "8:0")
		s.wantAlive()
	},
	"rfc5041/5.2/4": func(t *testing.T) {
		// A request's length has 32 bits; longer ones cannot be posted. The longest
		// read is not split.
		s := newSide(t, depth, Policy{})
		s.in(readRequest(1, wire.ReadRequest{Size: 0xffffffff, SrcSTag: 1}))
		s.wantTerminate(wire.TermProtInvalidSTag, ptr(readRequest(1, wire.ReadRequest{Size: 0xffffffff, SrcSTag: 1})))
	},
	"rfc5041/5.3/1 rfc5040/5.5/4": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(4096, allAccess)
		s.post(1, verbs.OpRDMAWrite, []verbs.SGE{sge(r, 0, 3000)}, to(1, 0))
		s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 3000)}, to(1, 0))
		s.post(3, verbs.OpSend, []verbs.SGE{sge(r, 0, 10)})
		s.post(4, verbs.OpRDMAWrite, nil, to(1, 0))
		var ops []wire.Opcode
		for _, g := range s.all(1442) {
			ops = append(ops, g.Control.Opcode)
		}
		want := []wire.Opcode{wire.OpWrite, wire.OpWrite, wire.OpWrite, wire.OpReadRequest, wire.OpSend, wire.OpWrite}
		if len(ops) != len(want) {
			t.Fatalf("%v", ops)
		}
		for i := range want {
			if ops[i] != want[i] {
				t.Errorf("%v, want %v", ops, want)
				break
			}
		}
	},
}

func ptr[T any](v T) *T { return &v }

var ddpReceiveRows = map[string]func(*testing.T){
	"rfc5041/4.1/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.recv(1)
		g := tagged(wire.OpSend, 1, 0, nil, true)
		g.Control.Tagged = true
		s.in(g)
		s.wantTerminate(wire.TermOpOpcode, &g)
		s.wantReceived()
	},
	"rfc5041/4.1/5 rfc5041/5.4/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(64, allAccess)
		s.recv(1, sge(r, 0, 32))
		s.recv(2, sge(r, 32, 32))
		s.in(untagged(wire.OpSend, 1, 0, []byte("one"), true))
		s.in(untagged(wire.OpSend, 2, 0, []byte("tw"), false))
		s.wantReceived("1:3")
		s.in(untagged(wire.OpSend, 2, 2, []byte("o"), true))
		s.wantReceived("1:3", "2:3")
		if string(mem[:3])+string(mem[32:35]) != "onetwo" {
			t.Errorf("%q", mem)
		}
		// An incomplete Read Request has no response.
		g := readRequest(1, wire.ReadRequest{SinkSTag: 3})
		g.Control.Last = false
		s.in(g)
		if segs := s.all(1442); len(segs) != 0 {
			t.Errorf("response: %+v", segs)
		}
		s.stream.Input(piece(wire.OpReadRequest, 1, 28, nil, true))
		if got := s.one(); got.Control.Opcode != wire.OpReadResponse || got.Tagged.STag != 3 {
			t.Errorf("response %+v", got)
		}
	},
	"rfc5041/4.1/7 rfc5040/4.1/4": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.recv(1)
		g := untagged(wire.OpSend, 1, 0, nil, true)
		g.Control.DDPReserved, g.Control.RDMAPReserved = 0x0f, 3
		s.in(g)
		s.wantAlive()
		s.wantReceived("1:0")
	},
	"rfc5041/5.3/4 rfc5040/5.3/5 rfc5040/5.5/1": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(1000, allAccess)
		for i := range uint64(10) {
			s.recv(i, sge(r, int(i)*100, 100))
		}
		for i := range 10 {
			n := (i * 37) % 100
			if n > 50 {
				s.in(untagged(wire.OpSend, wire.MSN(i+1), 0, make([]byte, n-50), false))
				s.in(untagged(wire.OpSend, wire.MSN(i+1), uint32(n-50), make([]byte, 50), true))
				continue
			}
			s.in(untagged(wire.OpSend, wire.MSN(i+1), 0, make([]byte, n), true))
		}
		s.wantReceived("0:0", "1:37", "2:74", "3:11", "4:48", "5:85", "6:22", "7:59", "8:96", "9:33")
	},
	"rfc5041/5.3/5": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, mem := s.region(64, allAccess)
		s.in(tagged(wire.OpWrite, r.Key, r.Addr+32, []byte("high"), false))
		s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("low"), true))
		s.wantAlive()
		if string(mem[:3]) != "low" || string(mem[32:36]) != "high" {
			t.Errorf("%q", mem)
		}
	},
	"rfc5041/5.4/2 rfc5040/5.3/3": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		for i, n := range []int{0, 3, 16} {
			s.recv(uint64(i), sge(r, 0, 64))
			s.in(untagged(wire.OpSend, wire.MSN(i+1), 0, make([]byte, n), true))
		}
		s.wantReceived("0:0", "1:3", "2:16")
	},
	"rfc5041/6.2.2/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		s.recv(9, sge(r, 0, 64))
		s.in(untagged(wire.OpSend, 1, 0, make([]byte, 3), false))
		s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 8)}, to(1, 0))
		s.post(2, verbs.OpSend, []verbs.SGE{sge(r, 0, 8)})
		s.all(1442)
		s.post(3, verbs.OpSend, []verbs.SGE{sge(r, 0, 8)})
		s.stream.Fail(wire.TermMPAClosed, false)
		s.wantSends("1 IBV_WC_WR_FLUSH_ERR", "2 IBV_WC_WR_FLUSH_ERR", "3 IBV_WC_WR_FLUSH_ERR")
		s.wantReceived("9 IBV_WC_WR_FLUSH_ERR")
		if segs := s.all(1442); len(segs) != 0 || len(s.retired) != 3 {
			t.Errorf("%d segments after the end, retired %v", len(segs), s.retired)
		}
	},
}
