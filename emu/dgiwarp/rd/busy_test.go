package rd

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

// A receiver without receives loses no segment: senders wait until it has some.
func TestBusyReceiverLosesNothing(t *testing.T) {
	for seed := range uint64(5) {
		n := newNetwork(t, seed, impairment{loss: 10, reorder: 10, duplicate: 10})
		sink := n.host(Config{})
		sink.receives = 0
		const each = 30
		for range 4 {
			h := n.host(Config{})
			for range each {
				h.send(sink, 100)
			}
		}
		total := func() (sum int) {
			for _, got := range sink.got {
				sum += len(got)
			}
			return sum
		}
		n.sleep(12 * time.Second) // longer than GiveUp
		if sink.deferred == 0 || total() > 0 {
			t.Fatalf("seed %d: %d deferred, %d delivered", seed, sink.deferred, total())
		}
		for want := 1; want <= 4*each; want++ {
			sink.receives++
			sink.layer.Resume(testQP, 1)
			sink.drain()
			n.run(5*time.Second, func() bool { return total() == want })
		}
		n.sleep(time.Second)
		for _, h := range n.hosts[1:] {
			sink.inOrder(h, each)
			if len(h.failed) > 0 {
				t.Errorf("seed %d: %v", seed, h.failed)
			}
		}
	}
}

// Resume wakes a waiting sender within a round trip, before its probe timer.
func TestResumeWakesSenderWithinRoundTrip(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	b.receives = 0
	a.send(b, 10)
	n.sleep(time.Second) // by now a probes every 128 ms only
	b.receives = 1
	b.layer.Resume(testQP, 1)
	b.drain()
	start := n.now
	n.run(time.Second, func() bool { return len(b.got[b.key(a)]) == 1 })
	if took := n.now.Sub(start); took > 30*time.Microsecond {
		t.Errorf("took %v, want a round trip", took)
	}
}

// Resume for n receives wakes the n oldest waiting senders, and only those of its queue pair.
func TestResumeWakesOneSenderForEachReceive(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	sink := n.host(Config{})
	sink.receives = 0
	for range 5 {
		n.host(Config{}).send(sink, 10)
		n.sleep(time.Millisecond)
	}
	blocked := func() (count int) {
		for p := sink.layer.blocked.first; p != nil; p = p.nextBlocked {
			count++
		}
		return count
	}
	sink.layer.Resume(testQP+1, 5)
	if blocked() != 5 {
		t.Fatalf("%d wait, want 5", blocked())
	}
	sink.layer.Resume(testQP, 2)
	if first := sink.layer.blocked.first.Key; blocked() != 3 || first != sink.key(n.hosts[3]) {
		t.Errorf("%d wait, first of all %v, want 3 and %v", blocked(), first, sink.key(n.hosts[3]))
	}
}

// Selectively acknowledged segments are kept while the owner has no receive for them.
func TestStoredSegmentsSurviveDeferral(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	a.send(b, 10)
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 1 })
	lost := false
	n.cut = func(from, _ *host, k *wire.Packet) bool {
		if from == a && k.Flags.Has(wire.FlagData) && k.Data.Seq == 1 && !lost {
			lost = true
			return true
		}
		return false
	}
	b.receives = 1 // for the lost segment, not for those after it
	for range 4 {
		a.send(b, 10)
	}
	n.run(time.Second, func() bool { return len(b.got[b.key(a)]) == 2 })
	n.sleep(5 * time.Second)
	data := a.layer.Count.SentData
	b.receives = -1
	b.layer.Resume(testQP, 1)
	b.drain()
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 5 })
	b.inOrder(a, 5)
	if again := a.layer.Count.SentData - data; again != 0 {
		t.Errorf("%d segments sent again, which the receiver had", again)
	}
}

// A sender whose probe finds a receiver with receives continues at full speed, without a Resume.
func TestProbeResumesSender(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	b.receives = 0
	for range 100 {
		a.send(b, 10)
	}
	n.sleep(time.Second)
	b.receives = -1
	n.run(130*time.Millisecond, func() bool { return len(b.got[b.key(a)]) > 0 })
	n.run(time.Millisecond, func() bool { return a.acked[a.key(b)] == 100 })
}

func TestBusyLimit(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{Timing: Timing{BusyLimit: 3 * time.Second}}), n.host(Config{})
	b.receives = 0
	a.send(b, 10)
	n.run(4*time.Second, func() bool { return len(a.failed) > 0 })
	if !errors.Is(a.failed[0], ErrBusy) || n.now.Sub(0) < 3*time.Second {
		t.Errorf("failed at %v with %v, want ErrBusy after 3 s", n.now, a.failed[0])
	}
}

// A flow to a busy receiver that stops responding fails.
func TestFlowToBusyReceiverThatStopsFails(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	b.receives = 0
	a.send(b, 10)
	n.sleep(time.Second)
	n.cut = func(from, _ *host, _ *wire.Packet) bool { return from == b }
	n.run(12*time.Second, func() bool { return len(a.failed) > 0 })
	if !errors.Is(a.failed[0], ErrTimeout) {
		t.Errorf("failed with %v, want ErrTimeout", a.failed[0])
	}
}

// Window 0 alone says that a receiver is busy.
func TestReceiverWithWindowOfOneIsNotBusy(t *testing.T) {
	for window, busy := range map[uint16]bool{0: true, 1: false} {
		n, a, b, p := established(t)
		n.cut = func(_, _ *host, _ *wire.Packet) bool { return true }
		a.send(b, 10)
		a.flush()
		k := wire.Packet{Header: wire.NewHeader(wire.KindRD, testQP, testQP, 1), Ack: wire.Ack{Epoch: p.send.epoch, Next: p.send.una, Window: window}}
		k.Flags = wire.FlagAck
		a.deliver(b.addr, k.Append(nil), false)
		if p.has(flagBusy) != busy {
			t.Errorf("window %d: busy %v", window, !busy)
		}
	}
}

// Timeouts count only if a packet was sent since the one before.
func TestTimeoutsWithoutPacketsCountOnce(t *testing.T) {
	n, a, b, p := established(t)
	a.send(b, 10)
	a.flush()
	first := p.timeoutAfter()
	for range 5 { // the link takes no packets
		n.now = p.send.rto.at
		a.layer.Tick(n.now)
	}
	if p.send.rto.waited != first {
		t.Errorf("waited %v for the peer, want the first timeout, %v", p.send.rto.waited, first)
	}
}
