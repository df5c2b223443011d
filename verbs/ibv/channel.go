//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// channel is a completion channel.
type channel struct {
	object
	c      *C.struct_ibv_comp_channel // nil once it is destroyed
	waits  *waiter
	queues atomic.Int32 // number of completion queues that use it
}

// CreateCompChannel implements verbs.Context. The channel gets a waiter, which ends blocked waits
// when the channel is closed.
func (c *Context) CreateCompChannel() (verbs.CompChannel, error) {
	h := &channel{object: object{ctx: c}}
	return create[verbs.CompChannel](c, h, "create_comp_channel", func() error {
		ch, errno := C.ibv_create_comp_channel(c.dev)
		if ch == nil {
			return cause(errno)
		}
		waits, err := newWaiter(ch.fd)
		if err != nil {
			C.shim_ibv_destroy_comp_channel(ch)
			return err
		}
		h.c, h.waits = ch, waits
		return nil
	})
}

func (h *channel) name() string    { return fmt.Sprintf("channel %d", h.waits.fd) }
func (h *channel) closeOrder() int { return closeOrderChannel }

// Wait implements verbs.CompChannel. It ignores events of completion queues that have been closed.
func (h *channel) Wait(timeout time.Duration) (verbs.CQ, error) {
	var found *cq
	err := h.waits.wait(timeout, func() (bool, error) {
		c := h.ctx
		c.closeLock.RLock()
		defer c.closeLock.RUnlock()
		if h.closed {
			return false, verbs.ErrClosed
		}
		var of *C.struct_ibv_cq
		if ret, errno := C.shim_cq_event(h.c, &of); ret != 0 {
			return false, ignoreEAGAIN(errno)
		}
		c.mu.Lock()
		found = c.byCQ[of]
		c.mu.Unlock()
		return found != nil, nil
	})
	if err != nil {
		return nil, opError("get_cq_event", h.name(), err)
	}
	return found, nil
}

// ignoreEAGAIN returns the error of a read that set errno; nil for EAGAIN and EINTR.
func ignoreEAGAIN(errno error) error {
	if errors.Is(errno, syscall.EAGAIN) || errors.Is(errno, syscall.EINTR) {
		return nil
	}
	return cause(errno)
}

// Close implements verbs.CompChannel: it ends waits and destroys the channel, unless a CQ uses it.
func (h *channel) Close() error {
	const op = "destroy_comp_channel"
	c := h.ctx
	c.closeLock.Lock()
	switch {
	case h.closed:
		c.closeLock.Unlock()
		return opError(op, h.name(), verbs.ErrClosed)
	case h.queues.Load() > 0:
		c.closeLock.Unlock()
		return opError(op, h.name(), fmt.Errorf("%w: completion queues are on it", verbs.ErrBusy))
	}
	h.closed = true
	c.closeLock.Unlock()
	h.waits.stop() // Wait takes closeLock, so it is not held here
	c.closeLock.Lock()
	defer c.closeLock.Unlock()
	err := h.destroy()
	c.removeChild(h)
	return opError(op, h.name(), err)
}

// destroy implements child. The second call does nothing.
func (h *channel) destroy() error {
	if h.c == nil {
		return nil
	}
	err := shimError(C.shim_ibv_destroy_comp_channel(h.c))
	h.c = nil
	return err
}

// WaitAsync implements verbs.Context. It drops events of objects that have been closed.
func (c *Context) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	var event verbs.AsyncEvent
	err := c.async.wait(timeout, func() (bool, error) {
		c.closeLock.RLock()
		defer c.closeLock.RUnlock()
		if c.closed {
			return false, verbs.ErrClosed
		}
		for {
			var e C.struct_shim_async
			if ret, errno := C.shim_async_event(c.dev, &e); ret != 0 {
				return false, ignoreEAGAIN(errno)
			}
			var known bool
			if event, known = c.asyncEvent(&e); known {
				return true, nil
			}
		}
	})
	if err != nil {
		return verbs.AsyncEvent{}, opError("get_async_event", c.info.Name, err)
	}
	return event, nil
}

// asyncEvent converts an event of libibverbs, and marks a CQ with an error as overrun. known is
// false if the object was closed. The caller holds closeLock for reading, so the pointers in e are
// valid.
func (c *Context) asyncEvent(e *C.struct_shim_async) (event verbs.AsyncEvent, known bool) {
	event = verbs.AsyncEvent{Type: verbs.AsyncEventType(e._type), Port: uint8(e.port)}
	c.mu.Lock()
	defer c.mu.Unlock()
	known = true
	switch {
	case e.qp != nil:
		event.QP, known = c.byQP[e.qp]
	case e.cq != nil:
		event.CQ, known = c.byCQ[e.cq]
		if known && event.Type == verbs.EventCQErr {
			c.byCQ[e.cq].overrun.Store(true)
		}
	case e.srq != nil:
		event.SRQ, known = c.bySRQ[e.srq]
	}
	return event, known
}

// waiter waits for events on a file descriptor of the library, until stop is called. It does not
// own the descriptor.
type waiter struct {
	fd     C.int
	stopFD C.int // an eventfd that stop makes readable

	mu      sync.Mutex
	changed sync.Cond // waiting has decreased
	waiting int       // running calls of wait
	stopped bool
}

// newWaiter makes fd non-blocking and returns a waiter for it.
func newWaiter(fd C.int) (*waiter, error) {
	if ret, errno := C.shim_nonblocking(fd); ret != 0 {
		return nil, cause(errno)
	}
	stopFD, errno := C.eventfd(0, C.EFD_CLOEXEC|C.EFD_NONBLOCK)
	if stopFD < 0 {
		return nil, cause(errno)
	}
	w := &waiter{fd: fd, stopFD: stopFD}
	w.changed.L = &w.mu
	return w, nil
}

// wait calls take, which reads an event without blocking, at once and then whenever the descriptor
// is readable. It returns nil when take returns true, else the error of take, ErrTimeout, or
// ErrClosed after stop.
func (w *waiter) wait(timeout time.Duration, take func() (bool, error)) error {
	if !w.enter() {
		return verbs.ErrClosed
	}
	defer w.leave()
	began := time.Now()
	for {
		// An event is read even if the timeout is 0.
		if taken, err := take(); taken || err != nil {
			return err
		}
		ms := C.int(-1)
		if timeout >= 0 {
			left := timeout - time.Since(began)
			if left <= 0 {
				return verbs.ErrTimeout
			}
			ms = C.int(min((left+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
		}
		switch ready, errno := C.shim_wait(w.fd, w.stopFD, ms); {
		case ready == 2: // stopFD is readable
			return verbs.ErrClosed
		case ready < 0 && !errors.Is(errno, syscall.EINTR):
			return cause(errno)
		}
	}
}

// enter begins a call of wait, which leave ends. It returns false after stop.
func (w *waiter) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false
	}
	w.waiting++
	return true
}

// leave ends a call of wait.
func (w *waiter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	w.changed.Broadcast()
}

// stop ends all calls of wait, and returns when the last has ended; the descriptor is then unused.
// The caller must not hold a lock that take needs.
func (w *waiter) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	C.shim_wake(w.stopFD)
	for w.waiting > 0 {
		w.changed.Wait()
	}
	C.close(w.stopFD)
}
