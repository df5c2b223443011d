package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
	return b
}

// goldens are packets that were encoded by hand from the layouts, with CRCs of another
// implementation. The appendix of the specification lists the same.
var goldens = []struct {
	id, name string
	bytes    string
	want     Packet
}{
	{
		"G1", "UD Send of five octets",
		"11000000 00000012 00000011 0badcafe 4143 00000000 00000000 00000001 00000000 68656c6c6f e6b8cb00",
		Packet{
			Header: NewHeader(KindUD, 0x12, 0x11, 0x0badcafe),
			ULPDU:  []byte("\x41\x43\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00hello"),
		},
	},
	{
		"G2", "UD Write of no octets to a group",
		"11000000 00ffffff 00000011 00000000 c140 00000001 0000000000000000 936b9dfd",
		Packet{
			Header: NewHeader(KindUD, MulticastQP, 0x11, 0),
			ULPDU:  []byte("\xc1\x40\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"),
		},
	},
	{
		"G3", "RD start without proof",
		"12b00000 00000012 00000011 0badcafe 5eed0001 00000000 000003e8 0000000000000000 2badbabe 0ddba115 4143 00000000 00000000 00000001 00000000 68656c6c6f aacc7619",
		Packet{
			Header: rdHeader(FlagData | FlagStart | FlagAckNow),
			Data:   Data{Epoch: 0x5eed0001, Timestamp: 1000, Incarnation: 0x2badbabe, SourceKey: 0x0ddba115},
			ULPDU:  []byte("\x41\x43\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00hello"),
		},
	},
	{
		"G4", "Challenge to it",
		"13000000 00000011 00000012 0badcafe 5eed0001 1c0ffee1 0123456789abcdef abfbafd7",
		Packet{
			Header:    NewHeader(KindChallenge, 0x11, 0x12, 0x0badcafe),
			Challenge: Challenge{Epoch: 0x5eed0001, Incarnation: 0x1c0ffee1, Cookie: 0x0123456789abcdef},
		},
	},
	{
		"G5", "RD acknowledgement with one SACK word",
		"12440000 00000011 00000012 0badcafe 5eed0001 00000007 000003e9 0100 01 00 00000005 c0801f43",
		Packet{
			Header: Header{Version: 1, Kind: KindRD, Flags: FlagAck | FlagDuplicate, DstQP: 0x11, SrcQP: 0x12, Key: 0x0badcafe},
			Ack:    Ack{Epoch: 0x5eed0001, Next: 7, Echo: 1001, Window: 256, Words: 1, Sack: [MaxSackWords]uint32{5}},
		},
	},
	{
		"G6", "RD data with an acknowledgement from a busy receiver",
		"12c80000 00000012 00000011 0badcafe a0000002 ffffffff 000003e9 0000 00 00 5eed0001 00000008 000003ea c140 00000001 0000000000000000 0d9e80e7",
		Packet{
			Header: rdHeader(FlagData | FlagAck | FlagMarked),
			Ack:    Ack{Epoch: 0xa0000002, Next: 0xffffffff, Echo: 1001},
			Data:   Data{Epoch: 0x5eed0001, Seq: 8, Timestamp: 1002},
			ULPDU:  []byte("\xc1\x40\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"),
		},
	},
	{
		"G7", "Refusal of an unknown flow",
		"14000000 00000011 00000012 0badcafe 5eed0001 01 000000 3d920d94",
		Packet{
			Header:  NewHeader(KindRefusal, 0x11, 0x12, 0x0badcafe),
			Refusal: Refusal{Epoch: 0x5eed0001, Reason: ReasonUnknown},
		},
	},
	{
		"G8", "UD Write-Record, the second half of eight octets",
		"11000000 00000012 00000011 0badcafe c14f a1b2c300 0000000000001004 00000009 00000004 00000008 cafef00d 05060708 118e1594",
		Packet{
			Header: NewHeader(KindUD, 0x12, 0x11, 0x0badcafe),
			ULPDU: []byte("\xc1\x4f\xa1\xb2\xc3\x00\x00\x00\x00\x00\x00\x00\x10\x04" +
				"\x00\x00\x00\x09\x00\x00\x00\x04\x00\x00\x00\x08\xca\xfe\xf0\x0d\x05\x06\x07\x08"),
		},
	},
	{
		"G9", "error message of a QP for a Send that was too long (1/2/05, M D, MSN 1)",
		"11000000 00000011 00000012 0badcafe 4147 00000000 00000002 00000001 00000000 1205c000 0017 4143 00000000 00000000 00000001 00000000 78747369",
		Packet{
			Header: NewHeader(KindUD, 0x11, 0x12, 0x0badcafe),
			ULPDU: []byte("\x41\x47\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00\x12\x05\xc0\x00\x00\x17" +
				"\x41\x43\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"),
		},
	},
	{
		"", "reserved bits and octets",
		"12c30abc 00000012 00000011 0badcafe 00000001 00000002 00000003 0004 00 aa 00000005 00000006 00000007 f8f83a5c",
		Packet{
			Header: Header{Version: 1, Kind: KindRD, Flags: 0xc3, Reserved: 0x0abc, DstQP: 0x12, SrcQP: 0x11, Key: 0x0badcafe},
			Ack:    Ack{Epoch: 1, Next: 2, Echo: 3, Window: 4, Reserved: 0xaa},
			Data:   Data{Epoch: 5, Seq: 6, Timestamp: 7},
			ULPDU:  []byte{},
		},
	},
}

func rdHeader(f Flags) Header {
	h := NewHeader(KindRD, 0x12, 0x11, 0x0badcafe)
	h.Flags = f
	return h
}

func TestGoldenPackets(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			golden := fromHex(t, g.bytes)
			if !CheckCRC(golden) {
				t.Errorf("the CRC of %x is wrong: want it to end in %x", golden, AppendCRC(golden[:len(golden)-CRCLen:len(golden)-CRCLen], 0)[len(golden)-CRCLen:])
			}
			var got Packet
			must.Do(t, got.Parse(golden))
			if !reflect.DeepEqual(got, g.want) {
				t.Errorf("Parse:\n got %+v\nwant %+v", got, g.want)
			}
			if b := g.want.Append([]byte("before")); !bytes.Equal(b, append([]byte("before"), golden...)) {
				t.Errorf("Append:\n got %x\nwant %x after \"before\"", b, golden)
			}
		})
	}
}

// The appendix of the specification has the same packets as goldens.
func TestSpecificationHasGoldenPackets(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/spec/datagram-iwarp.md"))(t)
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (G\\d+) \\| .*? \\| `([0-9a-f ]+)` \\|$").FindAllSubmatch(text, -1) {
		listed[string(m[1])] = string(m[2])
	}
	for _, g := range goldens {
		if g.id == "" {
			continue
		}
		if listed[g.id] != g.bytes {
			t.Errorf("%s, %s:\nspecification %q\nhere          %q", g.id, g.name, listed[g.id], g.bytes)
		}
		delete(listed, g.id)
	}
	for id := range listed {
		t.Errorf("the specification lists %s, which is not tested", id)
	}
}

// A prefix of a golden packet is too short for its headers, or a packet with less payload.
func TestParseRejectsShortHeaders(t *testing.T) {
	for _, g := range goldens {
		golden := fromHex(t, g.bytes)
		headers := len(g.want.AppendHeaders(nil))
		for n := range golden {
			var p Packet
			err := p.Parse(golden[:n])
			if n < headers+CRCLen != errors.Is(err, ErrShort) {
				t.Errorf("%s: Parse(%d of %d octets, headers of %d) = %v", g.name, n, len(golden), headers, err)
			}
		}
	}
}

func TestCheckCRCDetectsSingleBitErrors(t *testing.T) {
	for _, g := range goldens {
		golden := fromHex(t, g.bytes)
		for i := range 8 * len(golden) {
			golden[i/8] ^= 1 << (i % 8)
			if CheckCRC(golden) {
				t.Fatalf("%s: the flip of bit %d is not detected", g.name, i)
			}
			golden[i/8] ^= 1 << (i % 8)
		}
	}
	if CheckCRC(nil) || CheckCRC([]byte{1, 2, 3}) {
		t.Error("CheckCRC accepts less than a CRC")
	}
}

func TestWriteRecordRoundTrip(t *testing.T) {
	want, golden := WriteRecord{MSN: 9, MO: 4, Length: 8, Imm: 0xcafef00d}, fromHex(t, "00000009 00000004 00000008 cafef00d")
	if b := want.Append(nil); !bytes.Equal(b, golden) {
		t.Errorf("Append = %x, want %x", b, golden)
	}
	var got WriteRecord
	if rest, err := got.Parse(append(golden, 7)); err != nil || got != want || !bytes.Equal(rest, []byte{7}) {
		t.Errorf("Parse = %+v, %x, %v", got, rest, err)
	}
	for n := range golden {
		must.Fail(t, fmt.Sprintf("Parse(%d octets)", n), must.Err(got.Parse(golden[:n])), ErrShort)
	}
}
