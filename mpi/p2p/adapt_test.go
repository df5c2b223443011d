package p2p

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

func adaptive(t *testing.T) *world {
	return newWorld(t, 2, Config{Protocol: Speculative, EagerLimit: limit, Adaptive: true, Sample: 5})
}

// cross has a message whose RTR and RTS meet on their way.
func (w *world) cross(id int) {
	w.t.Helper()
	r := w.recv(1, 0, 7, long)
	w.send(0, 1, 7, id, long)
	w.finish()
	w.got(r, id, long)
}

// early has a message whose receive is posted so long before that an RTR is there
// when it is sent.
func (w *world) early(id int) {
	w.t.Helper()
	r := w.recv(1, 0, 7, long)
	w.now += time.Millisecond
	w.finish()
	w.send(0, 1, 7, id, long)
	w.finish()
	w.got(r, id, long)
}

// RTRs that are of no use stop, and the look for them with them; when receives come
// early again for a while, they are resumed.
func TestAdaptation(t *testing.T) {
	w := adaptive(t)
	for i := range 5 {
		w.cross(i)
	}
	sender, receiver := &w.ranks[0].e.Stats, &w.ranks[1].e.Stats
	if sender.SpeculationStopped != 1 || receiver.Words[wire.RTR] != 5 {
		t.Fatalf("after 5 RTRs of no use speculation was stopped %d times; %d were sent", sender.SpeculationStopped, receiver.Words[wire.RTR])
	}
	w.cross(5) // its RTS says so; the RTR was there before
	looks := sender.EarlyProgress
	for i := range 8 {
		w.cross(6 + i)
	}
	if receiver.Words[wire.RTR] != 6 || sender.EarlyProgress != looks {
		t.Errorf("%d RTRs were sent, and %d looks made in vain", receiver.Words[wire.RTR], sender.EarlyProgress-looks)
	}
	if sender.SpeculationResumed != 0 {
		t.Error("speculation was resumed though it would have been of no use")
	}
	for i := range 11 { // two samples: the first may have others in it
		w.early(20 + i)
	}
	if sender.SpeculationResumed != 1 || sender.RTRsUsed == 0 {
		t.Errorf("speculation was resumed %d times, and %d RTRs used", sender.SpeculationResumed, sender.RTRsUsed)
	}
	used := sender.RTRsUsed
	for i := range 10 {
		w.early(40 + i)
	}
	if sender.RTRsUsed != used+10 || sender.SpeculationStopped != 1 {
		t.Errorf("%d of 10 RTRs were used, and speculation stopped %d times", sender.RTRsUsed-used, sender.SpeculationStopped)
	}
}

// An RTR that comes after the sender has asked for no more is not kept: its receive
// takes an RTS.
func TestRTRThatComesAfterSpeculationWasStopped(t *testing.T) {
	w := adaptive(t)
	for i := range 5 {
		w.cross(i)
	}
	w.send(0, 1, 7, 10, long) // asks for no more
	r1, r2 := w.recv(1, 0, 7, long), w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTR, wire.RTR)
	s2 := w.send(0, 1, 7, 11, long)
	if s2.state != offered {
		t.Error("an RTR was used that the receiver takes for unsent")
	}
	w.finish()
	w.got(r1, 10, long)
	w.got(r2, 11, long)
}

// Envelopes that are used once do not add up, and what is forgotten of them is not
// taken for trust.
func TestEnvelopesAreForgotten(t *testing.T) {
	w := races(t)
	r := w.recv(1, 0, 7, long) // speaks, for what will come eagerly
	w.sees(1, 0, wire.RTR)
	w.send(0, 1, 7, 1, limit)
	for tag := range maxEnvelopes + 10 {
		w.send(0, 1, 100+tag, 2, 1)
	}
	if n := len(w.ranks[0].e.speculated); n > maxEnvelopes {
		t.Errorf("%d envelopes are remembered", n)
	}
	w.finish()
	w.got(r, 1, limit)
	r = w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTR)
	s := w.send(0, 1, 7, 3, long)
	if s.state != offered {
		t.Error("an RTR was used though its envelope was forgotten")
	}
	w.finish()
	w.got(r, 3, long)
}
