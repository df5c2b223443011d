package p2p

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// advertised starts an advertised request.
func (w *world) advertised(at, peer, n int, start func(*Engine, *Request)) *Request {
	r := &Request{Peer: peer, Tag: 7, Buf: testMessage(1, n), Advertised: true}
	start(w.ranks[at].e, r)
	return r
}

// An advertised message needs no control message but the RTR and the Done, in either order of the calls.
func TestAdvertisedMessageNeedsTwoControlMessages(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for _, receiveFirst := range []bool{false, true} {
			w.log = nil
			var s, r *Request
			if receiveFirst {
				r = w.advertised(1, 0, rendezvousSize, (*Engine).Irecv)
				w.runToEnd()
			}
			s = w.advertised(0, 1, rendezvousSize, (*Engine).Isend)
			if s.Started() != receiveFirst {
				t.Errorf("receive first: %v; the send has started: %v", receiveFirst, s.Started())
			}
			if !receiveFirst {
				r = w.advertised(1, 0, rendezvousSize, (*Engine).Irecv)
			}
			w.runToEnd()
			w.checkReceived(r, 1, rendezvousSize)
			if len(w.log) != 1 || w.log[0].kind != wire.RTR || !s.Done() { // the log has no Done
				t.Errorf("messages %v; the send is done: %v", w.log, s.Done())
			}
		}
	})
}

// A failed context ends advertised receives and sends at both ranks, and their buffers are free then.
func TestFailedContextEndsAdvertisedRequests(t *testing.T) {
	cause := errors.New("a rank is lost")
	received, failed := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, 2, configs()["rget"])
		q := w.advertised(1, 0, rendezvousSize, (*Engine).Irecv)
		for range r.IntN(2) {
			w.step(r)
		}
		s := w.advertised(0, 1, rendezvousSize, (*Engine).Isend)
		for range r.IntN(3) {
			w.step(r)
		}
		first := r.IntN(2)
		w.ranks[first].e.FailContext(0, cause)
		w.runAll(r)
		w.ranks[1-first].e.FailContext(0, cause)
		w.runAll(r)
		later := w.advertised(0, 1, rendezvousSize, (*Engine).Isend)
		if !q.Done() || !s.Done() || (q.Err == nil) != (s.Err == nil) || !errors.Is(later.Err, cause) {
			t.Fatalf("seed %d: the receive is done: %v, %v; the send: %v, %v; a later send: %v; %v", seed, q.Done(), q.Err, s.Done(), s.Err, later.Err, w.log)
		}
		if q.Err == nil {
			w.checkReceived(q, 1, rendezvousSize)
			received++
		} else {
			failed++
		}
		if n := w.ranks[0].regions + w.ranks[1].regions; n > 0 {
			t.Fatalf("seed %d: %d regions are left", seed, n)
		}
	}
	if received == 0 || failed == 0 {
		t.Errorf("%d receives completed, %d failed", received, failed)
	}
}

// Small advertised messages use no state of their envelope.
func TestSmallAdvertisedMessagesHaveNoSenderState(t *testing.T) {
	w := newSpeculativeWorld(t)
	r := w.advertised(1, 0, eagerLimit, (*Engine).Irecv)
	w.advertised(0, 1, eagerLimit, (*Engine).Isend)
	w.runToEnd()
	w.checkReceived(r, 1, eagerLimit)
	if n := len(w.ranks[0].e.senders); n > 0 {
		t.Errorf("%d envelopes have state", n)
	}
}
