package mpi

import "github.com/fabrictest/fabrictest/mpi/datatype"

// Nonblocking collective operations: each starts the blocking operation of the same name, which
// completes when the request does. All ranks start the collective operations of a communicator, blocking
// ones included, in the same order.

// Ibarrier starts a nonblocking Barrier.
func (c *Comm) Ibarrier() (*Request, error) {
	return c.startCollective("Ibarrier", c.barrierCall())
}

// Ibcast starts a nonblocking Bcast.
func (c *Comm) Ibcast(buf []byte, root int) (*Request, error) {
	return c.startCollective("Ibcast", c.bcastCall(buf, root))
}

// Iscatter starts a nonblocking Scatter.
func (c *Comm) Iscatter(send, recv []byte, root int) (*Request, error) {
	return c.startCollective("Iscatter", c.scatterCall(send, recv, root))
}

// Iscatterv starts a nonblocking Scatterv.
func (c *Comm) Iscatterv(send []byte, counts, offsets []int, recv []byte, root int) (*Request, error) {
	return c.startCollective("Iscatterv", c.scattervCall(send, counts, offsets, recv, root))
}

// Igather starts a nonblocking Gather.
func (c *Comm) Igather(send, recv []byte, root int) (*Request, error) {
	return c.startCollective("Igather", c.gatherCall(send, recv, root))
}

// Igatherv starts a nonblocking Gatherv.
func (c *Comm) Igatherv(send, recv []byte, counts, offsets []int, root int) (*Request, error) {
	return c.startCollective("Igatherv", c.gathervCall(send, recv, counts, offsets, root))
}

// Iallgather starts a nonblocking Allgather.
func (c *Comm) Iallgather(local, all []byte) (*Request, error) {
	return c.startCollective("Iallgather", c.allgatherCall(local, all))
}

// Iallgatherv starts a nonblocking Allgatherv.
func (c *Comm) Iallgatherv(local, all []byte, counts, offsets []int) (*Request, error) {
	return c.startCollective("Iallgatherv", c.allgathervCall(local, all, counts, offsets))
}

// Ialltoall starts a nonblocking Alltoall.
func (c *Comm) Ialltoall(send, recv []byte) (*Request, error) {
	return c.startCollective("Ialltoall", c.alltoallCall(send, recv))
}

// Ialltoallv starts a nonblocking Alltoallv.
func (c *Comm) Ialltoallv(send []byte, sendCounts, sendOffsets []int, recv []byte, recvCounts, recvOffsets []int) (*Request, error) {
	return c.startCollective("Ialltoallv", c.alltoallvCall(send, sendCounts, sendOffsets, recv, recvCounts, recvOffsets))
}

// Ialltoallw starts a nonblocking Alltoallw.
func (c *Comm) Ialltoallw(send []byte, sendCounts, sendOffsets []int, sendTypes []*datatype.Type, recv []byte, recvCounts, recvOffsets []int, recvTypes []*datatype.Type) (*Request, error) {
	return c.startCollective("Ialltoallw", c.alltoallwCall(typedBuffer{send, sendCounts, sendOffsets, sendTypes}, typedBuffer{recv, recvCounts, recvOffsets, recvTypes}))
}

// Ireduce starts a nonblocking Reduce.
func (c *Comm) Ireduce(send, recv []byte, t Type, op Op, root int) (*Request, error) {
	return c.startCollective("Ireduce", c.reduceCall(send, recv, t, op, root))
}

// Iallreduce starts a nonblocking Allreduce.
func (c *Comm) Iallreduce(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.startCollective("Iallreduce", c.allreduceCall(send, recv, t, op))
}

// IreduceScatterBlock starts a nonblocking ReduceScatterBlock.
func (c *Comm) IreduceScatterBlock(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.startCollective("IreduceScatterBlock", c.reduceScatterBlockCall(send, recv, t, op))
}

// IreduceScatter starts a nonblocking ReduceScatter.
func (c *Comm) IreduceScatter(send, recv []byte, counts []int, t Type, op Op) (*Request, error) {
	return c.startCollective("IreduceScatter", c.reduceScatterCall(send, recv, counts, t, op))
}

// Iscan starts a nonblocking Scan.
func (c *Comm) Iscan(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.startCollective("Iscan", c.scanCall(send, recv, t, op))
}

// Iexscan starts a nonblocking Exscan.
func (c *Comm) Iexscan(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.startCollective("Iexscan", c.exscanCall(send, recv, t, op))
}
