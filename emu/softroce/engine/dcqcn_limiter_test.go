package engine

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

const us = mono.Time(time.Microsecond)

// expectRates runs the limiter's timers and compares the rate right after each.
func expectRates(t *testing.T, l *rateLimiter, p *CongestionParams, first mono.Time, rates []uint64) {
	t.Helper()
	for i, want := range rates {
		at := first.Add(time.Duration(i) * p.IncreaseInterval)
		l.HandleTimer(at-1, p)
		before := l.RateBps(p)
		l.HandleTimer(at, p)
		if got := l.RateBps(p); got != want {
			t.Fatalf("at %v the rate changes from %d to %d, want %d", at, before, got, want)
		}
	}
}

func TestZeroRateLimiterSetsNoLimit(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnSent(5*us, 1<<20, &p)
	l.HandleTimer(1000*us, &p)
	if l != (rateLimiter{}) || l.active || l.readyAt != 0 || l.NextTimer() != mono.Never || l.RateBps(&p) != 40e9 {
		t.Errorf("idle limiter: %+v", l)
	}
}

func TestFirstCutHalvesRateAndRecoveryEndsAtLineRate(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnCNP(0, &p)
	if got := l.RateBps(&p); got != 20e9 || !l.active {
		t.Fatalf("rate %d after the first CNP, want half the line", got)
	}
	expectRates(t, &l, &p, 55*us, []uint64{
		30e9, 35e9, 37_500e6, 38_750e6, 39_375e6, // fast recovery
		39_687_500e3, // additive increase; the target is the line rate
	})
	// 20e9 is between 2^34 and 2^35: after 35 halvings the gap is 0.
	const done = 35 * 55 * us
	l.HandleTimer(done-1, &p)
	if got := l.RateBps(&p); got != 40e9-1 || !l.active {
		t.Errorf("rate %d before the last step, active %v", got, l.active)
	}
	l.HandleTimer(done, &p)
	if l != (rateLimiter{}) {
		t.Errorf("recovered limiter differs from a new one: %+v", l)
	}
}

func TestAdditiveIncreaseFollowsFastRecovery(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnCNP(0, &p)
	l.OnCNP(50*us, &p) // before alpha's first decay: halves again
	if got := l.RateBps(&p); got != 10e9 {
		t.Fatalf("rate %d after two CNPs, want a quarter of the line", got)
	}
	expectRates(t, &l, &p, 105*us, []uint64{
		15e9, 17_500e6, 18_750e6, 19_375e6, 19_687_500e3, // towards 20 Gb/s
		19_863_750e3, // towards 20.04
		19_971_875e3, // towards 20.08
		20_045_937_500,
	})
}

func TestCutFollowsAlpha(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnCNP(0, &p)
	if l.alpha != alphaOne {
		t.Fatalf("alpha is %d after the first CNP, want 1.0", l.alpha)
	}
	// Three decays by 1/256, each rounded down.
	l.HandleTimer(165*us, &p)
	if l.alpha != 1061208000 {
		t.Fatalf("alpha is %d after three decays", l.alpha)
	}
	l.OnCNP(200*us, &p)
	// 37.5e9 · (1 - 1061208000/2^31), and alpha + ceil((2^30-1061208000)/256).
	if got := l.RateBps(&p); got != 18968869374 {
		t.Errorf("rate %d", got)
	}
	if l.target != 37_500e6 {
		t.Errorf("target %d, want the rate before the cut", l.target)
	}
	if l.alpha != 1061256961 {
		t.Errorf("alpha %d", l.alpha)
	}
}

func TestAlphaReachesZeroAndOne(t *testing.T) {
	p := defaultCongestionParams(maxRateBps)
	p.RateAIBps = 1 // stay active
	var l rateLimiter
	l.OnCNP(0, &p)
	l.OnCNP(10*us, &p)
	for range 10_000 {
		l.HandleTimer(l.NextTimer(), &p)
	}
	if l.alpha != 0 || !l.active {
		t.Fatalf("alpha %d after 10000 decays, active %v", l.alpha, l.active)
	}
	rate := l.RateBps(&p)
	now := l.NextTimer() - 1
	if l.OnCNP(now, &p); l.RateBps(&p) != rate {
		t.Errorf("with alpha 0 a CNP cut %d to %d", rate, l.RateBps(&p))
	}
	for range 10_000 {
		now += 10 * us
		l.OnCNP(now, &p)
	}
	if l.alpha != alphaOne {
		t.Errorf("alpha %d after 10000 CNPs, want 1.0", l.alpha)
	}
}

func TestByteCounterRaisesRate(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnCNP(0, &p)
	for i, want := range []uint64{30e9, 35e9, 37_500e6, 38_750e6, 39_375e6} {
		l.OnSent(us, int(p.ByteCounter)-1, &p)
		before := l.RateBps(&p)
		l.OnSent(us, 1, &p)
		if got := l.RateBps(&p); got != want || before == want {
			t.Fatalf("step %d: rate %d, then %d, want %d", i, before, got, want)
		}
	}
	// One large send may cause several steps and lift the limit.
	l.OnSent(us, 30*int(p.ByteCounter), &p)
	if l != (rateLimiter{}) {
		t.Errorf("still limited: %+v", l)
	}
}

func TestHyperIncreaseNeedsTimerAndByteCounter(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnCNP(0, &p)
	l.OnCNP(50*us, &p)  // target 20 Gb/s
	l.OnCNP(100*us, &p) // target 10 Gb/s; alpha has not decayed
	if l.target != 10e9 {
		t.Fatalf("target %d", l.target)
	}
	for range 6 { // five steps of fast recovery, one of additive increase
		l.OnSent(101*us, int(p.ByteCounter), &p)
	}
	if l.target != 10_040e6 {
		t.Fatalf("target %d after 6 steps by bytes alone", l.target)
	}
	at := 100 * us
	step := func() { at = at.Add(p.IncreaseInterval); l.HandleTimer(at, &p) }
	for range 5 { // by timer, not past its threshold yet: additive
		step()
	}
	if l.target != 10_240e6 {
		t.Fatalf("target %d after 5 steps by timer", l.target)
	}
	step() // both stages at 6: first hyper step
	if l.target != 10_640e6 {
		t.Errorf("target %d after the first hyper step, want 400 Mb/s more", l.target)
	}
	step() // 7 and 6: still the first
	if l.target != 11_040e6 {
		t.Errorf("target %d, want 400 Mb/s more", l.target)
	}
	l.OnSent(at, int(p.ByteCounter), &p) // both at 7: twice the step
	if l.target != 11_840e6 {
		t.Errorf("target %d, want 800 Mb/s more", l.target)
	}
	l.OnCNP(at+10*us, &p) // a cut restarts fast recovery
	before := l.target
	l.OnSent(at+10*us, int(p.ByteCounter), &p)
	if l.target != before {
		t.Errorf("target moved from %d to %d in fast recovery", before, l.target)
	}
}

func TestCutRestartsTimerAndByteCounter(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnCNP(0, &p)
	l.OnSent(30*us, int(p.ByteCounter)-1, &p)
	l.OnCNP(54*us, &p)
	l.OnSent(54*us, 1, &p)
	l.HandleTimer(108*us, &p)
	if got := l.RateBps(&p); got != 10e9 {
		t.Errorf("rate %d: a step before the cut was counted", got)
	}
	if got := l.NextTimer(); got != 109*us {
		t.Errorf("next timer at %v, want 55µs after the cut", got)
	}
}

func TestCNPsWithinMinDecIntervalAreIgnored(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	l.OnCNP(10*us, &p)
	after := l
	l.OnCNP(10*us, &p)
	l.OnCNP(14*us-1, &p)
	if l != after {
		t.Errorf("a CNP within %v of the cut changed the limiter", p.MinDecInterval)
	}
	l.OnCNP(14*us, &p)
	if got := l.RateBps(&p); got != 10e9 {
		t.Errorf("rate %d: a CNP %v after the cut must cut again", got, p.MinDecInterval)
	}
}

func TestCNPsDoNotCutBelowMinRate(t *testing.T) {
	p := defaultCongestionParams(100e9)
	var l rateLimiter
	var now mono.Time
	for range 1000 {
		now += 10 * us
		l.OnCNP(now, &p)
		if got := l.RateBps(&p); got < p.MinRateBps {
			t.Fatalf("rate %d is below the minimum", got)
		}
	}
	if got := l.RateBps(&p); got != p.MinRateBps {
		t.Fatalf("rate %d under steady congestion, want the minimum", got)
	}
	// From the minimum, without traffic, only additive increase raises the rate: 100 Gb/s by
	// 40 Mb/s each 55 µs takes 2500 steps, and 31 more halve the rest.
	steps := 0
	for l.active {
		now = l.NextTimer()
		l.HandleTimer(now, &p)
		if steps++; steps > 2600 {
			t.Fatalf("not recovered after %d steps: rate %d", steps, l.RateBps(&p))
		}
	}
	if steps < 2500 {
		t.Errorf("recovered after %d steps only", steps)
	}
}

func TestLimiterDoesNotAllocate(t *testing.T) {
	p := defaultCongestionParams(40e9)
	var l rateLimiter
	var now mono.Time
	if n := testing.AllocsPerRun(1000, func() {
		now += 10 * us
		l.OnCNP(now, &p)
		l.OnSent(now, 4096, &p)
		l.HandleTimer(now, &p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOnSent(b *testing.B) {
	p := defaultCongestionParams(100e9)
	for name, cnp := range map[string]bool{"idle": false, "active": true} {
		b.Run(name, func(b *testing.B) {
			var l rateLimiter
			for i := range b.N {
				if cnp && i%1024 == 0 {
					l.OnCNP(l.readyAt, &p)
				}
				l.OnSent(l.readyAt, 4096, &p)
			}
		})
	}
}
