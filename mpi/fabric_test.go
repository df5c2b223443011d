package mpi_test

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// fabric connects the ranks of a test. Delays are random; messages between two ranks stay
// in order, everything else may be reordered.
//
// Ranks run one at a time in virtual time, so that a seed reproduces a run, or
// concurrently in real time for the race detector.
type fabric struct {
	t            testing.TB
	concurrent   bool
	mu           sync.Mutex
	rng          *rand.Rand
	began        time.Time
	now          time.Duration
	events       events
	seq          int
	newEvent     chan struct{} // concurrent mode
	nics         []*nic
	atomics      bool
	lacksCredits bool               // CanSend often reports false
	perHost      int                // ranks
	hostOf       func(rank int) int // nil: consecutive ranks share a host
	segments     []*segments        // by host
	atBarrier    int                // number of ranks in the barrier
	round        int
	aborted      string
	onCopy       func(rank int, what verbs.Work, n int) // called for the CPU time of ranks; nil: it is not simulated
	onSend       func(from, to int)                     // called for each message, if not nil

	procs   []*proc
	current *proc
	yielded chan struct{}
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// nic is the carrier of a rank.
type nic struct {
	f         *fabric
	rank      int
	up        mpi.Upper
	inbox     []func(mpi.Upper)
	delivered chan struct{} // concurrent mode
	lastTo    []time.Duration
	inFlight  int // messages that have not arrived
	regions   map[uint32]*region
	nextKey   uint32
	lossOnly  bool // the event just handled is a loss, which Progress does not count
	dead      bool
	ended     bool
	lost      []error // by peer
	groups    map[uint64][]int
	pending   []pendingOp // operations by peer
}

type pendingOp struct {
	peer  int
	owner any
	what  carrier.Op
	id    int
}

type region struct {
	n   *nic
	buf []byte
	key uint32
}

func (r *region) Memory() wire.Memory {
	return wire.Memory{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.buf)))), Keys: [wire.MaxRails]uint32{r.key}, Rails: 1}
}

func newFabric(t testing.TB, size int, seed uint64, concurrent bool) *fabric {
	f := &fabric{
		t: t, concurrent: concurrent, rng: rand.New(rand.NewPCG(seed, 7)), began: time.Now(),
		newEvent: make(chan struct{}, 1), yielded: make(chan struct{}), atomics: true, perHost: 2,
	}
	for i := range size {
		f.nics = append(f.nics, &nic{
			f: f, rank: i, delivered: make(chan struct{}, 1), lastTo: make([]time.Duration, size),
			regions: make(map[uint32]*region), lost: make([]error, size),
			groups: make(map[uint64][]int),
		})
		f.segments = append(f.segments, &segments{byName: map[string][]byte{}}) // there are no more hosts than ranks
	}
	return f
}

// clock is the current time. The caller holds the lock.
func (f *fabric) clock() time.Duration {
	if f.concurrent {
		return time.Since(f.began)
	}
	return f.now
}

// delay returns a random duration.
func (f *fabric) delay() time.Duration {
	if f.concurrent {
		return time.Duration(f.rng.IntN(20)) * time.Microsecond
	}
	d := time.Duration(100+f.rng.IntN(3000)) * time.Nanosecond
	if f.rng.IntN(20) == 0 {
		d *= 20
	}
	return d
}

// at schedules an event, which runs with the lock held.
func (f *fabric) at(when time.Duration, do func()) {
	f.seq++
	heap.Push(&f.events, event{when, f.seq, do})
	select {
	case f.newEvent <- struct{}{}:
	default:
	}
}

// deliver appends an event to a rank's inbox and wakes the rank.
func (n *nic) deliver(what func(mpi.Upper)) {
	if n.ended || n.dead {
		return
	}
	n.inbox = append(n.inbox, what)
	n.wake()
}

func (n *nic) wake() {
	select {
	case n.delivered <- struct{}{}:
	default:
	}
	for _, p := range n.f.procs {
		if p.rank == n.rank && p.waitsForDelivery {
			p.wake = 0
		}
	}
}

// begin records a pending operation and returns the function that completes it.
func (n *nic) begin(peer int, owner any, what carrier.Op) (end func(error)) {
	n.f.seq++
	id := n.f.seq
	n.pending = append(n.pending, pendingOp{peer, owner, what, id})
	return func(err error) {
		i := slices.IndexFunc(n.pending, func(o pendingOp) bool { return o.id == id })
		if i < 0 {
			return // completed when the peer was lost
		}
		n.pending = slices.Delete(n.pending, i, i+1)
		n.deliver(func(up mpi.Upper) { up.Finished(owner, what, err) })
	}
}

// remoteMemory returns registered memory that a peer accesses.
func (n *nic) remoteMemory(m wire.Memory, size int) []byte {
	r := n.regions[m.Keys[0]]
	if r == nil {
		n.f.t.Errorf("rank %d: key %d is not registered any more", n.rank, m.Keys[0])
		return make([]byte, size)
	}
	at := int(m.Addr - r.Memory().Addr)
	if at < 0 || at+size > len(r.buf) {
		n.f.t.Errorf("rank %d: %d bytes at %d are not within a region of %d", n.rank, size, at, len(r.buf))
		return make([]byte, size)
	}
	return r.buf[at : at+size]
}
