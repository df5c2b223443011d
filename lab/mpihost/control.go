package mpihost

import (
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/verbs"
)

// control is what a rank in a world is given.
type control struct {
	*sim.Endpoint
	abort func(rank, code int, why string)
}

var _ env.Control = (*control)(nil)

// Abort implements env.Control. It does not return: the caller is parked until it is
// ended with the others, so it must hold no lock that their deferred calls take.
func (c *control) Abort(code int, why string) {
	c.abort(c.Rank(), code, why)
	if p := c.World().Current(); p != nil {
		var never sim.Signal
		for {
			p.Wait(&never, sim.WaitReason("the end of all ranks"), verbs.Forever)
		}
	}
}
