//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// WaitAsync returns the device's next asynchronous event. One about an object that has
// been closed meanwhile is nobody's.
func (c *Context) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	var event verbs.AsyncEvent
	err := c.async.wait(timeout, func() (bool, error) {
		c.life.RLock()
		defer c.life.RUnlock()
		if c.closed {
			return false, verbs.ErrClosed
		}
		for {
			var e C.struct_shim_async
			if ret, errno := C.shim_async_event(c.dev, &e); ret != 0 {
				return false, unlessAgain(errno)
			}
			var known bool
			if event, known = c.asyncEvent(&e); known {
				return true, nil
			}
		}
	})
	if err != nil {
		return verbs.AsyncEvent{}, failed("get_async_event", c.info.Name, err)
	}
	return event, nil
}

// asyncEvent converts an event of libibverbs. life is held for reading, so that the
// pointers in it are valid.
func (c *Context) asyncEvent(e *C.struct_shim_async) (verbs.AsyncEvent, bool) {
	event := verbs.AsyncEvent{Type: verbs.AsyncEventType(e._type), Port: uint8(e.port)}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.qp != nil:
		q, ok := c.byQP[e.qp]
		event.QP = q
		return event, ok
	case e.cq != nil:
		q, ok := c.byCQ[e.cq]
		if ok && event.Type == verbs.EventCQErr {
			q.lost.Store(true)
		}
		event.CQ = q
		return event, ok
	case e.srq != nil:
		s, ok := c.bySRQ[e.srq]
		event.SRQ = s
		return event, ok
	}
	return event, true
}
