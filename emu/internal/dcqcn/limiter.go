// Package dcqcn is the rate control of RoCEv2 congestion management as published
// by Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM
// 2015): the reaction point of one sending QP (Limiter) and the notification
// point of one receiving flow (Notifier).
//
// Neither knows packets, sockets or clocks: what happened, and now, go in; the
// time at which the next packet may leave comes out. Arithmetic is on integers
// only, so a run is the same on every machine. Marking is the switch's affair.
//
// Both are plain values owned by one driver, and not safe for concurrent use.
package dcqcn

import (
	"math"
	"math/bits"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// nanobits is a number of bits in units of 1e-9: what a rate of 1 bit a second
// passes in a nanosecond. In this unit pacing needs no rounding.
type nanobits = int64

const (
	nanobitsPerByte nanobits = 8e9
	maxDebt         nanobits = math.MaxInt64 / 2
)

// Limiter is the reaction point of one QP. The zero value is idle: it sets no
// limit. The first CNP makes it active, and when the rate is back at the line
// rate it is the zero value again, alpha's memory included.
//
// Each method that takes the time first catches up on the timers due by then,
// so that a timer handled late, or not at all, changes no result.
type Limiter struct {
	active bool
	// The two stages count rate increases since the last cut, by cause.
	timeStage, byteStage uint32
	// alpha estimates how congested the path is, 0 to One.
	alpha uint32
	// rate is the present rate, target the one it returns to; in bits a second.
	rate, target uint64
	bytes        uint64 // sent towards the next step of byteStage
	cutAt        mono.Time
	decayAt      mono.Time // next decay of alpha
	increaseAt   mono.Time // next step of timeStage

	// debt is what has been sent ahead of the rate as of paidAt; it drains at
	// rate. Negative is credit.
	debt    nanobits
	paidAt  mono.Time
	readyAt mono.Time // when debt will be, or was, zero
}

// Active reports whether the QP is limited at all.
func (l *Limiter) Active() bool { return l.active }

// RateBps is the present rate in bits a second.
func (l *Limiter) RateBps(p *Params) uint64 {
	if !l.active {
		return p.MaxRateBps
	}
	return l.rate
}

// ReadyAt is the earliest time at which the next packet may leave, possibly in
// the past; zero while the limiter is idle. Cuts move it later and increases
// earlier, also while a packet waits: ask again after every other call.
func (l *Limiter) ReadyAt() mono.Time { return l.readyAt }

// NextTimer is when HandleTimer must next be called; mono.Never if not at all.
func (l *Limiter) NextTimer() mono.Time {
	if !l.active {
		return mono.Never
	}
	return min(l.decayAt, l.increaseAt)
}

// HandleTimer does what is due by now.
func (l *Limiter) HandleTimer(now mono.Time, p *Params) {
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

// OnCNP cuts the rate: a congestion notification for this QP has arrived.
func (l *Limiter) OnCNP(now mono.Time, p *Params) {
	l.HandleTimer(now, p)
	switch {
	case !l.active:
		*l = Limiter{active: true, alpha: One, rate: p.MaxRateBps, paidAt: now}
	case now.Sub(l.cutAt) < p.MinDecInterval:
		return
	}
	l.pay(now, p)
	l.target = l.rate
	l.rate = max(l.rate-l.cut(), p.MinRateBps)
	// (1-g)·alpha + g, rounded up so that it ends at One.
	l.alpha += scaleUp(One-l.alpha, p.G)
	l.timeStage, l.byteStage, l.bytes = 0, 0, 0
	l.cutAt, l.decayAt, l.increaseAt = now, now.Add(p.AlphaInterval), now.Add(p.IncreaseInterval)
	l.schedule()
}

// cut is rate·alpha/2, the amount by which a CNP lowers the rate.
func (l *Limiter) cut() uint64 {
	hi, lo := bits.Mul64(l.rate, uint64(l.alpha))
	half, _ := bits.Div64(hi, lo, 2*One)
	return half
}

// OnSent accounts for a packet of so many bytes that leaves now, whether or not
// it waited for ReadyAt.
func (l *Limiter) OnSent(now mono.Time, bytes int, p *Params) {
	if !l.active {
		return
	}
	l.HandleTimer(now, p)
	if !l.active {
		return
	}
	l.pay(now, p)
	l.debt = min(l.debt+nanobits(min(bytes, 1<<28))*nanobitsPerByte, maxDebt)
	l.schedule()
	for l.bytes += uint64(bytes); l.active && l.bytes >= p.ByteCounter; {
		l.bytes -= p.ByteCounter
		l.byteStage++
		l.increase(now, p)
	}
}

// increase is one step up, by timer or byte counter: fast recovery while neither
// stage is past its threshold, hyper increase when both are, additive increase
// when one is.
func (l *Limiter) increase(now mono.Time, p *Params) {
	l.pay(now, p)
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
		*l = Limiter{}
		return
	}
	l.schedule()
}

// raiseTarget adds steps times stepBps to the target, up to the line rate.
func (l *Limiter) raiseTarget(steps, stepBps uint64, p *Params) {
	room := p.MaxRateBps - l.target
	if steps > room/stepBps {
		l.target = p.MaxRateBps
		return
	}
	l.target += steps * stepBps
}

// pay drains the debt at the present rate from paidAt to now. Time that passes
// without debt is lost, except for what CatchUp saves.
func (l *Limiter) pay(now mono.Time, p *Params) {
	if now <= l.paidAt {
		return
	}
	if late := now.Sub(l.readyAt); late > p.CatchUp {
		l.debt = -nanobits(l.rate) * nanobits(p.CatchUp)
	} else {
		l.debt -= nanobits(l.rate) * nanobits(now.Sub(l.paidAt))
	}
	l.paidAt = now
}

// schedule works out readyAt; debt, paidAt and rate are up to date.
func (l *Limiter) schedule() {
	wait := l.debt / nanobits(l.rate) // of credit, rounded up already
	if l.debt > 0 && l.debt%nanobits(l.rate) != 0 {
		wait++ // a packet is never early
	}
	l.readyAt = l.paidAt.Add(time.Duration(wait))
}

// scaleUp returns v·g, rounded up; both are fixed point.
func scaleUp(v, g uint32) uint32 { return uint32((uint64(v)*uint64(g) + One - 1) / One) }
