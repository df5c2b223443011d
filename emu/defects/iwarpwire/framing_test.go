package iwarpwire

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	opSend  = verbs.OpSend
	opWrite = verbs.OpRDMAWrite
	opRead  = verbs.OpRDMARead
)

// sends returns the octets of a Send.
func (r *rig) sends(n int) string {
	r.post(opSend, n)
	return fmt.Sprintf("%x", r.hear())
}

// seal makes the CRC of an FPDU right.
func seal(b []byte) {
	binary.LittleEndian.PutUint32(b[len(b)-wire.CRCLen:], wire.CRC(b[:len(b)-wire.CRCLen]))
}

// withMarker is a Write that is long enough to hold a marker.
func (r *rig) withMarker() []byte {
	g := segmentOf(wire.OpWrite, 0, make([]byte, 600), r.into(0))
	return g.Append(nil)
}

// marked returns the markers of what a NIC sends, by their places, behind Sends of
// the given lengths.
func (r *rig) marked(lens ...int) string {
	r.up(true)
	for _, n := range lens {
		r.post(opSend, n)
	}
	b, all := r.hear(), ""
	for at := 0; at+4 <= len(b); at += wire.MarkerInterval {
		all += fmt.Sprintf("%d: %x; ", at, b[at:at+4])
	}
	return all
}

var framingTalks = map[string]talk{
	"TwoPerFPDU": {
		say: func(r *rig) string {
			r.up(false)
			r.post(opSend, 1)
			r.post(opSend, 2)
			r.post(opSend, 3)
			b, all := r.hear(), ""
			for len(b) > 0 {
				f, _ := cut(b, 0, false)
				all, b = all+fmt.Sprint(f.length, " "), b[len(f.raw):]
			}
			return all
		},
		sound: "19 20 21 ", defective: "39 21 ",
	},
	"LengthCountsPad": {say: func(r *rig) string { r.up(false); return r.sends(1) }, sound: "001341430000000000000000000000010000000000000000ae6392ef", defective: "0016414300000000000000000000000100000000000000008725e248"},
	"PadToEight":      {say: func(r *rig) string { r.up(false); return r.sends(5) }, sound: "001741430000000000000000000000010000000000010203040000008cc20490", defective: "0017414300000000000000000000000100000000000102030400000000000000b1e8ae48"},
	"CRCSkipsPad": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(1)
			b := r.framer.Append(nil, segmentOctets(wire.OpSend, 1, "a"))
			r.conn.Input(0, b)
			return r.words() + "; " + r.done()
		},
		sound: "; 0:SUCCESS:1", defective: "Terminate 2/0/02, end; 0:WR_FLUSH_ERR:0",
	},
	"CRCSkipsMarker": {
		say: func(r *rig) string {
			r.markers = true
			r.request(asks())
			r.start(wire.Framing{Markers: true, CRC: true}, wire.Framing{CRC: true})
			r.accept(four)
			back := &rig{t: r.t, q: r.q}
			back.up(true)
			back.post(opSend, 4)
			return r.say(segmentOf(wire.OpWrite, 0, nil)) + "; " + back.words()
		},
		sound: "; Send 4 #1", defective: "Terminate 2/0/02, end; wrong true",
	},
	"CRCSkipsLastMarker": {
		say: func(r *rig) string {
			r.up(true)
			r.post(opSend, 488)
			return r.words()
		},
		sound: "Send 488 #1", defective: "wrong true",
	},
	"CRCFieldOmitted": {
		say: func(r *rig) string {
			r.noCRC = true
			f := asks()
			f.CRC = false
			r.request(f)
			r.start(wire.Framing{}, wire.Framing{})
			r.accept(four)
			r.say(segmentOf(wire.OpWrite, 0, nil))
			return r.sends(1)
		},
		sound: "00134143000000000000000000000001000000000000000000000000", defective: "001341430000000000000000000000010000000000000000",
	},
	"CRCAlwaysChecked": {
		say: func(r *rig) string {
			r.noCRC = true
			f := asks()
			f.CRC = false
			s := r.replied(f, four)
			r.start(wire.Framing{}, wire.Framing{})
			return s + "; " + r.say(segmentOf(wire.OpWrite, 0, nil))
		},
		sound: "00010000; ", defective: "00010000; Terminate 2/0/02, end",
	},
	"CRCNeedsBoth": {
		say: func(r *rig) string {
			f := asks()
			f.CRC = false
			r.request(f)
			r.start(wire.Framing{CRC: true}, wire.Framing{CRC: true})
			r.accept(four)
			r.post(opSend, 1)
			return r.say(segmentOf(wire.OpWrite, 0, nil))
		},
		sound: "Send 1 #1", defective: "wrong true",
	},
	"SegmentsUnaligned": {
		say: func(r *rig) string {
			r.up(false)
			r.post(opSend, 4)
			bufs, _ := r.conn.Output(make([][]byte, 0, 8))
			return fmt.Sprint(len(bufs), len(bufs[0]))
		},
		sound: "1 28", defective: "1 20",
	},
	"OneFPDUPerSegment": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(2)
			b := r.framer.Append(nil, segmentOctets(wire.OpSend, 1, "a"))
			r.conn.Input(0, r.framer.Append(b, segmentOctets(wire.OpSend, 2, "b")))
			return r.done()
		},
		sound: "0:SUCCESS:1 1:SUCCESS:1", defective: "0:SUCCESS:1",
	},
	"HeaderInOneRead": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(1)
			b := r.framer.Append(nil, segmentOctets(wire.OpSend, 1, "a"))
			r.conn.Input(0, b[:7])
			r.conn.Input(0, b[7:])
			return r.words() + "; " + r.done()
		},
		sound: "; 0:SUCCESS:1", defective: "Terminate 2/0/02, end; 0:WR_FLUSH_ERR:0",
	},
	"SkipsGarbage": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(1)
			r.conn.Input(0, r.framer.Append(make([]byte, 16), segmentOctets(wire.OpSend, 1, "a")))
			return r.words() + "; " + r.done()
		},
		sound: "Terminate 2/0/02, end; 0:WR_FLUSH_ERR:0", defective: "; 0:SUCCESS:1",
	},
	"Resynchronises": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(1)
			b := r.framer.Append(nil, segmentOctets(wire.OpWrite, 0, ""))
			b[len(b)-1]++
			r.conn.Input(0, r.framer.Append(b, segmentOctets(wire.OpSend, 1, "a")))
			return r.words() + "; " + r.done()
		},
		sound: "Terminate 2/0/02, end; 0:WR_FLUSH_ERR:0", defective: "Terminate 2/0/02; 0:SUCCESS:1",
	},
	"MarkerReservedSet": {say: func(r *rig) string { return r.marked(8) }, sound: "0: 00000000; ", defective: "0: ffff0000; "},
	"MarkersAlways": {
		say: func(r *rig) string { r.up(false); return r.sends(8) }, sound: "001a414300000000000000000000000100000000000102030405060702179acf", defective: "00000000001a4143000000000000000000000001000000000001020304050607c1e6c2b2",
	},
	"MarkersStartLate":  {say: func(r *rig) string { return r.marked(8, 800) }, sound: "0: 00000000; 512: 000001dc; ", defective: "0: 001a4143; 512: 000001e0; "},
	"MarkerPointsFirst": {say: func(r *rig) string { return r.marked(300, 900) }, sound: "0: 00000000; 512: 000000b8; 1024: 000002b8; ", defective: "0: 00000000; 512: 000001fc; 1024: 000002b8; "},
	"MarkerPointsBack":  {say: func(r *rig) string { return r.marked(8, 1300) }, sound: "0: 00000000; 512: 000001dc; 1024: 000003dc; ", defective: "0: 00000000; 512: 000001dc; 1024: 00000200; "},
	"MarkersKept": {
		say: func(r *rig) string {
			r.markers = true
			r.up(false)
			payload := make([]byte, 600)
			for i := range payload {
				payload[i] = 'a'
			}
			g := segmentOf(wire.OpWrite, 0, payload, r.into(0))
			r.say(g)
			return fmt.Sprintf("%q", r.mem[460:480])
		},
		sound: `"aaaaaaaaaaaaaaaaaaaa"`, defective: `"aaaaaaaaaaaa\x00\x00\x01\xe8aaaa"`,
	},
}

// segmentOctets is a segment of the peer's.
func segmentOctets(op wire.Opcode, msn wire.MSN, payload string) []byte {
	g := segmentOf(op, msn, []byte(payload))
	return g.Append(nil)
}
