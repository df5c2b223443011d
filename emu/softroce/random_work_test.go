package softroce

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/verbs"
)

// drawWork draws queue pairs and their work requests.
func (c *randomCase) drawWork() {
	c.work = random.Workload{
		Seed: c.rng.Uint64(), CQs: 1 + c.rng.IntN(3), SharedWords: c.rng.IntN(4),
		Wakeup: pick(c, random.ByEvent, random.ByEvent, random.BySolicited, random.ByPolling), Network: c.tolerance(),
	}
	services := []random.Service{random.RC, random.RC, random.RC, random.XRC, random.UC, random.UD}
	for range 1 + c.rng.IntN(5) {
		c.work.Conns = append(c.work.Conns, c.drawConn(pick(c, services...)))
	}
}

func (c *randomCase) drawConn(s random.Service) random.Conn {
	rng := c.rng
	l := random.NewConn(s, 0, 0)
	most := pick(c, 10, 60, 60, 200)
	l.Messages = [2]int{rng.IntN(most), rng.IntN(most)}
	l.MTU = verbs.MTU256 + verbs.MTU(rng.IntN(int(c.mtu)))
	l.MaxBytes = pick(c, 1, 64, 1000, 3*l.MTU.Bytes(), 8000)
	if s == random.UD {
		l.MaxBytes = min(l.MaxBytes, l.MTU.Bytes())
	}
	if c.oneIn(2) { // few operations, whose combinations are then more frequent
		all := l.Mix
		l.Mix = nil
		for range 1 + rng.IntN(3) {
			l.Mix = append(l.Mix, pick(c, all...))
		}
	}
	for dir := range 2 {
		l.FirstPSN[dir] = rng.Uint32N(1 << 24)
		if c.oneIn(2) { // shortly before the wrap
			l.FirstPSN[dir] = 1<<24 - 1 - rng.Uint32N(50)
		}
		l.RdAtomic[dir] = 1 + uint8(rng.IntN(pick(c, 1, 4, 16)))
	}
	l.SharedReceives = s != random.XRC && c.oneIn(3)
	if s == random.XRC {
		l.XRCQueues = 1 + rng.IntN(3)
	}
	if s == random.RC {
		l.Windows = rng.IntN(4)
	}
	c.drawQueues(&l)
	c.drawTimers(&l)
	l.TrafficClass = uint8(rng.IntN(64)) << 2
	if c.addrs[0].Is6() && c.oneIn(2) {
		l.FlowLabel = rng.Uint32N(1 << 20)
	}
	return l
}

// drawQueues draws queue depths and pacing. Slow receivers cause RNR NAKs of reliable
// connections, and loss of unreliable ones.
func (c *randomCase) drawQueues(l *random.Conn) {
	l.SendDepth = pick(c, 2, 3, 16, 64)
	l.RecvDepth = pick(c, 1, 2, 16, 64)
	l.MaxSGE = 1 + c.rng.IntN(4)
	l.MaxInline = pick(c, 0, 16, 64, 220)
	l.SignalEvery = 1 + c.rng.IntN(8)
	l.TightReceives = c.oneIn(2)
	l.SendPacing = c.drawPacing()
	l.RecvPacing = c.drawPacing()
}

func (c *randomCase) drawPacing() (r random.Pacing) {
	if c.oneIn(2) {
		r.Batch = 1 + c.rng.IntN(8)
	}
	if c.oneIn(2) {
		r.Pause = c.upTo(pick(c, 10*time.Microsecond, 100*time.Microsecond, time.Millisecond))
	}
	return r
}

// drawTimers draws timeouts, too short ones only if connections may give up: without
// loss none must.
func (c *randomCase) drawTimers(l *random.Conn) {
	l.RetryCnt, l.RNRRetry = 7, 7
	l.MinRNRTimer = uint8(1 + c.rng.IntN(14))
	l.Timeout = 14 // 67 ms
	if c.work.Network.GivesUp {
		l.Timeout = uint8(6 + c.rng.IntN(8)) // 0.26 ms to 34 ms
		if c.oneIn(12) {
			l.RetryCnt, l.RNRRetry = uint8(c.rng.IntN(8)), uint8(c.rng.IntN(8))
		}
	}
}

// TestRandomPairFindsDefects proves that the randomised test can fail: with each of
// these defects, one of the first two hundred seeds must end in a violation.
func TestRandomPairFindsDefects(t *testing.T) {
	both := func(p engine.RequesterPolicy) [2]engine.Policy {
		return [2]engine.Policy{{RequesterPolicy: p}, {RequesterPolicy: p}}
	}
	roundsUp := [2]defects.VerbDefects{{RdAtomicRoundsUp: true}}
	for name, c := range map[string]randomCase{
		"ack completes read":      {policy: both(engine.RequesterPolicy{AckCompletesReads: true})},
		"stale ack breaks read":   {policy: both(engine.RequesterPolicy{StaleAckEndsRead: true})},
		"more reads than granted": {verbs: roundsUp},
		"no limit on reads":       {verbs: roundsUp, policy: [2]engine.Policy{{}, {ResponderPolicy: engine.ResponderPolicy{ReplaceUnanswered: true}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustDetect(t, c)
		})
	}
}

// TestMutantsAreFoundAtRandom is the same for mutants. Only a build with mutants has them;
// package defects runs it in one.
func TestMutantsAreFoundAtRandom(t *testing.T) {
	if len(mutant.Names()) == 0 {
		t.Skip("this test was built without mutants; the conform step of CI runs it with them")
	}
	for _, name := range []string{
		"AckSkipsRead", "DupReadResetsMessage", "ReadRetryFromStart", "PSNUnsigned", "ICRCIgnored", "ZeroReadFails", "ErrCompletesRecvs",
		"RetryExcHangs", "UCLossLocksUp", "NoTClassInArea",
	} {
		t.Run(name, func(t *testing.T) {
			if !mutant.Select(name) {
				t.Fatal("no such mutant")
			}
			defer mutant.Select("")
			mustDetect(t, randomCase{})
		})
	}
}

func mustDetect(t *testing.T, with randomCase) {
	t.Helper()
	for seed := range uint64(200) {
		c := newRandomCase(seed)
		c.policy, c.verbs = with.policy, with.verbs
		if _, err := c.run(); err != nil {
			t.Logf("detected: %v", err)
			return
		}
	}
	t.Error("no seed detects the defect")
}
