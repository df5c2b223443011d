package p2p

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Each test here forces one interleaving in which a rank could take a word of the
// other for another request's. Rank 0 sends, rank 1 receives.
const long = 2 * limit

func races(t *testing.T) *world { return newWorld(t, 2, configs()["speculative"]) }

// sees delivers words from one rank to another, and checks which they are.
func (w *world) sees(from, to int, kinds ...wire.Kind) {
	w.t.Helper()
	for _, want := range kinds {
		if got := w.deliver(from, to); got != want {
			w.t.Fatalf("%d hears %v of %d, want %v; %v", to, got, from, want, w.log)
		}
	}
}

// silent checks that a rank has nothing to say to another.
func (w *world) silent(from, to int) {
	w.t.Helper()
	if q := w.ranks[from].to[to]; len(q) > 0 {
		w.t.Fatalf("%d says %v to %d; %v", from, q[0].h.Kind, to, w.log)
	}
}

func (w *world) finish() { w.settle(rand.New(rand.NewPCG(1, 1))) }

// An RTS that follows an RTR may be of the send that used it up (so it is for the
// second receive), or of one that has not seen it (so it is for the first).
func TestWhoseRTS(t *testing.T) {
	t.Run("the first send has used the RTR", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, long)
		w.sees(1, 0, wire.RTR)
		w.send(0, 1, 7, 1, long)
		w.send(0, 1, 7, 2, long)
		w.sees(0, 1, wire.RTRAck)
		r2 := w.recv(1, 0, 7, long) // behind nobody: the first has met its send
		w.sees(0, 1, wire.RTS)
		if !r1.Matched() || !r2.Matched() {
			t.Errorf("the receives have met their sends: %v, %v", r1.Matched(), r2.Matched())
		}
		w.finish()
		w.got(r1, 1, long)
		w.got(r2, 2, long)
	})
	t.Run("the RTS has crossed the RTR", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, long)
		w.send(0, 1, 7, 1, long)
		r2 := w.recv(1, 0, 7, long)
		w.sees(0, 1, wire.RTS)
		if !r1.Matched() || r2.Matched() {
			t.Errorf("the receives have met their sends: %v, %v", r1.Matched(), r2.Matched())
		}
		w.sees(1, 0, wire.RTR, wire.RTR) // the first is the crossed one's, the second is kept
		w.send(0, 1, 7, 2, long)
		w.sees(0, 1, wire.RTRAck)
		w.finish()
		w.got(r1, 1, long)
		w.got(r2, 2, long)
	})
}

// An RTR that follows an RTS may be of a receive that has met it, or of the next.
func TestWhoseRTR(t *testing.T) {
	t.Run("the first receive has found the RTS", func(t *testing.T) {
		w := races(t)
		w.send(0, 1, 7, 1, long)
		w.sees(0, 1, wire.RTS)
		r1 := w.recv(1, 0, 7, long)
		r2 := w.recv(1, 0, 7, long)
		w.sees(1, 0, wire.RTSAck, wire.RTR)
		w.send(0, 1, 7, 2, long)
		w.sees(0, 1, wire.RTRAck)
		w.finish()
		w.got(r1, 1, long)
		w.got(r2, 2, long)
	})
	t.Run("the RTR has crossed the RTS", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, long)
		w.send(0, 1, 7, 1, long)
		w.sees(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, long) // finds no RTR: that one was the first send's
		r2 := w.recv(1, 0, 7, long)
		w.sees(0, 1, wire.RTS, wire.RTS)
		w.finish()
		w.got(r1, 1, long)
		w.got(r2, 2, long)
	})
}

// A receive that sends no RTR, for it expects little or anybody, keeps those behind
// it from sending theirs.
func TestNoRTRBehindASilentReceive(t *testing.T) {
	for name, post := range map[string]func(*world) *Request{
		"expects an eager message": func(w *world) *Request { return w.recv(1, 0, 7, limit) },
		"expects anybody":          func(w *world) *Request { return w.recv(1, match.Any, 7, long) },
		"expects any tag":          func(w *world) *Request { return w.recv(1, 0, match.Any, long) },
	} {
		t.Run(name, func(t *testing.T) {
			w := races(t)
			r1 := post(w)
			r2 := w.recv(1, 0, 7, long)
			other := w.recv(1, 0, 8, long)
			if len(r1.Buf) == limit || r1.Tag != match.Any {
				w.sees(1, 0, wire.RTR) // only that of another tag
			}
			w.silent(1, 0)
			s1 := w.send(0, 1, 7, 1, limit)
			if w.sees(0, 1, wire.Eager); !r1.Done() || r2.Done() || !s1.Done() {
				t.Error("the message is not the first receive's")
			}
			r3 := w.recv(1, 0, 7, long) // still behind one without an RTR
			w.send(0, 1, 7, 2, long)
			w.sees(0, 1, wire.RTS)
			w.silentBut(1, 0, wire.RTSAck)
			r4 := w.recv(1, 0, 7, long)
			w.send(0, 1, 7, 3, long)
			w.finish()
			w.got(r2, 2, long)
			w.got(r3, 3, long)
			if r4.Done() || other.Done() {
				t.Error("a receive is done without a message")
			}
		})
	}
	t.Run("and when it is gone they speak again", func(t *testing.T) {
		w := races(t)
		w.recv(1, 0, 7, limit)
		w.send(0, 1, 7, 1, limit)
		w.sees(0, 1, wire.Eager)
		w.recv(1, 0, 7, long)
		w.sees(1, 0, wire.RTR)
	})
}

// silentBut is silent, but for words of one kind, which are delivered.
func (w *world) silentBut(from, to int, kind wire.Kind) {
	w.t.Helper()
	for len(w.ranks[from].to[to]) > 0 {
		w.sees(from, to, kind)
	}
}

// A receive may send an RTR for what comes eagerly. The next send cannot know
// whether an RTR is that one, or its own receive's, and uses neither.
func TestMispredictedRTR(t *testing.T) {
	t.Run("the RTR is of the eager message's receive", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, long)
		w.send(0, 1, 7, 1, limit)
		w.sees(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, long)
		r2 := w.recv(1, 0, 7, long)
		w.sees(0, 1, wire.Eager, wire.RTS)
		w.finish()
		w.got(r1, 1, limit)
		w.got(r2, 2, long)
	})
	t.Run("the RTR is of the second message's receive", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, limit)
		w.send(0, 1, 7, 1, limit)
		w.sees(0, 1, wire.Eager)
		r2 := w.recv(1, 0, 7, long)
		w.sees(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, long)
		w.sees(0, 1, wire.RTS)
		w.finish()
		w.got(r1, 1, limit)
		w.got(r2, 2, long)
	})
}

// The whole way of an envelope through eager messages: RTRs are stopped, those under
// way are dropped, and once the receiver has answered they are resumed.
func TestStopAndResume(t *testing.T) {
	w := races(t)
	r1 := w.recv(1, 0, 7, long)
	w.send(0, 1, 7, 1, limit)
	s2 := w.send(0, 1, 7, 2, long)
	if s := w.ranks[0].to[1]; s[1].h.Flags != wire.StopRTR {
		t.Fatalf("the first rendezvous after it has flags %v", s[1].h.Flags)
	}
	w.sees(1, 0, wire.RTR) // of the first receive, for nobody
	r2 := w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTR) // sent before the wish for none was heard, dropped as well
	if n := w.ranks[0].e.Stats.RTRsDropped; n != 2 {
		t.Errorf("%d RTRs were dropped", n)
	}
	w.sees(0, 1, wire.Eager, wire.RTS)
	r3 := w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTSAck) // the second receive's RTR does not count, nor does the third send one
	w.silent(1, 0)
	w.send(0, 1, 7, 3, long)
	if s := w.ranks[0].to[1]; s[0].h.Flags != wire.ResumeRTR {
		t.Fatalf("the next has flags %v", s[0].h.Flags)
	}
	w.sees(0, 1, wire.RTS)
	w.sees(1, 0, wire.RTSAck)
	r4 := w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTR)
	w.send(0, 1, 7, 4, long)
	w.sees(0, 1, wire.RTRAck)
	w.finish()
	for i, r := range []*Request{r1, r2, r3, r4} {
		w.got(r, i+1, len(message(i+1, []int{limit, long, long, long}[i])))
	}
	if !s2.Done() {
		t.Error("the second send is not done")
	}
}

// Receives whose RTRs were dropped are still posted when RTRs are resumed. One that
// is posted behind them must not speak: the sender would take its RTR for theirs.
func TestResumeBehindDroppedRTRs(t *testing.T) {
	w := races(t)
	var recvs []*Request
	for range 4 {
		recvs = append(recvs, w.recv(1, 0, 7, long))
	}
	w.send(0, 1, 7, 1, limit)
	w.send(0, 1, 7, 2, long)
	w.sees(1, 0, wire.RTR, wire.RTR, wire.RTR, wire.RTR)
	w.sees(0, 1, wire.Eager, wire.RTS)
	w.sees(1, 0, wire.RTSAck)
	w.send(0, 1, 7, 3, long)
	w.sees(0, 1, wire.RTS) // which resumes
	recvs = append(recvs, w.recv(1, 0, 7, long))
	w.silentBut(1, 0, wire.RTSAck)
	w.send(0, 1, 7, 4, long)
	w.send(0, 1, 7, 5, long)
	w.finish()
	for i, r := range recvs {
		w.got(r, i+1, max(limit, min(i, 1)*long))
	}
}

// An RTR that comes while the receiver has not heard that none is wanted is not kept
// for later.
func TestRTRThatComesWhileStopping(t *testing.T) {
	w := races(t)
	w.send(0, 1, 7, 1, limit)
	r1 := w.recv(1, 0, 7, long)
	r2 := w.recv(1, 0, 7, long)
	w.send(0, 1, 7, 2, long)
	w.sees(1, 0, wire.RTR, wire.RTR)
	w.sees(0, 1, wire.Eager, wire.RTS)
	w.finish()
	w.send(0, 1, 7, 3, long)
	w.send(0, 1, 7, 4, long)
	if n := w.ranks[0].e.Stats.RTRsUsed; n != 0 {
		t.Errorf("%d RTRs of receives that are done were used", n)
	}
	r3, r4 := w.recv(1, 0, 7, long), w.recv(1, 0, 7, long)
	w.finish()
	w.got(r1, 1, limit)
	w.got(r2, 2, long)
	w.got(r3, 3, long)
	w.got(r4, 4, long)
}

// Whatever the receiver guesses and whatever the sender drops, one of them moves the
// data: every combination of guesses, orders and drops ends.
func TestNoDeadlock(t *testing.T) {
	for before := range 4 { // words that arrive before the send: none, the RTR, …
		for _, n := range []int{limit, long} {
			for _, room := range []int{limit, long} {
				for _, eagerFirst := range []bool{false, true} {
					w := races(t)
					var first *Request
					if eagerFirst {
						w.send(0, 1, 7, 9, limit)
						first = w.recv(1, 0, 7, long)
					}
					r := w.recv(1, 0, 7, room)
					for range before {
						if len(w.ranks[1].to[0]) > 0 {
							w.deliver(1, 0)
						}
					}
					s := w.send(0, 1, 7, 1, min(n, room))
					w.finish()
					if !s.Done() {
						t.Errorf("%d bytes for %d, %d words before, eager first %v: the send is not done; %v", n, room, before, eagerFirst, w.log)
					}
					w.got(r, 1, min(n, room))
					if first != nil {
						w.got(first, 9, limit)
					}
				}
			}
		}
	}
}

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

// A receiver that guesses wrong again and again stops guessing, until something
// comes by rendezvous.
func TestMispredictionsDoNotPileUp(t *testing.T) {
	w := races(t)
	for i := range 20 {
		r := w.recv(1, 0, 7, long)
		w.send(0, 1, 7, i, limit)
		w.finish()
		w.got(r, i, limit)
	}
	if n := w.ranks[1].e.Stats.Words[wire.RTR]; n != 4 {
		t.Errorf("%d RTRs were sent", n)
	}
	for i := range 3 { // stops, resumes, speculates
		r := w.recv(1, 0, 7, long)
		w.finish()
		w.send(0, 1, 7, i, long)
		w.finish()
		w.got(r, i, long)
	}
	if n := w.ranks[0].e.Stats.RTRsUsed; n != 1 {
		t.Errorf("%d RTRs were used; %v", n, strings.Join(w.log, ", "))
	}
}
