package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// header is the interface of all headers.
type header interface {
	Append(b []byte) []byte
	Parse(b []byte) (rest []byte, err error)
}

// headers lists every header with bytes computed by hand from the layout, or
// sent by siw. Reserved bits are set somewhere in each header that has them.
var headers = []struct {
	name  string
	bytes string
	want  header
	fresh func() header
}{
	{
		"MPA request", "4d504120494420526571204672616d651002000400010001",
		&StartFrame{Enhanced: true, Revision: 2, PrivateData: []byte{0, 1, 0, 1}}, func() header { return new(StartFrame) },
	},
	{
		"MPA reply with CRC", "4d504120494420526570204672616d655002000400100010",
		&StartFrame{Reply: true, CRC: true, Enhanced: true, Revision: 2, PrivateData: []byte{0, 16, 0, 16}},
		func() header { return new(StartFrame) },
	},
	{
		"MPA reply that rejects", "4d504120494420526570204672616d653002000400000000",
		&StartFrame{Reply: true, Reject: true, Enhanced: true, Revision: 2, PrivateData: make([]byte, 4)},
		func() header { return new(StartFrame) },
	},
	{
		"MPA request of the RDMA Consortium with all bits", "4d504120494420526571204672616d658f000000",
		&StartFrame{Markers: true, Reserved: 15, PrivateData: []byte{}}, func() header { return new(StartFrame) },
	},
	{
		"enhanced data, peer to peer", "80048004",
		&Enhanced{PeerToPeer: true, RTRWrite: true, IRD: 4, ORD: 4}, func() header { return new(Enhanced) },
	},
	{
		"enhanced data, other bits", "7fff7fff",
		&Enhanced{RTRSend: true, RTRRead: true, IRD: DepthNotNegotiated, ORD: DepthNotNegotiated}, func() header { return new(Enhanced) },
	},
	{"control of a last Write", "c140", &Control{Tagged: true, Last: true, DDPVersion: 1, RDMAPVersion: 1, Opcode: OpWrite}, func() header { return new(Control) }},
	{
		"control with reserved bits", "3ef5",
		&Control{DDPReserved: 15, DDPVersion: 2, RDMAPVersion: 3, RDMAPReserved: 3, Opcode: OpSendSE}, func() header { return new(Control) },
	},
	{"tagged", "9de06c00000055e715bdd010", &Tagged{STag: 0x9de06c00, TO: 0x55e715bdd010}, func() header { return new(Tagged) }},
	{
		"untagged", "11223344000000010000000200000590",
		&Untagged{Invalidate: 0x11223344, QN: 1, MSN: 2, MO: 1424}, func() header { return new(Untagged) },
	},
	{
		"Read Request", "9de06c00000055e715bdd0100000006447d32f00000055c99661b6c0",
		&ReadRequest{SinkSTag: 0x9de06c00, SinkTO: 0x55e715bdd010, Size: 100, SrcSTag: 0x47d32f00, SrcTO: 0x55c99661b6c0},
		func() header { return new(ReadRequest) },
	},
	{
		"Terminate with reserved bits", "120418ff", &Terminate{Error: TermUntaggedMO, Reserved: 0x18ff},
		func() header { return new(Terminate) },
	},
	{
		"Terminate of siw with reserved bits", "21041bff001ec140abcdef000000000000000000",
		&Terminate{
			Error: TermUntaggedMO, HasLength: true, HasDDP: true, Reserved: 0x03ff, Order: OrderSiw, SegmentLength: 30,
			DDP: tagged(OpWrite, 0xabcdef00, 0),
		}, func() header { return new(Terminate) },
	},
	{
		"Terminate with R and no read", "0109e0000012414400000000000000000000000100000000",
		&Terminate{
			Error: TermProtNoInvalidate, HasLength: true, HasDDP: true, HasRDMAP: true, SegmentLength: 18,
			DDP: untagged(OpSendInv, QueueSend, 1),
		}, func() header { return new(Terminate) },
	},
	{
		"Terminate with a read and no DDP header", "01022000" + "00000007000000000000010000000010abcdef000000000000000000",
		&Terminate{Error: TermProtAccess, HasRDMAP: true, Read: ReadRequest{SinkSTag: 7, SinkTO: 0x100, Size: 16, SrcSTag: 0xabcdef00}},
		func() header { return new(Terminate) },
	},
	{"Terminate with a length alone", "0200800001fc", &Terminate{Error: TermError{0, 2, 0}, HasLength: true, SegmentLength: 508}, func() header { return new(Terminate) }},
	{
		"Atomic Request with reserved bits", "fffffff2" + "00000012" + "a1b2c300" + "0000000000001008" +
			"000000000000dead" + "00000000000000ff" + "000000000000beef" + "000000000000ffff",
		&AtomicRequest{
			Reserved: 0xfffffff, Op: AtomicCompareSwap, RequestID: 0x12, STag: 0xa1b2c300, TO: 0x1008,
			AddSwap: 0xdead, AddSwapMask: 0xff, Compare: 0xbeef, CompareMask: 0xffff,
		}, func() header { return new(AtomicRequest) },
	},
	{"Atomic Response", "00000011000000000000002a", &AtomicResponse{RequestID: 0x11, Original: 42}, func() header { return new(AtomicResponse) }},
	{"Immediate Data", "0102030405060708", &Immediate{1, 2, 3, 4, 5, 6, 7, 8}, func() header { return new(Immediate) }},
	{"DDP header", "c14000000001000000000000ffff", ptr(tagged(OpWrite, 1, 0xffff)), func() header { return new(Header) }},
}

func ptr[T any](v T) *T { return &v }

func TestHeadersParseAndAppendGoldenBytes(t *testing.T) {
	for _, h := range headers {
		t.Run(h.name, func(t *testing.T) {
			golden := fromHex(t, h.bytes)
			got, tail := h.fresh(), []byte("tail")
			rest := must.Get(got.Parse(append(bytes.Clone(golden), tail...)))(t)
			if !bytes.Equal(rest, tail) {
				t.Errorf("rest = %q, want %q", rest, tail)
			}
			if !reflect.DeepEqual(got, h.want) {
				t.Errorf("Parse:\n got %+v\nwant %+v", got, h.want)
			}
			if b := h.want.Append([]byte("before")); !bytes.Equal(b, append([]byte("before"), golden...)) {
				t.Errorf("Append:\n got %x\nwant %x after \"before\"", b, golden)
			}
		})
	}
}

func TestHeadersRejectEveryStrictPrefix(t *testing.T) {
	for _, h := range headers {
		golden := fromHex(t, h.bytes)
		for n := range golden {
			must.Fail(t, fmt.Sprintf("%s: Parse(%d of %d octets)", h.name, n, len(golden)), must.Err(h.fresh().Parse(golden[:n])), ErrShort)
		}
	}
}

// Parsing into a used value overwrites all of its fields.
func TestParseOverwritesOldValues(t *testing.T) {
	dirty := map[reflect.Type][]byte{}
	for _, h := range headers {
		dirty[reflect.TypeOf(h.want)] = fromHex(t, h.bytes) // the last of its type
	}
	for _, h := range headers {
		got := h.fresh()
		must.Get(got.Parse(dirty[reflect.TypeOf(h.want)]))(t)
		must.Get(got.Parse(fromHex(t, h.bytes)))(t)
		if !reflect.DeepEqual(got, h.want) {
			t.Errorf("%s: parsed over another:\n got %+v\nwant %+v", h.name, got, h.want)
		}
	}
}

// A value that is too large for its field does not change the next field.
func TestHeadersDropBitsThatDoNotFit(t *testing.T) {
	for _, tc := range []struct {
		h    header
		want string
	}{
		{&Control{DDPReserved: 0xf0, DDPVersion: 0xfc, RDMAPVersion: 0xfc, RDMAPReserved: 0xfc, Opcode: 0xf0}, "0000"},
		{&Enhanced{IRD: 0xc000, ORD: 0xc000}, "00000000"},
		{&Terminate{Error: TermError{Layer: 0xf0, Type: 0xf0}, Reserved: 0xe000}, "00000000"},
		{&Terminate{Error: TermError{Layer: 0xf0, Type: 0xf0}, Reserved: 0xe000, Order: OrderSiw}, "00000000"},
		{&AtomicRequest{Reserved: 0xf0000000, Op: 0xf0}, "00000000" + "00000000" + "00000000" + string(bytes.Repeat([]byte("0"), 80))},
		{&StartFrame{Reserved: 0xf0}, "4d504120494420526571204672616d6500000000"},
	} {
		if got := tc.h.Append(nil); !bytes.Equal(got, fromHex(t, tc.want)) {
			t.Errorf("%+v: Append = %x, want %s", tc.h, got, tc.want)
		}
	}
}

func TestHeadersDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 64)
	for _, h := range headers {
		golden, got := fromHex(t, h.bytes), h.fresh()
		if n := testing.AllocsPerRun(100, func() { buf = h.want.Append(buf[:0]) }); n != 0 {
			t.Errorf("%s: Append allocates %v times", h.name, n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = got.Parse(golden) }); n != 0 {
			t.Errorf("%s: Parse allocates %v times", h.name, n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = got.Parse(golden[:1]) }); n != 0 {
			t.Errorf("%s: failing Parse allocates %v times", h.name, n)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	for i, h := range headers {
		f.Add(uint8(i), h.want.Append(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		h := headers[int(which)%len(headers)]
		got := h.fresh()
		rest, err := got.Parse(b)
		if err != nil {
			if !errors.Is(err, ErrShort) && !errors.Is(err, ErrKey) && !errors.Is(err, ErrPrivateData) {
				t.Fatalf("%s: Parse(%x) = %v", h.name, b, err)
			}
			return
		}
		if again := append(got.Append(nil), rest...); !bytes.Equal(again, b) {
			t.Fatalf("%s: Parse then Append: %x -> %x", h.name, b, again)
		}
	})
}
