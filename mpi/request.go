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
	kind   kind
	active bool
	freed  bool

	p        p2p.Request       // of sends and receives
	found    Status            // of nothing
	schedule *schedule         // of collectives
	op       *window.Operation // of transfers
	again    *persistent       // of persistent requests
}

// kind is what a request is about.
type kind uint8

const (
	nothing   kind = iota // it was complete from the beginning
	sends                 // a message
	receives              // one
	buffered              // a message that has a place in the attached buffer
	collected             // a collective operation
	transfers             // one-sided
)

// complete reports whether what a request began has come to its end.
func (r *Request) complete() bool {
	switch r.kind {
	case sends, receives:
		return r.p.Done()
	case collected:
		return r.schedule.done
	case transfers:
		return r.op.Done()
	}
	return true
}

// result is what a complete request ended with.
func (r *Request) result() (Status, error) {
	switch r.kind {
	case sends:
		return empty, r.p.Err
	case receives:
		return r.c.received(&r.p), r.p.Err
	case collected:
		return empty, r.schedule.err
	case transfers:
		return empty, r.op.Err()
	case nothing:
		return r.found, nil
	}
	return empty, nil
}

// take is what a complete request ended with, and ends its being active.
func (r *Request) take() (Status, error) {
	r.active = false
	return r.result()
}

// borrow gives a request to a call that waits for it and hands it to nobody.
func (k *rank) borrow() *Request {
	n := len(k.idle)
	if n == 0 {
		return new(Request)
	}
	r := k.idle[n-1]
	k.idle = k.idle[:n-1]
	return r
}

func (k *rank) giveBack(r *Request) {
	r.p.Buf = nil // it may be the last to hold on to it
	k.idle = append(k.idle, r)
}

// inactive reports whether there is nothing to wait for.
func (r *Request) inactive() bool { return r == nil || !r.active || r.freed }

// Active reports whether the request is under way, or complete and not waited for.
func (r *Request) Active() bool { return !r.inactive() }

// Wait returns when the request is complete. It is inactive then: another Wait
// returns an empty Status.
func (r *Request) Wait() (Status, error) {
	if r.inactive() {
		return empty, nil
	}
	k := r.c.k
	if err := k.over(); err != nil {
		return empty, r.c.raise(r.call, err)
	}
	k.lock()
	k.until(r.complete)
	st, err := r.take()
	k.unlock()
	return st, r.c.raise(r.call, err)
}

// Test reports whether the request is complete. If it is, it is inactive then.
func (r *Request) Test() (Status, bool, error) {
	if r.inactive() {
		return empty, true, nil
	}
	k := r.c.k
	if err := k.over(); err != nil {
		return empty, false, r.c.raise(r.call, err)
	}
	k.lock()
	st, done, err := empty, k.look(r.complete), error(nil)
	if done {
		st, err = r.take()
	}
	k.unlock()
	return st, done, r.c.raise(r.call, err)
}

// GetStatus reports whether the request is complete, and leaves it as it is.
func (r *Request) GetStatus() (Status, bool, error) {
	if r.inactive() {
		return empty, true, nil
	}
	k := r.c.k
	if err := k.over(); err != nil {
		return empty, false, r.c.raise(r.call, err)
	}
	k.lock()
	st, done, err := empty, k.look(r.complete), error(nil)
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
	if r.kind == collected || r.kind == transfers {
		return r.c.raise("Cancel", fmt.Errorf("%w: only sends and receives can be cancelled, and this is of %s", ErrRequest, r.call))
	}
	if r.kind == receives {
		r.c.k.lock()
		r.c.k.p2p.Cancel(&r.p)
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
