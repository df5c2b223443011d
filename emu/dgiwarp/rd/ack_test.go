package rd

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// data returns a packet of the flow to which p belongs.
func data(p *Peer, seq wire.Seq, flags wire.Flags) []byte {
	k := wire.Packet{
		Header: wire.NewHeader(wire.KindRD, testQP, testQP, 1),
		Data:   wire.Data{Epoch: p.send.epoch, Seq: seq}, ULPDU: content(nil, uint32(seq), 10),
	}
	k.Flags = wire.FlagData | flags
	return k.Append(nil)
}

// The receiver acknowledges at once a packet that is out of order, fills a gap, is a duplicate or
// has FlagAckNow; others after 100 µs, and every 32nd.
func TestReceiverAcknowledgesAtOnceOrDelayed(t *testing.T) {
	n, a, b, p := established(t)
	take := func(seq wire.Seq, flags wire.Flags) {
		b.deliver(a.addr, data(p, seq, flags), false)
		b.flush()
	}
	acks := b.layer.Count.SentAcks
	expect := func(what string, want uint64) {
		t.Helper()
		if got := b.layer.Count.SentAcks - acks; got != want {
			t.Errorf("%s: %d acknowledgements, want %d", what, got, want)
		}
		acks = b.layer.Count.SentAcks
	}
	take(1, 0)
	expect("in order", 0)
	n.now = n.now.Add(99 * time.Microsecond)
	b.layer.Tick(n.now)
	b.flush()
	expect("99 µs later", 0)
	n.now = n.now.Add(time.Microsecond)
	b.layer.Tick(n.now)
	b.flush()
	expect("100 µs later", 1)
	take(2, wire.FlagAckNow)
	expect("FlagAckNow", 1)
	take(2, 0)
	expect("duplicate", 1)
	take(5, 0)
	expect("after a gap", 1)
	take(3, 0)
	expect("in a gap", 1)
	take(4, 0)
	expect("closes a gap", 1)
	for seq := wire.Seq(6); seq < 6+31; seq++ {
		take(seq, 0)
	}
	expect("31 in a row", 0)
	take(6+31, 0)
	expect("the 32nd", 1)
}

// Acknowledgements are piggybacked on replies once the receiver replies regularly. Without replies
// they are sent at once.
func TestAcknowledgementsArePiggybackedOnReplies(t *testing.T) {
	n, a, b, _ := established(t)
	left := 50
	a.take = func(Key, uint32) {
		if left > 0 {
			left--
			a.send(b, 10)
		}
	}
	b.take = func(Key, uint32) { b.reply = a }
	a.send(b, 10)
	n.run(time.Second, func() bool { return left == 0 && b.acked[b.key(a)] == 51 })
	if alone := a.layer.Count.SentAcks + b.layer.Count.SentAcks; alone > 8 {
		t.Errorf("%d separate acknowledgements in 51 exchanges", alone)
	}
	b.take = nil
	for range 5 {
		a.send(b, 10)
		start, want := n.now, a.acked[a.key(b)]+1
		n.run(time.Second, func() bool { return a.acked[a.key(b)] == want })
		if took := n.now.Sub(start); want > 55 && took > 20*time.Microsecond {
			t.Errorf("unanswered segment %d was acknowledged after %v", want, took)
		}
	}
}

// A retransmission has FlagAckNow, whatever follows it.
func TestRetransmissionsRequestAcknowledgement(t *testing.T) {
	n, a, b, p := established(t)
	p.send.cc.cwnd = 256
	lose, resent, followed := loseFirst(3, func(k *wire.Packet) bool { return k.Data.Seq%7 == 1 }), 0, 0
	seen := map[wire.Seq]bool{}
	n.cut = func(from, to *host, k *wire.Packet) bool {
		if from == a && k.Flags.Has(wire.FlagData) {
			if seen[k.Data.Seq] {
				resent++
				if p.canSendMore() {
					followed++
				}
				if !k.Flags.Has(wire.FlagAckNow) {
					t.Errorf("packet %d was retransmitted without FlagAckNow", k.Data.Seq)
				}
			}
			seen[k.Data.Seq] = true
		}
		return lose(from, to, k)
	}
	for range 200 {
		a.send(b, 10)
	}
	n.run(time.Second, func() bool { return p.Waiting() == 0 })
	if resent < 3 || followed == 0 {
		t.Errorf("%d packets were retransmitted, %d of them with packets after them", resent, followed)
	}
}

// An acknowledgement without room in a packet is sent separately, after the segment. carry checks
// the length of every packet.
func TestAcknowledgementWithoutRoomIsSentSeparately(t *testing.T) {
	for _, short := range []int{0, wire.AckLen + wire.SackWordLen} {
		n, a, b, p := established(t)
		b.deliver(a.addr, data(p, 3, 0), false) // after a gap
		b.send(a, b.layer.MaxSegment()-short)
		acks, packets := b.layer.Count.SentAcks, n.sent
		b.flush()
		alone, rides := b.layer.Count.SentAcks-acks, short > 0
		if rides != (alone == 0) || n.sent-packets != 1+int(alone) {
			t.Errorf("%d octets short of full: %d packets, of which %d carry an acknowledgement alone", short, n.sent-packets, alone)
		}
	}
}

// The receiver stores the last packet that fits the window, and drops the next.
func TestReceiverDropsPacketsBeyondWindow(t *testing.T) {
	_, a, b, p := established(t)
	back := b.layer.peers[b.key(a)]
	b.deliver(a.addr, data(p, back.recv.next.Add(wire.Window), 0), false)
	if back.recv.stored != nil || b.layer.Count.DropBeyond != 1 {
		t.Errorf("beyond the window: stored %v, %d dropped", back.recv.stored, b.layer.Count.DropBeyond)
	}
	b.deliver(a.addr, data(p, back.recv.next.Add(wire.Window-1), 0), false)
	var ack wire.Ack
	back.fillAck(&ack)
	if b.layer.Count.DropBeyond != 1 || ack.Words != wire.MaxSackWords || ack.SackSpan() != wire.Window {
		t.Errorf("the last of the window: %d dropped, %+v", b.layer.Count.DropBeyond, ack)
	}
}

// The sender ignores an acknowledgement that covers, anywhere in it, a segment never sent.
func TestSenderIgnoresAcknowledgementOfUnsentSegments(t *testing.T) {
	n, a, b, p := established(t)
	n.cut = func(_, _ *host, _ *wire.Packet) bool { return true }
	for range 3 {
		a.send(b, 10)
	}
	a.flush() // 1, 2 and 3 are in flight
	for _, tc := range []struct {
		name  string
		ack   wire.Ack
		taken bool
	}{
		{"next beyond", wire.Ack{Next: 5}, false},
		{"next far beyond", wire.Ack{Next: p.send.una.Add(1<<31 - 1), Words: 8, Sack: [8]uint32{7: 1 << 31}}, false},
		{"one too many after the gap", wire.Ack{Next: 2, Words: 1, Sack: [8]uint32{0b10}}, false},
		{"and one that is there", wire.Ack{Next: 1, Words: 1, Sack: [8]uint32{0b101}}, false},
		{"in a later SACK word", wire.Ack{Next: 1, Words: 8, Sack: [8]uint32{7: 1}}, false},
		{"all after a gap", wire.Ack{Next: 1, Words: 8, Sack: [8]uint32{0b11}}, true},
		{"all", wire.Ack{Next: 4}, true},
	} {
		una, sacked, dropped := p.send.una, p.send.sacked, a.layer.Count.DropAck
		k := wire.Packet{Header: wire.NewHeader(wire.KindRD, testQP, testQP, 1), Ack: tc.ack}
		k.Flags, k.Ack.Epoch, k.Ack.Window = wire.FlagAck, p.send.epoch, wire.Window
		a.deliver(b.addr, k.Append(nil), false)
		taken := p.send.una != una || p.send.sacked != sacked
		if counted := a.layer.Count.DropAck != dropped; taken != tc.taken || counted == taken {
			t.Errorf("%s: accepted %v, counted as dropped %v", tc.name, taken, counted)
		}
	}
}

// A packet without data and acknowledgement is counted and ignored.
func TestEmptyPacketsAreCounted(t *testing.T) {
	_, a, b, _ := established(t)
	k := wire.Packet{Header: wire.NewHeader(wire.KindRD, testQP, testQP, 1)}
	a.deliver(b.addr, k.Append(nil), false)
	if a.layer.Count.DropEmpty != 1 {
		t.Errorf("%+v", a.layer.Count)
	}
}

// Deadlines of timeouts and acknowledgements have slack; those of pacing and idle peers have none.
func TestDeadlineSlack(t *testing.T) {
	n, a, b, p := established(t)
	if fresh, err := New(Config{Secret: [16]byte{1}, MaxPacket: 1400}); err != nil || fresh.StrictDeadline() != mono.Never {
		t.Fatalf("a layer without peers has a deadline, or %v", err)
	}
	expect := func(what string, h *host, slack time.Duration) {
		t.Helper()
		if at, strict := h.layer.Deadline(), h.layer.StrictDeadline(); strict != at.Add(slack) {
			t.Errorf("%s: deadline %v, strict %v, want %v more", what, at, strict, slack)
		}
	}
	n.sleep(50 * time.Millisecond)
	expect("quiet", a, 0)
	if at := p.lastReceived.Add(30 * time.Second); a.layer.Deadline() != at { // section 9 of the specification
		t.Errorf("idle: deadline %v, want %v", a.layer.Deadline(), at)
	}
	a.send(b, 10)
	a.flush()
	expect("in flight", a, timeoutSlack)
	back := b.layer.peers[b.key(a)]
	back.set(flagDelayAcks, true)
	n.run(time.Millisecond, func() bool { return len(b.got[b.key(a)]) == 2 })
	if b.layer.delayedAcks != 1 {
		t.Fatalf("%d acknowledgements are held back", b.layer.delayedAcks)
	}
	expect("held back", b, ackSlack)
	n.run(10*time.Millisecond, func() bool { return p.Waiting() == 0 })
	p.send.cc.srtt, p.send.cc.rttvar, p.send.cc.cwnd, p.send.cc.ssthresh = 10_000_000, 100, 256, 4
	for range 250 {
		a.send(b, 10)
	}
	n.run(100*time.Microsecond, func() bool { return p.has(flagPaced) })
	expect("paced", a, 0)
	n.run(time.Second, func() bool { return p.Waiting() == 0 })
}
