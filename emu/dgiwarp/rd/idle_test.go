package rd

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Both sides remove an idle peer, at the times of the specification. The next segment starts a new
// flow.
func TestIdlePeersAreRemoved(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	use := func() {
		want := a.acked[a.key(b)] + 1
		a.send(b, 10)
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == want })
	}
	use()
	n.sleep(9 * time.Second)
	use() // within the time that a flow may be reused
	if b.layer.Count.SentChallenges != 1 {
		t.Errorf("%d challenges after nine seconds, want 1", b.layer.Count.SentChallenges)
	}
	n.sleep(11 * time.Second)
	use() // starts a new flow while the receiver still has the old one
	if b.layer.Count.SentChallenges != 2 || b.started[b.key(a)] != 2 {
		t.Errorf("%d challenges and %d new flows after eleven idle seconds, want 2 and 2", b.layer.Count.SentChallenges, b.started[b.key(a)])
	}
	n.sleep(29 * time.Second)
	if a.layer.Peers() != 1 || b.layer.Peers() != 1 {
		t.Errorf("%d and %d peers after 29 s, want 1 and 1", a.layer.Peers(), b.layer.Peers())
	}
	n.sleep(2 * time.Second)
	if a.layer.Peers() != 0 || b.layer.Peers() != 0 || a.removed != 1 || b.removed != 1 {
		t.Errorf("%d and %d peers after 31 s, %d and %d reported as removed", a.layer.Peers(), b.layer.Peers(), a.removed, b.removed)
	}
	if d := a.layer.Deadline(); d != b.layer.Deadline() || a.layer.timers.Next() != d {
		t.Errorf("deadlines %v and %v without peers", d, b.layer.Deadline())
	}
	use()
	b.inOrder(a, 4)
	if len(a.failed) > 0 {
		t.Errorf("failed: %v", a.failed)
	}
}

// Both sides send at about the time when their flows become too old to be reused, and no flow
// fails.
func TestBothSidesReplaceOldFlows(t *testing.T) {
	for skew := -40; skew <= 40; skew++ {
		n := newNetwork(t, 1, impairment{})
		a, b := n.host(Config{}), n.host(Config{})
		a.send(b, 10)
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == 1 })
		b.send(a, 10)
		n.run(time.Second, func() bool { return b.acked[b.key(a)] == 1 })
		n.sleep(10*time.Second - 30*time.Microsecond)
		first, second, apart := a, b, time.Duration(skew)*time.Microsecond
		if skew < 0 {
			first, second, apart = b, a, -apart
		}
		first.send(second, 10)
		n.sleep(apart)
		second.send(first, 10)
		n.sleep(time.Second)
		if len(a.failed)+len(b.failed) > 0 {
			t.Fatalf("%v then %v, %v apart: %v %v", first, second, apart, a.failed, b.failed)
		}
		a.inOrder(b, 2)
		b.inOrder(a, 2)
	}
}

// A cookie is valid in its time slot and the next.
func TestCookiesAreValidForTwoSlots(t *testing.T) {
	slot := DefaultTiming().CookieSlot
	for _, tc := range []struct {
		after time.Duration
		good  bool
	}{{0, true}, {slot, true}, {2*slot - time.Millisecond, true}, {2 * slot, false}, {3 * slot, false}} {
		n := newNetwork(t, 1, impairment{})
		a, b := n.host(Config{}), n.host(Config{})
		var proved []byte
		n.cut = func(from, _ *host, k *wire.Packet) bool {
			if from == a && k.Data.Proof != 0 {
				proved = k.Append(nil)
			}
			return proved != nil
		}
		a.send(b, 10)
		n.run(time.Second, func() bool { return proved != nil })
		n.now = mono.Time(max(tc.after, time.Millisecond))
		b.deliver(a.addr, proved, false)
		if got := len(b.got[b.key(a)]); (got == 1) != tc.good {
			t.Errorf("after %v: %d segments accepted", tc.after, got)
		}
	}
}

// sender is a layer with one segment to a peer that never responds.
type sender struct {
	*host
	peer *host
	sent int // packets transmitted
}

func newSender(t *testing.T, timing Timing) *sender {
	n := newNetwork(t, 1, impairment{})
	s := &sender{host: n.host(Config{Timing: timing}), peer: n.host(Config{})}
	s.host.send(s.peer, 10)
	return s
}

// transmit transmits all packets that are ready.
func (s *sender) transmit() {
	for {
		if _, ok := s.layer.Output(s.net.now, nil); !ok {
			return
		}
		s.sent++
	}
}

// step moves the time by d, handles the deadlines that have passed and, unless the
// link is full, transmits.
func (s *sender) step(d time.Duration, full bool) {
	s.net.now = s.net.now.Add(d)
	s.layer.Tick(s.net.now)
	s.drain()
	if !full {
		s.transmit()
	}
}

// The sender fails a flow after enough attempts, each with its whole timeout. Time in which its
// process was not scheduled does not count.
func TestSenderFailsFlowAfterAttemptsNotWallTime(t *testing.T) {
	const timeout, attempts = 10 * time.Millisecond, 7
	fixed := Timing{FirstTimeout: timeout, MinTimeout: timeout, MaxTimeout: timeout, GiveUp: attempts * timeout}
	for _, c := range []struct {
		name string
		// step is how much time passes before the layer is called for the nth time, and
		// whether the link is full then.
		step func(n int) (d time.Duration, full bool)
		sent int // transmissions before the flow fails
	}{
		{"on time", func(int) (time.Duration, bool) { return timeout, false }, attempts},
		{"looked at often", func(int) (time.Duration, bool) { return timeout / 4, false }, attempts},
		{"one stall", func(n int) (time.Duration, bool) {
			if n == 1 {
				return time.Second, false
			}
			return timeout, false
		}, attempts},
		{"always stalled", func(int) (time.Duration, bool) { return 20 * timeout, false }, attempts},
		{"full link", func(n int) (time.Duration, bool) { return timeout, n%3 != 0 }, attempts},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSender(t, fixed)
			s.transmit()
			for n := 1; len(s.failed) == 0; n++ {
				if n > 1000 {
					t.Fatalf("not given up after %d transmissions", s.sent)
				}
				s.step(c.step(n))
			}
			if !errors.Is(s.failed[0], ErrTimeout) || s.sent != c.sent {
				t.Errorf("failed with %v after %d transmissions, want ErrTimeout after %d", s.failed[0], s.sent, c.sent)
			}
		})
	}
}

// With timeouts that double, the sum of the expired ones counts.
func TestStallCountsAsOneTimeout(t *testing.T) {
	s := newSender(t, Timing{})
	s.transmit()
	s.step(9*time.Second, false)
	s.step(9*time.Second, false)
	if len(s.failed) > 0 {
		t.Fatalf("gave up with %v after %d transmissions", s.failed[0], s.sent)
	}
	// After Idle, the receiver may have removed the flow and would deliver the segment twice: the
	// sender fails the flow after any number of attempts.
	s.step(2*time.Second, false)
	if len(s.failed) != 1 || !errors.Is(s.failed[0], ErrTimeout) {
		t.Errorf("the flow lasted %v, want no more than Idle - ReuseWithin", s.net.now.Sub(0))
	}
}

// The sender probes a busy receiver for BusyLimit, and a stall between two responses counts as one
// wait.
func TestBusyLimitCountsProbes(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, stall := range []time.Duration{0, 500 * time.Millisecond} {
		n, a, b, p := established(t)
		a.layer.cfg.Timing.BusyLimit = limit
		b.receives = 0
		a.send(b, 10)
		n.run(time.Second, func() bool { return p.has(flagBusy) })
		probes := a.layer.Count.SentData
		n.now = n.now.Add(stall)
		n.run(time.Second, func() bool { return len(a.failed) > 0 })
		// They follow after 1, 2, 4 ... 64 ms, in all 127 ms.
		if probes = a.layer.Count.SentData - probes; !errors.Is(a.failed[0], ErrBusy) || probes != 7 {
			t.Errorf("after a stall of %v: failed with %v after %d probes, want ErrBusy after 7", stall, a.failed[0], probes)
		}
	}
}
