package dcqcn

import (
	"fmt"
	"time"
)

// One is 1 in the fixed-point format of alpha and its gain, with 30 fractional bits.
// Rounding errors of alpha add up over 1/G steps, and stay negligible.
const One = 1 << 30

// DefaultCNPInterval is the published minimum time between two CNPs of one flow.
const DefaultCNPInterval = 50 * time.Microsecond

// Limits of Params. They keep every product within 64 bits.
const (
	maxRateBps     = 10e12
	maxCatchUp     = 100 * time.Microsecond
	maxByteCounter = 1 << 40
	// HandleTimer catches up period by period: the ratio of the longest to the shortest
	// bounds how long that takes.
	minPeriod = time.Microsecond
	maxPeriod = time.Second
)

// Params are the constants of the reaction point. All QPs of a device share one
// set; it must not change while a limiter is active.
type Params struct {
	// MinRateBps is the lowest rate that CNPs can cause.
	MinRateBps uint64
	// MaxRateBps is the line rate: where a QP starts and where it recovers to.
	MaxRateBps uint64
	// G is the gain of alpha, in units of 1/One.
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

// DefaultParams returns the published constants for the given line rate. The publication
// does not define the minimum rate and hyper increase. The minimum rate here sends a 4 KiB
// packet every 3.3 ms, well within common ACK timeouts; hyper increase is ten times
// additive increase, as in the defaults of NICs.
func DefaultParams(lineBps uint64) Params {
	return Params{
		MinRateBps:       min(10e6, lineBps),
		MaxRateBps:       lineBps,
		G:                One / 256,
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
func (p *Params) Validate() error {
	switch {
	case p.MaxRateBps == 0 || p.MaxRateBps > maxRateBps:
		return fmt.Errorf("dcqcn: MaxRateBps is %d, want 1 to %d", p.MaxRateBps, uint64(maxRateBps))
	case p.MinRateBps == 0 || p.MinRateBps > p.MaxRateBps:
		return fmt.Errorf("dcqcn: MinRateBps is %d, want 1 to MaxRateBps, %d", p.MinRateBps, p.MaxRateBps)
	case p.G == 0 || p.G > One:
		return fmt.Errorf("dcqcn: G is %d, want 1 to %d (1.0)", p.G, One)
	case p.AlphaInterval < minPeriod || p.AlphaInterval > maxPeriod:
		return fmt.Errorf("dcqcn: AlphaInterval is %v, want %v to %v", p.AlphaInterval, minPeriod, maxPeriod)
	case p.IncreaseInterval < minPeriod || p.IncreaseInterval > maxPeriod:
		return fmt.Errorf("dcqcn: IncreaseInterval is %v, want %v to %v", p.IncreaseInterval, minPeriod, maxPeriod)
	case p.ByteCounter == 0 || p.ByteCounter > maxByteCounter:
		return fmt.Errorf("dcqcn: ByteCounter is %d, want 1 to %d", p.ByteCounter, uint64(maxByteCounter))
	case p.RateAIBps == 0 || p.RateAIBps > maxRateBps:
		return fmt.Errorf("dcqcn: RateAIBps is %d, want 1 to %d", p.RateAIBps, uint64(maxRateBps))
	case p.RateHAIBps == 0 || p.RateHAIBps > maxRateBps:
		return fmt.Errorf("dcqcn: RateHAIBps is %d, want 1 to %d", p.RateHAIBps, uint64(maxRateBps))
	case p.MinDecInterval < 0:
		return fmt.Errorf("dcqcn: MinDecInterval is %v, want 0 or more", p.MinDecInterval)
	case p.CatchUp < 0 || p.CatchUp > maxCatchUp:
		return fmt.Errorf("dcqcn: CatchUp is %v, want 0 to %v", p.CatchUp, maxCatchUp)
	}
	return nil
}
