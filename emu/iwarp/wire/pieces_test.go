package wire

import "testing"

func TestUpdateCRC(t *testing.T) {
	b := []byte("123456789") // the standard check input of CRC32c
	for cut := range b {
		if got := UpdateCRC(UpdateCRC(0, b[:cut]), b[cut:]); got != 0xE3069283 {
			t.Errorf("cut at %d: %#x", cut, got)
		}
	}
}

func TestMissingReturnsOctetsToEndOfFPDU(t *testing.T) {
	for _, f := range []Framing{{}, {Markers: true, CRC: true}} {
		framer := NewFramer(f)
		b := framer.Append(nil, make([]byte, 1001))
		d := NewDeframer(f)
		known := ULPDULengthLen
		if f.Markers {
			known += MarkerLen
		}
		for i := range b {
			want := len(b) - i
			if i < known {
				want = 0
			}
			if got, pad := d.Missing(); got != want || got > 0 && pad != 1 {
				t.Fatalf("%+v: %d missing after %d of %d octets, pad %d", f, got, i, len(b), pad)
			}
			d.Next(b[i : i+1])
		}
		if got, _ := d.Missing(); got != 0 {
			t.Errorf("%+v: %d missing after the last octet", f, got)
		}
	}
}
