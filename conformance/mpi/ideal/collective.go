package ideal

import (
	"bytes"
	"fmt"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// collective is one collective call, with the contributions of all ranks.
type collective struct {
	in   []any
	n    int
	made map[int]*group
	win  *window
	kind mpi.Type // of a reduction, the same on all ranks
	op   mpi.Op
}

func (m *collective) complete() bool { return m.n == len(m.in) }

// join adds a rank's contribution to the next collective call.
func (c *comm) join(part any) *collective {
	g := c.g
	call := c.calls
	c.calls++
	m := g.collectives[call]
	if m == nil {
		m = &collective{in: make([]any, len(g.ranks))}
		g.collectives[call] = m
	}
	m.in[c.rank] = part
	m.n++
	return m
}

func (c *comm) Barrier() error {
	if err := c.usable(); err != nil {
		return c.fail("Barrier", err)
	}
	defects := c.p.w.defects
	m := c.join(nil)
	if defects.CollectivesShow {
		for to := range c.g.ranks {
			c.p.w.enqueue(c.p.rank, c.g.ranks[to], c.g.boxes[to], &msg{source: c.rank, sender: c.p})
		}
	}
	c.p.blockUntil("the others at a barrier", func() bool {
		return m.complete() || defects.BarrierEarly || defects.BarrierMissesOne && m.n >= len(m.in)-1
	})
	return nil
}

func (c *comm) Ibarrier() (cases.Request, error) {
	if err := c.usable(); err != nil {
		return nil, c.fail("Ibarrier", err)
	}
	defects := c.p.w.defects
	m := c.join(nil)
	r := &request{p: c.p, c: c, active: true, st: undefinedStatus}
	r.poll = func() bool {
		return m.complete() || defects.IbarrierEarly || defects.BarrierMissesOne && m.n >= len(m.in)-1
	}
	return r, nil
}

func (c *comm) Bcast(buf []byte, root int) error {
	if err := c.usable(); err != nil {
		return c.fail("Bcast", err)
	}
	defects := c.p.w.defects
	if root < 0 || root >= c.Size() {
		if !defects.RanksUnchecked {
			return c.fail("Bcast", mpi.ErrRank)
		}
		return nil
	}
	if defects.RootIsZero {
		root = 0
	}
	m := c.join(bytes.Clone(buf))
	if c.rank == root {
		return nil
	}
	if defects.BcastGuesses {
		return nil
	}
	c.p.blockUntil("what the root has", func() bool { return m.in[root] != nil || len(buf) == 0 })
	if in, ok := m.in[root].([]byte); ok {
		n := copy(buf, in)
		if defects.CollectivesCut && n > 1 {
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
	defects := c.p.w.defects
	if defects.ReducesBySum {
		op = mpi.Sum
	}
	m := c.join(bytes.Clone(buf))
	if m.n == 1 {
		m.kind, m.op = t, op
	} else if m.kind != t || m.op != op {
		panic(fmt.Sprintf("the ranks reduce by different operations: %v of %v, and %v of %v", m.op, m.kind, op, t))
	}
	c.p.blockUntil("the others at Allreduce", m.complete)
	result := bytes.Clone(m.in[0].([]byte))
	for i, in := range m.in[1:] {
		if defects.ReduceMissesLast && i == len(m.in)-2 {
			break
		}
		combine(result, in.([]byte), t, op, defects)
	}
	if defects.ReduceDiffers && c.rank == 1 {
		result[0] ^= 1
	}
	if defects.CollectivesCut && len(result) > 8 {
		copy(result[len(result)-8:], buf[len(result)-8:])
	}
	copy(buf, result)
	return nil
}

// badReduction returns the error of an invalid type, operation or length.
func (c *comm) badReduction(buf []byte, t mpi.Type, op mpi.Op) error {
	defects := c.p.w.defects
	switch {
	case defects.ReductionsUnchecked:
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
	defects := c.p.w.defects
	if len(all) != len(mine)*c.Size() {
		if !defects.ReductionsUnchecked {
			return c.fail("Allgather", mpi.ErrArg)
		}
		return nil
	}
	m := c.join(bytes.Clone(mine))
	c.p.blockUntil("the others at Allgather", m.complete)
	n := len(mine)
	for i := range c.Size() {
		from := i
		if defects.GatherReversed {
			from = c.Size() - 1 - i
		}
		k := copy(all[i*n:], m.in[from].([]byte))
		if defects.CollectivesCut && k > 1 {
			all[i*n+k-1] = 0
		}
	}
	return nil
}

func (c *comm) Alltoall(send, recv []byte) error {
	if err := c.usable(); err != nil {
		return c.fail("Alltoall", err)
	}
	defects := c.p.w.defects
	if len(send) != len(recv) || len(send)%c.Size() != 0 {
		if !defects.ReductionsUnchecked {
			return c.fail("Alltoall", mpi.ErrArg)
		}
		return nil
	}
	m := c.join(bytes.Clone(send))
	c.p.blockUntil("the others at Alltoall", m.complete)
	n := len(send) / c.Size()
	for i := range c.Size() {
		part := c.rank
		if defects.NotTransposed {
			part = i
		}
		k := copy(recv[i*n:i*n+n], m.in[i].([]byte)[part*n:])
		if defects.CollectivesCut && k > 1 {
			recv[i*n+k-1] = 0
		}
	}
	return nil
}
