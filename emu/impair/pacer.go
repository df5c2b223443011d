package impair

import (
	"math/bits"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Pacer serializes bytes at an exact rate: fractions of a nanosecond carry over
// to the next packet, so that N bytes sent back to back take N*8/rate to the
// nanosecond, however they are split. The zero value has no limit.
type Pacer struct {
	RateBps       uint64
	lastDeparture mono.Time // of the last byte
	remainder     uint64    // in 1/RateBps nanoseconds
}

// Next returns when n more bytes, sent now, have left.
func (p *Pacer) Next(now mono.Time, n int) mono.Time {
	if p.RateBps == 0 {
		return now
	}
	if p.lastDeparture < now {
		p.lastDeparture, p.remainder = now, 0
	}
	p.remainder += uint64(n) * 8 * 1e9 // 2 GB at most before this wraps
	p.lastDeparture += mono.Time(p.remainder / p.RateBps)
	p.remainder %= p.RateBps
	return p.lastDeparture
}

// Backlog returns how many bytes have not left at now, rounded up.
func (p *Pacer) Backlog(now mono.Time) int64 {
	if p.lastDeparture <= now || p.RateBps == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(p.lastDeparture-now), p.RateBps)
	lo, carry := bits.Add64(lo, p.remainder+8e9-1, 0)
	n, _ := bits.Div64(hi+carry, lo, 8e9)
	return int64(n)
}

// SetRate changes the rate of later packets.
func (p *Pacer) SetRate(bps uint64) { p.RateBps, p.remainder = bps, 0 }

// Reset discards the backlog.
func (p *Pacer) Reset() { p.lastDeparture, p.remainder = 0, 0 }
