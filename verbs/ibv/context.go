//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

// Context is an opened device of the kernel's.
type Context struct {
	info verbs.DeviceInfo
	dev  *C.struct_ibv_context

	// life is held for reading by every verb while it is in the library, and for
	// writing while an object is destroyed, so that no verb uses a destroyed object.
	life   sync.RWMutex
	closed bool // life

	mu       sync.Mutex
	children map[child]struct{}         // mu
	byQP     map[*C.struct_ibv_qp]*qp   // mu; for events
	byCQ     map[*C.struct_ibv_cq]*cq   // mu
	bySRQ    map[*C.struct_ibv_srq]*srq // mu
	cm       *manager                   // mu; nil before the first call of CM

	async  *waiter
	probes probed
}

// child is an object made from a Context.
type child interface {
	// state returns its device and whether it is closed.
	state() *object
	// destroy gives it back to the library; life is held for writing. If it fails the
	// object is as before.
	destroy() error
	// rank orders the closing of a device: what has a lower one goes first.
	rank() int
	// name says in errors which it is.
	name() string
}

// Ranks of closing: users before what they use. A bound window of type 2 uses its queue
// pair, and soft-RoCE waits for a minute before it destroys one that is used.
const (
	rankWindow = iota
	rankQP
	rankLeaf // regions, address handles, shared receive queues
	rankCQ
	rankChannel
	rankDomain
)

// object is what all objects of a device have.
type object struct {
	ctx    *Context
	closed bool // ctx.life
}

func (o *object) state() *object { return o }

// enter begins a verb of an object, and leave ends it.
func enter(c child, op string) error {
	o := c.state()
	o.ctx.life.RLock()
	if o.closed {
		o.ctx.life.RUnlock()
		return failed(op, c.name(), verbs.ErrClosed)
	}
	return nil
}

func (o *object) leave() { o.ctx.life.RUnlock() }

// enter begins a verb of the device.
func (c *Context) enter(op string) error {
	c.life.RLock()
	if c.closed {
		c.life.RUnlock()
		return failed(op, c.info.Name, verbs.ErrClosed)
	}
	return nil
}

func (c *Context) leave() { c.life.RUnlock() }

// addChild registers an object of the device; life is held for reading.
func (c *Context) addChild(o child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.children[o] = struct{}{}
	switch o := o.(type) {
	case *qp:
		c.byQP[o.c] = o
	case *cq:
		c.byCQ[o.c] = o
	case *srq:
		c.bySRQ[o.c] = o
	}
}

func (c *Context) removeChild(o child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.children, o)
	switch o := o.(type) {
	case *qp:
		delete(c.byQP, o.c)
	case *cq:
		delete(c.byCQ, o.c)
	case *srq:
		delete(c.bySRQ, o.c)
	}
}

// closeObject destroys an object, unless that has been done or the device refuses to.
func closeObject(o child, op string) error {
	c := o.state().ctx
	c.life.Lock()
	defer c.life.Unlock()
	if o.state().closed {
		return failed(op, o.name(), verbs.ErrClosed)
	}
	if err := o.destroy(); err != nil {
		return failed(op, o.name(), err)
	}
	o.state().closed = true
	c.removeChild(o)
	return nil
}

// objectOf returns the object of an argument if it is an open object of this device.
// life is held for reading.
func objectOf[T child](c *Context, op, what string, arg any) (T, error) {
	o, ok := arg.(T)
	switch {
	case !ok:
		return o, invalid(op, "", "no %s of this provider (%T)", what, arg)
	case o.state().ctx != c:
		return o, invalid(op, "", "%s is of another opened device than %s", o.name(), c.info.Name)
	case o.state().closed:
		return o, failed(op, "", &closedArgument{o.name()})
	}
	return o, nil
}

// closedArgument is an object that was closed before a verb named it.
type closedArgument struct{ name string }

func (e *closedArgument) Error() string { return e.name + " was closed" }
func (e *closedArgument) Unwrap() error { return verbs.ErrClosed }

// Info names the device.
func (c *Context) Info() verbs.DeviceInfo { return c.info }

// Close closes the device and everything made from it. Calls that wait end first.
func (c *Context) Close() error {
	c.life.Lock()
	if c.closed {
		c.life.Unlock()
		return failed("close_device", c.info.Name, verbs.ErrClosed)
	}
	c.closed = true
	all := make([]child, 0, len(c.children))
	for o := range c.children {
		o.state().closed = true
		all = append(all, o)
	}
	c.life.Unlock()

	c.async.stop()
	for _, o := range all {
		if ch, ok := o.(*channel); ok {
			ch.waits.stop()
		}
	}
	if c.cm != nil { // nobody makes one any more
		c.cm.stop()
	}

	slices.SortFunc(all, func(a, b child) int { return a.rank() - b.rank() })
	c.life.Lock()
	defer c.life.Unlock()
	var errs []error
	for _, o := range all {
		if q, ok := o.(*qp); ok {
			q.leaveGroups()
		}
		if err := o.destroy(); err != nil {
			errs = append(errs, failed("close_device", c.info.Name+": "+o.name(), err))
		}
		c.removeChild(o)
	}
	if err := shimError(C.shim_ibv_close_device(c.dev)); err != nil {
		errs = append(errs, failed("close_device", c.info.Name, err))
	}
	return errors.Join(errs...)
}
