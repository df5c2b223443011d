package mpi

import (
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/datatype"
)

// InPlace is passed instead of a buffer to collective operations whose input is in the buffer for the
// result, or for Scatter whose result stays in the send buffer.
var InPlace = make([]byte, 1)

func isInPlace(b []byte) bool { return unsafe.SliceData(b) == unsafe.SliceData(InPlace) }

// callCollective executes a blocking operation of the program.
func (c *Comm) callCollective(call string, a *collectiveCall) error {
	if a.err == nil {
		c.recordArrival(a)
		if c.rank.calls != nil {
			defer c.beginCollective(checkedCall(call, a))()
		}
		a.err = c.share(a, true)
	}
	return c.locked(call, a.err, func() error { return c.runChecked(a) })
}

// runInternal executes a blocking operation of the runtime. The caller holds the lock.
func (c *Comm) runInternal(a collectiveCall) error {
	if a.err != nil {
		return a.err
	}
	return c.runChecked(&a)
}

// runChecked executes a blocking operation, which the race checker observes. The caller holds the lock.
func (c *Comm) runChecked(a *collectiveCall) error {
	if c.rank.races == nil {
		return c.runCollective(a)
	}
	o := c.rank.races.startCollective(c, a)
	err := c.runCollective(a)
	c.rank.races.done(o)
	return err
}

// barrier is Barrier for a caller that holds the lock.
func (c *Comm) barrier() error { return c.runInternal(c.barrierCall()) }

// lengthMismatch is the error of a collective message that does not fill its buffer.
func lengthMismatch(rank, has, want int) error {
	return fmt.Errorf("%w: rank %d passed %d bytes and this rank %d; all ranks must pass the same size", ErrArg, rank, has, want)
}

// Barrier blocks until all ranks have called it.
func (c *Comm) Barrier() error {
	a := c.barrierCall()
	return c.callCollective("Barrier", &a)
}

// Bcast copies root's buffer to the buffers of all other ranks, which have the same size.
func (c *Comm) Bcast(buf []byte, root int) error {
	a := c.bcastCall(buf, root)
	return c.callCollective("Bcast", &a)
}

// Scatter copies the i-th block of root's send buffer to the receive buffer of rank i. All blocks have the
// same size. If root passes InPlace to receive, its block stays in the send buffer.
func (c *Comm) Scatter(send, recv []byte, root int) error {
	a := c.scatterCall(send, recv, root)
	return c.callCollective("Scatter", &a)
}

// Scatterv is a Scatter of blocks whose sizes and offsets in the send buffer root passes, in bytes. With nil
// offsets the blocks follow each other.
func (c *Comm) Scatterv(send []byte, counts, offsets []int, recv []byte, root int) error {
	a := c.scattervCall(send, counts, offsets, recv, root)
	return c.callCollective("Scatterv", &a)
}

// Gather concatenates the blocks of all ranks, of equal size, in rank order, on root. If root passes InPlace
// to send, its block is already in its place.
func (c *Comm) Gather(send, recv []byte, root int) error {
	a := c.gatherCall(send, recv, root)
	return c.callCollective("Gather", &a)
}

// Gatherv is a Gather of blocks whose sizes and offsets in the receive buffer root passes.
func (c *Comm) Gatherv(send, recv []byte, counts, offsets []int, root int) error {
	a := c.gathervCall(send, recv, counts, offsets, root)
	return c.callCollective("Gatherv", &a)
}

// Allgather concatenates the blocks of all ranks, of equal size, in rank order, on every rank. With InPlace
// as local, the block of this rank is already in its place.
func (c *Comm) Allgather(local, all []byte) error {
	a := c.allgatherCall(local, all)
	return c.callCollective("Allgather", &a)
}

// Allgatherv is an Allgather of blocks whose sizes and offsets all ranks pass.
func (c *Comm) Allgatherv(local, all []byte, counts, offsets []int) error {
	a := c.allgathervCall(local, all, counts, offsets)
	return c.callCollective("Allgatherv", &a)
}

// Alltoall sends the i-th block of each rank's send buffer to rank i, which stores the blocks in rank order.
// All blocks have the same size. With InPlace to send, the blocks are sent from the receive buffer.
func (c *Comm) Alltoall(send, recv []byte) error {
	a := c.alltoallCall(send, recv)
	return c.callCollective("Alltoall", &a)
}

// Alltoallv is an Alltoall of blocks with the sizes and offsets that a rank passes, in bytes. With nil offsets
// the blocks follow each other.
func (c *Comm) Alltoallv(send []byte, sendCounts, sendOffsets []int, recv []byte, recvCounts, recvOffsets []int) error {
	a := c.alltoallvCall(send, sendCounts, sendOffsets, recv, recvCounts, recvOffsets)
	return c.callCollective("Alltoallv", &a)
}

// Alltoallw is an Alltoall of elements of datatypes: this rank sends sendCounts[i] elements of sendTypes[i] to
// rank i, of which the first one is at offset sendOffsets[i], in bytes, and receives from it in the same way. The
// sizes of what a rank sends and the other receives are equal; their types need not be. With InPlace to send, the
// blocks are sent from the receive buffer, and the other arguments of sends do not matter.
func (c *Comm) Alltoallw(send []byte, sendCounts, sendOffsets []int, sendTypes []*datatype.Type, recv []byte, recvCounts, recvOffsets []int, recvTypes []*datatype.Type) error {
	a := c.alltoallwCall(typedBuffer{send, sendCounts, sendOffsets, sendTypes}, typedBuffer{recv, recvCounts, recvOffsets, recvTypes})
	return c.callCollective("Alltoallw", &a)
}

// Reduce combines the send buffers of all ranks element by element in the receive buffer of root. If root
// passes InPlace to send, its input is in the receive buffer.
func (c *Comm) Reduce(send, recv []byte, t Type, op Op, root int) error {
	a := c.reduceCall(send, recv, t, op, root)
	return c.callCollective("Reduce", &a)
}

// Allreduce combines the send buffers of all ranks element by element in their receive buffers. The result is
// bit-identical on all ranks. With InPlace to send, the receive buffer has the input.
func (c *Comm) Allreduce(send, recv []byte, t Type, op Op) error {
	a := c.allreduceCall(send, recv, t, op)
	return c.callCollective("Allreduce", &a)
}

// ReduceScatterBlock combines the send buffers of all ranks, and leaves block i of the result in the receive
// buffer of rank i. All blocks have the same size. With InPlace to send, the receive buffer has the input,
// and at the end, in front, the block.
func (c *Comm) ReduceScatterBlock(send, recv []byte, t Type, op Op) error {
	a := c.reduceScatterBlockCall(send, recv, t, op)
	return c.callCollective("ReduceScatterBlock", &a)
}

// ReduceScatter is a ReduceScatterBlock of blocks whose sizes all ranks pass, in bytes.
func (c *Comm) ReduceScatter(send, recv []byte, counts []int, t Type, op Op) error {
	a := c.reduceScatterCall(send, recv, counts, t, op)
	return c.callCollective("ReduceScatter", &a)
}

// Scan combines the send buffers of this rank and of all ranks before it in the receive buffer. With InPlace
// to send, the receive buffer has the input.
func (c *Comm) Scan(send, recv []byte, t Type, op Op) error {
	a := c.scanCall(send, recv, t, op)
	return c.callCollective("Scan", &a)
}

// Exscan is a Scan without the buffer of this rank. The receive buffer of rank 0 does not change.
func (c *Comm) Exscan(send, recv []byte, t Type, op Op) error {
	a := c.exscanCall(send, recv, t, op)
	return c.callCollective("Exscan", &a)
}
