package work

import (
	"math"
	"math/bits"
	"math/cmplx"
)

// fft transforms lines whose length is a power of two.
type fft struct {
	n     int
	roots []complex128 // of unity: the k-th is exp(-2πik/n)
}

// newFFT returns the transform of lines of n numbers, a power of two.
func newFFT(n int) *fft {
	f := &fft{n: n, roots: make([]complex128, n/2)}
	for k := range f.roots {
		f.roots[k] = cmplx.Rect(1, -2*math.Pi*float64(k)/float64(n))
	}
	return f
}

// Values of the parameter back of transforms and sweeps.
const forward, backward = false, true

// transform transforms a line in place, forward or back; back divides by the length.
func (f *fft) transform(x []complex128, back bool) {
	n, shift := f.n, 64-bits.Len(uint(f.n-1))
	for i := range n {
		if k := int(bits.Reverse64(uint64(i)) >> shift); n > 1 && k > i {
			x[i], x[k] = x[k], x[i]
		}
	}
	for half := 1; half < n; half *= 2 {
		for at := 0; at < n; at += 2 * half {
			for k := range half {
				root := f.roots[k*(n/2/half)]
				if back {
					root = cmplx.Conj(root)
				}
				a, b := x[at+k], x[at+k+half]*root
				x[at+k], x[at+k+half] = a+b, a-b
			}
		}
	}
	if back {
		for i := range x {
			x[i] /= complex(float64(n), 0)
		}
	}
}

// transformStrided transforms a line whose numbers are stride apart in x. line is scratch memory
// of its length.
func (f *fft) transformStrided(x []complex128, stride int, line []complex128, back bool) {
	for i := range line {
		line[i] = x[i*stride]
	}
	f.transform(line, back)
	for i := range line {
		x[i*stride] = line[i]
	}
}
