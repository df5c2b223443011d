package dgwire

import (
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
)

// FuzzEdge has any packet with a right CRC come in and go out, at an Edge with
// every defect at once and at one with a single defect. What leaves must be whole.
func FuzzEdge(f *testing.F) {
	for i := range defects.All(new(Defects)) {
		for _, k := range []wire.Packet{
			ud(send(1, 0, 9, true)), ud(record(1, 0, 5)), ud(terminate()), data(0, wire.FlagStart, wire.FlagAck), ack(9, 0xff), challenge(1), refusal(1),
		} {
			b := k.Append(nil)
			f.Add(uint8(i), b[:len(b)-wire.CRCLen])
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		if len(b) > 1<<14 {
			return
		}
		var one, all Defects
		v := reflect.ValueOf(&all).Elem()
		for i := range v.NumField() {
			v.Field(i).SetBool(true)
		}
		reflect.ValueOf(&one).Elem().Field(int(which) % v.NumField()).SetBool(true)
		all.CRCCoversPorts, all.ReservedLookedAt, all.CRCMostFirst = false, false, false // which let little pass
		one.CRCCoversPorts, one.CRCMostFirst = false, false
		for _, q := range []Defects{one, all} {
			r := newRig(q)
			for range 2 {
				r.arrive(link.Datagram{Src: peerAddr, Dst: ownAddr, Payload: wire.AppendCRC(append([]byte(nil), b...), 0)})
				r.ready = append(r.ready, link.Datagram{Src: ownAddr, Dst: peerAddr, Payload: wire.AppendCRC(append([]byte(nil), b...), 0)})
				ds := make([]link.Datagram, 3)
				for n := r.edge.Output(0, ds); n > 0; n = r.edge.Output(0, ds) {
					for i := range n {
						if !wire.CheckCRC(ds[i].Payload) {
							t.Fatalf("with %q, %x leaves with a wrong CRC", defects.On(&q), ds[i].Payload)
						}
					}
				}
			}
		}
	})
}
