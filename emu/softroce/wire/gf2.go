package wire

import "hash/crc32"

// poly is the register of a CRC-32: a polynomial over GF(2) modulo the CRC's
// own. Feeding the CRC one more zero bit multiplies its register by x, and a
// difference in the input travels through the register independently of
// everything else. So the effect of a few bytes on the CRC of a long packet is
// a product, whatever the rest of the packet holds.
//
// It is reflected, as CRC-32 wants it: the top bit is x^0 and the lowest x^31.
// Bytes about to enter the register stand in its low bits, the first lowest.
type poly uint32

const (
	polyOne  poly = 1 << 31
	polyX    poly = 1 << 30
	polyXInv poly = (crc32.IEEE^1<<31)<<1 | 1 // x times this is 1
)

// mul returns a times b.
func (a poly) mul(b poly) poly {
	product := carrylessMul(uint32(a), uint32(b)) << 1 // top bit x^0, lowest x^63
	return poly(product>>32) ^ poly(product).afterZeros32()
}

// afterZeros32 multiplies p by x^32: four zero bytes through the register.
func (p poly) afterZeros32() poly {
	for range 4 {
		p = poly(crc32.IEEETable[byte(p)]) ^ p>>8
	}
	return p
}

// carrylessMul multiplies polynomials of 32 bits with integer multiplications.
// Each factor keeps only every fourth bit, so that the up to eight ones that
// meet in a place of the product fill the gap above it and never reach the
// next place; the mask then leaves their sum modulo two.
func carrylessMul(a, b uint32) uint64 {
	const (
		place0 = 0x1111_1111_1111_1111
		place1 = place0 << 1 & (1<<64 - 1)
		place2 = place0 << 2 & (1<<64 - 1)
		place3 = place0 << 3 & (1<<64 - 1)
	)
	x, y := uint64(a), uint64(b)
	x0, x1, x2, x3 := x&place0, x&place1, x&place2, x&place3
	y0, y1, y2, y3 := y&place0, y&place1, y&place2, y&place3
	return (x0*y0^x1*y3^x2*y2^x3*y1)&place0 |
		(x0*y1^x1*y0^x2*y3^x3*y2)&place1 |
		(x0*y2^x1*y1^x2*y0^x3*y3)&place2 |
		(x0*y3^x1*y2^x2*y1^x3*y0)&place3
}

// shifter moves a register over up to 65535 bytes: forward, as that many zero
// bytes do, or backward, as if they had not been.
type shifter struct {
	low  [256]poly // what to multiply by for n bytes
	high [256]poly // and for n times 256 bytes
}

var (
	forward  = makeShifter(polyX)
	backward = makeShifter(polyXInv)
)

func makeShifter(bitStep poly) *shifter {
	s := &shifter{}
	step := bitStep
	for range 3 {
		step = step.mul(step) // eight bits in the end
	}
	power := polyOne
	for n := range s.low {
		s.low[n] = power
		power = power.mul(step)
	}
	step, power = power, polyOne
	for n := range s.high {
		s.high[n] = power
		power = power.mul(step)
	}
	return s
}

// shift moves p over n bytes.
func (s *shifter) shift(p poly, n int) poly {
	return p.mul(s.low[n&0xFF]).mul(s.high[n>>8])
}

// effect is what the value of one byte does to the register.
type effect [256]poly

// makeEffect returns the effect of a byte once n bytes, itself counted, have
// gone through the register. With several n it is the effect of the same byte
// at several places.
func makeEffect(ns ...int) (e effect) {
	for _, n := range ns {
		for bit := 1; bit < len(e); bit <<= 1 {
			e[bit] ^= forward.shift(poly(bit), n)
		}
	}
	for v := range e { // all others are sums of single bits
		e[v] = e[v&(v-1)] ^ e[v&-v]
	}
	return e
}

// effect16 is what the value of a 16-bit big-endian field does to the register.
type effect16 struct {
	upper, lower effect
}

// makeEffect16 is makeEffect for such a field, counted from its first byte.
func makeEffect16(ns ...int) *effect16 {
	after := make([]int, len(ns))
	for i, n := range ns {
		after[i] = n - 1
	}
	return &effect16{upper: makeEffect(ns...), lower: makeEffect(after...)}
}

// of returns the effect of value v.
func (e *effect16) of(v uint16) poly { return e.upper[v>>8] ^ e.lower[v&0xFF] }
