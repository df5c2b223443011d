package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/coll"
)

// defaultLimits are the sizes at which the default algorithms change, as measured between processes of one
// machine and in simulation (docs/performance.md).
var defaultLimits = coll.Limits{Direct: 32 << 10, Doubling: 512, Neighbour: 8 << 10, Ring: 4 << 10, LargeResult: 512 << 10, Rabenseifner: 64 << 10}

// SetAlgorithm chooses the algorithm of an operation on this communicator; nil restores that of
// Options.Collectives. All ranks must choose the same between the same calls. An algorithm that does not
// fit a call is not used for it.
func (c *Comm) SetAlgorithm(op coll.Op, a *coll.Algorithm) error {
	err := c.check()
	if err == nil && (op >= coll.NumOps || a != nil && a.Op != op) {
		err = fmt.Errorf("%w: no algorithm of %v", ErrArg, op)
	}
	return c.locked("SetAlgorithm", err, func() error {
		if a == nil {
			a = c.rank.opts.Collectives[op]
		}
		c.choices[op] = a
		return nil
	})
}

// Algorithm returns the algorithm of an operation on buffers with equal blocks, or a vector, of n bytes.
func (c *Comm) Algorithm(op coll.Op, n int) (*coll.Algorithm, error) {
	var a collectiveCall
	a.init(c, op)
	if a.Bytes = n; a.err == nil {
		a.Shared = c.sharedLimit()
	}
	return lockedResult(c, "Algorithm", a.err, func() (*coll.Algorithm, error) { return c.selectAlgorithm(&a.Call), nil })
}

// selectAlgorithm completes a call, and returns its algorithm.
func (c *Comm) selectAlgorithm(a *coll.Call) *coll.Algorithm {
	chosen := c.chosen(a)
	a.Rank, a.Size, a.Nodes, a.Ports = c.me, c.size, c.nodesFor(chosen), len(c.rank.env.NICs)
	a.Segment = c.segmentBytes()
	limits := defaultLimits
	limits.Bruck = c.rank.opts.BruckLimit
	return coll.Select(chosen, a, limits)
}

// chosen returns the algorithm that the program, the options or the rules choose for a call; nil if none
// does.
func (c *Comm) chosen(a *coll.Call) *coll.Algorithm {
	if chosen := c.choices[a.Op]; chosen != nil || len(c.rank.opts.Rules) == 0 {
		return chosen
	}
	if c.rules == nil {
		c.rules = coll.RulesFor(c.rank.opts.Rules, c.size, c.perHost())
	}
	return c.rules.Find(a)
}

// perHost returns the largest number of ranks of the communicator on one host.
func (c *Comm) perHost() (most int) {
	counts := map[int]int{}
	for r := range c.size {
		counts[c.Node(r)]++
		most = max(most, counts[c.Node(r)])
	}
	return most
}
