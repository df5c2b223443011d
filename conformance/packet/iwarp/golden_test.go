package iwarp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rpingText returns the contents of a buffer of rping.
func rpingText(n int) []byte {
	b := []byte("rdma-ping-0: ")
	for c := byte('A'); len(b) < n-1; c++ {
		if c > 'z' {
			c = 'A'
		}
		b = append(b, c)
	}
	return append(b, 0)[:n]
}

// golden are FPDUs: V were sent by siw of Linux, T were accepted by siw, R are in RFC 5044, D were
// computed from the RFCs by other code.
var golden = []struct {
	id   string
	crc  bool
	hex  string
	make Segment
	text string
}{
	{
		"V3", false, "0022414300000000000000000000000100000000000055c99661b6c047d32f000000006400000000",
		Send(1, []byte("\x00\x00\x55\xc9\x96\x61\xb6\xc0\x47\xd3\x2f\x00\x00\x00\x00\x64")),
		"SEND msn 1 16 B last",
	},
	{
		"V4", false, "002e4141000000000000000100000001000000009de06c00000055e715bdd0100000006447d32f00000055c99661b6c000000000",
		ReadRequest(1, At(0x9de06c00, 0x55e715bdd010), 100, At(0x47d32f00, 0x55c99661b6c0)),
		"READ REQUEST msn 1 100 B from 0x47d32f00+0x55c99661b6c0 to 0x9de06c00+0x55e715bdd010",
	},
	{
		"V5", false, "0072c1429de06c00000055e715bdd01072646d612d70696e672d303a204142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a4142434445464748494a4b4c4d4e4f505152535455565758595a5b5c0000000000",
		ReadResponse(0x9de06c00, 0x55e715bdd010, rpingText(100)),
		"READ RESPONSE stag 0x9de06c00 to 0x55e715bdd010 100 B last",
	},
	{
		"V6", false, "0072c140f13a5300000055c99661b01072646d612d70696e672d303a204142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a4142434445464748494a4b4c4d4e4f505152535455565758595a5b5c0000000000",
		Write(0xf13a5300, 0x55c99661b010, rpingText(100)),
		"WRITE stag 0xf13a5300 to 0x55c99661b010 100 B last",
	},
	{
		"V8", false, "00144143000000000000000000000004000000003300004000000000",
		Send(4, []byte{0x33, 0}).Pad(0x00, 0x40),
		"SEND msn 4 2 B last, pad 0040",
	},
	{
		"V9", false, "0012c140971bd300000055f46aead9740200000000000000",
		Write(0x971bd300, 0x55f46aead974, []byte{2, 0, 0, 0}),
		"WRITE stag 0x971bd300 to 0x55f46aead974 4 B last",
	},
	{
		"T11", true, "0022414300000000000000000000000100000000000000000000100011223344000000142171acce",
		Send(1, []byte("\x00\x00\x00\x00\x00\x00\x10\x00\x11\x22\x33\x44\x00\x00\x00\x14")),
		"SEND msn 1 16 B last",
	},
	{
		"V12", true, "002e414100000000000000010000000100000000f6be8e0000007f7ae8002f90000000141122334400000000000010005c312ab2",
		ReadRequest(1, At(0xf6be8e00, 0x7f7ae8002f90), 20, At(0x11223344, 0x1000)),
		"READ REQUEST msn 1 20 B from 0x11223344+0x1000 to 0xf6be8e00+0x7f7ae8002f90",
	},
	{
		"T13", true, "0022c142f6be8e0000007f7ae8002f9072646d612d70696e672d303a2041424344454647a54b5d2f",
		ReadResponse(0xf6be8e00, 0x7f7ae8002f90, rpingText(100)[:20]),
		"READ RESPONSE stag 0xf6be8e00 to 0x7f7ae8002f90 20 B last",
	},
	{
		"V14", true, "00224143000000000000000000000001000000000000000000000000000000000000000084609a12",
		Op(OpSend).MSN(1).Length(16),
		"SEND msn 1 16 B last",
	},
	{
		"V15", true, "0023c14055667788000000000000200072646d612d70696e672d303a204142434445464700609a1227e9ba44",
		Write(0x55667788, 0x2000, append(rpingText(100)[:20], 0)).Pad(0x60, 0x9a, 0x12),
		"WRITE stag 0x55667788 to 0x2000 21 B last, pad 609a12",
	},
	{
		"V16", true, "000ec142aaaa555511223344556677887338d788",
		ReadResponse(0xaaaa5555, 0x1122334455667788, nil),
		"READ RESPONSE stag 0xaaaa5555 to 0x1122334455667788 0 B last",
	},
	{
		"T17", false, "000ec14000000001000000000000000000000000",
		Write(1, 0, nil),
		"WRITE stag 0x1 to 0x0 0 B last",
	},
	{
		"T18", true, "002e414100000000000000010000000100000000aaaa5555112233445566778800000000deadbeef0000000000000077d4fa74d7",
		ReadRequest(1, At(0xaaaa5555, 0x1122334455667788), 0, At(0xdeadbeef, 0x77)),
		"READ REQUEST msn 1 0 B from 0xdeadbeef+0x77 to 0xaaaa5555+0x1122334455667788",
	},
	{
		"D1", true, "0016414700000000000000020000000100000000200200007fe42585",
		Terminate(MPACRC),
		"TERMINATE mpa crc",
	},
	{
		"D2", true, "00264147000000000000000200000001000000001100c000001ec140abcdef0000000000000000004e8b3050",
		Terminate(DDPTaggedInvalidSTag).About(Op(OpWrite).STag(0xabcdef00).TO(0).Length(16)),
		"TERMINATE ddp/tagged invalid stag about WRITE stag 0xabcdef00 to 0x0 last",
	},
	{
		"D3", true, "00464147000000000000000200000001000000000100e000002e41410000000000000001000000010000000000000007000000000000010000000010abcdef000000000000000000d324d859",
		Terminate(RDMAPInvalidSTag).About(ReadRequest(1, At(7, 0x100), 16, At(0xabcdef00, 0))),
		"TERMINATE rdmap/protection invalid stag about READ REQUEST msn 1 16 B from 0xabcdef00+0x0 to 0x7+0x100",
	},
	{
		"D4", true, "001a414800000000000000000000000100000000010203040506070806c22805",
		Immediate(1, 0x0102030405060708),
		"IMMEDIATE msn 1 0x102030405060708",
	},
	{
		"D5", true, "0046414a000000000000000100000001000000000000000000000011a1b2c3000000000000001000000000000000000500000000000000000000000000000000ffffffffffffffffd9bb2792",
		FetchAdd(1, 0x11, At(0xa1b2c300, 0x1000), 5),
		"ATOMIC REQUEST msn 1 id 0x11 add 0x5 at 0xa1b2c300+0x1000",
	},
	{
		"D5b", true, "0046414a000000000000000100000002000000000000000200000012a1b2c3000000000000001008000000000000deadffffffffffffffff000000000000beefffffffffffffffff158daa49",
		CompareSwap(2, 0x12, At(0xa1b2c300, 0x1008), 0xbeef, 0xdead),
		"ATOMIC REQUEST msn 2 id 0x12 if 0xbeef swap in 0xdead at 0xa1b2c300+0x1008",
	},
	{
		"D5c", true, "001e414b0000000000000003000000010000000000000011000000000000002ac093aabd",
		AtomicResponse(1, 0x11, 42),
		"ATOMIC RESPONSE msn 1 id 0x11 was 0x2a",
	},
}

func TestGoldenFramesAreAppended(t *testing.T) {
	for _, g := range golden {
		f := Framer{CRC: g.crc}
		if got, want := f.Append(nil, g.make), unhex(t, g.hex); !bytes.Equal(got, want) {
			t.Errorf("%s: built %x\n want %x", g.id, got, want)
		}
	}
}

func TestGoldenFramesAreParsed(t *testing.T) {
	for _, g := range golden {
		d := Deframer{}
		d.Feed(unhex(t, g.hex))
		got, ok := d.Next()
		if !ok || len(d.Pending()) != 0 {
			t.Errorf("%s: not one FPDU", g.id)
			continue
		}
		if diff := Diff(g.make, got); len(diff) != 0 {
			t.Errorf("%s: %v", g.id, diff)
		}
		if s := got.String(); s != g.text {
			t.Errorf("%s: %q, want %q", g.id, s, g.text)
		}
		want := CRCZero
		if g.crc {
			want = CRCCorrect
		}
		if state := *got.MPA.CRCStatus; state != want {
			t.Errorf("%s: CRC is %v, want %v", g.id, state, want)
		}
		dirty := strings.Contains(g.text, "pad")
		if odd := len(oddOf(got)) != 0; odd != dirty {
			t.Errorf("%s: odd: %q", g.id, oddOf(got))
		}
		// The parsed segment with its pad gives the same octets.
		f := Framer{CRC: g.crc}
		again := f.Append(nil, got.Pad(got.MPA.Pad...))
		if !bytes.Equal(again, got.Raw) {
			t.Errorf("%s: parsed and appended: %x", g.id, again)
		}
	}
}

// siw sends Terminates with its own order of bit fields.
func TestTerminatesOfSiwAreParsed(t *testing.T) {
	for _, tc := range []struct {
		id, hex   string
		beforeEnd bool // of start-up
		cause     Cause
		about     string
	}{
		{"V19", "00164147000000000000000200000001000000000202000075d367ed", false, MPACRC, ""},
		{"V20", "001641470000000000000002000000010000000021060000ddeabec6", false, DDPUntaggedInvalidVersion, ""},
		{"V21", "0016414700000000000000020000000100000000200600006540fb1b", false, RDMAPUnexpectedOpcode, ""},
		{"V22", "002a414700000000000000020000000100000000210103000010414300000000000000010000000100000000b763a245", false, DDPUntaggedInvalidQN, "SEND msn 1 last qn 1"},
		{"V23", "0026414700000000000000020000000100000000110003000010c140abcdef0000000000000000005bc2725e", false, DDPTaggedInvalidSTag, "WRITE stag 0xabcdef00 to 0x0 last"},
		{"V24", "004641470000000000000002000000010000000010000700000041410000000000000001000000100000000000000007000000000000010000000010abcdef0000000000000000000343ae4c", false, RDMAPInvalidSTag, "READ REQUEST msn 16 16 B from 0xabcdef00+0x0 to 0x7+0x100"},
		{"V25", "002a4147000000000000000200000001000000002007030000004141000000000000000100000001000000000dadc3cb", false, RDMAPStreamCatastrophic, "READ REQUEST msn 1"},
		{"V26", "00164147000000000000000200000001000000000206000000000000", true, MPAInsufficientIRD, ""},
	} {
		var d Deframer
		d.Feed(unhex(t, tc.hex))
		got, ok := d.Next()
		if !ok {
			t.Fatalf("%s: not one FPDU", tc.id)
		}
		siw, ok := got.InSiwBitOrder(!tc.beforeEnd)
		if !ok {
			t.Errorf("%s: %v is not recognized as siw's order", tc.id, got)
			continue
		}
		if c := *siw.Terminate.Cause; c != tc.cause {
			t.Errorf("%s: %v, want %v", tc.id, c, tc.cause)
		}
		about := ""
		if wrong, ok := siw.Terminate.QuotedSegment(); ok {
			about = wrong.String()
		}
		if about != tc.about {
			t.Errorf("%s: about %q, want %q", tc.id, about, tc.about)
		}
	}
	for _, g := range golden {
		if s, ok := ParseSegment(g.make.Append(nil)).InSiwBitOrder(true); ok {
			t.Errorf("%s has the order of the RFC, but is parsed as siw's: %v", g.id, s)
		}
	}
}

func TestGoldenStartupFrames(t *testing.T) {
	for _, g := range []struct {
		id, hex string
		make    StartupFrame
		text    string
	}{
		{"V1", "4d504120494420526571204672616d651002000400010001", Request().CRC(false).Depths(1, 1), "MPA REQUEST rev 2 S ird 1 ord 1"},
		{"V2", "4d504120494420526570204672616d651002000400010001", Reply().CRC(false).Depths(1, 1), "MPA REPLY rev 2 S ird 1 ord 1"},
		{"V7", "4d504120494420526571204672616d651002000400800080", Request().CRC(false).Depths(128, 128), "MPA REQUEST rev 2 S ird 128 ord 128"},
		{"V10", "4d504120494420526570204672616d655002000400100010", Reply().Depths(16, 16), "MPA REPLY rev 2 C S ird 16 ord 16"},
		{"V27", "4d504120494420526570204672616d653002000400000000", Reply().CRC(false).Reject(true).Depths(0, 0), "MPA REPLY rev 2 S rejected ird 0 ord 0"},
		{"V28", "4d504120494420526570204672616d651002000480048004", Reply().CRC(false).Depths(4, 4).PeerToPeer(RTRWrite), "MPA REPLY rev 2 S ird 4 ord 4 p2p rtr-write"},
		{"key", "4d504120494420526573204672616d6540010000", StartupFrame{}.WithKey("MPA ID Res Frame"), `MPA KEY "MPA ID Res Frame" rev 1 C`},
		{"bits", "4d504120494420526571204672616d65c80100026869", Request().Markers(true).ReservedBits(8).Private([]byte("hi")), "MPA REQUEST rev 1 M C reserved 0x8 2 B"},
	} {
		want := unhex(t, g.hex)
		if b := g.make.Append(nil); !bytes.Equal(b, want) {
			t.Errorf("%s: built %x\n want %x", g.id, b, want)
		}
		got, rest, ok := ParseStartupFrame(append(want, 0xee))
		if !ok || !bytes.Equal(rest, []byte{0xee}) {
			t.Errorf("%s: rest %x, complete %t", g.id, rest, ok)
		}
		if d := g.make.Diff(got); len(d) != 0 {
			t.Errorf("%s: %v", g.id, d)
		}
		if again := got.Append(nil); !bytes.Equal(again, want) {
			t.Errorf("%s: parsed and appended: %x", g.id, again)
		}
		if s := got.String(); s != g.text {
			t.Errorf("%s: %q, want %q", g.id, s, g.text)
		}
		for n := range want {
			if _, _, ok := ParseStartupFrame(want[:n]); ok {
				t.Errorf("%s: %d of %d octets are a frame", g.id, n, len(want))
			}
		}
	}
}
