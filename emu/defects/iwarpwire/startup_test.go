package iwarpwire

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
)

// taken is how far a Request got, and what came of it.
func (r *rig) taken(f *wire.StartFrame, behind ...byte) string {
	r.request(f, behind...)
	s := fmt.Sprintf("%v with %d octets", r.engine.State(), len(r.engine.PrivateData()))
	if r.end == link.StreamClose {
		s += ", end"
	}
	return s
}

// replied is the Reply to a Request, behind its key.
func (r *rig) replied(f *wire.StartFrame, p engine.ConnParam) string {
	r.request(f)
	return behindKey(r.accept(p))
}

// answered is what a NIC that has asked makes of a Reply.
func (r *rig) answered(f *wire.StartFrame) string {
	r.connect(four)
	r.start(wire.Framing{CRC: true}, wire.Framing{CRC: true})
	r.conn.Input(0, f.Append(nil))
	return fmt.Sprintf("%s; %v", r.words(), r.engine.State())
}

func behindKey(b []byte) string {
	if len(b) < 16 {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%x", b[16:])
}

var (
	agreed = wire.Enhanced{PeerToPeer: true, RTRWrite: true, RTRSend: true, RTRRead: true, IRD: 4, ORD: 4}
	plain  = wire.Enhanced{IRD: 4, ORD: 4}
)

var frameTalks = map[string]talk{
	"KeysExchanged": {
		say: func(r *rig) string {
			r.request(asks())
			return string(r.accept(four)[:16]) + ", " + string((&rig{t: r.t, q: r.q}).connect(four)[:16])
		},
		sound: "MPA ID Rep Frame, MPA ID Req Frame", defective: "MPA ID Req Frame, MPA ID Rep Frame",
	},
	"KeyPrefixOnly": {
		say: func(r *rig) string {
			r.incoming()
			b := asks().Append(nil)
			copy(b[7:], "something")
			r.give(b)
			return r.engine.State().String()
		},
		sound: "closing", defective: "requested",
	},
	"MPAReservedRefused": {
		say: func(r *rig) string {
			other := &rig{t: r.t, q: r.q, markers: true}
			other.up(false)
			at := other.framer.At()
			b := other.framer.Append(nil, other.withMarker())
			f, _ := cut(b, at, true)
			b[f.marks[0]+1] = 7
			seal(b)
			other.conn.Input(0, b)
			return r.taken(&wire.StartFrame{CRC: true, Revision: 1, Reserved: 1}) + "; " + other.words()
		},
		sound: "requested with 0 octets; ", defective: "closing with 0 octets, end; Terminate 2/0/03, end",
	},
	"AnyRevision": {
		say: func(r *rig) string { return r.taken(&wire.StartFrame{CRC: true, Revision: 3}) }, sound: "closing with 0 octets, end", defective: "requested with 0 octets",
	},
	"BadRequestHangs": {
		say: func(r *rig) string {
			r.incoming()
			r.give([]byte("GET / HTTP/1.1"))
			first := r.end
			other := &rig{t: r.t, q: r.q}
			other.incoming()
			other.give(asks().Append(nil)[:18])
			other.conn.InputEOF(0)
			other.hear()
			other.wait(60e9)
			other.hear()
			return fmt.Sprint(first, other.end)
		},
		sound: "1 1", defective: "0 0",
	},
	"ShortFramesTaken": {
		say: func(r *rig) string {
			s := r.taken(&wire.StartFrame{CRC: true, Enhanced: true, Revision: 2, PrivateData: []byte{0}})
			other := &rig{t: r.t, q: r.q}
			other.connect(engine.ConnParam{IRD: wire.DepthNotNegotiated, ORD: wire.DepthNotNegotiated})
			f := enhanced(true, agreed)
			f.PrivateData = append(f.PrivateData, "1234"...)
			b := f.Append(nil)
			other.conn.Input(0, b[:len(b)-2])
			other.conn.InputEOF(0)
			return fmt.Sprintf("%s; %d, %q", s, len(other.hear()), other.engine.PrivateData())
		},
		sound: `closing with 0 octets, end; 0, ""`, defective: `requested with 0 octets; 20, "12"`,
	},
	"LongPrivateDataTaken": {
		say: func(r *rig) string {
			return r.taken(&wire.StartFrame{CRC: true, Revision: 1, PrivateData: make([]byte, 600)})
		},
		sound: "closing with 0 octets, end", defective: "requested with 512 octets",
	},
	"PrivateDataOverrun": {
		say: func(r *rig) string {
			return r.taken(&wire.StartFrame{CRC: true, Revision: 1, PrivateData: []byte("ab")}, []byte("cdef")...)
		},
		sound: "closing with 0 octets, end", defective: "requested with 6 octets",
	},
	"ResponderSpeaksFirst": {
		say: func(r *rig) string {
			r.incoming()
			first := len(r.hear())
			r.give(asks().Append(nil))
			other := &rig{t: r.t, q: r.q}
			asked := len(other.connect(four))
			return fmt.Sprint(first, len(r.accept(four)), asked, len(other.give([]byte{0})) > 0)
		},
		sound: "0 20 24 false", defective: "20 0 0 true",
	},
	"RejectCloses": {
		say: func(r *rig) string {
			r.request(asks())
			r.check(r.engine.Reject(0, []byte("no")))
			b := r.hear()
			other := &rig{t: r.t, q: r.q}
			other.answered(&wire.StartFrame{Reply: true, CRC: true, Reject: true, Revision: 2, PrivateData: []byte("no")})
			return fmt.Sprintf("%d, %q", len(b), other.engine.PrivateData())
		},
		sound: `22, "no"`, defective: `0, ""`,
	},
	"RejectIsAccept": {
		say: func(r *rig) string {
			return r.answered(&wire.StartFrame{Reply: true, CRC: true, Reject: true, Revision: 2})
		},
		sound: "end; closing", defective: "RDMA Write 0; established",
	},
	"TalksAfterReject": {
		say: func(r *rig) string {
			r.request(asks())
			r.check(r.engine.Reject(0, nil))
			return behindKey(r.hear())
		},
		sound: "60010000", defective: "6001000000164147000000000000000200000001000000002004000068129454",
	},
	"EnhancedRevision1": {
		say: func(r *rig) string {
			r.connect(four)
			edge := r.edge
			again := &rig{t: r.t, q: r.q}
			again.open()
			c, err := again.nic.Connect(again.qp, engine.ConnParam{IRD: 4, ORD: 4, Revision: 1})
			r.check(err)
			again.conn = edge.Conn(c, true)
			again.conn.Connected(0, ends[0], ends[1], 1460)
			return behindKey(again.hear())
		},
		sound: "40010000", defective: "50010004c004c004",
	},
	"DemandsRevision2": {
		say: func(r *rig) string { return r.taken(asks()) }, sound: "requested with 0 octets", defective: "closing with 0 octets, end",
	},
	"EnhancedUncounted": {
		say: func(r *rig) string { return r.replied(enhanced(false, plain), four) }, sound: "5002000400040004", defective: "5002000000040004",
	},
	"ForcesEnhanced": {
		say: func(r *rig) string { return r.replied(asks(), four) }, sound: "40010000", defective: "500100043fff3fff",
	},
	"DepthsUnbounded": {
		say: func(r *rig) string { return r.replied(enhanced(false, wire.Enhanced{IRD: 4, ORD: 9999}), four) }, sound: "5002000400800004", defective: "50020004270f0004",
	},
	"ReplyDepthsIgnored": {
		say: func(r *rig) string {
			e := agreed
			e.ORD = 9999
			return r.answered(enhanced(true, e))
		},
		sound: "Terminate 2/0/06, end; closing", defective: "RDMA Write 0; established",
	},
	"ForgetsPeerToPeer": {
		say: func(r *rig) string { return r.replied(enhanced(false, agreed), four) }, sound: "50020004c004c004", defective: "5002000400040004",
	},
	"NoRTROffered": {
		say: func(r *rig) string { return behindKey(r.connect(four)) }, sound: "50020004c004c004", defective: "5002000480040004",
	},
	"RTRUnasked": {
		say: func(r *rig) string {
			return r.answered(enhanced(true, wire.Enhanced{PeerToPeer: true, RTRRead: true, IRD: 4, ORD: 4}))
		},
		sound: "RDMA Read Request 0 #1; established", defective: "RDMA Write 0; established",
	},
	"RTRLate": {
		say: func(r *rig) string {
			first := r.answered(enhanced(true, agreed))
			r.post(opSend, 3)
			return first + "; " + r.words()
		},
		sound: "RDMA Write 0; established; Send 3 #1", defective: "; established; Send 3 #1, RDMA Write 0",
	},
	"RTRUncounted": {
		say: func(r *rig) string {
			first := r.answered(enhanced(true, wire.Enhanced{PeerToPeer: true, RTRSend: true, IRD: 4, ORD: 4}))
			r.post(opSend, 3)
			other := &rig{t: r.t, q: r.q}
			other.request(enhanced(false, agreed))
			other.start(wire.Framing{CRC: true}, wire.Framing{CRC: true})
			other.accept(four)
			other.recv(2)
			said := other.say(segmentOf(wire.OpSend, 1, nil), segmentOf(wire.OpSend, 1, nil))
			return first + "; " + r.words() + "; " + said + other.done()
		},
		sound:     "Send 0 #1; established; Send 3 #2; Terminate 1/2/03, end0:SUCCESS:0 1:WR_FLUSH_ERR:0",
		defective: "Send 0 #1; established; Send 3 #1; 0:SUCCESS:0",
	},
	"RTRBitsLeft": {
		say: func(r *rig) string {
			return r.replied(enhanced(false, wire.Enhanced{RTRSend: true, RTRRead: true, IRD: 4, ORD: 4}), four)
		},
		sound: "5002000400040004", defective: "5002000440044004",
	},
	"RTRAlwaysExpected": {
		say: func(r *rig) string {
			r.request(enhanced(false, wire.Enhanced{RTRWrite: true, IRD: 4, ORD: 4}))
			r.start(wire.Framing{CRC: true}, wire.Framing{CRC: true})
			r.accept(four)
			r.recv(1)
			return r.say(segmentOf(wire.OpSend, 1, []byte("ab"))) + "; " + strings.TrimSpace(r.done())
		},
		sound: "; 0:SUCCESS:2", defective: "Terminate 2/0/07, end; 0:WR_FLUSH_ERR:0",
	},
}
