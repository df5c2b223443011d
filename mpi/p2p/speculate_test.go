package p2p

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// A call uses the messages that its own early progress has delivered.
func TestCallUsesMessagesOfEarlyProgress(t *testing.T) {
	w := newSpeculativeWorld(t)
	w.ranks[0].progress = func() { w.deliverKinds(1, 0, wire.RTR) }
	r := w.recv(1, 0, 7, rendezvousSize)
	w.send(0, 1, 7, 1, rendezvousSize)
	w.deliverKinds(0, 1, wire.RTRAck)
	w.runToEnd()
	w.checkReceived(r, 1, rendezvousSize)

	w = newSpeculativeWorld(t)
	w.ranks[1].progress = func() { w.deliverKinds(0, 1, wire.RTS) }
	w.send(0, 1, 7, 1, rendezvousSize)
	r = w.recv(1, 0, 7, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTSAck)
	w.runToEnd()
	w.checkReceived(r, 1, rendezvousSize)
}

func TestNoEarlyProgressForEagerMessages(t *testing.T) {
	w := newSpeculativeWorld(t)
	r := w.recv(1, 0, 7, eagerLimit)
	w.send(0, 1, 7, 1, eagerLimit)
	w.runToEnd()
	w.checkReceived(r, 1, eagerLimit)
	if n := w.ranks[0].e.Stats.EarlyProgress + w.ranks[1].e.Stats.EarlyProgress; n != 0 {
		t.Errorf("%d early progress calls", n)
	}
}

func TestNoRTRForAnySource(t *testing.T) {
	for _, from := range []struct{ source, tag int }{{Any, 7}, {0, Any}, {Any, Any}} {
		w := newSpeculativeWorld(t)
		r := w.recv(1, from.source, from.tag, rendezvousSize)
		w.checkNothingSent(1, 0)
		w.send(0, 1, 7, 1, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTS)
		w.deliverKinds(1, 0, wire.RTSAck)
		w.runToEnd()
		w.checkReceived(r, 1, rendezvousSize)
	}
}

// A small message without credit is sent by rendezvous, and uses an RTR if there is one.
func TestEagerSendWithoutCreditFallsBack(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for i, room := range []int{eagerLimit, rendezvousSize} {
			r := w.recv(1, 0, 7, room)
			w.runToEnd()
			w.ranks[0].noCredit = true
			s := w.send(0, 1, 7, 1, eagerLimit)
			if got := w.ranks[0].e.Stats.CreditFallbacks; got != uint64(i+1) || s.Done() {
				t.Errorf("%d messages fell back; done at once: %v", got, s.Done())
			}
			w.ranks[0].noCredit = false
			next := w.send(0, 1, 7, 2, eagerLimit) // there is credit again
			r2 := w.recv(1, 0, 7, eagerLimit)
			w.runToEnd()
			w.checkReceived(r, 1, eagerLimit)
			if w.checkReceived(r2, 2, eagerLimit); !s.Done() || !next.Done() {
				t.Error("a send is not done")
			}
		}
	})
}

// A receiver that keeps mispredicting the messages of an envelope sends no RTRs for it until a
// rendezvous message arrives.
func TestReceiverStopsAfterMispredictions(t *testing.T) {
	w := newSpeculativeWorld(t)
	eager := func(n int) { // with each of two tags
		for i := range 2 * n {
			tag := 7 + i%2
			r := w.recv(1, 0, tag, rendezvousSize)
			w.send(0, 1, tag, i, eagerLimit)
			w.runToEnd()
			w.checkReceived(r, i, eagerLimit)
		}
	}
	rendezvous := func(n int) {
		for i := range n {
			r := w.recv(1, 0, 7, rendezvousSize)
			w.runToEnd()
			w.send(0, 1, 7, i, rendezvousSize)
			w.runToEnd()
			w.checkReceived(r, i, rendezvousSize)
		}
	}
	rtrs := &w.ranks[1].e.Stats.ControlMessages[wire.RTR]
	if eager(20); *rtrs != 4+4 {
		t.Errorf("%d RTRs were sent", *rtrs)
	}
	rendezvous(3) // stops, resumes, speculates
	if n := w.ranks[0].e.Stats.RTRsUsed; n != 1 {
		t.Errorf("%d RTRs were used; %v", n, w.log)
	}
	before := *rtrs
	if eager(20); *rtrs != before+4 { // with tag 7 only
		t.Errorf("%d RTRs were sent the second time", *rtrs-before)
	}
}

// An RTS without flags resets the count of mispredictions.
func TestRendezvousResetsMispredictions(t *testing.T) {
	w := newSpeculativeWorld(t)
	h := w.ranks[1].e.receiverState(Envelope{Source: 0, Tag: 7})
	h.mispredicted = 3
	r := w.recv(1, 0, 7, rendezvousSize)
	w.send(0, 1, 7, 1, rendezvousSize) // crosses
	w.runToEnd()
	if w.checkReceived(r, 1, rendezvousSize); h.mispredicted != 0 {
		t.Errorf("%d mispredictions are counted", h.mispredicted)
	}
}

// State of envelopes that are used once does not accumulate, and an envelope without state
// is treated as if an eager message had been sent.
func TestSenderStateIsEvicted(t *testing.T) {
	w := newSpeculativeWorld(t)
	for _, n := range w.ranks {
		n.e.maxEnvelopes, n.e.evictAt = 100, 100
	}
	r := w.recv(1, 0, 7, rendezvousSize) // sends an RTR for an eager message
	w.deliverKinds(1, 0, wire.RTR)
	w.send(0, 1, 7, 1, eagerLimit)
	for tag := range 110 {
		w.send(0, 1, 100+tag, 2, 1)
	}
	if n := len(w.ranks[0].e.senders); n > 100 {
		t.Errorf("%d envelopes have state", n)
	}
	w.runToEnd()
	w.checkReceived(r, 1, eagerLimit)
	r = w.recv(1, 0, 7, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTR)
	s := w.send(0, 1, 7, 3, rendezvousSize)
	if s.state != stateRTSSent {
		t.Error("an RTR was used though the state of its envelope was evicted")
	}
	w.runToEnd()
	w.checkReceived(r, 3, rendezvousSize)
}

// Early progress of a send may evict the state of its envelope.
func TestSenderStateEvictedDuringSend(t *testing.T) {
	w := newSpeculativeWorld(t)
	e := w.ranks[0].e
	e.maxEnvelopes, e.evictAt = 100, 100
	for tag := range 99 {
		w.send(0, 1, 100+tag, 2, 1)
	}
	w.recv(1, 0, 8, rendezvousSize)
	w.ranks[0].progress = func() { w.deliverKinds(1, 0, wire.RTR) } // of one envelope more than the limit
	w.send(0, 1, 7, 1, rendezvousSize)
	q := w.ranks[0].outgoing[1]
	if h := q[len(q)-1].h; !e.evicted || h.Flags != wire.StopRTR {
		t.Errorf("envelopes were evicted: %v; the RTS has flags %v", e.evicted, h.Flags)
	}
}

// State of envelopes with stopped RTRs does not accumulate either, at the sender or at the
// receiver.
func TestStoppedSenderStateIsEvicted(t *testing.T) {
	w := newSpeculativeWorld(t)
	const limit = 100
	for _, n := range w.ranks {
		n.e.maxEnvelopes, n.e.evictAt = limit, limit
	}
	for tag := range 5 * limit {
		for i, n := range []int{eagerLimit, rendezvousSize} {
			r := w.recv(1, 0, tag, rendezvousSize)
			w.send(0, 1, tag, i, n)
			w.runToEnd()
			w.checkReceived(r, i, n)
		}
		if a, b := len(w.ranks[0].e.senders), len(w.ranks[1].e.receiverStates); a > limit || b > limit {
			t.Fatalf("%d and %d envelopes have state", a, b)
		}
	}
	// An envelope whose state the sender has evicted still works.
	for i := range 4 {
		r := w.recv(1, 0, 5, rendezvousSize)
		w.runToEnd()
		w.send(0, 1, 5, i, rendezvousSize)
		w.runToEnd()
		w.checkReceived(r, i, rendezvousSize)
	}
	if n := w.ranks[0].e.Stats.RTRsUsed; n == 0 {
		t.Error("no RTR was used any more")
	}
}

// The cost of a message does not depend on the number of posted receives, queued RTRs or
// unexpected RTSs.
func TestCostIndependentOfQueueLength(t *testing.T) {
	const shortQueue, longQueue, maxRatio = 10, 10_000, 10
	queued := map[string]func(w *world, n int) (once func()){
		"RTRs of one envelope": func(w *world, n int) func() {
			for range n {
				w.recv(1, 0, 7, rendezvousSize)
			}
			w.runToEnd()
			return func() {
				w.send(0, 1, 7, 1, rendezvousSize)
				w.deliver(0, 1)
				w.transfer(0, 0)
				w.deliver(0, 1)
				w.recv(1, 0, 7, rendezvousSize)
				w.deliver(1, 0)
			}
		},
		"RTRs of as many envelopes": func(w *world, n int) func() {
			for i := range n {
				w.recv(1, 0, 100+i, rendezvousSize)
			}
			w.runToEnd()
			return func() {
				w.recv(1, 0, 7, rendezvousSize)
				w.deliver(1, 0)
				w.send(0, 1, 7, 1, rendezvousSize)
				w.deliver(0, 1)
				w.transfer(0, 0)
				w.deliver(0, 1)
			}
		},
		"unexpected RTSs of one envelope": func(w *world, n int) func() {
			for range n {
				w.send(0, 1, 7, 1, rendezvousSize)
			}
			w.runToEnd()
			return func() {
				w.recv(1, 0, 7, rendezvousSize)
				w.transfer(1, 0)
				w.deliver(1, 0) // RTSAck
				w.deliver(1, 0) // Done
				w.send(0, 1, 7, 1, rendezvousSize)
				w.deliver(0, 1)
			}
		},
	}
	for name, fill := range queued {
		t.Run(name, func(t *testing.T) {
			var once [2]func()
			for i, n := range []int{shortQueue, longQueue} {
				w := newSpeculativeWorld(t)
				do := fill(w, n)
				once[i] = func() {
					w.log = w.log[:0]
					do()
				}
			}
			best := [2]time.Duration{time.Hour, time.Hour}
			for range 20 {
				for i := range once {
					began := time.Now()
					for range 100 {
						once[i]()
					}
					best[i] = min(best[i], time.Since(began))
				}
			}
			text := fmt.Sprintf("%v a message with %d queued, %v with %d", best[1]/100, longQueue, best[0]/100, shortQueue)
			if best[1] > maxRatio*best[0] {
				t.Error(text)
			}
			t.Log(text)
		})
	}
}

// A send that fails to register its buffer sends nothing: no RTR is consumed, and the next
// RTS carries its flags.
func TestFailedSendSendsNoControlMessage(t *testing.T) {
	w := newSpeculativeWorld(t)
	fails := func() {
		t.Helper()
		w.ranks[0].noMemory = true
		if s := w.send(0, 1, 7, 9, rendezvousSize); !s.Done() || s.Err == nil {
			t.Fatalf("done: %v, %v", s.Done(), s.Err)
		}
		w.ranks[0].noMemory = false
	}
	fails()
	r := w.recv(1, 0, 7, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTR)
	w.send(0, 1, 7, 1, rendezvousSize)
	w.deliverKinds(0, 1, wire.RTRAck)
	w.runToEnd()
	w.checkReceived(r, 1, rendezvousSize)

	w.send(0, 1, 7, 2, eagerLimit)
	fails()
	w.send(0, 1, 7, 3, rendezvousSize)
	if h := w.ranks[0].outgoing[1][1].h; h.Flags != wire.StopRTR {
		t.Errorf("the RTS has flags %v", h.Flags)
	}
	r2, r3 := w.recv(1, 0, 7, rendezvousSize), w.recv(1, 0, 7, rendezvousSize)
	w.runToEnd()
	w.checkReceived(r2, 2, eagerLimit)
	w.checkReceived(r3, 3, rendezvousSize)
}
