package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

type body interface {
	Append([]byte) []byte
	Parse([]byte) ([]byte, error)
}

func equal(a, b body) bool { return reflect.DeepEqual(a, b) }

// reservedBits is a run of reserved bits: mask of byte off, or of n bytes from off on.
type reservedBits struct {
	off, n int
	mask   byte
}

// kind describes a message for the generic tests.
type kind struct {
	attr     Attr
	new      func() body
	reserved []reservedBits
}

// pathReserved are the reserved bits of a REQ path at offset off.
func pathReserved(off int) []reservedBits {
	return []reservedBits{{off + 38, 1, 0x0F}, {off + 39, 1, 0xC0}, {off + 42, 1, 0x07}, {off + 43, 1, 0x07}}
}

var kinds = []kind{
	{
		AttrREQ, func() body { return new(REQ) },
		append(append([]reservedBits{{4, 1, 0xFF}, {24, 4, 0xFF}}, pathReserved(52)...), pathReserved(96)...),
	},
	{AttrMRA, func() body { return new(MRA) }, []reservedBits{{8, 1, 0x3F}, {9, 1, 0x07}}},
	{AttrREJ, func() body { return new(REJ) }, []reservedBits{{8, 1, 0x3F}, {9, 1, 0x01}}},
	{AttrREP, func() body { return new(REP) }, []reservedBits{{27, 1, 0x0F}}},
	{AttrRTU, func() body { return new(RTU) }, nil},
	{AttrDREQ, func() body { return new(DREQ) }, []reservedBits{{11, 1, 0xFF}}},
	{AttrDREP, func() body { return new(DREP) }, nil},
	{AttrSIDRREQ, func() body { return new(SIDRREQ) }, []reservedBits{{6, 2, 0xFF}}},
	{AttrSIDRREP, func() body { return new(SIDRREP) }, nil},
	{
		AttrLAP, func() body { return new(LAP) },
		[]reservedBits{{8, 4, 0xFF}, {15, 1, 0x07}, {16, 4, 0xFF}, {58, 1, 0x0F}, {61, 1, 0xC0}, {62, 1, 0x07}, {63, 1, 0x07}},
	},
	{AttrAPR, func() body { return new(APR) }, []reservedBits{{10, 2, 0xFF}}},
}

func kindOf(a Attr) kind {
	i, _ := a.Index()
	return kinds[i]
}

// meaningful clears the reserved bits of a body.
func (k kind) meaningful(b []byte) []byte {
	b = bytes.Clone(b)
	for _, h := range k.reserved {
		for i := range h.n {
			b[h.off+i] &^= h.mask
		}
	}
	return b
}

// pattern returns a body in which adjacent bytes differ.
func pattern(seed byte) []byte {
	b := make([]byte, MADBodyLen)
	for i := range b {
		b[i] = byte(i)*151 + seed
	}
	return b
}

// A round trip keeps every bit except reserved ones.
func TestBodiesKeepEveryBit(t *testing.T) {
	for _, k := range kinds {
		for bit := range MADBodyLen * 8 {
			in := make([]byte, MADBodyLen)
			in[bit/8] = 0x80 >> (bit % 8)
			m := k.new()
			must.Get(m.Parse(in))(t)
			if got, want := m.Append(nil), k.meaningful(in); !bytes.Equal(got, want) {
				t.Fatalf("%v: bit %d of byte %d: sent as %x, want %x", k.attr, bit%8, bit/8, got, want)
			}
		}
	}
}

func TestParseRejectsEveryPrefix(t *testing.T) {
	for _, k := range kinds {
		whole := pattern(1)
		for n := range whole {
			must.Fail(t, fmt.Sprintf("%v: Parse(%d bytes)", k.attr, n), must.Err(k.new().Parse(whole[:n])), ErrShort)
		}
	}
	var h MADHeader
	for n := range MADHeaderLen {
		must.Fail(t, fmt.Sprintf("header: Parse(%d bytes)", n), must.Err(h.Parse(make([]byte, n))), ErrShort)
	}
	var ip CMAHeader
	for n := range CMAHeaderLen {
		must.Fail(t, fmt.Sprintf("rdma_cm header: Parse(%d bytes)", n), must.Err(ip.Parse(make([]byte, n))), ErrShort)
	}
}

func TestParseReturnsRest(t *testing.T) {
	for _, k := range kinds {
		rest, err := k.new().Parse(append(pattern(3), 0xAB, 0xCD))
		if err != nil || !bytes.Equal(rest, []byte{0xAB, 0xCD}) {
			t.Errorf("%v: rest %x, %v", k.attr, rest, err)
		}
	}
}

func TestParseKeepsNoReference(t *testing.T) {
	for _, k := range kinds {
		in := pattern(9)
		m, twin := k.new(), k.new()
		must.Get(m.Parse(in))(t)
		must.Get(twin.Parse(bytes.Clone(in)))(t)
		clear(in)
		if !equal(m, twin) {
			t.Errorf("%v keeps a reference to its input", k.attr)
		}
	}
}

// The high bits of a wide value must not change other fields.
func TestWideValuesAreTruncated(t *testing.T) {
	req := REQ{
		VendorID: 1 << 24, LocalQPN: 1 << 24, LocalEECN: 1 << 24, RemoteEECN: 1 << 24, StartPSN: 1 << 24,
		RemoteRespTimeout: 32, Transport: 4, LocalRespTimeout: 32, RetryCount: 8, MTU: 16, RNRRetry: 8,
		MaxCMRetries: 16, ExtTransport: 8,
		Primary: CMPath{FlowLabel: 1 << 20, Rate: 64, SL: 16, AckTimeout: 32},
	}
	lap := LAP{RemoteQPN: 1 << 24, RemoteRespTimeout: 32, Alternate: req.Primary}
	rep := REP{VendorID: 1 << 24, LocalQPN: 1 << 24, LocalEECN: 1 << 24, StartPSN: 1 << 24, TargetAckDelay: 32, Failover: 4, RNRRetry: 8}
	for _, m := range []body{
		&req, &lap, &rep, &MRA{About: 4, ServiceTimeout: 32}, &REJ{About: 4, InfoLen: 128},
		&DREQ{RemoteQPN: 1 << 24}, &SIDRREP{QPN: 1 << 24, VendorID: 1 << 24},
	} {
		if got := m.Append(nil); !bytes.Equal(got, zeroBody[:]) {
			t.Errorf("%T: %x, want all zero", m, got)
		}
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, MADLen)
	in := pattern(7)
	var h MADHeader
	for _, k := range kinds {
		m := k.new()
		if n := testing.AllocsPerRun(100, func() {
			must.Get(m.Parse(in))(t)
			buf = m.Append(h.Append(buf[:0]))
		}); n != 0 {
			t.Errorf("%v: Parse and Append allocate %v times", k.attr, n)
		}
	}
	if len(buf) != MADLen {
		t.Errorf("header and body are %d bytes, want %d", len(buf), MADLen)
	}
}

func BenchmarkREQ(b *testing.B) {
	in := pattern(7)
	buf := make([]byte, 0, MADLen)
	var m REQ
	for b.Loop() {
		must.Get(m.Parse(in))(b)
		buf = m.Append(buf[:0])
	}
}
