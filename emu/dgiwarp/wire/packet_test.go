package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestParseErrors(t *testing.T) {
	long := func(p Packet) []byte { p.ULPDU = []byte{0}; return p.Append(nil) }
	for _, tc := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"nothing", nil, ErrShort},
		{"zeros", make([]byte, 64), ErrVersion},
		{"version 2", fromHex(t, "21000000 00000012 00000011 00000000 00000000"), ErrVersion},
		{"kind 0", fromHex(t, "10000000 00000012 00000011 00000000 00000000"), ErrKind},
		{"kind 5", fromHex(t, "15000000 00000012 00000011 00000000 00000000"), ErrKind},
		{"octets after a challenge", long(Packet{Header: NewHeader(KindChallenge, 1, 2, 3)}), ErrLong},
		{"octets after a refusal", long(Packet{Header: NewHeader(KindRefusal, 1, 2, 3)}), ErrLong},
		{"octets after an acknowledgement", long(Packet{Header: rdHeader(FlagAck)}), ErrLong},
		{"octets without data", long(Packet{Header: rdHeader(0)}), ErrLong},
		{"nine SACK words", fromHex(t, "12400000 00000011 00000012 00000000 00000000 00000000 00000000 0000 09 00"+
			strings.Repeat("00000000", 9)+"00000000"), ErrLong},
	} {
		var p Packet
		must.Fail(t, fmt.Sprintf("%s: Parse", tc.name), p.Parse(tc.bytes), tc.want)
	}
}

func TestHeaderDropsBitsThatDoNotFit(t *testing.T) {
	h := Header{Version: 0xf1, Kind: 0xf2}
	if b := h.Append(nil); b[0] != 0x12 {
		t.Errorf("first octet %#x, want 0x12", b[0])
	}
	a := Ack{Words: 200}
	if b := a.Append(nil); len(b) != MaxAckLen || len(b) != a.Len() || b[14] != MaxSackWords {
		t.Errorf("an Ack of 200 words: %x (Len %d)", b, a.Len())
	}
}

func TestSeqWraps(t *testing.T) {
	const last = Seq(0xffffffff)
	if !last.Less(0) || Seq(0).Less(last) || last.Add(1) != 0 || Seq(0).Add(-1) != last || Seq(3).Sub(last) != 4 {
		t.Error("sequence numbers do not wrap")
	}
}

func TestPacketsDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 256)
	for _, g := range goldens {
		golden := fromHex(t, g.bytes)
		p := new(Packet)
		if n := testing.AllocsPerRun(100, func() { buf = g.want.Append(buf[:0]) }); n != 0 {
			t.Errorf("%s: Append allocates %v times", g.name, n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = p.Parse(golden), p.Parse(golden[:17]) }); n != 0 {
			t.Errorf("%s: Parse allocates %v times", g.name, n)
		}
	}
}

func FuzzPacket(f *testing.F) {
	for _, g := range goldens {
		f.Add(fromHex(f, g.bytes))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		if err := p.Parse(b); err != nil {
			if !errors.Is(err, ErrShort) && !errors.Is(err, ErrLong) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrKind) {
				t.Fatalf("Parse(%x) = %v", b, err)
			}
			return
		}
		again := p.Append(nil)
		if n := len(b) - CRCLen; !bytes.Equal(again[:n], b[:n]) || CheckCRC(b) != bytes.Equal(again, b) {
			t.Fatalf("Parse then Append: %x -> %x", b, again)
		}
	})
}

func BenchmarkPacket(b *testing.B) {
	p := Packet{Header: rdHeader(FlagData), ULPDU: make([]byte, 1400)}
	wire := p.Append(nil)
	b.Run("append", func(b *testing.B) {
		b.SetBytes(int64(len(wire)))
		for b.Loop() {
			wire = p.Append(wire[:0])
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(wire)))
		for b.Loop() {
			if !CheckCRC(wire) || p.Parse(wire) != nil {
				b.Fatal("invalid CRC or packet")
			}
		}
	})
}

func TestSackSpan(t *testing.T) {
	for _, tc := range []struct {
		ack  Ack
		want int32
	}{
		{Ack{}, 0},
		{Ack{Words: 8}, 0},
		{Ack{Words: 1, Sack: [MaxSackWords]uint32{1}}, 2}, // Next and the packet after it
		{Ack{Words: 2, Sack: [MaxSackWords]uint32{1, 1}}, 34},
		{Ack{Words: 1, Sack: [MaxSackWords]uint32{1, 1}}, 2}, // only the first Words words count
		{Ack{Words: 8, Sack: [MaxSackWords]uint32{7: 1 << 30}}, Window},
	} {
		if got := tc.ack.SackSpan(); got != tc.want {
			t.Errorf("%+v: SackSpan is %d packets, want %d", tc.ack, got, tc.want)
		}
	}
}
