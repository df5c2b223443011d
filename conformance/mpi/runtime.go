package mpi

import "github.com/fabrictest/fabrictest/mpi"

// On shows cases the runtime of package mpi.
func On(w *mpi.World) World { return world{w, comm{w.Comm}} }

type world struct {
	*mpi.World
	comm
}

func (w world) Self() Comm { return comm{w.World.Self()} }

func (world) StartAll(rs []Request) error                    { return mpi.StartAll(all(rs)) }
func (world) WaitAll(rs []Request) ([]Status, error)         { return mpi.WaitAll(all(rs)) }
func (world) WaitAny(rs []Request) (int, Status, error)      { return mpi.WaitAny(all(rs)) }
func (world) WaitSome(rs []Request) ([]int, []Status, error) { return mpi.WaitSome(all(rs)) }
func (world) TestAll(rs []Request) ([]Status, bool, error)   { return mpi.TestAll(all(rs)) }
func (world) TestAny(rs []Request) (int, Status, bool, error) {
	return mpi.TestAny(all(rs))
}
func (world) TestSome(rs []Request) ([]int, []Status, error) { return mpi.TestSome(all(rs)) }

// all are the runtime's own requests; nil ones stay nil.
func all(rs []Request) []*mpi.Request {
	own := make([]*mpi.Request, len(rs))
	for i, r := range rs {
		if r != nil {
			own[i] = r.(*mpi.Request)
		}
	}
	return own
}

type comm struct{ c *mpi.Comm }

// one keeps a nil request from becoming a request that is not nil.
func one(r *mpi.Request, err error) (Request, error) {
	if r == nil {
		return nil, err
	}
	return r, err
}

func made(c *mpi.Comm, err error) (Comm, error) {
	if c == nil {
		return nil, err
	}
	return comm{c}, err
}

func taken(m *mpi.Message) Message {
	if m == nil {
		return nil
	}
	return message{m}
}

func opened(w *mpi.Win, err error) (Win, error) {
	if w == nil {
		return nil, err
	}
	return win{w}, err
}

func (c comm) Rank() int                          { return c.c.Rank() }
func (c comm) Size() int                          { return c.c.Size() }
func (c comm) Node(rank int) int                  { return c.c.Node(rank) }
func (c comm) Split(color, key int) (Comm, error) { return made(c.c.Split(color, key)) }
func (c comm) SplitNode(key int) (Comm, error)    { return made(c.c.SplitNode(key)) }
func (c comm) Dup() (Comm, error)                 { return made(c.c.Dup()) }
func (c comm) Free() error                        { return c.c.Free() }

func (c comm) SetErrorHandler(h func(rank, size int, err error) error) {
	c.c.SetErrorHandler(func(of *mpi.Comm, err error) error { return h(of.Rank(), of.Size(), err) })
}

func (c comm) Send(buf []byte, dest, tag int) error  { return c.c.Send(buf, dest, tag) }
func (c comm) Ssend(buf []byte, dest, tag int) error { return c.c.Ssend(buf, dest, tag) }
func (c comm) Bsend(buf []byte, dest, tag int) error { return c.c.Bsend(buf, dest, tag) }
func (c comm) Rsend(buf []byte, dest, tag int) error { return c.c.Rsend(buf, dest, tag) }
func (c comm) Recv(buf []byte, source, tag int) (Status, error) {
	return c.c.Recv(buf, source, tag)
}

func (c comm) Isend(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.Isend(buf, dest, tag))
}

func (c comm) Issend(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.Issend(buf, dest, tag))
}

func (c comm) Ibsend(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.Ibsend(buf, dest, tag))
}

func (c comm) Irsend(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.Irsend(buf, dest, tag))
}

func (c comm) Irecv(buf []byte, source, tag int) (Request, error) {
	return one(c.c.Irecv(buf, source, tag))
}

func (c comm) SendInit(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.SendInit(buf, dest, tag))
}

func (c comm) SsendInit(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.SsendInit(buf, dest, tag))
}

func (c comm) BsendInit(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.BsendInit(buf, dest, tag))
}

func (c comm) RsendInit(buf []byte, dest, tag int) (Request, error) {
	return one(c.c.RsendInit(buf, dest, tag))
}

func (c comm) RecvInit(buf []byte, source, tag int) (Request, error) {
	return one(c.c.RecvInit(buf, source, tag))
}

func (c comm) Sendrecv(sendbuf []byte, dest, sendtag int, recvbuf []byte, source, recvtag int) (Status, error) {
	return c.c.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag)
}

func (c comm) SendrecvReplace(buf []byte, dest, sendtag, source, recvtag int) (Status, error) {
	return c.c.SendrecvReplace(buf, dest, sendtag, source, recvtag)
}
func (c comm) Probe(source, tag int) (Status, error)        { return c.c.Probe(source, tag) }
func (c comm) Iprobe(source, tag int) (Status, bool, error) { return c.c.Iprobe(source, tag) }
func (c comm) Mprobe(source, tag int) (Message, Status, error) {
	m, st, err := c.c.Mprobe(source, tag)
	return taken(m), st, err
}

func (c comm) Improbe(source, tag int) (Message, Status, bool, error) {
	m, st, found, err := c.c.Improbe(source, tag)
	return taken(m), st, found, err
}

func (c comm) Barrier() error                   { return c.c.Barrier() }
func (c comm) Ibarrier() (Request, error)       { return one(c.c.Ibarrier()) }
func (c comm) Bcast(buf []byte, root int) error { return c.c.Bcast(buf, root) }
func (c comm) Allreduce(buf []byte, t mpi.Type, op mpi.Op) error {
	return c.c.Allreduce(buf, t, op)
}
func (c comm) Allgather(mine, all []byte) error  { return c.c.Allgather(mine, all) }
func (c comm) Alltoall(send, recv []byte) error  { return c.c.Alltoall(send, recv) }
func (c comm) WinCreate(buf []byte) (Win, error) { return opened(c.c.WinCreate(buf)) }
func (c comm) WinAllocate(size int) (Win, error) { return opened(c.c.WinAllocate(size)) }

type message struct{ m *mpi.Message }

func (m message) Recv(buf []byte) (Status, error)   { return m.m.Recv(buf) }
func (m message) Irecv(buf []byte) (Request, error) { return one(m.m.Irecv(buf)) }

type win struct{ *mpi.Win }

func (w win) Rput(origin []byte, target, at int) (Request, error) {
	return one(w.Win.Rput(origin, target, at))
}

func (w win) Rget(origin []byte, target, at int) (Request, error) {
	return one(w.Win.Rget(origin, target, at))
}

func (w win) Raccumulate(origin []byte, target, at int, t mpi.Type, op mpi.Op) (Request, error) {
	return one(w.Win.Raccumulate(origin, target, at, t, op))
}

func (w win) RgetAccumulate(origin, result []byte, target, at int, t mpi.Type, op mpi.Op) (Request, error) {
	return one(w.Win.RgetAccumulate(origin, result, target, at, t, op))
}
