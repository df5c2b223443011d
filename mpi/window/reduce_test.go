package window

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestOpsAreValidForTypes(t *testing.T) {
	for typ := Byte; typ <= numTypes; typ++ {
		if (typ.Size() == 0) != (typ == numTypes) || typ.String() == "" {
			t.Errorf("%v has %d bytes", typ, typ.Size())
		}
		for op := Sum; op <= numOps; op++ {
			isReal := typ == Float32 || typ == Float64 || typ == Float16 || typ == BFloat16
			isPair, isLoc := typ >= Int32Loc, op == MinLoc || op == MaxLoc
			want := typ < numTypes && op < numOps && !(isReal && op >= BAnd && op <= LXor) && isPair == isLoc
			if op.ValidFor(typ) != want || op.String() == "" {
				t.Errorf("%v of %v: %v", op, typ, !want)
			}
		}
	}
}

// Each operation, with types for which its result differs.
func TestReduce(t *testing.T) {
	le := binary.LittleEndian
	u32 := func(v ...int64) (b []byte) {
		for _, x := range v {
			b = le.AppendUint32(b, uint32(x))
		}
		return b
	}
	u16 := func(v ...int64) (b []byte) {
		for _, x := range v {
			b = le.AppendUint16(b, uint16(x))
		}
		return b
	}
	loc := func(value, index []byte) []byte { return append(value, index...) }
	u64 := func(v ...int64) (b []byte) {
		for _, x := range v {
			b = le.AppendUint64(b, uint64(x))
		}
		return b
	}
	f32 := func(v ...float32) (b []byte) {
		for _, x := range v {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
		return b
	}
	f64 := func(v ...float64) (b []byte) {
		for _, x := range v {
			b = le.AppendUint64(b, math.Float64bits(x))
		}
		return b
	}
	for _, c := range []struct {
		t                Type
		o                Op
		into, from, want []byte
	}{
		{Byte, Sum, []byte{200, 1}, []byte{100, 2}, []byte{44, 3}},
		{Byte, Prod, []byte{20}, []byte{20}, []byte{144}},
		{Int8, Min, []byte{255, 1}, []byte{3, 2}, []byte{255, 1}},
		{Int8, Sum, []byte{127}, []byte{1}, []byte{128}},
		{Int16, Max, u16(-1, 5), u16(1, -7), u16(1, 5)},
		{Uint16, Max, u16(-1, 5), u16(1, -7), u16(-1, -7)},
		{Uint16, BAnd, u16(12), u16(10), u16(8)},
		{Float16, Sum, u16(0x3c00, 0x3555), u16(0x4000, 0x3555), u16(0x4200, 0x3955)}, // 1 + 2, 1/3 + 1/3
		{BFloat16, Prod, u16(0x4000, 0x3f80), u16(0x4040, 0x3f81), u16(0x40c0, 0x3f81)},
		{Int32Loc, MinLoc, u32(5, 1, -3, 9, 4, 4), u32(5, 0, 2, 8, -4, 7), u32(5, 0, -3, 9, -4, 7)},
		{Int64Loc, MaxLoc, u64(5, 3, 1, 1), u64(5, 4, 2, 2), u64(5, 3, 2, 2)},
		{Float32Loc, MaxLoc, loc(f32(1.5), u32(3)), loc(f32(2.5), u32(4)), loc(f32(2.5), u32(4))},
		{Float64Loc, MinLoc, loc(f64(1.5), u64(3)), loc(f64(1.5), u64(2)), loc(f64(1.5), u64(2))},
		{Int32, Min, u32(-1, 5), u32(1, -7), u32(-1, -7)},
		{Uint32, Min, u32(-1, 5), u32(1, -7), u32(1, 5)},
		{Int64, Max, u64(-1, 5), u64(1, -7), u64(1, 5)},
		{Uint64, Max, u64(-1, 5), u64(1, -7), u64(-1, -7)},
		{Int32, Sum, u32(math.MaxInt32), u32(1), u32(math.MinInt32)},
		{Int64, Prod, u64(-3), u64(7), u64(-21)},
		{Float32, Sum, f32(0.5, -1), f32(0.25, 4), f32(0.75, 3)},
		{Float64, Prod, f64(0.5, -1), f64(0.25, 4), f64(0.125, -4)},
		{Float64, Min, f64(-0.5, 3), f64(0.25, 2), f64(-0.5, 2)},
		{Float32, Max, f32(-0.5, 3), f32(0.25, 2), f32(0.25, 3)},
		{Uint32, BAnd, u32(0b1100), u32(0b1010), u32(0b1000)},
		{Uint32, BOr, u32(0b1100), u32(0b1010), u32(0b1110)},
		{Uint64, BXor, u64(0b1100), u64(0b1010), u64(0b0110)},
		{Int32, LAnd, u32(0, 0, 5, 6), u32(0, 7, 0, 8), u32(0, 0, 0, 1)},
		{Byte, LOr, []byte{0, 0, 5, 6}, []byte{0, 7, 0, 8}, []byte{0, 1, 1, 1}},
		{Int64, LXor, u64(0, 0, 5, 6), u64(0, 7, 0, 8), u64(0, 1, 1, 0)},
		{Float64, Replace, f64(1), f64(2), f64(2)},
		{Float64, NoOp, f64(1), f64(2), f64(1)},
	} {
		if Reduce(c.into, c.from, c.t, c.o); string(c.into) != string(c.want) {
			t.Errorf("%v of %v: %x, want %x", c.o, c.t, c.into, c.want)
		}
	}
}

// Every binary16 number is converted to a float32 and back, and numbers between two are rounded to the
// nearest one, or to the even one.
func TestFloat16Conversion(t *testing.T) {
	const infinity = 0x7c00
	for h := range uint16(infinity) {
		f, next := fromFloat16(h), fromFloat16(h+1)
		if toFloat16(f) != h || toFloat16(-f) != h|1<<15 {
			t.Fatalf("%#x is %v, and that is %#x and %#x", h, f, toFloat16(f), toFloat16(-f))
		}
		if h+1 == infinity {
			next = 65536
		}
		middle := (f + next) / 2
		if want := (h + 1) &^ 1; toFloat16(middle) != want {
			t.Fatalf("%v, between %#x and the next, is %#x", middle, h, toFloat16(middle))
		}
		below, above := math.Nextafter32(middle, 0), math.Nextafter32(middle, 1e9)
		if toFloat16(below) != h || toFloat16(above) != h+1 {
			t.Fatalf("%v and %v, around the middle after %#x, are %#x and %#x", below, above, h, toFloat16(below), toFloat16(above))
		}
	}
	if nan := float32(math.NaN()); fromFloat16(toFloat16(nan)) == fromFloat16(toFloat16(nan)) || !math.IsInf(float64(fromFloat16(infinity)), 1) {
		t.Error("NaN or infinity is another number")
	}
}

// The values of numbers that are exact in BFloat16, and of two between them.
func TestBFloat16Conversion(t *testing.T) {
	for f, want := range map[float32]uint16{1: 0x3f80, -2: 0xc000, 1 + 1.0/256: 0x3f80, 1 + 3.0/256: 0x3f82, 3.4e38: 0x7f80} {
		if got := toBFloat16(f); got != want {
			t.Errorf("%v is %#x, want %#x", f, got, want)
		}
	}
	if nan := fromBFloat16(toBFloat16(float32(math.NaN()))); nan == nan {
		t.Error("NaN is another number")
	}
}
