package p2p

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Messages up to the limit are eager in all modes, larger ones use rendezvous. A receive predicts
// rendezvous if its buffer is larger than the limit.
func TestEagerLimitIsExact(t *testing.T) {
	for name, cfg := range configs() {
		for _, mode := range []Mode{Standard, Synchronous, Ready} {
			for _, limit := range []int{-1, 0, eagerLimit, 1000} {
				for _, n := range []int{limit - 1, limit, limit + 1} {
					if n < 0 {
						continue
					}
					cfg.EagerLimit = limit
					w := newWorld(t, 2, cfg)
					r := w.recv(1, 0, 7, n)
					predicts := len(w.log) > 0
					w.log = nil
					s := &Request{Peer: 1, Tag: 7, Buf: testMessage(1, n), Mode: mode}
					w.ranks[0].e.Isend(s)
					first := w.log[0].kind
					if want := cfg.Protocol == Speculative && n > max(limit, 0); predicts != want {
						t.Errorf("%s, limit %d: a receive of %d bytes sends an RTR: %v", name, limit, n, predicts)
					}
					if (first == wire.Eager) != (n <= limit) {
						t.Errorf("%s, limit %d, mode %d: %d bytes begin with %v", name, limit, mode, n, first)
					}
					if s.Done() && (n > limit || mode == Synchronous) {
						t.Errorf("%s, limit %d, mode %d: the send of %d bytes is done at once", name, limit, mode, n)
					}
					w.runToEnd()
					if w.checkReceived(r, 1, n); !s.Done() || s.Err != nil || w.ranks[1].e.Stats.NotReady != 0 {
						t.Errorf("%s, limit %d, mode %d: the send of %d bytes is done: %v, %v", name, limit, mode, n, s.Done(), s.Err)
					}
				}
			}
		}
	}
}

// Replies that name a request in the wrong state, or of another peer, are rejected.
func TestRepliesInTheWrongStateAreRejected(t *testing.T) {
	for name, cfg := range configs() {
		w := newWorld(t, 3, cfg)
		e := w.ranks[0].e
		large, sync := w.send(0, 1, 7, 1, rendezvousSize), &Request{Peer: 1, Tag: 8, Buf: testMessage(1, 8), Mode: Synchronous}
		e.Isend(sync)
		posted := w.recv(0, 1, 9, rendezvousSize)
		for _, c := range []struct {
			peer int
			h    wire.Header
		}{
			{2, wire.Header{Kind: wire.SyncAck, Send: sync.id}},
			{1, wire.Header{Kind: wire.SyncAck, Send: large.id}},
			{1, wire.Header{Kind: wire.CTS, Send: sync.id}},
			{1, wire.Header{Kind: wire.RTSAck, Send: sync.id}},
			{1, wire.Header{Kind: wire.Done, Send: sync.id}},
			{2, wire.Header{Kind: wire.Done, Send: large.id}},
			{1, wire.Header{Kind: wire.Done, Recv: posted.id}},
			{1, wire.Header{Kind: wire.Done, Recv: large.id}},
			{1, wire.Header{Kind: wire.CTS, Send: large.id}},
			{1, wire.Header{Kind: wire.RTRAck, Tag: 9, Recv: posted.id + 1}},
			{1, wire.Header{Kind: wire.RTRAck, Tag: 8, Recv: posted.id}},
			{2, wire.Header{Kind: wire.Revoked, Recv: posted.id}},
			{1, wire.Header{Kind: wire.Revoked, Recv: posted.id}},
		} {
			if valid := c.h.Kind == wire.CTS && c.h.Send == large.id && cfg.Protocol == RPUT; valid {
				continue
			}
			if err := e.Arrived(c.peer, &c.h, nil); !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: %v of rank %d: %v", name, c.h.Kind, c.peer, err)
			}
		}
		if large.Done() || sync.Done() || posted.Done() {
			t.Errorf("%s: a request is done", name)
		}
	}
}

// An id names one request while it is pending, and none of the next ones in its slot.
func TestRequestIDsAreNotReused(t *testing.T) {
	var table requestTable
	var a, b Request
	table.add(&a)
	table.add(&b)
	if a.id == b.id || table.get(a.id) != &a || table.get(b.id) != &b || table.get(0) != nil || table.get(b.id+1) != nil {
		t.Fatalf("ids %d and %d", a.id, b.id)
	}
	seen := map[uint32]bool{}
	for range maxGenerations - 1 {
		if seen[a.id] || a.id == 0 || a.id>>slotBits == 0 {
			t.Fatalf("id %d is used again", a.id)
		}
		old := a.id
		seen[old] = true
		table.remove(&a)
		table.remove(&a) // of a request without an id
		if len(table.free) != 1 || len(table.all()) != 1 {
			t.Fatalf("%d slots are free", len(table.free))
		}
		if table.add(&a); table.get(old) != nil {
			t.Fatalf("id %d names a later request", old)
		}
	}
	if !seen[a.id] {
		t.Errorf("id %d: the generations do not wrap", a.id)
	}
}

// The queue of RTRs is a FIFO from which any entry can be removed.
func TestRTRQueue(t *testing.T) {
	var q rtrQueue
	var model []uint32
	for i := range uint32(200) {
		switch {
		case i%7 == 3 && len(model) > 2:
			k := int(i) % len(model)
			if !q.remove(model[k]) || q.remove(model[k]) {
				t.Fatalf("step %d: removed %d", i, model[k])
			}
			model = slices.Delete(model, k, k+1)
		case i%3 == 2 && len(model) > 0:
			if h := q.pop(); h.Recv != model[0] {
				t.Fatalf("step %d: popped %d, want %d", i, h.Recv, model[0])
			}
			model = model[1:]
		default:
			q.push(&wire.Header{Recv: i + 1})
			model = append(model, i+1)
		}
		if q.len() != len(model) {
			t.Fatalf("step %d: %d queued, want %d", i, q.len(), len(model))
		}
	}
	if q.remove(999) {
		t.Error("removed what was not queued")
	}
	if q.clear(); q.len() != 0 {
		t.Error("not empty")
	}
}

func TestConfigDefaults(t *testing.T) {
	if got, want := New(Config{}, nil).cfg, (Config{Usage: 0.8, Sample: 16, MaxMispredicted: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestDescribePending(t *testing.T) {
	w := newWorld(t, 2, configs()["rget"])
	expect := func(rank int, want string) {
		t.Helper()
		if got := w.ranks[rank].e.DescribePending(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect(0, "none")
	w.recv(1, Any, Any, 4)
	w.recv(1, 0, 9, rendezvousSize)
	expect(1, "a receive from any rank with any tag, a receive from rank 0 with tag 9")
	w.ranks[1].e.CancelAll()
	w.recv(1, 0, 7, rendezvousSize)
	w.send(0, 1, 7, 1, rendezvousSize)
	expect(0, fmt.Sprintf("a send of %d bytes to rank 1 with tag 7", rendezvousSize))
	w.deliver(0, 1)
	expect(1, "the data of a message from rank 0 with tag 7")
	w.runToEnd()
	w.send(0, 1, 7, 2, rendezvousSize)
	w.deliver(0, 1)
	w.ranks[1].e.Imrecv(&Request{Buf: make([]byte, rendezvousSize)}, w.ranks[1].e.Improbe(anyOf))
	expect(1, "the data of a message from rank 0 with tag 7")
	var awaited []int
	w.ranks[1].e.EachAwaitedPeer(func(peer int) { awaited = append(awaited, peer) }, func(uint32, int) { t.Error("no receive is posted") })
	if !slices.Equal(awaited, []int{0}) {
		t.Errorf("awaited are %v", awaited)
	}
}
