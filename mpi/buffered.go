package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// attached is the buffer of buffered sends.
type attachedBuffer struct {
	buf      []byte
	present  bool
	messages []*bufferedMessage // in the order of their places
}

// placed is a message that lies in it until it has left.
type bufferedMessage struct {
	req          p2p.Request
	offset, size int
}

// reclaim gives back the places of messages that have left.
func (a *attachedBuffer) reclaim() {
	a.messages = slices.DeleteFunc(a.messages, func(m *bufferedMessage) bool { return m.req.Done() })
}

// place finds room for n bytes: the first that is large enough.
func (a *attachedBuffer) alloc(n int) *bufferedMessage {
	at := 0
	for i, m := range a.messages {
		if m.offset-at >= n {
			return a.insert(i, at, n)
		}
		at = m.offset + m.size
	}
	if len(a.buf)-at >= n {
		return a.insert(len(a.messages), at, n)
	}
	return nil
}

func (a *attachedBuffer) insert(i, at, n int) *bufferedMessage {
	m := &bufferedMessage{offset: at, size: n}
	a.messages = slices.Insert(a.messages, i, m)
	return m
}

// AttachBuffer gives buffered sends n bytes. A message needs as many as it has.
func (w *World) AttachBuffer(n int) error {
	err := w.check()
	if err == nil && n < 0 {
		err = fmt.Errorf("%w: a buffer of %d bytes", ErrArg, n)
	}
	if err != nil {
		return w.raise("AttachBuffer", err)
	}
	w.k.lock()
	a := &w.k.bsendBuffer
	if a.present {
		err = fmt.Errorf("%w: one of %d bytes is attached already; detach it first", ErrBuffer, len(a.buf))
	} else {
		a.present, a.buf = true, make([]byte, n)
	}
	w.k.unlock()
	return w.raise("AttachBuffer", err)
}

// DetachBuffer takes the buffer back when all messages in it have left.
func (w *World) DetachBuffer() error {
	if err := w.check(); err != nil {
		return w.raise("DetachBuffer", err)
	}
	k := w.k
	k.lock()
	a := &k.bsendBuffer
	if !a.present {
		k.unlock()
		return w.raise("DetachBuffer", fmt.Errorf("%w: none is attached", ErrBuffer))
	}
	k.waitUntil(func() bool {
		a.reclaim()
		return len(a.messages) == 0
	})
	gone := a.buf
	k.bsendBuffer = attachedBuffer{}
	err := k.carrier.Invalidate(gone)
	k.unlock()
	return w.raise("DetachBuffer", err)
}

// Bsend sends a message from the attached buffer, and does not wait.
func (c *Comm) Bsend(buf []byte, dest, tag int) error { return c.bsend("Bsend", buf, dest, tag) }

// Ibsend begins a buffered send; it is complete at once.
func (c *Comm) Ibsend(buf []byte, dest, tag int) (*Request, error) {
	if err := c.bsend("Ibsend", buf, dest, tag); err != nil {
		return nil, err
	}
	return &Request{c: c, call: "Ibsend", active: true, kind: bsendRequest}, nil
}

func (c *Comm) bsend(call string, buf []byte, dest, tag int) error {
	err := c.checkSend(dest, tag)
	if err == nil && dest != ProcNull {
		c.k.lock()
		err = c.bufferedSend(buf, dest, tag)
		c.k.unlock()
	}
	return c.raise(call, err)
}

// bufferedSend sends a message from a place in the attached buffer. The lock is held.
func (c *Comm) bufferedSend(buf []byte, dest, tag int) error {
	a := &c.k.bsendBuffer
	m := a.alloc(len(buf))
	if m == nil {
		c.k.progress() // some of what lies there may have left
		a.reclaim()
		m = a.alloc(len(buf))
	}
	switch {
	case m != nil:
	case !a.present:
		return fmt.Errorf("%w: none is attached; World.AttachBuffer does so", ErrBuffer)
	default:
		return fmt.Errorf("%w: %d bytes more than %d messages leave of %d", ErrBuffer, len(buf), len(a.messages), len(a.buf))
	}
	part := a.buf[m.offset : m.offset+m.size]
	copy(part, buf)
	c.startSend(&m.req, c.context, part, dest, tag, p2p.Standard)
	return nil
}
