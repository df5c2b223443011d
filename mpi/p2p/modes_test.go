package p2p

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

func forEachProtocol(t *testing.T, test func(t *testing.T, w *world)) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, 2, cfg)) })
	}
}

func TestSynchronousSendWaitsForReceive(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for _, n := range []int{0, eagerLimit, rendezvousSize} {
			s := &Request{Peer: 1, Tag: 7, Buf: testMessage(1, n), Mode: Synchronous}
			w.ranks[0].e.Isend(s)
			w.runToEnd()
			if s.Done() {
				t.Errorf("a synchronous send of %d bytes is done without a receive", n)
			}
			r := w.recv(1, 0, 7, rendezvousSize)
			w.runToEnd()
			if w.checkReceived(r, 1, n); !s.Done() {
				t.Errorf("a synchronous send of %d bytes is not done", n)
			}
		}
	})
}

func TestReadySendWithoutReceiveIsCounted(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for i, n := range []int{eagerLimit, rendezvousSize} {
			for _, early := range []bool{true, false} {
				var r *Request
				if early {
					r = w.recv(1, 0, 7, rendezvousSize)
				}
				s := &Request{Peer: 1, Tag: 7, Buf: testMessage(1, n), Mode: Ready}
				w.ranks[0].e.Isend(s)
				w.runToEnd()
				if !early {
					r = w.recv(1, 0, 7, rendezvousSize)
					w.runToEnd()
				}
				w.checkReceived(r, 1, n)
			}
			if got := w.ranks[1].e.Stats.NotReady; got != uint64(i+1) {
				t.Errorf("%d ready sends found no receive, want %d", got, i+1)
			}
		}
	})
}

func TestReceiveTruncatesLongMessage(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for _, c := range []struct{ n, room int }{{eagerLimit, 10}, {eagerLimit, 0}, {rendezvousSize, eagerLimit + 10}, {rendezvousSize, 10}, {rendezvousSize, 0}} {
			for _, early := range []bool{true, false} {
				var r *Request
				if early {
					r = w.recv(1, 0, 7, c.room)
					w.runToEnd()
				}
				s := w.send(0, 1, 7, 3, c.n)
				w.runToEnd()
				if !early {
					r = w.recv(1, 0, 7, c.room)
					w.runToEnd()
				}
				if !errors.Is(r.Err, ErrTruncated) || r.Size != c.n || string(r.Buf) != string(testMessage(3, c.n)[:c.room]) || !s.Done() || s.Err != nil {
					t.Errorf("%d bytes for %d: %v, size %d; the send is done: %v, %v", c.n, c.room, r.Err, r.Size, s.Done(), s.Err)
				}
			}
		}
	})
}

func TestProbeFindsUnexpectedMessage(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for i, n := range []int{eagerLimit, rendezvousSize} {
			anything := Envelope{Source: Any, Tag: Any}
			if _, _, _, ok := w.ranks[1].e.Probe(anything); ok {
				t.Fatal("Probe found a message before one was sent")
			}
			w.send(0, 1, 7+i, 1, n)
			w.runToEnd()
			if src, tag, size, ok := w.ranks[1].e.Probe(anything); !ok || src != 0 || tag != int32(7+i) || size != n {
				t.Errorf("Probe: %v, source %d, tag %d, size %d", ok, src, tag, size)
			}
			if _, _, _, ok := w.ranks[1].e.Probe(Envelope{Source: 0, Tag: 99}); ok {
				t.Error("Probe found a message of another tag")
			}
			r := w.recv(1, 0, 7+i, rendezvousSize)
			w.runToEnd()
			w.checkReceived(r, 1, n)
		}
	})
}

// A receive is either cancelled or completed, and the sender sees no difference.
func TestReceiveIsCancelledOrCompleted(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		r1, r2 := w.recv(1, 0, 7, rendezvousSize), w.recv(1, 0, 7, rendezvousSize)
		w.ranks[1].e.Cancel(r1)
		w.runToEnd()
		if !r1.Done() || !r1.Cancelled || r1.Err != nil {
			t.Fatalf("the receive is done: %v, cancelled %v, %v", r1.Done(), r1.Cancelled, r1.Err)
		}
		s := w.send(0, 1, 7, 1, rendezvousSize)
		w.runToEnd()
		if w.checkReceived(r2, 1, rendezvousSize); !s.Done() {
			t.Error("the send is not done")
		}
		w.ranks[1].e.Cancel(r2) // too late
		if r2.Cancelled {
			t.Error("a completed receive was cancelled")
		}
		if n := w.ranks[1].regions + w.ranks[0].regions; n != 0 {
			t.Errorf("%d regions are still registered", n)
		}
	})
	t.Run("after its RTR was used", func(t *testing.T) {
		w := newSpeculativeWorld(t)
		r := w.recv(1, 0, 7, rendezvousSize)
		w.deliverKinds(1, 0, wire.RTR)
		w.send(0, 1, 7, 1, rendezvousSize)
		w.ranks[1].e.Cancel(r)
		w.runToEnd()
		if w.checkReceived(r, 1, rendezvousSize); r.Cancelled {
			t.Error("a receive with a message was cancelled")
		}
	})
}

// Requests that need a lost peer, or may need it, fail; others continue.
func TestLostPeerFailsItsRequests(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, cfg)
			s := w.send(0, 1, 7, 1, rendezvousSize)
			sync := &Request{Peer: 1, Tag: 8, Buf: testMessage(1, 1), Mode: Synchronous}
			w.ranks[0].e.Isend(sync)
			r, wild, other := w.recv(0, 1, 7, rendezvousSize), w.recv(0, Any, 7, rendezvousSize), w.recv(0, 2, 7, rendezvousSize)
			w.ranks[0].e.Lost(1, errors.New("it was killed"))
			for i, q := range []*Request{s, sync, r, wild} {
				if !q.Done() || !errors.Is(q.Err, ErrLost) {
					t.Errorf("request %d is done: %v, %v", i, q.Done(), q.Err)
				}
			}
			for i, q := range []*Request{w.send(0, 1, 7, 1, 1), w.recv(0, 1, 9, 1), w.recv(0, Any, 9, 1)} {
				if !q.Done() || !errors.Is(q.Err, ErrLost) {
					t.Errorf("later request %d is done: %v, %v", i, q.Done(), q.Err)
				}
			}
			w.ranks[0].outgoing[1] = nil
			s2 := w.send(2, 0, 7, 5, rendezvousSize)
			w.runToEnd()
			if w.checkReceived(other, 5, rendezvousSize); !s2.Done() {
				t.Error("a send of another rank is not done")
			}
			if n := w.ranks[0].regions; n != 0 {
				t.Errorf("%d regions are still registered", n)
			}
		})
	}
}

func TestRegistrationFailureFailsOneRequest(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		w.ranks[1].noMemory = true
		r := w.recv(1, 0, 7, rendezvousSize)
		s := w.send(0, 1, 7, 1, rendezvousSize)
		w.runToEnd()
		if !errors.Is(r.Err, errNoMemory) || !s.Done() || s.Err != nil {
			t.Errorf("the receive ends with %v, the send is done: %v, %v", r.Err, s.Done(), s.Err)
		}
		w.ranks[1].noMemory = false
		r = w.recv(1, 0, 7, rendezvousSize)
		w.runToEnd() // an RTR arrives
		w.ranks[0].noMemory = true
		s = w.send(0, 1, 7, 1, rendezvousSize)
		w.runToEnd()
		if !errors.Is(s.Err, errNoMemory) {
			t.Errorf("the send ends with %v", s.Err)
		}
		if w.ranks[0].e.cfg.Protocol == RPUT && !r.Done() {
			t.Error("the receive is not done after the send has failed")
		}
	})
}

func TestProtocolViolationsAreRejected(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for kind := wire.Kind(0); kind < 20; kind++ {
			h := wire.Header{Kind: kind, Send: 1<<20 + 5, Recv: 1<<20 + 5, Context: 5, Tag: 99}
			err := w.ranks[0].e.Arrived(1, &h, nil)
			switch kind {
			case wire.Eager, wire.RTS, wire.RTR, wire.Revoke, wire.Revoked:
				continue // these refer to no request
			}
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("%v: %v", kind, err)
			}
		}
		r := w.recv(1, 0, 7, rendezvousSize)
		w.runToEnd()
		w.send(0, 1, 7, 1, rendezvousSize)
		w.runToEnd()
		w.checkReceived(r, 1, rendezvousSize)
	})
}

func BenchmarkEager(b *testing.B) {
	w := newWorld(b, 2, Config{EagerLimit: eagerLimit})
	s, r := &Request{Peer: 1, Buf: make([]byte, 8)}, &Request{Peer: 0, Buf: make([]byte, 8)}
	h := wire.Header{Kind: wire.Eager}
	b.ReportAllocs()
	for b.Loop() {
		w.ranks[0].outgoing[1], w.log = w.ranks[0].outgoing[1][:0], w.log[:0]
		w.ranks[1].e.Irecv(r)
		w.ranks[0].e.Isend(s)
		if err := w.ranks[1].e.Arrived(0, &h, s.Buf); err != nil || !r.Done() {
			b.Fatal(err)
		}
	}
}
