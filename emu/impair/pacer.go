package impair

import (
	"math/bits"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Pacer passes bytes one after the other at a rate, exactly: the part of a
// nanosecond that one packet leaves over counts for the next, so N bytes sent
// back to back take N*8/rate to the nanosecond however they are cut. The zero
// value has no limit.
type Pacer struct {
	RateBps uint64
	free    mono.Time // when the last byte has left
	over    uint64    // what is left over, in 1/RateBps nanoseconds
}

// Next returns when n more bytes, offered now, have left.
func (p *Pacer) Next(now mono.Time, n int) mono.Time {
	if p.RateBps == 0 {
		return now
	}
	if p.free < now {
		p.free, p.over = now, 0
	}
	p.over += uint64(n) * 8 * 1e9 // 2 GB at most before this wraps
	p.free += mono.Time(p.over / p.RateBps)
	p.over %= p.RateBps
	return p.free
}

// Backlog returns how many bytes offered so far have not left at now, rounded up.
func (p *Pacer) Backlog(now mono.Time) int64 {
	if p.free <= now || p.RateBps == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(p.free-now), p.RateBps)
	lo, carry := bits.Add64(lo, p.over+8e9-1, 0)
	n, _ := bits.Div64(hi+carry, lo, 8e9)
	return int64(n)
}

// SetRate changes the rate, for what is offered from now on.
func (p *Pacer) SetRate(bps uint64) { p.RateBps, p.over = bps, 0 }

// Reset forgets what has not left.
func (p *Pacer) Reset() { p.free, p.over = 0, 0 }
