package rd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

// history has the segments between hosts across restarts. Their numbers continue when a host
// restarts.
type history struct {
	next      map[[2]*host]uint32
	delivered map[[2]*host][]uint32
}

func (y *history) watch(h *host) {
	h.take = func(k Key, n uint32) {
		for _, from := range h.net.hosts {
			if from.addr == k.RemoteAddr {
				pair := [2]*host{from, h}
				y.delivered[pair] = append(y.delivered[pair], n)
			}
		}
	}
}

// restart restarts a host without state, but with its numbers continued.
func (y *history) restart(h *host) {
	for _, to := range h.net.hosts {
		y.next[[2]*host{h, to}] = max(y.next[[2]*host{h, to}], h.sending[h.key(to)])
	}
	h.start()
	for _, to := range h.net.hosts {
		h.sending[h.key(to)] = y.next[[2]*host{h, to}]
	}
	y.watch(h)
}

// With loss, late duplicates and restarts of either side at any time, no segment is delivered twice
// or out of order, and no acknowledged segment is missing.
func TestRestartsDeliverNoSegmentTwice(t *testing.T) {
	for seed := range uint64(30) {
		n := newNetwork(t, seed, impairment{loss: 10, duplicate: 10, reorder: 20, linger: 5})
		y := &history{next: map[[2]*host]uint32{}, delivered: map[[2]*host][]uint32{}}
		for range 3 {
			y.watch(n.host(Config{}))
		}
		ackedBy := map[[2]*host]map[uint32]bool{}
		for range 60 {
			for _, h := range n.hosts {
				for _, to := range n.hosts {
					for k := n.rng.IntN(6); h != to && k > 0; k-- {
						h.send(to, 8)
					}
				}
			}
			// Some rounds are short, so that packets are in flight at a restart. Some are long, so
			// that peers are removed.
			n.sleep(time.Duration(n.rng.Int64N(int64(50 * time.Microsecond))))
			if n.rng.IntN(10) == 0 {
				n.sleep(time.Duration(n.rng.Int64N(int64(40 * time.Second))))
			}
			for _, h := range n.hosts {
				for _, to := range n.hosts {
					y.recordAcked(ackedBy, h, to)
				}
			}
			if n.rng.IntN(4) == 0 {
				y.restart(n.hosts[n.rng.IntN(len(n.hosts))])
			}
		}
		n.sleep(2 * time.Minute)
		total := 0
		for _, h := range n.hosts {
			for _, to := range n.hosts {
				pair := [2]*host{h, to}
				y.recordAcked(ackedBy, h, to)
				list := y.delivered[pair]
				total += len(list)
				seen := map[uint32]bool{}
				for i, v := range list {
					if i > 0 && v <= list[i-1] {
						t.Fatalf("seed %d: %v delivered %d after %d from %v", seed, to, v, list[i-1], h)
					}
					seen[v] = true
				}
				for v := range ackedBy[pair] {
					if !seen[v] {
						t.Fatalf("seed %d: %v holds %d for delivered to %v, which it was not", seed, h, v, to)
					}
				}
			}
			if p := h.layer.Peers(); p != 0 {
				t.Fatalf("seed %d: %v has %d peers after two minutes", seed, h, p)
			}
		}
		if total < 300 {
			t.Errorf("seed %d: only %d segments delivered", seed, total)
		}
	}
}

// recordAcked records the acknowledged numbers of h since its last start.
func (y *history) recordAcked(by map[[2]*host]map[uint32]bool, h, to *host) {
	pair, k := [2]*host{h, to}, h.key(to)
	if by[pair] == nil {
		by[pair] = map[uint32]bool{}
	}
	for _, v := range h.ackedNumbers[k] {
		by[pair][v] = true
	}
}

// A restarted receiver must not accept a segment that it may have delivered before: the sender's
// flow fails.
func TestReceiverRestartFailsFlowsInFlight(t *testing.T) {
	for _, tc := range []struct {
		name string
		// lose selects the packets that the sender never gets before the receiver restarts.
		lose  func(k *wire.Packet) bool
		first bool // the segment is the first of its flow
		want  error
	}{
		{"in an old flow", func(k *wire.Packet) bool { return k.Flags.Has(wire.FlagAck) }, false, ErrRefused},
		{"in a flow that starts", func(k *wire.Packet) bool { return k.Flags.Has(wire.FlagAck) }, true, ErrRestarted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNetwork(t, 1, impairment{})
			a, b := n.host(Config{}), n.host(Config{})
			if !tc.first {
				a.send(b, 10)
				n.run(time.Second, func() bool { return a.acked[a.key(b)] == 1 })
			}
			n.cut = func(from, _ *host, k *wire.Packet) bool { return from == b && tc.lose(k) }
			a.send(b, 10)
			had := len(b.got[b.key(a)])
			n.run(time.Second, func() bool { return len(b.got[b.key(a)]) == had+1 })
			b.start()
			n.cut = nil
			n.run(time.Second, func() bool { return len(a.failed) > 0 })
			if !errors.Is(a.failed[0], tc.want) {
				t.Errorf("failed with %v, want %v", a.failed[0], tc.want)
			}
			if len(b.got) > 0 {
				t.Error("the segment was delivered twice")
			}
			a.sending[a.key(b)] = 0
			a.send(b, 10)
			n.run(time.Second, func() bool { return len(b.got[b.key(a)]) == 1 })
		})
	}
}

// A receiver accepts a start that it had not accepted before it restarted.
func TestReceiverRestartBeforeCookieFailsNothing(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	n.cut = func(from, _ *host, _ *wire.Packet) bool { return from == b }
	a.send(b, 10)
	n.sleep(time.Millisecond)
	b.start()
	n.cut = nil
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 1 })
	if len(a.failed) > 0 {
		t.Errorf("failed: %v", a.failed)
	}
}

// A sender that restarts starts a new flow. The receiver drops the old one, and refuses its late
// packets.
func TestSenderRestartStartsNewFlow(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	for range 20 {
		a.send(b, 10)
	}
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 20 })
	a.start()
	for range 3 {
		a.send(b, 10)
	}
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 3 })
	if got := fmt.Sprint(b.got[b.key(a)][20:]); got != "[0 1 2]" {
		t.Errorf("after the restart: %s", got)
	}
	if b.started[b.key(a)] != 2 {
		t.Errorf("the flow started %d times, want 2", b.started[b.key(a)])
	}
}

// A replayed start with its cookie starts no flow: neither while its flow exists, nor during the
// next, nor after both were removed.
func TestReplayedStartIsIgnored(t *testing.T) {
	for _, restarts := range []int{0, 1, 2} {
		for after := time.Duration(0); after < 45*time.Second; after += 900 * time.Millisecond {
			n := newNetwork(t, 1, impairment{})
			a, b := n.host(Config{}), n.host(Config{})
			var recorded [][]byte
			n.cut = func(from, _ *host, k *wire.Packet) bool {
				if from == a && k.Flags.Has(wire.FlagData) {
					recorded = append(recorded, k.Append(nil))
				}
				return false
			}
			for range restarts + 1 {
				a.start()
				a.send(b, 10)
				n.run(time.Second, func() bool { return a.acked[a.key(b)] == 1 })
			}
			a.start()
			n.sleep(after)
			for _, packet := range recorded {
				b.deliver(a.addr, packet, false)
			}
			if got := len(b.got[b.key(a)]); got != restarts+1 {
				t.Errorf("%v after %d restarts: %d segments delivered again", after, restarts, got-restarts-1)
			}
		}
	}
}

// Nor does a replayed start whose proof is the epoch of an existing flow.
func TestReplayedStartWithEpochProofIsIgnored(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	b.send(a, 10) // its epoch is the proof
	n.run(time.Second, func() bool { return b.acked[b.key(a)] == 1 })
	var recorded [][]byte
	n.cut = func(from, _ *host, k *wire.Packet) bool {
		if from == a && k.Flags.Has(wire.FlagData) {
			recorded = append(recorded, k.Append(nil))
		}
		return false
	}
	for i := range 4 {
		a.send(b, 10)
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == i+1 })
		a.layer.peers[a.key(b)].End() // so that the next segment starts a new flow
	}
	for _, packet := range recorded {
		b.deliver(a.addr, packet, false)
	}
	b.inOrder(a, 4)
}

// A Challenge is a sign of life of its sender.
func TestChallengeCountsAsReceived(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	a.send(b, 10)
	p := a.layer.peers[a.key(b)]
	challenged := false
	n.cut = func(from, _ *host, k *wire.Packet) bool {
		challenged = challenged || k.Kind == wire.KindChallenge
		return from == a && challenged // no answer but the Challenge
	}
	n.run(time.Second, func() bool { return p.has(flagProved) })
	if p.lastReceived != n.now {
		t.Errorf("received at %v, want %v", p.lastReceived, n.now)
	}
}
