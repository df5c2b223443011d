package iwarpwire

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// headers are the DDP headers, in octets, of what a NIC sends for requests, and the
// lengths of what follows them.
func (r *rig) headers(ask func()) string {
	r.up(false)
	ask()
	var all []string
	for b := r.hear(); len(b) > 0; {
		f, ok := cut(b, 0, false)
		if !ok {
			r.t.Fatalf("%x", b)
		}
		s := segment{octets: f.ulpdu()}
		n := 18
		if s.opcode().Tagged() {
			n = 14
		}
		all, b = append(all, fmt.Sprintf("%x %d", s.octets[:n], len(s.octets)-n)), b[len(f.raw):]
	}
	return strings.Join(all, ", ")
}

// long is a Send and a Write of two segments each, and another Send.
func (r *rig) long() string {
	return r.headers(func() {
		r.post(opSend, 2000)
		r.post(opWrite, 2000)
		r.post(opSend, 1)
	})
}

// some is one of each kind.
func (r *rig) some() string {
	return r.headers(func() {
		r.post(opSend, 1, func(wr *verbs.SendWR) { wr.Flags |= verbs.SendSolicited })
		r.post(opRead, 1)
		r.post(verbs.OpAtomicFetchAdd, 8, func(wr *verbs.SendWR) { wr.Atomic.CompareAdd = 7 })
	})
}

// What a sound NIC sends.
const (
	longSound = "014300000000000000000000000100000000 1436, " +
		"41430000000000000000000000010000059c 564, " +
		"8140123456000000000000001000 1440, " +
		"c1401234560000000000000015a0 560, " +
		"414300000000000000000000000200000000 1"
	someSound = "414500000000000000000000000100000000 1, " +
		"414100000000000000010000000100000000 28, " +
		"414a00000000000000010000000200000000 52"
)

var sendTalks = map[string]talk{
	"TaggedFlagInverted": {say: (*rig).long, sound: longSound, defective: "814300000000000000000000000100000000 1436, c1430000000000000000000000010000059c 564, 0140123456000000000000001000 1440, 41401234560000000000000015a0 560, c14300000000000000000000000200000000 1"},
	"LastOnEvery":        {say: (*rig).long, sound: longSound, defective: "414300000000000000000000000100000000 1436, 41430000000000000000000000010000059c 564, c140123456000000000000001000 1440, c1401234560000000000000015a0 560, 414300000000000000000000000200000000 1"},
	"ControlFirstOnly":   {say: (*rig).long, sound: longSound, defective: "014300000000000000000000000100000000 1436, 4000000000000000000000000001 568, 8140123456000000000000001000 1440, c0001234560000000000000015a0 560, 414300000000000000000000000200000000 1"},
	"SegmentsCounted":    {say: (*rig).long, sound: longSound, defective: "014300000000000000000000000100000000 1436, 41430000000000000000000000020000059c 564, 8140123456000000000000001000 1440, c1401234560000000000000015a0 560, 4143000000000000000000000003000007d0 1"},
	"OffsetsStandStill":  {say: (*rig).long, sound: longSound, defective: "014300000000000000000000000100000000 1436, 414300000000000000000000000100000000 564, 8140123456000000000000001000 1440, c140123456000000000000001000 560, 414300000000000000000000000200000000 1"},
	"TailFirst":          {say: (*rig).long, sound: longSound, defective: "41430000000000000000000000010000059c 564, 014300000000000000000000000100000000 1436, c1401234560000000000000015a0 560, 8140123456000000000000001000 1440, 414300000000000000000000000200000000 1"},
	"FieldsSwapped": {
		say: func(r *rig) string {
			r.up(false)
			r.post(opRead, 5)
			r.post(opWrite, 0)
			b := r.hear()
			f, _ := cut(b, 0, false)
			other := &rig{t: r.t, q: r.q}
			other.up(false)
			other.post(verbs.OpAtomicFetchAdd, 8, func(wr *verbs.SendWR) { wr.Atomic.CompareAdd = 7 })
			a, _ := cut(other.hear(), 0, false)
			return fmt.Sprintf("%x, %x", f.ulpdu()[10:], a.ulpdu()[38:])
		},
		sound:     "000000010000000000000100000056000000000000000005123456000000000000001000, 000000000000000700000000000000000000000000000000ffffffffffffffff",
		defective: "000000000000000112345600000000000000100000000005000001000000560000000000, 00000000000000000000000000000007ffffffffffffffff0000000000000000",
	},
	"UnusedFieldsStale": {say: (*rig).some, sound: someSound, defective: "7d755a5a5a5a000000000000000100000000 1, 7d715a5a5a5a000000010000000100000000 28, 7d7a5a5a5a5a000000010000000200000000 52"},
	"MSNShared":         {say: (*rig).some, sound: someSound, defective: "414500000000000000000000000000000000 1, 414100000000000000010000000100000000 28, 414a00000000000000010000000200000000 52"},
	"QueuesMixed":       {say: (*rig).some, sound: someSound, defective: "414500000000000000010000000100000000 1, 414100000000000000000000000100000000 28, 414a00000000000000000000000200000000 52"},
	"RDMAPVersion0":     {say: (*rig).some, sound: someSound, defective: "410500000000000000000000000100000000 1, 410100000000000000010000000100000000 28, 410a00000000000000010000000200000000 52"},
	"ZeroLengthSkipped": {
		say: func(r *rig) string {
			r.up(false)
			r.post(opSend, 0)
			r.post(opWrite, 0)
			r.post(opSend, 1)
			return r.say(segmentOf(wire.OpReadRequest, 1, nil)) + "; " + r.done()
		},
		sound:     "Send 0 #1, RDMA Read Response 0, RDMA Write 0, Send 1 #2; 0:SUCCESS:0 0:SUCCESS:0 0:SUCCESS:0",
		defective: "Send 1 #1; 0:SUCCESS:0 0:SUCCESS:0 0:SUCCESS:0",
	},
	"SegmentEdgeLost": {
		say: func(r *rig) string {
			r.up(false)
			g := segmentOf(wire.OpReadRequest, 1, nil, r.read(0, 4000))
			r.conn.Input(0, r.framer.Append(nil, g.Append(nil)))
			all := ""
			for b := r.hear(); len(b) > 0; {
				f, _ := cut(b, 0, false)
				s := segment{octets: f.ulpdu()}
				p := s.body()
				all, b = all+fmt.Sprintf("%d..%d; ", p[0], p[len(p)-1]), b[len(f.raw):]
			}
			return all
		},
		sound: "0..159; 160..63; 64..159; ", defective: "0..159; 161..64; 65..0; ",
	},
	"ImmediateOfFour": {
		say: func(r *rig) string {
			return r.headers(func() { r.post(verbs.OpSendImm, 0, func(wr *verbs.SendWR) { wr.Imm = 7 }) })
		},
		sound: "414800000000000000000000000100000000 8", defective: "414800000000000000000000000100000000 4",
	},
}
