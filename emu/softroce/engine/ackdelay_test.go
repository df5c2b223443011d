package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// pingPongPeer is a scripted peer that exchanges messages in turns with an application of the NIC.
type pingPongPeer struct {
	*peer
	turns int // completed exchanges; also the next PSN in both directions
}

// newPingPong exchanges messages until the QP may delay the ACK of the next one.
func newPingPong(p *peer) *pingPongPeer {
	p.Helper()
	t := &pingPongPeer{peer: p}
	for range ackDelayProof {
		t.turn()
		t.acked()
	}
	return t
}

// turn sends a message to the NIC and posts the answer of the application.
func (t *pingPongPeer) turn() {
	t.Helper()
	t.message()
	t.post(uint64(t.turns), verbs.OpSend, 4)
	t.turns++
}

// message sends a message that the application does not answer.
func (t *pingPongPeer) message() {
	t.Helper()
	for t.q.rq.Count() < 64 {
		t.recv(0, ackDelayCovers*t.mtu)
	}
	t.send(wire.OpSendOnly, t.turns, data(4), ackReq)
	t.h.poll()
}

// beginMessage sends the first n packets of a message, and returns the PSN of the next one.
func (t *pingPongPeer) beginMessage(n int) int {
	t.Helper()
	t.send(wire.OpSendFirst, t.turns, data(t.mtu))
	for i := 1; i < n; i++ {
		t.expect()
		t.send(wire.OpSendMiddle, t.turns+i, data(t.mtu))
	}
	return t.turns + n
}

func (t *pingPongPeer) answer() string     { return fmt.Sprintf("SEND_ONLY %d 4B ackreq", t.turns-1) }
func (t *pingPongPeer) ackOf(n int) string { return fmt.Sprintf("ACK %d msn %d", n, n+1) }
func (t *pingPongPeer) turnWithDelayedAck() {
	t.Helper()
	t.turn()
	t.expect(t.answer())
	t.ack(t.turns - 1)
}

func (t *pingPongPeer) acked() {
	t.Helper()
	t.expect(t.answer(), t.ackOf(t.turns-1))
	t.ack(t.turns - 1)
}
func (t *pingPongPeer) holdEnds() mono.Time { return t.q.resp.delay.until }

func TestRCAckOfAnsweredMessageIsDelayed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		k.turnWithDelayedAck()
		k.now = k.now.Add(20 * time.Microsecond)
		k.turnWithDelayedAck()
		k.message() // the application does not answer it
		k.expect(k.ackOf(k.turns))
	})
}

func TestRCDelayedAckCoversLimitedMessages(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		for range 3 {
			for range ackDelayCovers - 1 {
				k.turnWithDelayedAck()
			}
			k.turn()
			k.acked()
		}
	})
}

func TestRCAckDelayIsLimited(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		// Without further messages the ACK is sent after the delay,
		k.turnWithDelayedAck()
		k.to(k.holdEnds() - 1)
		k.expect()
		k.to(k.holdEnds())
		k.expect(k.ackOf(k.turns - 1))
		for range ackDelayProof { // and the next ACKs are not delayed.
			k.turn()
			k.acked()
		}
		// Further messages extend the delay up to a limit.
		begin := k.now
		for acks := 0; acks < 3; {
			k.turn()
			held := k.answeredWithoutAck(k.answer(), k.ackOf(k.turns-1))
			if !held {
				acks++
				begin = k.now
			}
			k.ack(k.turns - 1)
			if waited := k.now.Sub(begin); waited > ackDelayTotal*defaultAckDelay {
				k.Fatalf("the ACK of a message was delayed for %v", waited)
			}
			k.now = k.now.Add(60 * time.Microsecond)
		}
	})
}

// answeredWithoutAck reports whether the NIC sent the answer without an ACK after it.
func (t *pingPongPeer) answeredWithoutAck(answer, ack string) (alone bool) {
	t.Helper()
	var got []string
	for i := range t.h.nic.Output(t.now, t.ds) {
		got = append(got, t.checkPacket(&t.ds[i]))
	}
	if s := strings.Join(got, ", "); s != answer && s != answer+", "+ack {
		t.Fatalf("sent %s", s)
	}
	return len(got) == 1
}

// The responder delays ACKs ever less often if the peer waits for them.
func TestRCAckDelayBacksOffWhenPeerWaits(t *testing.T) {
	k := newPingPong(newPeer(t, flavours[1], setup{})) // one flavour only: the test is slow
	gap := 0
	for want := ackDelayProof; want <= ackDelayWary; want *= 2 {
		k.turnWithDelayedAck()
		k.to(k.holdEnds())
		k.expect(k.ackOf(k.turns - 1))
		for gap = 0; k.q.resp.delay.skip > 0; gap++ {
			k.turn()
			k.acked()
		}
		if gap != want {
			k.Fatalf("no delay for %d messages, want %d", gap, want)
		}
	}
	if k.q.resp.delay.penalty != ackDelayWary {
		k.Errorf("no delay for the next %d messages, want %d", k.q.resp.delay.penalty, ackDelayWary)
	}
	// Many successful delays reset the penalty.
	for range 2 * ackDelayStreak {
		k.turn()
		k.answeredWithoutAck(k.answer(), k.ackOf(k.turns-1))
		k.ack(k.turns - 1)
	}
	if k.q.resp.delay.penalty != ackDelayProof {
		k.Errorf("after a long streak a failure ends delays for %d messages", k.q.resp.delay.penalty)
	}
}

func TestRCDelayedAckIsSentBeforeOtherResponses(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(k *pingPongPeer)
		want func(k *pingPongPeer, held string) []string
	}{
		"read": {
			func(k *pingPongPeer) { k.send(wire.OpReadRequest, k.turns, k.at(16, 4)) },
			func(k *pingPongPeer, _ string) []string {
				// The MSN is the current one when the response is sent.
				held := fmt.Sprintf("ACK %d msn %d", k.turns-1, k.turns+1)
				return []string{held, fmt.Sprintf("RR_ONLY %d 4B msn %d", k.turns, k.turns+1)}
			},
		},
		"write": {
			func(k *pingPongPeer) { k.send(wire.OpWriteOnly, k.turns, k.at(0, 0), ackReq) },
			func(k *pingPongPeer, _ string) []string { return []string{k.ackOf(k.turns)} },
		},
		"many packets of a message": {
			func(k *pingPongPeer) { k.beginMessage(ackDelayCovers - 1) },
			func(_ *pingPongPeer, held string) []string { return []string{held} },
		},
		"duplicate": {
			func(k *pingPongPeer) { k.send(wire.OpSendOnly, k.turns-1, data(4), ackReq) },
			func(_ *pingPongPeer, held string) []string { return []string{held} },
		},
		"gap": {
			func(k *pingPongPeer) { k.send(wire.OpSendOnly, k.turns+1, data(4), ackReq) },
			func(k *pingPongPeer, _ string) []string {
				return []string{fmt.Sprintf("NAK %d sequence msn %d", k.turns, k.turns)}
			},
		},
		"release": {
			func(k *pingPongPeer) {
				if !k.h.nic.ReleaseAcks() || k.h.nic.ReleaseAcks() {
					k.Error("want exactly one delayed ACK")
				}
			},
			func(_ *pingPongPeer, held string) []string { return []string{held} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				k := newPingPong(p)
				k.turnWithDelayedAck()
				held := k.ackOf(k.turns - 1)
				c.act(k)
				k.expect(c.want(k, held)...)
			})
		})
	}
}

// An answer of several packets precedes the ACK as a whole. The first packet of the next message does
// not end the delay.
func TestRCAckOfMessageOfTwoPacketsIsDelayed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		k.now = k.now.Add(time.Second)
		first := k.turns
		for n := first; n < first+6; n += 2 {
			k.send(wire.OpSendFirst, n, data(k.mtu))
			k.expect()
			k.send(wire.OpSendLast, n+1, data(4), ackReq)
			k.h.poll()
			k.post(1, verbs.OpSend, k.mtu+4)
			k.expect(fmt.Sprintf("SEND_FIRST %d %dB", n, k.mtu), fmt.Sprintf("SEND_LAST %d 4B ackreq", n+1))
			k.ack(n + 1)
		}
		k.to(k.holdEnds())
		k.expect(fmt.Sprintf("ACK %d msn %d", first+5, first+3))
	})
}

func TestRCAckFollowsManyPacketsOfAnAnswer(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		k.message()
		k.post(1, verbs.OpSend, (maxBeforeAck+1)*k.mtu)
		want := []string{fmt.Sprintf("SEND_FIRST %d %dB", k.turns, k.mtu)}
		for i := 1; i < maxBeforeAck; i++ {
			want = append(want, fmt.Sprintf("SEND_MIDDLE %d %dB", k.turns+i, k.mtu))
		}
		k.expect(append(want, k.ackOf(k.turns), fmt.Sprintf("SEND_LAST %d %dB ackreq", k.turns+maxBeforeAck, k.mtu))...)
	})
}

// An application may poll memory that its peer writes to, so ACKs of WRITEs are
// delayed like those of SENDs.
func TestRCAcksOfWritesAreDelayed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		k.send(wire.OpWriteOnly, k.turns, k.at(0, 0), ackReq)
		k.post(1, verbs.OpSend, 4)
		k.expect(fmt.Sprintf("SEND_ONLY %d 4B ackreq", k.turns))
		if !k.q.resp.delay.on {
			k.Error("no ACK is delayed")
		}
	})
}

func TestRCAckIsNotDelayed(t *testing.T) {
	for name, s := range map[string]setup{
		"delay is disabled":       {nic: func(c *Config) { c.AckDelay = -1 }},
		"timeout is short":        {attr: func(a *verbs.QPAttr) { a.Timeout = 9 }}, // 2.1 ms
		"message of many packets": {},
		"peer has no credits":     {},
		"message without answer":  {},
		"answer before message":   {},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, s, func(p *peer) {
				k := newPingPong(p)
				switch name {
				case "message of many packets":
					last := k.beginMessage(ackDelayCovers - 1)
					k.send(wire.OpSendLast, last, data(4), ackReq)
					k.post(1, verbs.OpSend, 4)
					k.expect(fmt.Sprintf("SEND_ONLY %d 4B ackreq", k.turns), fmt.Sprintf("ACK %d msn %d", last, k.turns+1))
				case "peer has no credits":
					k.q.resp.delay.creditLimit = k.q.resp.msn.Add(2) // two credits were advertised
					k.turn()
					k.acked()
				case "message without answer":
					k.message()
					k.expect(k.ackOf(k.turns))
				case "answer before message":
					k.post(1, verbs.OpSend, 4)
					k.expect(fmt.Sprintf("SEND_ONLY %d 4B ackreq", k.turns))
					k.message()
					k.expect(k.ackOf(k.turns))
				default:
					k.turn()
					k.acked()
				}
			})
		})
	}
}

func TestDestroyQPDropsDelayedAck(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		k.turnWithDelayedAck()
		must.Do(k, k.h.nic.DestroyQP(k.q))
		if k.h.nic.holds.count != 0 || k.h.nic.holds.strict != 0 {
			k.Errorf("delayed ACKs are still counted: %+v", k.h.nic.holds)
		}
		k.to(k.now.Add(time.Second))
		k.expect()
		if at := k.h.nic.Deadline(); at != mono.Never {
			k.Errorf("unexpected deadline %v", at)
		}
	})
}

func TestReleaseAcksSendsDelayedAcks(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		if k.h.nic.ReleaseAcks() {
			k.Error("ACKs were released, but none was delayed")
		}
		k.turnWithDelayedAck()
		k.expect()
		if !k.h.nic.ReleaseAcks() {
			k.Error("the delayed ACK was not released")
		}
		k.expect(k.ackOf(k.turns - 1))
		if k.h.nic.ReleaseAcks() {
			k.Error("an ACK was released twice")
		}
	})
}

func TestStrictDeadlineOmitsProvenAckDelays(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := newPingPong(p)
		k.turnWithDelayedAck()
		if k.h.nic.StrictDeadline() != k.holdEnds() {
			k.Errorf("the first delay ends at %v, but StrictDeadline is %v", k.holdEnds(), k.h.nic.StrictDeadline())
		}
		for range 2 * ackDelayProof {
			k.turn()
			k.answeredWithoutAck(k.answer(), k.ackOf(k.turns-1))
			k.ack(k.turns - 1)
		}
		if !k.q.resp.delay.on {
			k.turnWithDelayedAck()
		}
		if at := k.h.nic.StrictDeadline(); at == k.holdEnds() {
			k.Error("StrictDeadline includes a proven delay")
		}
		if at := k.h.nic.Deadline(); at > k.holdEnds() {
			k.Errorf("the delay ends at %v, the deadline is %v", k.holdEnds(), at)
		}
	})
}
