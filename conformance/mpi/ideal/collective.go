package ideal

import (
	"bytes"
	"cmp"
	"fmt"
	"unsafe"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// collective is one collective call, with the contributions of all ranks.
type collective struct {
	parts    []any          // by rank
	joined   int            // ranks that have joined
	groups   map[int]*group // new communicators, by colour
	win      *window        // a new window
	elemType mpi.Type       // of a reduction, the same on all ranks
	op       mpi.Op
}

// allJoined reports whether all ranks have made the call.
func (coll *collective) allJoined() bool { return coll.joined == len(coll.parts) }

// join adds the contribution of this rank, part, to its next collective call on the communicator.
// The n-th calls of all ranks belong together.
func (c *comm) join(part any) *collective {
	g := c.group
	number := c.collectiveCalls
	c.collectiveCalls++
	coll := g.collectives[number]
	if coll == nil {
		coll = &collective{parts: make([]any, len(g.ranks)), groups: make(map[int]*group)}
		g.collectives[number] = coll
	}
	coll.parts[c.rank] = part
	coll.joined++
	return coll
}

// joinAndWait adds part, the contribution of this rank, to a collective call, and waits until all
// ranks have added theirs. call is the name of the MPI call in a HungError.
func (c *comm) joinAndWait(call string, part any) *collective {
	coll := c.join(part)
	c.blockUntil("the others at "+call, coll.allJoined)
	return coll
}

// Barrier is MPI_Barrier. Defects (deliberate errors for cases to find) return early, or make
// messages of the barrier match receives.
func (c *comm) Barrier() error {
	if err := c.startCall(); err != nil {
		return c.fail("Barrier", err)
	}
	coll := c.join(nil)
	if c.Defects.CollectivesShow { // messages of the barrier can match receives of the program
		for to := range c.group.ranks {
			c.enqueue(c.proc.rank, c.group.ranks[to], c.group.queues[to], &msg{source: c.rank, sender: c.proc})
		}
	}
	c.blockUntil("the others at a barrier", func() bool {
		return coll.allJoined() || c.Defects.BarrierEarly || c.Defects.BarrierMissesOne && coll.joined >= len(coll.parts)-1
	})
	return nil
}

// Ibarrier is MPI_Ibarrier. Defects (deliberate errors for cases to find) complete it early.
func (c *comm) Ibarrier() (cases.Request, error) {
	if err := c.startCall(); err != nil {
		return nil, c.fail("Ibarrier", err)
	}
	coll := c.join(nil)
	r := &request{c: c, active: true, st: undefinedStatus}
	r.poll = func() bool {
		return coll.allJoined() || c.Defects.IbarrierEarly || c.Defects.BarrierMissesOne && coll.joined >= len(coll.parts)-1
	}
	return r, nil
}

// Bcast is MPI_Bcast. Defects (deliberate errors for cases to find) change the root or the data.
func (c *comm) Bcast(buf []byte, root int) error {
	if err := c.startCall(); err != nil {
		return c.fail("Bcast", err)
	}
	if !c.hasRank(root) {
		return c.fail("Bcast", unless(c.Defects.RanksUnchecked, mpi.ErrRank))
	}
	if c.Defects.RootIsZero {
		root = 0
	}
	coll := c.join(bytes.Clone(buf))
	if c.rank == root || c.Defects.BcastGuesses { // the defect does not wait for the data of the root
		return nil
	}
	// Without data to receive, a rank does not wait for the root.
	c.blockUntil("the root's data", func() bool { return coll.parts[root] != nil || len(buf) == 0 })
	if in, ok := coll.parts[root].([]byte); ok {
		c.copyPart(buf, in)
	}
	return nil
}

// copyPart copies data of a collective call; with the defect CollectivesCut, not the last byte.
func (c *comm) copyPart(dst, src []byte) {
	if n := copy(dst, src); c.Defects.CollectivesCut && n > 1 {
		dst[n-1] = 0
	}
}

// Allreduce is MPI_Allreduce. Defects (deliberate errors for cases to find) falsify the result.
func (c *comm) Allreduce(send, recv []byte, t mpi.Type, op mpi.Op) error {
	if unsafe.SliceData(send) == unsafe.SliceData(mpi.InPlace) {
		send = recv
	}
	if err := cmp.Or(c.startCall(), c.checkReduction(send, recv, t, op)); err != nil {
		return c.fail("Allreduce", err)
	}
	if c.Defects.ReducesBySum {
		op = mpi.Sum
	}
	coll := c.join(bytes.Clone(send))
	if coll.joined == 1 {
		coll.elemType, coll.op = t, op
	} else if coll.elemType != t || coll.op != op {
		panic(fmt.Sprintf("the ranks reduce by different operations: %v of %v, and %v of %v", coll.op, coll.elemType, op, t))
	}
	c.blockUntil("the others at Allreduce", coll.allJoined)
	result := bytes.Clone(coll.parts[0].([]byte))
	for i, in := range coll.parts[1:] { // of rank i+1
		if c.Defects.ReduceMissesLast && i+1 == len(coll.parts)-1 {
			break
		}
		combine(result, in.([]byte), t, op, &c.Defects)
	}
	if c.Defects.ReduceDiffers && c.rank == 1 {
		result[0] ^= 1
	}
	if c.Defects.CollectivesCut && len(result) > 8 { // the last 8 bytes are not reduced
		copy(result[len(result)-8:], recv[len(result)-8:])
	}
	copy(recv, result)
	if c.Defects.ReduceChangesInput {
		copy(send, result)
	}
	return nil
}

// checkReduction returns an error for an invalid type, operation or length.
func (c *comm) checkReduction(send, recv []byte, t mpi.Type, op mpi.Op) error {
	switch {
	case c.Defects.ReductionsUnchecked:
		return nil
	case int(t) > int(mpi.Float64):
		return mpi.ErrType
	case int(op) > int(mpi.NoOp), op == mpi.Replace, op == mpi.NoOp, integersOnly(op) && floating(t):
		return mpi.ErrOp
	case len(send) != len(recv), len(recv)%t.Size() != 0:
		return mpi.ErrArg
	}
	return nil
}

// Allgather is MPI_Allgather. With the defect GatherReversed it stores the parts in reverse order.
// With ReductionsUnchecked, a call with invalid lengths returns no error and transfers nothing.
func (c *comm) Allgather(mine, all []byte) error {
	if err := c.startCall(); err != nil {
		return c.fail("Allgather", err)
	}
	if len(all) != len(mine)*c.Size() {
		return c.fail("Allgather", unless(c.Defects.ReductionsUnchecked, mpi.ErrArg))
	}
	coll := c.joinAndWait("Allgather", bytes.Clone(mine))
	n := len(mine)
	for i := range c.Size() {
		from := i
		if c.Defects.GatherReversed {
			from = c.Size() - 1 - i
		}
		c.copyPart(all[i*n:], coll.parts[from].([]byte))
	}
	return nil
}

// Alltoall is MPI_Alltoall. With the defect NotTransposed, all ranks receive the same parts. With
// ReductionsUnchecked, a call with invalid lengths returns no error and transfers nothing.
func (c *comm) Alltoall(send, recv []byte) error {
	if err := c.startCall(); err != nil {
		return c.fail("Alltoall", err)
	}
	if len(send) != len(recv) || len(send)%c.Size() != 0 {
		return c.fail("Alltoall", unless(c.Defects.ReductionsUnchecked, mpi.ErrArg))
	}
	coll := c.joinAndWait("Alltoall", bytes.Clone(send))
	n := len(send) / c.Size()
	for i := range c.Size() {
		part := c.rank
		if c.Defects.NotTransposed {
			part = i
		}
		c.copyPart(recv[i*n:i*n+n], coll.parts[i].([]byte)[part*n:])
	}
	return nil
}
