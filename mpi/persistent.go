package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// persistent is what a request begins each time it is started.
type persistent struct {
	buf       []byte
	peer, tag int
	kind      kind
	mode      p2p.Mode
}

// SendInit makes a persistent send. It is inactive until it is started.
func (c *Comm) SendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("SendInit", persistent{buf, dest, tag, sends, p2p.Standard})
}

// SsendInit makes a persistent synchronous send.
func (c *Comm) SsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("SsendInit", persistent{buf, dest, tag, sends, p2p.Synchronous})
}

// BsendInit makes a persistent buffered send.
func (c *Comm) BsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("BsendInit", persistent{buf, dest, tag, buffered, p2p.Standard})
}

// RsendInit makes a persistent ready send.
func (c *Comm) RsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("RsendInit", persistent{buf, dest, tag, sends, p2p.Ready})
}

// RecvInit makes a persistent receive.
func (c *Comm) RecvInit(buf []byte, source, tag int) (*Request, error) {
	return c.persist("RecvInit", persistent{buf, source, tag, receives, 0})
}

func (c *Comm) persist(call string, p persistent) (*Request, error) {
	check := c.checkSend
	if p.kind == receives {
		check = c.checkRecv
	}
	if err := check(p.peer, p.tag); err != nil {
		return nil, c.raise(call, err)
	}
	return &Request{c: c, call: call, again: &p}, nil
}

// Start begins a persistent request, which must be inactive.
func (r *Request) Start() error {
	switch {
	case r == nil || r.freed:
		return r.comm().raise("Start", fmt.Errorf("%w: there is none any more", ErrRequest))
	case r.again == nil:
		return r.c.raise("Start", fmt.Errorf("%w: that of %s is not persistent", ErrRequest, r.call))
	case r.active:
		return r.c.raise("Start", fmt.Errorf("%w: it is active; wait for it first", ErrRequest))
	}
	if err := r.c.usable(); err != nil {
		return r.c.raise("Start", err)
	}
	r.c.k.lock()
	err := r.start()
	r.c.k.unlock()
	return r.c.raise("Start", err)
}

// start begins it once more. The lock is held.
func (r *Request) start() error {
	p := r.again
	r.active, r.kind = true, p.kind
	switch {
	case p.peer == ProcNull:
		r.kind, r.found = nothing, empty
		if p.kind == receives {
			r.found = fromNobody
		}
	case p.kind == receives:
		r.c.startRecv(&r.p, r.c.context, p.buf, p.peer, p.tag)
	case p.kind == buffered:
		if err := r.c.bufferedSend(p.buf, p.peer, p.tag); err != nil {
			r.active = false
			return err
		}
	default:
		r.c.startSend(&r.p, r.c.context, p.buf, p.peer, p.tag, p.mode)
	}
	return nil
}

// StartAll begins persistent requests, in their order.
func StartAll(rs []*Request) error {
	for _, r := range rs {
		if err := r.Start(); err != nil {
			return err
		}
	}
	return nil
}
