package wire

import "hash/crc32"

// poly is the register of a CRC-32: a polynomial over GF(2) modulo the generator. A zero
// bit of input multiplies the register by x. CRCs are linear: the effect of some bytes on
// the CRC of a packet is a product that does not depend on the rest of the packet.
//
// The bit order is reflected, as in CRC-32: the top bit is x^0 and the lowest x^31. Input
// bytes are XORed into the low bits.
type poly uint32

const (
	polyOne  poly = 1 << 31
	polyX    poly = 1 << 30
	polyXInv poly = (crc32.IEEE^1<<31)<<1 | 1 // x times this is 1
)

// mul returns a times b modulo the generator of CRC-32.
func (a poly) mul(b poly) poly {
	product := carrylessMul(uint32(a), uint32(b)) << 1 // top bit x^0, lowest x^63
	return poly(product>>32) ^ poly(product).afterZeros32()
}

// afterZeros32 returns p times x^32: the CRC register after four more zero bytes.
func (p poly) afterZeros32() poly {
	for range 4 {
		p = poly(crc32.IEEETable[byte(p)]) ^ p>>8
	}
	return p
}

// carrylessMul multiplies 32-bit polynomials with integer multiplications. Each factor has
// only every fourth bit of its operand: up to eight ones add up in a place of the product,
// which does not carry into the next place. The mask keeps the sum modulo 2.
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

// shifter multiplies a register by the effect of up to 65535 zero bytes: forward adds them,
// backward removes them.
type shifter struct {
	low  [256]poly // factor for n bytes
	high [256]poly // factor for n times 256 bytes
}

var (
	forward  = makeShifter(polyX)
	backward = makeShifter(polyXInv)
)

// makeShifter returns the tables for shifts by whole bytes: low[n] is the factor of a shift by n
// bytes, high[n] by 256 n bytes. bitStep is the factor of a shift by one bit.
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
	step, power = power, polyOne // step shifts by len(s.low) bytes, 256
	for n := range s.high {
		s.high[n] = power
		power = power.mul(step)
	}
	return s
}

// shift returns the CRC register p after n more zero bytes (forward), or before its last n bytes,
// if they were zero (backward).
func (s *shifter) shift(p poly, n int) poly {
	return p.mul(s.low[n&0xFF]).mul(s.high[n>>8])
}

// effect is the effect of a byte on the register, by its value.
type effect [256]poly

// makeEffect returns for each value of a byte the bits that it flips in the CRC register n bytes
// later, counted from the start of this byte. Several ns are for a byte that occurs several times.
func makeEffect(ns ...int) (e effect) {
	for _, n := range ns {
		for bit := 1; bit < len(e); bit <<= 1 {
			e[bit] ^= forward.shift(poly(bit), n)
		}
	}
	for v := range e { // other values are sums of single bits
		e[v] = e[v&(v-1)] ^ e[v&-v]
	}
	return e
}

// effect16 is the effect of a 16-bit big-endian field on the register.
type effect16 struct {
	upper, lower effect
}

// makeEffect16 returns for each value of a 16-bit field the bits that it flips in the CRC register
// n bytes later, counted from the start of the field. Several ns are for a field that occurs
// several times.
func makeEffect16(ns ...int) *effect16 {
	lower := make([]int, len(ns))
	for i, n := range ns {
		lower[i] = n - 1 // the lower byte starts one byte after the field
	}
	return &effect16{upper: makeEffect(ns...), lower: makeEffect(lower...)}
}

// of returns what the field with value v XORs into the CRC register.
func (e *effect16) of(v uint16) poly { return e.upper[v>>8] ^ e.lower[v&0xFF] }
