package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// attachedBuffer is the buffer that buffered sends copy their messages to.
type attachedBuffer struct {
	buf      []byte
	present  bool
	messages []*bufferedMessage // ordered by offset
}

// bufferedMessage is a message that occupies space in the attached buffer until its send
// completes.
type bufferedMessage struct {
	req          p2p.Request
	offset, size int
}

// reclaim frees the space of completed sends.
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

// DetachBuffer waits until all buffered messages have been sent, and then removes the
// buffer.
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
		return w.rank.carrier.Invalidate(buf)
	})
}

// Bsend copies a message to the attached buffer and sends it from there. It does not
// block.
func (c *Comm) Bsend(buf []byte, dest, tag int) error {
	return c.locked("Bsend", c.checkSend(dest, tag), func() error { return c.bufferedSend(buf, dest, tag) })
}

// Ibsend is Bsend with a request, which is already complete.
func (c *Comm) Ibsend(buf []byte, dest, tag int) (*Request, error) {
	return c.begin("Ibsend", arguments{message{buf, dest, tag}, bsendRequest, p2p.Standard})
}

// bufferedSend copies a message to the attached buffer and starts to send it. The caller
// holds the lock.
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
	c.startSend(&m.req, c.context, message{part, dest, tag}, p2p.Standard)
	return nil
}
