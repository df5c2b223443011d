package p2p

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Each test here forces one interleaving in which a rank could take a word of the
// other for another request's: those of Thesis §4.2.3 and §4.2.4, by the numbers of
// their figures. Rank 0 sends, rank 1 receives, and all messages have one envelope.
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

// silentBut is silent, but for words of one kind, which are delivered.
func (w *world) silentBut(from, to int, kind wire.Kind) {
	w.t.Helper()
	for len(w.ranks[from].to[to]) > 0 {
		w.sees(from, to, kind)
	}
}

func (w *world) finish() { w.settle(rand.New(rand.NewPCG(1, 1))) }

// said is what a rank has sent to another without data.
func (w *world) controlSent(from, to int) (kinds []wire.Kind) {
	for _, l := range w.log {
		if l.from == from && l.to == to {
			kinds = append(kinds, l.kind)
		}
	}
	return kinds
}

// Fig. 4.7: an RTS that follows an RTR may be of the second send, for the first has used
// the RTR (so it is for the second receive), or of the first, which has not seen it (so
// it is for the first receive). The receiver has done and seen the same in both cases,
// but for what Fig. 4.8 adds.
func TestFigure4_7RTSAfterRTR(t *testing.T) {
	t.Run("case 1: the first send has found the RTR", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, long)
		w.sees(1, 0, wire.RTR)
		w.send(0, 1, 7, 1, long)
		w.send(0, 1, 7, 2, long)
		r2 := w.recv(1, 0, 7, long)
		w.sees(0, 1, wire.RTRAck, wire.RTS)
		if !r1.Matched() || !r2.Matched() {
			t.Errorf("the receives have met their sends: %v, %v", r1.Matched(), r2.Matched())
		}
		w.finish()
		w.got(r1, 1, long)
		w.got(r2, 2, long)
	})
	t.Run("case 2: the first send has not seen the RTR", func(t *testing.T) {
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

// Fig. 4.7, of RTRs: one that follows an RTS may be of the second receive, for the first
// has found the RTS, or of the first, which has not seen it.
func TestFigure4_7RTRAfterRTS(t *testing.T) {
	t.Run("case 1: the first receive has found the RTS", func(t *testing.T) {
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
	t.Run("case 2: the first receive has not seen the RTS", func(t *testing.T) {
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

// Fig. 4.8: who finds the other's word acknowledges it instead of sending its own; who
// has sent its own acknowledges nothing.
func TestFigure4_8Acknowledgements(t *testing.T) {
	for _, c := range []struct {
		name                 string
		before               func(w *world) // what arrives between the calls
		recvFirst            bool
		sender, receiverSaid []wire.Kind
	}{
		{"case 1: the RTR is there, and is acknowledged", func(w *world) { w.sees(1, 0, wire.RTR) }, true, []wire.Kind{wire.RTRAck}, []wire.Kind{wire.RTR}},
		{"case 2: the RTR comes later, and is not", func(*world) {}, true, []wire.Kind{wire.RTS}, []wire.Kind{wire.RTR, wire.Done}},
		{"the RTS is there, and is acknowledged", func(w *world) { w.sees(0, 1, wire.RTS) }, false, []wire.Kind{wire.RTS}, []wire.Kind{wire.RTSAck, wire.Done}},
		{"the RTS comes later, and is not", func(*world) {}, false, []wire.Kind{wire.RTS}, []wire.Kind{wire.RTR, wire.Done}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := races(t)
			var r *Request
			calls := []func(){func() { r = w.recv(1, 0, 7, long) }, func() { w.send(0, 1, 7, 1, long) }}
			if !c.recvFirst {
				slices.Reverse(calls)
			}
			calls[0]()
			c.before(w)
			calls[1]()
			w.finish()
			w.got(r, 1, long)
			if got := w.controlSent(0, 1); !slices.Equal(got, c.sender) {
				t.Errorf("the sender says %v, want %v", got, c.sender)
			}
			if got := w.controlSent(1, 0); !slices.Equal(got, c.receiverSaid) {
				t.Errorf("the receiver says %v, want %v", got, c.receiverSaid)
			}
		})
	}
}

// Fig. 4.9: an RTR is of the first receive (case 1), or of the second, for the first
// expects an eager message, or anybody's, and has sent none (case 2). The sender could
// not tell, so that in case 2 there is none.
func TestFigure4_9NoRTRAfterReceiveWithoutRTR(t *testing.T) {
	t.Run("case 1: the first receive has sent an RTR", func(t *testing.T) {
		w := races(t)
		r1, r2 := w.recv(1, 0, 7, long), w.recv(1, 0, 7, long)
		w.sees(1, 0, wire.RTR, wire.RTR)
		w.send(0, 1, 7, 1, long)
		w.send(0, 1, 7, 2, long)
		w.sees(0, 1, wire.RTRAck, wire.RTRAck)
		w.finish()
		w.got(r1, 1, long)
		w.got(r2, 2, long)
	})
	for name, post := range map[string]func(*world) *Request{
		"expects an eager message": func(w *world) *Request { return w.recv(1, 0, 7, limit) },
		"expects anybody's":        func(w *world) *Request { return w.recv(1, match.Any, 7, long) },
		"expects any tag":          func(w *world) *Request { return w.recv(1, 0, match.Any, long) },
	} {
		t.Run("case 2: the first receive "+name, func(t *testing.T) {
			w := races(t)
			r1 := post(w)
			w.silent(1, 0)
			r2 := w.recv(1, 0, 7, long)
			other := w.recv(1, 0, 8, long)
			if r1.Tag != match.Any {
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

// Fig. 4.10: an RTR that comes after an eager message is of the next message's receive
// (case 1), or of the eager one's, who expected more (case 2). The sender has done and
// seen the same in both cases, and uses neither.
func TestFigure4_10MispredictedRTR(t *testing.T) {
	seen := make(map[string]string)
	t.Run("case 1: the RTR is for the second send", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, limit)
		w.send(0, 1, 7, 1, limit)
		w.sees(0, 1, wire.Eager)
		r2 := w.recv(1, 0, 7, long)
		w.sees(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, long)
		seen[t.Name()] = fmt.Sprintf("%v %v", w.controlSent(0, 1), w.controlSent(1, 0))
		w.sees(0, 1, wire.RTS)
		w.finish()
		w.got(r1, 1, limit)
		w.got(r2, 2, long)
	})
	t.Run("case 2: the RTR is for the eager message", func(t *testing.T) {
		w := races(t)
		r1 := w.recv(1, 0, 7, long)
		w.send(0, 1, 7, 1, limit)
		w.sees(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, long)
		seen[t.Name()] = fmt.Sprintf("%v %v", w.controlSent(0, 1), w.controlSent(1, 0))
		r2 := w.recv(1, 0, 7, long)
		w.sees(0, 1, wire.Eager, wire.RTS)
		w.finish()
		w.got(r1, 1, limit)
		w.got(r2, 2, long)
	})
	for _, s := range seen {
		if s != "[EAGER RTS] [RTR]" {
			t.Errorf("the cases do not look the same: %v", seen)
		}
	}
}

// Fig. 4.11: the way of an envelope past an eager message. RTRs are stopped by the next
// RTS, those under way are dropped, and once the receiver has answered, not before, they
// are resumed.
func TestFigure4_11EagerFlag(t *testing.T) {
	w := races(t)
	flags := func(want wire.Flags) {
		t.Helper()
		q := w.ranks[0].to[1]
		if h := q[len(q)-1].h; h.Kind != wire.RTS || h.Flags != want {
			t.Fatalf("%v has flags %v, want %v; %v", h.Kind, h.Flags, want, w.log)
		}
	}
	r1 := w.recv(1, 0, 7, long)
	w.send(0, 1, 7, 1, limit)
	s2 := w.send(0, 1, 7, 2, long)
	flags(wire.StopRTR)
	w.sees(1, 0, wire.RTR) // of the first receive, for nobody
	r2 := w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTR) // sent before the wish for none was heard, dropped as well
	w.send(0, 1, 7, 3, long)
	flags(0) // nobody has answered
	if n := w.ranks[0].e.Stats.RTRsDropped; n != 2 {
		t.Errorf("%d RTRs were dropped", n)
	}
	w.sees(0, 1, wire.Eager, wire.RTS)
	r3 := w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTSAck) // the second receive's RTR does not count, nor does the third send one
	w.silent(1, 0)
	w.sees(0, 1, wire.RTS)
	w.sees(1, 0, wire.RTSAck)
	w.send(0, 1, 7, 4, long)
	flags(wire.ResumeRTR)
	w.sees(0, 1, wire.RTS)
	r4 := w.recv(1, 0, 7, long)
	r5 := w.recv(1, 0, 7, long)
	w.sees(1, 0, wire.RTSAck, wire.RTR)
	w.send(0, 1, 7, 5, long)
	w.sees(0, 1, wire.RTRAck)
	w.finish()
	w.got(r1, 1, limit)
	for i, r := range []*Request{r2, r3, r4, r5} {
		w.got(r, i+2, long)
	}
	if !s2.Done() {
		t.Error("the second send is not done")
	}
}

// Receives whose RTRs were dropped are still posted when RTRs are resumed. One that
// is posted behind them must not speak: the sender would take its RTR for theirs.
func TestNoRTRAfterReceivesWithDroppedRTRs(t *testing.T) {
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
func TestRTRDuringStopIsDropped(t *testing.T) {
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

// Fig. 4.12: a receive that has sent an RTR may wait without end for it to be used, but a
// sender never waits for one. Whatever the receiver guesses and whatever the sender
// drops, one of them moves the data.
func TestFigure4_12NoDeadlock(t *testing.T) {
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
					if s.state == statePosted || s.state == stateIdle {
						t.Error("the send waits to be asked")
					}
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
