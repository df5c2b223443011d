package p2p

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// A failed receive whose RTR is outstanding completes only after the peer has acknowledged the
// revocation or has written, because its buffer must not be written to after completion.
func TestCancelledReceiveRevokesRTRFirst(t *testing.T) {
	cause := errors.New("a rank is lost")
	received, failed := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, 3, configs()["speculative"])
		q := w.recv(1, 0, 7, rendezvousSize)
		other := &Request{Peer: 0, Context: 2, Tag: 7, Buf: make([]byte, rendezvousSize)}
		w.ranks[1].e.Irecv(other)
		for range r.IntN(3) {
			w.step(r)
		}
		if r.IntN(2) == 0 {
			w.send(0, 1, 7, 1, rendezvousSize)
		}
		for range r.IntN(3) {
			w.step(r)
		}
		w.ranks[1].e.FailContext(0, cause)
		w.ranks[1].e.FailContext(0, errors.New("another")) // the first counts
		if r.IntN(2) == 0 {
			w.send(0, 1, 7, 1, rendezvousSize)
		}
		w.runAll(r)
		if !q.Done() || other.Done() {
			t.Fatalf("seed %d: done: %v, that of another context: %v; %v", seed, q.Done(), other.Done(), w.log)
		}
		if q.Err == nil {
			w.checkReceived(q, 1, rendezvousSize)
			received++
		} else if !errors.Is(q.Err, cause) || q.Cancelled {
			t.Fatalf("seed %d: %v, cancelled %v", seed, q.Err, q.Cancelled)
		} else {
			failed++
		}
		if later := w.recv(1, 2, 7, rendezvousSize); !errors.Is(later.Err, cause) {
			t.Fatalf("a later receive ends with %v", later.Err)
		}
		// A message for it can be received by Improbe, and its send completes.
		for m := w.ranks[1].e.Improbe(anyOf); m != nil; m = w.ranks[1].e.Improbe(anyOf) {
			w.ranks[1].e.Imrecv(new(Request), m)
		}
		w.runAll(r)
		if w.ranks[0].e.Busy() {
			t.Fatalf("seed %d: a send is pending; %v", seed, w.log)
		}
	}
	if received == 0 || failed == 0 {
		t.Errorf("%d receives completed, %d failed", received, failed)
	}
}

func TestEachAwaitedPeer(t *testing.T) {
	w := newWorld(t, 4, configs()["rget"])
	w.send(0, 1, 7, 1, rendezvousSize)
	w.recv(0, 2, 7, rendezvousSize)
	w.recv(0, -1, 7, rendezvousSize)
	peers, anySources := make(map[int]bool), 0
	w.ranks[0].e.EachAwaitedPeer(func(peer int) { peers[peer] = true }, func(_ uint32, from int) {
		if from == -1 {
			anySources++
		}
	})
	if len(peers) != 2 || !peers[1] || !peers[2] || anySources != 1 {
		t.Errorf("awaited are %v, and any source %d times", peers, anySources)
	}
}

// With a negative eager limit even empty messages use rendezvous.
func TestNegativeEagerLimitForcesRendezvous(t *testing.T) {
	for _, protocol := range []Protocol{RGET, RPUT, Speculative} {
		w := newWorld(t, 2, Config{Protocol: protocol, EagerLimit: -1})
		for id, n := range []int{0, 1, rendezvousSize, 0} {
			early := w.recv(1, 0, 7, n)
			w.runToEnd()
			s := w.send(0, 1, 7, id, n)
			w.runToEnd()
			w.checkReceived(early, id, n)
			w.send(0, 1, 7, id+10, n)
			w.runToEnd()
			late := w.recv(1, 0, 7, n)
			w.runToEnd()
			if w.checkReceived(late, id+10, n); !s.Done() {
				t.Errorf("%v: a send of %d bytes is not done", protocol, n)
			}
		}
		if got := w.ranks[0].e.Stats.Sent[Eager].Messages; got != 0 {
			t.Errorf("%v: %d messages were sent eagerly", protocol, got)
		}
	}
}

// losingTransport loses a peer during CanSend or Send.
type losingTransport struct {
	*node
	inCanSend, inSend bool
}

func (f *losingTransport) CanSend(peer, _ int) bool {
	if f.inCanSend {
		f.e.Lost(peer, errors.New("no path"))
	}
	return !f.inCanSend
}

func (f *losingTransport) Send(peer int, h *wire.Header, data []byte, owner any) {
	if f.inSend {
		f.e.Lost(peer, errors.New("no path"))
	}
	if f.e.lost[peer] == nil {
		f.node.Send(peer, h, data, owner)
	} else if owner != nil {
		f.e.SendDone(owner.(*Request), errors.New("no path"))
	}
}

// A request whose peer is lost during a transport call completes exactly once.
func TestPeerLostDuringTransportCall(t *testing.T) {
	for name, cfg := range configs() {
		for _, n := range []int{8, rendezvousSize} {
			for _, inCanSend := range []bool{true, false} {
				w := newWorld(t, 2, cfg)
				f := &losingTransport{node: w.ranks[0], inCanSend: inCanSend, inSend: !inCanSend}
				f.e = New(cfg, f)
				q := &Request{Peer: 1, Tag: 7, Buf: make([]byte, n)}
				f.e.Isend(q)
				if inCanSend && n > cfg.EagerLimit { // CanSend is not called
					continue
				}
				if !q.Done() || !errors.Is(q.Err, ErrLost) || f.e.Busy() {
					t.Errorf("%s, %d bytes, in CanSend %v: done %v, %v, busy %v", name, n, inCanSend, q.Done(), q.Err, f.e.Busy())
				}
			}
		}
	}
}
