package softroce

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

func TestFindIPIDMatchesICRC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := link.Datagram{
		Src: netip.MustParseAddrPort("10.0.0.1:50000"), Dst: netip.MustParseAddrPort("10.0.0.2:4791"), IPID: link.IPIDUnknown,
	}
	for range 1000 {
		want := uint16(rng.Uint32())
		d.Payload = make([]byte, wire.BTHLen+4*rng.IntN(300)+wire.ICRCLen)
		for i := range d.Payload {
			d.Payload[i] = byte(rng.Uint32())
		}
		wire.NewICRC(d.Src, d.Dst).Seal(want, d.Payload)
		if id, ok := FindIPID(&d); id != want || !ok {
			t.Fatalf("%d bytes: identification %#x, %v, want %#x", len(d.Payload), id, ok, want)
		}
		d.Payload[rng.IntN(len(d.Payload))] ^= 1
		if id, ok := FindIPID(&d); ok {
			// Byte 4 of a BTH is not covered.
			if d.Payload = d.Payload[:0]; id != want {
				t.Fatalf("a damaged packet has identification %#x", id)
			}
		}
	}
	d.Dst = netip.MustParseAddrPort("10.0.0.2:4790")
	if _, ok := FindIPID(&d); ok {
		t.Error("a datagram to another port has one")
	}
}
