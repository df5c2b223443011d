package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// persistent holds the arguments of a persistent request.
type persistent struct {
	buf       []byte
	peer, tag int
	kind      requestKind
	mode      p2p.Mode
}

// SendInit creates a persistent send, inactive until Start.
func (c *Comm) SendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("SendInit", persistent{buf, dest, tag, sendRequest, p2p.Standard})
}

// SsendInit creates a persistent synchronous send.
func (c *Comm) SsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("SsendInit", persistent{buf, dest, tag, sendRequest, p2p.Synchronous})
}

// BsendInit creates a persistent buffered send.
func (c *Comm) BsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("BsendInit", persistent{buf, dest, tag, bsendRequest, p2p.Standard})
}

// RsendInit creates a persistent ready send.
func (c *Comm) RsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.persist("RsendInit", persistent{buf, dest, tag, sendRequest, p2p.Ready})
}

// RecvInit creates a persistent receive.
func (c *Comm) RecvInit(buf []byte, source, tag int) (*Request, error) {
	return c.persist("RecvInit", persistent{buf, source, tag, recvRequest, 0})
}

// persist checks the arguments of a persistent request, and returns it.
func (c *Comm) persist(call string, p persistent) (*Request, error) {
	check := c.checkSend
	if p.kind == recvRequest {
		check = c.checkRecv
	}
	if err := check(p.peer, p.tag); err != nil {
		return nil, c.raise(call, err)
	}
	return &Request{c: c, call: call, persistent: &p}, nil
}

// Start starts an inactive persistent request.
func (r *Request) Start() error {
	switch {
	case r == nil || r.freed:
		return r.comm().raise("Start", fmt.Errorf("%w: it is nil or freed", ErrRequest))
	case r.persistent == nil:
		return r.c.raise("Start", fmt.Errorf("%w: the request of %s is not persistent", ErrRequest, r.call))
	case r.active:
		return r.c.raise("Start", fmt.Errorf("%w: it is active; wait for it first", ErrRequest))
	}
	if err := r.c.check(); err != nil {
		return r.c.raise("Start", err)
	}
	r.c.rank.lock()
	err := r.start()
	r.c.rank.unlock()
	return r.c.raise("Start", err)
}

// start starts the request. The caller holds the lock.
func (r *Request) start() error {
	p := r.persistent
	r.active, r.kind = true, p.kind
	switch {
	case p.peer == ProcNull:
		r.kind, r.status = completed, emptyStatus
		if p.kind == recvRequest {
			r.status = procNullStatus
		}
	case p.kind == recvRequest:
		r.c.startRecv(&r.p2p, r.c.context, message{p.buf, p.peer, p.tag})
	case p.kind == bsendRequest:
		if err := r.c.bufferedSend(p.buf, p.peer, p.tag); err != nil {
			r.active = false
			return err
		}
	default:
		r.c.startSend(&r.p2p, r.c.context, message{p.buf, p.peer, p.tag}, p.mode)
	}
	return nil
}

// StartAll starts persistent requests in order.
func StartAll(rs []*Request) error {
	for _, r := range rs {
		if err := r.Start(); err != nil {
			return err
		}
	}
	return nil
}
