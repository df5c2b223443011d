package work

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// putFloats writes numbers to a buffer.
func putFloats(to []byte, xs []float64) {
	for _, x := range xs {
		binary.LittleEndian.PutUint64(to, math.Float64bits(x))
		to = to[8:]
	}
}

// getFloats reads numbers from a buffer.
func getFloats(xs []float64, from []byte) {
	for i := range xs {
		xs[i] = getFloat(from)
		from = from[8:]
	}
}

func getFloat(from []byte) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(from))
}

// isqrt is the integer square root of a number below 2^52, whose conversion is exact.
func isqrt(n int) int { return int(math.Sqrt(float64(n))) }

// log2 is the logarithm of a power of two.
func log2(n int) int { return bits.Len(uint(n)) - 1 }

// part is the index of the first element of part i, if whole elements are divided into n nearly
// equal parts.
func part(whole, n, i int) int { return whole * i / n }

// rectangle divides n ranks into rows and columns, as square as possible, with at least as
// many columns as rows.
func rectangle(n int) (rows, columns int) {
	for rows = isqrt(n); n%rows != 0; rows-- {
	}
	return rows, n / rows
}

// box divides n ranks among three axes, as evenly as possible.
func box(n int) (sides [3]int) {
	best := -1
	for a := 1; a*a*a <= n; a++ {
		if n%a != 0 {
			continue
		}
		b, c := rectangle(n / a)
		if surface := a*b + b*c + a*c; best < 0 || surface < best {
			best, sides = surface, [3]int{c, b, a}
		}
	}
	return sides
}

// torus is a rank's position on a periodic grid of ranks.
type torus struct {
	sides [3]int
	at    [3]int
}

// newTorus returns the position of a rank in a torus of ranks.
func newTorus(sides [3]int, rank int) torus {
	return torus{sides, [3]int{rank % sides[0], rank / sides[0] % sides[1], rank / (sides[0] * sides[1])}}
}

// neighbour is the rank at some steps along an axis.
func (t torus) neighbour(axis, steps int) int {
	at := t.at
	at[axis] = (at[axis] + steps + t.sides[axis]) % t.sides[axis]
	return at[0] + t.sides[0]*(at[1]+t.sides[1]*at[2])
}

// partner is a neighbour and its direction: twice the axis, plus one for the positive
// direction.
type partner struct{ rank, direction int }

// partners returns the neighbours on all axes with more than one rank. On an axis of two
// ranks both directions lead to the same rank.
func (t torus) partners() (all []partner) {
	for axis, side := range t.sides {
		if side > 1 {
			all = append(all, partner{t.neighbour(axis, -1), 2 * axis}, partner{t.neighbour(axis, 1), 2*axis + 1})
		}
	}
	return all
}
