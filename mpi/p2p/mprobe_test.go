package p2p

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

var anyOf = match.Envelope{Source: match.Any, Tag: match.Any}

// A message that was taken out goes to the receive that is for it, and to no other.
func TestMprobedMessageGoesOnlyToItsReceive(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for i, n := range []int{0, limit, long} {
			e := w.ranks[1].e
			if e.Improbe(anyOf) != nil {
				t.Fatal("there is a message before there is one")
			}
			s1, s2 := w.send(0, 1, 7, 10*i+1, n), w.send(0, 1, 7, 10*i+2, n)
			w.finish()
			m := e.Improbe(anyOf)
			if src, tag, size := m.Status(); src != 0 || tag != 7 || size != n {
				t.Errorf("it is of %d, tag %d, size %d", src, tag, size)
			}
			r2 := w.recv(1, 0, 7, long) // takes the second, though it is posted first
			w.finish()
			w.got(r2, 10*i+2, n)
			r1 := &Request{Buf: make([]byte, long)}
			e.Imrecv(r1, m)
			w.finish()
			if w.got(r1, 10*i+1, n); !s1.Done() || !s2.Done() || r1.Source != 0 || r1.MatchedTag != 7 {
				t.Errorf("the sends are done: %v, %v; the receive is of %d, tag %d", s1.Done(), s2.Done(), r1.Source, r1.MatchedTag)
			}
		}
	})
}

// Receives that are posted between the probe and its receive may send RTRs: none of
// them is taken for the message's.
func TestMprobePreventsRTRMismatch(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := races(t)
		w.send(0, 1, 7, 1, long)
		w.sees(0, 1, wire.RTS)
		m := w.ranks[1].e.Improbe(anyOf)
		var recvs []*Request
		for sends := 0; sends < 4; { // with some receives ahead of them
			if len(recvs) < 4 && (len(recvs) == sends || r.IntN(2) == 0) {
				recvs = append(recvs, w.recv(1, 0, 7, long))
			} else {
				w.send(0, 1, 7, 2+sends, long)
				sends++
			}
			for range r.IntN(4) {
				w.step(r)
			}
		}
		first := &Request{Buf: make([]byte, long)}
		w.ranks[1].e.Imrecv(first, m)
		w.settle(r)
		w.got(first, 1, long)
		for i, q := range recvs {
			w.got(q, 2+i, long)
		}
	}
}

// What was taken out and came whole is received though its sender is lost; what
// waits with the sender is not.
func TestMprobedMessageOfLostPeer(t *testing.T) {
	forEachProtocol(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			n    int
			lost bool
		}{{limit, false}, {long, true}} {
			w := newWorld(t, 2, w.ranks[0].e.cfg)
			w.send(0, 1, 7, 1, c.n)
			w.finish()
			e := w.ranks[1].e
			m := e.Improbe(anyOf)
			e.Lost(0, errors.New("it was killed"))
			q := &Request{Buf: make([]byte, long)}
			e.Imrecv(q, m)
			if !q.Done() || errors.Is(q.Err, ErrLost) != c.lost || e.Busy() {
				t.Errorf("%d bytes: done %v, %v", c.n, q.Done(), q.Err)
			}
		}
	})
}

// A receive from anybody that has met its message needs that sender from then on,
// and nobody else.
func TestPeerLostDuringTransfer(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			for _, lost := range []int{0, 2} {
				w := newWorld(t, 3, cfg)
				r := w.recv(1, match.Any, 7, long)
				s := w.send(0, 1, 7, 1, long)
				w.deliver(0, 1)
				if !r.Matched() || r.Done() {
					t.Fatalf("matched %v, done %v", r.Matched(), r.Done())
				}
				w.ranks[1].e.Lost(lost, errors.New("it was killed"))
				w.ranks[0].e.Lost(2, errors.New("it was killed"))
				if lost == 0 {
					if read := w.ranks[1].jobs; len(read) > 0 { // into the buffer of the receive
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
				w.finish()
				if w.got(r, 1, long); !s.Done() || s.Err != nil {
					t.Errorf("the send is done: %v, %v", s.Done(), s.Err)
				}
			}
		})
	}
}

// lender is a fabric that keeps the buffers of eager sends until it is told to return them.
type bufferHoldingTransport struct {
	*node
	kept []*Request
}

func (l *bufferHoldingTransport) Send(peer int, h *wire.Header, data []byte, owner *Request) {
	l.node.Send(peer, h, data, nil)
	if owner != nil {
		l.kept = append(l.kept, owner)
	}
}

// A send to a lost peer ends when the fabric has returned its buffer, and with the error of
// the loss: its caller uses request and buffer again from then on.
func TestPeerLostDuringEagerSend(t *testing.T) {
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			l := &bufferHoldingTransport{node: newWorld(t, 3, cfg).ranks[0]}
			l.e = New(cfg, l)
			s := &Request{Peer: 1, Tag: 7, Buf: make([]byte, 8)}
			l.e.Isend(s)
			l.e.Lost(1, errors.New("it was killed"))
			if len(l.kept) != 1 || s.Done() {
				t.Fatalf("the fabric has %d buffers; done %v", len(l.kept), s.Done())
			}
			if l.e.SendDone(s, nil); !s.Done() || !errors.Is(s.Err, ErrLost) {
				t.Errorf("done %v, %v", s.Done(), s.Err)
			}
			if l.e.Busy() {
				t.Error("requests are left")
			}
		})
	}
}

// A send whose data moves does not need rank 0, even though nobody has set its Source.
func TestLossOfRankZeroKeepsSendsToOthers(t *testing.T) {
	w := newWorld(t, 3, configs()["rput"])
	s := w.send(1, 2, 7, 1, long)
	r := w.recv(2, 1, 7, long)
	w.deliver(1, 2)
	w.deliver(2, 1)
	w.ranks[1].e.Lost(0, errors.New("it was killed"))
	w.finish()
	if w.got(r, 1, long); s.Err != nil {
		t.Error(s.Err)
	}
}

// Concerns decides which receives the loss of a rank ends, now and later.
func TestDependsOnSelectsFailedReceives(t *testing.T) {
	w := newWorld(t, 3, configs()["rget"])
	e := w.ranks[0].e
	e.DependsOn = func(context uint32, from, lost int) bool { return context == 1 || from == lost }
	post := func(context uint32, from int) *Request {
		r := &Request{Peer: from, Context: context, Tag: 7, Buf: make([]byte, 1)}
		e.Irecv(r)
		return r
	}
	before := []*Request{post(1, 2), post(1, match.Any), post(0, 1), post(0, match.Any), post(0, 2)}
	e.Lost(1, errors.New("it was killed"))
	after := []*Request{post(1, 2), post(1, match.Any), post(0, 1), post(0, match.Any), post(0, 2)}
	for i, want := range []bool{true, true, true, false, false} {
		for _, r := range []*Request{before[i], after[i]} {
			if got := r.Done() && errors.Is(r.Err, ErrLost); got != want {
				t.Errorf("receive %d of context %d from %d is lost: %v, want %v", i, r.Context, r.Peer, got, want)
			}
		}
	}
	e.CancelAll()
	if e.Busy() {
		t.Error("a receive is left")
	}
}

// A synchronous send is done when its data is the sender's again too: the request
// may be used for another at once.
func TestSyncAckBeforeSendDone(t *testing.T) {
	w := newWorld(t, 2, configs()["rget"])
	f := &stalledTransport{node: w.ranks[0]}
	f.e = New(configs()["rget"], f)
	s := &Request{Peer: 1, Tag: 7, Buf: message(1, 8), Mode: Synchronous}
	f.e.Isend(s)
	ack := wire.Header{Kind: wire.SyncAck, Send: s.id}
	if err := f.e.Arrived(1, &ack, nil); err != nil || s.Done() {
		t.Fatalf("%v; done %v while its data is with the carrier", err, s.Done())
	}
	if err := f.e.Arrived(1, &ack, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("a second SyncAck: %v", err)
	}
	f.e.SendDone(s, nil)
	if !s.Done() || s.Err != nil {
		t.Errorf("done %v, %v", s.Done(), s.Err)
	}
	f.e.Isend(s)
	f.e.SendDone(s, errors.New("no way"))
	if !s.Done() || s.Err == nil {
		t.Errorf("what never left is done: %v, %v", s.Done(), s.Err)
	}
}

// slowSend keeps the data of eager messages.
type stalledTransport struct {
	*node
	e *Engine
}

func (s *stalledTransport) Send(int, *wire.Header, []byte, *Request) {}
