package ideal

import (
	"bytes"
	"fmt"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// meet is one collective call of all ranks.
type meet struct {
	in   []any
	n    int
	made map[int]*group
	win  *window
	kind mpi.Type // of a reduction: all ranks must say the same
	op   mpi.Op
}

func (m *meet) complete() bool { return m.n == len(m.in) }

// meet brings a rank's part to the next collective call.
func (c *comm) meet(part any) *meet {
	g := c.g
	call := c.calls
	c.calls++
	m := g.meets[call]
	if m == nil {
		m = &meet{in: make([]any, len(g.ranks))}
		g.meets[call] = m
	}
	m.in[c.rank] = part
	m.n++
	return m
}

func (c *comm) Barrier() error {
	if err := c.usable(); err != nil {
		return c.fail("Barrier", err)
	}
	fl := c.p.w.fl
	m := c.meet(nil)
	if fl.CollectivesShow {
		for to := range c.g.ranks {
			c.p.w.launch(c.p.rank, c.g.ranks[to], c.g.boxes[to], &msg{source: c.rank, sender: c.p})
		}
	}
	c.p.park("the others at a barrier", func() bool {
		return m.complete() || fl.BarrierEarly || fl.BarrierMissesOne && m.n >= len(m.in)-1
	})
	return nil
}

func (c *comm) Ibarrier() (cases.Request, error) {
	if err := c.usable(); err != nil {
		return nil, c.fail("Ibarrier", err)
	}
	fl := c.p.w.fl
	m := c.meet(nil)
	r := &request{p: c.p, c: c, active: true, st: nothingToSay}
	r.poll = func() bool { return m.complete() || fl.IbarrierEarly || fl.BarrierMissesOne && m.n >= len(m.in)-1 }
	return r, nil
}

func (c *comm) Bcast(buf []byte, root int) error {
	if err := c.usable(); err != nil {
		return c.fail("Bcast", err)
	}
	fl := c.p.w.fl
	if root < 0 || root >= c.Size() {
		if !fl.RanksUnchecked {
			return c.fail("Bcast", mpi.ErrRank)
		}
		return nil
	}
	if fl.RootIsZero {
		root = 0
	}
	m := c.meet(bytes.Clone(buf))
	if c.rank == root {
		return nil
	}
	if fl.BcastGuesses {
		return nil
	}
	c.p.park("what the root has", func() bool { return m.in[root] != nil || len(buf) == 0 })
	if in, ok := m.in[root].([]byte); ok {
		n := copy(buf, in)
		if fl.CollectivesCut && n > 1 {
			buf[n-1] = 0
		}
	}
	return nil
}

func (c *comm) Allreduce(buf []byte, t mpi.Type, op mpi.Op) error {
	if err := c.usable(); err != nil {
		return c.fail("Allreduce", err)
	}
	if err := c.badReduction(buf, t, op); err != nil {
		return c.fail("Allreduce", err)
	}
	fl := c.p.w.fl
	if fl.ReducesBySum {
		op = mpi.Sum
	}
	m := c.meet(bytes.Clone(buf))
	if m.n == 1 {
		m.kind, m.op = t, op
	} else if m.kind != t || m.op != op {
		panic(fmt.Sprintf("the ranks reduce by different operations: %v of %v, and %v of %v", m.op, m.kind, op, t))
	}
	c.p.park("the others at Allreduce", m.complete)
	result := bytes.Clone(m.in[0].([]byte))
	for i, in := range m.in[1:] {
		if fl.ReduceMissesLast && i == len(m.in)-2 {
			break
		}
		combine(result, in.([]byte), t, op, fl)
	}
	if fl.ReduceDiffers && c.rank == 1 {
		result[0] ^= 1
	}
	if fl.CollectivesCut && len(result) > 8 {
		copy(result[len(result)-8:], buf[len(result)-8:])
	}
	copy(buf, result)
	return nil
}

func (c *comm) badReduction(buf []byte, t mpi.Type, op mpi.Op) error {
	fl := c.p.w.fl
	switch {
	case fl.ReductionsUnchecked:
		return nil
	case int(t) > int(mpi.Float64):
		return mpi.ErrType
	case int(op) > int(mpi.NoOp), op == mpi.Replace, op == mpi.NoOp, bitwise(op) && floating(t):
		return mpi.ErrOp
	case len(buf)%t.Size() != 0:
		return mpi.ErrArg
	}
	return nil
}

func (c *comm) Allgather(mine, all []byte) error {
	if err := c.usable(); err != nil {
		return c.fail("Allgather", err)
	}
	fl := c.p.w.fl
	if len(all) != len(mine)*c.Size() {
		if !fl.ReductionsUnchecked {
			return c.fail("Allgather", mpi.ErrArg)
		}
		return nil
	}
	m := c.meet(bytes.Clone(mine))
	c.p.park("the others at Allgather", m.complete)
	n := len(mine)
	for i := range c.Size() {
		from := i
		if fl.GatherReversed {
			from = c.Size() - 1 - i
		}
		k := copy(all[i*n:], m.in[from].([]byte))
		if fl.CollectivesCut && k > 1 {
			all[i*n+k-1] = 0
		}
	}
	return nil
}

func (c *comm) Alltoall(send, recv []byte) error {
	if err := c.usable(); err != nil {
		return c.fail("Alltoall", err)
	}
	fl := c.p.w.fl
	if len(send) != len(recv) || len(send)%c.Size() != 0 {
		if !fl.ReductionsUnchecked {
			return c.fail("Alltoall", mpi.ErrArg)
		}
		return nil
	}
	m := c.meet(bytes.Clone(send))
	c.p.park("the others at Alltoall", m.complete)
	n := len(send) / c.Size()
	for i := range c.Size() {
		part := c.rank
		if fl.NotTransposed {
			part = i
		}
		k := copy(recv[i*n:i*n+n], m.in[i].([]byte)[part*n:])
		if fl.CollectivesCut && k > 1 {
			recv[i*n+k-1] = 0
		}
	}
	return nil
}
