package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// Status is the result of a receive or a probe.
type Status = mpi.Status

// World is the part of mpi.World that cases use.
type World interface {
	Comm
	Runtime
}

// Runtime is the part of a World that does not depend on a communicator.
type Runtime interface {
	Self() Comm
	Wtime() time.Duration
	Compute(d time.Duration)
	Invalidate(buf []byte) error
	AttachBuffer(n int) error
	DetachBuffer() error

	StartAll(rs []Request) error
	WaitAll(rs []Request) ([]Status, error)
	WaitAny(rs []Request) (int, Status, error)
	WaitSome(rs []Request) ([]int, []Status, error)
	TestAll(rs []Request) ([]Status, bool, error)
	TestAny(rs []Request) (int, Status, bool, error)
	TestSome(rs []Request) ([]int, []Status, error)
}

// Comm is the part of a communicator that cases use.
type Comm interface {
	Rank() int
	Size() int
	Node(rank int) int
	Split(color, key int) (Comm, error)
	SplitNode(key int) (Comm, error)
	Dup() (Comm, error)
	Free() error
	// SetErrorHandler sets a handler that gets the communicator's rank and size instead
	// of the communicator.
	SetErrorHandler(h func(rank, size int, err error) error)

	Send(buf []byte, dest, tag int) error
	Ssend(buf []byte, dest, tag int) error
	Bsend(buf []byte, dest, tag int) error
	Rsend(buf []byte, dest, tag int) error
	Recv(buf []byte, source, tag int) (Status, error)
	Isend(buf []byte, dest, tag int) (Request, error)
	Issend(buf []byte, dest, tag int) (Request, error)
	Ibsend(buf []byte, dest, tag int) (Request, error)
	Irsend(buf []byte, dest, tag int) (Request, error)
	Irecv(buf []byte, source, tag int) (Request, error)
	SendInit(buf []byte, dest, tag int) (Request, error)
	SsendInit(buf []byte, dest, tag int) (Request, error)
	BsendInit(buf []byte, dest, tag int) (Request, error)
	RsendInit(buf []byte, dest, tag int) (Request, error)
	RecvInit(buf []byte, source, tag int) (Request, error)
	Sendrecv(sendbuf []byte, dest, sendtag int, recvbuf []byte, source, recvtag int) (Status, error)
	SendrecvReplace(buf []byte, dest, sendtag, source, recvtag int) (Status, error)
	Probe(source, tag int) (Status, error)
	Iprobe(source, tag int) (Status, bool, error)
	Mprobe(source, tag int) (Message, Status, error)
	Improbe(source, tag int) (Message, Status, bool, error)

	Barrier() error
	Ibarrier() (Request, error)
	Bcast(buf []byte, root int) error
	Allreduce(send, recv []byte, t mpi.Type, op mpi.Op) error
	Allgather(mine, all []byte) error
	Alltoall(send, recv []byte) error

	WinCreate(buf []byte) (Win, error)
	WinAllocate(size int) (Win, error)
}

// Request is the part of a request that cases use.
type Request interface {
	Start() error
	Wait() (Status, error)
	Test() (Status, bool, error)
	GetStatus() (Status, bool, error)
	Cancel() error
	Free() error
	Active() bool
}

// Message is a message that Mprobe or Improbe returned.
type Message interface {
	Recv(buf []byte) (Status, error)
	Irecv(buf []byte) (Request, error)
}

// Win is the part of a window that cases use.
type Win interface {
	Memory() []byte
	Size(rank int) int
	Free() error

	Put(origin []byte, target, at int) error
	Get(origin []byte, target, at int) error
	Accumulate(origin []byte, target, at int, t mpi.Type, op mpi.Op) error
	GetAccumulate(origin, result []byte, target, at int, t mpi.Type, op mpi.Op) error
	FetchAndOp(origin, result []byte, target, at int, t mpi.Type, op mpi.Op) error
	CompareAndSwap(origin, compare, result []byte, target, at int, t mpi.Type) error
	Rput(origin []byte, target, at int) (Request, error)
	Rget(origin []byte, target, at int) (Request, error)
	Raccumulate(origin []byte, target, at int, t mpi.Type, op mpi.Op) (Request, error)
	RgetAccumulate(origin, result []byte, target, at int, t mpi.Type, op mpi.Op) (Request, error)

	Fence(a mpi.Assert) error
	Post(group []int, a mpi.Assert) error
	Start(group []int, a mpi.Assert) error
	Complete() error
	Wait() error
	Test() (bool, error)
	Lock(kind mpi.LockKind, target int, a mpi.Assert) error
	Unlock(target int) error
	LockAll(a mpi.Assert) error
	UnlockAll() error
	Flush(target int) error
	FlushAll() error
	FlushLocal(target int) error
	FlushLocalAll() error
	Sync() error
}
