package packet

import (
	"bytes"
	"testing"
)

func TestFragmentsReassembleToThePacket(t *testing.T) {
	payload := bytes.Repeat([]byte("abcdefg"), 12)
	whole := IP{Src: a4, Dst: b4, ID: new(uint32(0x4711))}.Append(nil, bytes.Clone(payload))
	parts, err := Fragments(whole, 48)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for i, part := range parts {
		h, payload, trailer, err := ParseIP(part)
		if err != nil || len(trailer) != 0 {
			t.Fatalf("fragment %d: %v, trailer %x", i, err, trailer)
		}
		if int(*h.FragOff)*8 != len(got) || *h.MF != (i == 0) || *h.DF || *h.ID != 0x4711 {
			t.Errorf("fragment %d at %d: offset %d, MF %v, DF %v, ID %#x", i, len(got), *h.FragOff*8, *h.MF, *h.DF, *h.ID)
		}
		if Checksum(part[:20]) != 0 {
			t.Errorf("fragment %d has a wrong header checksum", i)
		}
		got = append(got, payload...)
	}
	if !bytes.Equal(got, payload) {
		t.Errorf("the fragments carry %x, want %x", got, payload)
	}
}
