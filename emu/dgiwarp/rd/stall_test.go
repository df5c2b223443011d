package rd

import (
	"errors"
	"testing"
	"time"
)

// sender is a layer with one segment to a peer that never answers.
type sender struct {
	*host
	peer *host
	sent int // packets that left
}

func newSender(t *testing.T, timing Timing) *sender {
	n := newNetwork(t, 1, trouble{})
	s := &sender{host: n.host(Config{Timing: timing}), peer: n.host(Config{})}
	s.host.send(s.peer, 10)
	return s
}

// transmit lets everything leave that is ready to.
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

// The sender gives up after attempts, each of which had its whole timeout: the time
// for which its process was not scheduled is not an attempt.
func TestSenderGivesUpByAttemptsNotByTheClock(t *testing.T) {
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
				t.Errorf("gave up with %v after %d transmissions, want ErrTimeout after %d", s.failed[0], s.sent, c.sent)
			}
		})
	}
}

// With timeouts that double, the sum of those that were waited for counts.
func TestStallCountsAsOneTimeout(t *testing.T) {
	s := newSender(t, Timing{})
	s.transmit()
	s.step(9*time.Second, false)
	s.step(9*time.Second, false)
	if len(s.failed) > 0 {
		t.Fatalf("gave up with %v after %d transmissions", s.failed[0], s.sent)
	}
	// The receiver may have forgotten the flow after Idle, and would take the segment
	// twice: then the sender gives up however few attempts it made.
	s.step(2*time.Second, false)
	if len(s.failed) != 1 || !errors.Is(s.failed[0], ErrTimeout) {
		t.Errorf("goes on for %v, want no more than Idle - ReuseWithin", s.net.now.Sub(0))
	}
}

// A busy receiver is asked for BusyLimit, and a stall between two of its answers
// counts as one wait.
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
			t.Errorf("after a stall of %v: gave up with %v after %d probes, want ErrBusy after 7", stall, a.failed[0], probes)
		}
	}
}
