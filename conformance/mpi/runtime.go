package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// On returns a World for cases, whose calls are those of a world of package mpi.
func On(w *mpi.World) World { return world{comm{w.Comm}, w} }

type world struct {
	comm
	w *mpi.World
}

func (w world) Self() Comm                  { return comm{w.w.Self()} }
func (w world) Wtime() time.Duration        { return w.w.Wtime() }
func (w world) Compute(d time.Duration)     { w.w.Compute(d) }
func (w world) Invalidate(buf []byte) error { return w.w.Invalidate(buf) }
func (w world) AttachBuffer(n int) error    { return w.w.AttachBuffer(n) }
func (w world) DetachBuffer() error         { return w.w.DetachBuffer() }

func (world) StartAll(rs []Request) error               { return mpi.StartAll(runtimeRequests(rs)) }
func (world) WaitAll(rs []Request) ([]Status, error)    { return mpi.WaitAll(runtimeRequests(rs)) }
func (world) WaitAny(rs []Request) (int, Status, error) { return mpi.WaitAny(runtimeRequests(rs)) }
func (world) WaitSome(rs []Request) ([]int, []Status, error) {
	return mpi.WaitSome(runtimeRequests(rs))
}

func (world) TestAll(rs []Request) ([]Status, bool, error) { return mpi.TestAll(runtimeRequests(rs)) }

func (world) TestAny(rs []Request) (int, Status, bool, error) {
	return mpi.TestAny(runtimeRequests(rs))
}

func (world) TestSome(rs []Request) ([]int, []Status, error) {
	return mpi.TestSome(runtimeRequests(rs))
}

// runtimeRequests converts requests to those of package mpi, the runtime. Nil requests stay nil.
func runtimeRequests(rs []Request) []*mpi.Request {
	converted := make([]*mpi.Request, len(rs))
	for i, r := range rs {
		if r != nil {
			converted[i] = r.(*mpi.Request)
		}
	}
	return converted
}

// comm adapts a communicator: methods that return other objects of MPI adapt these.
type comm struct{ *mpi.Comm }

// request returns r as a Request: nil, not an interface with a nil pointer, if r is nil.
func request(r *mpi.Request, err error) (Request, error) {
	if r == nil {
		return nil, err
	}
	return r, err
}

// newComm wraps a communicator of the runtime as a Comm. It returns nil for nil, so that
// the interface compares equal to nil.
func newComm(c *mpi.Comm, err error) (Comm, error) {
	if c == nil {
		return nil, err
	}
	return comm{c}, err
}

// newMessage wraps a matched message of the runtime as a Message, and returns nil for nil.
func newMessage(m *mpi.Message) Message {
	if m == nil {
		return nil
	}
	return message{m}
}

// newWin wraps a window of the runtime as a Win, and returns nil for nil.
func newWin(w *mpi.Win, err error) (Win, error) {
	if w == nil {
		return nil, err
	}
	return win{w}, err
}

func (c comm) Split(color, key int) (Comm, error) { return newComm(c.Comm.Split(color, key)) }
func (c comm) SplitNode(key int) (Comm, error)    { return newComm(c.Comm.SplitNode(key)) }
func (c comm) Dup() (Comm, error)                 { return newComm(c.Comm.Dup()) }

func (c comm) SetErrorHandler(h func(rank, size int, err error) error) {
	c.Comm.SetErrorHandler(func(failed *mpi.Comm, err error) error { return h(failed.Rank(), failed.Size(), err) })
}

func (c comm) Isend(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.Isend(buf, dest, tag))
}

func (c comm) Issend(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.Issend(buf, dest, tag))
}

func (c comm) Ibsend(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.Ibsend(buf, dest, tag))
}

func (c comm) Irsend(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.Irsend(buf, dest, tag))
}

func (c comm) Irecv(buf []byte, source, tag int) (Request, error) {
	return request(c.Comm.Irecv(buf, source, tag))
}

func (c comm) SendInit(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.SendInit(buf, dest, tag))
}

func (c comm) SsendInit(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.SsendInit(buf, dest, tag))
}

func (c comm) BsendInit(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.BsendInit(buf, dest, tag))
}

func (c comm) RsendInit(buf []byte, dest, tag int) (Request, error) {
	return request(c.Comm.RsendInit(buf, dest, tag))
}

func (c comm) RecvInit(buf []byte, source, tag int) (Request, error) {
	return request(c.Comm.RecvInit(buf, source, tag))
}

func (c comm) Mprobe(source, tag int) (Message, Status, error) {
	m, st, err := c.Comm.Mprobe(source, tag)
	return newMessage(m), st, err
}

func (c comm) Improbe(source, tag int) (Message, Status, bool, error) {
	m, st, found, err := c.Comm.Improbe(source, tag)
	return newMessage(m), st, found, err
}

func (c comm) Ibarrier() (Request, error)        { return request(c.Comm.Ibarrier()) }
func (c comm) WinCreate(buf []byte) (Win, error) { return newWin(c.Comm.WinCreate(buf)) }
func (c comm) WinAllocate(size int) (Win, error) { return newWin(c.Comm.WinAllocate(size)) }

type message struct{ *mpi.Message }

func (m message) Irecv(buf []byte) (Request, error) { return request(m.Message.Irecv(buf)) }

type win struct{ *mpi.Win }

func (w win) Rput(origin []byte, target, at int) (Request, error) {
	return request(w.Win.Rput(origin, target, at))
}

func (w win) Rget(origin []byte, target, at int) (Request, error) {
	return request(w.Win.Rget(origin, target, at))
}

func (w win) Raccumulate(origin []byte, target, at int, t mpi.Type, op mpi.Op) (Request, error) {
	return request(w.Win.Raccumulate(origin, target, at, t, op))
}

func (w win) RgetAccumulate(origin, result []byte, target, at int, t mpi.Type, op mpi.Op) (Request, error) {
	return request(w.Win.RgetAccumulate(origin, result, target, at, t, op))
}
