package work

import (
	"encoding/binary"
	"fmt"
	"math"
)

// VerificationError is data that is not what it must be.
type VerificationError struct {
	Workload string
	Rank     int    // who found it
	Place    string // where: which message and byte, or which element of the answer
	Want     string
	Got      string
}

func (e *VerificationError) Error() string {
	return fmt.Sprintf("%s: rank %d: wrong data: %s: want %s, got %s", e.Workload, e.Rank, e.Place, e.Want, e.Got)
}

// wrong makes the error of a place.
func (j *job) wrong(want, got any, place string, args ...any) error {
	return &VerificationError{Workload: j.name, Rank: j.Rank(), Place: fmt.Sprintf(place, args...), Want: fmt.Sprint(want), Got: fmt.Sprint(got)}
}

// same checks one number, exactly.
func (j *job) same(want, got uint64, place string, args ...any) error {
	j.checked(1, 8)
	if want != got {
		return j.wrong(want, got, place, args...)
	}
	return nil
}

// alike counts a comparison of two numbers and reports whether they differ by no more
// than a bound. One that is not a number is like none.
func (j *job) alike(want, got, bound float64) bool {
	j.checked(1, 8)
	return math.Abs(want-got) <= bound
}

// checked counts comparisons.
func (j *job) checked(n, bytes int) {
	j.checks += uint64(n)
	j.verified += uint64(bytes)
}

// left and came keep account of messages that are only looked at in the answer they lead
// to, where what is wrong in a last digit does not show: in the end as much has come as
// was sent, byte by byte.
func (j *job) left(to int, buf []byte) { j.account += messageDigest(j.Rank(), to, buf) }

func (j *job) came(from int, buf []byte) { j.account -= messageDigest(from, j.Rank(), buf) }

// messageDigest is a number that differs if any byte of a message does.
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

// mix makes a number of another that looks like chance (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// key makes one number of several.
func key(parts ...uint64) uint64 {
	k := uint64(0x243f6a8885a308d3)
	for _, p := range parts {
		k = mix(k ^ p)
	}
	return k
}

// unit makes a number between -1 and 1 of one that looks like chance.
func unit(x uint64) float64 { return float64(int64(x)>>11) / (1 << 52) }

// message is the key of a message's contents.
func (j *job) message(from, to, number int) uint64 {
	return key(j.p.Seed, uint64(from), uint64(to), uint64(number))
}

// fill writes the contents that belong to a key.
func fill(buf []byte, k uint64) {
	for ; len(buf) >= 8; buf, k = buf[8:], k+1 {
		binary.LittleEndian.PutUint64(buf, mix(k))
	}
	for i, x := 0, mix(k); i < len(buf); i, x = i+1, x>>8 {
		buf[i] = byte(x)
	}
}

// firstWrong is where a buffer has not what fill wrote, and what that was; -1 if nowhere.
func firstWrong(buf []byte, k uint64) (at int, want byte) {
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

// contents checks that a buffer has what fill wrote.
func (j *job) contents(buf []byte, k uint64, place string, args ...any) error {
	j.checked(1, len(buf))
	if at, want := firstWrong(buf, k); at >= 0 {
		return j.wrong(fmt.Sprintf("%#02x", want), fmt.Sprintf("%#02x", buf[at]), place+", byte %d of %d", append(args, at, len(buf))...)
	}
	return nil
}

// equal checks that a buffer has the same bytes as another.
func (j *job) equal(want, got []byte, place string, args ...any) error {
	j.checked(1, len(want))
	for i := range want {
		if want[i] != got[i] {
			return j.wrong(fmt.Sprintf("%#02x", want[i]), fmt.Sprintf("%#02x", got[i]), place+", byte %d of %d", append(args, i, len(want))...)
		}
	}
	return nil
}
