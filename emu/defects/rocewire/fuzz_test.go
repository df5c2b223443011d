package rocewire

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// FuzzEdge has any packet with a right ICRC come in, to an edge with every defect at
// once and to one with a single defect, and lets out what the Edge makes up.
func FuzzEdge(f *testing.F) {
	for i, name := range defects.All(new(Defects)) {
		f.Add(uint8(i), []byte(name.Name))
	}
	for op := range 256 {
		f.Add(uint8(op), []byte{byte(op), 0x40, 0xff, 0xff, 0, 0, 0, rcQP, 0x80, 0, 0, expected - 1, 0, 0, 0, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		b = append(b, make([]byte, wire.BTHLen+wire.ICRCLen)...)
		if len(b) > wire.MaxPacketLen {
			return
		}
		var one, all Defects
		v := reflect.ValueOf(&all).Elem()
		for i := range v.NumField() {
			v.Field(i).SetBool(true)
		}
		reflect.ValueOf(&one).Elem().Field(int(which) % v.NumField()).SetBool(true)
		for _, q := range []Defects{one, all} {
			q.IPv6Dead, q.FrameEndICRC, q.ICRCCheckUnmasked = false, false, false // which let little pass
			r := newRig(t, q)
			d := link.Datagram{Src: netip.AddrPortFrom(peerAddr, 0xc123), Dst: netip.AddrPortFrom(ownAddr, wire.Port), Payload: b}
			wire.NewICRC(d.Src, d.Dst).Seal(0, d.Payload)
			for range 2 {
				r.arrive(d)
				r.hear()
			}
		}
	})
}
