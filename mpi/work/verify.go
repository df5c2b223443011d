package work

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// VerificationError is data that differs from the expected data.
type VerificationError struct {
	Workload string
	Rank     int    // that detected it
	Place    string // message and byte, or element of the result
	Want     string
	Got      string
}

func (e *VerificationError) Error() string {
	return fmt.Sprintf("%s: rank %d: wrong data: %s: want %s, got %s", e.Workload, e.Rank, e.Place, e.Want, e.Got)
}

// failVerification ends the workload with a VerificationError.
func (j *job) failVerification(want, got any, place string, args ...any) {
	check(&VerificationError{Workload: j.name, Rank: j.Rank(), Place: fmt.Sprintf(place, args...), Want: fmt.Sprint(want), Got: fmt.Sprint(got)})
}

// checkEqual checks that two numbers are equal.
func (j *job) checkEqual(want, got uint64, place string, args ...any) {
	j.countChecks(1, 8)
	if want != got {
		j.failVerification(want, got, place, args...)
	}
}

// exactly is the bound of numbers that must be equal to the bit.
const exactly = 0

// checkWithin checks that two numbers differ by at most bound. A NaN fails the check.
func (j *job) checkWithin(want, got, bound float64, place string, args ...any) {
	if !j.withinBound(want, got, bound) {
		j.failVerification(want, got, place, args...)
	}
}

// checkSmall checks that the absolute value of a number is at most bound.
func (j *job) checkSmall(got, bound float64, place string, args ...any) {
	if !j.withinBound(0, got, bound) {
		j.failVerification(fmt.Sprintf("at most %.4g", bound), got, place, args...)
	}
}

// withinBound counts a comparison and reports whether two numbers differ by at most bound. It
// allocates nothing: loops over all numbers of a problem use it instead of checkWithin.
func (j *job) withinBound(want, got, bound float64) bool {
	j.countChecks(1, 8)
	return math.Abs(want-got) <= bound
}

// countChecks counts n comparisons of bytes bytes in total.
func (j *job) countChecks(n, bytes int) {
	j.checks += uint64(n)
	j.verified += uint64(bytes)
}

// digestSent adds the digest of a message, and digestReceived subtracts it: at the end the sum over
// all ranks must be 0. That detects errors that rounding hides in the result.
func (j *job) digestSent(to int, buf []byte) { j.digestBalance += messageDigest(j.Rank(), to, buf) }

// digestReceived subtracts the digest of a received message from the balance, to which the sender
// has added it: at the end the sum over all ranks must be 0.
func (j *job) digestReceived(from int, buf []byte) {
	j.digestBalance -= messageDigest(from, j.Rank(), buf)
}

// messageDigest returns a hash of a message's bytes, length, source and destination.
func messageDigest(from, to int, buf []byte) uint64 {
	k := key(uint64(from), uint64(to), uint64(len(buf)))
	for ; len(buf) >= 8; buf = buf[8:] {
		k = mix(k ^ binary.LittleEndian.Uint64(buf))
	}
	for _, b := range buf {
		k = mix(k ^ uint64(b))
	}
	return k
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// key returns a hash of numbers, from which mix and uniform make random data.
func key(parts ...uint64) uint64 {
	k := uint64(0x243f6a8885a308d3) // digits of π
	for _, p := range parts {
		k = mix(k ^ p)
	}
	return k
}

// uniform converts 64 random bits to a random number between -1 and 1.
func uniform(x uint64) float64 { return float64(int64(x)>>11) / (1 << 52) }

// messageKey is the key of the contents of a message: number distinguishes those between two ranks.
func (j *job) messageKey(from, to, number int) uint64 {
	return key(j.p.Seed, uint64(from), uint64(to), uint64(number))
}

// fill fills a buffer with random bytes that follow from the key k.
func fill(buf []byte, k uint64) {
	for ; len(buf) >= 8; buf, k = buf[8:], k+1 {
		binary.LittleEndian.PutUint64(buf, mix(k))
	}
	for i, x := 0, mix(k); i < len(buf); i, x = i+1, x>>8 {
		buf[i] = byte(x)
	}
}

// firstDifference returns the offset of the first byte that differs from those that fill writes for
// the key k, and the expected byte; -1 if there is none.
func firstDifference(buf []byte, k uint64) (at int, want byte) {
	rest := buf
	for ; len(rest) >= 8 && binary.LittleEndian.Uint64(rest) == mix(k); rest, k = rest[8:], k+1 {
	}
	for i, x := 0, mix(k); i < min(len(rest), 8); i, x = i+1, x>>8 {
		if rest[i] != byte(x) {
			return len(buf) - len(rest) + i, byte(x)
		}
	}
	return -1, 0
}

// checkContents checks that a buffer has the bytes that fill writes for the key k.
func (j *job) checkContents(buf []byte, k uint64, place string, args ...any) {
	j.countChecks(1, len(buf))
	if at, want := firstDifference(buf, k); at >= 0 {
		j.failVerification(fmt.Sprintf("%#02x", want), fmt.Sprintf("%#02x", buf[at]), place+", byte %d of %d", append(args, at, len(buf))...)
	}
}

// checkBytes checks that two buffers are equal.
func (j *job) checkBytes(want, got []byte, place string, args ...any) {
	j.countChecks(1, len(want))
	for i := range want {
		if want[i] != got[i] {
			j.failVerification(fmt.Sprintf("%#02x", want[i]), fmt.Sprintf("%#02x", got[i]), place+", byte %d of %d", append(args, i, len(want))...)
		}
	}
}

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

// partStart is the index of the first element of part i, if whole elements are divided into n
// nearly equal parts.
func partStart(whole, n, i int) int { return whole * i / n }

// rectangle divides n ranks into rows and columns, as square as possible, with rows <= columns.
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

// partner is a neighbour and its direction: twice the axis, plus one if positive.
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
