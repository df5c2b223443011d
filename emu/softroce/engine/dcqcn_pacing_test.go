package engine

import (
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// steadyLimiter returns a limiter that was cut to rateBps at time 0, and keeps that rate for a
// second.
func steadyLimiter(rateBps uint64) (rateLimiter, CongestionParams) {
	p := defaultCongestionParams(2 * rateBps)
	p.IncreaseInterval, p.ByteCounter = time.Second, maxByteCounter
	var l rateLimiter
	l.OnCNP(0, &p)
	return l, p
}

// wireTimeOf is the time that n bytes take at rateBps, rounded up.
func wireTimeOf(bytes int, rateBps uint64) mono.Time {
	n := new(big.Int).Mul(big.NewInt(int64(bytes)), big.NewInt(8e9))
	rate := new(big.Int).SetUint64(rateBps)
	n.Add(n, rate).Sub(n, big.NewInt(1))
	return mono.Time(n.Div(n, rate).Int64())
}

func TestPacingIsExactOverManyPackets(t *testing.T) {
	for _, rate := range []uint64{1e9, 3_500e6, 12_345_678_901, 99_999_999_977, 400e9} {
		l, p := steadyLimiter(rate)
		sent := 0
		for i := range 10_000 {
			bytes := 70 + i*37%4100
			l.OnSent(l.readyAt, bytes, &p)
			sent += bytes
			if got, want := l.readyAt, wireTimeOf(sent, rate); got != want {
				t.Fatalf("%d bit/s: packet %d may leave at %v, want %v", rate, i+1, got, want)
			}
		}
	}
}

func TestPacingIsExactAfterBurst(t *testing.T) {
	l, p := steadyLimiter(3_500e6)
	for i := range 100 {
		l.OnSent(10*us, 4178, &p)
		if got, want := l.readyAt, 10*us+wireTimeOf(4178*(i+1), 3_500e6); got != want {
			t.Fatalf("after %d packets ready at %v, want %v", i+1, got, want)
		}
	}
}

func TestIdleTimeGivesNoCredit(t *testing.T) {
	l, p := steadyLimiter(8e9) // a byte each nanosecond
	for i, at := range []mono.Time{0, 1000, 5000, 6001} {
		l.OnSent(at, 1000, &p)
		if got := l.readyAt; got != at+1000 {
			t.Errorf("packet %d sent at %d, the next is ready at %d, want %d", i, at, got, at+1000)
		}
	}
}

func TestCatchUpBoundsCredit(t *testing.T) {
	for _, tc := range []struct {
		name        string
		sent, ready mono.Time
	}{
		{"on time", 1000, 2000},
		{"late by less than CatchUp", 1400, 2000},
		{"late by CatchUp", 1500, 2000},
		{"later", 1501, 2001},
		{"much later", 900_000, 900_500},
	} {
		l, p := steadyLimiter(8e9)
		p.CatchUp = 500
		l.OnSent(0, 1000, &p)
		l.OnSent(tc.sent, 1000, &p)
		if got := l.readyAt; got != tc.ready {
			t.Errorf("%s: ready at %d, want %d", tc.name, got, tc.ready)
		}
	}
}

func TestCreditDoesNotGrowWhileTimersRun(t *testing.T) {
	l, p := steadyLimiter(8e9)
	p.CatchUp, p.IncreaseInterval = 50*time.Microsecond, 30*time.Microsecond
	l.OnCNP(20*us, &p) // from here on every 30 µs
	l.OnSent(20*us, 10_000, &p)
	now := 1000 * us
	for l.active && l.NextTimer() < now {
		l.HandleTimer(l.NextTimer(), &p)
	}
	l.OnSent(now, 0, &p)
	if got := l.readyAt; got != now.Add(-p.CatchUp) {
		t.Errorf("ready at %v, want %v before now", got, p.CatchUp)
	}
}

func TestLateSenderWithCatchUpKeepsRate(t *testing.T) {
	const rate = 12_345_678_901
	l, p := steadyLimiter(rate)
	p.CatchUp = 20 * time.Microsecond
	sent := 0
	for i := range 10_000 {
		// The sender wakes up to 20 µs late, and then sends all it may.
		now := l.readyAt + mono.Time(i)*7919%(20*us)
		for l.readyAt <= now {
			l.OnSent(now, 1024, &p)
			sent += 1024
		}
	}
	if got, want := l.readyAt, wireTimeOf(sent, rate); got != want {
		t.Errorf("%d bytes took until %v, want %v", sent, got, want)
	}
}

func TestRateChangeMovesReadyAt(t *testing.T) {
	p := defaultCongestionParams(16e9)
	var l rateLimiter
	l.OnCNP(0, &p)
	l.OnSent(0, 100_000, &p) // 100 µs at 8 Gb/s
	if got := l.readyAt; got != 100*us {
		t.Fatalf("ready at %v, want 100µs", got)
	}
	l.OnCNP(20*us, &p) // 80 000 bytes are left, at half the rate
	if got := l.readyAt; got != 180*us {
		t.Errorf("after a cut ready at %v, want 180µs", got)
	}
	l.HandleTimer(75*us, &p) // 52 500 bytes are left, at 6 Gb/s
	if got := l.readyAt; got != 145*us {
		t.Errorf("after an increase ready at %v, want 145µs", got)
	}
}

func TestHugeDebtIsBounded(t *testing.T) {
	l, p := steadyLimiter(1)
	p.ByteCounter = maxByteCounter
	for range 1000 {
		l.OnSent(0, 1<<28, &p)
	}
	if l.debt <= 0 || l.readyAt <= 0 {
		t.Errorf("debt %d, ready at %v", l.debt, l.readyAt)
	}
	l.HandleTimer(us, &p)
	if l.readyAt < us {
		t.Errorf("ready at %v although the debt lasts for centuries", l.readyAt)
	}
}

func TestNotifierSendsOneCNPPerInterval(t *testing.T) {
	var n cnpNotifier
	var sent []mono.Time
	const start = 7_000 // the first mark causes a CNP at any time
	for us := range mono.Time(120) {
		if now := start + us*1000; n.OnMark(now, defaultCNPInterval) {
			sent = append(sent, now)
		}
	}
	if want := []mono.Time{start, start + 50_000, start + 100_000}; !slices.Equal(sent, want) {
		t.Errorf("CNPs at %v, want %v", sent, want)
	}
}

func TestNotifierIntervalStartsAtLastCNP(t *testing.T) {
	var n cnpNotifier
	for _, tc := range []struct {
		now  mono.Time
		want bool
	}{
		{-3_000, true}, {0, false}, {46_999, false}, {47_000, true}, // time 0 and the sign have no meaning
		{200_000, true}, {249_999, false}, {250_000, true}, {250_000, false},
	} {
		if got := n.OnMark(tc.now, defaultCNPInterval); got != tc.want {
			t.Errorf("Mark(%v) = %v", tc.now, got)
		}
	}
}

func TestNotifierWithoutIntervalAnswersEveryMark(t *testing.T) {
	var n cnpNotifier
	for i := range 100 {
		if !n.OnMark(1, 0) {
			t.Fatalf("mark %d was not answered", i)
		}
	}
}

func TestDefaultParamsAreValidForEveryLineRate(t *testing.T) {
	for _, line := range []uint64{1, 1e6, 1e9, 25e9, 400e9, 1.6e12, maxRateBps} {
		p := defaultCongestionParams(line)
		if err := p.Validate(); err != nil {
			t.Errorf("line of %d bit/s: %v", line, err)
		}
		if p.MaxRateBps != line {
			t.Errorf("line of %d bit/s: MaxRateBps is %d", line, p.MaxRateBps)
		}
	}
}

func TestAlphaIntervalExceedsCNPInterval(t *testing.T) {
	if p := defaultCongestionParams(1e9); p.AlphaInterval <= defaultCNPInterval {
		t.Errorf("alpha decays every %v although CNPs arrive every %v under congestion", p.AlphaInterval, defaultCNPInterval)
	}
}

func TestCongestionParamsErrorNamesField(t *testing.T) {
	for field, spoil := range map[string][]func(*CongestionParams){
		"MaxRateBps":       {func(p *CongestionParams) { p.MaxRateBps = 0 }, func(p *CongestionParams) { p.MaxRateBps = maxRateBps + 1 }},
		"MinRateBps":       {func(p *CongestionParams) { p.MinRateBps = 0 }, func(p *CongestionParams) { p.MinRateBps = p.MaxRateBps + 1 }},
		"G":                {func(p *CongestionParams) { p.G = 0 }, func(p *CongestionParams) { p.G = alphaOne + 1 }},
		"AlphaInterval":    {func(p *CongestionParams) { p.AlphaInterval = 999 }, func(p *CongestionParams) { p.AlphaInterval = time.Second + 1 }},
		"IncreaseInterval": {func(p *CongestionParams) { p.IncreaseInterval = 999 }, func(p *CongestionParams) { p.IncreaseInterval = time.Second + 1 }},
		"ByteCounter":      {func(p *CongestionParams) { p.ByteCounter = 0 }, func(p *CongestionParams) { p.ByteCounter = maxByteCounter + 1 }},
		"RateAIBps":        {func(p *CongestionParams) { p.RateAIBps = 0 }, func(p *CongestionParams) { p.RateAIBps = maxRateBps + 1 }},
		"RateHAIBps":       {func(p *CongestionParams) { p.RateHAIBps = 0 }, func(p *CongestionParams) { p.RateHAIBps = maxRateBps + 1 }},
		"MinDecInterval":   {func(p *CongestionParams) { p.MinDecInterval = -1 }},
		"CatchUp":          {func(p *CongestionParams) { p.CatchUp = -1 }, func(p *CongestionParams) { p.CatchUp = maxCatchUp + 1 }},
	} {
		for i, f := range spoil {
			p := defaultCongestionParams(40e9)
			f(&p)
			if err := p.Validate(); err == nil || !strings.Contains(err.Error(), " "+field+" is ") {
				t.Errorf("%s invalid (%d): error is %v", field, i, err)
			}
		}
	}
}

// RateBps is the current rate in bits per second.
func (l *rateLimiter) RateBps(p *CongestionParams) uint64 {
	if !l.active {
		return p.MaxRateBps
	}
	return l.rate
}
