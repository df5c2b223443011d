package ideal

import (
	"time"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// rank is the world of one rank.
type rank struct {
	*comm
	self *comm
}

// newWorld returns the world communicator and the self communicator of a rank. With the defect
// SelfIsWorld, both have the same queues of posted receives and unexpected messages.
func (p *proc) newWorld() cases.World {
	all := &comm{proc: p, group: p.all, rank: p.rank}
	selfGroup := p.newGroup([]int{p.rank})
	if p.Defects.SelfIsWorld {
		selfGroup.queues = []*recvQueues{p.all.queues[p.rank]}
	}
	return &rank{comm: all, self: &comm{proc: p, group: selfGroup}}
}

func (r *rank) Self() cases.Comm { return r.self }

// Wtime is MPI_Wtime. With the defect ClockRunsBack, the time decreases.
func (r *rank) Wtime() time.Duration {
	if r.Defects.ClockRunsBack {
		return time.Hour - r.now
	}
	return r.now
}

const computing = "its computing to end"

// Compute lets other ranks run for d of the simulated time.
func (r *rank) Compute(d time.Duration) {
	p := r.proc
	if p.Defects.ComputesNothing {
		d = 0
	}
	p.computeEnd = p.now + d
	p.yieldUntil(computing, func() bool { return p.now >= p.computeEnd })
}

// Invalidate does nothing: no memory is registered. With the defect InvalidateClears it clears buf.
func (r *rank) Invalidate(buf []byte) error {
	if r.Defects.InvalidateClears {
		clear(buf)
	}
	return nil
}

// AttachBuffer is MPI_Buffer_attach. The defect AttachesTwice accepts a second buffer.
func (r *rank) AttachBuffer(n int) error {
	p := r.proc
	if p.hasBuffer && !p.Defects.AttachesTwice || n < 0 {
		return r.fail("AttachBuffer", mpi.ErrBuffer)
	}
	p.bufferSize, p.hasBuffer = n, true
	return nil
}

// DetachBuffer waits until all buffered messages are received. With the defect DetachDrops it drops
// those that have not arrived.
func (r *rank) DetachBuffer() error {
	p := r.proc
	if !p.hasBuffer {
		return r.fail("DetachBuffer", mpi.ErrBuffer)
	}
	if p.Defects.DetachDrops {
		for _, link := range p.links {
			for _, m := range link.queue {
				m.dropped = m.dropped || m.buffered && link.src == p.rank
			}
		}
	} else {
		p.blockUntil("buffered messages to leave", func() bool { return p.bufferUsed == 0 })
	}
	p.hasBuffer, p.bufferSize = false, 0
	return nil
}
