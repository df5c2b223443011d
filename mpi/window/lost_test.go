package window

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

var errKilled = errors.New("killed")

// arrive handles a message of a peer without data.
func arrive(t *testing.T, e *Engine, peer int, kind wire.Kind, flags wire.Flags) {
	t.Helper()
	must.Do(t, e.Arrived(peer, &wire.Header{Kind: kind, Flags: flags, Context: 4}, nil))
}

// kinds returns the kinds of the messages that were sent since the last call.
func (s *stubTransport) kinds() (kinds []wire.Kind) {
	for _, h := range s.sent {
		kinds = append(kinds, h.Kind)
	}
	s.sent = nil
	return kinds
}

// Operations that need a lost peer fail: queued ones, those with outstanding replies, and NIC
// atomics. Those on other ranks continue.
func TestLostPeerFailsItsOperations(t *testing.T) {
	word := make([]byte, 8)
	fetch := Access{Kind: AccumulateOp, Rank: 1, Origin: word, Result: make([]byte, 8), Type: Uint64, Request: true}
	for name, c := range map[string]struct {
		atomics bool
		access  Access
		queued  bool // the lock was not granted
		end     func(s *stubTransport, e *Engine)
	}{
		"queued put": {access: Access{Kind: PutOp, Rank: 1, Origin: word, Request: true}, queued: true},
		"reply":      {access: fetch, end: func(s *stubTransport, e *Engine) { e.TransferDone(s.owners[0], nil) }},
		"atomic":     {atomics: true, access: fetch, end: func(s *stubTransport, e *Engine) { e.AtomicDone(s.atomics[0], nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, e, w := openWindow(make([]byte, 64), c.atomics, 10, 11, 12)
			must.Do(t, w.LockAll(0))
			o := must.Get(w.StartOp(c.access))(t)
			other := must.Get(w.StartOp(Access{Kind: GetOp, Rank: 2, Result: word, Request: true}))(t)
			if !c.queued {
				arrive(t, e, 11, wire.Granted, 0)
			}
			var second *Operation // waits for the first, on the same word
			if c.atomics {
				second = must.Get(w.StartOp(c.access))(t)
			}
			e.Lost(11, errKilled)
			e.Lost(11, errors.New("again"))
			if c.end != nil {
				c.end(s, e)
			}
			if !o.Done() || !errors.Is(o.Err(), ErrLost) || !errors.Is(o.Err(), errKilled) {
				t.Errorf("done %v, %v", o.Done(), o.Err())
			}
			if second != nil && (!second.Done() || !errors.Is(second.Err(), ErrLost)) {
				t.Errorf("the second is done %v, %v", second.Done(), second.Err())
			}
			if other.Done() || !e.Busy() {
				t.Error("an operation on another rank is done")
			}
			if _, err := w.StartOp(c.access); !errors.Is(err, ErrLost) {
				t.Errorf("an operation on the lost rank: %v", err)
			}
			if !w.RemoteComplete(1) || !errors.Is(w.TakeError(1), ErrLost) || w.TakeError(1) != nil {
				t.Error("the error of the operations is not taken once")
			}
			s.kinds()
			arrive(t, e, 11, wire.Granted, 0) // late messages are ignored
			arrive(t, e, 11, wire.Flush, 0)
			if sent := s.kinds(); sent != nil {
				t.Errorf("the lost rank is sent %v", sent)
			}
			arrive(t, e, 12, wire.Granted, 0)
			e.TransferDone(other, nil)
			if !other.Done() || other.Err() != nil || e.Busy() || s.regions != 1 {
				t.Errorf("the other operation is done %v, %v; %d regions", other.Done(), other.Err(), s.regions)
			}
		})
	}
}

// The origin of a lock request learns that the target is lost, and can lock others.
func TestLockOfLostTargetFails(t *testing.T) {
	s, e, w := pair(false)
	must.Do(t, w.Lock(Shared, 1, 0))
	if held, err := w.TestLock(1); held || err != nil {
		t.Errorf("held %v, %v", held, err)
	}
	e.Lost(11, errKilled)
	if held, err := w.TestLock(1); held || !errors.Is(err, errKilled) {
		t.Errorf("held %v, %v", held, err)
	}
	if err := w.CheckNoEpoch(); err != nil {
		t.Error(err)
	}
	s.kinds()
	must.Do(t, w.Lock(Exclusive, 0, 0))
	arrive(t, e, 10, wire.Granted, 0)
	must.Do(t, w.Lock(Shared, 1, NoCheck))
	if err := w.Unlock(1); !errors.Is(err, errKilled) {
		t.Errorf("Unlock: %v", err)
	}
	if held, err := w.TestLock(0); !held || err != nil {
		t.Errorf("the other lock is held %v, %v", held, err)
	}
	must.Do(t, w.Unlock(0))
	if sent := s.kinds(); !slices.Equal(sent, []wire.Kind{wire.Lock, wire.Unlock}) {
		t.Errorf("sent %v", sent)
	}
	later := e.Open(9, []Segment{{Peer: 11, Size: 8}}, nil, nil) // opened after the loss
	must.Do(t, later.LockAll(0))
	if _, err := later.StartOp(Access{Kind: PutOp, Origin: make([]byte, 8)}); !errors.Is(err, ErrLost) {
		t.Errorf("Put: %v", err)
	}
}

// An epoch of Post or Start ends without its lost ranks, and says so.
func TestEpochsEndWithoutLostRanks(t *testing.T) {
	_, e, w := openWindow(make([]byte, 8), false, 10, 11, 12)
	must.Do(t, w.Start([]int{1, 2}, 0))
	must.Do(t, w.Post([]int{1, 2}, 0))
	arrive(t, e, 12, wire.Post, 0)
	arrive(t, e, 12, wire.Complete, 0)
	if can, err := w.CanComplete(); can || err != nil {
		t.Errorf("CanComplete: %v, %v", can, err)
	}
	if done, err := w.Test(); done || err != nil {
		t.Errorf("Test: %v, %v", done, err)
	}
	e.Lost(11, errKilled)
	if can, err := w.CanComplete(); !can || err != nil {
		t.Errorf("CanComplete after the loss: %v, %v", can, err)
	}
	if err := w.Complete(); !errors.Is(err, errKilled) {
		t.Errorf("Complete: %v", err)
	}
	if done, err := w.Test(); !done || !errors.Is(err, errKilled) {
		t.Errorf("Test after the loss: %v, %v", done, err)
	}
	if err := w.CheckNoEpoch(); err != nil {
		t.Error(err)
	}
}

// A Flush that a lost peer does not answer is over.
func TestLostPeerEndsFlush(t *testing.T) {
	s, e, w := pair(false)
	must.Do(t, w.LockAll(NoCheck))
	must.Get(w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Origin: make([]byte, 8), Type: Uint64}))(t)
	e.TransferDone(s.owners[0], nil)
	for range 2 { // the request is sent once
		if w.AllRemoteComplete() || !w.AllLocalComplete() {
			t.Error("the accumulate is complete at the target")
		}
	}
	if sent := s.kinds(); !slices.Equal(sent, []wire.Kind{wire.Accumulate, wire.Flush}) {
		t.Errorf("sent %v", sent)
	}
	e.Lost(11, errKilled)
	if !w.AllRemoteComplete() {
		t.Error("the flush still waits for the lost rank")
	}
}

// The request of a lost peer no longer keeps those behind it waiting.
func TestLostPeerLeavesLockQueue(t *testing.T) {
	s, e, _ := openWindow(make([]byte, 8), false, 10, 11, 12)
	arrive(t, e, 10, wire.Lock, 0)
	arrive(t, e, 11, wire.Lock, wire.Exclusive)
	arrive(t, e, 12, wire.Lock, 0)
	if got := s.kinds(); len(got) != 1 {
		t.Errorf("sent %v", got)
	}
	if e.Lost(11, errKilled); len(s.kinds()) != 1 {
		t.Error("the shared lock behind the lost request is not granted")
	}
}

// Every rank that the window waits for is visited, and no other.
func TestEachAwaitedPeer(t *testing.T) {
	s, e, w := openWindow(make([]byte, 64), false, 10, 11, 12, 13)
	expect := func(when string, want ...int) {
		t.Helper()
		var got []int
		e.EachAwaitedPeer(func(peer int) { got = append(got, peer) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("no epoch")
	must.Do(t, w.Lock(Shared, 1, 0))
	expect("a requested lock", 11)
	arrive(t, e, 11, wire.Granted, 0)
	expect("a held lock")
	must.Get(w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Origin: make([]byte, 8), Type: Uint64}))(t)
	expect("an operation", 11)
	e.TransferDone(s.owners[0], nil)
	expect("an operation that is locally complete")
	w.RemoteComplete(1)
	expect("a flush", 11)
	arrive(t, e, 11, wire.Flushed, 0)
	expect("a flush that is over")
	must.Do(t, w.Unlock(1))
	must.Do(t, w.Start([]int{1, 2}, 0))
	must.Do(t, w.Post([]int{3}, 0))
	expect("Start and Post", 11, 12, 13)
	arrive(t, e, 12, wire.Post, 0)
	arrive(t, e, 13, wire.Complete, 0)
	expect("the post of one, the complete of another", 11)
}

// The buffer of an operation on a lost rank's window is not used for a later reply.
func TestReplyLeavesBufferOfRefusedOperation(t *testing.T) {
	_, e, w := openWindow([]byte("old elements of this rank's mem."), false, 10, 11, 12)
	e.Lost(11, errKilled)
	must.Do(t, w.Fence(0))
	origin := []byte("12345678")
	if _, err := w.StartOp(Access{Kind: PutOp, Rank: 1, Origin: origin}); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	fetch := wire.Header{Kind: wire.Accumulate, Flags: wire.Fetch, Context: 4, Size: 8, Type: uint8(Int64), Op: uint8(NoOp)}
	must.Do(t, e.Arrived(12, &fetch, nil))
	if string(origin) != "12345678" {
		t.Errorf("the buffer has become %q", origin)
	}
}
