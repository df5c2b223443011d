package coll

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

var (
	exploreAll = flag.Bool("explore", false, "explore all numbers of ranks up to five, for minutes")
	part       = testutil.PartFlag()
)

// machine is the ranks of a call, whose messages arrive in any order, but for those between two ranks with
// the same tag. A rank executes its steps without others in between up to a step with shared memory.
type machine struct {
	*testWorld
	scenario *scenario
	wants    [][]byte // by rank: Out
	inputs   [][]byte
	sum      []byte
	copies   []testSend
}

func newMachine(s *scenario, alg *Algorithm, buffered bool) *machine {
	m := &machine{scenario: s, wants: make([][]byte, s.size), inputs: make([][]byte, s.size)}
	m.testWorld = newTestWorld(alg, s.size, 0, s.combine(), func(rank int) (Call, []byte, []byte) {
		c, in, out, want := s.prepare(rank)
		m.wants[rank], m.inputs[rank] = want, bytes.Clone(in)
		return c, in, out
	})
	m.rng, m.delayed, m.buffered = nil, true, buffered
	return m
}

// The kinds of steps. A is the rank, B the index of a message to it.
const (
	runStep     = "run"
	deliverStep = "deliver"
)

// Enabled implements explore.Machine.
func (m *machine) Enabled(can []explore.Step) []explore.Step {
	for i, k := range m.ranks {
		if !k.finished && !k.isBlocked() {
			can = append(can, explore.Step{Kind: runStep, A: int32(i)})
		}
	}
	for i, k := range m.ranks {
		posted := 0 // receives of the sender and tag
		for b, s := range k.incoming {
			isFirst := b == 0 || s.compareSource(k.incoming[b-1].from, k.incoming[b-1].tag) != 0
			if isFirst {
				posted = k.posted(s)
			}
			if (isFirst || k.incoming[b-1].arrived) && !s.arrived && (!s.advertised || posted > 0) {
				can = append(can, explore.Step{Kind: deliverStep, A: int32(i), B: int32(b)})
			}
			posted--
		}
	}
	return can
}

// posted returns the number of receives for messages like s.
func (k *testRank) posted(s *testSend) (n int) {
	for _, r := range k.recvs {
		if s.compareSource(r.from, r.tag) == 0 {
			n++
		}
	}
	return n
}

// isBlocked reports whether the next step of a rank has to wait.
func (k *testRank) isBlocked() bool {
	s := &Step{Kind: Wait}
	if k.next < len(k.round.Steps) {
		s = &k.round.Steps[k.next]
	}
	return k.mustWait(s)
}

// Take implements explore.Machine.
func (m *machine) Take(s explore.Step) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	k := m.ranks[s.A]
	if s.Kind == deliverStep {
		k.incoming[s.B].arrived = true
		return m.match(k)
	}
	for {
		if _, err := m.step(k); err != nil {
			return err
		}
		if err := m.match(k); err != nil { // messages that were there before their receives
			return err
		}
		if k.finished || k.isBlocked() || k.next < len(k.round.Steps) && usesShared(&k.round.Steps[k.next]) {
			return nil
		}
	}
}

func usesShared(s *Step) bool { return s.Src.Buf == Shared || s.Dst.Buf == Shared }

// Check implements explore.Machine: no rank leaves a barrier that another has not entered.
func (m *machine) Check() error {
	if m.scenario.op != Barrier {
		return nil
	}
	for i, k := range m.ranks {
		for j, other := range m.ranks {
			if k.finished && other.schedule == (Schedule{}) {
				return fmt.Errorf("rank %d has left the barrier before rank %d has entered it", i, j)
			}
		}
	}
	return nil
}

// Finish implements explore.Finisher.
func (m *machine) Finish() error {
	for i, k := range m.ranks {
		if !k.finished {
			return fmt.Errorf("%w: rank %d waits at step %d of %+v", explore.ErrDeadlock, i, k.next, k.round.Steps)
		}
	}
	return cmp.Or(m.checkReceived(), m.checkResults(m.wants, m.inputs))
}

// Fingerprint implements explore.Machine.
func (m *machine) Fingerprint() [16]byte {
	b := m.sum[:0]
	add := func(numbers ...int) {
		for _, n := range numbers {
			b = append(b, byte(n), byte(n>>8))
		}
	}
	for _, k := range m.ranks {
		add(k.schedule.phase, k.schedule.next, k.next, bit(k.finished), len(k.recvs))
		for _, r := range k.recvs {
			add(r.from, r.tag, int(r.dst.Buf), r.dst.Off)
		}
		add(len(k.sends))
		for _, s := range k.sends {
			add(s.to, bit(s.done))
		}
		for _, buffer := range k.buffers {
			b = append(b, buffer...)
		}
	}
	for _, k := range m.ranks {
		add(len(k.incoming))
		for _, s := range k.incoming {
			add(s.from, s.tag, bit(s.arrived))
			b = append(b, s.snapshot...)
		}
	}
	m.sum = b
	return explore.Hash(b)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Clone implements explore.Cloner.
func (m *machine) Clone(reuse explore.Machine) explore.Machine {
	c, _ := reuse.(*machine)
	if c == nil {
		c = &machine{testWorld: new(testWorld)}
		for range m.ranks {
			c.ranks = append(c.ranks, new(testRank))
		}
	}
	old := *c
	world, ranks := c.testWorld, c.ranks
	*world, *c = *m.testWorld, *m
	world.ranks = ranks
	c.testWorld, c.sum, c.copies = world, old.sum, old.copies
	c.copyMessages(m)
	for i, k := range m.ranks {
		n := ranks[i]
		former := *n
		*n = *k
		n.sends, n.incoming = former.sends, former.incoming
		n.recvs = append(former.recvs[:0], k.recvs...)
		for b := range k.buffers {
			n.buffers[b] = append(former.buffers[b][:0], k.buffers[b]...)
		}
		if host := k.call.Nodes; k.alg.shared != nil {
			first := host.ranks(k.call.myNode())[0]
			n.buffers[Shared] = ranks[first].buffers[Shared]
		}
	}
	return c
}

// copyMessages copies the messages of all ranks of m.
func (m *machine) copyMessages(from *machine) {
	total := 0
	for _, k := range from.ranks {
		total += len(k.incoming) + len(k.sends)
	}
	if cap(m.copies) < total {
		m.copies = make([]testSend, 0, 2*total)
	}
	m.copies = m.copies[:0]
	add := func(s *testSend) *testSend {
		m.copies = append(m.copies, *s)
		return &m.copies[len(m.copies)-1]
	}
	for i, k := range from.ranks {
		n := m.ranks[i]
		n.incoming = n.incoming[:0]
		for _, s := range k.incoming {
			s.copied = add(s)
			n.incoming = append(n.incoming, s.copied)
		}
	}
	for i, k := range from.ranks {
		n := m.ranks[i]
		n.sends = n.sends[:0]
		for _, s := range k.sends {
			if s.received {
				s.copied = add(s)
			}
			n.sends = append(n.sends, s.copied)
		}
	}
}

// explored is a space of states: a call with an algorithm.
type explored struct {
	scenario scenario
	alg      *Algorithm
	buffered bool
}

func (x *explored) String() string {
	s := &x.scenario
	text := fmt.Sprintf("%v %s of %d ranks, root %d", s.op, x.alg.Name, s.size, s.root)
	if x.alg.Needs&KnownNodes != 0 {
		text += fmt.Sprintf(", on hosts %v", s.nodes.node)
	}
	if x.buffered {
		text += ", buffered"
	}
	return text
}

// exploredSpaces are the calls of all operations with all algorithms that fit.
func exploredSpaces(sizes ...int) (all []explored) {
	for op := range NumOps {
		for _, alg := range Algorithms(op) {
			for _, size := range sizes {
				all = append(all, exploredCalls(op, alg, size)...)
			}
		}
	}
	return all
}

// exploredCalls are the calls of an operation with an algorithm: with the first and the last rank as the
// root, and ranks placed on two hosts in two ways.
func exploredCalls(op Op, alg *Algorithm, size int) (all []explored) {
	roots := []int{0}
	if op == Bcast || op == Scatter || op == Gather || op == Reduce {
		roots = append(roots, size-1)
	}
	placed := []*Nodes{NewNodes(size, func(rank int) int { return rank / ((size + 1) / 2) }), NewNodes(size, func(rank int) int { return rank % 2 })}
	if alg.Needs&KnownNodes == 0 {
		placed = placed[:1]
	}
	for _, root := range roots {
		for _, nodes := range placed {
			for _, buffered := range []bool{false, true} {
				s := scenario{op: op, size: size, bytes: elementBytes * size, root: root, nodes: nodes}
				s.ordered = op.IsReduction() && alg.Needs&Commutative == 0
				if s.fits(alg) {
					all = append(all, explored{s, alg, buffered})
				}
			}
		}
	}
	return all
}

// All algorithms have the right results in every order of messages, and no rank waits for ever.
func TestAllStates(t *testing.T) {
	spaces, maxStates := exploredSpaces(2, 3), 0
	switch {
	case *exploreAll && part.Given():
		spaces, maxStates = exploredSpaces(2, 3, 4, 5), 300_000
	case *exploreAll:
		spaces = exploredSpaces(2, 3, 4, 5)
	}
	var sum explore.Counts
	unfinished := 0
	for i := range spaces {
		if !part.Has(i) {
			continue
		}
		x := &spaces[i]
		initial := func() explore.Machine { return newMachine(&x.scenario, x.alg, x.buffered) }
		r := must.Get(explore.Machines(t.Context(), explore.Options{MaxStates: maxStates, Parallel: 1}, initial))(t)
		if r.Failure != nil {
			t.Fatalf("%v: %v; path: %v", x, r.Failure.Err, r.Failure.Path)
		}
		if !r.Finished {
			unfinished++
			t.Logf("%v is not finished", x)
		}
		sum.States += r.States
		sum.Edges += r.Edges
		sum.Deepest = max(sum.Deepest, r.Deepest)
	}
	t.Logf("%d calls, of which %d are not finished: %d states, %d steps, up to %d steps", len(spaces), unfinished, sum.States, sum.Edges, sum.Deepest)
}
