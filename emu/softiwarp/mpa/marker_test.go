package mpa

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

var marked1 = wire.Framing{Markers: true, CRC: true}

// placed is a marker found at a multiple of 512 octets.
type placed struct {
	at       int
	reserved uint16
	back     int
}

func markersIn(b []byte) (all []placed) {
	for at := 0; at+4 <= len(b); at += 512 {
		all = append(all, placed{at, binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+2:]))})
	}
	return all
}

// starts returns the positions of the ULPDU_Length fields.
func starts(t *testing.T, b []byte) map[int]int {
	t.Helper()
	lengths := map[int]int{}
	for at := 0; at < len(b); {
		if at%512 == 0 {
			at += 4
		}
		n := int(binary.BigEndian.Uint16(b[at:]))
		lengths[at] = n
		for left := (2+n+3)&^3 + 4; left > 0; left -= 4 {
			if at%512 == 0 {
				at += 4
			}
			at += 4
		}
	}
	return lengths
}

// many returns the octets that an initiator sends for ULPDUs of the given lengths.
func many(t *testing.T, lengths ...int) []byte {
	t.Helper()
	c := sending(t, Config{}, marked1)
	var b []byte
	for i, n := range lengths {
		b = append(b, sent(c, pattern(n, i)[:min(n, 18)], pattern(n, i)[min(n, 18):])...)
	}
	return b
}

// corrupt returns the FPDUs of ulpdus with octets at a position xored, and a valid CRC in the
// first.
func corrupt(at int, xor []byte, ulpdus ...[]byte) []byte {
	b := stream(marked1, ulpdus...)
	for i, x := range xor {
		b[at+i] ^= x
	}
	end := len(stream(marked1, ulpdus[0]))
	binary.LittleEndian.PutUint32(b[end-4:], wire.CRC(b[:end-4]))
	return b
}

var markerRows = map[string]func(*testing.T){
	"rfc5044/4.2/1": func(t *testing.T) {
		for _, m := range markersIn(many(t, 1400, 1400, 600, 30, 30)) {
			if m.reserved != 0 {
				t.Errorf("%+v", m)
			}
		}
	},
	"rfc5044/4.2/2": func(t *testing.T) {
		u := pattern(700, 0)
		for _, at := range []int{0, 512} {
			c := responding(t, Config{}, marked1, crcOn)
			wantULPDU(t, giveOne(t, c, corrupt(at, []byte{0xde, 0xad}, u)), u)
		}
	},
	"rfc5044/4.2/3": func(t *testing.T) {
		for _, m := range markersIn(many(t, 1401, 1402, 603, 31, 30)) {
			if m.back%4 != 0 {
				t.Errorf("%+v", m)
			}
		}
		u := pattern(700, 0)
		c := responding(t, Config{}, marked1, crcOn)
		wantULPDU(t, giveOne(t, c, corrupt(514, []byte{0, 3}, u)), u)
	},
	"rfc5044/4.3/1": func(t *testing.T) {
		f := request()
		f.Markers = true
		c, r := accepts(t, Config{}, f, AcceptParam{})
		if r.Reject || r.Markers {
			t.Errorf("Reply %+v", r)
		}
		giveOne(t, c, stream(crcOn, pattern(18, 0)))
		if b := sent(c, pattern(18, 0)); !bytes.Equal(b, stream(marked1, pattern(18, 0))) {
			t.Errorf("sends %x", b)
		}
	},
	"rfc5044/4.3/2": func(t *testing.T) {
		b := many(t, 1400, 1400, 1400, 1400)
		lengths := starts(t, b)
		if len(lengths) != 4 {
			t.Fatalf("FPDUs start at %v: markers are not where they were counted", lengths)
		}
		for at, n := range lengths {
			if n != 1400 {
				t.Errorf("no length at %d: %d", at, n)
			}
		}
	},
	"rfc5044/4.3/3": func(t *testing.T) {
		if b := many(t, 18); !bytes.HasPrefix(b, []byte{0, 0, 0, 0, 0, 18}) {
			t.Errorf("begins with %x", b[:8])
		}
	},
	"rfc5044/4.3/4": func(t *testing.T) {
		b := many(t, 44, 333, 1400, 27, 900, 61, 1400)
		lengths := starts(t, b)
		for _, m := range markersIn(b) {
			if _, ok := lengths[m.at-m.back]; !ok && m.back != 0 {
				t.Errorf("%+v points to %d, where no FPDU starts", m, m.at-m.back)
			}
		}
	},
	"rfc5044/4.3/5": func(t *testing.T) { goldenMarkerBetween(t) },
	"rfc5044/4.3/6": func(t *testing.T) {
		for _, m := range markersIn(many(t, 1418))[1:] {
			if m.at-m.back != 4 {
				t.Errorf("%+v points to %d", m, m.at-m.back)
			}
		}
	},
	"rfc5044/4.3/7": func(t *testing.T) {
		var lengths []int
		for range 200 {
			lengths = append(lengths, 14)
		}
		b := many(t, lengths...)
		at := starts(t, b)
		for _, m := range markersIn(b) {
			if _, ok := at[m.at-m.back]; m.back >= 24 || !ok && m.back > 0 {
				t.Errorf("%+v does not point to the FPDU around it", m)
			}
		}
	},
	"rfc5044/4.3/8": func(t *testing.T) { // positions do not wrap with TCP's
		c, r := sending(t, Config{}, marked1), responding(t, Config{}, marked1, crcOn)
		const near = 1<<32 - 3*512 + 16
		c.streamPos, r.deframer = near, wire.NewDeframerAt(marked1, near)
		for i := range 20 {
			u := pattern(300+i, i)
			wantULPDU(t, giveOne(t, r, sent(c, u[:18], u[18:])), u)
		}
		if c.streamPos < 1<<32 {
			t.Errorf("only at %d", c.streamPos)
		}
	},
	"rfc5044/4.3/9": func(t *testing.T) {
		c := responding(t, Config{}, marked1, crcOn)
		for i, n := range []int{0, 1, 14, 480, 1000, 64768} {
			u := pattern(n, i)
			framer := wire.NewFramer(marked1)
			c.deframer = wire.NewDeframer(marked1)
			wantULPDU(t, giveOne(t, c, framer.Append(nil, u)), u)
		}
	},
}
