package p2p

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Each test forces one interleaving in which a control message could be assigned to the
// wrong request, numbered by the figures of Rashti 2010 §4.2.3 and §4.2.4. Rank 0 sends, rank 1
// receives, and all messages have the same envelope.
const rendezvousSize = 2 * eagerLimit

func newSpeculativeWorld(t *testing.T) *world { return newWorld(t, 2, configs()["speculative"]) }

// deliverKinds delivers messages from one rank to another and checks their kinds.
func (w *world) deliverKinds(from, to int, kinds ...wire.Kind) {
	w.t.Helper()
	for _, want := range kinds {
		if got := w.deliver(from, to); got != want {
			w.t.Fatalf("rank %d received %v from %d, want %v; %v", to, got, from, want, w.log)
		}
	}
}

// checkNothingSent checks that no message is queued from one rank to another.
func (w *world) checkNothingSent(from, to int) {
	w.t.Helper()
	if q := w.ranks[from].outgoing[to]; len(q) > 0 {
		w.t.Fatalf("rank %d sent %v to %d; %v", from, q[0].h.Kind, to, w.log)
	}
}

// deliverOnly delivers all queued messages, which must be of one kind.
func (w *world) deliverOnly(from, to int, kind wire.Kind) {
	w.t.Helper()
	for len(w.ranks[from].outgoing[to]) > 0 {
		w.deliverKinds(from, to, kind)
	}
}

func (w *world) runToEnd() { w.runAll(rand.New(rand.NewPCG(1, 1))) }

// controlSent returns the kinds of the messages that one rank has sent to another.
func (w *world) controlSent(from, to int) (kinds []wire.Kind) {
	for _, l := range w.log {
		if l.from == from && l.to == to {
			kinds = append(kinds, l.kind)
		}
	}
	return kinds
}

// checkBothReceived runs to the end and checks the first two rendezvous messages.
func (w *world) checkBothReceived(r1, r2 *Request) {
	w.t.Helper()
	w.runToEnd()
	w.checkReceived(r1, 1, rendezvousSize)
	w.checkReceived(r2, 2, rendezvousSize)
}

// Fig. 4.7: an RTS after an RTR belongs to the second receive if the first send has used
// the RTR, and to the first receive if it has not seen it. The receiver can tell only by
// the RTRAck of Fig. 4.8.
func TestFigure4_7RTSAfterRTR(t *testing.T) {
	t.Run("case 1: the first send has found the RTR", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		r1 := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(1, 0, wire.RTR)
		w.send(0, 1, 7, 1, rendezvousSize)
		w.send(0, 1, 7, 2, rendezvousSize)
		r2 := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTRAck, wire.RTS)
		if !r1.matched() || !r2.matched() {
			t.Errorf("the receives are matched: %v, %v", r1.matched(), r2.matched())
		}
		w.checkBothReceived(r1, r2)
	})
	t.Run("case 2: the first send has not seen the RTR", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		r1 := w.recv(1, 0, 7, rendezvousSize)
		w.send(0, 1, 7, 1, rendezvousSize)
		r2 := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTS)
		if !r1.matched() || r2.matched() {
			t.Errorf("the receives are matched: %v, %v", r1.matched(), r2.matched())
		}
		w.deliverKinds(1, 0, wire.RTR, wire.RTR) // the first has crossed the RTS, the second is queued
		w.send(0, 1, 7, 2, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTRAck)
		w.checkBothReceived(r1, r2)
	})
}

// Fig. 4.7, for RTRs: an RTR after an RTS belongs to the second receive if the first has
// matched the RTS, and to the first if it has not seen it.
func TestFigure4_7RTRAfterRTS(t *testing.T) {
	t.Run("case 1: the first receive has found the RTS", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		w.send(0, 1, 7, 1, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTS)
		r1 := w.recv(1, 0, 7, rendezvousSize)
		r2 := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(1, 0, wire.RTSAck, wire.RTR)
		w.send(0, 1, 7, 2, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTRAck)
		w.checkBothReceived(r1, r2)
	})
	t.Run("case 2: the first receive has not seen the RTS", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		r1 := w.recv(1, 0, 7, rendezvousSize)
		w.send(0, 1, 7, 1, rendezvousSize)
		w.deliverKinds(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, rendezvousSize) // finds no RTR: that one was the first send's
		r2 := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTS, wire.RTS)
		w.checkBothReceived(r1, r2)
	})
}

// Fig. 4.8: a rank that finds the peer's RTS or RTR acknowledges it instead of sending its
// own; a rank that has sent its own acknowledges nothing.
func TestFigure4_8Acknowledgements(t *testing.T) {
	for _, c := range []struct {
		name             string
		before           func(w *world) // deliveries between the calls
		recvFirst        bool
		sender, receiver []wire.Kind
	}{
		{"case 1: the RTR arrives before the send, and is acknowledged", func(w *world) { w.deliverKinds(1, 0, wire.RTR) }, true, []wire.Kind{wire.RTRAck}, []wire.Kind{wire.RTR}},
		{"case 2: the RTR arrives later, and is not acknowledged", func(*world) {}, true, []wire.Kind{wire.RTS}, []wire.Kind{wire.RTR, wire.Done}},
		{"the RTS arrives before the receive, and is acknowledged", func(w *world) { w.deliverKinds(0, 1, wire.RTS) }, false, []wire.Kind{wire.RTS}, []wire.Kind{wire.RTSAck, wire.Done}},
		{"the RTS arrives later, and is not acknowledged", func(*world) {}, false, []wire.Kind{wire.RTS}, []wire.Kind{wire.RTR, wire.Done}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newSpeculativeWorld(t)
			var r *Request
			calls := []func(){func() { r = w.recv(1, 0, 7, rendezvousSize) }, func() { w.send(0, 1, 7, 1, rendezvousSize) }}
			if !c.recvFirst {
				slices.Reverse(calls)
			}
			calls[0]()
			c.before(w)
			calls[1]()
			w.runToEnd()
			w.checkReceived(r, 1, rendezvousSize)
			if got := w.controlSent(0, 1); !slices.Equal(got, c.sender) {
				t.Errorf("the sender sent %v, want %v", got, c.sender)
			}
			if got := w.controlSent(1, 0); !slices.Equal(got, c.receiver) {
				t.Errorf("the receiver sent %v, want %v", got, c.receiver)
			}
		})
	}
}

// Fig. 4.9: an RTR could belong to the first receive (case 1), or to the second, if the
// first expects an eager message or any source and sent no RTR (case 2). The sender cannot
// tell, so in case 2 no RTR is sent.
func TestFigure4_9NoRTRAfterReceiveWithoutRTR(t *testing.T) {
	t.Run("case 1: the first receive has sent an RTR", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		r1, r2 := w.recv(1, 0, 7, rendezvousSize), w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(1, 0, wire.RTR, wire.RTR)
		w.send(0, 1, 7, 1, rendezvousSize)
		w.send(0, 1, 7, 2, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTRAck, wire.RTRAck)
		w.checkBothReceived(r1, r2)
	})
	for name, post := range map[string]func(*world) *Request{
		"expects an eager message": func(w *world) *Request { return w.recv(1, 0, 7, eagerLimit) },
		"any source":               func(w *world) *Request { return w.recv(1, Any, 7, rendezvousSize) },
		"expects any tag":          func(w *world) *Request { return w.recv(1, 0, Any, rendezvousSize) },
	} {
		t.Run("case 2: the first receive "+name, func(t *testing.T) {
			w := newSpeculativeWorld(t)
			r1 := post(w)
			w.checkNothingSent(1, 0)
			r2 := w.recv(1, 0, 7, rendezvousSize)
			other := w.recv(1, 0, 8, rendezvousSize)
			if r1.Tag != Any {
				w.deliverKinds(1, 0, wire.RTR) // only that of another tag
			}
			w.checkNothingSent(1, 0)
			s1 := w.send(0, 1, 7, 1, eagerLimit)
			if w.deliverKinds(0, 1, wire.Eager); !r1.Done() || r2.Done() || !s1.Done() {
				t.Error("the message did not complete the first receive only")
			}
			r3 := w.recv(1, 0, 7, rendezvousSize) // still after a receive without an RTR
			w.send(0, 1, 7, 2, rendezvousSize)
			w.deliverKinds(0, 1, wire.RTS)
			w.deliverOnly(1, 0, wire.RTSAck)
			r4 := w.recv(1, 0, 7, rendezvousSize)
			w.send(0, 1, 7, 3, rendezvousSize)
			w.runToEnd()
			w.checkReceived(r2, 2, rendezvousSize)
			w.checkReceived(r3, 3, rendezvousSize)
			if r4.Done() || other.Done() {
				t.Error("a receive is done without a message")
			}
		})
	}
	t.Run("RTRs again once it has completed", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		w.recv(1, 0, 7, eagerLimit)
		w.send(0, 1, 7, 1, eagerLimit)
		w.deliverKinds(0, 1, wire.Eager)
		w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(1, 0, wire.RTR)
	})
}

// Fig. 4.10: an RTR after an eager message belongs to the next receive (case 1) or to that
// of the eager message (case 2). The sender cannot tell and uses neither.
func TestFigure4_10MispredictedRTR(t *testing.T) {
	seen := make(map[string]string)
	t.Run("case 1: the RTR is for the second send", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		r1 := w.recv(1, 0, 7, eagerLimit)
		w.send(0, 1, 7, 1, eagerLimit)
		w.deliverKinds(0, 1, wire.Eager)
		r2 := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, rendezvousSize)
		seen[t.Name()] = fmt.Sprintf("%v %v", w.controlSent(0, 1), w.controlSent(1, 0))
		w.deliverKinds(0, 1, wire.RTS)
		w.runToEnd()
		w.checkReceived(r1, 1, eagerLimit)
		w.checkReceived(r2, 2, rendezvousSize)
	})
	t.Run("case 2: the RTR is for the eager message", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		r1 := w.recv(1, 0, 7, rendezvousSize)
		w.send(0, 1, 7, 1, eagerLimit)
		w.deliverKinds(1, 0, wire.RTR)
		w.send(0, 1, 7, 2, rendezvousSize)
		seen[t.Name()] = fmt.Sprintf("%v %v", w.controlSent(0, 1), w.controlSent(1, 0))
		r2 := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(0, 1, wire.Eager, wire.RTS)
		w.runToEnd()
		w.checkReceived(r1, 1, eagerLimit)
		w.checkReceived(r2, 2, rendezvousSize)
	})
	for _, s := range seen {
		if s != "[EAGER RTS] [RTR]" {
			t.Errorf("the control messages of the cases differ: %v", seen)
		}
	}
}

// Fig. 4.11: after an eager message the next RTS stops RTRs, RTRs in flight are dropped,
// and RTRs resume only after the receiver has acknowledged the stop.
func TestFigure4_11EagerFlag(t *testing.T) {
	w := newSpeculativeWorld(t)
	flags := func(want wire.Flags) {
		t.Helper()
		q := w.ranks[0].outgoing[1]
		if h := q[len(q)-1].h; h.Kind != wire.RTS || h.Flags != want {
			t.Fatalf("%v has flags %v, want %v; %v", h.Kind, h.Flags, want, w.log)
		}
	}
	r1 := w.recv(1, 0, 7, rendezvousSize)
	w.send(0, 1, 7, 1, eagerLimit)
	s2 := w.send(0, 1, 7, 2, rendezvousSize)
	flags(wire.StopRTR)
	w.deliverKinds(1, 0, wire.RTR) // of the first receive, dropped
	r2 := w.recv(1, 0, 7, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTR) // sent before the stop arrived, dropped too
	w.send(0, 1, 7, 3, rendezvousSize)
	flags(0) // the stop is not acknowledged
	if n := w.ranks[0].e.Stats.RTRsDropped; n != 2 {
		t.Errorf("%d RTRs were dropped", n)
	}
	w.deliverKinds(0, 1, wire.Eager, wire.RTS)
	r3 := w.recv(1, 0, 7, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTSAck) // the second receive's RTR does not count, nor does the third send one
	w.checkNothingSent(1, 0)
	w.deliverKinds(0, 1, wire.RTS)
	w.deliverKinds(1, 0, wire.RTSAck)
	w.send(0, 1, 7, 4, rendezvousSize)
	flags(wire.ResumeRTR)
	w.deliverKinds(0, 1, wire.RTS)
	r4 := w.recv(1, 0, 7, rendezvousSize)
	r5 := w.recv(1, 0, 7, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTSAck, wire.RTR)
	w.send(0, 1, 7, 5, rendezvousSize)
	w.deliverKinds(0, 1, wire.RTRAck)
	w.runToEnd()
	w.checkReceived(r1, 1, eagerLimit)
	for i, r := range []*Request{r2, r3, r4, r5} {
		w.checkReceived(r, i+2, rendezvousSize)
	}
	if !s2.Done() {
		t.Error("the second send is not done")
	}
}

// Receives whose RTRs were dropped may still be posted when RTRs resume. A receive posted
// after them must not send an RTR: the sender would assign it to them.
func TestNoRTRAfterReceivesWithDroppedRTRs(t *testing.T) {
	w := newSpeculativeWorld(t)
	var recvs []*Request
	for range 4 {
		recvs = append(recvs, w.recv(1, 0, 7, rendezvousSize))
	}
	w.send(0, 1, 7, 1, eagerLimit)
	w.send(0, 1, 7, 2, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTR, wire.RTR, wire.RTR, wire.RTR)
	w.deliverKinds(0, 1, wire.Eager, wire.RTS)
	w.deliverKinds(1, 0, wire.RTSAck)
	w.send(0, 1, 7, 3, rendezvousSize)
	w.deliverKinds(0, 1, wire.RTS) // with ResumeRTR
	recvs = append(recvs, w.recv(1, 0, 7, rendezvousSize))
	w.deliverOnly(1, 0, wire.RTSAck)
	w.send(0, 1, 7, 4, rendezvousSize)
	w.send(0, 1, 7, 5, rendezvousSize)
	w.runToEnd()
	for i, r := range recvs {
		w.checkReceived(r, i+1, max(eagerLimit, min(i, 1)*rendezvousSize))
	}
}

// An RTR that arrives before the receiver has seen the stop is dropped.
func TestRTRDuringStopIsDropped(t *testing.T) {
	w := newSpeculativeWorld(t)
	w.send(0, 1, 7, 1, eagerLimit)
	r1 := w.recv(1, 0, 7, rendezvousSize)
	r2 := w.recv(1, 0, 7, rendezvousSize)
	w.send(0, 1, 7, 2, rendezvousSize)
	w.deliverKinds(1, 0, wire.RTR, wire.RTR)
	w.deliverKinds(0, 1, wire.Eager, wire.RTS)
	w.runToEnd()
	w.send(0, 1, 7, 3, rendezvousSize)
	w.send(0, 1, 7, 4, rendezvousSize)
	if n := w.ranks[0].e.Stats.RTRsUsed; n != 0 {
		t.Errorf("%d RTRs of receives that are done were used", n)
	}
	r3, r4 := w.recv(1, 0, 7, rendezvousSize), w.recv(1, 0, 7, rendezvousSize)
	w.runToEnd()
	w.checkReceived(r1, 1, eagerLimit)
	w.checkReceived(r2, 2, rendezvousSize)
	w.checkReceived(r3, 3, rendezvousSize)
	w.checkReceived(r4, 4, rendezvousSize)
}

// Fig. 4.12: a receive may wait forever for its RTR to be used, but a sender never waits
// for an RTR. Whatever is predicted and dropped, one side moves the data.
func TestFigure4_12NoDeadlock(t *testing.T) {
	for before := range 4 { // messages that arrive before the send: none, the RTR, …
		for _, n := range []int{eagerLimit, rendezvousSize} {
			for _, room := range []int{eagerLimit, rendezvousSize} {
				for _, eagerFirst := range []bool{false, true} {
					w := newSpeculativeWorld(t)
					var first *Request
					if eagerFirst {
						w.send(0, 1, 7, 9, eagerLimit)
						first = w.recv(1, 0, 7, rendezvousSize)
					}
					r := w.recv(1, 0, 7, room)
					for range before {
						if len(w.ranks[1].outgoing[0]) > 0 {
							w.deliver(1, 0)
						}
					}
					s := w.send(0, 1, 7, 1, min(n, room))
					if s.state == statePosted || s.state == stateIdle {
						t.Error("the send waits for an RTR")
					}
					w.runToEnd()
					if !s.Done() {
						t.Errorf("%d bytes for %d, %d messages before, eager first %v: the send is not done; %v", n, room, before, eagerFirst, w.log)
					}
					w.checkReceived(r, 1, min(n, room))
					if first != nil {
						w.checkReceived(first, 9, eagerLimit)
					}
				}
			}
		}
	}
}
