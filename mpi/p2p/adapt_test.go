package p2p

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

func newAdaptiveWorld(t *testing.T) *world {
	return newWorld(t, 2, Config{Protocol: Speculative, EagerLimit: eagerLimit, Adaptive: true, Sample: 5})
}

// crossRTRAndRTS sends a message whose RTS and RTR cross.
func (w *world) crossRTRAndRTS(id int) {
	w.t.Helper()
	r := w.recv(1, 0, 7, rendezvousSize)
	w.send(0, 1, 7, id, rendezvousSize)
	w.runToEnd()
	w.checkReceived(r, id, rendezvousSize)
}

// sendAfterRTR sends a message after the RTR of its receive has arrived.
func (w *world) sendAfterRTR(id int) {
	w.t.Helper()
	r := w.recv(1, 0, 7, rendezvousSize)
	w.now += time.Millisecond
	w.runToEnd()
	w.send(0, 1, 7, id, rendezvousSize)
	w.runToEnd()
	w.checkReceived(r, id, rendezvousSize)
}

// RTRs that are not used stop, and early progress with them; they resume when receives are
// posted early again.
func TestAdaptiveStopsAndResumesRTRs(t *testing.T) {
	w := newAdaptiveWorld(t)
	for i := range 5 {
		w.crossRTRAndRTS(i)
	}
	sender, receiver := &w.ranks[0].e.Stats, &w.ranks[1].e.Stats
	if sender.SpeculationStopped != 1 || receiver.ControlMessages[wire.RTR] != 5 {
		t.Fatalf("after 5 unused RTRs speculation was stopped %d times; %d were sent", sender.SpeculationStopped, receiver.ControlMessages[wire.RTR])
	}
	w.crossRTRAndRTS(5) // its RTS stops RTRs; one was sent before
	earlyBefore := sender.EarlyProgress
	for i := range 8 {
		w.crossRTRAndRTS(6 + i)
	}
	if receiver.ControlMessages[wire.RTR] != 6 || sender.EarlyProgress != earlyBefore {
		t.Errorf("%d RTRs were sent, and %d early progress calls made", receiver.ControlMessages[wire.RTR], sender.EarlyProgress-earlyBefore)
	}
	if sender.SpeculationResumed != 0 {
		t.Error("speculation was resumed though no RTR would have been used")
	}
	for i := range 8 { // one ends a sample of five, five are the next, one resumes, one uses an RTR
		w.sendAfterRTR(20 + i)
	}
	if sender.SpeculationResumed != 1 || sender.RTRsUsed == 0 {
		t.Errorf("speculation was resumed %d times, and %d RTRs used", sender.SpeculationResumed, sender.RTRsUsed)
	}
	used := sender.RTRsUsed
	for i := range 10 {
		w.sendAfterRTR(40 + i)
	}
	if sender.RTRsUsed != used+10 || sender.SpeculationStopped != 1 {
		t.Errorf("%d of 10 RTRs were used, and speculation stopped %d times", sender.RTRsUsed-used, sender.SpeculationStopped)
	}
}

// While RTRs are stopped because too few were used, RTSs ask for no RTSAck, and the Done of each send
// counts. RTRs resume only when all these sends are done: the receives of the others are not known.
func TestNoRTSAckWhileRTRsAreStopped(t *testing.T) {
	w := newAdaptiveWorld(t)
	for i := range 6 { // the last RTS stops RTRs
		w.crossRTRAndRTS(i)
	}
	sender, receiver := w.ranks[0].e, w.ranks[1].e
	acks := receiver.Stats.ControlMessages[wire.RTSAck]
	for i := range 2 {
		w.sendAfterRTR(10 + i)
	}
	r := w.recv(1, 0, 7, rendezvousSize)
	w.now += time.Millisecond
	w.send(0, 1, 7, 12, rendezvousSize)
	w.deliverKinds(0, 1, wire.RTS)
	var late []*Request
	for i := range 4 { // unexpected: they are sent before their receives are posted
		w.send(0, 1, 7, 13+i, rendezvousSize)
	}
	w.runToEnd()
	for range 4 {
		late = append(late, w.recv(1, 0, 7, rendezvousSize))
	}
	w.runToEnd()
	w.checkReceived(r, 12, rendezvousSize)
	for i, r := range late {
		w.checkReceived(r, 13+i, rendezvousSize)
	}
	if n := receiver.Stats.ControlMessages[wire.RTSAck] - acks; n != 0 {
		t.Errorf("%d RTSAcks were sent", n)
	}
	s := sender.senderState(Envelope{Source: 1, Tag: 7})
	if s.withoutRTSAck != 0 || s.firstUnmatched != nil {
		t.Errorf("%d sends are not done", s.withoutRTSAck)
	}
	s.usage.tooFewRTRsUsed, s.withoutRTSAck = false, 1
	if flags := sender.rtrFlags(new(Request), s); flags != 0 {
		t.Errorf("with a send that is not done, an RTS has the flags %d", flags)
	}
	s.withoutRTSAck = 0
	if flags := sender.rtrFlags(new(Request), s); flags != wire.ResumeRTR {
		t.Errorf("when all sends are done, an RTS has the flags %d", flags)
	}
}

// An RTR that arrives after the sender has stopped RTRs is dropped; its receive matches an RTS.
func TestRTRAfterStopIsDropped(t *testing.T) {
	w := newAdaptiveWorld(t)
	for i := range 5 {
		w.crossRTRAndRTS(i)
	}
	w.send(0, 1, 7, 10, rendezvousSize) // its RTS stops RTRs
	r1, r2 := w.recv(1, 0, 7, rendezvousSize), w.recv(1, 0, 7, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTR, wire.RTR)
	s2 := w.send(0, 1, 7, 11, rendezvousSize)
	if s2.state != stateRTSSent {
		t.Error("an RTR was used after the stop")
	}
	w.runToEnd()
	w.checkReceived(r1, 10, rendezvousSize)
	w.checkReceived(r2, 11, rendezvousSize)
}

// RTRs stop and resume at the same fraction: four of five used are enough, three are not.
func TestAdaptiveUsageThreshold(t *testing.T) {
	for used, on := range []bool{false, false, false, false, true, true} {
		w := newAdaptiveWorld(t)
		exchange := func(n int) {
			for i := range n {
				if i < used {
					w.sendAfterRTR(i)
				} else {
					w.crossRTRAndRTS(i)
				}
			}
		}
		exchange(5)
		if got := w.ranks[0].e.Stats.SpeculationStopped == 0; got != on {
			t.Errorf("with %d of 5 RTRs used, speculation continues: %v", used, got)
		}
		w = newAdaptiveWorld(t)
		for i := range 6 { // the last RTS stops RTRs, and its send is the first that counts for resuming
			w.crossRTRAndRTS(i)
		}
		exchange(4)
		if st := &w.ranks[0].e.Stats; st.SpeculationResumed == 1 && (st.ResumeUsage < 80 || st.StopUsage >= 80) {
			t.Errorf("RTRs stop at a usage of %v %%, and resume at %v %%", st.StopUsage, st.ResumeUsage)
		}
		if got := w.ranks[0].e.Stats.SpeculationResumed == 1; got != on {
			t.Errorf("when %d of 5 RTRs would be used, speculation is resumed: %v", min(used, 4), got)
		}
	}
}

// Only sends after RTRs were stopped count for resuming them.
func TestResumeCountStartsWhenRTRsStop(t *testing.T) {
	w := newAdaptiveWorld(t)
	for i := range 4 { // from any source: no RTR is sent, though one would have arrived in time
		r := w.recv(1, Any, 7, rendezvousSize)
		w.now += time.Millisecond
		w.send(0, 1, 7, i, rendezvousSize)
		w.runToEnd()
		w.checkReceived(r, i, rendezvousSize)
	}
	for i := range 6 { // five are counted; the next RTS stops RTRs, and its send counts for resuming
		w.crossRTRAndRTS(i)
	}
	if st := w.ranks[0].e.Stats; st.SpeculationStopped != 1 || st.SpeculationResumed != 0 {
		t.Errorf("speculation was stopped %d times and resumed %d times", st.SpeculationStopped, st.SpeculationResumed)
	}
}

func TestNonAdaptiveKeepsSendingRTRs(t *testing.T) {
	w := newSpeculativeWorld(t)
	for i := range 40 {
		w.crossRTRAndRTS(i)
	}
	if n := w.ranks[1].e.Stats.ControlMessages[wire.RTR]; n != 40 || w.ranks[0].e.Stats.SpeculationStopped != 0 {
		t.Errorf("%d RTRs were sent", n)
	}
}
