package iwarpwire

import (
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// FuzzEdge has any segment come in, and any octets, to a NIC with a single defect and
// to one with most of them, and lets out what that causes.
func FuzzEdge(f *testing.F) {
	for i := range defects.All(new(Defects)) {
		f.Add(uint8(i), uint16(1), segmentOctets(wire.OpSend, 1, "abc"))
	}
	for op := range uint8(16) {
		f.Add(op, uint16(3), []byte{0x41, 0x40 | op, 0, 0, 0, 0, 0, 0, 0, op & 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
		f.Add(op, uint16(500), append([]byte{0xc1, 0x40 | op, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 1000)...))
	}
	f.Fuzz(func(t *testing.T, which uint8, cutAt uint16, b []byte) {
		if len(b) > wire.MaxMULPDU {
			return
		}
		var one, most Defects
		v := reflect.ValueOf(&most).Elem()
		for i := range v.NumField() {
			v.Field(i).SetBool(true)
		}
		reflect.ValueOf(&one).Elem().Field(int(which) % v.NumField()).SetBool(true)
		// Without these, more of the others is seen.
		most.ResponderSpeaksFirst, most.RejectCloses, most.DemandsRevision2, most.OneFPDUPerSegment, most.HeaderInOneRead = false, false, false, false, false
		most.BadRequestHangs, most.RTRAlwaysExpected = false, false
		for _, q := range []Defects{one, most} {
			r := &rig{t: t, q: q, markers: cutAt&1 != 0}
			r.open()
			r.engine = r.nic.Incoming()
			r.conn = r.edge.Conn(r.engine, false)
			r.conn.Connected(0, ends[0], ends[1], 1460)
			r.give(enhanced(false, agreed).Append(nil))
			if r.engine.Accept(0, r.qp, four) != nil {
				return
			}
			r.hear()
			r.recv(2)
			r.start(wire.Framing{Markers: r.markers, CRC: true}, wire.Framing{CRC: true})
			for range 3 {
				octets := r.framer.Append(nil, b)
				at := min(int(cutAt), len(octets))
				r.give(octets[:at])
				r.give(octets[at:])
				r.wait(placementDelay)
				if r.qp.Conn() != nil && r.engine.State().String() == "established" {
					r.post(opSend, 20)
					r.post(opWrite, 3000)
				}
			}
			r.give(b)
			r.conn.InputEOF(0)
			r.hear()
			r.wait(60e9)
			r.hear()
		}
	})
}
