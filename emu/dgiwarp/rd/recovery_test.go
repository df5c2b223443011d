package rd

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// established returns two hosts after a has sent one segment to b.
func established(t *testing.T) (n *network, a, b *host, p *Peer) {
	n = newNetwork(t, 1, impairment{})
	a, b = n.host(Config{}), n.host(Config{})
	a.send(b, 10)
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 1 })
	return n, a, b, a.layer.peers[a.key(b)]
}

// loseFirst drops the first n packets with data that match.
func loseFirst(n int, match func(*wire.Packet) bool) func(from, to *host, k *wire.Packet) bool {
	return func(_, _ *host, k *wire.Packet) bool {
		if n > 0 && k.Flags.Has(wire.FlagData) && match(k) {
			n--
			return true
		}
		return false
	}
}

func TestEpochsAreNotRepeated(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	seen := map[wire.Epoch]bool{}
	for range 5 {
		h := n.host(Config{})
		for range 2000 {
			e := h.layer.secrets.newEpoch()
			if seen[e] || e == 0 {
				t.Fatalf("epoch %#x after %d others", e, len(seen))
			}
			seen[e] = true
		}
	}
}

// A lost packet is retransmitted as soon as three later ones have arrived, long before a timeout.
// So is a lost retransmission.
func TestLossIsDetectedWithoutTimeout(t *testing.T) {
	for _, times := range []int{1, 2, 3} {
		n, a, b, _ := established(t)
		n.cut = loseFirst(times, func(k *wire.Packet) bool { return k.Data.Seq == 3 })
		start := n.now
		sent := 0
		n.run(time.Second, func() bool {
			for sent < 400 && a.send(b, 10) {
				sent++
			}
			return a.acked[a.key(b)] == 401
		})
		c := &a.layer.Count
		if c.Timeouts != 0 || c.SentAgain != uint64(times)+1 || n.now.Sub(start) > time.Millisecond {
			t.Errorf("%d times: %d timeouts, %d retransmitted (one of them the start), took %v", times, c.Timeouts, c.SentAgain, n.now.Sub(start))
		}
		b.inOrder(a, 401)
	}
}

// The loss of the last packet is detected without three later ones.
func TestLossOfLastPacketIsDetected(t *testing.T) {
	n, a, b, _ := established(t)
	n.cut = loseFirst(1, func(k *wire.Packet) bool { return k.Data.Seq == 1 })
	a.send(b, 10)
	a.send(b, 10)
	n.run(500*time.Microsecond, func() bool { return a.acked[a.key(b)] == 3 })
	if a.layer.Count.Timeouts != 0 {
		t.Errorf("%d timeouts", a.layer.Count.Timeouts)
	}
}

// Losses are detected after acknowledgements without a SACK, too: packets that were sent again have arrived.
func TestLossIsDetectedWithoutSACK(t *testing.T) {
	n, a, b, _ := established(t)
	losses := map[wire.Seq]int{1: 1, 2: 1, 3: 1, 7: 1, 8: 1, 9: 1, 10: 1}
	n.cut = func(_, _ *host, k *wire.Packet) bool {
		isLost := k.Flags.Has(wire.FlagData) && losses[k.Data.Seq] > 0
		if isLost {
			losses[k.Data.Seq]--
		}
		return isLost
	}
	for range 10 {
		a.send(b, 10)
	}
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 11 })
	if c := &a.layer.Count; c.Timeouts != 0 || c.LossesSeen != 7 {
		t.Errorf("%d timeouts, and %d losses detected otherwise, want 0 and 7", c.Timeouts, c.LossesSeen)
	}
}

// That the oldest packet was sent again, and is on its way, does not hide the loss of later ones that were sent before.
func TestLossBehindRetransmissionIsDetected(t *testing.T) {
	n, a, b, p := established(t)
	n.cut = loseFirst(1000, func(*wire.Packet) bool { return true })
	for range 10 {
		a.send(b, 10)
	}
	a.flush()
	for _, c := range []struct {
		next wire.Seq
		sack uint32
		seen uint64
	}{
		{1, 0b11100, 3},    // 4, 5 and 6 have arrived: 1, 2 and 3 are sent again
		{2, 0b1110, 3 + 2}, // then 1: so are 7 and 8
		{7, 0, 3 + 2 + 2},  // then 2 and 3, but not 7: 9 and 10 are lost, too
		{11, 0, 3 + 2 + 2}, // all
	} {
		k := wire.Ack{Epoch: p.send.epoch, Next: c.next, Echo: microseconds(n.now), Window: wire.Window}
		if c.sack != 0 {
			k.Words, k.Sack[0] = 1, c.sack
		}
		p.receiveAck(n.now, &k, 0)
		a.flush()
		if got := a.layer.Count.LossesSeen; got != c.seen {
			t.Errorf("%d losses detected after an acknowledgement of %d, want %d", got, c.next, c.seen)
		}
	}
}

// Fewer later packets than the threshold show a loss only if none can follow: not while segments wait for room.
func TestThresholdHoldsWhileSegmentsWaitForRoom(t *testing.T) {
	for _, more := range []bool{false, true} {
		n := newNetwork(t, 1, impairment{})
		a, b := n.host(Config{Limits: Limits{PeerSegments: 3}}), n.host(Config{})
		a.send(b, 10)
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == 1 })
		n.cut = loseFirst(1, func(k *wire.Packet) bool { return k.Data.Seq == 1 })
		for range 3 {
			a.send(b, 10)
		}
		a.layer.peers[a.key(b)].SetMore(more)
		n.sleep(500 * time.Microsecond)
		if seen := a.layer.Count.LossesSeen > 0; seen == more {
			t.Errorf("segments wait %v, loss detected %v after two later packets", more, seen)
		}
	}
}

// The reordering threshold adapts to a network that reorders all the time.
func TestReorderingThresholdAdapts(t *testing.T) {
	n := newNetwork(t, 1, impairment{reorder: 30})
	a, b := n.host(Config{}), n.host(Config{})
	again := func(count int) uint64 {
		before, want := a.layer.Count.SentAgain, a.acked[a.key(b)]+count
		n.run(10*time.Second, func() bool {
			for count > 0 && a.send(b, 10) {
				count--
			}
			return a.acked[a.key(b)] == want
		})
		return a.layer.Count.SentAgain - before
	}
	first, later := again(300), again(300)
	if first < 3 || later > first/2 {
		t.Errorf("of 300 packets %d were sent again, and of the next 300 still %d", first, later)
	}
	if p := a.layer.peers[a.key(b)]; p.send.loss.reorder <= firstReorder {
		t.Errorf("a packet counts as lost after %d others", p.send.loss.reorder)
	}
	p := a.layer.peers[a.key(b)]
	n.cut = func(_, _ *host, _ *wire.Packet) bool { return true }
	a.send(b, 10)
	n.sleep(time.Second)
	if p.send.loss.reorder != firstReorder {
		t.Errorf("after a timeout a packet counts as lost after %d others", p.send.loss.reorder)
	}
}

// The round trip is 20 µs, and includes the delay at the receiver.
func TestRoundTripsAreMeasured(t *testing.T) {
	n, a, b, p := established(t)
	if p.timeoutAfter() < time.Millisecond {
		t.Errorf("timeout of %v", p.timeoutAfter())
	}
	for range 100 {
		want := a.acked[a.key(b)] + 1
		a.send(b, 10)
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == want })
	}
	if p.send.cc.srtt < 19_000 || p.send.cc.srtt > 21_000 {
		t.Errorf("round trip of %d ns, want 20 µs", p.send.cc.srtt)
	}
	// Retransmitted packets are measured too.
	n.delay = 2 * time.Millisecond
	n.cut = loseFirst(20, func(*wire.Packet) bool { return n.rng.IntN(2) == 0 })
	for range 100 {
		want := a.acked[a.key(b)] + 1
		a.send(b, 10)
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == want })
	}
	if p.send.cc.srtt < 3_900_000 || p.send.cc.srtt > 4_100_000 {
		t.Errorf("round trip of %d ns, want 4 ms", p.send.cc.srtt)
	}
	if got := p.timeoutAfter(); got < 4*time.Millisecond || got > 12*time.Millisecond {
		t.Errorf("timeout of %v", got)
	}
}

func TestWindowFollowsLosses(t *testing.T) {
	p := &Peer{layer: new(Layer)}
	p.begin(1, false)
	p.send.cc.grow(16)
	if p.send.cc.cwnd != 32 {
		t.Errorf("window %d after a first round, want 32", p.send.cc.cwnd)
	}
	p.send.sent, p.send.next = 32, 32
	p.send.reduceWindow()
	p.send.reduceWindow()
	if p.send.cc.cwnd != 22 {
		t.Errorf("window %d after two losses of one round, want 22", p.send.cc.cwnd)
	}
	for range 22 {
		p.send.cc.grow(1)
	}
	if p.send.cc.cwnd != 23 {
		t.Errorf("window %d after another round, want 23", p.send.cc.cwnd)
	}
	p.send.una = 32
	p.send.reduceWindow()
	if p.send.cc.cwnd != 16 {
		t.Errorf("window %d after a loss in the next round, want 16", p.send.cc.cwnd)
	}
	p.send.setWindow(minWindow)
	p.send.una, p.send.cc.recoveryEnd = 33, 33
	p.send.reduceWindow()
	if p.send.cc.cwnd != minWindow {
		t.Errorf("window %d, want at least %d", p.send.cc.cwnd, minWindow)
	}
	p.send.cc.grow(10_000)
	p.send.cc.grow(10_000)
	if p.send.cc.cwnd > wire.Window {
		t.Errorf("window %d", p.send.cc.cwnd)
	}

	n, a, b, q := established(t)
	before := q.send.cc.cwnd
	n.bad.mark = 100
	a.send(b, 10)
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 2 })
	if q.send.cc.cwnd >= before+1 {
		t.Errorf("window %d after a mark, %d before", q.send.cc.cwnd, before)
	}
}

// With a round trip of 10 ms and a window of 256, the sender paces at 5/4 of a window per round
// trip, in bursts of at most 32.
func TestPacingSpreadsPackets(t *testing.T) {
	n, a, b, p := established(t)
	n.delay = 5 * time.Millisecond
	p.send.cc.srtt, p.send.cc.rttvar, p.send.cc.cwnd, p.send.cc.ssthresh = 10_000_000, 100, 256, 4
	var times []mono.Time
	n.cut = func(from, _ *host, k *wire.Packet) bool {
		if from == a && k.Flags.Has(wire.FlagData) {
			times = append(times, n.now)
		}
		return false
	}
	for range 250 {
		a.send(b, 10)
	}
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 251 })
	if a.layer.Count.Timeouts > 0 || len(times) != 250 {
		t.Fatalf("%d timeouts, %d packets for 250", a.layer.Count.Timeouts, len(times))
	}
	most, burstStart := 0, 0
	for i := range times {
		if times[i] != times[burstStart] {
			burstStart = i
		}
		most = max(most, i-burstStart+1)
	}
	if took := times[249].Sub(times[0]); most > burst || took < 6*time.Millisecond || took > 8*time.Millisecond {
		t.Errorf("250 packets were sent within %v, up to %d at once: want about 7 ms (250/256 of 8 ms less a burst) and %d", took, most, burst)
	}
}

// A receiver may advertise a smaller window.
func TestSenderKeepsToSmallWindow(t *testing.T) {
	n, a, b, p := established(t)
	p.send.window = 8
	most := 0
	n.cut = func(from, _ *host, k *wire.Packet) bool {
		if from == a {
			most = max(most, int(p.send.outstanding()))
		}
		k.Ack.Window = 8
		return from == b // keeps the window unchanged
	}
	for range 50 {
		a.send(b, 10)
	}
	n.sleep(500 * time.Microsecond)
	if most != 8 {
		t.Errorf("%d packets in flight, want 8", most)
	}
}

// An acknowledgement of an earlier copy proves nothing about packets sent since the later copy.
func TestAcknowledgementOfOldCopyDetectsNoLoss(t *testing.T) {
	p := &Peer{layer: new(Layer)}
	s := &segment{tries: 2, sentNo: 9, sentAt: 500}
	if !p.send.markArrived(s, 400) || p.send.loss.arrived != 0 {
		t.Errorf("the echo of an earlier copy counts as transmission %d", p.send.loss.arrived)
	}
	s.sacked = false
	if !p.send.markArrived(s, 500) || p.send.loss.arrived != 9 {
		t.Errorf("the echo of the latest copy counts as transmission %d", p.send.loss.arrived)
	}
}

// RefuseFlow fails the peer's flow; the next flow is accepted.
func TestRefusedFlowsFail(t *testing.T) {
	n, a, b, _ := established(t)
	b.layer.peers[b.key(a)].RefuseFlow()
	a.send(b, 10)
	n.run(time.Second, func() bool { return len(a.failed) > 0 })
	if len(b.got[b.key(a)]) != 1 {
		t.Error("the refused segment was delivered")
	}
	a.sending[a.key(b)] = 1
	a.send(b, 10)
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 2 })
	b.inOrder(a, 2)
}

// End releases waiting segments, and the next segment starts a new flow.
func TestSendAfterEndStartsNewFlow(t *testing.T) {
	n, a, b, p := established(t)
	epoch := p.Epoch()
	a.send(b, 10)
	p.End()
	if p.Epoch() != 0 || p.Waiting() != 0 || a.layer.segments.used != 0 {
		t.Errorf("epoch %#x, %d waiting", p.Epoch(), p.Waiting())
	}
	a.waiting[a.key(b)] = nil
	a.send(b, 10)
	n.run(time.Second, func() bool { return a.acked[a.key(b)] == 2 })
	if p.Epoch() == epoch || b.started[b.key(a)] != 2 {
		t.Errorf("epoch %#x, %d starts", p.Epoch(), b.started[b.key(a)])
	}
}

// Round trips are at most 4 s, which fit into 32 bits of nanoseconds.
func TestLongRoundTripsAreLimited(t *testing.T) {
	for _, rtt := range []time.Duration{4 * time.Second, 5 * time.Second, time.Hour} {
		var c congestion
		if c.sampleRTT(rtt); time.Duration(c.srtt) != 4*time.Second || time.Duration(c.rttvar) != 2*time.Second {
			t.Errorf("round trip of %v: smoothed %v, variation %v", rtt, time.Duration(c.srtt), time.Duration(c.rttvar))
		}
	}
}

// A selective acknowledgement ends with the word of the last packet that arrived.
func TestSackHasNoEmptyWordAtItsEnd(t *testing.T) {
	for ahead, want := range map[int32]int{1: 1, 32: 1, 33: 2, 64: 2, 65: 3, wire.Window - 1: 8} {
		f := recvFlow{next: 7, stored: &stored{seq: wire.Seq(7).Add(ahead)}}
		if got := f.sackWords(); got != want {
			t.Errorf("packet %d after the next: %d words, want %d", ahead, got, want)
		}
	}
}
