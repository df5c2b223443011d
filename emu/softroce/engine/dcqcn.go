package engine

// DCQCN is the rate control of RoCEv2, as published by Zhu et al., "Congestion Control for
// Large-Scale RDMA Deployments" (SIGCOMM 2015). A rateLimiter is the reaction point of one
// sending QP, a cnpNotifier the notification point of one receiving flow. Switches set the
// marks; see package sim. All arithmetic is on integers.

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
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

// defaultCongestionParams returns the published constants of DCQCN for the given line rate. The
// publication does not define the minimum rate and hyper increase. The minimum rate here sends a 4
// KiB packet every 3.3 ms, well within common ACK timeouts; hyper increase is ten times additive
// increase, as in the defaults of NICs.
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
		name            string
		value, min, max uint64
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
		if f.value < f.min || f.value > f.max { // a negative duration is a huge value
			return fmt.Errorf("dcqcn: %s is %d, want %d to %d", f.name, int64(f.value), f.min, f.max)
		}
	}
	return nil
}

// nanobits is 1e-9 bits: what a rate of 1 bit per second sends in a nanosecond. In this
// unit pacing needs no rounding.
type nanobits = int64

const (
	nanobitsPerByte nanobits = 8e9
	maxDebt         nanobits = math.MaxInt64 / 2
)

// rateLimiter is the reaction point of one QP. The zero value is idle: it sets no limit. The
// first CNP makes it active. When the rate is back at the line rate, it is reset to the
// zero value, alpha included.
//
// Each method with a time argument first handles the timers that expired before, so that
// results do not depend on when HandleTimer is called.
type rateLimiter struct {
	active bool // the QP is limited at all
	// Rate increases since the last cut, by the timer and by the byte counter.
	timeStage, byteStage uint32
	// alpha estimates how congested the path is, 0 to alphaOne.
	alpha uint32
	// rate is the current rate, target the rate that it recovers to, in bits per second.
	rate, target uint64
	bytes        uint64 // bytes sent since the last step of byteStage
	lastCutAt    mono.Time
	decayAt      mono.Time // next decay of alpha
	increaseAt   mono.Time // next step of timeStage

	// debt is how much was sent ahead of the rate as of drainedAt; it drains at rate. A
	// negative debt is a credit.
	debt      nanobits
	drainedAt mono.Time
	// readyAt is when debt is zero: the earliest time at which the next packet may be sent,
	// possibly in the past. Every method may change it.
	readyAt mono.Time
}

// NextTimer is when HandleTimer must be called next; mono.Never while the limiter is idle.
func (l *rateLimiter) NextTimer() mono.Time {
	if !l.active {
		return mono.Never
	}
	return min(l.decayAt, l.increaseAt)
}

// HandleTimer handles the timers that have expired by now.
func (l *rateLimiter) HandleTimer(now mono.Time, p *CongestionParams) {
	for l.active {
		at := l.NextTimer()
		if now < at {
			return
		}
		if l.decayAt == at {
			// (1-g)·alpha, rounded down so that it ends at zero.
			l.alpha -= scaleUp(l.alpha, p.G)
			l.decayAt = at.Add(p.AlphaInterval)
		}
		if l.increaseAt == at {
			l.timeStage++
			l.increaseAt = at.Add(p.IncreaseInterval)
			l.increase(at, p)
		}
	}
}

// OnCNP cuts the rate for a received CNP, unless the last cut was less than MinDecInterval ago.
func (l *rateLimiter) OnCNP(now mono.Time, p *CongestionParams) {
	l.HandleTimer(now, p)
	switch {
	case !l.active:
		*l = rateLimiter{active: true, alpha: alphaOne, rate: p.MaxRateBps, drainedAt: now}
	case now.Sub(l.lastCutAt) < p.MinDecInterval:
		return
	}
	l.drainDebt(now, p)
	l.target = l.rate
	l.rate = max(l.rate-l.rateCut(), p.MinRateBps)
	// (1-g)·alpha + g, rounded up so that it ends at alphaOne.
	l.alpha += scaleUp(alphaOne-l.alpha, p.G)
	l.timeStage, l.byteStage, l.bytes = 0, 0, 0
	l.lastCutAt, l.decayAt, l.increaseAt = now, now.Add(p.AlphaInterval), now.Add(p.IncreaseInterval)
	l.updateReadyAt()
}

// rateCut is rate·alpha/2, the amount by which a CNP lowers the rate.
func (l *rateLimiter) rateCut() uint64 {
	hi, lo := bits.Mul64(l.rate, uint64(l.alpha))
	half, _ := bits.Div64(hi, lo, 2*alphaOne)
	return half
}

// OnSent adds a packet that is sent now, even before readyAt, to the debt: the bits sent ahead of
// the rate, in units of 1e-9 bits (nanobits). The bytes sent also raise the rate.
func (l *rateLimiter) OnSent(now mono.Time, bytes int, p *CongestionParams) {
	if !l.active {
		return
	}
	l.HandleTimer(now, p)
	if !l.active {
		return
	}
	l.drainDebt(now, p)
	// The limits prevent an overflow.
	l.debt = min(l.debt+nanobits(min(bytes, 1<<28))*nanobitsPerByte, maxDebt)
	l.updateReadyAt()
	for l.bytes += uint64(bytes); l.active && l.bytes >= p.ByteCounter; {
		l.bytes -= p.ByteCounter
		l.byteStage++
		l.increase(now, p)
	}
}

// increase raises the rate by one step, of the timer or the byte counter: fast recovery while
// neither stage is past FastRecovery, additive increase when one is, hyper increase when both are.
// At MaxRateBps it ends the limit.
func (l *rateLimiter) increase(now mono.Time, p *CongestionParams) {
	l.drainDebt(now, p)
	low, high := min(l.timeStage, l.byteStage), max(l.timeStage, l.byteStage)
	switch {
	case high <= p.FastRecovery: // the target stays
	case low > p.FastRecovery:
		l.raiseTarget(uint64(low-p.FastRecovery), p.RateHAIBps, p)
	default:
		l.raiseTarget(1, p.RateAIBps, p)
	}
	l.rate += (l.target - l.rate + 1) / 2 // rounded up, or it would never arrive
	if l.rate >= p.MaxRateBps {
		*l = rateLimiter{}
		return
	}
	l.updateReadyAt()
}

// raiseTarget adds steps times stepBps to the target, up to the line rate.
func (l *rateLimiter) raiseTarget(steps, stepBps uint64, p *CongestionParams) {
	room := p.MaxRateBps - l.target
	if steps > room/stepBps {
		l.target = p.MaxRateBps
		return
	}
	l.target += steps * stepBps
}

// drainDebt reduces the debt, the bits sent ahead of the rate, by those that the rate allows until
// now. While the QP is idle, the debt becomes negative: credit for a time of at most CatchUp.
func (l *rateLimiter) drainDebt(now mono.Time, p *CongestionParams) {
	if now <= l.drainedAt {
		return
	}
	if late := now.Sub(l.readyAt); late > p.CatchUp {
		l.debt = -nanobits(l.rate) * nanobits(p.CatchUp)
	} else {
		l.debt -= nanobits(l.rate) * nanobits(now.Sub(l.drainedAt))
	}
	l.drainedAt = now
}

// updateReadyAt computes readyAt from debt, drainedAt and rate.
func (l *rateLimiter) updateReadyAt() {
	wait := l.debt / nanobits(l.rate) // division truncates toward zero, so a negative debt is already rounded up
	if l.debt > 0 && l.debt%nanobits(l.rate) != 0 {
		wait++ // round up: a packet is never early
	}
	l.readyAt = l.drainedAt.Add(time.Duration(wait))
}

// scaleUp returns v·g, rounded up; both are fixed point.
func scaleUp(v, g uint32) uint32 { return uint32((uint64(v)*uint64(g) + alphaOne - 1) / alphaOne) }

// cnpNotifier is the notification point of one flow: it decides which CE-marked packets are
// answered by a CNP, at most one per interval. The zero value has sent none.
type cnpNotifier struct {
	last mono.Time
	sent bool
}

// OnMark reports whether a marked packet that is received now is answered by a CNP. The
// first always is. An interval of zero answers every mark.
func (n *cnpNotifier) OnMark(now mono.Time, interval time.Duration) bool {
	if n.sent && now.Sub(n.last) < interval {
		return false
	}
	n.last, n.sent = now, true
	return true
}

// flow identifies a sender of UD datagrams, for which CNPs are rate limited.
type flow struct {
	peer, own netip.Addr
	qpn       uint32
}
