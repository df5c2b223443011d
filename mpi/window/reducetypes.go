package window

import (
	"encoding/binary"
	"math"
)

// reduceLoc is Reduce for pairs.
func reduceLoc(into, from []byte, t Type, o Op) {
	size := t.Size()
	for i := 0; i+size <= len(from); i += size {
		if a, b := into[i:i+size], from[i:i+size]; replaces(b, a, t, o) {
			copy(a, b)
		}
	}
}

// replaces reports whether pair b is the result of (a op b).
func replaces(b, a []byte, t Type, o Op) bool {
	half := t.Size() / 2
	ia, ib := loadInt(a[half:], half), loadInt(b[half:], half)
	switch t {
	case Int32Loc, Int64Loc:
		return isNearer(loadInt(b, half), loadInt(a, half), ib, ia, o)
	case Float32Loc:
		return isNearer(math.Float32frombits(uint32(load(b, half))), math.Float32frombits(uint32(load(a, half))), ib, ia, o)
	}
	return isNearer(math.Float64frombits(load(b, half)), math.Float64frombits(load(a, half)), ib, ia, o)
}

// isNearer reports whether the value b with index ib is less (MinLoc) or more (MaxLoc) than a with index
// ia, or equal with a smaller index.
func isNearer[T int64 | float32 | float64](b, a T, ib, ia int64, o Op) bool {
	if a == b {
		return ib < ia
	}
	return (b < a) == (o == MinLoc)
}

// loadInt returns a signed integer of 4 or 8 bytes.
func loadInt(b []byte, size int) int64 {
	if size == 4 {
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

// fromBFloat16 converts a number whose bits are the upper half of those of a float32.
func fromBFloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// toBFloat16 rounds to the nearest number, and of two to the even one.
func toBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 1<<6 // a quiet NaN
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// Fields of IEEE 754 binary16, and of a float32.
const (
	half16Bits  = 10 // of the fraction
	float32Bits = 23
	half16Bias  = 15
	float32Bias = 127
)

// fromFloat16 converts an IEEE 754 binary16 number.
func fromFloat16(h uint16) float32 {
	sign, exponent, fraction := uint32(h)>>15<<31, uint32(h)>>half16Bits&0x1f, uint32(h)&(1<<half16Bits-1)
	switch exponent {
	case 0: // zero, or subnormal: a multiple of 2^-24
		f := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0xff<<float32Bits | fraction<<(float32Bits-half16Bits))
	}
	return math.Float32frombits(sign | (exponent+float32Bias-half16Bias)<<float32Bits | fraction<<(float32Bits-half16Bits))
}

// toFloat16 rounds to the nearest number, and of two to the even one.
func toFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 31 << 15)
	abs := math.Float32frombits(b &^ (1 << 31))
	const largest, smallestNormal = 65520, 1.0 / (1 << 14) // from largest on, numbers round to infinity
	switch {
	case f != f:
		return sign | 0x7e00
	case abs >= largest:
		return sign | 0x7c00
	case abs < smallestNormal:
		return sign | uint16(math.RoundToEven(float64(abs)*(1<<24)))
	}
	const dropped = float32Bits - half16Bits
	n := math.Float32bits(abs) - (float32Bias-half16Bias)<<float32Bits
	return sign | uint16((n+1<<(dropped-1)-1+n>>dropped&1)>>dropped)
}
