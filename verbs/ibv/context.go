//go:build ibverbs && linux && cgo

package ibv

// #cgo LDFLAGS: -libverbs -lrdmacm
// #cgo noescape shim_post_send
// #cgo nocallback shim_post_send
// #cgo noescape shim_post_recv
// #cgo nocallback shim_post_recv
// #cgo noescape shim_poll_cq
// #cgo nocallback shim_poll_cq
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fabrictest/fabrictest/verbs"
)

// Context is an opened device of the kernel.
type Context struct {
	object
	info verbs.DeviceInfo
	dev  *C.struct_ibv_context

	// closeLock is held for reading by every verb while it calls the library, and for
	// writing while an object is destroyed, so that no verb uses a destroyed object.
	closeLock sync.RWMutex

	mu       sync.Mutex
	children map[child]struct{}         // mu
	byQP     map[*C.struct_ibv_qp]*qp   // mu; for events
	byCQ     map[*C.struct_ibv_cq]*cq   // mu
	bySRQ    map[*C.struct_ibv_srq]*srq // mu
	cm       *manager                   // mu; nil before the first call of CM

	async  *waiter
	probes probed
}

// handle is an opened device or an object made from it.
type handle interface {
	// state returns its device and whether it is closed.
	state() *object
	// name names it in errors.
	name() string
}

// child is an object made from a Context.
type child interface {
	handle
	// destroy calls the destroy function of the library; closeLock is held for writing. If it
	// fails the object is unchanged.
	destroy() error
	// closeOrder orders the objects of a device that is closed: lower values are destroyed first.
	closeOrder() int
}

// Values of closeOrder: users before the objects that they use. A bound type 2 window uses its
// queue pair, and soft-RoCE waits for a minute before it destroys a queue pair in use.
const (
	closeOrderWindow = iota
	closeOrderQP
	closeOrderLeaf // regions, address handles, shared receive queues
	closeOrderCQ
	closeOrderChannel
	closeOrderDomain
)

// object is the state that all objects of a device have.
type object struct {
	ctx    *Context
	closed bool // ctx.closeLock
}

// state gives functions for all kinds of objects access to the embedded object.
func (o *object) state() *object { return o }

func (c *Context) name() string { return c.info.Name }

// enter takes closeLock for reading, so that no object is destroyed during the verb op of h. It
// fails if h is closed. leave releases the lock.
func enter(h handle, op string) error {
	o := h.state()
	o.ctx.closeLock.RLock()
	if o.closed {
		o.ctx.closeLock.RUnlock()
		return opError(op, h.name(), verbs.ErrClosed)
	}
	return nil
}

func (o *object) leave() { o.ctx.closeLock.RUnlock() }

// callVerb runs f, which calls the library, unless h is closed. It adds the verb and the name of h
// to the error of f.
func callVerb(h handle, op string, f func() error) error {
	if err := enter(h, op); err != nil {
		return err
	}
	defer h.state().leave()
	return opError(op, h.name(), f())
}

// addChild registers an object of the device. The caller holds closeLock for reading.
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

// removeChild removes an object that is destroyed.
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

// create calls f, which creates the object o by the verb op of the library. h is the context or
// protection domain that o is made from. create registers o with the device and returns o as a T.
func create[T any](h handle, o child, op string, f func() error) (none T, _ error) {
	err := callVerb(h, op, func() error {
		err := f()
		if err == nil {
			o.state().ctx.addChild(o)
		}
		return err
	})
	if err != nil {
		return none, err
	}
	return o.(T), nil
}

// closeObject destroys an object. It returns an error if the object is closed or the library fails.
func closeObject(o child, op string) error {
	c := o.state().ctx
	c.closeLock.Lock()
	defer c.closeLock.Unlock()
	if o.state().closed {
		return opError(op, o.name(), verbs.ErrClosed)
	}
	if err := o.destroy(); err != nil {
		return opError(op, o.name(), err)
	}
	o.state().closed = true
	c.removeChild(o)
	return nil
}

// objectOf returns arg as an object of type T. It fails if arg has another type, belongs to another
// opened device or is closed. kind names the type in errors. The caller holds closeLock for reading.
func objectOf[T child](c *Context, kind string, arg any) (T, error) {
	o, ok := arg.(T)
	switch {
	case !ok:
		return o, invalid("not a %s of this provider: %T", kind, arg)
	case o.state().ctx != c:
		return o, invalid("%s belongs to another opened device, not to %s", o.name(), c.info.Name)
	case o.state().closed:
		return o, fmt.Errorf("%s: %w", o.name(), verbs.ErrClosed)
	}
	return o, nil
}

// Info implements verbs.Context.
func (c *Context) Info() verbs.DeviceInfo { return c.info }

// Close implements verbs.Context: it ends blocked calls, and closes all objects and the device.
func (c *Context) Close() error {
	c.closeLock.Lock()
	if c.closed {
		c.closeLock.Unlock()
		return opError("close_device", c.info.Name, verbs.ErrClosed)
	}
	c.closed = true
	all := make([]child, 0, len(c.children))
	for o := range c.children {
		o.state().closed = true
		all = append(all, o)
	}
	c.closeLock.Unlock()

	c.async.stop()
	for _, o := range all {
		if ch, ok := o.(*channel); ok {
			ch.waits.stop()
		}
	}
	if c.cm != nil { // CM creates none on a closed device
		c.cm.stop()
	}

	slices.SortFunc(all, func(a, b child) int { return a.closeOrder() - b.closeOrder() })
	c.closeLock.Lock()
	defer c.closeLock.Unlock()
	var errs []error
	for _, o := range all {
		if q, ok := o.(*qp); ok {
			q.leaveGroups()
		}
		if err := o.destroy(); err != nil {
			errs = append(errs, opError("close_device", c.info.Name+": "+o.name(), err))
		}
		c.removeChild(o)
	}
	if err := shimError(C.shim_ibv_close_device(c.dev)); err != nil {
		errs = append(errs, opError("close_device", c.info.Name, err))
	}
	return errors.Join(errs...)
}

// Linked says whether this program was built with libibverbs.
const Linked = true

// Devices lists the kernel's RDMA devices; none is no error.
func (Provider) Devices() (infos []verbs.DeviceInfo, err error) {
	err = eachDevice("get_device_list", func(d *C.struct_ibv_device) bool {
		infos = append(infos, describe(d))
		return true
	})
	return infos, err
}

// Open opens a device by its name, as listed by Devices and ibv_devices(1). It may be opened
// several times; objects of one Context cannot be used with another.
func (Provider) Open(device string) (verbs.Context, error) {
	var found *Context
	var others []string
	var openErr error
	err := eachDevice("open_device", func(d *C.struct_ibv_device) bool {
		if name := C.GoString(C.ibv_get_device_name(d)); name != device {
			others = append(others, name)
			return true
		}
		found, openErr = open(d)
		return false
	})
	switch {
	case err != nil:
		return nil, err
	case openErr != nil:
		return nil, openErr
	case found == nil:
		return nil, opError("open_device", device, fmt.Errorf("%w: %s", verbs.ErrNotFound, deviceHint(others)))
	}
	return found, nil
}

// deviceHint lists the devices, or says how to create one.
func deviceHint(names []string) string {
	if len(names) == 0 {
		return "this machine has no RDMA device; soft-RoCE makes one: modprobe rdma_rxe, rdma link add rxe0 type rxe netdev eth0"
	}
	return "this machine has " + strings.Join(names, ", ")
}

// eachDevice calls f with every device until f returns false.
func eachDevice(op string, f func(*C.struct_ibv_device) bool) error {
	var n C.int
	list, errno := C.shim_get_device_list(&n)
	if list == nil {
		return opError(op, "", hinted(cause(errno), "the kernel has no user verbs; modprobe ib_uverbs", syscall.ENOSYS, syscall.ENOENT))
	}
	defer C.ibv_free_device_list(list)
	for i := range n {
		if !f(C.shim_device_at(list, i)) {
			return nil
		}
	}
	return nil
}

// describe returns the name, transport and GUID of a device.
func describe(d *C.struct_ibv_device) verbs.DeviceInfo {
	return verbs.DeviceInfo{
		Name: C.GoString(C.ibv_get_device_name(d)), Provider: ProviderName,
		Transport: verbs.Transport(C.shim_transport(d)), GUID: uint64(C.shim_guid(d)),
	}
}

// open opens a device of the list.
func open(d *C.struct_ibv_device) (*Context, error) {
	info := describe(d)
	dev, errno := C.ibv_open_device(d)
	if dev == nil {
		const hint = "/dev/infiniband/uverbs* must be readable and writable"
		return nil, opError("open_device", info.Name, hinted(cause(errno), hint, syscall.EPERM, syscall.EACCES))
	}
	async, err := newWaiter(dev.async_fd)
	if err != nil {
		C.ibv_close_device(dev)
		return nil, opError("open_device", info.Name, err)
	}
	c := &Context{info: info, dev: dev, async: async, children: make(map[child]struct{})}
	c.ctx = c
	c.byQP = make(map[*C.struct_ibv_qp]*qp)
	c.byCQ = make(map[*C.struct_ibv_cq]*cq)
	c.bySRQ = make(map[*C.struct_ibv_srq]*srq)
	return c, nil
}
