package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// bottleneck is an output queue that two senders share. It marks as the published switch
// does: never below one threshold, always above another, and with a rising probability
// between them.
type bottleneck struct {
	rateBps  uint64
	wireTime mono.Time // of a packet
	freeAt   mono.Time // when the last queued byte will have left
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
	cnps   []mono.Time // on their way back
	lineAt mono.Time   // when the sender's own line is free again
	start  mono.Time
	sent   int // in the interval that is measured
}

func (f *testFlow) nextSend() mono.Time { return max(f.lineAt, f.l.ReadyAt(), f.start) }

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
		if f.l.NextTimer() <= now { // likewise
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

// Two flows come to share the line evenly, keep it busy and keep the queue short.
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
