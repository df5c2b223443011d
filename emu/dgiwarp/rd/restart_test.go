package rd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

// history is what happened between hosts over all of their lives. Numbers of
// segments go on when a host starts anew.
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

// restart makes a host forget everything, with its numbers going on.
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

// Through loss, late duplicates and restarts of either side at any time, no
// segment is delivered twice, none overtakes another, and none that was
// acknowledged is missing.
func TestNothingTwiceWhoeverRestarts(t *testing.T) {
	for seed := range uint64(30) {
		n := newNetwork(t, seed, trouble{loss: 10, duplicate: 10, reorder: 20, linger: 5})
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
			// Some rounds are short, so that much is under way when a host goes; some
			// are long, so that peers are forgotten.
			n.sleep(time.Duration(n.rng.Int64N(int64(50 * time.Microsecond))))
			if n.rng.IntN(10) == 0 {
				n.sleep(time.Duration(n.rng.Int64N(int64(40 * time.Second))))
			}
			for _, h := range n.hosts {
				for _, to := range n.hosts {
					y.noteAcked(ackedBy, h, to)
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
				y.noteAcked(ackedBy, h, to)
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
				t.Fatalf("seed %d: %v remembers %d peers after two minutes", seed, h, p)
			}
		}
		if total < 300 {
			t.Errorf("seed %d: only %d segments delivered", seed, total)
		}
	}
}

// noteAcked remembers what is acknowledged: of the numbers that were sent in this
// life of h and have not failed, all that do not wait.
func (y *history) noteAcked(by map[[2]*host]map[uint32]bool, h, to *host) {
	pair, k := [2]*host{h, to}, h.key(to)
	if by[pair] == nil {
		by[pair] = map[uint32]bool{}
	}
	for _, v := range h.ackedNumbers[k] {
		by[pair][v] = true
	}
}

// A receiver that restarts must not take what its predecessor may have taken:
// the sender is told, and decides.
func TestReceiverRestartFailsWhatWasUnderWay(t *testing.T) {
	for _, tc := range []struct {
		name string
		// lose is what the sender never sees before the receiver restarts.
		lose  func(k *wire.Packet) bool
		first bool // the segment is the first of its flow
		want  error
	}{
		{"in an old flow", func(k *wire.Packet) bool { return k.Flags.Has(wire.FlagAck) }, false, ErrRefused},
		{"in a flow that starts", func(k *wire.Packet) bool { return k.Flags.Has(wire.FlagAck) }, true, ErrRestarted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNetwork(t, 1, trouble{})
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
				t.Error("the new one took what the old one had taken")
			}
			a.sending[a.key(b)] = 0
			a.send(b, 10)
			n.run(time.Second, func() bool { return len(b.got[b.key(a)]) == 1 })
		})
	}
}

// A start that the receiver's predecessor never took goes to the new one.
func TestReceiverRestartBeforeTheCookieIsHarmless(t *testing.T) {
	n := newNetwork(t, 1, trouble{})
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

// A sender that restarts begins a new flow; what the receiver knew of the old one
// goes, and what is left of that on the network is refused.
func TestSenderRestartBeginsAnew(t *testing.T) {
	n := newNetwork(t, 1, trouble{})
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
	if b.begins[b.key(a)] != 2 {
		t.Errorf("the flow began %d times, want 2", b.begins[b.key(a)])
	}
}

// A recorded start, with its cookie, starts nothing: neither while its flow is
// known, nor when the next one is, nor when it is forgotten.
func TestRecordedPacketsStartNothing(t *testing.T) {
	for _, restarts := range []int{0, 1, 2} {
		for after := time.Duration(0); after < 45*time.Second; after += 900 * time.Millisecond {
			n := newNetwork(t, 1, trouble{})
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

// Nor does a recorded start whose proof is the epoch of a flow that is still there.
func TestRecordedAnswersStartNothing(t *testing.T) {
	n := newNetwork(t, 1, trouble{})
	a, b := n.host(Config{}), n.host(Config{})
	b.send(a, 10) // the flow whose epoch proves
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
		a.layer.peers[a.key(b)].End() // so that the next begins another flow
	}
	for _, packet := range recorded {
		b.deliver(a.addr, packet, false)
	}
	b.inOrder(a, 4)
}
