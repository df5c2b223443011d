package p2p

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// world is a set of engines. The test decides when messages are delivered and transfers done.
// Messages between two ranks stay in order; all else may be reordered.
type world struct {
	t     testing.TB
	ranks []*node
	now   time.Duration
	log   []loggedMessage
}

// loggedMessage is a message that was sent.
type loggedMessage struct {
	from, to int
	kind     wire.Kind
}

func (l loggedMessage) String() string { return fmt.Sprintf("%d>%d %v", l.from, l.to, l.kind) }

type node struct {
	w         *world
	rank      int
	e         *Engine
	outgoing  [][]queuedMessage // undelivered messages, by receiver
	transfers []transfer        // pending
	memory    map[uint64][]byte
	nextAddr  uint64
	noCredit  bool // CanSend reports false
	noMemory  bool
	regions   int
	progress  func() // run by early progress
}

// matched reports whether a receive has matched a message.
func (r *Request) matched() bool { return r.state == stateTransferring || r.state == stateDone }

type queuedMessage struct {
	h    wire.Header
	data []byte
}

type transfer struct {
	peer  int
	read  bool
	local []byte
	n     int
	at    wire.Memory
	then  wire.Header
	owner *Request
}

type region struct {
	n    *node
	addr uint64
}

func (r *region) Memory() wire.Memory { return wire.Memory{Addr: r.addr, Rails: 1} }

func newWorld(t testing.TB, size int, cfg Config) *world {
	w := &world{t: t}
	for i := range size {
		n := &node{w: w, rank: i, outgoing: make([][]queuedMessage, size), memory: make(map[uint64][]byte)}
		n.e = New(cfg, n)
		w.ranks = append(w.ranks, n)
	}
	return w
}

func (n *node) Now() time.Duration { return n.w.now }

func (n *node) CanSend(int, int) bool { return !n.noCredit }

func (n *node) Send(peer int, h *wire.Header, data []byte, owner any) {
	n.outgoing[peer] = append(n.outgoing[peer], queuedMessage{*h, bytes.Clone(data)})
	n.w.log = append(n.w.log, loggedMessage{n.rank, peer, h.Kind})
	if owner != nil {
		n.e.SendDone(owner.(*Request), nil)
	}
}

func (n *node) Register(buf []byte) (wire.Region, error) {
	if n.noMemory {
		return nil, errNoMemory
	}
	n.nextAddr += 1 << 32
	n.memory[n.nextAddr] = buf
	n.regions++
	return &region{n, n.nextAddr}, nil
}

var errNoMemory = fmt.Errorf("no memory")

func (n *node) Release(r wire.Region) {
	delete(n.memory, r.(*region).addr)
	n.regions--
}

func (n *node) Read(peer int, t wire.Transfer, owner any) {
	n.transfers = append(n.transfers, transfer{peer: peer, read: true, local: n.memory[t.Local.(*region).addr], n: t.N, at: t.Remote, owner: owner.(*Request)})
}

func (n *node) Write(peer int, t wire.Transfer, owner any) {
	n.transfers = append(n.transfers, transfer{peer: peer, local: n.memory[t.Local.(*region).addr], n: t.N, at: t.Remote, then: *t.Then, owner: owner.(*Request)})
}

func (n *node) Progress() bool {
	if n.progress != nil {
		n.progress()
	}
	return n.progress != nil
}

// deliver delivers the first message from one rank to another.
func (w *world) deliver(from, to int) wire.Kind {
	w.t.Helper()
	kind, err := w.tryDeliver(from, to)
	if err != nil {
		w.t.Fatalf("%v; %v", err, w.log)
	}
	return kind
}

func (w *world) tryDeliver(from, to int) (wire.Kind, error) {
	q := &w.ranks[from].outgoing[to]
	if len(*q) == 0 {
		return 0, fmt.Errorf("no message is queued from %d to %d", from, to)
	}
	l := (*q)[0]
	*q = (*q)[1:]
	return l.h.Kind, w.ranks[to].e.Arrived(from, &l.h, l.data)
}

// transfer executes a pending transfer of a rank.
func (w *world) transfer(rank, i int) {
	if err := w.tryTransfer(rank, i); err != nil {
		w.t.Fatalf("%v; %v", err, w.log)
	}
}

func (w *world) tryTransfer(rank, i int) error {
	n := w.ranks[rank]
	j := n.transfers[i]
	n.transfers = append(n.transfers[:i], n.transfers[i+1:]...)
	remote, ok := w.ranks[j.peer].memory[j.at.Addr]
	if !ok {
		return fmt.Errorf("rank %d accesses memory of rank %d that is not registered any more", rank, j.peer)
	}
	if j.read {
		copy(j.local[:j.n], remote)
		n.e.ReadDone(j.owner, nil)
		return nil
	}
	copy(remote[:j.n], j.local)
	n.outgoing[j.peer] = append(n.outgoing[j.peer], queuedMessage{h: j.then})
	n.e.WriteDone(j.owner, nil)
	return nil
}

// runAll executes all pending deliveries and transfers in random order.
func (w *world) runAll(r *rand.Rand) {
	for w.step(r) {
	}
}

// step executes one random delivery or transfer, and reports whether there was one.
func (w *world) step(r *rand.Rand) bool {
	var can []func()
	for _, n := range w.ranks {
		for to := range n.outgoing {
			if len(n.outgoing[to]) > 0 {
				can = append(can, func() { w.deliver(n.rank, to) })
			}
		}
		for i := range n.transfers {
			can = append(can, func() { w.transfer(n.rank, i) })
		}
	}
	if len(can) == 0 {
		return false
	}
	w.now += time.Microsecond
	can[r.IntN(len(can))]()
	return true
}

// testMessage returns n bytes that depend on id.
func testMessage(id, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id*31 + i)
	}
	return b
}

const eagerLimit = 64 // of eager messages in these tests

func (w *world) send(from, to, tag, id, n int) *Request {
	r := &Request{Peer: to, Tag: int32(tag), Buf: testMessage(id, n)}
	w.ranks[from].e.Isend(r)
	return r
}

func (w *world) recv(at, from, tag, n int) *Request {
	r := &Request{Peer: from, Tag: int32(tag), Buf: make([]byte, n)}
	w.ranks[at].e.Irecv(r)
	return r
}

// checkReceived checks that a receive has completed with a message.
func (w *world) checkReceived(r *Request, id, n int) {
	w.t.Helper()
	if !r.Done() || r.Err != nil || r.Size != n || !bytes.Equal(r.Buf[:n], testMessage(id, n)) {
		w.t.Fatalf("the receive is done: %v, with %d bytes, error %v; want message %d with %d bytes; %v", r.Done(), r.Size, r.Err, id, n, w.log)
	}
}

func configs() map[string]Config {
	return map[string]Config{
		"rget":        {Protocol: RGET, EagerLimit: eagerLimit},
		"rput":        {Protocol: RPUT, EagerLimit: eagerLimit},
		"speculative": {Protocol: Speculative, EagerLimit: eagerLimit},
		"adaptive":    {Protocol: Speculative, EagerLimit: eagerLimit, Adaptive: true, Sample: 3, MaxMispredicted: 2},
		"not early":   {Protocol: Speculative, EagerLimit: eagerLimit, NoEarlyProgress: true},
	}
}

// In random orders of calls, messages and transfers, each message is received by the first
// matching receive, in order and complete.
func TestRandomInterleavings(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 200
	}
	var used, crossed, stopped, mispredicted uint64
	for name, cfg := range configs() {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				st := randomRun(t, cfg, uint64(seed))
				for i := range st {
					used += st[i].RTRsUsed
					crossed += st[i].RTRsCrossed
					mispredicted += st[i].Mispredicted
					stopped += st[i].SpeculationStopped
				}
			}
		})
	}
	// The rare cases must have occurred.
	if used == 0 || crossed == 0 || mispredicted == 0 || stopped == 0 {
		t.Errorf("%d RTRs were used, %d crossed, %d mispredicted; speculation was stopped %d times", used, crossed, mispredicted, stopped)
	}
}

// randomRun sends and receives random messages, and checks each of them.
func randomRun(t *testing.T, cfg Config, seed uint64) (all []Stats) {
	const size = 3
	r := rand.New(rand.NewPCG(seed, 11))
	w := newWorld(t, size, cfg)
	for _, n := range w.ranks {
		n.progress = func() {
			for range r.IntN(3) { // a random number of messages has arrived
				if from := r.IntN(size); len(w.ranks[from].outgoing[n.rank]) > 0 {
					w.deliver(from, n.rank)
				}
			}
		}
	}
	type sent struct {
		req     *Request
		id, n   int
		tag, to int
	}
	type expected struct {
		req *Request
		at  int
	}
	var sends [size][size][]sent
	var recvs []expected
	var total [size]int // messages to a rank
	tags, id := 1+r.IntN(2), 0
	length := func() int {
		if r.IntN(3) == 0 {
			return r.IntN(eagerLimit)
		}
		return eagerLimit + 1 + r.IntN(eagerLimit)
	}
	wild := r.IntN(3) == 0
	for range 120 {
		switch r.IntN(4) {
		case 0:
			from, to, tag, n := r.IntN(size), r.IntN(size), r.IntN(tags), length()
			id++
			w.ranks[from].noCredit = r.IntN(8) == 0
			sends[from][to] = append(sends[from][to], sent{w.send(from, to, tag, id, n), id, n, tag, to})
			total[to]++
		case 1:
			at := r.IntN(size)
			from, tag := r.IntN(size), r.IntN(tags)
			if wild && r.IntN(4) == 0 {
				from = Any
			}
			if wild && r.IntN(4) == 0 {
				tag = Any
			}
			room := 2*eagerLimit + 1
			if r.IntN(3) == 0 {
				room = eagerLimit // too short for rendezvous messages, which are truncated
			}
			recvs = append(recvs, expected{w.recv(at, from, tag, room), at})
		case 2:
			if len(recvs) > 0 && r.IntN(4) == 0 {
				x := recvs[r.IntN(len(recvs))]
				w.ranks[x.at].e.Cancel(x.req)
			}
		default:
			for range r.IntN(4) {
				w.step(r)
			}
		}
	}
	w.runAll(r)
	// Receive the remaining messages with wildcards.
	for at := range size {
		for range total[at] {
			recvs = append(recvs, expected{w.recv(at, Any, Any, 3*eagerLimit), at})
		}
	}
	w.runAll(r)
	seen := make(map[int]bool)
	last := make(map[[3]int]int) // by sender, receiver and tag: the last received message
	byID := make(map[int]sent)
	for from := range size {
		for to := range size {
			for _, s := range sends[from][to] {
				if !s.req.Done() || s.req.Err != nil {
					t.Fatalf("seed %d: a send of %d bytes from %d to %d is done: %v, error %v; %v", seed, s.n, from, to, s.req.Done(), s.req.Err, w.log)
				}
				byID[s.id] = s
			}
		}
	}
	for _, x := range recvs {
		q := x.req
		if !q.Done() || q.Cancelled {
			continue
		}
		n := min(q.Size, len(q.Buf))
		found := 0
		for _, s := range sends[q.Source][x.at] {
			if !seen[s.id] && s.n == q.Size && s.tag == int(q.MatchedTag) && bytes.Equal(q.Buf[:n], testMessage(s.id, s.n)[:n]) {
				found = s.id
				break
			}
		}
		if found == 0 {
			t.Fatalf("seed %d: rank %d received %d bytes of tag %d that rank %d has not sent; %v", seed, x.at, q.Size, q.MatchedTag, q.Source, w.log)
		}
		seen[found] = true
		// recvs is in posting order.
		key := [3]int{q.Source, x.at, int(q.MatchedTag)}
		if found < last[key] {
			t.Fatalf("seed %d: message %d overtakes %d; %v", seed, last[key], found, w.log)
		}
		last[key] = found
		if (q.Err != nil) != (q.Size > len(q.Buf)) {
			t.Fatalf("seed %d: %d bytes for %d end with %v", seed, q.Size, len(q.Buf), q.Err)
		}
	}
	if len(seen) != len(byID) {
		t.Fatalf("seed %d: %d of %d messages were received; %v", seed, len(seen), len(byID), w.log)
	}
	for _, n := range w.ranks {
		open := 0
		for _, x := range recvs {
			if x.at == n.rank && !x.req.Done() && x.req.region != nil {
				open++
			}
		}
		if n.regions != open {
			t.Fatalf("seed %d: rank %d has %d regions, and %d receives that need one", seed, n.rank, n.regions, open)
		}
		all = append(all, n.e.Stats)
	}
	return all
}
