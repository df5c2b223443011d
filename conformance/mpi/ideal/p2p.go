package ideal

import (
	"bytes"
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

// badTarget returns the error of an invalid destination or tag.
func (c *comm) badTarget(dest, tag int) error {
	defects := c.p.w.defects
	switch {
	case dest == mpi.ProcNull && defects.NullRefused:
		return mpi.ErrRank
	case dest == mpi.ProcNull:
		return nil
	case (dest < 0 || dest >= c.Size()) && !defects.RanksUnchecked:
		return mpi.ErrRank
	case tag == mpi.TagMax && defects.TagMaxRefused:
		return mpi.ErrTag
	case (tag < 0 || tag > mpi.TagMax) && !defects.TagsUnchecked:
		return mpi.ErrTag
	}
	return nil
}

// badSource returns the error of an invalid source or tag. Wildcards are valid.
func (c *comm) badSource(source, tag int) error {
	if source == mpi.AnySource {
		source = 0
	}
	if tag == mpi.AnyTag {
		tag = 0
	}
	return c.badTarget(source, tag)
}

// newSend returns a request for a send.
func (c *comm) newSend(m mode, buf []byte, dest, tag int) (*request, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.badTarget(dest, tag); err != nil {
		return nil, err
	}
	defects := c.p.w.defects
	from := buf
	if defects.InitCopies {
		from = bytes.Clone(buf)
	}
	start := func(r *request) error {
		if dest == mpi.ProcNull {
			if defects.NullBlocks {
				return nil
			}
			r.finish(nil)
			return nil
		}
		if dest < 0 || dest >= c.Size() { // accepted by a defect
			r.finish(nil)
			return nil
		}
		if defects.InitCopies && r.persistent {
			r.buf = from
		}
		return c.transmit(r, m)
	}
	return &request{p: c.p, c: c, buf: buf, source: dest, tag: tag, start: start}, nil
}

// transmit sends the message of a send request.
func (c *comm) transmit(r *request, m mode) error {
	defects := c.p.w.defects
	x := &msg{source: c.rank, tag: r.tag, data: r.buf, of: r, sender: c.p, sync: m == synchronous, ready: m == ready}
	free := func() { // the send is complete
		x.of = nil
		r.finish(nil)
		if !defects.LateCopy {
			x.data = bytes.Clone(r.buf)
		}
	}
	switch {
	case m == buffered && defects.BufferedWaits:
	case m == buffered:
		if need := len(r.buf) + overhead; c.p.used+need > c.p.attached && !defects.BufferUnbounded {
			return mpi.ErrBuffer
		}
		c.p.used += len(r.buf) + overhead
		x.buffered = true
		free()
	case m == synchronous && defects.SyncEarly,
		m == synchronous && defects.SyncSmallEarly && len(r.buf) < 1000,
		m != synchronous && len(r.buf) <= c.p.w.Eager,
		m != synchronous && defects.LateCopy:
		free()
	}
	to := c.g.ranks[r.source]
	into := c.g.boxes[r.source]
	if defects.WorldMatches {
		to, into = c.p.w.all.ranks[c.g.ranks[r.source]], c.p.w.all.boxes[c.g.ranks[r.source]]
	}
	c.p.w.enqueue(c.p.rank, to, into, x)
	return nil
}

// isend starts a send; name is the name of the call.
func (c *comm) isend(call string, m mode, buf []byte, dest, tag int) (cases.Request, error) {
	r, err := c.newSend(m, buf, dest, tag)
	if err == nil {
		err = r.begin()
	}
	if err != nil {
		return nil, c.fail(call, err)
	}
	if c.p.w.defects.IsendWaits {
		c.p.blockUntil("an Isend to be received", r.complete)
	}
	return r, nil
}

// send sends a message and waits until the send is complete.
func (c *comm) send(call string, m mode, buf []byte, dest, tag int) error {
	r, err := c.newSend(m, buf, dest, tag)
	if err == nil {
		err = r.begin()
	}
	if err == nil {
		c.p.blockUntil(call+" to be complete", r.complete)
		_, err = r.take()
	}
	return c.fail(call, err)
}

// sendInit returns a persistent request.
func (c *comm) sendInit(call string, m mode, buf []byte, dest, tag int) (cases.Request, error) {
	r, err := c.newSend(m, buf, dest, tag)
	if err != nil {
		return nil, c.fail(call, err)
	}
	r.persistent = true
	if c.p.w.defects.InitStarts {
		_ = r.begin()
	}
	return r, nil
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
	return c.sendInit("SendInit", standard, b, dest, tag)
}

func (c *comm) SsendInit(b []byte, dest, tag int) (cases.Request, error) {
	return c.sendInit("SsendInit", synchronous, b, dest, tag)
}

func (c *comm) BsendInit(b []byte, dest, tag int) (cases.Request, error) {
	return c.sendInit("BsendInit", buffered, b, dest, tag)
}

func (c *comm) RsendInit(b []byte, dest, tag int) (cases.Request, error) {
	return c.sendInit("RsendInit", ready, b, dest, tag)
}

// newRecv returns a request for a receive.
func (c *comm) newRecv(buf []byte, source, tag int) (*request, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.badSource(source, tag); err != nil {
		return nil, err
	}
	r := &request{p: c.p, c: c, buf: buf, source: source, tag: tag, box: c.g.boxes[c.rank]}
	r.start = func(r *request) error {
		if source == mpi.ProcNull {
			c.recvFromProcNull(r)
			return nil
		}
		box := r.box
		if c.p.w.defects.WorldMatches {
			box = c.p.w.all.boxes[c.p.rank]
		}
		c.p.w.post(box, r)
		return nil
	}
	return r, nil
}

// procNullStatus is the status of a receive from MPI_PROC_NULL.
var procNullStatus = mpi.Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}

// recvFromProcNull completes a receive from MPI_PROC_NULL.
func (c *comm) recvFromProcNull(r *request) {
	defects := c.p.w.defects
	if defects.NullBlocks {
		return
	}
	if defects.NullWipes {
		clear(r.buf)
	}
	r.st = procNullStatus
	if defects.NullIsAnySource {
		r.st = empty
	}
	r.finish(nil)
}

func (c *comm) Irecv(buf []byte, source, tag int) (cases.Request, error) {
	r, err := c.newRecv(buf, source, tag)
	if err == nil {
		err = r.begin()
	}
	if err != nil {
		return nil, c.fail("Irecv", err)
	}
	return r, nil
}

func (c *comm) RecvInit(buf []byte, source, tag int) (cases.Request, error) {
	r, err := c.newRecv(buf, source, tag)
	if err != nil {
		return nil, c.fail("RecvInit", err)
	}
	r.persistent = true
	if c.p.w.defects.InitStarts {
		_ = r.begin()
	}
	return r, nil
}

// recv receives a message.
func (c *comm) recv(call string, buf []byte, source, tag int) (mpi.Status, error) {
	r, err := c.newRecv(buf, source, tag)
	if err == nil {
		err = r.begin()
	}
	if err != nil {
		return mpi.Status{}, c.fail(call, err)
	}
	c.p.blockUntil("a message", r.complete)
	st, err := r.take()
	return st, c.fail(call, err)
}

func (c *comm) Recv(buf []byte, source, tag int) (mpi.Status, error) {
	return c.recv("Recv", buf, source, tag)
}

func (c *comm) Sendrecv(out []byte, dest, outTag int, in []byte, source, inTag int) (mpi.Status, error) {
	if c.p.w.defects.SendrecvInTurn {
		if err := c.send("Sendrecv", synchronous, out, dest, outTag); err != nil {
			return mpi.Status{}, err
		}
		return c.recv("Sendrecv", in, source, inTag)
	}
	s, err := c.newSend(standard, out, dest, outTag)
	if err != nil {
		return mpi.Status{}, c.fail("Sendrecv", err)
	}
	r, err := c.newRecv(in, source, inTag)
	if err != nil {
		return mpi.Status{}, c.fail("Sendrecv", err)
	}
	_ = r.begin()
	_ = s.begin()
	c.p.blockUntil("both parts of Sendrecv", func() bool { return r.complete() && s.complete() })
	st, err := r.take()
	return st, c.fail("Sendrecv", err)
}

func (c *comm) SendrecvReplace(buf []byte, dest, outTag, source, inTag int) (mpi.Status, error) {
	out := slices.Clone(buf)
	if c.p.w.defects.ReplaceSendsLate {
		clear(out)
	}
	return c.Sendrecv(out, dest, outTag, buf, source, inTag)
}
