package wire

import (
	"bytes"
	"reflect"
	"testing"
)

// header is the interface of all headers.
type header interface {
	appendTo(b []byte) []byte
	parse(b []byte) (rest []byte)
}

func (h *BTH) appendTo(b []byte) []byte { return h.Append(b) }
func (h *BTH) parse(b []byte) (rest []byte) {
	rest, _ = h.Parse(b)
	return rest
}

// headers lists every header with bytes of kernel packets or, if the kernel sends none, computed by
// hand. Each header with reserved bits has some set.
var headers = []struct {
	name  string
	len   int
	bytes string
	want  header
	fresh func() header
}{
	{
		"BTH of a READ_REQUEST", BTHLen, "0c00ffff0000001f80458185",
		&BTH{Opcode: 0x0c, PKey: 0xffff, DestQP: 0x1f, AckReq: true, PSN: 0x458185}, func() header { return new(BTH) },
	},
	{
		"BTH with SE and pad 2", BTHLen, "05a0ffff00100004800001f9",
		&BTH{Opcode: 0x05, Solicited: true, PadCount: 2, PKey: 0xffff, DestQP: 0x100004, AckReq: true, PSN: 505},
		func() header { return new(BTH) },
	},
	{
		"BTH with all the rest", BTHLen, "045f7fffff2345677f89abcd",
		&BTH{
			Opcode: 0x04, MigReq: true, PadCount: 1, TVer: 15, PKey: 0x7fff, FECN: true, BECN: true, Reserved6: 0x3f,
			DestQP: 0x234567, Reserved7: 0x7f, PSN: 0x89abcd,
		}, func() header { return new(BTH) },
	},
	{
		"BTH with FECN only", BTHLen, "04000000" + "80000000" + "00000000",
		&BTH{Opcode: 0x04, FECN: true}, func() header { return new(BTH) },
	},
	{"RDETH", RDETHLen, "a5123456", &RDETH{Reserved: 0xa5, EEContext: 0x123456}, func() header { return new(RDETH) }},
	{"XRCETH", XRCETHLen, "5a654321", &XRCETH{Reserved: 0x5a, SRQN: 0x654321}, func() header { return new(XRCETH) }},
	{"DETH", DETHLen, "0123456700000020", &DETH{QKey: 0x01234567, SrcQP: 0x20}, func() header { return new(DETH) }},
	{
		"DETH with reserved byte", DETHLen, "80010000ff000001",
		&DETH{QKey: 0x80010000, Reserved: 0xff, SrcQP: 1}, func() header { return new(DETH) },
	},
	{"FETH", FETHLen, "00000012", &FETH{Placement: 2, Selectivity: 1}, func() header { return new(FETH) }},
	{
		"FETH with reserved bits", FETHLen, "80000041",
		&FETH{Placement: 1, Selectivity: 0, Reserved: 1<<25 | 1}, func() header { return new(FETH) },
	},
	{
		"RETH", RETHLen, "00005556419140000000090b00000008",
		&RETH{VA: 0x555641914000, RKey: 0x90b, DMALen: 8}, func() header { return new(RETH) },
	},
	{
		"AtomicETH", AtomicETHLen, "000056537dc4810000000cbe000000000000000100000005b87807f7",
		&AtomicETH{VA: 0x56537dc48100, RKey: 0xcbe, SwapAdd: 1, Compare: 0x5b87807f7}, func() header { return new(AtomicETH) },
	},
	{"AETH", AETHLen, "2c000002", &AETH{Syndrome: RNRNak(12), MSN: 2}, func() header { return new(AETH) }},
	{
		"AtomicAckETH", AtomicAckETHLen, "7189d4f794e7db39",
		&AtomicAckETH{Original: 0x7189d4f794e7db39}, func() header { return new(AtomicAckETH) },
	},
	{"ImmDt", ImmDtLen, "01020304", immDt(0x01020304), func() header { return new(ImmDt) }},
	{"IETH", IETHLen, "99aabbcc", &IETH{RKey: 0x99aabbcc}, func() header { return new(IETH) }},
}

func immDt(v ImmDt) *ImmDt { return &v }

func TestHeadersParseAndAppendGoldenBytes(t *testing.T) {
	for _, h := range headers {
		t.Run(h.name, func(t *testing.T) {
			golden := fromHex(t, h.bytes)
			if len(golden) != h.len {
				t.Fatalf("golden bytes are %d long, want %d", len(golden), h.len)
			}
			got, tail := h.fresh(), []byte("tail")
			rest := got.parse(append(golden, tail...))
			if !bytes.Equal(rest, tail) {
				t.Errorf("rest = %q, want %q", rest, tail)
			}
			if !reflect.DeepEqual(got, h.want) {
				t.Errorf("Parse:\n got %+v\nwant %+v", got, h.want)
			}
			if b := h.want.appendTo([]byte("head")); !bytes.Equal(b, append([]byte("head"), golden...)) {
				t.Errorf("Append = %x, want %q and %x", b, "head", golden)
			}
		})
	}
}

// Each single bit of a header survives a round trip.
func TestHeadersKeepEveryBit(t *testing.T) {
	for _, h := range headers {
		for bit := range h.len * 8 {
			b := make([]byte, h.len)
			b[bit/8] = 0x80 >> (bit % 8)
			got := h.fresh()
			got.parse(b)
			if again := got.appendTo(nil); !bytes.Equal(again, b) {
				t.Errorf("%s: bit %d: %x became %x", h.name, bit, b, again)
			}
		}
	}
}

// A Go field that is wider than on the wire must not change the next field.
func TestHeadersDropBitsThatDoNotFit(t *testing.T) {
	for _, tc := range []struct {
		h    header
		want string
	}{
		{
			&BTH{PadCount: 0xfc, TVer: 0xf0, Reserved6: 0xc0, DestQP: 0xff000000, Reserved7: 0x80, PSN: 0xff000000},
			"000000000000000000000000",
		},
		{&AETH{MSN: 0xff000000}, "00000000"},
		{&DETH{SrcQP: 0xff000000}, "0000000000000000"},
		{&XRCETH{SRQN: 0xff000000}, "00000000"},
		{&RDETH{EEContext: 0xff000000}, "00000000"},
		{&FETH{Placement: 0xf0, Selectivity: 0xfc, Reserved: 0xfc000000}, "00000000"},
	} {
		if got := tc.h.appendTo(nil); !bytes.Equal(got, fromHex(t, tc.want)) {
			t.Errorf("%+v: Append = %x, want %s", tc.h, got, tc.want)
		}
	}
}

func TestHeadersDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, MaxHeaderLen)
	for _, h := range headers {
		golden, got := fromHex(t, h.bytes), h.fresh()
		if n := testing.AllocsPerRun(100, func() { buf = h.want.appendTo(buf[:0]) }); n != 0 {
			t.Errorf("%s: Append allocates %v times", h.name, n)
		}
		if n := testing.AllocsPerRun(100, func() { got.parse(golden) }); n != 0 {
			t.Errorf("%s: Parse allocates %v times", h.name, n)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	for i, h := range headers {
		f.Add(uint8(i), h.want.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		h := headers[int(which)%len(headers)]
		if len(b) < h.len {
			return
		}
		got := h.fresh()
		rest := got.parse(b)
		if again := append(got.appendTo(nil), rest...); !bytes.Equal(again, b) {
			t.Fatalf("%s: Parse then Append: %x -> %x", h.name, b, again)
		}
	})
}
