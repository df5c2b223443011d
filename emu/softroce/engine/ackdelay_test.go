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

// turnTaker is a scripted peer that exchanges messages in turns with an application
// on the NIC.
type turnTaker struct {
	*peer
	turns int // taken so far; also the next PSN, both ways
}

// inTurns exchanges messages until the QP may delay the ACK of the next one.
func inTurns(p *peer) *turnTaker {
	p.Helper()
	t := &turnTaker{peer: p}
	for range ackDelayProof {
		t.turn()
		t.acked()
	}
	return t
}

// turn sends a message to the NIC and posts the answer of the application.
func (t *turnTaker) turn() {
	t.Helper()
	t.message()
	t.post(uint64(t.turns), verbs.OpSend, 4)
	t.turns++
}

// message sends a message that the application does not answer.
func (t *turnTaker) message() {
	t.Helper()
	for t.q.rq.Count() < 64 {
		t.recv(0, recvSize)
	}
	t.send(wire.OpSendOnly, t.turns, data(4), ackReq)
	t.h.poll()
}

func (t *turnTaker) answer() string     { return fmt.Sprintf("SEND_ONLY %d 4B ackreq", t.turns-1) }
func (t *turnTaker) ackOf(n int) string { return fmt.Sprintf("ACK %d msn %d", n, n+1) }
func (t *turnTaker) heldTurn()          { t.Helper(); t.turn(); t.expect(t.answer()); t.ack(t.turns - 1) }

func (t *turnTaker) acked()              { t.Helper(); t.expect(t.answer(), t.ackOf(t.turns-1)); t.ack(t.turns - 1) }
func (t *turnTaker) holdEnds() mono.Time { return t.q.resp.hold.until }

func TestRCAckOfAnsweredMessageIsDelayed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := inTurns(p)
		k.heldTurn()
		k.now = k.now.Add(20 * time.Microsecond)
		k.heldTurn()
		k.message() // which the program does not answer
		k.expect(k.ackOf(k.turns))
	})
}

func TestRCDelayedAckCoversLimitedMessages(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := inTurns(p)
		for range 3 {
			for range ackDelayCovers - 1 {
				k.heldTurn()
			}
			k.turn()
			k.acked()
		}
	})
}

func TestRCAckDelayIsLimited(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := inTurns(p)
		// Alone it waits for so long,
		k.heldTurn()
		k.to(k.holdEnds() - 1)
		k.expect()
		k.to(k.holdEnds())
		k.expect(k.ackOf(k.turns - 1))
		for range ackDelayProof { // and holding is not tried again at once.
			k.turn()
			k.acked()
		}
		// With others coming it waits for longer, but not for ever.
		begin := k.now
		for acks := 0; acks < 3; {
			k.turn()
			held := k.expectEither(k.answer(), k.ackOf(k.turns-1))
			if !held {
				acks++
				begin = k.now
			}
			k.ack(k.turns - 1)
			if waited := k.now.Sub(begin); waited > ackDelayTotal*defaultAckDelay {
				k.Fatalf("the ACK of a message has waited for %v", waited)
			}
			k.now = k.now.Add(60 * time.Microsecond)
		}
	})
}

// expectEither reports whether the answer was sent without an ACK after it.
func (t *turnTaker) expectEither(answer, ack string) (alone bool) {
	t.Helper()
	var got []string
	for i := range t.h.nic.Output(t.now, t.ds) {
		got = append(got, t.see(&t.ds[i]))
	}
	if s := strings.Join(got, ", "); s != answer && s != answer+", "+ack {
		t.Fatalf("sent %s", s)
	}
	return len(got) == 1
}

// The responder delays ACKs ever less often if the peer waits for them.
func TestRCAckDelayBacksOffWhenPeerWaits(t *testing.T) {
	k := inTurns(newPeer(t, flavours[1], setup{})) // one flavour: it takes many turns
	gap := 0
	for want := ackDelayProof; want <= ackDelayWary; want *= 2 {
		k.heldTurn()
		k.to(k.holdEnds())
		k.expect(k.ackOf(k.turns - 1))
		for gap = 0; k.q.resp.hold.skip > 0; gap++ {
			k.turn()
			k.acked()
		}
		if gap != want {
			k.Fatalf("%d messages were not tried with, want %d", gap, want)
		}
	}
	if k.q.resp.hold.penalty != ackDelayWary {
		k.Errorf("the next %d messages would not be tried with, want %d", k.q.resp.hold.penalty, ackDelayWary)
	}
	// Many successful delays reset the penalty.
	for range 2 * ackDelayStreak {
		k.turn()
		k.expectEither(k.answer(), k.ackOf(k.turns-1))
		k.ack(k.turns - 1)
	}
	if k.q.resp.hold.penalty != ackDelayProof {
		k.Errorf("after a long streak a failure still costs %d messages", k.q.resp.hold.penalty)
	}
}

func TestRCDelayedAckIsSentBeforeOtherResponses(t *testing.T) {
	for name, c := range map[string]struct {
		come func(k *turnTaker)
		want func(k *turnTaker, held string) []string
	}{
		"read": {
			func(k *turnTaker) { k.send(wire.OpReadRequest, k.turns, k.at(16, 4)) },
			func(k *turnTaker, _ string) []string {
				// The MSN is that of the moment in which an answer leaves.
				held := fmt.Sprintf("ACK %d msn %d", k.turns-1, k.turns+1)
				return []string{held, fmt.Sprintf("RR_ONLY %d 4B msn %d", k.turns, k.turns+1)}
			},
		},
		"write": {
			func(k *turnTaker) { k.send(wire.OpWriteOnly, k.turns, k.at(0, 0), ackReq) },
			func(k *turnTaker, _ string) []string { return []string{k.ackOf(k.turns)} },
		},
		"part of a message": {
			func(k *turnTaker) { k.send(wire.OpSendFirst, k.turns, data(k.mtu)) },
			func(_ *turnTaker, held string) []string { return []string{held} },
		},
		"duplicate": {
			func(k *turnTaker) { k.send(wire.OpSendOnly, k.turns-1, data(4), ackReq) },
			func(_ *turnTaker, held string) []string { return []string{held} },
		},
		"gap": {
			func(k *turnTaker) { k.send(wire.OpSendOnly, k.turns+1, data(4), ackReq) },
			func(k *turnTaker, _ string) []string {
				return []string{fmt.Sprintf("NAK %d sequence msn %d", k.turns, k.turns)}
			},
		},
		"release": {
			func(k *turnTaker) {
				if !k.h.nic.ReleaseAcks() || k.h.nic.ReleaseAcks() {
					k.Error("not exactly one ACK was held back")
				}
			},
			func(_ *turnTaker, held string) []string { return []string{held} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				k := inTurns(p)
				k.heldTurn()
				held := k.ackOf(k.turns - 1)
				c.come(k)
				k.expect(c.want(k, held)...)
			})
		})
	}
}

// An application may poll memory that its peer writes to, so ACKs of WRITEs are
// delayed like those of SENDs.
func TestRCAcksOfWritesAreDelayed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := inTurns(p)
		k.send(wire.OpWriteOnly, k.turns, k.at(0, 0), ackReq)
		k.post(1, verbs.OpSend, 4)
		k.expect(fmt.Sprintf("SEND_ONLY %d 4B ackreq", k.turns))
		if !k.q.resp.hold.on {
			k.Error("no ACK is held back")
		}
	})
}

func TestRCAckIsNotDelayed(t *testing.T) {
	for name, s := range map[string]setup{
		"never asked to":           {nic: func(c *Config) { c.AckDelay = -1 }},
		"the timer is short":       {attr: func(a *verbs.QPAttr) { a.Timeout = 9 }}, // 2.1 ms
		"of a message of two":      {},
		"the peer runs out":        {},
		"nothing is answered":      {},
		"the answer comes earlier": {},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, s, func(p *peer) {
				k := inTurns(p)
				switch name {
				case "of a message of two":
					k.send(wire.OpSendFirst, k.turns, data(k.mtu))
					k.send(wire.OpSendLast, k.turns+1, data(4), ackReq)
					k.post(1, verbs.OpSend, 4)
					k.expect(fmt.Sprintf("SEND_ONLY %d 4B ackreq", k.turns), fmt.Sprintf("ACK %d msn %d", k.turns+1, k.turns+1))
				case "the peer runs out":
					k.q.resp.hold.creditLimit = k.q.resp.msn.Add(2) // it was told of two receives
					k.turn()
					k.acked()
				case "nothing is answered":
					k.message()
					k.expect(k.ackOf(k.turns))
				case "the answer comes earlier":
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
		k := inTurns(p)
		k.heldTurn()
		must.Do(k, k.h.nic.DestroyQP(k.q))
		if k.h.nic.holds.held != 0 || k.h.nic.holds.strict != 0 {
			k.Errorf("holds are still counted: %+v", k.h.nic.holds)
		}
		k.to(k.now.Add(time.Second))
		k.expect()
		if at := k.h.nic.Deadline(); at != mono.Never {
			k.Errorf("still a deadline at %v", at)
		}
	})
}

func TestStrictDeadlineOmitsProvenAckDelays(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := inTurns(p)
		k.heldTurn()
		if k.h.nic.StrictDeadline() != k.holdEnds() {
			k.Errorf("the first hold ends at %v, but nobody need look before %v", k.holdEnds(), k.h.nic.StrictDeadline())
		}
		for range 2 * ackDelayProof {
			k.turn()
			k.expectEither(k.answer(), k.ackOf(k.turns-1))
			k.ack(k.turns - 1)
		}
		if !k.q.resp.hold.on {
			k.heldTurn()
		}
		if at := k.h.nic.StrictDeadline(); at == k.holdEnds() {
			k.Error("a proven hold must still be looked at on time")
		}
		if at := k.h.nic.Deadline(); at > k.holdEnds() {
			k.Errorf("the hold ends at %v, the deadline is %v", k.holdEnds(), at)
		}
	})
}
