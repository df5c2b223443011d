package p2p

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// What an early progress call brings is used by the call that made it.
func TestEarlyProgress(t *testing.T) {
	w := races(t)
	w.ranks[0].progress = func() { w.sees(1, 0, wire.RTR) }
	r := w.recv(1, 0, 7, long)
	w.send(0, 1, 7, 1, long)
	w.sees(0, 1, wire.RTRAck)
	w.finish()
	w.got(r, 1, long)

	w = races(t)
	w.ranks[1].progress = func() { w.sees(0, 1, wire.RTS) }
	w.send(0, 1, 7, 1, long)
	r = w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTSAck)
	w.finish()
	w.got(r, 1, long)
}

// Calls that have nothing to find make no such look.
func TestNoEarlyProgressForEagerMessages(t *testing.T) {
	w := races(t)
	r := w.recv(1, 0, 7, limit)
	w.send(0, 1, 7, 1, limit)
	w.finish()
	w.got(r, 1, limit)
	if n := w.ranks[0].e.Stats.EarlyProgress + w.ranks[1].e.Stats.EarlyProgress; n != 0 {
		t.Errorf("%d looks", n)
	}
}

// Who does not know its sender has nobody to send an RTR to.
func TestNoRTRForAnySource(t *testing.T) {
	for _, from := range []struct{ source, tag int }{{match.Any, 7}, {0, match.Any}, {match.Any, match.Any}} {
		w := races(t)
		r := w.recv(1, from.source, from.tag, long)
		w.silent(1, 0)
		w.send(0, 1, 7, 1, long)
		w.sees(0, 1, wire.RTS)
		w.sees(1, 0, wire.RTSAck)
		w.finish()
		w.got(r, 1, long)
	}
}

// A small message that there is no room for waits with its sender, as a large one does:
// the receiver has sent no RTR for it, or has, which is then used.
func TestEagerSendWithoutCreditFallsBack(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for i, room := range []int{limit, long} {
			r := w.recv(1, 0, 7, room)
			w.finish()
			w.ranks[0].noRoom = true
			s := w.send(0, 1, 7, 1, limit)
			if got := w.ranks[0].e.Stats.FellBack; got != uint64(i+1) || s.Done() {
				t.Errorf("%d messages fell back; done at once: %v", got, s.Done())
			}
			w.ranks[0].noRoom = false
			behind := w.send(0, 1, 7, 2, limit) // there is room again
			r2 := w.recv(1, 0, 7, limit)
			w.finish()
			w.got(r, 1, limit)
			if w.got(r2, 2, limit); !s.Done() || !behind.Done() {
				t.Error("a send is not done")
			}
		}
	})
}

// A receiver that guesses wrong again and again stops guessing, until something
// comes by rendezvous.
func TestReceiverStopsAfterMispredictions(t *testing.T) {
	w := races(t)
	eagerly := func(n int) {
		for i := range n {
			r := w.recv(1, 0, 7, long)
			w.send(0, 1, 7, i, limit)
			w.finish()
			w.got(r, i, limit)
		}
	}
	longOnes := func(n int) {
		for i := range n {
			r := w.recv(1, 0, 7, long)
			w.finish()
			w.send(0, 1, 7, i, long)
			w.finish()
			w.got(r, i, long)
		}
	}
	rtrs := &w.ranks[1].e.Stats.Words[wire.RTR]
	if eagerly(20); *rtrs != 4 {
		t.Errorf("%d RTRs were sent", *rtrs)
	}
	longOnes(3) // stops, resumes, speculates
	if n := w.ranks[0].e.Stats.RTRsUsed; n != 1 {
		t.Errorf("%d RTRs were used; %v", n, w.log)
	}
	before := *rtrs
	if eagerly(20); *rtrs != before+4 {
		t.Errorf("%d RTRs were sent the second time", *rtrs-before)
	}
}

// A rendezvous begins a new count of mispredictions, even if it has nothing to say about
// RTRs.
func TestRendezvousResetsMispredictions(t *testing.T) {
	w := races(t)
	h := w.ranks[1].e.receiverState(match.Envelope{Source: 0, Tag: 7})
	h.mispredicted = 3
	r := w.recv(1, 0, 7, long)
	w.send(0, 1, 7, 1, long) // crosses
	w.finish()
	if w.got(r, 1, long); h.mispredicted != 0 {
		t.Errorf("%d mispredictions are remembered", h.mispredicted)
	}
}

// Envelopes that are used once do not add up, and what is forgotten of them is not
// taken for trust.
func TestSenderStateIsEvicted(t *testing.T) {
	w := races(t)
	for _, n := range w.ranks {
		n.e.maxEnvelopes, n.e.evictAt = 100, 100
	}
	r := w.recv(1, 0, 7, long) // speaks, for what will come eagerly
	w.sees(1, 0, wire.RTR)
	w.send(0, 1, 7, 1, limit)
	for tag := range 110 {
		w.send(0, 1, 100+tag, 2, 1)
	}
	if n := len(w.ranks[0].e.senders); n > 100 {
		t.Errorf("%d envelopes are remembered", n)
	}
	w.finish()
	w.got(r, 1, limit)
	r = w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTR)
	s := w.send(0, 1, 7, 3, long)
	if s.state != stateRTSSent {
		t.Error("an RTR was used though its envelope was forgotten")
	}
	w.finish()
	w.got(r, 3, long)
}

// What comes within a send's own look may have its envelope forgotten.
func TestSenderStateEvictedDuringSend(t *testing.T) {
	w := races(t)
	e := w.ranks[0].e
	e.maxEnvelopes, e.evictAt = 100, 100
	for tag := range 99 {
		w.send(0, 1, 100+tag, 2, 1)
	}
	w.recv(1, 0, 8, long)
	w.ranks[0].progress = func() { w.sees(1, 0, wire.RTR) } // of an envelope too many
	w.send(0, 1, 7, 1, long)
	q := w.ranks[0].to[1]
	if h := q[len(q)-1].h; !e.evicted || h.Flags != wire.StopRTR {
		t.Errorf("envelopes were forgotten: %v; the RTS has flags %v", e.evicted, h.Flags)
	}
}

// Nor do envelopes add up that have a small and a large message each, and are never used
// again: RTRs of all of them are stopped, by both ends.
func TestStoppedSenderStateIsEvicted(t *testing.T) {
	w := races(t)
	const most = 100
	for _, n := range w.ranks {
		n.e.maxEnvelopes, n.e.evictAt = most, most
	}
	for tag := range 5 * most {
		for i, n := range []int{limit, long} {
			r := w.recv(1, 0, tag, long)
			w.send(0, 1, tag, i, n)
			w.finish()
			w.got(r, i, n)
		}
		if a, b := len(w.ranks[0].e.senders), len(w.ranks[1].e.receivers); a > most || b > most {
			t.Fatalf("%d and %d envelopes are remembered", a, b)
		}
	}
	// One that both have known, and the sender has forgotten, is as good as before.
	for i := range 4 {
		r := w.recv(1, 0, 5, long)
		w.finish()
		w.send(0, 1, 5, i, long)
		w.finish()
		w.got(r, i, long)
	}
	if n := w.ranks[0].e.Stats.RTRsUsed; n == 0 {
		t.Error("no RTR was used any more")
	}
}

// What a message costs does not depend on how many receives are posted, how many RTRs
// have come, or how many offers wait.
func TestCostIndependentOfQueueLength(t *testing.T) {
	const few, many, most = 10, 10_000, 10
	queued := map[string]func(w *world, n int) (once func()){
		"RTRs of one envelope": func(w *world, n int) func() {
			for range n {
				w.recv(1, 0, 7, long)
			}
			w.finish()
			return func() {
				w.send(0, 1, 7, 1, long)
				w.deliver(0, 1)
				w.transfer(0, 0)
				w.deliver(0, 1)
				w.recv(1, 0, 7, long)
				w.deliver(1, 0)
			}
		},
		"RTRs of as many envelopes": func(w *world, n int) func() {
			for i := range n {
				w.recv(1, 0, 100+i, long)
			}
			w.finish()
			return func() {
				w.recv(1, 0, 7, long)
				w.deliver(1, 0)
				w.send(0, 1, 7, 1, long)
				w.deliver(0, 1)
				w.transfer(0, 0)
				w.deliver(0, 1)
			}
		},
		"offers of one envelope": func(w *world, n int) func() {
			for range n {
				w.send(0, 1, 7, 1, long)
			}
			w.finish()
			return func() {
				w.recv(1, 0, 7, long)
				w.transfer(1, 0)
				w.deliver(1, 0) // RTSAck
				w.deliver(1, 0) // Done
				w.send(0, 1, 7, 1, long)
				w.deliver(0, 1)
			}
		},
	}
	for name, fill := range queued {
		t.Run(name, func(t *testing.T) {
			var once [2]func()
			for i, n := range []int{few, many} {
				w := races(t)
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
			said := fmt.Sprintf("%v a message with %d queued, %v with %d", best[1]/100, many, best[0]/100, few)
			if best[1] > most*best[0] {
				t.Error(said)
			}
			t.Log(said)
		})
	}
}

// A send whose memory cannot be registered has said nothing to its receiver: no RTR is
// for it, and what its RTS was to say the next one says.
func TestFailedSendSendsNoControlMessage(t *testing.T) {
	w := races(t)
	fails := func() {
		t.Helper()
		w.ranks[0].noMemory = true
		if s := w.send(0, 1, 7, 9, long); !s.Done() || s.Err == nil {
			t.Fatalf("done: %v, %v", s.Done(), s.Err)
		}
		w.ranks[0].noMemory = false
	}
	fails()
	r := w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTR)
	w.send(0, 1, 7, 1, long)
	w.sees(0, 1, wire.RTRAck)
	w.finish()
	w.got(r, 1, long)

	w.send(0, 1, 7, 2, limit)
	fails()
	w.send(0, 1, 7, 3, long)
	if h := w.ranks[0].to[1][1].h; h.Flags != wire.StopRTR {
		t.Errorf("the RTS has flags %v", h.Flags)
	}
	r2, r3 := w.recv(1, 0, 7, long), w.recv(1, 0, 7, long)
	w.finish()
	w.got(r2, 2, limit)
	w.got(r3, 3, long)
}
