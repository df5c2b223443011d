package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
)

// Send sends a message. It may return before the message is received.
func (c *Comm) Send(buf []byte, dest, tag int) error {
	return c.send("Send", buf, dest, tag, p2p.Standard)
}

// Ssend is a synchronous send: it returns when the receive has started.
func (c *Comm) Ssend(buf []byte, dest, tag int) error {
	return c.send("Ssend", buf, dest, tag, p2p.Synchronous)
}

// Rsend is a ready send: the receive must already be posted. If it is not, the message is
// delivered and counted in Stats.P2P.NotReady.
func (c *Comm) Rsend(buf []byte, dest, tag int) error {
	return c.send("Rsend", buf, dest, tag, p2p.Ready)
}

// send sends a message and waits for completion. Functions are not passed as values here, because
// that takes a good part of the time of a short message.
func (c *Comm) send(call string, buf []byte, dest, tag int, mode p2p.Mode) error {
	err := c.checkSend(dest, tag)
	if err != nil || dest == ProcNull {
		return c.raise(call, err)
	}
	c.rank.lock()
	r := c.rank.allocP2P()
	c.startBlockingSend(r, c.context, message{buf, dest, tag}, mode)
	if t := c.rank.calls; t != nil {
		t.waitsForP2P(r)
	}
	c.rank.carrier.Flush() // the program may compute next
	_, err = c.await(r)
	c.rank.unlock()
	return c.raise(call, err)
}

// await waits until a request of allocP2P that the caller has started completes, and frees it.
// The caller holds the lock.
func (c *Comm) await(r *p2p.Request) (Status, error) {
	if !r.Done() {
		c.rank.waitUntil(r.Done)
	}
	st, err := c.recvStatus(r), r.Err
	c.rank.freeP2P(r)
	return st, err
}

// message is the buffer, the peer, a rank of the communicator, and the tag of a send or a receive.
type message struct {
	buf       []byte
	peer, tag int
}

// startSend starts a nonblocking send. The caller holds the lock.
func (c *Comm) startSend(p *p2p.Request, context uint32, m message, mode p2p.Mode) {
	p.Peer, p.Context, p.Tag, p.Buf, p.Mode, p.Blocking = c.worldRank(m.peer), context, int32(m.tag), m.buf, mode, false
	if c.rank.races != nil {
		c.rank.races.startSend(p)
	}
	if t := c.rank.calls; t != nil {
		t.started(c, p, false)
	}
	c.rank.p2p.Isend(p)
}

// startBlockingSend starts a send whose caller waits for this send only: unless the mode is
// Synchronous, the transport copies eager data, so that the send completes at once.
func (c *Comm) startBlockingSend(p *p2p.Request, context uint32, m message, mode p2p.Mode) {
	p.Peer, p.Context, p.Tag, p.Buf, p.Mode, p.Blocking = c.worldRank(m.peer), context, int32(m.tag), m.buf, mode, mode != p2p.Synchronous
	if c.rank.races != nil {
		c.rank.races.startSend(p)
	}
	if t := c.rank.calls; t != nil {
		t.started(c, p, false)
	}
	c.rank.p2p.Isend(p)
}

// Isend starts a nonblocking Send. The buffer must not change until the request completes.
func (c *Comm) Isend(buf []byte, dest, tag int) (*Request, error) {
	return c.startRequest("Isend", arguments{message{buf, dest, tag}, sendRequest, p2p.Standard})
}

// Issend starts a nonblocking Ssend: its request completes when the receive has started.
func (c *Comm) Issend(buf []byte, dest, tag int) (*Request, error) {
	return c.startRequest("Issend", arguments{message{buf, dest, tag}, sendRequest, p2p.Synchronous})
}

// Irsend starts a nonblocking Rsend: the receive must already be posted.
func (c *Comm) Irsend(buf []byte, dest, tag int) (*Request, error) {
	return c.startRequest("Irsend", arguments{message{buf, dest, tag}, sendRequest, p2p.Ready})
}

// Recv receives a message.
func (c *Comm) Recv(buf []byte, source, tag int) (Status, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return emptyStatus, c.raise("Recv", err)
	}
	if source == ProcNull {
		return procNullStatus, nil
	}
	c.rank.lock()
	r := c.rank.allocP2P()
	c.startRecv(r, c.context, message{buf, source, tag})
	if t := c.rank.calls; t != nil {
		t.waitsForP2P(r)
	}
	st, err := c.await(r)
	c.rank.unlock()
	return st, c.raise("Recv", err)
}

// startRecv starts a receive. The caller holds the lock.
func (c *Comm) startRecv(p *p2p.Request, context uint32, m message) {
	if m.peer != AnySource {
		m.peer = c.worldRank(m.peer)
	}
	p.Peer, p.Context, p.Tag, p.Buf = m.peer, context, int32(m.tag), m.buf
	if c.rank.races != nil {
		c.rank.races.startRecv(p, p.Buf)
	}
	if t := c.rank.calls; t != nil {
		t.started(c, p, true)
	}
	c.rank.p2p.Irecv(p)
}

// recvStatus returns the status of a completed receive; empty if it failed before the transfer.
func (c *Comm) recvStatus(p *p2p.Request) Status {
	switch {
	case p.Cancelled:
		return Status{Source: AnySource, Tag: AnyTag, Cancelled: true}
	case p.Err == nil || p.Size > 0: // a receive that failed without a message has no size
		return Status{Source: c.rankOf(p.Source), Tag: int(p.MatchedTag), Count: min(p.Size, len(p.Buf))}
	}
	return emptyStatus
}

// Irecv starts a receive.
func (c *Comm) Irecv(buf []byte, source, tag int) (*Request, error) {
	return c.startRequest("Irecv", arguments{message{buf, source, tag}, recvRequest, 0})
}

// Sendrecv sends a message and receives another, without deadlock.
func (c *Comm) Sendrecv(sendbuf []byte, dest, sendtag int, recvbuf []byte, source, recvtag int) (Status, error) {
	return c.sendrecv("Sendrecv", message{sendbuf, dest, sendtag}, message{recvbuf, source, recvtag})
}

// SendrecvReplace sends the contents of a buffer and receives into the same buffer.
func (c *Comm) SendrecvReplace(buf []byte, dest, sendtag, source, recvtag int) (Status, error) {
	return c.sendrecv("SendrecvReplace", message{slices.Clone(buf), dest, sendtag}, message{buf, source, recvtag})
}

// sendrecv checks the arguments, sends one message, receives the other, and waits for both.
func (c *Comm) sendrecv(call string, out, in message) (Status, error) {
	err := c.checkSend(out.peer, out.tag)
	if err == nil {
		err = c.checkRecv(in.peer, in.tag)
	}
	if err != nil {
		return emptyStatus, c.raise(call, err)
	}
	c.rank.lock()
	st, err := c.sendrecvLocked(out, in)
	c.rank.unlock()
	return st, c.raise(call, err)
}

// sendrecvLocked sends and receives, each unless its peer is ProcNull, and waits for both. The
// caller holds the lock.
func (c *Comm) sendrecvLocked(out, in message) (st Status, err error) {
	st = procNullStatus
	var s, r *p2p.Request
	if in.peer != ProcNull {
		r = c.rank.allocP2P()
		c.startRecv(r, c.context, in)
	}
	if out.peer != ProcNull {
		s = c.rank.allocP2P()
		c.startSend(s, c.context, out, p2p.Standard)
	}
	if t := c.rank.calls; t != nil {
		t.waitsForP2P(s, r)
	}
	if r != nil {
		c.rank.waitUntil(r.Done)
		st, err = c.recvStatus(r), r.Err
		c.rank.freeP2P(r)
	}
	if s != nil {
		c.rank.waitUntil(s.Done)
		if err == nil {
			err = s.Err
		}
		c.rank.freeP2P(s)
	}
	return st, err
}

// attachedBuffer is the buffer that buffered sends copy their messages to.
type attachedBuffer struct {
	buf      []byte
	present  bool
	messages []*bufferedMessage // ordered by offset
}

// bufferedMessage is a message that occupies space in the attached buffer until its send completes.
type bufferedMessage struct {
	req          p2p.Request
	offset, size int
}

// reclaim makes the space of messages whose sends are complete available to later buffered sends.
func (a *attachedBuffer) reclaim() {
	a.messages = slices.DeleteFunc(a.messages, func(m *bufferedMessage) bool { return m.req.Done() })
}

// alloc allocates n bytes of the buffer by first fit; nil if no gap is large enough.
func (a *attachedBuffer) alloc(n int) *bufferedMessage {
	at, index := 0, 0 // of the first gap that is large enough
	for i, m := range a.messages {
		if m.offset-at >= n {
			break
		}
		at, index = m.offset+m.size, i+1
	}
	if index == len(a.messages) && len(a.buf)-at < n {
		return nil
	}
	m := &bufferedMessage{offset: at, size: n}
	a.messages = slices.Insert(a.messages, index, m)
	return m
}

// AttachBuffer allocates n bytes for buffered sends. A message needs exactly its own size;
// there is no overhead per message.
func (w *World) AttachBuffer(n int) error {
	err := w.check()
	if err == nil && n < 0 {
		err = fmt.Errorf("%w: buffer size %d is negative", ErrArg, n)
	}
	return w.locked("AttachBuffer", err, func() error {
		a := &w.rank.bsendBuffer
		if a.present {
			return fmt.Errorf("%w: a buffer of %d bytes is already attached; detach it first", ErrBuffer, len(a.buf))
		}
		a.present, a.buf = true, make([]byte, n)
		return nil
	})
}

// DetachBuffer waits until all buffered messages have been sent, and then removes the buffer.
func (w *World) DetachBuffer() error {
	return w.locked("DetachBuffer", w.check(), func() error {
		a := &w.rank.bsendBuffer
		if !a.present {
			return fmt.Errorf("%w: no buffer is attached", ErrBuffer)
		}
		w.rank.waitUntil(func() bool {
			a.reclaim()
			return len(a.messages) == 0
		})
		buf := a.buf
		*a = attachedBuffer{}
		return w.rank.carrier.Invalidate(buf) // deregisters it
	})
}

// Bsend copies a message to the attached buffer and sends it from there. It does not block.
func (c *Comm) Bsend(buf []byte, dest, tag int) error {
	return c.locked("Bsend", c.checkSend(dest, tag), func() error { return c.bufferedSend(buf, dest, tag) })
}

// Ibsend copies a message to the attached buffer and sends it. Its request is already complete.
func (c *Comm) Ibsend(buf []byte, dest, tag int) (*Request, error) {
	return c.startRequest("Ibsend", arguments{message{buf, dest, tag}, bsendRequest, p2p.Standard})
}

// bufferedSend copies a message to the attached buffer and sends it. The caller holds the lock.
func (c *Comm) bufferedSend(buf []byte, dest, tag int) error {
	if dest == ProcNull {
		return nil
	}
	a := &c.rank.bsendBuffer
	m := a.alloc(len(buf))
	if m == nil {
		c.rank.progress() // may complete earlier sends
		a.reclaim()
		m = a.alloc(len(buf))
	}
	switch {
	case m != nil:
	case !a.present:
		return fmt.Errorf("%w: no buffer is attached; call World.AttachBuffer first", ErrBuffer)
	default:
		return fmt.Errorf("%w: no space for %d bytes: %d messages occupy the buffer of %d bytes", ErrBuffer, len(buf), len(a.messages), len(a.buf))
	}
	part := a.buf[m.offset : m.offset+m.size]
	copy(part, buf)
	if c.rank.races != nil {
		c.rank.races.touch(racecheck.Load, buf)
		defer c.rank.races.finish(&m.req) // the program does not know part
	}
	if t := c.rank.calls; t != nil {
		t.buffered = true
		defer func() { t.buffered = false }()
	}
	c.startSend(&m.req, c.context, message{part, dest, tag}, p2p.Standard)
	return nil
}
