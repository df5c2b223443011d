package iwarp

import (
	"encoding/hex"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

var immediateRows = map[string]func(*testing.T){
	"rfc7306/6.3/2": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		s.post(1, verbs.OpSendImm, nil, func(q *Request) { q.Imm = 0x01020304 })
		s.post(2, verbs.OpSendImm, nil, flags(verbs.SendSolicited))
		for _, want := range []string{
			"414800000000000000000000000100000000" + "0102030400000000",
			"414900000000000000000000000200000000" + "0000000000000000",
		} {
			if b := s.out(1442); hex.EncodeToString(b) != want {
				t.Errorf("%x, want %s", b, want)
			}
		}
	},
	"rfc7306/6.3/3": func(t *testing.T) {
		for _, n := range []int{0, 4, 7, 9, 16} {
			s := newSide(t, depth, Policy{})
			r, _ := s.region(64, allAccess)
			s.recv(1, sge(r, 0, 64))
			s.stream.Input(piece(wire.OpImmediate, 1, 0, make([]byte, n), true))
			if segs := s.all(1442); len(segs) != 1 || segs[0].Terminate.Error != wire.TermOpUnspecified {
				t.Errorf("%d octets: %+v", n, segs)
			}
			if len(s.received) != 0 {
				t.Errorf("%d octets: %+v", n, s.received)
			}
		}
	},
	"rfc7306/6.3/4": func(t *testing.T) {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(64, allAccess)
		for i := range uint64(3) {
			s.recv(i, sge(r, 0, 64))
		}
		s.in(untagged(wire.OpSend, 1, 0, []byte("one"), true))
		imm := untagged(wire.OpImmediateSE, 2, 0, nil, true)
		imm.Immediate = wire.Immediate{1, 2, 3, 4, 5, 6, 7, 8}
		s.in(imm)
		s.in(untagged(wire.OpSend, 3, 0, []byte("three"), true))
		s.wantReceived("0:3", "1:0", "2:5")
		if c := s.received[1]; c.Imm != 0x01020304 || c.Flags != verbs.WCWithImm || !c.solicited || c.Opcode != verbs.WCOpRecv {
			t.Errorf("%+v", c)
		}
		imm = untagged(wire.OpImmediate, 4, 0, nil, true)
		s.in(imm)
		s.wantTerminate(wire.TermUntaggedNoBuffer, &imm)
	},
	"rfc7306/6.4/1": func(t *testing.T) {
		a, b := newSide(t, depth, Policy{}), newSide(t, depth, Policy{})
		src, from := a.region(5000, allAccess)
		dst, into := b.region(5000, allAccess)
		pattern(from, 4)
		b.recv(1)
		a.post(1, verbs.OpRDMAWriteImm, []verbs.SGE{sge(src, 0, 5000)}, to(dst.Key, dst.Addr), func(q *Request) { q.Imm = 77 })
		for seg := a.out(1442); seg != nil; seg = a.out(1442) {
			b.wantReceived()
			b.stream.Input(seg)
		}
		b.wantReceived("1:5000")
		if c := b.received[0]; c.Opcode != verbs.WCOpRecvRDMAWithImm || c.Imm != 77 || string(from) != string(into) {
			t.Errorf("%+v", c)
		}
		a.wantSends()
		a.stream.Accepted(4)
		a.wantSends()
		a.stream.Accepted(1)
		a.wantSends("1")
	},
}

func TestImmediateDataBelongsToDirectlyPrecedingWrite(t *testing.T) {
	for name, between := range map[string]func(s *side, r *nic.Region){
		"send":    func(s *side, _ *nic.Region) { s.in(untagged(wire.OpSend, 1, 0, nil, true)) },
		"read":    func(s *side, r *nic.Region) { s.in(readRequest(1, readOf(r, 0, 1))) },
		"nothing": func(*side, *nic.Region) {},
	} {
		s := newSide(t, depth, Policy{})
		r, _ := s.region(16, allAccess)
		s.recv(1)
		s.recv(2)
		s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("123"), false))
		s.in(tagged(wire.OpWrite, r.Key, r.Addr+3, []byte("45"), true))
		between(s, r)
		s.in(untagged(wire.OpImmediate, s.stream.recvMSN[0], 0, nil, true))
		c := s.received[len(s.received)-1]
		if is := c.Opcode == verbs.WCOpRecvRDMAWithImm && c.ByteLen == 5; is != (name == "nothing") {
			t.Errorf("with %s in between: %+v", name, c)
		}
	}
}

func TestImmediateDataAfterRTRIsSeparate(t *testing.T) {
	for name, c := range map[string]struct {
		first []byte
		want  verbs.WCOpcode
	}{
		"RTR":             {nil, verbs.WCOpRecv},
		"write with data": {[]byte("12345"), verbs.WCOpRecvRDMAWithImm},
	} {
		s := newSide(t, Options{IRD: 4, ORD: 4, Responder: true, PeerToPeer: true}, Policy{})
		r, _ := s.region(16, allAccess)
		s.recv(1)
		s.recv(2)
		s.in(tagged(wire.OpWrite, r.Key, r.Addr, c.first, true))
		s.in(untagged(wire.OpImmediate, 1, 0, nil, true))
		s.in(tagged(wire.OpWrite, r.Key, r.Addr, nil, true))
		s.in(untagged(wire.OpImmediate, 2, 0, nil, true))
		if got := s.received; len(got) != 2 || got[0].Opcode != c.want || got[1].Opcode != verbs.WCOpRecvRDMAWithImm {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
