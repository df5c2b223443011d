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

// newWorld returns the world communicator and the self communicator of a rank.
func (p *proc) newWorld() cases.World {
	all := &comm{proc: p, g: p.all, rank: p.rank}
	own := p.group([]int{p.rank})
	if p.Defects.SelfIsWorld {
		own.queues = []*recvQueues{p.all.queues[p.rank]}
		own.id = p.all.id
	}
	return &rank{comm: all, self: &comm{proc: p, g: own}}
}

func (r *rank) Self() cases.Comm { return r.self }

func (r *rank) Wtime() time.Duration {
	if r.Defects.ClockRunsBack {
		return time.Hour - r.now
	}
	return r.now
}

const computing = "its computing to end"

func (r *rank) Compute(d time.Duration) {
	p := r.proc
	if p.Defects.ComputesNothing {
		d = 0
	}
	p.until = p.now + d
	p.yieldUntil(computing, func() bool { return p.now >= p.until })
}

func (r *rank) Invalidate(buf []byte) error {
	if r.Defects.ForgetWipes {
		clear(buf)
	}
	return nil
}

func (r *rank) AttachBuffer(n int) error {
	p := r.proc
	if p.hasBuffer && !p.Defects.AttachesTwice || n < 0 {
		return r.fail("AttachBuffer", mpi.ErrBuffer)
	}
	p.attached, p.hasBuffer = n, true
	return nil
}

func (r *rank) DetachBuffer() error {
	p := r.proc
	if !p.hasBuffer {
		return r.fail("DetachBuffer", mpi.ErrBuffer)
	}
	if p.Defects.DetachDrops {
		for _, x := range p.wires {
			for _, m := range x.queue {
				m.dropped = m.dropped || m.buffered && x.src == p.rank
			}
		}
	} else {
		p.blockUntil("buffered messages to leave", func() bool { return p.used == 0 })
	}
	p.hasBuffer, p.attached = false, 0
	return nil
}
