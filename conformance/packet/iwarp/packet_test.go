package iwarp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var (
	pathOut  = PacketPath{Dest: 0x12, Source: 0x11, Key: 0x0badcafe}
	pathBack = PacketPath{Dest: 0x11, Source: 0x12, Key: 0x0badcafe}
)

// goldenPackets are the packets at the end of docs/spec/datagram-iwarp.md.
var goldenPackets = []struct {
	id, hex string
	make    Packet
	text    string
}{
	{
		"G1", "11000000 00000012 00000011 0badcafe 4143 00000000 00000000 00000001 00000000 68656c6c6f e6b8cb00",
		UD(Send(1, []byte("hello"))).Over(pathOut),
		"UD SEND msn 1 5 B last",
	},
	{
		"G2", "11000000 00ffffff 00000011 00000000 c140 00000001 0000000000000000 936b9dfd",
		UD(Write(1, 0, nil)).ToQP(GroupQP).FromQP(0x11),
		"UD WRITE stag 0x1 to 0x0 0 B last",
	},
	{
		"G3", "12b00000 00000012 00000011 0badcafe 5eed0001 00000000 000003e8 0000000000000000 2badbabe 0ddba115 4143 00000000 00000000 00000001 00000000 68656c6c6f aacc7619",
		RDData(0x5eed0001, 0, Send(1, []byte("hello"))).Timestamp(1000).Starting(0, 0x2badbabe, 0x0ddba115).AckNow().Over(pathOut),
		"RD seq 0 start epoch 0x5eed0001 ack-now SEND msn 1 5 B last",
	},
	{
		"G4", "13000000 00000011 00000012 0badcafe 5eed0001 1c0ffee1 0123456789abcdef abfbafd7",
		Challenge(0x5eed0001, 0x1c0ffee1, 0x0123456789abcdef).Over(pathBack),
		"CHALLENGE epoch 0x5eed0001 cookie 0x123456789abcdef",
	},
	{
		"G5", "12440000 00000011 00000012 0badcafe 5eed0001 00000007 000003e9 0100 01 00 00000005 c0801f43",
		RDAck(0x5eed0001, 7).Echo(1001).SACK(SACKOf(7, 8, 10)...).EditHeader(func(h *PacketHeader) { h.Repeats = new(true) }).Over(pathBack),
		"RD ack 7 sack [5] repeats",
	},
	{
		"G6", "12c80000 00000012 00000011 0badcafe a0000002 ffffffff 000003e9 0000 00 00 5eed0001 00000008 000003ea c140 00000001 0000000000000000 0d9e80e7",
		RDData(0x5eed0001, 8, Write(1, 0, nil)).Timestamp(1002).Acking(0xa0000002, 0xffffffff).Echo(1001).Window(0).EditHeader(func(h *PacketHeader) { h.Marked = new(true) }).Over(pathOut),
		"RD ack 4294967295 busy seq 8 marked WRITE stag 0x1 to 0x0 0 B last",
	},
	{
		"G7", "14000000 00000011 00000012 0badcafe 5eed0001 01 000000 3d920d94",
		Refusal(0x5eed0001, ReasonUnknownFlow).Over(pathBack),
		"REFUSAL epoch 0x5eed0001 unknown flow",
	},
	{
		"G8", "11000000 00000012 00000011 0badcafe c14f a1b2c300 0000000000001004 00000009 00000004 00000008 cafef00d 05060708 118e1594",
		WriteRecords(9, At(0xa1b2c300, 0x1000), []byte{1, 2, 3, 4, 5, 6, 7, 8}, 0xcafef00d, 4)[1].Over(pathOut),
		"UD WRITE-RECORD stag 0xa1b2c300 to 0x1004 4 B last msn 9 mo 4 of 8 B imm 0xcafef00d",
	},
	{
		"G9", "11000000 00000011 00000012 0badcafe 4147 00000000 00000002 00000001 00000000 1205c000 0017 4143 00000000 00000000 00000001 00000000 78747369",
		UD(Terminate(DDPUntaggedTooLong).About(Send(1, []byte("hello")))).Over(pathBack),
		"UD TERMINATE ddp/untagged message too long for its buffer about SEND msn 1 last",
	},
}

// strictPacket returns a packet as an expectation of every bit; the CRC must be correct.
func strictPacket(p Packet) Packet {
	s := ParsePacket(p.Append(nil)).Packet
	s.CRC = nil
	return s
}

func TestGoldenPackets(t *testing.T) {
	for _, g := range goldenPackets {
		want := unhex(t, g.hex)
		if b := g.make.Append(nil); !bytes.Equal(b, want) {
			t.Errorf("%s: built %x\n want %x", g.id, b, want)
		}
		got := ParsePacket(want)
		if d := strictPacket(g.make).Diff(got); len(d) != 0 {
			t.Errorf("%s: %v", g.id, d)
		}
		if s := got.String(); s != g.text {
			t.Errorf("%s: %q, want %q", g.id, s, g.text)
		}
		if len(got.Odd) != 0 {
			t.Errorf("%s: odd: %q", g.id, got.Odd)
		}
		if again := got.Append(nil); !bytes.Equal(again, want) {
			t.Errorf("%s: parsed and appended: %x", g.id, again)
		}
	}
}

// A strict expectation of a golden packet matches neither another packet nor a change of one bit.
func TestEveryPacketBitIsCompared(t *testing.T) {
	for i, g := range goldenPackets {
		strict := strictPacket(g.make)
		for j, other := range goldenPackets {
			if strict.Matches(ParsePacket(unhex(t, other.hex))) != (i == j) {
				t.Errorf("%s matches %s, or does not match itself", other.id, g.id)
			}
		}
		b := unhex(t, g.hex)
		for bit := range 8 * (len(b) - crcLen) {
			b[bit/8] ^= 0x80 >> (bit % 8)
			// A correct CRC: the field itself must differ.
			damaged := ParsePacket(b).Packet
			damaged.CRC, damaged.CRCStatus = nil, nil
			if strict.Matches(ParsePacket(damaged.Append(nil))) {
				t.Errorf("%s: bit %d is not compared", g.id, bit)
			}
			if got := ParsePacket(b); *got.CRCStatus == CRCCorrect {
				t.Errorf("%s: the CRC does not cover bit %d", g.id, bit)
			}
			b[bit/8] ^= 0x80 >> (bit % 8)
		}
	}
}

func TestUnsetPacketFieldsAreNotCompared(t *testing.T) {
	got := ParsePacket(RDData(1, 2, Send(3, []byte("x")).MO(4)).Acking(5, 6).SACK(1).Window(9).Starting(7, 8, 9).AckNow().Over(pathOut).BadCRC().Append(nil))
	for _, want := range []Packet{
		AnyPacket(), PacketOf(KindRD), RDData(1, 2, Any()), RDAck(5, 6), AnyPacket().With(Op(OpSend)), AnyPacket().AckNow(), AnyPacket().Window(9), AnyPacket().SACK(1), AnyPacket().BadCRC(), AnyPacket().ToQP(0x12),
		AnyPacket().Starting(7, 8, 9),
	} {
		if d := want.Diff(got); len(d) != 0 {
			t.Errorf("expected %v: %v", want, d)
		}
	}
	for _, tc := range []struct {
		want Packet
		diff string
	}{
		{PacketOf(KindUD), "Kind: want UD, got RD"},
		{RDData(2, 2, Any()), "Data.Epoch: want 0x2, got 0x1"},
		{RDData(1, 3, Any()), "Data.Seq: want 3, got 2"},
		{RDAck(5, 7), "Ack.Next: want 7, got 6"},
		{AnyPacket().Window(0), "Ack.Window: want 0, got 9"},
		{AnyPacket().SACK(), "Ack.SACK: want [], got [00000001]"},
		{AnyPacket().SACK(3), "Ack.SACK: want [00000003], got [00000001]"},
		{AnyPacket().EditHeader(func(h *PacketHeader) { h.Marked = new(true) }), "Marked: want true, got false"},
		{AnyPacket().With(Op(OpWrite)), "opcode: want WRITE, got SEND"},
		{AnyPacket().Starting(7, 8, 10), "Start.SourceKey: want 0xa, got 0x9"},
		{Refusal(1, ReasonNoRoom), "Kind: want REFUSAL, got RD; Refusal: want one, got none"},
		{AnyPacket().EditRecord(func(*RecordHeader) {}), "Record: want one, got none"},
		{AnyPacket().WithKey(1), "Key: want 0x1, got 0xbadcafe"},
	} {
		if d := tc.want.Diff(got).String(); d != tc.diff {
			t.Errorf("expected %v: %q, want %q", tc.want, d, tc.diff)
		}
	}
}

// A packet without a segment, or with another CRC, does not match.
func TestSegmentAndCRCAreCompared(t *testing.T) {
	got := ParsePacket(RDAck(1, 2).Append(nil))
	other := AnyPacket()
	other.CRC = new(*got.CRC + 1)
	for _, tc := range []struct {
		want Packet
		diff string
	}{
		{AnyPacket().With(Any()), "segment: want one, got none"},
		{other, fmt.Sprintf("CRC: want %#08x, got %#08x", *other.CRC, *got.CRC)},
		{AnyPacket().BadCRC(), "CRC: want wrong, got right"},
		{AnyPacket().Trailing(1), "octets behind the last block: want 1 B, got 0 B"},
	} {
		if d := tc.want.Diff(got).String(); d != tc.diff {
			t.Errorf("expected %v: %q, want %q", tc.want, d, tc.diff)
		}
	}
}

func TestPacketOdditiesAreNamed(t *testing.T) {
	ud, rd := UD(Send(1, []byte("x"))), RDData(1, 0, Send(1, []byte("x")))
	for _, tc := range []struct {
		p   Packet
		odd string
	}{
		{ud, "[]"},
		{ud.EditHeader(func(h *PacketHeader) { h.Version = new(uint8(2)) }), "[version 2]"},
		{ud.EditHeader(func(h *PacketHeader) { h.Kind = new(PacketKind(0)) }), "[kind 0 is not assigned 19 octets behind the last block]"},
		{ud.EditHeader(func(h *PacketHeader) { h.Kind = new(PacketKind(9)) }), "[kind 9 is not assigned 19 octets behind the last block]"},
		{ud.EditHeader(func(h *PacketHeader) { h.Reserved = new(uint16(1)) }), "[reserved bits are set]"},
		{ud.EditHeader(func(h *PacketHeader) { h.FlagsReserved = new(uint8(1)) }), "[reserved bits are set]"},
		{ud.AckNow(), "[flags of RD are set in UD]"},
		{ud.Cut(15), "[19 octets are too few for a packet]"},
		{ud.Cut(17), "[a segment of 1 octets is too short for its header]"},
		{rd.Cut(20), "[24 octets are too few for the blocks]"},
		{rd.Starting(1, 0, 1), "[incarnation 0]"},
		{rd.Starting(1, 1, 1).Cut(40), "[44 octets are too few for the blocks]"},
		{RDAck(1, 1).EditAck(func(a *AckBlock) { a.Words = new(uint8(2)) }), "[36 octets are too few for the blocks]"},
		{RDAck(1, 1).SACK(make([]uint32, 9)...), "[9 words of SACK, the most there can be is 8]"},
		{RDAck(1, 1).EditAck(func(a *AckBlock) { a.Reserved = new(uint8(2)) }), "[reserved octet of the Ack is set]"},
		{RDAck(1, 1).Trailing(1, 2), "[2 octets behind the last block]"},
		{RDAck(1, 1).EditHeader(func(h *PacketHeader) { h.Start = new(true) }), "[start flag without data]"},
		{PacketOf(KindRD), "[neither data nor acknowledgement]"},
		{Challenge(1, 0, 1), "[incarnation 0]"},
		{Challenge(1, 1, 1).Cut(30), "[34 octets are too few for the blocks]"},
		{Refusal(1, 5), "[reason 5 is not assigned]"},
		{Refusal(1, ReasonNoRoom), "[]"},
		{Refusal(1, ReasonNoQP).edit(func(p *Packet) { p.Refusal.Reserved = new(uint32(1)) }), "[reserved octets of the Refusal are set]"},
		{RDAck(1, 1).SACK(make([]uint32, 8)...), "[]"},
		{RDAck(1, 1).Trailing(1), "[1 octets behind the last block]"},
		{ud.EditHeader(func(h *PacketHeader) { h.HasData = new(true) }), "[flags of RD are set in UD]"},
		{ud.EditHeader(func(h *PacketHeader) { h.HasAck = new(true) }), "[flags of RD are set in UD]"},
		{ud.EditHeader(func(h *PacketHeader) { h.Start = new(true) }), "[flags of RD are set in UD]"},
		{ud.EditHeader(func(h *PacketHeader) { h.Marked = new(true) }), "[flags of RD are set in UD]"},
		{ud.EditHeader(func(h *PacketHeader) { h.Repeats = new(true) }), "[flags of RD are set in UD]"},
		{ud.EditSegment(func(s Segment) Segment { return s.DV(0) }), "[DV: 0 instead of 1]"},
		{WriteRecord(1, At(1, 2), []byte("abc"), 4), "[]"},
		{WriteRecord(1, At(1, 2), []byte("abc"), 4).Cut(40), "[a Write-Record without its header]"},
		{WriteRecord(1, At(1, 2), []byte("abc"), 4).EditRecord(func(r *RecordHeader) { r.Length = new(uint32(2)) }), "[data up to octet 3 of a Write-Record of 2 octets]"},
	} {
		if odd := fmt.Sprint(ParsePacket(tc.p.Append(nil)).Odd); odd != tc.odd {
			t.Errorf("%v: %s, want %s", tc.p, odd, tc.odd)
		}
	}
	got := ParsePacket(ud.BadCRC().Append(nil))
	if len(got.Odd) != 1 || !strings.HasPrefix(got.Odd[0], "CRC ") {
		t.Errorf("a wrong CRC: %q", got.Odd)
	}
}

// edit changes the packet.
func (p Packet) edit(change func(*Packet)) Packet { change(&p); return p }

// Only a tagged segment of the experimental opcode is a Write-Record. Packets do not alias their
// octets, and short ones have a CRC and a trailer.
func TestParsedPackets(t *testing.T) {
	data := make([]byte, 20)
	for _, s := range []Segment{Write(1, 2, data), Op(OpExperimental).MSN(1).WithPayload(data)} {
		if got := ParsePacket(UD(s).Append(nil)); got.Record != nil {
			t.Errorf("%v is a Write-Record", got)
		}
	}
	b := UD(Send(1, []byte("abcd"))).Append(nil)
	got := ParsePacket(b)
	clear(b)
	if string(got.Segment.Payload) != "abcd" || got.Raw[0] == 0 {
		t.Errorf("the packet changed to %v", got)
	}
	if short := ParsePacket([]byte{1, 2, 3, 4}); short.CRC == nil || len(short.Trailer) != 0 {
		t.Errorf("four octets: %+v", short)
	}
	if short := ParsePacket([]byte{8, 9, 1, 2, 3, 4}); string(short.Trailer) != "\x08\x09" {
		t.Errorf("six octets have the trailer %x", short.Trailer)
	}
}

func TestSACKNamesArrivedPackets(t *testing.T) {
	next := uint32(0xfffffff0) // sequence numbers wrap
	arrived := []uint32{next + 1, next + 32, next + 33, next + 256}
	words := SACKOf(next, arrived...)
	if want := []uint32{1 | 1<<31, 1, 0, 0, 0, 0, 0, 1 << 31}; !slices.Equal(words, want) {
		t.Fatalf("%x, want %x", words, want)
	}
	a := RDAck(1, next).SACK(words...).Ack
	for off := -300; off < 300; off++ {
		seq := next + uint32(off)
		if got, want := a.Arrived(seq), off < 0 || slices.Contains(arrived, seq); got != want {
			t.Errorf("packet next%+d: %t, want %t", off, got, want)
		}
	}
}

func TestWriteRecordsAreSegmented(t *testing.T) {
	data := []byte("0123456789")
	var all []byte
	for i, p := range WriteRecords(5, At(7, 0x100), data, 9, 4) {
		got := ParsePacket(p.Append(nil))
		if *got.Record.MO != uint32(4*i) || *got.Segment.DDP.TO != 0x100+uint64(4*i) || *got.Record.Length != 10 || *got.Segment.DDP.Last != (i == 2) {
			t.Errorf("packet %d: %v", i, got)
		}
		all = append(all, got.Segment.Payload...)
	}
	if !bytes.Equal(all, data) {
		t.Errorf("all records have %q", all)
	}
	if n := len(WriteRecords(1, At(1, 1), nil, 0, 4)); n != 1 {
		t.Errorf("an empty record is %d packets", n)
	}
}

func TestPacketModifiersCopy(t *testing.T) {
	base := RDData(1, 2, Send(1, nil)).Acking(3, 4)
	before := base.Append(nil)
	base.Window(0).SACK(1).Timestamp(9).Starting(1, 2, 3).AckNow().EditSegment(func(s Segment) Segment { return s.MSN(9) })
	if !bytes.Equal(before, base.Append(nil)) {
		t.Error("a modifier changed its receiver")
	}
}

func TestEveryPacketPrefixIsParsed(t *testing.T) {
	for _, g := range goldenPackets {
		b := unhex(t, g.hex)
		for n := range b {
			got := ParsePacket(b[:n])
			if len(got.Odd) == 0 || got.String() == "" {
				t.Errorf("%s: %d of %d octets have no oddity", g.id, n, len(b))
			}
		}
	}
}

func FuzzPacket(f *testing.F) {
	for _, g := range goldenPackets {
		f.Add(unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := ParsePacket(b)
		_ = got.String()
		if len(b) < 20 {
			if len(got.Odd) == 0 {
				t.Fatalf("%x has no oddity", b)
			}
			return
		}
		if again := got.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x\nappended again %x", b, again)
		}
		if d := got.Packet.Diff(got); len(d) != 0 {
			t.Fatalf("%v differs from itself: %v", got, d)
		}
	})
}
