package engine

import (
	"fmt"
	"math"
	"time"
)

// alphaOne is 1 in the fixed-point format of alpha and its gain, with 30 fractional bits.
// Rounding errors of alpha add up over 1/G steps, and stay negligible.
const alphaOne = 1 << 30

// Limits of CongestionParams. They keep every product within 64 bits.
const (
	maxRateBps     = 10e12
	maxCatchUp     = 100 * time.Microsecond
	maxByteCounter = 1 << 40
	// HandleTimer catches up period by period: the ratio of the longest to the shortest
	// bounds how long that takes.
	minPeriod = time.Microsecond
	maxPeriod = time.Second
)

// CongestionParams are the constants of the reaction point. All QPs of a device share one
// set; it must not change while a limiter is active.
type CongestionParams struct {
	// MinRateBps is the lowest rate that CNPs can cause.
	MinRateBps uint64
	// MaxRateBps is the line rate: where a QP starts and where it recovers to.
	MaxRateBps uint64
	// G is the gain of alpha, in units of 1/alphaOne.
	G uint32
	// AlphaInterval is the time without a CNP after which alpha decays by a step. It must
	// exceed the peer's CNP interval, or alpha decays under congestion.
	AlphaInterval time.Duration
	// IncreaseInterval is the period of the timer that raises the rate.
	IncreaseInterval time.Duration
	// ByteCounter is the number of bytes sent after which the rate is raised as well, so
	// that fast flows recover faster.
	ByteCounter uint64
	// FastRecovery is the number of steps of timer or byte counter that only recover the
	// rate before the cut; later steps exceed it.
	FastRecovery uint32
	// RateAIBps is the step of additive increase.
	RateAIBps uint64
	// RateHAIBps is the first step of hyper increase; the i-th is i times it.
	RateHAIBps uint64
	// MinDecInterval is the time after a cut during which further CNPs are ignored.
	MinDecInterval time.Duration
	// CatchUp is how late a packet may be sent without loss of rate: the next may follow
	// that much earlier. It is for drivers that do not wake exactly on time.
	CatchUp time.Duration
}

// defaultCongestionParams returns the published constants for the given line rate. The publication
// does not define the minimum rate and hyper increase. The minimum rate here sends a 4 KiB
// packet every 3.3 ms, well within common ACK timeouts; hyper increase is ten times
// additive increase, as in the defaults of NICs.
func defaultCongestionParams(lineBps uint64) CongestionParams {
	return CongestionParams{
		MinRateBps:       min(10e6, lineBps),
		MaxRateBps:       lineBps,
		G:                alphaOne / 256,
		AlphaInterval:    55 * time.Microsecond,
		IncreaseInterval: 55 * time.Microsecond,
		ByteCounter:      10e6,
		FastRecovery:     5,
		RateAIBps:        40e6,
		RateHAIBps:       400e6,
		MinDecInterval:   4 * time.Microsecond,
	}
}

// Validate returns an error for the first constant with which the algorithm would divide
// by zero, never recover or overflow.
func (p *CongestionParams) Validate() error {
	for _, f := range []struct {
		name                string
		value, lowest, most uint64
	}{
		{"MaxRateBps", p.MaxRateBps, 1, maxRateBps},
		{"MinRateBps", p.MinRateBps, 1, p.MaxRateBps},
		{"G", uint64(p.G), 1, alphaOne},
		{"AlphaInterval", uint64(p.AlphaInterval), uint64(minPeriod), uint64(maxPeriod)},
		{"IncreaseInterval", uint64(p.IncreaseInterval), uint64(minPeriod), uint64(maxPeriod)},
		{"ByteCounter", p.ByteCounter, 1, maxByteCounter},
		{"RateAIBps", p.RateAIBps, 1, maxRateBps},
		{"RateHAIBps", p.RateHAIBps, 1, maxRateBps},
		{"MinDecInterval", uint64(p.MinDecInterval), 0, math.MaxInt64},
		{"CatchUp", uint64(p.CatchUp), 0, uint64(maxCatchUp)},
	} {
		if f.value < f.lowest || f.value > f.most {
			return fmt.Errorf("dcqcn: %s is %d, want %d to %d", f.name, int64(f.value), f.lowest, f.most)
		}
	}
	return nil
}
