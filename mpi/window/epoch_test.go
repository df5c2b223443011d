package window

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// An exclusive request is granted while shared requests keep coming, and a shared one while
// exclusive requests do.
func TestLocksDoNotStarve(t *testing.T) {
	for _, c := range []struct{ waiting, stream wire.Flags }{{wire.Exclusive, 0}, {0, wire.Exclusive}} {
		_, e, w := openWindow(make([]byte, 8), false, 0, 1, 2)
		arrive(t, e, 1, wire.Lock, c.stream)
		arrive(t, e, 0, wire.Lock, c.waiting)
		for i := range 5 { // 1 and 2 ask again as soon as they may
			next, last := 1+(i+1)%2, 1+i%2
			if _, holds := w.lock.holders[0]; holds {
				break
			}
			arrive(t, e, next, wire.Lock, c.stream)
			arrive(t, e, last, wire.Unlock, 0)
		}
		if _, holds := w.lock.holders[0]; !holds || len(w.lock.holders) != 1 {
			t.Errorf("flags %v wait for %v: holders %v", c.waiting, c.stream, w.lock.holders)
		}
	}
}

// After each kind of lock is released, each kind is granted; shared ones together.
func TestLocksAreGrantedAfterUnlock(t *testing.T) {
	for _, held := range []wire.Flags{0, wire.Exclusive} {
		for _, next := range []wire.Flags{0, wire.Exclusive} {
			s, e, _ := openWindow(make([]byte, 8), false, 0, 1, 2)
			arrive(t, e, 0, wire.Lock, held)
			arrive(t, e, 1, wire.Lock, next)
			both := held == 0 && next == 0
			if got := len(s.kinds()) == 2; got != both {
				t.Errorf("%v after %v is granted: %v", next, held, got)
			}
			arrive(t, e, 0, wire.Unlock, 0)
			if got := len(s.kinds()); got == 1 == both {
				t.Errorf("%v after %v: %d grants at the unlock", next, held, got)
			}
			arrive(t, e, 1, wire.Unlock, 0)
			arrive(t, e, 2, wire.Lock, wire.Exclusive)
			if got := s.kinds(); !slices.Equal(got, []wire.Kind{wire.Granted}) {
				t.Errorf("an exclusive lock after %v and %v: %v", held, next, got)
			}
			if err := e.Arrived(0, &wire.Header{Kind: wire.Unlock, Context: 4}, nil); !errors.Is(err, ErrProtocol) {
				t.Errorf("an unlock of a rank without the lock: %v", err)
			}
		}
	}
}

// LockAll requests a lock on first use, none with NoCheck, and UnlockAll releases what was granted.
func TestLockAllLocksOnFirstUse(t *testing.T) {
	for _, c := range []struct {
		assert Assert
		want   []wire.Kind
	}{{0, []wire.Kind{wire.Lock, wire.Unlock}}, {NoCheck, nil}, {NoStore, []wire.Kind{wire.Lock, wire.Unlock}}} {
		s, e, w := pair(false)
		must.Do(t, w.LockAll(c.assert))
		put := Access{Kind: PutOp, Rank: 1, Origin: make([]byte, 8)}
		must.Get(w.StartOp(put))(t)
		must.Get(w.StartOp(put))(t)
		if c.want != nil {
			if len(s.owners) > 0 || w.AllLocalComplete() {
				t.Error("a put is issued before the lock is granted")
			}
			arrive(t, e, 11, wire.Granted, 0)
		}
		for _, o := range s.owners {
			e.TransferDone(o, nil)
		}
		if len(s.owners) != 2 || !w.AllRemoteComplete() {
			t.Errorf("%d puts are issued", len(s.owners))
		}
		must.Do(t, w.UnlockAll())
		if got := s.kinds(); !slices.Equal(got, c.want) {
			t.Errorf("assertion %d: sent %v, want %v", c.assert, got, c.want)
		}
	}
}

// A post is used by one Start: the open one, or the next.
func TestPostIsUsedOnce(t *testing.T) {
	s, e, w := pair(false)
	for i := range 3 {
		if i < 2 {
			arrive(t, e, 11, wire.Post, 0)
		}
		if i == 0 { // the second is for a later Start
			arrive(t, e, 11, wire.Post, 0)
		}
		must.Do(t, w.Start([]int{1}, 0))
		must.Get(w.StartOp(Access{Kind: PutOp, Rank: 1, Origin: make([]byte, 8)}))(t)
		if len(s.owners) != i+1 {
			t.Fatalf("round %d: %d puts are issued", i, len(s.owners))
		}
		arrive(t, e, 10, wire.Post, 0) // of a rank outside of the group: for a later Start
		if can, err := w.CanComplete(); can || err != nil || w.targets[0].unusedPosts != i+1 {
			t.Errorf("CanComplete: %v, %v; %d posts", can, err, w.targets[0].unusedPosts)
		}
		e.TransferDone(s.owners[i], nil)
		if can, err := w.CanComplete(); !can || err != nil {
			t.Errorf("CanComplete: %v, %v", can, err)
		}
		must.Do(t, w.Complete())
	}
	must.Do(t, w.Start([]int{1}, 0))
	if can, err := w.CanComplete(); can || err != nil {
		t.Errorf("CanComplete without a post: %v, %v", can, err)
	}
	arrive(t, e, 11, wire.Post, 0)
	must.Do(t, w.Complete())
	if err := w.Post([]int{1}, NoCheck); err != nil || w.exposedTo == nil {
		t.Error(err)
	}
	if got := s.kinds(); !slices.Equal(got, slices.Repeat([]wire.Kind{wire.Complete}, 4)) {
		t.Errorf("sent %v", got)
	}
}

// Invalid locks and operations are rejected.
func TestInvalidAccessIsRejected(t *testing.T) {
	_, _, w := pair(false)
	if err := w.Lock(LockKind(7), 1, 0); !errors.Is(err, ErrArg) {
		t.Errorf("a lock of no kind: %v", err)
	}
	must.Do(t, w.Lock(Exclusive, 1, NoCheck))
	for _, a := range []Access{
		{Kind: PutOp, Offset: 57, Origin: make([]byte, 8)},
		{Kind: PutOp, Offset: 0, Origin: make([]byte, 65)},
		{Kind: GetOp, Offset: 64, Result: make([]byte, 1)},
		{Kind: PutOp, Offset: -1, Origin: make([]byte, 1)},
	} {
		a.Rank = 1
		if _, err := w.StartOp(a); !errors.Is(err, ErrRange) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, a := range []Access{{Kind: PutOp, Offset: 56, Origin: make([]byte, 8)}, {Kind: GetOp, Result: make([]byte, 64)}} {
		a.Rank = 1
		must.Get(w.StartOp(a))(t)
	}
}

func TestConfigDefaults(t *testing.T) {
	for _, c := range []struct{ in, want Config }{
		{Config{}, Config{Chunk: 1024, InFlight: 16}},
		{Config{Chunk: 23, InFlight: -1}, Config{Chunk: 16, InFlight: 1}},
		{Config{Chunk: 7, InFlight: 3, ByTarget: true}, Config{Chunk: 8, InFlight: 3, ByTarget: true}},
	} {
		if got := New(c.in, nil).cfg; got != c.want {
			t.Errorf("%+v becomes %+v, want %+v", c.in, got, c.want)
		}
	}
}

// A segment has NIC atomics if NICs do, unless the target's CPU is to execute accumulates, and if
// it consists of aligned words.
func TestSegmentAtomics(t *testing.T) {
	for _, c := range []struct {
		n                       int
		atomics, byTarget, want bool
	}{{64, true, false, true}, {64, false, false, false}, {64, true, true, false}, {60, true, false, false}} {
		e := New(Config{ByTarget: c.byTarget}, &stubTransport{})
		segment, _, err := e.RegisterSegment(make([]byte, c.n), c.atomics)
		if err != nil || segment.Atomics != c.want || segment.Size != c.n || segment.Memory.Addr != 1<<20 {
			t.Errorf("%+v: %+v, %v", c, segment, err)
		}
	}
}

// Accumulates run in parallel unless they overlap in an 8-byte word, those behind maxLookahead
// others later.
func TestOverlappingAtomicsRunInOrder(t *testing.T) {
	s, e, w := openWindow(make([]byte, 256), true, 10, 11)
	must.Do(t, w.LockAll(NoCheck))
	start := func(offset, n int) {
		must.Get(w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Offset: offset, Origin: make([]byte, n), Type: Byte, Op: Max}))(t)
	}
	start(0, 8)
	start(8, 3)  // parallel
	start(12, 2) // the same word as the second
	start(16, 8) // parallel
	if len(s.atomics) != 3 {
		t.Errorf("%d atomics are started, want 3", len(s.atomics))
	}
	e.AtomicDone(s.atomics[1], nil)
	if len(s.atomics) != 4 || s.atomics[3].offset != 8 {
		t.Errorf("%d atomics are started, want 4", len(s.atomics))
	}
	for i := range 10 {
		start(32+8*i, 8)
	}
	if len(s.atomics) != 4+maxLookahead-3 {
		t.Errorf("%d atomics are started, want %d", len(s.atomics), 4+maxLookahead-3)
	}
	for i := 0; i < len(s.atomics); i++ {
		if i != 1 {
			e.AtomicDone(s.atomics[i], nil)
		}
	}
	if len(s.atomics) != 14 || e.Busy() {
		t.Errorf("%d atomics are started, want 14; busy %v", len(s.atomics), e.Busy())
	}
}

// An accumulate for the target's CPU is split into messages of at most Config.Chunk bytes.
func TestAccumulateIsSplitIntoChunks(t *testing.T) {
	for n, want := range map[int]int{1016: 1, 1024: 1, 1032: 2, 2048: 2, 2056: 3} {
		s, e, w := openWindow(make([]byte, 4096), false, 10, 11)
		must.Do(t, w.LockAll(NoCheck))
		fetched := make([]byte, n)
		o := must.Get(w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Offset: 8, Origin: make([]byte, n), Result: fetched, Type: Uint64, Request: true}))(t)
		if len(s.sent) != want || s.sent[0].Offset != 8 || s.sent[want-1].Offset != uint64(8+1024*(want-1)) {
			t.Errorf("%d bytes: %d messages, want %d", n, len(s.sent), want)
		}
		for i, h := range s.sent {
			e.TransferDone(s.owners[i], nil)
			if err := e.Arrived(11, &wire.Header{Kind: wire.AccumulateReply, Context: 4}, make([]byte, h.Size+1)); !errors.Is(err, ErrProtocol) {
				t.Errorf("a reply of the wrong size: %v", err)
			}
			if o.Done() {
				t.Errorf("%d bytes: done without reply %d", n, i)
			}
			reply := slices.Repeat([]byte{byte(i + 1)}, int(h.Size))
			must.Do(t, e.Arrived(11, &wire.Header{Kind: wire.AccumulateReply, Context: 4}, reply))
		}
		if !o.Done() || fetched[0] != 1 || fetched[n-1] != byte(want) || !w.RemoteComplete(1) || len(s.sent) != want {
			t.Errorf("%d bytes: done %v, result %x…%x", n, o.Done(), fetched[0], fetched[n-1])
		}
	}
}
