package wire

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// slowMul is the schoolbook product, one bit at a time.
func slowMul(a, b poly) poly {
	var product poly
	for range 32 { // Horner's rule from x^31, the lowest bit
		carry := product & 1
		product >>= 1
		if carry != 0 {
			product ^= crc32.IEEE
		}
		if a&1 != 0 {
			product ^= b
		}
		a >>= 1
	}
	return product
}

func TestPolynomialProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		a, b := poly(rng.Uint32()), poly(rng.Uint32())
		if got, want := a.mul(b), slowMul(a, b); got != want {
			t.Fatalf("%08x times %08x = %08x, want %08x", a, b, got, want)
		}
	}
	// All ones: as many carries as the integer products ever see.
	if got, want := (^poly(0)).mul(^poly(0)), slowMul(^poly(0), ^poly(0)); got != want {
		t.Errorf("all ones squared = %08x, want %08x", got, want)
	}
	if got := polyX.mul(polyXInv); got != polyOne {
		t.Errorf("x times its inverse = %08x, want 1", got)
	}
}

func TestShiftEqualsZeroBytes(t *testing.T) {
	zeros := make([]byte, 1<<16-1)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 2, 27, 255, 256, 257, 4096, 26768, len(zeros)} {
		p := poly(rng.Uint32())
		want := poly(^crc32.Update(^uint32(p), crc32.IEEETable, zeros[:n]))
		if got := forward.shift(p, n); got != want {
			t.Errorf("%08x over %d bytes = %08x, want %08x", p, n, got, want)
		}
		if got := backward.shift(want, n); got != p {
			t.Errorf("%08x back over %d bytes = %08x, want %08x", want, n, got, p)
		}
	}
}

func TestEffectEqualsCRCDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, 40)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	const at = 13
	e := makeEffect16(len(b) - at)
	before := crc32.ChecksumIEEE(b)
	for range 1000 {
		v := uint16(rng.Uint32())
		b[at], b[at+1] = b[at]^byte(v>>8), b[at+1]^byte(v)
		after := crc32.ChecksumIEEE(b)
		if got := uint32(e.of(v)); got != before^after {
			t.Fatalf("effect of %04x is %08x, want %08x", v, got, before^after)
		}
		before = after
	}
}
