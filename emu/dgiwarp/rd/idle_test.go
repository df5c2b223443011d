package rd

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// A peer that was idle is forgotten on both sides, at the times of the
// specification, and is used again as if it were new.
func TestIdlePeersAreForgotten(t *testing.T) {
	n := newNetwork(t, 1, trouble{})
	a, b := n.host(Config{}), n.host(Config{})
	use := func() {
		want := a.acked[a.key(b)] + 1
		a.send(b, 10)
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == want })
	}
	use()
	n.sleep(9 * time.Second)
	use() // within the time that a flow may be used
	if b.layer.Count.SentChallenges != 1 {
		t.Errorf("%d challenges after nine seconds, want 1", b.layer.Count.SentChallenges)
	}
	n.sleep(11 * time.Second)
	use() // begins anew while the receiver still knows the old flow
	if b.layer.Count.SentChallenges != 2 || b.begins[b.key(a)] != 2 {
		t.Errorf("%d challenges and %d beginnings after eleven idle seconds, want 2 and 2", b.layer.Count.SentChallenges, b.begins[b.key(a)])
	}
	n.sleep(29 * time.Second)
	if a.layer.Peers() != 1 || b.layer.Peers() != 1 {
		t.Errorf("%d and %d peers after 29 s, want 1 and 1", a.layer.Peers(), b.layer.Peers())
	}
	n.sleep(2 * time.Second)
	if a.layer.Peers() != 0 || b.layer.Peers() != 0 || a.gone != 1 || b.gone != 1 {
		t.Errorf("%d and %d peers after 31 s, %d and %d reported as gone", a.layer.Peers(), b.layer.Peers(), a.gone, b.gone)
	}
	if d := a.layer.Deadline(); d != b.layer.Deadline() || a.layer.timers.next() != d {
		t.Errorf("deadlines %v and %v without peers", d, b.layer.Deadline())
	}
	use()
	b.inOrder(a, 4)
	if len(a.failed) > 0 {
		t.Errorf("failed: %v", a.failed)
	}
}

// Both sides use a peer at about the moment when its flows grow too old to be
// used: whichever way each decides, nothing fails.
func TestFlowsGrowOldOnBothSides(t *testing.T) {
	for skew := -40; skew <= 40; skew++ {
		n := newNetwork(t, 1, trouble{})
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

// A cookie is good in its slot and the next, and not later.
func TestCookiesAreGoodForTwoSlots(t *testing.T) {
	slot := DefaultTiming().CookieSlot
	for _, tc := range []struct {
		after time.Duration
		good  bool
	}{{0, true}, {slot, true}, {2*slot - time.Millisecond, true}, {2 * slot, false}, {3 * slot, false}} {
		n := newNetwork(t, 1, trouble{})
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
			t.Errorf("after %v: %d segments taken", tc.after, got)
		}
	}
}
