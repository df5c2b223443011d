package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// one deframes a single FPDU without markers.
func one(t testing.TB, framing Framing, b []byte) FPDU {
	t.Helper()
	f, rest, ok := NewDeframer(framing).Next(b)
	if !ok || len(rest) != 0 {
		t.Fatalf("Next = %v with %d octets left; want one whole FPDU", ok, len(rest))
	}
	return f
}

func TestGoldenFPDUs(t *testing.T) {
	for _, v := range fpdus {
		t.Run(v.name, func(t *testing.T) {
			golden := fromHex(t, v.bytes)
			f := one(t, Framing{CRC: v.crc}, golden)
			if want := map[bool]CRCStatus{true: CRCGood, false: CRCOff}[v.crc]; f.CRCStatus != want {
				t.Errorf("Check = %v, want %v", f.CRCStatus, want)
			}
			if f.Pad != v.pad {
				t.Errorf("Pad = %x, want %x", f.Pad, v.pad)
			}
			var got Segment
			must.Do(t, got.Parse(f.ULPDU))
			want := v.want
			want.Payload = fromHex(t, v.load)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("Parse:\n got %+v\nwant %+v", got, want)
			}
			if !got.Control.Consistent() {
				t.Error("Consistent is false")
			}

			// The segment of the table gives the same octets.
			f.ULPDU = want.Append(nil)
			framer := NewFramer(Framing{CRC: v.crc})
			if b := framer.AppendFPDU(nil, &f); !bytes.Equal(b, golden) {
				t.Errorf("built from the table:\n got %x\nwant %x", b, golden)
			}
			if v.pad == ([3]byte{}) {
				framer := NewFramer(Framing{CRC: v.crc})
				if b := framer.Append(nil, want.AppendHeaders(nil), want.Payload); !bytes.Equal(b, golden) {
					t.Errorf("framed again:\n got %x\nwant %x", b, golden)
				}
			}
		})
	}
}

func TestSegmentsRejectStrictPrefixesOfHeaders(t *testing.T) {
	for _, v := range fpdus {
		b := v.want.AppendHeaders(nil)
		for n := range b {
			must.Fail(t, fmt.Sprintf("%s: Parse(%d of %d octets)", v.name, n, len(b)), new(Segment).Parse(b[:n]), ErrShort)
		}
		if len(b) > MaxHeaderLen {
			t.Errorf("%s: header of %d octets exceeds MaxHeaderLen", v.name, len(b))
		}
	}
}

// If opcode and T bit disagree, the DDP header follows the T bit and there is no RDMAP header.
func TestSegmentWithWrongTBitHasNoRDMAPHeader(t *testing.T) {
	for op := range Opcode(16) {
		info, known := op.Info()
		c := NewControl(op, true)
		c.Tagged = !c.Tagged
		b := (&Segment{Header: Header{Control: c}}).Append(nil)
		b = append(b, "payload"...)
		var got Segment
		if err := got.Parse(b); err != nil {
			t.Errorf("%v: %v", op, err)
			continue
		}
		if info.Header != 0 && string(got.Payload) != "payload" {
			t.Errorf("%v, tagged: payload %q", op, got.Payload)
		}
		if got.Control.Consistent() {
			t.Errorf("%v (known: %v): Consistent is true", op, known)
		}
	}
}

func TestSegmentsDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 128)
	for _, v := range fpdus {
		ulpdu := fromHex(t, v.bytes)[ULPDULengthLen:]
		var s Segment
		if n := testing.AllocsPerRun(100, func() {
			if s.Parse(ulpdu) != nil || s.Parse(ulpdu[:1]) == nil {
				t.Fatal("Parse failed, or accepted one octet")
			}
			buf = s.AppendHeaders(buf[:0])
		}); n != 0 {
			t.Errorf("%s: %v allocations", v.name, n)
		}
	}
}

func TestOpcodesMatchRFCs(t *testing.T) {
	for op, want := range map[Opcode]string{ // the first two octets of a last segment
		OpWrite: "c140", OpReadRequest: "4141", OpReadResponse: "c142", OpSend: "4143", OpSendInv: "4144", OpSendSE: "4145",
		OpSendSEInv: "4146", OpTerminate: "4147", OpImmediate: "4148", OpImmediateSE: "4149", OpAtomicRequest: "414a", OpAtomicResponse: "414b",
	} {
		if got := NewControl(op, true).Append(nil); !bytes.Equal(got, fromHex(t, want)) {
			t.Errorf("%v: %x, want %s", op, got, want)
		}
	}
	for op := Opcode(12); op < 16; op++ {
		if _, ok := op.Info(); ok {
			t.Errorf("opcode %d has a name: %v", op, op)
		}
	}
	if got := Opcode(13).String(); got != "opcode 13" {
		t.Errorf("unassigned opcode prints as %q", got)
	}
}

func FuzzSegment(f *testing.F) {
	for _, v := range fpdus {
		s := v.want
		s.Payload = fromHex(f, v.load)
		f.Add(s.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Segment
		if err := s.Parse(b); err != nil {
			if !errors.Is(err, ErrShort) {
				t.Fatalf("Parse(%x) = %v", b, err)
			}
			return
		}
		if again := s.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("Parse then Append: %x -> %x", b, again)
		}
	})
}
