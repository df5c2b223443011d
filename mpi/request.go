package mpi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// Request is what was begun: a send, a receive, a barrier, a one-sided operation. A
// nil *Request is as one that is inactive.
type Request struct {
	c      *Comm
	call   string // that made it
	kind   requestKind
	active bool
	freed  bool

	p2p        p2p.Request       // of sends and receives
	status     Status            // of nothing
	ibarrier   *ibarrier         // of collectives
	op         *window.Operation // of transfers
	persistent *persistent       // of persistent requests
}

// kind is what a request is about.
type requestKind uint8

const (
	completed       requestKind = iota // it was complete from the beginning
	sendRequest                        // a message
	recvRequest                        // one
	bsendRequest                       // a message that has a place in the attached buffer
	ibarrierRequest                    // a collective operation
	rmaRequest                         // one-sided
)

// complete reports whether what a request began has come to its end.
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

// result is what a complete request ended with.
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

// take is what a complete request ended with, and ends its being active.
func (r *Request) finish() (Status, error) {
	r.active = false
	return r.result()
}

// borrow gives a request to a call that waits for it and hands it to nobody.
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
	r.p2p.Buf = nil // it may be the last to hold on to it
	k.freeRequests = append(k.freeRequests, r)
}

// inactive reports whether there is nothing to wait for.
func (r *Request) inactive() bool { return r == nil || !r.active || r.freed }

// Active reports whether the request is under way, or complete and not waited for.
func (r *Request) Active() bool { return !r.inactive() }

// Wait returns when the request is complete. It is inactive then: another Wait
// returns an empty Status.
func (r *Request) Wait() (Status, error) {
	if r.inactive() {
		return emptyStatus, nil
	}
	k := r.c.k
	if err := k.checkRunning(); err != nil {
		return emptyStatus, r.c.raise(r.call, err)
	}
	k.lock()
	k.waitUntil(r.complete)
	st, err := r.finish()
	k.unlock()
	return st, r.c.raise(r.call, err)
}

// Test reports whether the request is complete. If it is, it is inactive then.
func (r *Request) Test() (Status, bool, error) {
	if r.inactive() {
		return emptyStatus, true, nil
	}
	k := r.c.k
	if err := k.checkRunning(); err != nil {
		return emptyStatus, false, r.c.raise(r.call, err)
	}
	k.lock()
	st, done, err := emptyStatus, k.pollOnce(r.complete), error(nil)
	if done {
		st, err = r.finish()
	}
	k.unlock()
	return st, done, r.c.raise(r.call, err)
}

// GetStatus reports whether the request is complete, and leaves it as it is.
func (r *Request) GetStatus() (Status, bool, error) {
	if r.inactive() {
		return emptyStatus, true, nil
	}
	k := r.c.k
	if err := k.checkRunning(); err != nil {
		return emptyStatus, false, r.c.raise(r.call, err)
	}
	k.lock()
	st, done, err := emptyStatus, k.pollOnce(r.complete), error(nil)
	if done {
		st, err = r.result()
	}
	k.unlock()
	return st, done, r.c.raise(r.call, err)
}

// Cancel gives up a receive that no message has come for. The status of its Wait,
// which returns soon, says whether it did. Sends are not cancelled: they complete.
func (r *Request) Cancel() error {
	if r.inactive() {
		return r.comm().raise("Cancel", fmt.Errorf("%w: it is not active", ErrRequest))
	}
	if r.kind == ibarrierRequest || r.kind == rmaRequest {
		return r.c.raise("Cancel", fmt.Errorf("%w: only sends and receives can be cancelled, and this is of %s", ErrRequest, r.call))
	}
	if r.kind == recvRequest {
		r.c.k.lock()
		r.c.k.p2p.Cancel(&r.p2p)
		r.c.k.unlock()
	}
	return nil
}

// Free gives a request back; what is under way completes by itself, and its buffer
// must be left alone until it surely has.
func (r *Request) Free() error {
	if r == nil || r.freed {
		return r.comm().raise("Request.Free", fmt.Errorf("%w: there is none any more", ErrRequest))
	}
	r.freed = true
	return nil
}

// comm is the communicator of a request, if there is one.
func (r *Request) comm() *Comm {
	if r == nil {
		return nil
	}
	return r.c
}
