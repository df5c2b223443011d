package window

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// program is the calls of each rank on a window, a letter and an operand each. The operand is the rank
// of a target or, of Start and Post, a set of ranks. The memory of a rank is a counter, and a slot and a sum
// for each rank.
//
//	X S L   Lock exclusive, Lock shared, LockAll     p  Put to the own slot
//	U K     Unlock, UnlockAll                        g  Get the counter
//	F M     Flush, FlushLocal                        q  Put the counter that was read, plus 1
//	f |     Fence, Fence with NoSucceed              a  Accumulate 1 to the own sum
//	( )     Start, Complete                          h  FetchAndOp of 1 to the counter
//	{ }     Post, Wait                               c  CompareAndSwap of the counter from 0 to 1
//	                                                 m  Accumulate 1 to the low half of the counter
type program struct {
	calls   []string // by rank
	atomics bool     // NICs have atomics
	mayDie  bool     // one rank dies at any time
}

// count returns how often a call on a target occurs in the program, of a rank or, with -1, of all.
func (p program) count(rank int, call byte, target int) (n int) {
	for r, calls := range p.calls {
		for i := 0; i < len(calls); i += 2 {
			if (rank < 0 || r == rank) && calls[i] == call && int(calls[i+1]-'0') == target {
				n++
			}
		}
	}
	return n
}

// machine is ranks with a window, which execute a program. Messages between two ranks stay in order;
// transfers are executed in any order.
type machine struct {
	program
	ranks   []*exploredRank
	dead    int // the rank that has died; -1 if none has
	failure error
	digest  *explore.Digest
}

// exploredRank is a rank of a machine, and the transport of its engine.
type exploredRank struct {
	m        *machine
	rank     int
	e        *Engine
	w        *Window
	memory   []byte
	next     int // offset of the next call
	stage    callStage
	poll     bool // something has happened since the call looked last
	barriers int  // that the rank has entered
	got      [][]byte
	fetched  [][][]byte // the results of FetchAndOp, by target
	compared [][]byte   // that of CompareAndSwap

	outgoing  [][]*message // by peer, in order
	sending   []*message   // whose buffers are in use
	transfers []transfer
	regions   int
}

// callStage is how far a blocking call is.
type callStage uint8

const (
	notCalled callStage = iota
	waiting
	inBarrier
)

// message is a message that is sent. Its data is that of the owner until TransferDone.
type message struct {
	h     wire.Header
	to    int
	data  []byte
	owner *Operation
}

// transfer is a transfer that is posted.
type transfer struct {
	peer   int
	local  []byte // of a Read or Write
	at     uint64 // in the memory of the peer
	isRead bool
	op     *Operation
	atomic *Atomic
	add    uint64 // of a FetchAdd
	isSwap bool
	from   uint64 // of a CompareSwap
	to     uint64
}

const slotLen = 8

// slotOf and sumOf are the offsets of the slot and of the sum of a rank.
func slotOf(rank int) int { return slotLen * (1 + 2*rank) }
func sumOf(rank int) int  { return slotOf(rank) + slotLen }

func (p program) machine(d *explore.Digest) *machine {
	m := &machine{program: p, dead: -1, digest: d}
	size := len(p.calls)
	segments := make([]Segment, size)
	regions := make([]wire.Region, size)
	for rank := range size {
		r := &exploredRank{m: m, rank: rank, memory: make([]byte, slotOf(size)), got: make([][]byte, size), fetched: make([][][]byte, size), compared: make([][]byte, size), outgoing: make([][]*message, size)}
		r.e = New(Config{Chunk: 8, InFlight: 2}, r)
		m.ranks = append(m.ranks, r)
		segments[rank], regions[rank], _ = r.e.RegisterSegment(r.memory, p.atomics) // Register does not fail
		segments[rank].Peer = rank
	}
	for rank, r := range m.ranks {
		r.w = r.e.Open(1, segments, r.memory, regions[rank])
	}
	return m
}

// fail notes the first failure.
func (m *machine) fail(format string, args ...any) {
	if m.failure == nil {
		m.failure = fmt.Errorf(format, args...)
	}
}

// exploredRegion is a region. That of a window has the address 0.
type exploredRegion struct{ buf []byte }

func (exploredRegion) Memory() wire.Memory { return wire.Memory{Rails: 1} }

// Register, Source and Sink implement Transport.
func (r *exploredRank) Register(b []byte) (wire.Region, error) {
	r.regions++
	return exploredRegion{b}, nil
}
func (r *exploredRank) Source(b []byte) (wire.Region, error) { return r.Register(b) }
func (r *exploredRank) Sink(b []byte) (wire.Region, error)   { return r.Register(b) }
func (r *exploredRank) Release(wire.Region)                  { r.regions-- }

// Send implements Transport.
func (r *exploredRank) Send(peer int, h *wire.Header, data []byte, owner any) {
	s := &message{h: *h, to: peer, data: data}
	if owner != nil {
		s.owner = owner.(*Operation)
		r.sending = append(r.sending, s)
	} else {
		s.data = bytes.Clone(data)
	}
	r.outgoing[peer] = append(r.outgoing[peer], s)
}

// Read and Write implement Transport.
func (r *exploredRank) Read(peer int, t wire.Transfer, owner any) {
	r.startTransfer(peer, t, owner, true)
}

func (r *exploredRank) Write(peer int, t wire.Transfer, owner any) {
	r.startTransfer(peer, t, owner, false)
}

func (r *exploredRank) startTransfer(peer int, t wire.Transfer, owner any, isRead bool) {
	r.transfers = append(r.transfers, transfer{peer: peer, local: t.Local.(exploredRegion).buf, at: t.Remote.Addr, isRead: isRead, op: owner.(*Operation)})
}

// FetchAdd and CompareSwap implement Transport.
func (r *exploredRank) FetchAdd(peer int, at wire.Memory, add uint64, owner any) {
	r.transfers = append(r.transfers, transfer{peer: peer, at: at.Addr, atomic: owner.(*Atomic), add: add})
}

func (r *exploredRank) CompareSwap(peer int, at wire.Memory, compare, swap uint64, owner any) {
	r.transfers = append(r.transfers, transfer{peer: peer, at: at.Addr, atomic: owner.(*Atomic), isSwap: true, from: compare, to: swap})
}

// The kinds of steps. A is the rank.
const (
	callStep     = "call"
	pollStep     = "poll"     // a blocking call looks whether it can return
	deliverStep  = "deliver"  // the next message from B
	sentStep     = "sent"     // the buffer of message B can be reused
	transferStep = "transfer" // number B
	dieStep      = "die"
	noticeStep   = "notice" // that a rank has died
)

// Enabled implements explore.Machine.
func (m *machine) Enabled(can []explore.Step) []explore.Step {
	for i, r := range m.ranks {
		if i == m.dead {
			continue
		}
		add := func(kind string, b int) { can = append(can, explore.Step{Kind: kind, A: int32(i), B: int32(b)}) }
		switch {
		case r.stage == notCalled && r.next < len(m.calls[i]):
			add(callStep, 0)
		case r.stage != notCalled && r.poll:
			add(pollStep, 0)
		}
		for from, sender := range m.ranks {
			if len(sender.outgoing[i]) > 0 && !r.hasLost(from) {
				add(deliverStep, from)
			}
		}
		for b := range r.sending {
			add(sentStep, b)
		}
		for b := range r.transfers {
			add(transferStep, b)
		}
		if m.mayDie && m.dead < 0 {
			add(dieStep, 0)
		}
		if m.dead >= 0 && !r.hasLost(m.dead) {
			add(noticeStep, 0)
		}
	}
	return can
}

// hasLost reports whether the rank knows that a peer has died.
func (r *exploredRank) hasLost(peer int) bool { return r.e.lost[peer] != nil }

// errDied is the error of transfers with a rank that has died.
var errDied = errors.New("died")

// Take implements explore.Machine.
func (m *machine) Take(s explore.Step) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	r, b := m.ranks[s.A], int(s.B)
	if s.Kind != callStep {
		r.poll = true
	}
	switch s.Kind {
	case callStep:
		r.call()
	case pollStep:
		r.poll = false
		r.finishCall()
	case deliverStep:
		from := m.ranks[b]
		msg := from.outgoing[r.rank][0]
		from.outgoing[r.rank] = from.outgoing[r.rank][1:]
		if err := r.e.Arrived(b, &msg.h, bytes.Clone(msg.data)); err != nil {
			return err
		}
	case sentStep:
		msg := r.sending[b]
		r.sending = slices.Delete(r.sending, b, b+1)
		msg.data = bytes.Clone(msg.data)
		r.e.TransferDone(msg.owner, r.errorWith(msg.to))
		msg.owner = nil
	case transferStep:
		t := r.transfers[b]
		r.transfers = slices.Delete(r.transfers, b, b+1)
		r.execute(&t)
	case dieStep:
		m.dead = r.rank
		for _, other := range m.ranks {
			other.outgoing[r.rank] = nil
		}
	case noticeStep:
		r.e.Lost(m.dead, errDied)
	}
	return m.failure
}

// errorWith is the error of a transfer with a peer.
func (r *exploredRank) errorWith(peer int) error {
	if peer == r.m.dead {
		return errDied
	}
	return nil
}

// execute executes a transfer, unless the peer has died.
func (r *exploredRank) execute(t *transfer) {
	err := r.errorWith(t.peer)
	remote := r.m.ranks[t.peer].memory[t.at:]
	switch {
	case t.atomic == nil && err == nil && t.isRead:
		copy(t.local, remote)
	case t.atomic == nil && err == nil:
		copy(remote, t.local)
	case err == nil:
		old := binary.LittleEndian.Uint64(remote)
		switch {
		case !t.isSwap:
			binary.LittleEndian.PutUint64(remote, old+t.add)
		case old == t.from:
			binary.LittleEndian.PutUint64(remote, t.to)
		}
		t.atomic.Fetched(old)
	}
	if t.atomic != nil {
		r.e.AtomicDone(t.atomic, err)
	} else {
		r.e.TransferDone(t.op, err)
	}
}

// current returns the call under way, and its operand.
func (r *exploredRank) current() (call byte, operand int) {
	calls := r.m.calls[r.rank]
	return calls[r.next], int(calls[r.next+1] - '0')
}

// group returns the ranks of a set.
func (m *machine) group(set int) (ranks []int) {
	for rank := range m.ranks {
		if set>>rank&1 != 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// call begins the next call.
func (r *exploredRank) call() {
	w := r.w
	call, operand := r.current()
	var err error
	switch call {
	case 'X':
		err = w.Lock(Exclusive, operand, 0)
	case 'S':
		err = w.Lock(Shared, operand, 0)
	case 'L':
		err = w.LockAll(0)
	case 'U':
		err = w.CheckUnlock(operand)
	case 'F', 'M':
		err = w.CheckFlush(operand)
	case 'K':
		err = w.CheckUnlockAll()
	case 'f', '|':
		err = w.CheckFence()
	case '(':
		err = w.Start(r.m.group(operand), 0)
	case '{':
		err = w.Post(r.m.group(operand), 0)
	case ')', '}':
	default:
		err = r.start(call, operand)
	}
	if err != nil {
		r.callDone(err)
		return
	}
	r.stage = waiting
	r.finishCall()
}

// start starts an operation.
func (r *exploredRank) start(call byte, target int) error {
	number := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	a := Access{Rank: target, Type: Uint64, Op: Sum}
	switch call {
	case 'p':
		a.Kind, a.Offset, a.Origin = PutOp, slotOf(r.rank), slotContents(r.rank)
	case 'g':
		r.got[target] = make([]byte, slotLen)
		a.Kind, a.Result = GetOp, r.got[target]
	case 'q':
		a.Kind, a.Origin = PutOp, number(binary.LittleEndian.Uint64(r.got[target])+1)
	case 'a':
		a.Kind, a.Offset, a.Origin = AccumulateOp, sumOf(r.rank), number(1)
	case 'm':
		a.Kind, a.Type, a.Origin = AccumulateOp, Uint32, number(1)[:4]
	case 'h':
		a.Kind, a.Origin, a.Result = AccumulateOp, number(1), make([]byte, slotLen)
		r.fetched[target] = append(r.fetched[target], a.Result)
	case 'c':
		r.compared[target] = make([]byte, slotLen)
		a.Kind, a.Compare, a.Origin, a.Result = CompareAndSwapOp, number(0), number(1), r.compared[target]
	}
	_, err := r.w.StartOp(a)
	return err
}

// slotContents is what a rank puts into its slots.
func slotContents(rank int) []byte { return bytes.Repeat([]byte{byte(rank + 1)}, slotLen) }

// finishCall ends a call if it need not wait any more.
func (r *exploredRank) finishCall() {
	w := r.w
	call, operand := r.current()
	done, err := true, error(nil)
	switch call {
	case 'X', 'S':
		done, err = w.TestLock(operand)
	case 'U', 'F':
		done = w.RemoteComplete(operand)
	case 'M':
		done = w.LocalComplete(operand)
	case 'K':
		done = w.AllRemoteComplete()
	case 'f', '|':
		done = r.fence()
	case ')':
		done, err = w.CanComplete()
	case '}':
		done, err = w.Test()
	}
	if !done && err == nil {
		return
	}
	if err == nil {
		err = r.endCall(call, operand)
	}
	r.callDone(err)
}

// endCall ends a call that has waited.
func (r *exploredRank) endCall(call byte, operand int) error {
	switch call {
	case 'U':
		return r.w.Unlock(operand)
	case 'F', 'M':
		return r.w.TakeError(operand)
	case 'K':
		return r.w.UnlockAll()
	case 'f':
		return r.w.Fence(0)
	case '|':
		return r.w.Fence(NoSucceed)
	case ')':
		return r.w.Complete()
	}
	return nil
}

// fence reports whether the operations of the epoch are complete, and all other ranks are in the barrier.
func (r *exploredRank) fence() bool {
	if r.stage == waiting {
		if !r.w.AllRemoteComplete() {
			return false
		}
		r.stage = inBarrier
		r.barriers++
		for _, other := range r.m.ranks {
			other.poll = true
		}
	}
	for i, other := range r.m.ranks {
		if other.barriers < r.barriers && !r.hasLost(i) {
			return false
		}
	}
	return true
}

// callDone checks the result of a call. Only a rank that has died is a reason for an error, of this call
// or of an earlier one.
func (r *exploredRank) callDone(err error) {
	call, operand := r.current()
	r.next += 2
	r.stage = notCalled
	r.poll = false
	isError := err != nil
	switch {
	case isError && r.m.dead < 0:
		r.m.fail("rank %d: %c%d: %w", r.rank, call, operand, err)
	case isError:
	case slices.Contains([]byte{'U', 'F'}, call):
		r.checkComplete(operand)
	case call == '}':
		r.checkExposure()
	case slices.Contains([]byte{'K', 'f', '|'}, call):
		for target := range r.m.ranks {
			r.checkComplete(target)
		}
	}
}

// checkComplete checks that the operations on a target before this call are in its memory.
func (r *exploredRank) checkComplete(target int) {
	if target == r.m.dead {
		return
	}
	before := program{calls: []string{r.m.calls[r.rank][:r.next]}}
	if err := r.m.ranks[target].checkOf(r.rank, before.count(0, 'p', target), before.count(0, 'a', target)); err != nil {
		r.m.fail("rank %d: an operation on rank %d is not complete: %w", r.rank, target, err)
	}
}

// checkOf checks that Puts and Accumulates of a rank are in the memory of this one; there may be later ones.
func (r *exploredRank) checkOf(rank, puts, accumulates int) error {
	slot := r.memory[slotOf(rank):][:slotLen]
	if puts > 0 && !bytes.Equal(slot, slotContents(rank)) {
		return fmt.Errorf("the slot of rank %d is % x", rank, slot)
	}
	if sum := binary.LittleEndian.Uint64(r.memory[sumOf(rank):]); sum < uint64(accumulates) {
		return fmt.Errorf("the sum of rank %d is %d, want %d", rank, sum, accumulates)
	}
	return nil
}

// checkExposure checks that the operations of all access epochs to the exposure epoch that ends are in memory.
func (r *exploredRank) checkExposure() {
	exposures := strings.Count(r.m.calls[r.rank][:r.next], "}")
	for i, calls := range r.m.calls {
		epochs, isOpen, puts, accumulates := 0, false, 0, 0
		for at := 0; at < len(calls) && epochs < exposures; at += 2 {
			switch operand := int(calls[at+1] - '0'); {
			case calls[at] == '(':
				isOpen = operand>>r.rank&1 != 0
			case calls[at] == ')' && isOpen:
				epochs++
			case calls[at] == 'p' && operand == r.rank:
				puts++
			case calls[at] == 'a' && operand == r.rank:
				accumulates++
			}
		}
		if err := r.checkOf(i, puts, accumulates); err != nil && epochs == exposures && i != r.m.dead {
			r.m.fail("rank %d: an operation before Complete is not there after Wait: %w", r.rank, err)
		}
	}
}

// Check implements explore.Machine: an exclusive lock is held by one rank, and no other holds the lock.
func (m *machine) Check() error {
	for target := range m.ranks {
		held, exclusive := 0, 0
		for i, r := range m.ranks {
			if t := &r.w.targets[target]; t.lock == lockHeld && i != m.dead && target != m.dead {
				held++
				if t.lockKind == Exclusive {
					exclusive++
				}
			}
		}
		if exclusive > 0 && held > 1 {
			return fmt.Errorf("%d ranks hold the lock of rank %d, %d of them exclusively", held, target, exclusive)
		}
	}
	return nil
}

// Finish implements explore.Finisher: all calls have returned, the memory is as expected, and the engines
// have nothing left.
func (m *machine) Finish() error {
	for i, r := range m.ranks {
		if i == m.dead {
			continue
		}
		if r.stage != notCalled || r.next < len(m.calls[i]) {
			return fmt.Errorf("%w: rank %d has finished %q of %q", explore.ErrDeadlock, i, m.calls[i][:r.next], m.calls[i])
		}
		if m.dead < 0 {
			if err := r.checkMemory(); err != nil {
				return fmt.Errorf("rank %d: %w", i, err)
			}
		}
		if err := r.checkIdle(); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return nil
}

// checkMemory checks the memory of a rank.
func (r *exploredRank) checkMemory() error {
	m := r.m
	want := m.count(-1, 'q', r.rank) + m.count(-1, 'h', r.rank) + m.count(-1, 'm', r.rank)
	for _, origin := range m.ranks {
		if old := origin.compared[r.rank]; old != nil && binary.LittleEndian.Uint64(old) == 0 {
			want++
		}
	}
	if got := binary.LittleEndian.Uint64(r.memory); got != uint64(want) {
		return fmt.Errorf("the counter is %d, want %d", got, want)
	}
	var fetched []uint64
	for i, origin := range m.ranks {
		accumulates := m.count(i, 'a', r.rank)
		if err := r.checkOf(i, m.count(i, 'p', r.rank), accumulates); err != nil {
			return err
		}
		if sum := binary.LittleEndian.Uint64(r.memory[sumOf(i):]); sum != uint64(accumulates) {
			return fmt.Errorf("the sum of rank %d is %d, want %d", i, sum, accumulates)
		}
		var inOrder []uint64
		for _, b := range origin.fetched[r.rank] {
			inOrder = append(inOrder, binary.LittleEndian.Uint64(b))
		}
		if fetched = append(fetched, inOrder...); !slices.IsSorted(inOrder) {
			return fmt.Errorf("rank %d has fetched %d", i, inOrder)
		}
	}
	if slices.Sort(fetched); len(slices.Compact(fetched)) != len(fetched) {
		return fmt.Errorf("the origins have fetched %d", fetched)
	}
	return nil
}

// checkIdle checks that an engine has no operation, lock or registered memory left.
func (r *exploredRank) checkIdle() error {
	w := r.w
	if err := w.CheckNoEpoch(); err != nil && r.m.dead < 0 {
		return err
	}
	if r.e.Busy() || len(w.lock.queue) > 0 {
		return fmt.Errorf("%d operations and %d lock requests remain", r.e.busy, len(w.lock.queue))
	}
	if len(w.lock.holders) > 0 || w.lock.shared > 0 {
		return fmt.Errorf("the lock is held by %v, %d of them shared", w.lock.holders, w.lock.shared)
	}
	for i := range w.targets {
		t := &w.targets[i]
		if len(t.waiting)+len(t.atomicOps)+len(t.pendingReplies)+t.pending > 0 || t.flush.sent != t.flush.acked || t.lock != lockNone {
			return fmt.Errorf("of rank %d remains %+v", i, t)
		}
		if t.unusedPosts+t.unusedCompletes > 0 && r.m.dead < 0 {
			return fmt.Errorf("%d posts and %d completes of rank %d remain", t.unusedPosts, t.unusedCompletes, i)
		}
	}
	w.Close()
	if r.regions != 0 {
		return fmt.Errorf("%d regions remain", r.regions)
	}
	return nil
}

// Fingerprint implements explore.Machine.
func (m *machine) Fingerprint() [16]byte {
	values := []any{m.dead}
	for i, r := range m.ranks {
		if i == m.dead {
			continue
		}
		values = append(values, r.next, r.stage, r.poll, r.barriers, r.got, r.fetched, r.compared, r.memory, r.outgoing, r.sending, r.transfers, r.regions, r.e.busy, r.w)
		if m.dead >= 0 {
			values = append(values, r.hasLost(m.dead))
		}
	}
	return m.digest.Sum(values...)
}
