package mpi

import "github.com/fabrictest/fabrictest/mpi/datatype"

// Persistent collective operations: each creates an inactive request, and Request.Start starts the
// blocking operation of the same name with it. All ranks create the requests in the same order, and start
// the collective operations of a communicator in the same order.

// BarrierInit creates a persistent Barrier.
func (c *Comm) BarrierInit() (*Request, error) {
	return c.prepareCollective("BarrierInit", c.barrierCall())
}

// BcastInit creates a persistent Bcast.
func (c *Comm) BcastInit(buf []byte, root int) (*Request, error) {
	return c.prepareCollective("BcastInit", c.bcastCall(buf, root))
}

// ScatterInit creates a persistent Scatter.
func (c *Comm) ScatterInit(send, recv []byte, root int) (*Request, error) {
	return c.prepareCollective("ScatterInit", c.scatterCall(send, recv, root))
}

// ScattervInit creates a persistent Scatterv.
func (c *Comm) ScattervInit(send []byte, counts, offsets []int, recv []byte, root int) (*Request, error) {
	return c.prepareCollective("ScattervInit", c.scattervCall(send, counts, offsets, recv, root))
}

// GatherInit creates a persistent Gather.
func (c *Comm) GatherInit(send, recv []byte, root int) (*Request, error) {
	return c.prepareCollective("GatherInit", c.gatherCall(send, recv, root))
}

// GathervInit creates a persistent Gatherv.
func (c *Comm) GathervInit(send, recv []byte, counts, offsets []int, root int) (*Request, error) {
	return c.prepareCollective("GathervInit", c.gathervCall(send, recv, counts, offsets, root))
}

// AllgatherInit creates a persistent Allgather.
func (c *Comm) AllgatherInit(local, all []byte) (*Request, error) {
	return c.prepareCollective("AllgatherInit", c.allgatherCall(local, all))
}

// AllgathervInit creates a persistent Allgatherv.
func (c *Comm) AllgathervInit(local, all []byte, counts, offsets []int) (*Request, error) {
	return c.prepareCollective("AllgathervInit", c.allgathervCall(local, all, counts, offsets))
}

// AlltoallInit creates a persistent Alltoall.
func (c *Comm) AlltoallInit(send, recv []byte) (*Request, error) {
	return c.prepareCollective("AlltoallInit", c.alltoallCall(send, recv))
}

// AlltoallvInit creates a persistent Alltoallv.
func (c *Comm) AlltoallvInit(send []byte, sendCounts, sendOffsets []int, recv []byte, recvCounts, recvOffsets []int) (*Request, error) {
	return c.prepareCollective("AlltoallvInit", c.alltoallvCall(send, sendCounts, sendOffsets, recv, recvCounts, recvOffsets))
}

// AlltoallwInit creates a persistent Alltoallw.
func (c *Comm) AlltoallwInit(send []byte, sendCounts, sendOffsets []int, sendTypes []*datatype.Type, recv []byte, recvCounts, recvOffsets []int, recvTypes []*datatype.Type) (*Request, error) {
	return c.prepareCollective("AlltoallwInit", c.alltoallwCall(typedBuffer{send, sendCounts, sendOffsets, sendTypes}, typedBuffer{recv, recvCounts, recvOffsets, recvTypes}))
}

// ReduceInit creates a persistent Reduce.
func (c *Comm) ReduceInit(send, recv []byte, t Type, op Op, root int) (*Request, error) {
	return c.prepareCollective("ReduceInit", c.reduceCall(send, recv, t, op, root))
}

// AllreduceInit creates a persistent Allreduce.
func (c *Comm) AllreduceInit(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.prepareCollective("AllreduceInit", c.allreduceCall(send, recv, t, op))
}

// ReduceScatterBlockInit creates a persistent ReduceScatterBlock.
func (c *Comm) ReduceScatterBlockInit(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.prepareCollective("ReduceScatterBlockInit", c.reduceScatterBlockCall(send, recv, t, op))
}

// ReduceScatterInit creates a persistent ReduceScatter.
func (c *Comm) ReduceScatterInit(send, recv []byte, counts []int, t Type, op Op) (*Request, error) {
	return c.prepareCollective("ReduceScatterInit", c.reduceScatterCall(send, recv, counts, t, op))
}

// ScanInit creates a persistent Scan.
func (c *Comm) ScanInit(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.prepareCollective("ScanInit", c.scanCall(send, recv, t, op))
}

// ExscanInit creates a persistent Exscan.
func (c *Comm) ExscanInit(send, recv []byte, t Type, op Op) (*Request, error) {
	return c.prepareCollective("ExscanInit", c.exscanCall(send, recv, t, op))
}
