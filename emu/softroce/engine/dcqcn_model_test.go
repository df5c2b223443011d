package engine

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// congestionEvent is a CNP (bytes is 0) or a sent packet.
type congestionEvent struct {
	at    mono.Time
	bytes int
}

// randomEvents returns the events of a random run: phases with and without congestion, and
// with and without traffic.
func randomEvents(seed uint64, n int) []congestionEvent {
	rng := rand.New(rand.NewPCG(seed, 1))
	var hs []congestionEvent
	var now mono.Time
	for len(hs) < n {
		if rng.IntN(4) == 0 {
			now += mono.Time(rng.Int64N(int64(200_000 * us))) // long enough to recover
		}
		cnpPercent, gap := rng.IntN(20), 1+rng.Int64N(int64(60*us))
		for range rng.IntN(200) {
			now += mono.Time(rng.Int64N(gap))
			h := congestionEvent{at: now, bytes: 1 + rng.IntN(1<<20)}
			if rng.IntN(100) < cnpPercent {
				h.bytes = 0
			}
			hs = append(hs, h)
		}
	}
	return hs
}

func (h congestionEvent) apply(l *rateLimiter, p *CongestionParams) {
	if h.bytes == 0 {
		l.OnCNP(h.at, p)
	} else {
		l.OnSent(h.at, h.bytes, p)
	}
}

// dcqcnModel is the published algorithm with its own names (T, BC, R_C, R_T, alpha) and in
// floating point, without pacing.
type dcqcnModel struct {
	on               bool
	t, bc            int
	rc, rt, alpha    float64
	bytes            float64
	cut, decay, lift mono.Time
}

func (m *dcqcnModel) timers(now mono.Time, p *CongestionParams) {
	for m.on && min(m.decay, m.lift) <= now {
		if m.decay <= m.lift {
			m.alpha *= 1 - float64(p.G)/alphaOne
			m.decay += mono.Time(p.AlphaInterval)
			continue
		}
		m.t++
		m.lift += mono.Time(p.IncreaseInterval)
		m.raise(p)
	}
}

func (m *dcqcnModel) raise(p *CongestionParams) {
	f := int(p.FastRecovery)
	if max(m.t, m.bc) > f {
		step := float64(p.RateAIBps)
		if i := min(m.t, m.bc) - f; i > 0 {
			step = float64(i) * float64(p.RateHAIBps)
		}
		m.rt = min(m.rt+step, float64(p.MaxRateBps))
	}
	m.rc = (m.rt + m.rc) / 2
}

func (m *dcqcnModel) apply(h congestionEvent, p *CongestionParams) {
	m.timers(h.at, p)
	switch {
	case h.bytes != 0:
		if !m.on {
			return
		}
		for m.bytes += float64(h.bytes); m.on && m.bytes >= float64(p.ByteCounter); {
			m.bytes -= float64(p.ByteCounter)
			m.bc++
			m.raise(p)
		}
		return
	case !m.on:
		*m = dcqcnModel{on: true, alpha: 1, rc: float64(p.MaxRateBps)}
	case h.at-m.cut < mono.Time(p.MinDecInterval):
		return
	}
	m.rt = m.rc
	m.rc = max(m.rc*(1-m.alpha/2), float64(p.MinRateBps))
	m.alpha = (1-float64(p.G)/alphaOne)*m.alpha + float64(p.G)/alphaOne
	m.t, m.bc, m.bytes = 0, 0, 0
	m.cut, m.decay, m.lift = h.at, h.at+mono.Time(p.AlphaInterval), h.at+mono.Time(p.IncreaseInterval)
}

func TestLimiterMatchesPublishedAlgorithm(t *testing.T) {
	recovered := 0
	for seed := range uint64(20) {
		p := defaultCongestionParams(100e9)
		p.AlphaInterval = time.Duration(45+seed) * time.Microsecond // before, with and after the other timer
		line := float64(p.MaxRateBps)
		var l rateLimiter
		var m dcqcnModel
		compare := func(h congestionEvent) {
			ref := line
			if m.on {
				ref = m.rc
			}
			if rate := float64(l.RateBps(&p)); math.Abs(rate-ref) > 1e-5*ref+1 {
				t.Fatalf("seed %d, %+v: rate %.0f, the model says %.0f", seed, h, rate, ref)
			}
			// The model approaches the line rate; the integers reach it, which lifts the limit.
			switch {
			case l.active && m.rc > line-0.01:
				t.Fatalf("seed %d, %+v: still limited to %d", seed, h, l.rate)
			case !l.active && m.on:
				recovered++
				m = dcqcnModel{}
			}
		}
		for _, h := range randomEvents(seed, 5000) {
			l.HandleTimer(h.at, &p)
			m.timers(h.at, &p)
			compare(h)
			h.apply(&l, &p)
			m.apply(h, &p)
			compare(h)
		}
	}
	if recovered < 20 {
		t.Errorf("only %d recoveries: the events do not test enough", recovered)
	}
}

func TestRateStaysBetweenMinimumAndTarget(t *testing.T) {
	for seed := range uint64(20) {
		p := defaultCongestionParams(25e9)
		var l rateLimiter
		for _, h := range randomEvents(seed, 5000) {
			h.apply(&l, &p)
			if l.active && !(p.MinRateBps <= l.rate && l.rate <= l.target && l.target <= p.MaxRateBps && l.alpha <= alphaOne) {
				t.Fatalf("seed %d: %+v", seed, l)
			}
			if l.active && (l.NextTimer() <= h.at || l.increaseAt > h.at.Add(p.IncreaseInterval)) {
				t.Fatalf("seed %d at %v: timers %v and %v", seed, h.at, l.decayAt, l.increaseAt)
			}
		}
	}
}

func TestLateTimersDoNotChangeResults(t *testing.T) {
	for seed := range uint64(20) {
		p := defaultCongestionParams(100e9)
		p.CatchUp = 10_000
		var prompt, late rateLimiter
		for i, h := range randomEvents(seed, 2000) {
			for prompt.NextTimer() <= h.at {
				prompt.HandleTimer(prompt.NextTimer(), &p)
			}
			h.apply(&prompt, &p)
			h.apply(&late, &p)
			if prompt != late {
				t.Fatalf("seed %d, event %d:\nprompt %+v\nlate   %+v", seed, i, prompt, late)
			}
		}
	}
}

// The hash of a run is the same on every machine and Go release. It changes only with the
// algorithm.
func TestRateLimiterIsDeterministic(t *testing.T) {
	p := defaultCongestionParams(100e9)
	sum := fnv.New64a()
	var l rateLimiter
	for _, h := range randomEvents(42, 20_000) {
		h.apply(&l, &p)
		var b []byte
		b = binary.LittleEndian.AppendUint64(b, l.RateBps(&p))
		b = binary.LittleEndian.AppendUint64(b, uint64(l.readyAt))
		sum.Write(b)
	}
	if got, want := sum.Sum64(), uint64(0xaec2368356eef28b); got != want {
		t.Errorf("hash %#x, want %#x", got, want)
	}
}

// bottleneck is an output queue that two senders share. It marks as the published switch does:
// never below one threshold, always above another, and with a rising probability between them.
type bottleneck struct {
	rateBps  uint64
	wireTime mono.Time // of a packet
	freeAt   mono.Time // when the last queued byte is sent
	maxQueue int
	rng      *rand.Rand
}

func (b *bottleneck) enqueue(now mono.Time) (leavesAt mono.Time, marked bool) {
	queue := int(uint64(max(b.freeAt-now, 0)) * b.rateBps / 8e9)
	b.maxQueue = max(b.maxQueue, queue)
	b.freeAt = max(b.freeAt, now) + b.wireTime
	const kmin, kmax, pmaxPercent = 5_000, 200_000, 1
	switch {
	case queue <= kmin:
	case queue > kmax:
		marked = true
	default:
		marked = b.rng.IntN(100*(kmax-kmin)) < pmaxPercent*(queue-kmin)
	}
	return b.freeAt, marked
}

type testFlow struct {
	l      rateLimiter
	n      cnpNotifier
	cnps   []mono.Time // arrival times at the sender
	lineAt mono.Time   // when the sender's own line is free again
	start  mono.Time
	sent   int // in the interval that is measured
}

func (f *testFlow) nextSend() mono.Time { return max(f.lineAt, f.l.readyAt, f.start) }

// shareOfFirstFlow runs two flows through one bottleneck; the second starts later. It returns the
// first flow's share and the utilization of the line since then, and the longest queue of
// the whole run.
func shareOfFirstFlow(seed uint64) (first, used float64, maxQueue int) {
	const (
		line    = 40e9
		bytes   = 1082
		delay   = 4 * us // from sender to receiver, and back
		measure = mono.Time(30 * time.Millisecond)
		end     = mono.Time(130 * time.Millisecond)
	)
	p := defaultCongestionParams(line)
	sw := bottleneck{rateBps: line, wireTime: wireTimeOf(bytes, line), rng: rand.New(rand.NewPCG(seed, 7))}
	flows := []*testFlow{{}, {start: 5000 * us}}
	for now := mono.Time(0); now < end; {
		f := flows[0]
		if flows[1].nextSend() < f.nextSend() {
			f = flows[1]
		}
		now = f.nextSend()
		if len(f.cnps) > 0 && f.cnps[0] <= now { // may move nextSend: look again
			f.l.OnCNP(f.cnps[0], &p)
			f.cnps = f.cnps[1:]
			continue
		}
		if f.l.NextTimer() <= now { // may move nextSend, too
			f.l.HandleTimer(f.l.NextTimer(), &p)
			continue
		}
		f.l.OnSent(now, bytes, &p)
		f.lineAt = now + sw.wireTime
		leaves, marked := sw.enqueue(now)
		if marked && f.n.OnMark(leaves+delay, defaultCNPInterval) {
			f.cnps = append(f.cnps, leaves+2*delay)
		}
		if now >= measure {
			f.sent += bytes
		}
	}
	a, b := float64(flows[0].sent), float64(flows[1].sent)
	return a / (a + b), (a + b) * 8e9 / line / float64(end-measure), sw.maxQueue
}

// Two flows converge to equal shares, use the line fully and keep the queue short.
func TestTwoFlowsConvergeToFairShare(t *testing.T) {
	for seed := range uint64(3) {
		first, used, maxQueue := shareOfFirstFlow(seed)
		t.Logf("seed %d: share of the first flow %.3f, line used %.3f, longest queue %d bytes", seed, first, used, maxQueue)
		if first < 0.4 || first > 0.6 {
			t.Errorf("seed %d: the first flow has a share of %.3f, want about a half", seed, first)
		}
		if used < 0.9 {
			t.Errorf("seed %d: only %.3f of the line is used", seed, used)
		}
		if maxQueue > 1_000_000 {
			t.Errorf("seed %d: the queue grew to %d bytes", seed, maxQueue)
		}
	}
}
