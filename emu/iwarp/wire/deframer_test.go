package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// framings are all combinations of options.
var framings = []Framing{{}, {CRC: true}, {Markers: true}, {Markers: true, CRC: true}}

// Figures 5 and 6 of RFC 5044: an FPDU at the start of a stream, and one with a marker in it, at
// offset 0x1ec of the same stream.
const (
	rfcFirst  = "00000000002a41430000000000000000000000010000000000000000000000000000000000000000000000000000000052239983"
	rfcSecond = "002a4143000000000000000000000002000000000000001400000000000000000000000000000000000000000000000084925898"
)

func sendOf(msn MSN, n int) []byte {
	h := untagged(OpSend, QueueSend, msn)
	return append(h.Append(nil), make([]byte, n)...)
}

func TestFramingMatchesRFCFigures(t *testing.T) {
	all := Framing{Markers: true, CRC: true}
	for _, v := range []struct {
		bytes   string
		at      uint64
		msn     MSN
		markers int
	}{{rfcFirst, 0, 1, 1}, {rfcSecond, 0x1ec, 2, 1}} {
		golden := fromHex(t, v.bytes)
		f, rest, ok := NewDeframerAt(all, v.at).Next(golden)
		if !ok || len(rest) != 0 || f.CRCStatus != CRCGood || f.MarkerMismatch || f.Markers != v.markers || f.WireLen != len(golden) || f.Offset != v.at {
			t.Fatalf("at %#x: %+v, %v, %d octets left", v.at, f, ok, len(rest))
		}
		if want := sendOf(v.msn, 24); !bytes.Equal(f.ULPDU, want) {
			t.Errorf("at %#x:\n got %x\nwant %x", v.at, f.ULPDU, want)
		}
		framer := Framer{framing: all, offset: v.at}
		if n := framer.Len(len(f.ULPDU)); n != len(golden) {
			t.Errorf("at %#x: Len = %d, want %d", v.at, n, len(golden))
		}
		if b := framer.Append(nil, sendOf(v.msn, 24)); !bytes.Equal(b, golden) {
			t.Errorf("at %#x framed:\n got %x\nwant %x", v.at, b, golden)
		}
	}
}

// A marker between pad and CRC belongs to the FPDU, a marker after the CRC to the next one. The
// CRC of that FPDU covers it.
func TestMarkersAtFPDUBoundaries(t *testing.T) {
	all := Framing{Markers: true, CRC: true}
	framer := NewFramer(all)
	b := framer.Append(nil, sendOf(1, 488))
	if want := fromHex(t, "000001fc38cf64e8"); len(b) != 520 || !bytes.HasSuffix(b, want) {
		t.Errorf("marker before the CRC: %d octets that end in %x; want 520 and %x", len(b), b[len(b)-8:], want)
	}
	framer = NewFramer(all)
	b = framer.Append(nil, sendOf(1, 484))
	if want := fromHex(t, "a09bb55b"); len(b) != 512 || !bytes.HasSuffix(b, want) {
		t.Errorf("no marker after the CRC: %d octets that end in %x; want 512 and %x", len(b), b[len(b)-4:], want)
	}
	next := fromHex(t, "00000000002a414300000000000000000000000200000000000000000000000000000000000000000000000000000000cc08199e")
	if got := framer.Append(nil, sendOf(2, 24)); !bytes.Equal(got, next) {
		t.Errorf("marker between FPDUs:\n got %x\nwant %x", got, next)
	}
	d := NewDeframer(all)
	for i, want := range [][]byte{sendOf(1, 484), sendOf(2, 24)} {
		f, rest, ok := d.Next(append(b, next...))
		if !ok || f.CRCStatus != CRCGood || f.MarkerMismatch || !bytes.Equal(f.ULPDU, want) {
			t.Fatalf("FPDU %d: %+v", i, f)
		}
		b, next = rest, nil
	}
}

// ulpdu returns a ULPDU of n octets, different for each seed.
func ulpdu(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// stream frames ULPDUs of the given lengths, in two parts each.
func stream(framing Framing, lengths []int) (b []byte, sent [][]byte) {
	framer := NewFramer(framing)
	for i, n := range lengths {
		u := ulpdu(uint64(i), n)
		want := len(b) + framer.Len(n)
		b = framer.Append(b, u[:n/3], u[n/3:])
		if len(b) != want || framer.At() != uint64(want) {
			panic("Len is not the length of what Append appends")
		}
		sent = append(sent, u)
	}
	return b, sent
}

// deframe deframes b in pieces of cut() octets and compares the ULPDUs with those sent.
func deframe(t *testing.T, framing Framing, b []byte, sent [][]byte, cut func() int) {
	t.Helper()
	d, i := NewDeframer(framing), 0
	again := NewFramer(framing)
	at := uint64(0)
	for len(b) > 0 {
		n := min(max(cut(), 1), len(b))
		piece := bytes.Clone(b[:n])
		for len(piece) > 0 {
			f, rest, ok := d.Next(piece)
			if !ok {
				if len(rest) != 0 {
					t.Fatalf("FPDU %d is incomplete, but %d octets are left", i, len(rest))
				}
				break
			}
			if i == len(sent) {
				t.Fatalf("more FPDUs than were sent: %+v", f)
			}
			if !bytes.Equal(f.ULPDU, sent[i]) || f.Length != len(sent[i]) {
				t.Fatalf("FPDU %d of %d octets differs", i, len(sent[i]))
			}
			if want := map[bool]CRCStatus{true: CRCGood, false: CRCOff}[framing.CRC]; f.CRCStatus != want || f.MarkerMismatch {
				t.Fatalf("FPDU %d: check %v, marker fault %v", i, f.CRCStatus, f.MarkerMismatch)
			}
			if f.Offset != at || d.Pending() != 0 {
				t.Fatalf("FPDU %d at %d with %d pending, want %d and 0", i, f.Offset, d.Pending(), at)
			}
			if out := again.AppendFPDU(nil, &f); len(out) != f.WireLen {
				t.Fatalf("FPDU %d has %d octets, WireLen is %d", i, len(out), f.WireLen)
			}
			at += uint64(f.WireLen)
			piece, i = rest, i+1
		}
		clear(piece) // Next must not read consumed octets again
		b = b[n:]
	}
	if i != len(sent) || d.Pending() != 0 {
		t.Fatalf("%d FPDUs of %d, %d octets pending", i, len(sent), d.Pending())
	}
}

func TestDeframerAcceptsEverySplit(t *testing.T) {
	lengths := []int{14, 0, 1, 2, 3, 18, 484, 500, 508, 512, 1428, 46, 5, 2000}
	for _, framing := range framings {
		b, sent := stream(framing, lengths)
		for size := 1; size <= 40; size++ {
			deframe(t, framing, b, sent, func() int { return size })
		}
		for first := range b { // two pieces, cut everywhere
			cuts := 0
			deframe(t, framing, b, sent, func() int {
				if cuts++; cuts == 1 {
					return first
				}
				return len(b)
			})
		}
	}
}

func TestDeframerFindsRandomFPDUs(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		lengths := make([]int, 1+r.IntN(30))
		for i := range lengths {
			lengths[i] = r.IntN([]int{30, 600, 3000}[r.IntN(3)])
		}
		framing := framings[r.IntN(4)]
		b, sent := stream(framing, lengths)
		deframe(t, framing, b, sent, func() int { return 1 + r.IntN([]int{8, 1500, 9000}[r.IntN(3)]) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The buffer is bounded for the longest FPDU that a length field can announce.
func TestDeframerBufferIsBounded(t *testing.T) {
	for _, framing := range framings {
		b, sent := stream(framing, []int{MaxULPDU, MaxMULPDU, 14, MaxULPDU})
		deframe(t, framing, b, sent, func() int { return 1448 })
		d := NewDeframer(framing)
		for i := range b {
			d.Next(b[i : i+1])
			if len(d.buf) > MaxFPDULen {
				t.Fatalf("%+v: %d octets held", framing, len(d.buf))
			}
		}
	}
}

func TestDeframerDetectsSingleBitErrors(t *testing.T) {
	for _, framing := range []Framing{{CRC: true}, {CRC: true, Markers: true}} {
		b, _ := stream(framing, []int{600})
		lead := 0
		if framing.Markers {
			lead = MarkerLen
		}
		for i := range 8 * len(b) {
			if at := i / 8; at == lead || at == lead+1 {
				continue // the length: the FPDU ends elsewhere
			}
			bad := bytes.Clone(b)
			bad[i/8] ^= 1 << (i % 8)
			if f, _, ok := NewDeframer(framing).Next(bad); !ok || f.CRCStatus != CRCBad {
				t.Fatalf("%+v, bit %d: %v, check %v", framing, i, ok, f.CRCStatus)
			}
		}
	}
}

func TestDeframerDetectsWrongMarkers(t *testing.T) {
	framing := Framing{Markers: true}
	b, _ := stream(framing, []int{1200})
	for _, tc := range []struct {
		at    int
		xor   byte
		fault bool
	}{
		{2, 1, true}, {3, 4, true}, {3, 3, false}, {0, 0xff, false}, {1, 0xff, false}, // the one before
		{514, 1, true}, {515, 4, true}, {515, 3, false}, {512, 0xff, false}, // the first within
		{1026, 1, true}, {1027, 3, false}, // the second
		{600, 0xff, false}, // no marker
	} {
		bad := bytes.Clone(b)
		bad[tc.at] ^= tc.xor
		if f, _, ok := NewDeframer(framing).Next(bad); !ok || f.MarkerMismatch != tc.fault {
			t.Errorf("octet %d ^ %#x: %v, fault %v, want %v", tc.at, tc.xor, ok, f.MarkerMismatch, tc.fault)
		}
	}
}

// A capture may keep only the start of each packet. If it has the lengths, FPDUs are found.
func TestDeframerSkip(t *testing.T) {
	for _, framing := range framings {
		b, sent := stream(framing, []int{700, 40, 2000, 0, 900})
		for keep := range 900 {
			d, framer, i := NewDeframer(framing), NewFramer(framing), 0
			lost := false
			for rest := b; len(rest) > 0 && !lost; i++ {
				n := framer.Len(len(sent[i]))
				framer.Append(nil, sent[i])
				fpdu := rest[:n]
				rest = rest[n:]
				kept := fpdu[:min(keep, n)]
				f, _, ok := d.Next(kept)
				if !ok {
					left := 0
					if f, left, ok = d.Skip(n - len(kept)); left != 0 {
						lost = true
						break
					}
				}
				if !ok || f.Length != len(sent[i]) || !bytes.HasPrefix(sent[i], f.ULPDU) {
					t.Fatalf("%+v, %d kept, FPDU %d: %v, %+v", framing, keep, i, ok, f)
				}
				if whole := len(kept) == n; whole != (f.CRCStatus != CRCUnknown) || whole && len(f.ULPDU) != len(sent[i]) {
					t.Fatalf("%+v, %d kept, FPDU %d: check %v, %d octets", framing, keep, i, f.CRCStatus, len(f.ULPDU))
				}
				if f.MarkerMismatch {
					t.Fatalf("%+v, %d kept, FPDU %d: marker fault", framing, keep, i)
				}
			}
			need := ULPDULengthLen
			if framing.Markers {
				need += MarkerLen
			}
			if keep >= need && (lost || i != len(sent)) || keep < ULPDULengthLen && !lost {
				t.Fatalf("%+v, %d kept: lost %v after %d FPDUs", framing, keep, lost, i)
			}
		}
	}
}

func TestDeframerDoesNotAllocate(t *testing.T) {
	for _, framing := range framings {
		b, _ := stream(framing, []int{1428, 1428, 100, 14, 1428})
		d := NewDeframer(framing)
		pass := func(piece int) {
			d.offset = 0
			for rest := b; len(rest) > 0; {
				n := min(piece, len(rest))
				for p := rest[:n]; len(p) > 0; {
					var ok bool
					if _, p, ok = d.Next(p); !ok {
						break
					}
				}
				rest = rest[n:]
			}
		}
		pass(100) // lets the buffer grow
		if n := testing.AllocsPerRun(20, func() { pass(1460); pass(333); pass(len(b)) }); n != 0 {
			t.Errorf("%+v: Next allocates %v times", framing, n)
		}
	}
}

func TestMULPDUMatchesRFC(t *testing.T) {
	for _, tc := range []struct {
		emss          int
		plain, marked int
	}{
		{1448, 1442, 1430},
		{1449, 1442, 1430},
		{1451, 1442, 1430},
		{1460, 1454, 1442},
		{88, 128, 128},
		{0, 128, 128},
		{65495, 64768, 64768},
	} {
		if p, m := MULPDU(tc.emss, false), MULPDU(tc.emss, true); p != tc.plain || m != tc.marked {
			t.Errorf("EMSS %d: %d and %d with markers, want %d and %d", tc.emss, p, m, tc.plain, tc.marked)
		}
	}
	// The FPDU fits at any stream offset.
	for emss := 200; emss < 3000; emss++ {
		for at := uint64(0); at < 2*MarkerInterval; at += 4 {
			for _, markers := range []bool{false, true} {
				framer := Framer{framing: Framing{Markers: markers}, offset: at}
				if n := framer.Len(MULPDU(emss, markers)); n > emss {
					t.Fatalf("EMSS %d, markers %v, at %d: FPDU of %d octets", emss, markers, at, n)
				}
			}
		}
	}
}

func FuzzDeframer(f *testing.F) {
	for i, framing := range framings {
		b, _ := stream(framing, []int{14, 600, 3, 1428})
		f.Add(uint8(i), uint16(100), b)
	}
	f.Fuzz(func(t *testing.T, which uint8, piece uint16, b []byte) {
		framing := framings[which%4]
		// Whole and in pieces: the same FPDUs, and the same octets after framing.
		whole, cut := NewDeframer(framing), NewDeframer(framing)
		again, out := NewFramer(framing), []byte(nil)
		type found struct {
			ulpdu []byte
			f     FPDU
		}
		var want []found
		for rest := b; len(rest) > 0; {
			f, r, ok := whole.Next(rest)
			if !ok {
				break
			}
			rest = r
			want = append(want, found{bytes.Clone(f.ULPDU), f})
			start := len(out)
			out = again.AppendFPDU(out, &f)
			if !framing.Markers && !bytes.Equal(out[start:], b[f.Offset:f.Offset+uint64(f.WireLen)]) {
				t.Fatalf("FPDU at %d differs when framed again", f.Offset)
			}
		}
		if whole.offset+uint64(whole.Pending()) != uint64(len(b)) {
			t.Fatalf("at %d with %d pending of %d octets", whole.offset, whole.Pending(), len(b))
		}
		i := 0
		for rest := b; len(rest) > 0; {
			n := min(int(piece)%3000+1, len(rest))
			for p := rest[:n]; len(p) > 0; {
				f, r, ok := cut.Next(p)
				if !ok {
					break
				}
				p = r
				got := f
				got.ULPDU = nil
				w := want[i].f
				w.ULPDU = nil
				if got.Offset != w.Offset || got.CRC != w.CRC || got.CRCStatus != w.CRCStatus || got.Pad != w.Pad || got.MarkerMismatch != w.MarkerMismatch ||
					!bytes.Equal(f.ULPDU, want[i].ulpdu) {
					t.Fatalf("FPDU %d differs in pieces of %d:\n got %+v\nwant %+v", i, n, got, w)
				}
				i++
			}
			rest = rest[n:]
		}
		if i != len(want) {
			t.Fatalf("%d FPDUs in pieces, %d whole", i, len(want))
		}
	})
}
