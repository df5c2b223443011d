package work

import (
	"fmt"
	"math"
	"math/bits"
	"math/cmplx"
)

// fourier solves a diffusion equation with three-dimensional FFTs, as NPB's FT does: the
// field is transformed once, and in each step its modes are damped and transformed back.
// Ranks have slabs of the field; the transform along the third axis needs a transposition,
// an all-to-all in blocks that are larger with fewer ranks (Sur 2006 §3.2: nearly all volume
// in messages beyond 256 KB; Qian 2010 §6.5.3).
//
// The initial field is noise, therefore every mode counts. The first inverse transform,
// without damping, must return the field; the field of each step is transformed again,
// which must return the damped modes.
func fourier(j *job) {
	f := newFT(j, ftSizes[j.p.Class].grid)
	steps := j.setIterations(ftSizes[j.p.Class].steps)
	for step := range steps + 1 { // the first without damping
		j.start()
		if step == 0 {
			f.forward(f.modes)
		}
		f.evolve(step)
		j.stop()
		f.check(step)
	}
}

var ftSizes = map[Class]ftSize{
	ClassT: {grid: [3]int{16, 16, 16}, steps: 2},
	ClassS: {grid: [3]int{64, 64, 64}, steps: 6},
	ClassW: {grid: [3]int{128, 128, 32}, steps: 6},
	ClassA: {grid: [3]int{256, 256, 128}, steps: 6},
}

// ftUnfitReason returns why a number of ranks cannot share the problem of a class; "" if it can.
func ftUnfitReason(c Class, ranks int) string {
	if g := ftSizes[c].grid; ranks > min(g[0], g[2]) {
		return fmt.Sprintf("a grid of %d × %d × %d has fewer slabs than ranks", g[0], g[1], g[2])
	}
	return ""
}

type ftSize struct {
	grid  [3]int
	steps int
}

// ft is a rank's slabs. Slabs of planes are contiguous along x, then y, for some z; slabs
// of columns along z, then y, for some x.
type ft struct {
	j                *job
	n                [3]int
	planes           int
	firstPlane       int
	columns          int
	firstColumn      int
	field            []complex128 // by planes
	modes            []complex128 // by columns
	damped           []complex128
	transformedAgain []complex128 // modes of the field, transformed again
	transforms       [3]*fft
	send, recv       []byte
	line             []complex128
}

// newFT returns the slabs of a rank, with noise as the initial field.
func newFT(j *job, grid [3]int) *ft {
	f := &ft{j: j, n: grid, line: make([]complex128, grid[1])}
	for axis, n := range grid {
		f.transforms[axis] = newFFT(n)
	}
	f.planes, f.columns = grid[2]/j.Size(), grid[0]/j.Size()
	f.firstPlane, f.firstColumn = j.Rank()*f.planes, j.Rank()*f.columns
	local := grid[0] * grid[1] * f.planes
	for _, field := range []*[]complex128{&f.field, &f.modes, &f.damped, &f.transformedAgain} {
		*field = make([]complex128, local)
	}
	f.send, f.recv = make([]byte, 16*local), make([]byte, 16*local)
	for at := range f.field {
		f.field[at] = f.noise(at)
	}
	return f
}

// noise is the initial field at an index of this rank's planes.
func (f *ft) noise(at int) complex128 {
	k := key(f.j.p.Seed, uint64(f.firstPlane*f.n[0]*f.n[1]+at))
	return complex(uniform(k), uniform(mix(k)))
}

// damping is the factor of the mode with these wave numbers after some steps: exp(-1e-4·|k|²·steps).
// Wave numbers above half of an axis stand for negative ones.
func (f *ft) damping(number [3]int, steps int) float64 {
	sum := 0
	for axis, k := range number {
		if k > f.n[axis]/2 {
			k -= f.n[axis]
		}
		sum += k * k
	}
	return math.Exp(-1e-4 * float64(sum*steps))
}

// forward transforms the field, which is overwritten, to modes.
func (f *ft) forward(modes []complex128) {
	f.transformPlanes(f.field, forward)
	f.j.spendComputePart(1)
	f.transpose(
		func(buf []byte, planeAt, _ int) { putFloats(buf, complexParts(f.field[planeAt])) },
		func(buf []byte, _, columnAt int) { modes[columnAt] = complexOf(buf) })
	for i := 0; i < len(modes); i += f.n[2] {
		f.transforms[2].transform(modes[i:i+f.n[2]], forward)
	}
}

// evolve computes the field after some steps from the damped modes.
func (f *ft) evolve(steps int) {
	f.damp(f.damped, steps)
	for i := 0; i < len(f.damped); i += f.n[2] {
		f.transforms[2].transform(f.damped[i:i+f.n[2]], backward)
	}
	f.j.spendComputePart(1)
	f.transpose(
		func(buf []byte, _, columnAt int) { putFloats(buf, complexParts(f.damped[columnAt])) },
		func(buf []byte, planeAt, _ int) { f.field[planeAt] = complexOf(buf) })
	f.transformPlanes(f.field, backward)
}

// damp computes the modes after some steps.
func (f *ft) damp(to []complex128, steps int) {
	at := 0
	for x := range f.columns {
		for y := range f.n[1] {
			for z := range f.n[2] {
				to[at] = f.modes[at] * complex(f.damping([3]int{f.firstColumn + x, y, z}, steps), 0)
				at++
			}
		}
	}
}

// transformPlanes transforms all planes of a field along x and y, forward or back.
func (f *ft) transformPlanes(field []complex128, back bool) {
	plane := f.n[0] * f.n[1]
	for z := range f.planes {
		p := field[z*plane:][:plane]
		for y := range f.n[1] {
			f.transforms[0].transform(p[y*f.n[0]:][:f.n[0]], back)
		}
		for x := range f.n[0] {
			f.transforms[1].transformStrided(p[x:], f.n[0], f.line, back)
		}
	}
}

// transpose sends a block of the slab of planes or columns to every rank, and receives one from
// each. put writes an element to send, by its indexes in both slabs, and get reads one.
func (f *ft) transpose(put, get func(buf []byte, planeAt, columnAt int)) {
	f.eachElement(f.send, put)
	n := len(f.send) / f.j.Size()
	for to := range f.j.Size() {
		f.j.digestSent(to, f.send[to*n:][:n])
	}
	f.j.Alltoall(f.send, f.recv)
	for from := range f.j.Size() {
		f.j.digestReceived(from, f.recv[from*n:][:n])
	}
	f.eachElement(f.recv, get)
}

// eachElement visits a buffer of blocks, one per rank, in the same order as the sender and the
// receiver: by z, then y, then x. It calls do with the index of each element in the slab of planes
// and in that of columns; only the index in the slab that do accesses is meaningful.
func (f *ft) eachElement(buf []byte, do func(buf []byte, planeAt, columnAt int)) {
	for peer := range f.j.Size() {
		for z := range f.planes {
			for y := range f.n[1] {
				for x := range f.columns {
					planeAt := (z*f.n[1]+y)*f.n[0] + peer*f.columns + x
					columnAt := (x*f.n[1]+y)*f.n[2] + peer*f.planes + z
					do(buf, planeAt, columnAt)
					buf = buf[16:]
				}
			}
		}
	}
}

func complexParts(c complex128) []float64 { return []float64{real(c), imag(c)} }

func complexOf(buf []byte) complex128 { return complex(getFloat(buf), getFloat(buf[8:])) }

// check compares an undamped field with the initial one, and the modes of a damped field,
// transformed again, with the damped modes.
func (f *ft) check(steps int) {
	points := f.n[0] * f.n[1] * f.n[2]
	// Elements are below √2, and errors are rounding errors of each stage.
	bound := 4 * 0x1p-52 * float64(log2(points))
	if steps == 0 {
		for at, got := range f.field {
			if want := f.noise(at); !f.withinBound(want, got, bound) {
				x, y, z := at%f.n[0], at/f.n[0]%f.n[1], f.firstPlane+at/(f.n[0]*f.n[1])
				f.j.failVerification(fmt.Sprintf("%.12g", want), fmt.Sprintf("%.12g", got), "field at (%d, %d, %d), there and back", x, y, z)
			}
		}
		return
	}
	f.forward(f.transformedAgain)
	f.damp(f.damped, steps)
	bound *= math.Sqrt(float64(points)) // modes of noise are larger
	for at, got := range f.transformedAgain {
		if want := f.damped[at]; !f.withinBound(want, got, bound) {
			z, y, x := at%f.n[2], at/f.n[2]%f.n[1], f.firstColumn+at/(f.n[2]*f.n[1])
			f.j.failVerification(fmt.Sprintf("%.12g", want), fmt.Sprintf("%.12g", got), "mode (%d, %d, %d) after %d steps", x, y, z, steps)
		}
	}
}

// withinBound counts a comparison and reports whether two numbers differ by at most bound.
func (f *ft) withinBound(want, got complex128, bound float64) bool {
	f.j.countChecks(1, 16)
	return cmplx.Abs(want-got) <= bound
}

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

// transform transforms a line in place, forward or back; back divides by the length. It is the
// radix-2 algorithm: numbers are first swapped to the indexes with the bits reversed.
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

// transformStrided transforms a line whose numbers are stride apart in x. line is scratch memory.
func (f *fft) transformStrided(x []complex128, stride int, line []complex128, back bool) {
	for i := range line {
		line[i] = x[i*stride]
	}
	f.transform(line, back)
	for i := range line {
		x[i*stride] = line[i]
	}
}
