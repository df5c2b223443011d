package p2p

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

var anyOf = Envelope{Source: Any, Tag: Any}

func TestMprobedMessageGoesOnlyToItsReceive(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for i, n := range []int{0, eagerLimit, rendezvousSize} {
			e := w.ranks[1].e
			if e.Improbe(anyOf) != nil {
				t.Fatal("Improbe found a message before one was sent")
			}
			s1, s2 := w.send(0, 1, 7, 10*i+1, n), w.send(0, 1, 7, 10*i+2, n)
			w.runToEnd()
			m := e.Improbe(anyOf)
			if src, tag, size := m.Status(); src != 0 || tag != 7 || size != n {
				t.Errorf("Improbe: source %d, tag %d, size %d", src, tag, size)
			}
			r2 := w.recv(1, 0, 7, rendezvousSize) // receives the second, although it is posted first
			w.runToEnd()
			w.checkReceived(r2, 10*i+2, n)
			r1 := &Request{Buf: make([]byte, rendezvousSize)}
			e.Imrecv(r1, m)
			w.runToEnd()
			if w.checkReceived(r1, 10*i+1, n); !s1.Done() || !s2.Done() || r1.Source != 0 || r1.MatchedTag != 7 {
				t.Errorf("the sends are done: %v, %v; the receive has source %d, tag %d", s1.Done(), s2.Done(), r1.Source, r1.MatchedTag)
			}
		}
	})
}

// Receives posted between Improbe and Imrecv may send RTRs; the sender uses none of them
// for the probed message.
func TestMprobePreventsRTRMismatch(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newSpeculativeWorld(t)
		w.send(0, 1, 7, 1, rendezvousSize)
		w.deliverKinds(0, 1, wire.RTS)
		m := w.ranks[1].e.Improbe(anyOf)
		var recvs []*Request
		for sends := 0; sends < 4; { // with some receives ahead of them
			if len(recvs) < 4 && (len(recvs) == sends || r.IntN(2) == 0) {
				recvs = append(recvs, w.recv(1, 0, 7, rendezvousSize))
			} else {
				w.send(0, 1, 7, 2+sends, rendezvousSize)
				sends++
			}
			for range r.IntN(4) {
				w.step(r)
			}
		}
		first := &Request{Buf: make([]byte, rendezvousSize)}
		w.ranks[1].e.Imrecv(first, m)
		w.runAll(r)
		w.checkReceived(first, 1, rendezvousSize)
		for i, q := range recvs {
			w.checkReceived(q, 2+i, rendezvousSize)
		}
	}
}

// A probed eager message can be received although its sender is lost; a rendezvous message cannot.
func TestMprobedMessageOfLostPeer(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			n    int
			lost bool
		}{{eagerLimit, false}, {rendezvousSize, true}} {
			w := newWorld(t, 2, w.ranks[0].e.cfg)
			w.send(0, 1, 7, 1, c.n)
			w.runToEnd()
			e := w.ranks[1].e
			m := e.Improbe(anyOf)
			e.Lost(0, errors.New("it was killed"))
			q := &Request{Buf: make([]byte, rendezvousSize)}
			e.Imrecv(q, m)
			if !q.Done() || errors.Is(q.Err, ErrLost) != c.lost || e.Busy() {
				t.Errorf("%d bytes: done %v, %v", c.n, q.Done(), q.Err)
			}
		}
	})
}

// A receive from any source that has matched depends only on its sender.
func TestPeerLostDuringTransfer(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			for _, lost := range []int{0, 2} {
				w := newWorld(t, 3, cfg)
				r := w.recv(1, Any, 7, rendezvousSize)
				s := w.send(0, 1, 7, 1, rendezvousSize)
				w.deliver(0, 1)
				if !r.matched() || r.Done() {
					t.Fatalf("matched %v, done %v", r.matched(), r.Done())
				}
				w.ranks[1].e.Lost(lost, errors.New("it was killed"))
				w.ranks[0].e.Lost(2, errors.New("it was killed"))
				if lost == 0 {
					if read := w.ranks[1].transfers; len(read) > 0 { // into the buffer of the receive
						if r.Done() {
							t.Error("done while its buffer is written to")
						}
						w.ranks[1].e.ReadDone(r, nil)
					}
					if !r.Done() || !errors.Is(r.Err, ErrLost) {
						t.Errorf("done %v, %v", r.Done(), r.Err)
					}
					continue
				}
				w.runToEnd()
				if w.checkReceived(r, 1, rendezvousSize); !s.Done() || s.Err != nil {
					t.Errorf("the send is done: %v, %v", s.Done(), s.Err)
				}
			}
		})
	}
}

// bufferHoldingTransport holds the buffers of eager sends until the test returns them.
type bufferHoldingTransport struct {
	*node
	held []*Request
}

func (l *bufferHoldingTransport) Send(peer int, h *wire.Header, data []byte, owner any) {
	l.node.Send(peer, h, data, nil)
	if owner != nil {
		l.held = append(l.held, owner.(*Request))
	}
}

// A send to a lost peer completes when the transport has returned its buffer, with the
// error of the loss.
func TestPeerLostDuringEagerSend(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			l := &bufferHoldingTransport{node: newWorld(t, 3, cfg).ranks[0]}
			l.e = New(cfg, l)
			s := &Request{Peer: 1, Tag: 7, Buf: make([]byte, 8)}
			l.e.Isend(s)
			l.e.Lost(1, errors.New("it was killed"))
			if len(l.held) != 1 || s.Done() {
				t.Fatalf("the transport has %d buffers; done %v", len(l.held), s.Done())
			}
			if l.e.SendDone(s, nil); !s.Done() || !errors.Is(s.Err, ErrLost) {
				t.Errorf("done %v, %v", s.Done(), s.Err)
			}
			if l.e.Busy() {
				t.Error("a request is pending")
			}
		})
	}
}

// A send in transfer does not depend on rank 0 although its Source is 0.
func TestLossOfRankZeroKeepsSendsToOthers(t *testing.T) {
	w := newWorld(t, 3, configs()["rput"])
	s := w.send(1, 2, 7, 1, rendezvousSize)
	r := w.recv(2, 1, 7, rendezvousSize)
	w.deliver(1, 2)
	w.deliver(2, 1)
	w.ranks[1].e.Lost(0, errors.New("it was killed"))
	w.runToEnd()
	if w.checkReceived(r, 1, rendezvousSize); s.Err != nil {
		t.Error(s.Err)
	}
}

// DependsOn selects the current and future receives that the loss of a rank fails.
func TestDependsOnSelectsFailedReceives(t *testing.T) {
	w := newWorld(t, 3, configs()["rget"])
	e := w.ranks[0].e
	e.DependsOn = func(context uint32, from, lost int) bool { return context == 1 || from == lost }
	post := func(context uint32, from int) *Request {
		r := &Request{Peer: from, Context: context, Tag: 7, Buf: make([]byte, 1)}
		e.Irecv(r)
		return r
	}
	before := []*Request{post(1, 2), post(1, Any), post(0, 1), post(0, Any), post(0, 2)}
	e.Lost(1, errors.New("it was killed"))
	after := []*Request{post(1, 2), post(1, Any), post(0, 1), post(0, Any), post(0, 2)}
	for i, want := range []bool{true, true, true, false, false} {
		for _, r := range []*Request{before[i], after[i]} {
			if got := r.Done() && errors.Is(r.Err, ErrLost); got != want {
				t.Errorf("receive %d of context %d from %d is lost: %v, want %v", i, r.Context, r.Peer, got, want)
			}
		}
	}
	e.CancelAll()
	if e.Busy() {
		t.Error("a receive is pending")
	}
}

// A synchronous send completes only when its buffer is returned too, because the request
// may be reused at once.
func TestSyncAckBeforeSendDone(t *testing.T) {
	w := newWorld(t, 2, configs()["rget"])
	f := &stalledTransport{node: w.ranks[0]}
	f.e = New(configs()["rget"], f)
	s := &Request{Peer: 1, Tag: 7, Buf: testMessage(1, 8), Mode: Synchronous}
	f.e.Isend(s)
	ack := wire.Header{Kind: wire.SyncAck, Send: s.id}
	if err := f.e.Arrived(1, &ack, nil); err != nil || s.Done() {
		t.Fatalf("%v; done %v while the transport has its buffer", err, s.Done())
	}
	if err := f.e.Arrived(1, &ack, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("a second SyncAck: %v", err)
	}
	f.e.SendDone(s, nil)
	if !s.Done() || s.Err != nil {
		t.Errorf("done %v, %v", s.Done(), s.Err)
	}
	f.e.Isend(s)
	f.e.SendDone(s, errors.New("no path"))
	if !s.Done() || s.Err == nil {
		t.Errorf("the unsent message is done: %v, %v", s.Done(), s.Err)
	}
}

// stalledTransport never returns the buffers of eager sends.
type stalledTransport struct {
	*node
	e *Engine
}

func (s *stalledTransport) Send(int, *wire.Header, []byte, any) {}
