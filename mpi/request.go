package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// Request is the handle of a nonblocking operation. A nil *Request is inactive.
type Request struct {
	c      *Comm
	call   string // that created it
	kind   requestKind
	active bool
	freed  bool

	p2p        p2p.Request // of sends and receives
	status     Status      // of requests that were complete when created
	ibarrier   *ibarrier
	op         *window.Operation // of RMA operations
	persistent *persistent       // arguments of a persistent request
}

// requestKind is the kind of operation.
type requestKind uint8

const (
	completed requestKind = iota // complete when created
	sendRequest
	recvRequest
	bsendRequest
	ibarrierRequest
	rmaRequest
)

// complete reports whether the operation has completed.
func (r *Request) complete() bool {
	switch r.kind {
	case sendRequest, recvRequest:
		return r.p2p.Done()
	case ibarrierRequest:
		return r.ibarrier.done
	case rmaRequest:
		return r.op.Done()
	}
	return true
}

// result returns the status and the error of a complete request.
func (r *Request) result() (Status, error) {
	switch r.kind {
	case sendRequest:
		return emptyStatus, r.p2p.Err
	case recvRequest:
		return r.c.recvStatus(&r.p2p), r.p2p.Err
	case ibarrierRequest:
		return emptyStatus, r.ibarrier.err
	case rmaRequest:
		return emptyStatus, r.op.Err()
	case completed:
		return r.status, nil
	}
	return emptyStatus, nil
}

// finish deactivates a complete request and returns its result.
func (r *Request) finish() (Status, error) {
	r.active = false
	return r.result()
}

// allocRequest returns a request for a blocking call, from a free list.
func (k *rank) allocRequest() *Request {
	n := len(k.freeRequests)
	if n == 0 {
		return new(Request)
	}
	r := k.freeRequests[n-1]
	k.freeRequests = k.freeRequests[:n-1]
	return r
}

func (k *rank) freeRequest(r *Request) {
	r.p2p.Buf = nil // let the collector free it
	k.freeRequests = append(k.freeRequests, r)
}

// inactive reports whether there is nothing to wait for.
func (r *Request) inactive() bool { return r == nil || !r.active || r.freed }

// Active reports whether the request has been started and neither Wait nor Test has
// completed it.
func (r *Request) Active() bool { return !r.inactive() }

// Wait blocks until the request completes and deactivates it. Wait on an inactive request
// returns an empty status.
func (r *Request) Wait() (Status, error) {
	if r.inactive() {
		return emptyStatus, nil
	}
	k := r.c.rank
	if err := k.checkRunning(); err != nil {
		return emptyStatus, r.c.raise(r.call, err)
	}
	k.lock()
	k.waitUntil(r.complete)
	st, err := r.finish()
	k.unlock()
	return st, r.c.raise(r.call, err)
}

// Test reports whether the request is complete, and deactivates it if so.
func (r *Request) Test() (Status, bool, error) { return r.test((*Request).finish) }

// GetStatus reports whether the request is complete, without deactivating it.
func (r *Request) GetStatus() (Status, bool, error) { return r.test((*Request).result) }

// test polls once, and calls result if the request is complete.
func (r *Request) test(result func(*Request) (Status, error)) (Status, bool, error) {
	if r.inactive() {
		return emptyStatus, true, nil
	}
	k := r.c.rank
	if err := k.checkRunning(); err != nil {
		return emptyStatus, false, r.c.raise(r.call, err)
	}
	k.lock()
	st, done, err := emptyStatus, k.pollOnce(r.complete), error(nil)
	if done {
		st, err = result(r)
	}
	k.unlock()
	return st, done, r.c.raise(r.call, err)
}

// Cancel cancels a receive that has not matched a message. Wait must still be called; its
// status says whether the receive was cancelled. Sends are never cancelled: they complete.
func (r *Request) Cancel() error {
	if r.inactive() {
		return r.comm().raise("Cancel", fmt.Errorf("%w: it is not active", ErrRequest))
	}
	if r.kind == ibarrierRequest || r.kind == rmaRequest {
		return r.c.raise("Cancel", fmt.Errorf("%w: only sends and receives can be cancelled, not %s", ErrRequest, r.call))
	}
	if r.kind == recvRequest {
		r.c.rank.lock()
		r.c.rank.p2p.Cancel(&r.p2p)
		r.c.rank.unlock()
	}
	return nil
}

// Free releases a request. An active operation still completes; its buffer must not be
// used before that.
func (r *Request) Free() error {
	if r == nil || r.freed {
		return r.comm().raise("Request.Free", fmt.Errorf("%w: it is nil or freed", ErrRequest))
	}
	r.freed = true
	return nil
}

// comm returns the communicator of the request; nil for a nil request.
func (r *Request) comm() *Comm {
	if r == nil {
		return nil
	}
	return r.c
}

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
