package roce

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

var testPacket = ib.SendOnly(7, rig.Pattern(64, 1)).Via(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))

func TestFragmentsMakeThePacket(t *testing.T) {
	pkt := testPacket
	pkt.IP.ID = new(uint32(0x4711))
	whole := pkt.Build()
	_, want, _, err := packet.ParseIP(whole)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for i, part := range fragments(whole) {
		h, payload, trailer, err := packet.ParseIP(part)
		if err != nil || len(trailer) != 0 {
			t.Fatalf("fragment %d: %v, trailer %x", i, err, trailer)
		}
		if int(*h.FragOff)*8 != len(got) || *h.MF != (i == 0) || *h.DF || *h.ID != 0x4711 {
			t.Errorf("fragment %d at %d: offset %d, MF %v, DF %v, ID %#x", i, len(got), *h.FragOff*8, *h.MF, *h.DF, *h.ID)
		}
		if packet.Checksum(part[:20]) != 0 {
			t.Errorf("fragment %d has a wrong header checksum", i)
		}
		got = append(got, payload...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("put together, the fragments are %x, not %x", got, want)
	}
}

func TestTurnedBitsBreakTheICRC(t *testing.T) {
	const bth = 20 + 8
	for bit := range 12 * 8 {
		p, err := ib.Parse(testPacket.Damaged(turn(8*bth + bit)).Build())
		broken := p.ICRC == nil || p.CheckICRC() != nil
		if want := bit/8 != 4; broken != want {
			t.Errorf("bit %d of the BTH: wrong ICRC %v (%v)", bit, broken, err)
		}
	}
}

func TestRandomICRCIsNeverRight(t *testing.T) {
	f := randomICRC(rand.New(rand.NewPCG(1, 2)))
	seen := make(map[uint32]bool)
	for range 10_000 {
		got := f(0x12345678)
		if got == 0x12345678 {
			t.Fatal("the right one was drawn")
		}
		seen[got] = true
	}
	if len(seen) < 9_990 {
		t.Errorf("%d different ones of 10000", len(seen))
	}
}

func TestBodyOf(t *testing.T) {
	p := ib.WriteOnly(1, ib.At(0x10, 0x20, 3), []byte{1, 2, 3})
	body := bodyOf(p)
	if len(body) != 16+4 || !bytes.Equal(body[16:], []byte{1, 2, 3, 0}) {
		t.Errorf("%x", body)
	}
	if again := p.WithBody(body); !bytes.Equal(bodyOf(again), body) {
		t.Errorf("%x in place of %x", bodyOf(again), body)
	}
}
