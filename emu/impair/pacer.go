// Package impair impairs packets: it drops, duplicates, delays, reorders, corrupts, truncates,
// ECN-marks and rate-limits them, at random with the rates of a [Spec], or exactly as an [Event]
// says ("drop PSN 7 of flow 0x11 at its second transmission").
//
// A [Pipe] applies both to one direction of one link. It reads no clock (now is an argument), has
// no random generator (a [Source] per kind of impairment is passed in) and knows no protocol (a
// [Dissector] does). The simulated links and the user-space switch share it.
//
// A Pipe impairs the UDP payload and the fields of a [link.Datagram]. Lower-layer checksums
// (Ethernet FCS, IPv4 header) are taken to be correct afterwards, as when a switch damages a
// packet: only end-to-end checks such as the ICRC detect it.
//
// Every enabled kind draws the same count of random numbers for each packet,
// from its own stream, whatever the other kinds do to the packet. Enabling or
// disabling one kind does not change the decisions of the others.
//
// A Pipe is not safe for concurrent use; its driver owns it.
package impair

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Pacer serializes bytes at an exact rate: fractions of a nanosecond carry over to the next packet,
// so that N bytes sent back to back take N*8/rate to the nanosecond, however they are split. The
// zero value has no limit.
type Pacer struct {
	RateBps       uint64
	lastDeparture mono.Time // of the last byte
	remainder     uint64    // nanobits that rounding left out of lastDeparture
	last          duration  // of the last bytes, because packets often have equal sizes
}

// duration is the time of n bytes at a rate: whole nanoseconds, and the nanobits that are left.
type duration struct {
	rate             uint64
	n                int
	whole, remaining uint64
}

const nanobitsPerByte = 8e9 // divided by a rate in b/s, this is nanoseconds

// Next appends n bytes to the backlog at now, and returns the time, in whole nanoseconds, at which
// the last one leaves: now if RateBps is 0, which means no limit. The fraction of a nanosecond is
// added to the time of the next bytes.
func (p *Pacer) Next(now mono.Time, n int) mono.Time {
	if p.RateBps == 0 {
		return now
	}
	if p.lastDeparture < now {
		p.lastDeparture, p.remainder = now, 0
	}
	if d := &p.last; d.n != n || d.rate != p.RateBps {
		nanobits := uint64(n) * nanobitsPerByte // wraps if n is more than 2 GB
		*d = duration{p.RateBps, n, nanobits / p.RateBps, nanobits % p.RateBps}
	}
	p.lastDeparture += mono.Time(p.last.whole)
	if p.remainder += p.last.remaining; p.remainder >= p.RateBps {
		p.lastDeparture += mono.Time(p.remainder / p.RateBps) // 1, or more if the rate was higher before
		p.remainder %= p.RateBps
	}
	return p.lastDeparture
}

// Backlog returns how many of the bytes given to Next have not left at now, rounded up. It counts
// nanobits: those that leave until lastDeparture, a 128-bit product, and p.remainder, which Next
// left when it rounded lastDeparture down.
func (p *Pacer) Backlog(now mono.Time) int64 {
	if p.lastDeparture <= now || p.RateBps == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(p.lastDeparture-now), p.RateBps)
	lo, carry := bits.Add64(lo, p.remainder+nanobitsPerByte-1, 0)
	n, _ := bits.Div64(hi+carry, lo, nanobitsPerByte)
	return int64(n)
}

// Reset discards the backlog.
func (p *Pacer) Reset() { *p = Pacer{RateBps: p.RateBps} }

// NewRand returns a random stream that depends only on seed and name. The simulation and the
// user-space switch use the same names, so that both lose, delay and damage the same packets.
func NewRand(seed uint64, name string) *rand.Rand {
	key := binary.BigEndian.AppendUint64(nil, seed)
	sum := sha256.Sum256(append(key, name...))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// RandSources returns the source argument of NewPipe for one direction of one port: the stream of a
// kind is named "place/kind". Package sim uses the places "net/port/up" and "net/port/down".
func RandSources(seed uint64, place string) func(kind string) Source {
	return func(kind string) Source { return NewRand(seed, place+"/"+kind) }
}
