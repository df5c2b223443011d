package window

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// stubTransport records the calls.
type stubTransport struct {
	sent    []wire.Header
	owners  []*Operation
	regions int
	atomics []*Atomic
}

type stubRegion struct{}

func (stubRegion) Memory() wire.Memory { return wire.Memory{Addr: 1 << 20, Rails: 1} }

func (s *stubTransport) Send(_ int, h *wire.Header, _ []byte, owner any) {
	s.sent = append(s.sent, *h)
	if owner != nil {
		s.owners = append(s.owners, owner.(*Operation))
	}
}

func (s *stubTransport) Register([]byte) (wire.Region, error) {
	s.regions++
	return stubRegion{}, nil
}
func (s *stubTransport) Source(b []byte) (wire.Region, error) { return s.Register(b) }
func (s *stubTransport) Sink(b []byte) (wire.Region, error)   { return s.Register(b) }
func (s *stubTransport) Release(wire.Region)                  { s.regions-- }
func (s *stubTransport) Read(_ int, _ wire.Transfer, owner any) {
	s.owners = append(s.owners, owner.(*Operation))
}

func (s *stubTransport) Write(_ int, _ wire.Transfer, owner any) {
	s.owners = append(s.owners, owner.(*Operation))
}

func (s *stubTransport) FetchAdd(_ int, _ wire.Memory, _ uint64, owner any) {
	s.atomics = append(s.atomics, owner.(*Atomic))
}

func (s *stubTransport) CompareSwap(_ int, _ wire.Memory, _, _ uint64, owner any) {
	s.atomics = append(s.atomics, owner.(*Atomic))
}

// openWindow returns a window of some ranks, of which each has a segment like mem.
func openWindow(mem []byte, atomics bool, peers ...int) (*stubTransport, *Engine, *Window) {
	s := &stubTransport{}
	e := New(Config{}, s)
	segment, region, _ := e.RegisterSegment(mem, atomics) // the stub does not fail
	segments := make([]Segment, len(peers))
	for i, peer := range peers {
		segments[i] = segment
		segments[i].Peer = peer
	}
	return s, e, e.Open(4, segments, mem, region)
}

// pair returns a window of ranks 10, this one, and 11.
func pair(atomics bool) (*stubTransport, *Engine, *Window) {
	return openWindow(make([]byte, 64), atomics, 10, 11)
}

// Messages that violate the protocol are rejected and change nothing.
func TestProtocolViolationsAreRejected(t *testing.T) {
	data := make([]byte, 16)
	for i, h := range []wire.Header{
		{Kind: wire.Accumulate, Context: 5},                                      // no such window
		{Kind: wire.Lock, Context: 5},                                            // no such window
		{Kind: wire.Accumulate, Context: 4, Offset: 56, Type: 3},                 // beyond the end
		{Kind: wire.Accumulate, Context: 4, Offset: 1 << 63, Type: 3},            // far beyond
		{Kind: wire.Accumulate, Context: 4, Offset: 4, Type: 3},                  // not aligned
		{Kind: wire.Accumulate, Context: 4, Type: 99},                            // no such type
		{Kind: wire.Accumulate, Context: 4, Type: 3, Op: 99},                     // no such operation
		{Kind: wire.Accumulate, Context: 4, Type: 6, Op: uint8(BAnd)},            // not valid for the type
		{Kind: wire.Accumulate, Flags: wire.Fetch, Context: 4, Size: 8, Type: 3}, // wrong size
		{Kind: wire.Accumulate, Flags: wire.Fetch, Context: 4, Size: 1 << 60, Type: 3, Op: uint8(NoOp)},
		{Kind: wire.CompareSwap, Context: 4, Type: 1},             // too much data
		{Kind: wire.CompareSwap, Context: 4, Type: 3, Offset: 64}, // beyond the end
		{Kind: wire.AccumulateReply, Context: 4},                  // no request is outstanding
		{Kind: wire.Flushed, Context: 4},                          // no flush is outstanding
		{Kind: wire.Granted, Context: 4},                          // no lock was requested
		{Kind: wire.Unlock, Context: 4},                           // no lock is held
		{Kind: wire.Eager, Context: 4},                            // not a window message
	} {
		s, e, w := pair(false)
		if err := e.Arrived(11, &h, data); !errors.Is(err, ErrProtocol) {
			t.Errorf("message %d, %v: %v", i, h.Kind, err)
		}
		if len(s.sent) > 0 || e.Busy() || string(w.mem) != string(make([]byte, 64)) {
			t.Errorf("message %d, %v, has a reply: %v", i, h.Kind, s.sent)
		}
	}
	_, e, _ := pair(false)
	if err := e.Arrived(12, &wire.Header{Kind: wire.Flush, Context: 4}, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("a message of a rank outside the group: %v", err)
	}
	lock := wire.Header{Kind: wire.Lock, Context: 4}
	if err := e.Arrived(11, &lock, nil); err != nil {
		t.Error(err)
	}
	if err := e.Arrived(11, &lock, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("a second lock request of the holder: %v", err)
	}
	if err := e.Arrived(11, &wire.Header{Kind: wire.Unlock, Context: 99}, nil); err != nil {
		t.Errorf("an unlock of a window that may have been freed: %v", err)
	}
}

// For any messages, the engine does not panic, changes no memory outside the window,
// and replies only to requests.
func FuzzArrived(f *testing.F) {
	f.Add([]byte{11, 0, 0, 0, 3, 0, 16}, uint64(1))
	f.Add([]byte{12, 0, 8, 0, 3, 0, 16, 18, 20, 19}, uint64(2))
	f.Fuzz(func(t *testing.T, script []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		around := make([]byte, 64+32)
		s, e, _ := openWindow(around[16:80:80], false, 10, 11)
		for len(script) >= 7 {
			h := wire.Header{
				Kind: wire.Kind(script[0]), Flags: wire.Flags(script[1]), Context: 4, Offset: uint64(script[2]) << (script[3] % 64),
				Type: script[4], Op: script[5], Size: uint64(script[6]),
			}
			data := make([]byte, int(script[6]))
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			_ = e.Arrived(10+r.IntN(3), &h, data)
			script = script[7:]
		}
		for i, b := range around {
			if (i < 16 || i >= 80) && b != 0 {
				t.Fatalf("byte %d outside the window was changed", i)
			}
		}
		for _, h := range s.sent {
			if h.Kind != wire.AccumulateReply && h.Kind != wire.Flushed && h.Kind != wire.Granted {
				t.Fatalf("%v is not a reply", h.Kind)
			}
		}
	})
}

// A shared lock request does not overtake an earlier exclusive one, and shared locks are
// granted together.
func TestLocksAreGrantedInOrder(t *testing.T) {
	_, e, w := openWindow(make([]byte, 8), false, 0, 1, 2, 3, 4, 5)
	lock := func(peer int, flags wire.Flags) {
		must.Do(t, e.Arrived(peer, &wire.Header{Kind: wire.Lock, Flags: flags, Context: 4}, nil))
	}
	unlock := func(peer int) {
		must.Do(t, e.Arrived(peer, &wire.Header{Kind: wire.Unlock, Context: 4}, nil))
	}
	checkHolders := func(want ...int) {
		t.Helper()
		if !slices.Equal(slices.Sorted(maps.Keys(w.lock.holders)), want) {
			t.Fatalf("holders %v, want %v", w.lock.holders, want)
		}
	}
	lock(0, 0)
	lock(1, 0)
	checkHolders(0, 1)
	lock(2, wire.Exclusive)
	lock(3, 0)
	lock(4, 0)
	lock(5, wire.Exclusive)
	checkHolders(0, 1)
	unlock(0)
	checkHolders(1)
	unlock(1)
	checkHolders(2)
	unlock(2)
	checkHolders(3, 4)
	e.Lost(3, errors.New("killed")) // releases its lock
	checkHolders(4)
	e.Lost(5, errors.New("killed")) // and its lock request
	lock(0, 0)
	checkHolders(0, 4)
	if e.Stats.LocksWaited != 4 {
		t.Errorf("%d lock requests waited", e.Stats.LocksWaited)
	}
}

// A compare-and-swap that finds another value is retried with it, and Config.InFlight is
// respected.
func TestFailedCompareSwapIsRetried(t *testing.T) {
	s, e, w := pair(true)
	e.cfg.InFlight = 2
	must.Do(t, w.LockAll(NoCheck))
	origin := make([]byte, 32)
	for i := range origin {
		origin[i] = 1
	}
	o := must.Get(w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Origin: origin, Result: make([]byte, 32), Offset: 4, Type: Byte, Op: Sum, Request: true}))(t)
	for turn := 0; len(s.atomics) > 0; turn++ {
		if len(s.atomics) > 2 {
			t.Fatalf("%d atomics are pending", len(s.atomics))
		}
		a := s.atomics[0]
		s.atomics = s.atomics[1:]
		a.Fetched(7) // not the expected value
		e.AtomicDone(a, nil)
	}
	if !o.Done() || o.Err() != nil || e.Stats.Atomics != 10 || e.Stats.Retries != 5 { // five words of eight bytes
		t.Errorf("done %v, %v, with %d atomics, %d of them retries", o.Done(), o.Err(), e.Stats.Atomics, e.Stats.Retries)
	}
	if want := "\x00\x00\x00\x00\x07\x00"; string(o.Result[:6]) != want {
		t.Errorf("fetched %x, want %x", o.Result[:6], want)
	}
	// An error completes the operation once all pending atomics have completed.
	o = must.Get(w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Origin: origin, Result: make([]byte, 32), Offset: 0, Type: Byte, Op: Sum, Request: true}))(t)
	failure := errors.New("injected")
	e.AtomicDone(s.atomics[0], failure)
	if o.Done() {
		t.Error("done while an atomic is pending")
	}
	e.AtomicDone(s.atomics[1], nil)
	if !o.Done() || !errors.Is(o.Err(), failure) || len(s.atomics) != 2 || !w.RemoteComplete(1) || !errors.Is(w.TakeError(1), failure) {
		t.Errorf("done %v, %v; %d atomics", o.Done(), o.Err(), len(s.atomics))
	}
}

// A transport may complete an atomic within the call.
func TestAtomicsMayCompleteImmediately(t *testing.T) {
	_, e, w := pair(true)
	f := &instantTransport{stubTransport: &stubTransport{}}
	f.e, e.transport = e, f
	must.Do(t, w.LockAll(NoCheck))
	for i, n := range []int{8, 64, 64} {
		f.failing = i == 2
		o, err := w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Origin: make([]byte, n), Result: make([]byte, n), Type: Uint32, Op: Max, Request: true})
		if err != nil || !o.Done() || (o.Err() != nil) != f.failing {
			t.Errorf("%d bytes: %v, %v, %v", n, err, o.Done(), o.Err())
		}
	}
	if e.Busy() || len(w.targets[1].atomicOps) > 0 {
		t.Error("an operation remains")
	}
}

type instantTransport struct {
	*stubTransport
	e       *Engine
	failing bool
}

func (q *instantTransport) CompareSwap(_ int, _ wire.Memory, _, _ uint64, owner any) {
	if q.failing {
		q.e.AtomicDone(owner.(*Atomic), errors.New("injected"))
		return
	}
	owner.(*Atomic).Fetched(0)
	q.e.AtomicDone(owner.(*Atomic), nil)
}

func TestWindowCloseReleasesRegion(t *testing.T) {
	s, e, w := pair(false)
	if w.Close(); s.regions != 0 || len(e.windows) != 0 || len(e.ordered) != 0 {
		t.Errorf("%d regions, %d windows remain", s.regions, len(e.windows))
	}
	if segment, region, err := e.RegisterSegment(nil, true); segment.Size != 0 || region != nil || err != nil {
		t.Errorf("an empty segment: %+v, %v, %v", segment, region, err)
	}
}

// The CPU's copies are counted, those of a target and those of an origin, so that they take time in
// simulation.
func TestCopiesOfAccumulatesAreCounted(t *testing.T) {
	_, e, w := pair(false)
	copied := 0
	e.Copied = func(bytes int) { copied += bytes }
	expect := func(what string, want int) {
		t.Helper()
		if copied != want {
			t.Errorf("%s: %d bytes are copied, want %d", what, copied, want)
		}
		copied = 0
	}
	must.Do(t, w.LockAll(NoCheck))
	must.Do(t, e.Arrived(11, &wire.Header{Kind: wire.Accumulate, Context: 4, Type: uint8(Int64), Op: uint8(Sum)}, make([]byte, 16)))
	expect("a sum", 16)
	must.Do(t, e.Arrived(11, &wire.Header{Kind: wire.Accumulate, Flags: wire.Fetch, Context: 4, Size: 16, Type: uint8(Int64), Op: uint8(Sum)}, make([]byte, 16)))
	expect("a sum whose old elements are fetched", 32)
	must.Do(t, e.Arrived(11, &wire.Header{Kind: wire.CompareSwap, Context: 4, Type: uint8(Int64)}, make([]byte, 16)))
	expect("a compare-and-swap that succeeds", 16)
	must.Get(w.StartOp(Access{Kind: CompareAndSwapOp, Rank: 1, Origin: make([]byte, 8), Compare: make([]byte, 8), Result: make([]byte, 8), Type: Int64, Request: true}))(t)
	expect("the request of a compare-and-swap", 16)
	must.Do(t, e.Arrived(11, &wire.Header{Kind: wire.AccumulateReply, Context: 4}, make([]byte, 8)))
	expect("its reply", 8)

	s, e, w := pair(true)
	e.Copied = func(bytes int) { copied += bytes }
	must.Do(t, w.LockAll(NoCheck))
	must.Get(w.StartOp(Access{Kind: AccumulateOp, Rank: 1, Origin: make([]byte, 8), Result: make([]byte, 8), Type: Int64, Op: Max, Request: true}))(t)
	s.atomics[0].Fetched(0)
	e.AtomicDone(s.atomics[0], nil)
	expect("the result of an atomic of the NIC", 8)
}
