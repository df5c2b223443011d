package coll

import (
	"math/bits"
	"slices"
)

// Algorithm is an algorithm of a collective operation.
type Algorithm struct {
	Op    Op
	Name  string
	Needs Needs
	// RoundsByArrival says that the rounding of floating-point numbers depends on when ranks call the operation:
	// it may differ in the next run.
	RoundsByArrival bool

	// Unbuffered says that a small send is complete when the peer has the data, not when it is copied.
	Unbuffered bool

	phases []phase
	// scratch returns the size of the Scratch buffer; nil if the algorithm needs none.
	scratch func(*Call) int
	// shared returns the size of the Shared buffer; nil if the algorithm needs none. It is the same on all nodes.
	shared func(*Call) int
	// perNode is how many ranks each node must have, if it is not 0.
	perNode int
}

// Needs are the conditions under which an algorithm can be used.
type Needs uint8

// The conditions.
const (
	PowerOfTwo       Needs = 1 << iota // number of ranks
	EvenSize                           // number of ranks
	EqualBlocks                        // all blocks have the same size
	Commutative                        // reduction
	KnownNodes                         // of the ranks
	PowerOfRadix                       // number of ranks; the radix is that of k-port algorithms
	ConsecutiveRanks                   // of each node
	Multicasts                         // to all ranks
)

// phase is a number of rounds. Both functions depend on their arguments only.
type phase struct {
	rounds func(*Call) int
	// round appends the steps of round i.
	round func(c *Call, i int, r *Round)
}

// Schedule yields the rounds of an algorithm at one rank. The zero Schedule is at the start.
type Schedule struct {
	phase  int
	rounds int // of the current phase
	next   int // round of the current phase
}

// Next sets r to the steps of the next round, and reports whether there is one.
func (s *Schedule) Next(a *Algorithm, c *Call, r *Round) bool {
	r.Steps = r.Steps[:0]
	for len(r.Steps) == 0 {
		for s.next == s.rounds {
			if s.phase == len(a.phases) {
				return false
			}
			s.rounds, s.next = a.phases[s.phase].rounds(c), 0
			s.phase++
		}
		a.phases[s.phase-1].round(c, s.next, r)
		s.next++
	}
	return true
}

// ScratchBytes returns the size of the Scratch buffer.
func (a *Algorithm) ScratchBytes(c *Call) int {
	if a.scratch == nil {
		return 0
	}
	return a.scratch(c)
}

// UsesShared reports whether the algorithm needs a Shared buffer.
func (a *Algorithm) UsesShared() bool { return a.shared != nil }

// SharedBytes returns the size of the Shared buffer that is needed.
func (a *Algorithm) SharedBytes(c *Call) int {
	if a.shared == nil {
		return 0
	}
	return a.shared(c)
}

// Fits reports whether the algorithm can be used for a call.
func (a *Algorithm) Fits(c *Call) bool {
	n := a.Needs
	switch {
	case n&PowerOfTwo != 0 && c.Size&(c.Size-1) != 0,
		n&EvenSize != 0 && c.Size%2 != 0 && c.Size > 1,
		n&EqualBlocks != 0 && (c.In != nil || c.Out != nil),
		n&Commutative != 0 && c.Ordered,
		n&KnownNodes != 0 && c.Nodes == nil,
		n&PowerOfRadix != 0 && power(portRadix(c), digits(c.Size, portRadix(c))) != c.Size,
		n&ConsecutiveRanks != 0 && !c.Nodes.areConsecutive(),
		n&Multicasts != 0 && c.Segment == 0,
		a.perNode > 1 && a.perNode > c.Nodes.fewest(),
		a.SharedBytes(c) > c.Shared:
		return false
	}
	return true
}

// once is a phase of one round.
func once(round func(c *Call, r *Round)) phase {
	return phase{oneRound, func(c *Call, _ int, r *Round) { round(c, r) }}
}

// withRoot0 returns a phase whose root is rank 0.
func (p phase) withRoot0() phase {
	return phase{
		func(c *Call) int { d := *c; d.Root = 0; return p.rounds(&d) },
		func(c *Call, i int, r *Round) { d := *c; d.Root = 0; p.round(&d, i, r) },
	}
}

func oneRound(*Call) int { return 1 }

// log2 returns the logarithm of n, rounded up.
func log2(n int) int { return bits.Len(uint(n - 1)) }

// logRounds returns the logarithm of the number of ranks, rounded up.
func logRounds(c *Call) int { return log2(c.Size) }

// ringRounds is the number of rounds in which each rank meets every other one.
func ringRounds(c *Call) int { return c.Size - 1 }

// linearRounds is the number of rounds in which the root exchanges a message with each other rank.
func linearRounds(c *Call) int {
	if c.Rank != c.Root {
		return 1
	}
	return batches(c.Size-1, maxAtOnce)
}

// allBlocks is the size of Scratch for one block of each rank.
func allBlocks(c *Call) int { return c.Size * c.Bytes }

// maxAtOnce is the number of peers with which a rank exchanges messages in one round.
const maxAtOnce = 32

// batches returns the number of rounds for n peers, with so many of them at once.
func batches(n, atOnce int) int { return (n + atOnce - 1) / atOnce }

// batch returns the first and the end of the peers of round i, of n, numbered from 1.
func batch(i, n, atOnce int) (first, end int) { return 1 + i*atOnce, min(1+(i+1)*atOnce, n+1) }

// algorithms are all algorithms, by operation; the first one works for every call.
var algorithms = slices.Concat(
	barriers, bcasts, scatters, gathers, allgathers, nodeAllgathers, alltoalls, reduces, allreduces, reduceScatters, scans, exscans,
)

// Algorithms returns the algorithms of an operation.
func Algorithms(o Op) (all []*Algorithm) {
	for _, a := range algorithms {
		if a.Op == o {
			all = append(all, a)
		}
	}
	return all
}

// Find returns the algorithm of an operation with a name; nil if there is none. Names have any number of groups,
// of which Algorithms has some.
func Find(o Op, name string) *Algorithm {
	for _, a := range algorithms {
		if a.Op == o && a.Name == name {
			return a
		}
	}
	if o == Allgather {
		return groupsAllgather(name)
	}
	return nil
}
