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
	all := &comm{p: p, g: p.w.all, rank: p.rank}
	own := p.w.group([]int{p.rank})
	if p.w.defects.SelfIsWorld {
		own.boxes = []*box{p.w.all.boxes[p.rank]}
		own.id = p.w.all.id
	}
	return &rank{comm: all, self: &comm{p: p, g: own}}
}

func (r *rank) Self() cases.Comm { return r.self }

func (r *rank) Wtime() time.Duration {
	if r.p.w.defects.ClockRunsBack {
		return time.Hour - r.p.w.now
	}
	return r.p.w.now
}

const computing = "its computing to end"

func (r *rank) Compute(d time.Duration) {
	p := r.p
	if p.w.defects.ComputesNothing {
		d = 0
	}
	p.until = p.w.now + d
	p.yieldUntil(computing, func() bool { return p.w.now >= p.until })
}

func (r *rank) Invalidate(buf []byte) error {
	if r.p.w.defects.ForgetWipes {
		clear(buf)
	}
	return nil
}

func (r *rank) AttachBuffer(n int) error {
	p := r.p
	if p.hasBuffer && !p.w.defects.AttachesTwice || n < 0 {
		return r.fail("AttachBuffer", mpi.ErrBuffer)
	}
	p.attached, p.hasBuffer = n, true
	return nil
}

func (r *rank) DetachBuffer() error {
	p := r.p
	if !p.hasBuffer {
		return r.fail("DetachBuffer", mpi.ErrBuffer)
	}
	if p.w.defects.DetachDrops {
		for _, x := range p.w.wires {
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
