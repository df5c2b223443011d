package rd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// exchange lets every host send count segments of random sizes to every other, and checks that all
// arrive once and in order.
func exchange(n *network, count int, limit time.Duration) {
	n.t.Helper()
	left := map[[2]int]int{}
	for i := range n.hosts {
		for j := range n.hosts {
			if i != j {
				left[[2]int{i, j}] = count
			}
		}
	}
	fill := func() bool {
		done := true
		for i, h := range n.hosts {
			for j, to := range n.hosts {
				key := [2]int{i, j}
				for left[key] > 0 && h.send(to, n.rng.IntN(h.layer.MaxSegment()+1)) {
					left[key]--
				}
				done = done && (i == j || left[key] == 0 && h.acked[h.key(to)] == count)
			}
		}
		return done
	}
	n.run(limit, fill)
	for _, h := range n.hosts {
		for _, from := range n.hosts {
			if h != from {
				h.inOrder(from, count)
			}
		}
		if len(h.failed) > 0 {
			n.t.Fatalf("%v: %v", h, h.failed)
		}
	}
}

func TestExactlyOnceInOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		bad  impairment
	}{
		{"clean", impairment{}},
		{"loss of 1 in 100", impairment{loss: 1}},
		{"loss of 1 in 5", impairment{loss: 20}},
		{"duplicates", impairment{duplicate: 30}},
		{"reordering", impairment{reorder: 30}},
		{"corruption", impairment{corrupt: 10}},
		{"marks", impairment{mark: 20}},
		{"all at once", impairment{loss: 20, duplicate: 20, reorder: 20, corrupt: 5, mark: 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(8) {
				n := newNetwork(t, seed, tc.bad)
				for range 3 {
					n.host(Config{})
				}
				exchange(n, 200, 60*time.Second)
				for _, h := range n.hosts {
					for k, times := range h.started {
						if times != 1 {
							t.Fatalf("seed %d: the flow from %v started %d times", seed, k, times)
						}
					}
				}
			}
		})
	}
}

func TestSameSeedSameRun(t *testing.T) {
	run := func(seed uint64) string {
		n := newNetwork(t, seed, impairment{loss: 20, duplicate: 20, reorder: 20, corrupt: 5})
		for range 3 {
			n.host(Config{})
		}
		exchange(n, 50, 60*time.Second)
		return fmt.Sprint(n.now, n.sent, n.hosts[0].layer.Count)
	}
	if a, b := run(7), run(7); a != b {
		t.Errorf("seed 7: %s, then %s", a, b)
	}
	if run(7) == run(8) {
		t.Error("seeds 7 and 8 gave one run")
	}
}

// The first packet of a flow is challenged; a reply needs no challenge.
func TestChallengeCostsOneRoundTrip(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	var arrived, replied int
	b.take = func(Key, uint32) { arrived = n.sent; b.send(a, 10) }
	a.take = func(Key, uint32) { replied = n.sent }
	a.send(b, 10)
	n.run(time.Second, func() bool { return replied > 0 })
	if arrived != 3 || replied != 4 {
		t.Errorf("the segment arrived with packet %d (want 3: start, challenge, start) and the reply with %d (want 4)", arrived, replied)
	}
	if got := n.now; got != 40_000 {
		t.Errorf("both took %v, want two round trips of 20 µs", got)
	}
	if a.layer.Count.SentChallenges != 0 || b.layer.Count.SentChallenges != 1 {
		t.Errorf("challenges: %d and %d, want 0 and 1", a.layer.Count.SentChallenges, b.layer.Count.SentChallenges)
	}
}

// Two hosts that start flows to each other at the same time challenge each other, and both succeed.
func TestCrossingStartsSucceed(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	a.send(b, 10)
	b.send(a, 10)
	n.run(time.Millisecond, func() bool { return len(a.got) == 1 && len(b.got) == 1 })
	n.sleep(time.Millisecond)
	a.inOrder(b, 1)
	b.inOrder(a, 1)
	if len(a.failed)+len(b.failed) > 0 {
		t.Errorf("failed: %v %v", a.failed, b.failed)
	}
}

// A queue pair may send to itself.
func TestQueuePairSendsToItself(t *testing.T) {
	n := newNetwork(t, 1, impairment{loss: 20})
	a := n.host(Config{})
	for range 50 {
		a.send(a, 10)
	}
	n.run(10*time.Second, func() bool { return a.acked[a.key(a)] == 50 })
	a.inOrder(a, 50)
}

func TestSequenceNumbersWrap(t *testing.T) {
	n := newNetwork(t, 3, impairment{loss: 20, duplicate: 10, reorder: 20})
	a, b := n.host(Config{}), n.host(Config{})
	a.send(b, 10)
	n.run(10*time.Second, func() bool { return a.acked[a.key(b)] == 1 })
	n.sleep(time.Second)
	// Start the flow close to the wrap of its sequence numbers.
	const almost = wire.Seq(0xffffffd0)
	tx, rx := a.layer.peers[a.key(b)], b.layer.peers[b.key(a)]
	tx.send.una, tx.send.sent, tx.send.next, tx.send.cc.recoveryEnd = almost, almost, almost, almost
	tx.send.loss.sent, tx.send.loss.arrived = 0xffffffc0, 0xffffffc0
	rx.recv.next = almost
	for range 200 {
		a.send(b, 10)
	}
	n.run(20*time.Second, func() bool { return a.acked[a.key(b)] == 201 })
	b.inOrder(a, 201)
	if tx.send.next != almost.Add(200) {
		t.Errorf("next is %d", tx.send.next)
	}
}

func TestFlowToSilentPeerFails(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	n.cut = func(_, to *host, _ *wire.Packet) bool { return to == b }
	a.send(b, 10)
	start := n.now
	n.run(20*time.Second, func() bool { return len(a.failed) > 0 })
	if !errors.Is(a.failed[0], ErrTimeout) {
		t.Errorf("failed with %v, want ErrTimeout", a.failed[0])
	}
	// The flow fails at the first timeout after 10 s: timeouts expire after 10, 30, 70 ... 1270 ms
	// and then every second.
	if took := n.now.Sub(start); took < 10*time.Second || took > 11*time.Second+300*time.Millisecond {
		t.Errorf("failed after %v", took)
	}
	n.cut = nil
	a.send(b, 10)
	n.run(time.Second, func() bool { return len(b.got[b.key(a)]) == 1 })
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	for _, cfg := range []Config{
		{MaxPacket: 100},
		{MaxPacket: 1 << 16},
		{Limits: Limits{Peers: -1}},
		{Timing: Timing{AckDelay: -1}},
		{Timing: Timing{Idle: 15 * time.Second}},
		{Timing: Timing{CookieSlot: 15 * time.Second}},
	} {
		must.Fail(t, fmt.Sprintf("New(%+v)", cfg), must.Err(New(cfg)), ErrConfig)
	}
}
