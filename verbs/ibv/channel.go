//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
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
	queues atomic.Int32 // completion queues on it
}

// CreateCompChannel creates a completion channel.
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

func (h *channel) name() string { return fmt.Sprintf("channel %d", h.waits.fd) }
func (h *channel) rank() int    { return rankChannel }

// Wait returns the next completion queue with an event.
func (h *channel) Wait(timeout time.Duration) (verbs.CQ, error) {
	var found *cq
	err := h.waits.wait(timeout, func() (bool, error) {
		c := h.ctx
		c.life.RLock()
		defer c.life.RUnlock()
		if h.closed {
			return false, verbs.ErrClosed
		}
		var of *C.struct_ibv_cq
		if ret, errno := C.shim_cq_event(h.c, &of); ret != 0 {
			return false, unlessAgain(errno)
		}
		c.mu.Lock()
		found = c.byCQ[of]
		c.mu.Unlock()
		return found != nil, nil
	})
	if err != nil {
		return nil, failed("get_cq_event", h.name(), err)
	}
	return found, nil
}

// unlessAgain returns nil for EAGAIN and EINTR, and other errors of a read.
func unlessAgain(errno error) error {
	if errors.Is(errno, syscall.EAGAIN) || errors.Is(errno, syscall.EINTR) {
		return nil
	}
	return cause(errno)
}

// Close destroys the channel. Waits on it end, unless a completion queue is on it.
func (h *channel) Close() error {
	const op = "destroy_comp_channel"
	c := h.ctx
	c.life.Lock()
	switch {
	case h.closed:
		c.life.Unlock()
		return failed(op, h.name(), verbs.ErrClosed)
	case h.queues.Load() > 0:
		c.life.Unlock()
		return failed(op, h.name(), fmt.Errorf("%w: completion queues are on it", verbs.ErrBusy))
	}
	h.closed = true
	c.life.Unlock()
	h.waits.stop() // Wait takes life, so it is not held here
	c.life.Lock()
	defer c.life.Unlock()
	err := h.destroy()
	c.removeChild(h)
	return failed(op, h.name(), err)
}

func (h *channel) destroy() error {
	if h.c == nil {
		return nil
	}
	err := shimError(C.shim_ibv_destroy_comp_channel(h.c))
	h.c = nil
	return err
}
