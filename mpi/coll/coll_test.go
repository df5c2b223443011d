package coll

import (
	"bytes"
	"fmt"
	"math/bits"
	"strings"
	"testing"
)

// sizes are numbers of ranks: all small ones, and powers of two.
func sizes() (all []int) {
	for n := 1; n <= 17; n++ {
		all = append(all, n)
	}
	return append(all, 32, 64)
}

// blockSizes returns the sizes that are tested with a number of ranks: large ones with few ranks.
func blockSizes(ranks int) []int {
	switch {
	case ranks == 3:
		return []int{0, 1, 4, 60, 4100, chainBytes*2 + 4, 1 << 20}
	case ranks == 4:
		return []int{0, 1, 4, 60, 4100, chainBytes*2 + 4}
	case ranks <= 9:
		return []int{0, 1, 4, 60, 4100}
	case ranks <= 17:
		return []int{0, 4, 60, 1024}
	}
	return []int{0, 4, 20}
}

// random is a source of data.
var random = func() []byte {
	p := make([]byte, 6<<20)
	x := uint32(1)
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}()

// pattern returns n bytes that depend on two numbers.
func pattern(a, b, n int) []byte { return bytes.Clone(random[(a*7919+b*104729)%(1<<20):][:n:n]) }

// sum is a commutative operation: into becomes from + into, by bytes.
func sum(into, from []byte) {
	for i := range into {
		into[i] += from[i]
	}
}

// compose is an associative operation that is not commutative. Elements of four bytes are functions
// x → a·x + b over bytes, with a and b in the first two bytes: into becomes into after from.
func compose(into, from []byte) {
	for i := 0; i+4 <= len(into); i += 4 {
		a, b := into[i], into[i+1]
		into[i], into[i+1] = a*from[i], a*from[i+1]+b
		into[i+2] ^= from[i+2]
		into[i+3] ^= from[i+3]
	}
}

// scenario is a call of all ranks with its expected results.
type scenario struct {
	op       Op
	size     int // ranks
	bytes    int
	root     int
	inPlace  bool
	ordered  bool
	variable bool // blocks have different sizes
	nodes    *Nodes
	ports    int
	// rendezvous is that of a multicast
	rendezvous bool
	prefixes   [][]byte
}

// count returns the size of block i.
func (s *scenario) count(i int) int {
	if !s.variable {
		return s.bytes
	}
	return s.bytes * (i%3 + i%2) / 2 / 4 * 4
}

// layout returns the layout of the blocks in a buffer, with gaps if they may have some, and the size of
// the buffer.
func (s *scenario) layout(gap int) (l *Layout, total int) {
	if !s.variable {
		return nil, s.size * s.bytes
	}
	l = &Layout{}
	for i := range s.size {
		l.Offsets, l.Counts = append(l.Offsets, total), append(l.Counts, s.count(i))
		total += s.count(i) + gap
	}
	return l, total
}

// placements are several ways to place ranks on nodes.
func placements(size int) (all []*Nodes) {
	for _, node := range []func(rank int) int{
		func(int) int { return 7 },
		func(rank int) int { return -rank },
		func(rank int) int { return rank / 4 },
		func(rank int) int { return rank % 3 },
		func(rank int) int { return bits.Len(uint(rank)) },           // 1, 1, 2, 4, … ranks
		func(rank int) int { return int(random[rank]) % (size + 1) }, // any
	} {
		all = append(all, NewNodes(size, node))
	}
	return all
}

// testSegment is the size of a multicast segment.
const testSegment = 1000

// elementBytes is the size of an element of reductions.
const elementBytes = 4

func (s *scenario) combine() func(into, from []byte) {
	if s.ordered {
		return compose
	}
	return sum
}

// reduced returns the vectors of n bytes of the first ranks, combined.
func (s *scenario) reduced(ranks, n int) []byte {
	if s.prefixes == nil {
		s.prefixes = [][]byte{pattern(0, 0, n)}
		for r := 1; r < s.size; r++ {
			next := pattern(r, 0, n)
			s.combine()(next, s.prefixes[r-1])
			s.prefixes = append(s.prefixes, next)
		}
	}
	return s.prefixes[ranks-1]
}

// prepare returns the call of a rank, its buffers and its expected Out; nil if Out does not matter.
func (s *scenario) prepare(rank int) (c Call, in, out, want []byte) {
	c = Call{Op: s.op, Root: s.root, Bytes: s.bytes, InPlace: s.inPlace, Ordered: s.ordered, Nodes: s.nodes, Ports: s.ports, Segment: testSegment, Rendezvous: s.rendezvous}
	if s.op >= Reduce {
		c.Element = elementBytes
	}
	switch s.op {
	case Barrier:
		c.Bytes = 0
		return c, nil, nil, []byte{}
	case Bcast:
		out = bytes.Repeat([]byte{0xee}, s.bytes)
		if rank == s.root {
			out = pattern(s.root, 0, s.bytes)
		}
		return c, nil, out, pattern(s.root, 0, s.bytes)
	case Scatter, Gather, Allgather, Alltoall:
		in, out, want = s.prepareBlocks(rank, &c)
	default:
		in, out, want = s.prepareReduction(rank, &c)
	}
	return c, in, out, want
}

// prepareBlocks does for operations that move blocks.
func (s *scenario) prepareBlocks(rank int, c *Call) (in, out, want []byte) {
	l, total := s.layout(3)
	blocks := func(fill func(i int) []byte) []byte {
		b := bytes.Repeat([]byte{0xee}, total)
		for i := range s.size {
			off := i * s.bytes
			if s.variable {
				off = l.Offsets[i]
			}
			copy(b[off:], fill(i))
		}
		return b
	}
	c.Bytes = s.count(rank)
	ofRanks := blocks(func(i int) []byte { return pattern(i, 0, s.count(i)) })
	empty := bytes.Repeat([]byte{0xee}, total)
	switch s.op {
	case Scatter:
		out = bytes.Repeat([]byte{0xee}, c.Bytes)
		want = pattern(rank, 0, c.Bytes)
		if rank == s.root {
			in, c.In = ofRanks, l
			if s.inPlace {
				want = bytes.Clone(out)
			}
		}
		if s.variable && rank != s.root {
			c.In = l // the caller knows only that blocks differ
		}
	case Gather:
		c.InPlace = s.inPlace && rank == s.root
		in, c.Out = pattern(rank, 0, c.Bytes), l
		if rank == s.root {
			out, want = empty, ofRanks
		}
	case Allgather:
		in, out, want, c.Out = pattern(rank, 0, c.Bytes), empty, ofRanks, l
	default: // Alltoall: the block from i to j has the size of the pair
		in = blocks(func(i int) []byte { return pattern(rank, i, s.pair(rank, i)) })
		out, want = empty, blocks(func(i int) []byte { return pattern(i, rank, s.pair(i, rank)) })
		if s.variable {
			c.In = &Layout{Offsets: l.Offsets}
			c.Out = &Layout{Offsets: l.Offsets}
			for i := range s.size {
				c.In.Counts = append(c.In.Counts, s.pair(rank, i))
				c.Out.Counts = append(c.Out.Counts, s.pair(i, rank))
			}
		}
		return in, out, want
	}
	if c.InPlace && s.op != Scatter {
		off := rank * s.bytes
		if s.variable {
			off = l.Offsets[rank]
		}
		copy(out[off:], in)
		in = nil
	}
	return in, out, want
}

// pair returns the size of the block from one rank to another. It fits the layout of both.
func (s *scenario) pair(from, to int) int {
	if !s.variable {
		return s.bytes
	}
	return min(s.count(from), s.count(to))
}

// prepareReduction does for reductions and scans.
func (s *scenario) prepareReduction(rank int, c *Call) (in, out, want []byte) {
	n := s.bytes
	l, total := s.layout(0)
	if s.op == ReduceScatter {
		n, c.Bytes, c.In = total, s.count(rank), l
	}
	in, out = pattern(rank, 0, n), bytes.Repeat([]byte{0xee}, n)
	switch s.op {
	case Reduce:
		c.InPlace = s.inPlace && rank == s.root
		if want = s.reduced(s.size, n); rank != s.root {
			out, want = nil, nil
		}
	case Allreduce:
		want = s.reduced(s.size, n)
	case ReduceScatter:
		off := rank * s.bytes
		if s.variable {
			off = l.Offsets[rank]
		}
		want = s.reduced(s.size, n)[off : off+s.count(rank)]
		if !s.inPlace {
			out = out[:s.count(rank)]
		}
	case Scan:
		want = s.reduced(rank+1, n)
	case Exscan:
		if rank > 0 {
			want = s.reduced(rank, n)
		}
	}
	if c.InPlace {
		out, in = in, nil
	}
	return in, out, want
}

// check runs the scenario with an algorithm, and compares the results.
func (s *scenario) check(alg *Algorithm, seed uint64) (*testWorld, error) {
	wants := make([][]byte, s.size)
	inputs := make([][]byte, s.size)
	w := newTestWorld(alg, s.size, seed, s.combine(), func(rank int) (Call, []byte, []byte) {
		c, in, out, want := s.prepare(rank)
		wants[rank], inputs[rank] = want, bytes.Clone(in)
		return c, in, out
	})
	if err := w.run(); err != nil {
		return w, err
	}
	return w, w.checkResults(wants, inputs)
}

// checkResults compares Out and In of each rank with what they must be.
func (w *testWorld) checkResults(wants, inputs [][]byte) error {
	for rank, k := range w.ranks {
		want := wants[rank]
		if out := k.buffers[Out]; want != nil && (len(out) < len(want) || !bytes.Equal(out[:len(want)], want)) {
			return fmt.Errorf("rank %d has %.40x, want %.40x", rank, out, want)
		}
		if !bytes.Equal(k.buffers[In], inputs[rank]) {
			return fmt.Errorf("rank %d: the input has changed", rank)
		}
	}
	return nil
}

// scenarios calls try for all variants of an operation with a number of ranks.
func scenarios(op Op, size int, try func(*scenario)) {
	roots := []int{0}
	if (op == Bcast || op == Scatter || op == Gather || op == Reduce) && size > 1 {
		roots = append(roots, 1, size-1)
	}
	isReduction := op >= Reduce
	hasBlocks := op == Scatter || op == Gather || op == Allgather || op == Alltoall || op == ReduceScatter
	for _, n := range blockSizes(size) {
		if n == 1<<20 && hasBlocks {
			n /= size
		}
		if isReduction {
			n = n / elementBytes * elementBytes
		}
		for _, root := range roots {
			if n > 1<<16 && root > 0 {
				break
			}
			s := scenario{op: op, size: size, bytes: n, root: root}
			variants := []scenario{s}
			add := func(change func(*scenario)) {
				variants = append(variants, s)
				change(&variants[len(variants)-1])
			}
			if op != Barrier && op != Bcast && op != Alltoall {
				add(func(s *scenario) { s.inPlace = true })
			}
			if isReduction {
				add(func(s *scenario) { s.ordered = true })
			}
			if hasBlocks {
				add(func(s *scenario) { s.variable = true })
			}
			for i := range variants {
				try(&variants[i])
			}
		}
		if op == Barrier {
			return
		}
	}
}

// fits reports whether an algorithm can be used for the scenario.
func (s *scenario) fits(alg *Algorithm) bool {
	c, _, _, _ := s.prepare(0)
	c.Size, c.Shared = s.size, 1<<40
	return alg.Fits(&c)
}

// maxPorts is the largest number of ports that is tested.
const maxPorts = 4

func TestAlgorithms(t *testing.T) {
	for op := range NumOps {
		for _, alg := range Algorithms(op) {
			t.Run(op.String()+"/"+alg.Name, func(t *testing.T) {
				seed := uint64(0)
				for _, size := range sizes() {
					scenarios(op, size, func(s *scenario) {
						all := placements(size)
						if size > 8 {
							all = all[int(seed)%len(all):][:1]
						}
						for _, s.nodes = range all {
							if !s.fits(alg) {
								continue
							}
							seed++
							if _, err := s.check(alg, seed); err != nil {
								t.Fatalf("%+v: %v", *s, err)
							}
							if alg.Needs&KnownNodes == 0 {
								break
							}
						}
						for s.ports = 2; s.ports <= maxPorts && s.bytes < 1<<16 && strings.HasPrefix(alg.Name, "kport-"); s.ports++ {
							if !s.fits(alg) {
								continue
							}
							if _, err := s.check(alg, seed); err != nil {
								t.Fatalf("%+v: %v", *s, err)
							}
						}
						s.ports = 0
					})
				}
				if seed < 10 {
					t.Errorf("only %d scenarios", seed)
				}
			})
		}
	}
}
