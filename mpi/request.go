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

	p2p        *p2p.Request      // of an active send or receive
	status     Status            // of requests that were complete when created
	execution  *execution        // of a collective operation
	op         *window.Operation // of RMA operations
	persistent *arguments        // of a persistent request
}

// requestKind is the kind of operation.
type requestKind uint8

const (
	completed requestKind = iota // complete when created
	sendRequest
	recvRequest
	bsendRequest
	collectiveRequest
	rmaRequest
)

// isComplete reports whether the operation has completed. A buffered send completes when it starts.
func (r *Request) isComplete() bool {
	switch r.kind {
	case sendRequest, recvRequest:
		return r.p2p.Done()
	case collectiveRequest:
		return r.execution.done
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
		return r.c.recvStatus(r.p2p), r.p2p.Err
	case collectiveRequest:
		return emptyStatus, r.execution.err
	case rmaRequest:
		return emptyStatus, r.op.Err()
	case completed:
		return r.status, nil
	}
	return emptyStatus, nil
}

// finish deactivates a complete request and returns its result.
func (r *Request) finish() (Status, error) {
	st, err := r.result()
	if t := r.c.rank.calls; t != nil {
		t.requestFinished(r)
	}
	r.active = false
	if r.p2p != nil {
		r.c.rank.freeP2P(r.p2p)
		r.p2p = nil
	}
	if r.c.rank.races != nil {
		r.finishRaces()
	}
	if r.kind == collectiveRequest && !r.execution.persistent {
		r.execution.free()
		r.execution = nil
	}
	return st, err
}

// allocP2P returns a request of the point-to-point engine from a free list. Requests are recycled because
// they are large: with a new one for each message, the garbage collector takes a fifth of the time of
// a stream of small messages.
func (k *rank) allocP2P() *p2p.Request {
	n := len(k.freeRequests)
	if n == 0 {
		return new(p2p.Request)
	}
	r := k.freeRequests[n-1]
	k.freeRequests = k.freeRequests[:n-1]
	return r
}

// freeP2P puts a complete request on the free list.
func (k *rank) freeP2P(r *p2p.Request) {
	if k.races != nil {
		k.races.finish(r)
	}
	if k.calls != nil {
		k.calls.completed(r)
	}
	r.Buf, r.Advertised, r.Unbuffered = nil, false, false // let the collector free the buffer
	k.freeRequests = append(k.freeRequests, r)
}

// Active reports whether the request has been started and neither Wait nor Test has completed it.
func (r *Request) Active() bool { return r != nil && r.active && !r.freed }

// Wait blocks until the request completes, and deactivates it. An inactive one has an empty status.
func (r *Request) Wait() (Status, error) {
	if !r.Active() {
		return emptyStatus, nil
	}
	k := r.c.rank
	if err := k.checkRunning(); err != nil {
		return emptyStatus, r.c.raise(r.call, err)
	}
	k.lock()
	if k.calls != nil {
		k.calls.waitsForRequests(false, r)
	}
	k.waitUntil(r.isComplete)
	st, err := r.finish()
	k.unlock()
	return st, r.c.raise(r.call, err)
}

// Test reports whether the request is complete or inactive, and deactivates it if so.
func (r *Request) Test() (Status, bool, error) { return r.test((*Request).finish) }

// GetStatus reports whether the request is complete or inactive, without deactivating it.
func (r *Request) GetStatus() (Status, bool, error) { return r.test((*Request).result) }

// test polls once, and calls result if the request is complete.
func (r *Request) test(result func(*Request) (Status, error)) (Status, bool, error) {
	if !r.Active() {
		return emptyStatus, true, nil
	}
	k := r.c.rank
	if err := k.checkRunning(); err != nil {
		return emptyStatus, false, r.c.raise(r.call, err)
	}
	k.lock()
	st, err := emptyStatus, error(nil)
	done := k.pollOnce(r.isComplete)
	if done {
		st, err = result(r)
	}
	k.unlock()
	if k.calls != nil && !done {
		k.calls.polled(false, r)
	}
	return st, done, r.c.raise(r.call, err)
}

// Cancel cancels a receive that has not matched a message. Wait must still be called; its
// status says whether the receive was cancelled. Sends are never cancelled: they complete.
func (r *Request) Cancel() error {
	if !r.Active() {
		return r.comm().raise("Cancel", fmt.Errorf("%w: it is not active", ErrRequest))
	}
	if r.kind == collectiveRequest || r.kind == rmaRequest {
		return r.c.raise("Cancel", fmt.Errorf("%w: only sends and receives can be cancelled, not %s", ErrRequest, r.call))
	}
	if r.kind == recvRequest {
		r.c.rank.lock()
		r.c.rank.p2p.Cancel(r.p2p)
		r.c.rank.unlock()
	}
	return nil
}

// Free releases a request. An active operation still completes; until then it owns its buffer.
func (r *Request) Free() error {
	if r == nil || r.freed {
		return r.comm().raise("Request.Free", fmt.Errorf("%w: it is nil or freed", ErrRequest))
	}
	if t := r.c.rank.calls; t != nil {
		t.requestFreed(r)
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

// arguments are those of a nonblocking send or receive.
type arguments struct {
	message
	kind requestKind // sendRequest, bsendRequest or recvRequest
	mode p2p.Mode
}

// check validates the peer and the tag.
func (a *arguments) check(c *Comm) error {
	if a.kind == recvRequest {
		return c.checkRecv(a.peer, a.tag)
	}
	return c.checkSend(a.peer, a.tag)
}

// startRequest checks and starts a nonblocking send or receive. call is the MPI function, for errors.
func (c *Comm) startRequest(call string, a arguments) (*Request, error) {
	err := a.check(c)
	if err == nil {
		r := &Request{c: c, call: call}
		c.rank.lock()
		err = r.start(&a)
		c.rank.unlock()
		if err == nil {
			if t := c.rank.calls; t != nil {
				t.newRequest(r, false)
			}
			return r, nil
		}
	}
	return nil, c.raise(call, err)
}

// SendInit creates a persistent send, inactive until Start.
func (c *Comm) SendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.newPersistent("SendInit", arguments{message{buf, dest, tag}, sendRequest, p2p.Standard})
}

// SsendInit creates a persistent synchronous send.
func (c *Comm) SsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.newPersistent("SsendInit", arguments{message{buf, dest, tag}, sendRequest, p2p.Synchronous})
}

// BsendInit creates a persistent buffered send.
func (c *Comm) BsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.newPersistent("BsendInit", arguments{message{buf, dest, tag}, bsendRequest, p2p.Standard})
}

// RsendInit creates a persistent ready send.
func (c *Comm) RsendInit(buf []byte, dest, tag int) (*Request, error) {
	return c.newPersistent("RsendInit", arguments{message{buf, dest, tag}, sendRequest, p2p.Ready})
}

// RecvInit creates a persistent receive.
func (c *Comm) RecvInit(buf []byte, source, tag int) (*Request, error) {
	return c.newPersistent("RecvInit", arguments{message{buf, source, tag}, recvRequest, 0})
}

// newPersistent returns an inactive persistent request for a send or receive.
func (c *Comm) newPersistent(call string, a arguments) (*Request, error) {
	if err := a.check(c); err != nil {
		return nil, c.raise(call, err)
	}
	r := &Request{c: c, call: call, persistent: &a}
	if t := c.rank.calls; t != nil {
		t.newRequest(r, true)
	}
	return r, nil
}

// Start starts an inactive persistent request.
func (r *Request) Start() error {
	switch {
	case r == nil || r.freed:
		return r.comm().raise("Start", fmt.Errorf("%w: it is nil or freed", ErrRequest))
	case !r.isPersistent():
		return r.c.raise("Start", fmt.Errorf("%w: the request of %s is not persistent", ErrRequest, r.call))
	case r.active:
		return r.c.raise("Start", fmt.Errorf("%w: it is active; wait for it first", ErrRequest))
	}
	return r.c.locked("Start", r.c.check(), func() error {
		if r.execution != nil {
			r.active = true
			r.c.recordArrival(&r.execution.collectiveCall)
			if t := r.c.rank.calls; t != nil {
				t.collectiveStarted("Start of "+r.call, r.execution)
				t.requestStarted(r)
			}
			r.execution.startNonblocking()
			return nil
		}
		err := r.start(r.persistent)
		if t := r.c.rank.calls; t != nil && err == nil {
			t.requestStarted(r)
		}
		return err
	})
}

// isPersistent reports whether the request can be started.
func (r *Request) isPersistent() bool {
	return r.persistent != nil || r.execution != nil && r.execution.persistent
}

// start starts the request; with ProcNull it is complete at once. The caller holds the lock.
func (r *Request) start(a *arguments) error {
	r.active, r.kind = true, a.kind
	switch {
	case a.peer == ProcNull:
		r.kind, r.status = completed, emptyStatus
		if a.kind == recvRequest {
			r.status = procNullStatus
		}
	case a.kind == recvRequest:
		r.p2p = r.c.rank.allocP2P()
		r.c.startRecv(r.p2p, r.c.context, a.message)
	case a.kind == bsendRequest:
		err := r.c.bufferedSend(a.buf, a.peer, a.tag)
		r.active = err == nil
		return err
	default:
		r.p2p = r.c.rank.allocP2P()
		r.c.startSend(r.p2p, r.c.context, a.message, a.mode)
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
