//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// conn is a connection. It exists until the disconnect or until its queue pair is closed.
type conn struct {
	id     *cmID
	q      *qp
	param  verbs.ConnParam
	remote netip.AddrPort

	once   sync.Once
	closed chan struct{} // closed by release
}

// Connect implements verbs.CM. Only one Connect of a queue pair may run at a time.
func (m *manager) Connect(pair verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "connect"
	until := newDeadline(timeout)
	q, err := m.connectableQP(op, pair)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (verbs.Conn, error) {
		return nil, opError(op, fmt.Sprintf("%s to %v", q.name(), addr), err)
	}
	cmParam, err := paramToC(param)
	if err != nil {
		return fail(err)
	}
	if !q.connecting.CompareAndSwap(false, true) {
		return fail(fmt.Errorf("%w: it is being connected", verbs.ErrBusy))
	}
	defer q.connecting.Store(false)
	id, err := m.createID(op, verbs.PortSpaceTCP, noRequests)
	if err != nil {
		return nil, err
	}
	c := newConn(id, q)
	if err := c.dial(addr, &cmParam, param, until); err != nil {
		// The kernel's iWARP keeps a request until the peer has answered, or for ten seconds.
		// Connect does not wait for that.
		go id.destroy()
		return fail(refusedByTCP(err))
	}
	c.remote = addr
	return c.register(), nil
}

// refusedByTCP returns a RejectError if TCP refused the connection (ECONNREFUSED), else err.
func refusedByTCP(err error) error {
	var e *deviceError
	if errors.As(err, &e) && e.errno == syscall.ECONNREFUSED {
		return &verbs.RejectError{Text: e.errno.Error()}
	}
	return err
}

func newConn(id *cmID, q *qp) *conn { return &conn{id: id, q: q, closed: make(chan struct{})} }

// register registers an established connection with its queue pair, which is in RTS, and its
// identifier, and handles a disconnect event that arrived before. It returns c.
func (c *conn) register() *conn {
	c.q.lastSetState.Store(uint32(verbs.QPStateRTS))
	c.q.conn.Store(c)
	c.id.conn.Store(c)
	for {
		select {
		case e := <-c.id.events:
			if endsConnection(e.kind) {
				c.disconnected()
			}
		default:
			return c
		}
	}
}

// endsConnection reports whether an event ends an established connection. The peer may send a REJ
// after the RTU, for example if the RTU was lost.
func endsConnection(kind uint32) bool {
	return kind == C.RDMA_CM_EVENT_DISCONNECTED || kind == C.RDMA_CM_EVENT_DEVICE_REMOVAL || kind == C.RDMA_CM_EVENT_REJECTED
}

// dial requests the connection and moves the queue pair to RTS when the peer accepts.
func (c *conn) dial(addr netip.AddrPort, cmParam *C.struct_shim_cm_param, param verbs.ConnParam, until deadline) error {
	if err := c.id.resolve(addr, until); err != nil {
		return err
	}
	if err := c.moveToInit(param.ResponderResources > 0); err != nil {
		return err
	}
	c.setQP(cmParam)
	if err := c.id.connect(cmParam); err != nil {
		return err
	}
	e, err := c.id.nextEvent(until)
	if err != nil {
		return err
	}
	switch e.kind {
	case C.RDMA_CM_EVENT_CONNECT_RESPONSE: // InfiniBand: the caller moves the QP to RTS and confirms
		if err := c.moveToRTS(nil); err != nil {
			return err
		}
		if err := c.id.call(func() C.int { return C.shim_rdma_establish(c.id.c) }); err != nil {
			return err
		}
	case C.RDMA_CM_EVENT_ESTABLISHED: // iWARP: the kernel moved the QP to RTS
	default:
		return e.unexpected()
	}
	c.param = e.param
	return nil
}

// connectableQP returns pair as a queue pair of this device, which must be in RESET or INIT.
func (m *manager) connectableQP(op string, pair verbs.QP) (q *qp, err error) {
	err = callVerb(m.ctx, op, func() error {
		if q, err = objectOf[*qp](m.ctx, "queue pair", pair); err != nil {
			return err
		}
		s, err := q.qpState()
		if err == nil && s != verbs.QPStateReset && s != verbs.QPStateInit {
			err = invalid("%s is in %v, and can be connected in RESET or INIT only", q.name(), s)
		}
		return err
	})
	return q, err
}

// setQP sets the parameters that describe the queue pair.
func (c *conn) setQP(cmParam *C.struct_shim_cm_param) {
	cmParam.qp_num = C.uint32_t(c.q.num)
	if c.q.onSRQ {
		cmParam.srq = 1
	}
}

// moveToInit moves the queue pair from RESET to INIT with the attributes of librdmacm and access
// rights for remote writes and, with allowReads, reads and atomics. In any other state than RESET,
// the queue pair stays unchanged.
func (c *conn) moveToInit(allowReads bool) error {
	return c.move(C.IBV_QPS_INIT, func(current verbs.QPState, a *C.struct_ibv_qp_attr) bool {
		a.qp_access_flags |= C.IBV_ACCESS_REMOTE_WRITE
		if allowReads {
			a.qp_access_flags |= C.IBV_ACCESS_REMOTE_READ | C.IBV_ACCESS_REMOTE_ATOMIC
		}
		return current == verbs.QPStateReset
	})
}

// moveToRTS moves the queue pair from INIT to RTS. The depths of RDMA reads are those of accepted,
// the parameters of a listener; nil means those that librdmacm has from the peer's response.
func (c *conn) moveToRTS(accepted *verbs.ConnParam) error {
	if c.id.m.ctx.info.Transport == verbs.TransportIWARP {
		return nil // the kernel moves the queue pair when it attaches the TCP connection
	}
	for _, state := range []uint32{C.IBV_QPS_RTR, C.IBV_QPS_RTS} {
		err := c.move(state, func(_ verbs.QPState, a *C.struct_ibv_qp_attr) bool {
			if accepted != nil {
				a.max_dest_rd_atomic, a.max_rd_atomic = C.uint8_t(accepted.ResponderResources), C.uint8_t(accepted.InitiatorDepth)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// move moves the queue pair to a state with the attributes of librdmacm, as modified by
// change. It does nothing if change returns false.
func (c *conn) move(state uint32, change func(verbs.QPState, *C.struct_ibv_qp_attr) bool) error {
	var a C.struct_ibv_qp_attr
	var mask C.int
	a.qp_state = state
	if err := c.id.call(func() C.int { return C.shim_init_qp_attr(c.id.c, &a, &mask) }); err != nil {
		return fmt.Errorf("attributes for %v: %w", verbs.QPState(state), err)
	}
	if err := enter(c.q, "modify_qp"); err != nil {
		return err
	}
	defer c.q.leave()
	current, err := c.q.qpState()
	if err != nil {
		return err
	}
	if !change(current, &a) {
		return nil
	}
	// Older kernels also set bits in mask that are internal to the kernel.
	if err := c.q.modify(&a, mask&C.int(allAttrs)); err != nil {
		return fmt.Errorf("%s to %v: %w", c.q.name(), verbs.QPState(state), err)
	}
	return nil
}

// moveToError moves the queue pair, unless it is closed, to ERR. Under iWARP the kernel does that.
func (c *conn) moveToError() error {
	if c.id.m.ctx.info.Transport == verbs.TransportIWARP || enter(c.q, "modify_qp") != nil {
		return nil
	}
	defer c.q.leave()
	a := C.struct_ibv_qp_attr{qp_state: C.IBV_QPS_ERR}
	return c.q.modify(&a, C.IBV_QP_STATE)
}

// Param implements verbs.Conn.
func (c *conn) Param() verbs.ConnParam { return c.param }

// Remote implements verbs.Conn.
func (c *conn) Remote() netip.AddrPort { return c.remote }

// Disconnect implements verbs.Conn. It does nothing if the connection has ended.
func (c *conn) Disconnect() error {
	const op = "disconnect"
	select {
	case <-c.closed:
		return nil
	default:
	}
	if err := c.moveToError(); err != nil {
		return opError(op, c.q.name(), err)
	}
	return opError(op, c.q.name(), c.id.call(func() C.int { return C.shim_rdma_disconnect(c.id.c) }))
}

// WaitDisconnect implements verbs.Conn.
func (c *conn) WaitDisconnect(timeout time.Duration) error {
	_, err := receive(c.closed, nil, newDeadline(timeout))
	return opError("wait_disconnect", c.q.name(), err)
}

// disconnected handles a disconnect event: it moves the queue pair to the error state, confirms a
// disconnect by the peer by rdma_disconnect, and releases the connection.
func (c *conn) disconnected() {
	_ = c.moveToError() // it fails if the queue pair is closed
	_ = c.id.call(func() C.int { return C.shim_rdma_disconnect(c.id.c) })
	c.release()
}

// release wakes waiters, destroys the identifier and detaches the queue pair. It acts only once.
func (c *conn) release() {
	c.once.Do(func() {
		close(c.closed)
		c.q.conn.CompareAndSwap(c, nil)
		go c.id.destroy() // it waits for the dispatcher, which may be the caller
	})
}
