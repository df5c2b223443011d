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
			isReal := typ == Float32 || typ == Float64
			want := typ < numTypes && op < numOps && !(isReal && op >= BAnd && op <= LXor)
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
