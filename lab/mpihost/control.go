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

// Abort implements transport.Control. It does not return: the caller blocks until it is
// ended with the others, and must not hold a lock that their deferred calls need.
func (c *control) Abort(code int, why string) {
	c.abort(c.Rank(), code, why)
	if p := c.World().Current(); p != nil {
		var never sim.Signal
		for {
			p.Wait(&never, sim.WaitReason("the end of all ranks"), verbs.Forever)
		}
	}
}
