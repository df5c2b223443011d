package mpa

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

var crcOn = wire.Framing{CRC: true}

// sent returns the octets of one ULPDU with the given payload.
func sent(c *Conn, header []byte, payload ...[]byte) []byte {
	c.Send(header, payload)
	return written(c)
}

var fpduRows = map[string]func(*testing.T){
	// One FPDU has one ULPDU, whatever else is queued.
	"rfc5044/3/1": func(t *testing.T) {
		c := sending(t, Config{}, crcOn)
		for n := range 3 {
			c.Send(pattern(18, n), [][]byte{pattern(300*n, n)})
		}
		d, rest := wire.NewDeframer(crcOn), written(c)
		for n := range 3 {
			f, after, ok := d.Next(rest)
			if !ok || f.CRCStatus != wire.CRCGood || !bytes.Equal(f.ULPDU, append(pattern(18, n), pattern(300*n, n)...)) {
				t.Errorf("FPDU %d: %v %v, %d octets", n, ok, f.CRCStatus, len(f.ULPDU))
			}
			rest = after
		}
		if len(rest) > 0 {
			t.Errorf("%d octets too many", len(rest))
		}
	},
	"rfc5044/3/2": func(t *testing.T) {
		for _, f := range framings {
			c := sending(t, Config{MSS: 65535}, f)
			if n := c.MULPDU(); n > wire.MaxMULPDU || n < 60000 {
				t.Errorf("%+v: MULPDU is %d", f, n)
			}
			c.SetMSS(1 << 20)
			if n := c.MULPDU(); n != wire.MaxMULPDU {
				t.Errorf("%+v: MULPDU is %d, want %d", f, n, wire.MaxMULPDU)
			}
			c.SetMSS(1)
			if n := c.MULPDU(); n != wire.MinMULPDU {
				t.Errorf("%+v: MULPDU is %d, want %d", f, n, wire.MinMULPDU)
			}
			if b := sent(c, nil, make([]byte, wire.MaxMULPDU)); len(b) < wire.MaxMULPDU {
				t.Errorf("%+v: %d octets", f, len(b))
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%+v: a longer ULPDU was sent", f)
					}
				}()
				c.Send(nil, [][]byte{make([]byte, wire.MaxMULPDU+1)})
			}()
		}
	},
	"rfc5044/3/3": func(t *testing.T) {
		for _, f := range framings {
			for mss := 600; mss < 700; mss++ {
				c := sending(t, Config{MSS: mss}, f)
				for range 9 { // so that markers are at other positions each time
					if b := sent(c, nil, make([]byte, c.MULPDU())); len(b) > mss {
						t.Errorf("%+v: MULPDU %d makes %d octets, the MSS is %d", f, c.MULPDU(), len(b), mss)
					}
				}
			}
		}
	},
	"rfc5044/4.1/1": func(t *testing.T) {
		b := sent(sending(t, Config{}, crcOn), pattern(18, 1), pattern(0x0102, 2))
		if want := append([]byte{0x01, 0x14}, pattern(18, 1)...); !bytes.HasPrefix(b, want) {
			t.Errorf("FPDU begins with %x, want %x", b[:20], want)
		}
		if crc := wire.CRC(b[:len(b)-4]); binary.LittleEndian.Uint32(b[len(b)-4:]) != crc {
			t.Errorf("FPDU ends with %x, want CRC %x", b[len(b)-4:], crc)
		}
	},
	"rfc5044/4.1/2": func(t *testing.T) {
		c := sending(t, Config{}, crcOn)
		for n := 1; n <= 4; n++ {
			if got := binary.BigEndian.Uint16(sent(c, pattern(18, n), pattern(n, n))); int(got) != 18+n {
				t.Errorf("%d octets of payload: ULPDU_Length %d", n, got)
			}
		}
	},
	"rfc5044/4.1/3": func(t *testing.T) {
		for _, f := range framings {
			c := sending(t, Config{}, f)
			for _, n := range []int{40, 41, 2, 21, 1000, 1001, 1002, 3} {
				for range 3 {
					b := sent(c, bytes.Repeat([]byte{0xff}, 18), bytes.Repeat([]byte{0xff}, n))
					end := len(b) - wire.CRCLen
					if f.Markers && c.streamPos%wire.MarkerInterval == wire.MarkerLen+wire.CRCLen {
						end -= wire.MarkerLen // between pad and CRC
					}
					if pad := b[end-wire.PadLen(18+n) : end]; !bytes.Equal(pad, make([]byte, len(pad))) {
						t.Errorf("%+v: %d octets padded with %x", f, n, pad)
					}
				}
			}
		}
	},
	"rfc5044/4.1/4": func(t *testing.T) {
		c := responding(t, Config{}, crcOn, crcOn)
		u := pattern(19, 0) // with a pad of three octets
		f := wire.FPDU{ULPDU: u, Pad: [3]byte{0xaa, 0xbb, 0xcc}}
		b := append(append([]byte{0, 19}, u...), f.Pad[:]...)
		f.CRC = wire.CRC(b)
		framer := wire.NewFramer(crcOn)
		wantULPDU(t, giveOne(t, c, framer.AppendFPDU(nil, &f)), u)
		f.CRC = wire.CRC(append(append([]byte{0, 19}, u...), 0, 0, 0))
		failsWith(t, giveOne(t, c, framer.AppendFPDU(nil, &f)), wire.TermMPACRC, ErrCRC)
	},
	"rfc5044/4.1/5": func(t *testing.T) {
		for _, f := range framings {
			c := sending(t, Config{}, f)
			for n := range 8 {
				if b := sent(c, pattern(18, n), pattern(n, n)); len(b)%4 != 0 {
					t.Errorf("%+v: %d octets make an FPDU of %d", f, n, len(b))
				}
			}
		}
	},
	"rfc5044/4.1/6": func(t *testing.T) {
		b := sent(sending(t, Config{}, wire.Framing{}), pattern(18, 0))
		if len(b) != 24 {
			t.Errorf("FPDU of %d octets without CRC, want the field nevertheless", len(b))
		}
		copy(b[20:], "\xff\xff\xff\xff")
		wantULPDU(t, giveOne(t, responding(t, Config{}, wire.Framing{}, wire.Framing{}), b), pattern(18, 0))
	},
}

var crcRows = map[string]func(*testing.T){
	"rfc5044/4.4/1": func(t *testing.T) {
		c := sending(t, Config{}, crcOn)
		for n := range 700 {
			if b := sent(c, pattern(14, n), pattern(n, n)); wire.CRC(b[:len(b)-4]) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
				t.Errorf("CRC of %d octets is wrong", n)
			}
		}
	},
	"rfc5044/4.4/2": func(t *testing.T) {
		if f := parse(t, written(NewInitiator(0, Config{}))); !f.CRC {
			t.Errorf("%+v does not request CRCs", f)
		}
		f := request()
		f.CRC = false
		if _, r := accepts(t, Config{}, f, AcceptParam{}); !r.CRC {
			t.Errorf("%+v does not request CRCs", r)
		}
	},
	"rfc5044/4.4/3": func(t *testing.T) {
		cfg := plainConfig()
		cfg.NoCRC = true
		c := accepted(t, cfg, reply()) // which requests CRCs
		for range 3 {
			u := pattern(18, 0)
			if b := sent(c, u); binary.LittleEndian.Uint32(b[20:]) != wire.CRC(b[:20]) {
				t.Errorf("no CRC: %x", b)
			}
			wantULPDU(t, giveOne(t, c, stream(crcOn, u)), u)
		}
		failsWith(t, giveOne(t, c, stream(wire.Framing{}, pattern(18, 1))), wire.TermMPACRC, ErrCRC)
	},
	"rfc5044/4.4/4": func(t *testing.T) {
		c := responding(t, Config{}, wire.Framing{}, wire.Framing{})
		b := stream(wire.Framing{}, pattern(18, 0))
		copy(b[20:], "what")
		wantULPDU(t, giveOne(t, c, b), pattern(18, 0))
	},
	"rfc5044/4.4/5": func(t *testing.T) { // zero is a choice; a valid CRC would do too
		if b := sent(sending(t, Config{}, wire.Framing{}), pattern(18, 0)); !bytes.Equal(b[20:], make([]byte, 4)) {
			t.Errorf("CRC field is %x", b[20:])
		}
	},
	"rfc5044/4.4/6": func(t *testing.T) { // vector T11: a kernel accepted this one
		want := fromHex(t, "0022414300000000000000000000000100000000000000000000100011223344000000142171acce")
		if b := sent(sending(t, Config{}, crcOn), want[2:20], want[20:36]); !bytes.Equal(b, want) {
			t.Errorf("got  %x\nwant %x", b, want)
		}
	},
	"rfc5044/4.4/7": func(t *testing.T) { goldenTrailingMarker(t) },
	"rfc5044/4.4/8": func(t *testing.T) { goldenFirstFPDU(t) },
	"rfc5044/4.4/9": func(t *testing.T) {
		good := stream(crcOn, pattern(30, 0))
		for i := 2; i < len(good); i++ {
			for bit := range 8 {
				b := bytes.Clone(good)
				b[i] ^= 1 << bit
				failsWith(t, giveOne(t, responding(t, Config{}, crcOn, crcOn), b), wire.TermMPACRC, ErrCRC)
			}
		}
	},
}
