package mpihost

import (
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// control is the transport.Control of a rank in a simulation.
type control struct {
	*sim.Endpoint
	abort func(rank, code int, why string)
}

var _ transport.Control = (*control)(nil)

// Abort implements transport.Control: it ends all ranks. It does not return in a coroutine of
// the simulation, which blocks until it is ended. The caller must not hold a lock that deferred
// calls of other ranks need.
func (c *control) Abort(code int, why string) {
	c.abort(c.Rank(), code, why)
	if p := c.World().Current(); p != nil {
		var neverSet sim.Signal
		for {
			p.Wait(&neverSet, sim.WaitReason("the end of all ranks"), verbs.Forever)
		}
	}
}
