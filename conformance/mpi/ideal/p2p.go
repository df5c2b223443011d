package ideal

import (
	"bytes"
	"cmp"
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// mode is the mode of a send.
type mode int

const (
	standard mode = iota
	synchronous
	buffered
	ready
)

// checkDest returns an error if the destination or the tag is invalid.
func (c *comm) checkDest(dest, tag int) error {
	switch {
	case dest == mpi.ProcNull && c.Defects.NullRefused:
		return mpi.ErrRank
	case dest == mpi.ProcNull:
		return nil
	case !c.hasRank(dest) && !c.Defects.RanksUnchecked:
		return mpi.ErrRank
	case tag == mpi.TagMax && c.Defects.TagMaxRefused:
		return mpi.ErrTag
	case (tag < 0 || tag > mpi.TagMax) && !c.Defects.TagsUnchecked:
		return mpi.ErrTag
	}
	return nil
}

// checkSource returns an error if the source or the tag is invalid. Wildcards are valid.
func (c *comm) checkSource(source, tag int) error {
	if source == mpi.AnySource {
		source = 0
	}
	if tag == mpi.AnyTag {
		tag = 0
	}
	return c.checkDest(source, tag)
}

// newSend returns the request of a send, not started, or nil if an argument is invalid. call is the
// name of the MPI call in errors.
func (c *comm) newSend(call string, m mode, buf []byte, dest, tag int) (*request, error) {
	if err := cmp.Or(c.startCall(), c.checkDest(dest, tag)); err != nil {
		return nil, c.fail(call, err)
	}
	var initialData []byte
	if c.Defects.InitCopies { // persistent sends repeat the data of their creation
		initialData = bytes.Clone(buf)
	}
	start := func(r *request) error {
		switch {
		case dest == mpi.ProcNull && c.Defects.NullBlocks:
			return nil
		case !c.hasRank(dest): // MPI_PROC_NULL, or an invalid rank that a defect accepts
			r.finish(nil)
			return nil
		case c.Defects.InitCopies && r.persistent:
			r.buf = initialData
		}
		return c.transmit(r, m)
	}
	return &request{c: c, call: call, buf: buf, peer: dest, tag: tag, start: start}, nil
}

// transmit sends the message of a send request. Buffered sends, and standard and ready sends up to
// the eager limit, complete at once; others complete when the message is received.
func (c *comm) transmit(r *request, m mode) error {
	message := &msg{source: c.rank, tag: r.tag, data: r.buf, send: r, sender: c.proc, sync: m == synchronous, ready: m == ready}
	completeEarly := func() { // before the message is received
		message.send = nil
		r.finish(nil)
		if !c.Defects.LateCopy {
			message.data = bytes.Clone(r.buf)
		}
	}
	switch {
	case m == buffered && c.Defects.BufferedWaits: // the send completes when the message is received
	case m == buffered:
		need := len(r.buf) + overhead
		if c.bufferUsed+need > c.bufferSize && !c.Defects.BufferUnbounded {
			return mpi.ErrBuffer
		}
		c.bufferUsed += need
		message.buffered = true
		completeEarly()
	case m == synchronous && c.Defects.SyncEarly,
		m == synchronous && c.Defects.SyncSmallEarly && len(r.buf) < 1000,
		m == synchronous && c.Defects.SyncAtLimitEarly && len(r.buf) == c.Eager,
		m != synchronous && len(r.buf) <= c.Eager,
		m != synchronous && c.Defects.LateCopy:
		completeEarly()
	}
	dest := c.group.ranks[r.peer]
	queues := c.group.queues[r.peer]
	if c.Defects.WorldMatches {
		queues = c.all.queues[dest]
	}
	c.enqueue(c.proc.rank, dest, queues, message)
	return nil
}

// startRequest starts r. r and err are the results of newSend or newRecv: if an argument was
// invalid, r is nil, and err is nil as well if an error handler has ignored the error.
func startRequest(r *request, err error) (cases.Request, error) {
	if r == nil {
		return nil, err
	}
	if err := r.begin(); err != nil {
		return nil, r.c.fail(r.call, err)
	}
	return r, nil
}

// runRequest starts a new request, and waits for its end. r and err are as in startRequest.
func runRequest(r *request, err error) (mpi.Status, error) {
	if r == nil {
		return mpi.Status{}, err
	}
	if err := r.begin(); err != nil {
		return mpi.Status{}, r.c.fail(r.call, err)
	}
	waitingFor := r.call + " to be complete"
	if r.queues != nil { // a receive
		waitingFor = "a message"
	}
	r.c.blockUntil(waitingFor, r.isComplete)
	st, err := r.deactivate()
	return st, r.c.fail(r.call, err)
}

// makePersistent makes a new request persistent; Start starts it. r and err are as in startRequest.
func makePersistent(r *request, err error) (cases.Request, error) {
	if r == nil {
		return nil, err
	}
	r.persistent = true
	if r.c.Defects.InitStarts {
		_ = r.begin()
	}
	return r, nil
}

// isend starts a send. With the defect IsendWaits it also waits for the end of the send.
func (c *comm) isend(call string, m mode, buf []byte, dest, tag int) (cases.Request, error) {
	r, err := startRequest(c.newSend(call, m, buf, dest, tag))
	if r != nil && c.Defects.IsendWaits {
		c.blockUntil("an Isend to be received", r.(*request).isComplete)
	}
	return r, err
}

// send sends a message and waits until the send is complete.
func (c *comm) send(call string, m mode, buf []byte, dest, tag int) error {
	_, err := runRequest(c.newSend(call, m, buf, dest, tag))
	return err
}

func (c *comm) Send(b []byte, dest, tag int) error { return c.send("Send", standard, b, dest, tag) }
func (c *comm) Ssend(b []byte, dest, tag int) error {
	return c.send("Ssend", synchronous, b, dest, tag)
}

func (c *comm) Bsend(b []byte, dest, tag int) error { return c.send("Bsend", buffered, b, dest, tag) }
func (c *comm) Rsend(b []byte, dest, tag int) error { return c.send("Rsend", ready, b, dest, tag) }

func (c *comm) Isend(b []byte, dest, tag int) (cases.Request, error) {
	return c.isend("Isend", standard, b, dest, tag)
}

func (c *comm) Issend(b []byte, dest, tag int) (cases.Request, error) {
	return c.isend("Issend", synchronous, b, dest, tag)
}

func (c *comm) Ibsend(b []byte, dest, tag int) (cases.Request, error) {
	return c.isend("Ibsend", buffered, b, dest, tag)
}

func (c *comm) Irsend(b []byte, dest, tag int) (cases.Request, error) {
	return c.isend("Irsend", ready, b, dest, tag)
}

func (c *comm) SendInit(b []byte, dest, tag int) (cases.Request, error) {
	return makePersistent(c.newSend("SendInit", standard, b, dest, tag))
}

func (c *comm) SsendInit(b []byte, dest, tag int) (cases.Request, error) {
	return makePersistent(c.newSend("SsendInit", synchronous, b, dest, tag))
}

func (c *comm) BsendInit(b []byte, dest, tag int) (cases.Request, error) {
	return makePersistent(c.newSend("BsendInit", buffered, b, dest, tag))
}

func (c *comm) RsendInit(b []byte, dest, tag int) (cases.Request, error) {
	return makePersistent(c.newSend("RsendInit", ready, b, dest, tag))
}

// newRecv returns the request of a receive, not started, or nil if an argument is invalid.
func (c *comm) newRecv(call string, buf []byte, source, tag int) (*request, error) {
	if err := cmp.Or(c.startCall(), c.checkSource(source, tag)); err != nil {
		return nil, c.fail(call, err)
	}
	start := func(r *request) error {
		switch {
		case source == mpi.ProcNull:
			c.recvFromProcNull(r)
		case c.Defects.WorldMatches:
			c.postRecv(c.all.queues[c.proc.rank], r)
		default:
			c.postRecv(r.queues, r)
		}
		return nil
	}
	return &request{c: c, call: call, buf: buf, peer: source, tag: tag, queues: c.queues(), start: start}, nil
}

// procNullStatus is the status of a receive from MPI_PROC_NULL.
var procNullStatus = mpi.Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}

// recvFromProcNull completes a receive from MPI_PROC_NULL. Defects block it or falsify its result.
func (c *comm) recvFromProcNull(r *request) {
	if c.Defects.NullBlocks {
		return
	}
	if c.Defects.NullWipes {
		clear(r.buf)
	}
	r.st = procNullStatus
	if c.Defects.NullIsAnySource {
		r.st = emptyStatus
	}
	r.finish(nil)
}

func (c *comm) Irecv(buf []byte, source, tag int) (cases.Request, error) {
	return startRequest(c.newRecv("Irecv", buf, source, tag))
}

func (c *comm) RecvInit(buf []byte, source, tag int) (cases.Request, error) {
	return makePersistent(c.newRecv("RecvInit", buf, source, tag))
}

func (c *comm) Recv(buf []byte, source, tag int) (mpi.Status, error) {
	return runRequest(c.newRecv("Recv", buf, source, tag))
}

// Sendrecv is MPI_Sendrecv. The defect SendrecvInTurn receives only after the send is complete.
func (c *comm) Sendrecv(out []byte, dest, outTag int, in []byte, source, inTag int) (mpi.Status, error) {
	if c.Defects.SendrecvInTurn {
		if err := c.send("Sendrecv", synchronous, out, dest, outTag); err != nil {
			return mpi.Status{}, err
		}
		return runRequest(c.newRecv("Sendrecv", in, source, inTag))
	}
	s, err := c.newSend("Sendrecv", standard, out, dest, outTag)
	if s == nil {
		return mpi.Status{}, err
	}
	r, err := c.newRecv("Sendrecv", in, source, inTag)
	if r == nil {
		return mpi.Status{}, err
	}
	_ = r.begin() // only a buffered send can fail to start
	_ = s.begin()
	c.blockUntil("both parts of Sendrecv", func() bool { return r.isComplete() && s.isComplete() })
	st, err := r.deactivate()
	return st, c.fail("Sendrecv", err)
}

// SendrecvReplace is MPI_Sendrecv_replace. The defect ReplaceSendsLate sends zeros, as if the buffer
// were read too late.
func (c *comm) SendrecvReplace(buf []byte, dest, outTag, source, inTag int) (mpi.Status, error) {
	out := slices.Clone(buf)
	if c.Defects.ReplaceSendsLate {
		clear(out)
	}
	return c.Sendrecv(out, dest, outTag, buf, source, inTag)
}
