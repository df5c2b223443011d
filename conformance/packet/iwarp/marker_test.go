package iwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

func withMarkers() *Framer { return &Framer{Markers: true, CRC: true} }

// The two examples of the RFC: the first FPDU of a stream, and one at 0x1ec with a marker in it.
func TestMarkersMatchExamplesOfRFC5044(t *testing.T) {
	f := withMarkers()
	first := f.Append(nil, Op(OpSend).MSN(1).Length(24))
	if want := unhex(t, "00000000002a41430000000000000000000000010000000000000000000000000000000000000000000000000000000052239983"); !bytes.Equal(first, want) {
		t.Errorf("first: %x\n want %x", first, want)
	}
	f.Position = 0x1ec
	second := f.Append(nil, Op(OpSend).MSN(2).Length(24))
	if want := unhex(t, "002a4143000000000000000000000002000000000000001400000000000000000000000000000000000000000000000084925898"); !bytes.Equal(second, want) {
		t.Errorf("second: %x\n want %x", second, want)
	}
	if f.Position != 0x1ec+52 {
		t.Errorf("position %#x after it", f.Position)
	}
}

func TestMarkerBetweenPadAndCRC(t *testing.T) {
	b := withMarkers().Append(nil, Op(OpSend).MSN(1).Length(488))
	if len(b) != 520 {
		t.Fatalf("%d octets, want 520", len(b))
	}
	if tail := b[512:]; !bytes.Equal(tail, unhex(t, "000001fc38cf64e8")) {
		t.Errorf("ends with %x", tail)
	}
}

func TestMarkerBetweenFPDUs(t *testing.T) {
	f := withMarkers()
	first := f.Append(nil, Op(OpSend).MSN(1).Length(484))
	if len(first) != 512 || !bytes.Equal(first[508:], unhex(t, "a09bb55b")) {
		t.Fatalf("%d octets that end with %x", len(first), first[len(first)-4:])
	}
	second := f.Append(nil, Op(OpSend).MSN(2).Length(24))
	if want := unhex(t, "00000000002a414300000000000000000000000200000000000000000000000000000000000000000000000000000000cc08199e"); !bytes.Equal(second, want) {
		t.Errorf("second: %x\n want %x", second, want)
	}
}

// An FPDU with 4 octets of marker, 2 of length, 18 of header and 1400 of payload has further
// markers at 512 and 1024, which are 508 and 1020 octets after the length field.
func TestMarkerPositions(t *testing.T) {
	f := withMarkers()
	b := f.Append(nil, Op(OpSend).MSN(1).WithPayload(bytes.Repeat([]byte{0xab}, 1400)))
	if want := 4 + 2 + 18 + 1400 + 4 + 2*4; len(b) != want {
		t.Fatalf("%d octets, want %d", len(b), want)
	}
	for at, ptr := range map[int]uint32{0: 0, 512: 508, 1024: 1020} {
		if got := binary.BigEndian.Uint32(b[at:]); got != ptr {
			t.Errorf("at %d: %#x, want %#x", at, got, ptr)
		}
	}
	// Small FPDUs follow. Each marker points to the start of its FPDU.
	for len(b) < 4*512 {
		b = f.Append(b, Write(1, 0, nil))
	}
	// The first has 1436 octets; five of 20 end at 1536, where a marker is between two FPDUs.
	// 25 more begin after it at 1540, and the one at 2040 has the next marker.
	if got := binary.BigEndian.Uint32(b[1536:]); got != 0 {
		t.Errorf("at 1536: %#x, want 0", got)
	}
	if got := binary.BigEndian.Uint32(b[2048:]); got != 8 {
		t.Errorf("at 2048: %#x, want 8", got)
	}
	got := deframe(t, &Deframer{Markers: true}, b)
	if odd := oddOf(got[0]); len(odd) != 0 {
		t.Errorf("odd: %q", odd)
	}
	if want := []Marker{{0, 0, 0, 0}, {512, 0, 508, 508}, {1024, 0, 1020, 1020}}; !slices.Equal(got[0].Markers, want) {
		t.Errorf("markers %+v, want %+v", got[0].Markers, want)
	}
	if !bytes.Equal(got[0].Payload, bytes.Repeat([]byte{0xab}, 1400)) {
		t.Error("markers are left in the payload")
	}
}

func TestEditedMarkersAreReported(t *testing.T) {
	send := Op(OpSend).MSN(1).Length(600)
	for _, tc := range []struct {
		frame Segment
		odd   string
	}{
		{send.EditMarkers(func(m *Marker) { m.Reserved = 7 }), "[marker at 0 has reserved bits set: 0x7 marker at 512 has reserved bits set: 0x7]"},
		{send.EditMarkers(func(m *Marker) { m.Ptr |= 3 }), "[marker at 0 has low bits set: 0x3 marker at 512 has low bits set: 0x1ff]"},
		{send.EditMarkers(func(m *Marker) {
			if m.Offset == 512 {
				m.Ptr += 4
			}
		}), "[marker at 512 points back 512, its FPDU began 508 before]"},
	} {
		got := deframe(t, &Deframer{Markers: true}, withMarkers().Append(nil, tc.frame))
		if odd := fmt.Sprint(oddOf(got[0])); odd != tc.odd {
			t.Errorf("odd: %s, want %s", odd, tc.odd)
		}
	}
}

// A stream with markers arrives in two pieces of any length, and octet by octet.
func TestDeframerAcceptsEverySplit(t *testing.T) {
	f := withMarkers()
	var b []byte
	for n := range 5 {
		b = f.Append(b, Op(OpSend).MSN(uint32(n+1)).Length(n*131))
	}
	for cut := range b {
		d := Deframer{Markers: true}
		d.Feed(b[:cut])
		got := nextAll(&d)
		d.Feed(b[cut:])
		got = append(got, nextAll(&d)...)
		if len(got) != 5 || len(d.Pending()) != 0 {
			t.Fatalf("cut at %d: %d FPDUs, %d octets left", cut, len(got), len(d.Pending()))
		}
		for i, g := range got {
			if len(oddOf(g)) != 0 || *g.DDP.MSN != uint32(i+1) {
				t.Fatalf("cut at %d: %v, odd %q", cut, g, oddOf(g))
			}
		}
	}
	d, n := Deframer{Markers: true}, 0
	for i := range b {
		d.Feed(b[i : i+1])
		n += len(nextAll(&d))
	}
	if n != 5 {
		t.Errorf("octet by octet: %d FPDUs", n)
	}
}

// nextAll returns all complete FPDUs.
func nextAll(d *Deframer) (got []ReceivedFPDU) {
	for {
		g, ok := d.Next()
		if !ok {
			return got
		}
		got = append(got, g)
	}
}

// deframe splits a stream of whole FPDUs.
func deframe(t *testing.T, d *Deframer, b []byte) []ReceivedFPDU {
	t.Helper()
	d.Feed(b)
	got := nextAll(d)
	if len(got) == 0 || len(d.Pending()) != 0 {
		t.Fatalf("%d FPDUs, %d octets left over", len(got), len(d.Pending()))
	}
	return got
}

// The CRC covers a marker at any place of an FPDU, also one between pad and CRC. An FPDU without its
// last octet is incomplete.
func TestCRCCoversMarkersAtAnyPlace(t *testing.T) {
	for size := 430; size < 560; size++ {
		b := (&Framer{Markers: true, CRC: true}).Append(nil, Write(1, 2, make([]byte, size)))
		for _, n := range []int{len(b) - 1, len(b)} {
			d := Deframer{Markers: true}
			d.Feed(b[:n])
			got, ok := d.Next()
			if ok != (n == len(b)) || ok && *got.MPA.CRCStatus != CRCCorrect {
				t.Errorf("%d of %d octets: complete %v, %v", n, len(b), ok, got)
			}
		}
	}
}

// The values are those of RFC 5044 section 4.5 for common MSS values.
func TestMULPDUFormula(t *testing.T) {
	for _, tc := range []struct {
		mss     int
		markers bool
		want    int
	}{
		{1448, false, 1442},
		{1449, false, 1442},
		{1451, false, 1442},
		{1460, false, 1454},
		{1448, true, 1430},
		{1460, true, 1442},
		{88, false, 128},
		{65495, false, 64768},
	} {
		if got := MULPDU(tc.mss, tc.markers); got != tc.want {
			t.Errorf("MULPDU(%d, %t) = %d, want %d", tc.mss, tc.markers, got, tc.want)
		}
	}
}

// The message ends at the next marker from every position in the stream.
func TestPayloadToMarkerEndsAtMarker(t *testing.T) {
	if n := PayloadToMarker(8); n != markerInterval-8-lengthLen-untaggedLen-crcLen {
		t.Errorf("from 8, the message has %d octets", n)
	}
	for position := uint64(0); position < 480; position += 4 {
		n := PayloadToMarker(position)
		if n < 0 {
			continue
		}
		f := Framer{Markers: true, CRC: true, Position: position}
		f.Append(nil, Send(1, make([]byte, n)))
		if f.Position != markerInterval {
			t.Errorf("from %d, %d octets end at %d", position, n, f.Position)
		}
	}
}
