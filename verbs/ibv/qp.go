//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/fabrictest/fabrictest/verbs"
)

// qp is a queue pair.
type qp struct {
	object
	c     *C.struct_ibv_qp
	ex    *C.struct_ibv_qp_ex // nil unless it was created with extended operations
	kind  verbs.QPType
	num   verbs.QPN
	onSRQ bool
	sends sendQueue
	recvs recvQueue

	mu     sync.Mutex
	groups map[verbs.GID]struct{} // mu; its multicast groups

	conn     atomic.Pointer[conn] // its connection; nil if it has none
	setState atomic.Uint32        // the last state that we moved it to
	// accepting: a connection is being accepted with it, and the kernel waits for the peer.
	accepting atomic.Bool
}

// CreateQP creates a queue pair.
func (c *Context) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	q := &qp{object: object{ctx: c}, kind: init.Type, onSRQ: init.SRQ != nil}
	return create[verbs.QP](c, q, "create_qp", func() error {
		attr, err := c.initAttr(&init)
		if err != nil {
			return err
		}
		if init.Type == verbs.QPTypeRC && c.hasAtomicWrite() {
			with := attr
			with.comp_mask |= C.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
			with.send_ops_flags = C.IBV_QP_EX_WITH_ATOMIC_WRITE
			// A driver may have the operation and not the interface.
			if q.c = C.ibv_create_qp_ex(c.dev, &with); q.c != nil {
				q.ex = C.ibv_qp_to_qp_ex(q.c)
			}
		}
		if q.c == nil {
			if q.c, err = C.ibv_create_qp_ex(c.dev, &attr); q.c == nil {
				return cause(err)
			}
		}
		q.num = verbs.QPN(q.c.qp_num)
		return nil
	})
}

// initAttr translates the attributes of a new queue pair. The library rejects unknown types; it
// does not check objects.
func (c *Context) initAttr(init *verbs.QPInit) (attr C.struct_ibv_qp_init_attr_ex, err error) {
	attr.qp_type = uint32(init.Type)
	if attr.cap, err = capsTo(init.Caps); err != nil {
		return attr, err
	}
	if init.SignalAll {
		attr.sq_sig_all = 1
	}
	if init.Type == verbs.QPTypeXRCRecv {
		x, err := objectOf[*xrcd](c, "XRC domain", init.XRCD)
		if err != nil {
			return attr, err
		}
		attr.comp_mask, attr.xrcd = C.IBV_QP_INIT_ATTR_XRCD, x.c
		return attr, nil
	}
	domain, err := objectOf[*pd](c, "protection domain", init.PD)
	if err != nil {
		return attr, err
	}
	attr.comp_mask, attr.pd = C.IBV_QP_INIT_ATTR_PD, domain.c
	sends, err := objectOf[*cq](c, "completion queue to send", init.SendCQ)
	if err != nil {
		return attr, err
	}
	attr.send_cq = sends.c
	if init.Type == verbs.QPTypeXRCSend {
		return attr, nil
	}
	recvs, err := objectOf[*cq](c, "completion queue to receive", init.RecvCQ)
	if err != nil {
		return attr, err
	}
	attr.recv_cq = recvs.c
	if init.SRQ != nil {
		s, err := objectOf[*srq](c, "shared receive queue", init.SRQ)
		if err != nil {
			return attr, err
		}
		attr.srq = s.c
	}
	return attr, nil
}

// capsTo translates the capacities of a queue pair.
func capsTo(caps verbs.QPCaps) (c C.struct_ibv_qp_cap, err error) {
	for _, n := range []int{caps.MaxSendWR, caps.MaxRecvWR, caps.MaxSendSGE, caps.MaxRecvSGE, caps.MaxInline} {
		if n < 0 || n > math.MaxInt32 {
			return c, invalid("sizes %+v", caps)
		}
	}
	return C.struct_ibv_qp_cap{
		max_send_wr: C.uint32_t(caps.MaxSendWR), max_recv_wr: C.uint32_t(caps.MaxRecvWR), max_send_sge: C.uint32_t(caps.MaxSendSGE),
		max_recv_sge: C.uint32_t(caps.MaxRecvSGE), max_inline_data: C.uint32_t(caps.MaxInline),
	}, nil
}

func (q *qp) QPN() verbs.QPN     { return q.num }
func (q *qp) Type() verbs.QPType { return q.kind }
func (q *qp) name() string       { return fmt.Sprintf("qp %#x", uint32(q.num)) }
func (q *qp) rank() int          { return rankQP }

func (q *qp) destroy() error {
	if err := shimError(C.shim_ibv_destroy_qp(q.c)); err != nil {
		return err
	}
	q.sends.free()
	q.recvs.free()
	return nil
}

// Close destroys the queue pair with its requests, and its connection.
func (q *qp) Close() error {
	if err := q.notAccepting(); err != nil {
		return failed("destroy_qp", q.name(), err)
	}
	if err := closeObject(q, "destroy_qp"); err != nil {
		return err
	}
	if conn := q.conn.Load(); conn != nil {
		conn.release()
	}
	return nil
}

// PostSend posts send requests.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	if err := enter(q, "post_send"); err != nil {
		return 0, err
	}
	defer q.leave()
	if q.kind == verbs.QPTypeXRCRecv {
		return 0, failed("post_send", q.name(), invalid("an XRC target has no send queue"))
	}
	n, err := q.sends.post(q, wrs)
	return n, failed("post_send", q.name(), err)
}

// PostRecv posts receives.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := enter(q, "post_recv"); err != nil {
		return 0, err
	}
	defer q.leave()
	if q.onSRQ || q.kind == verbs.QPTypeXRCRecv || q.kind == verbs.QPTypeXRCSend {
		// siw's library would use the receive queue without a check.
		return 0, failed("post_recv", q.name(), invalid("it has no receive queue"))
	}
	n, err := q.recvs.post(q.c, nil, wrs)
	return n, failed("post_recv", q.name(), err)
}

// BindMW binds a type 1 window.
func (q *qp) BindMW(window verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (key verbs.RKey, err error) {
	err = verb(q, "bind_mw", func() error {
		in := C.struct_shim_send{wr_id: C.uint64_t(wrID), flags: C.uint32_t(flags)}
		if err := bindOperands(q.ctx, &verbs.Bind{MW: window, Info: info}, &in); err != nil {
			return err
		}
		q.sends.mu.Lock() // the key of a window depends on the order of its binds
		defer q.sends.mu.Unlock()
		w := window.(*mw)
		if err := shimError(C.shim_bind_mw(q.c, w.c, &in)); err != nil {
			return err
		}
		w.rkey.Store(uint32(w.c.rkey))
		key = w.RKey()
		return nil
	})
	return key, err
}

// AttachMulticast makes a UD queue pair receive the datagrams to a group.
func (q *qp) AttachMulticast(group verbs.GID) error {
	return verb(q, "attach_mcast", func() error {
		gid := gidTo(group)
		q.mu.Lock()
		defer q.mu.Unlock()
		if err := shimError(C.shim_attach_mcast(q.c, &gid)); err != nil {
			return err
		}
		if q.groups == nil {
			q.groups = make(map[verbs.GID]struct{})
		}
		q.groups[group] = struct{}{}
		return nil
	})
}

// DetachMulticast ends the reception of a group.
func (q *qp) DetachMulticast(group verbs.GID) error {
	return verb(q, "detach_mcast", func() error {
		gid := gidTo(group)
		q.mu.Lock()
		defer q.mu.Unlock()
		err := shimError(C.shim_detach_mcast(q.c, &gid))
		if err == nil {
			delete(q.groups, group)
		}
		return err
	})
}

// leaveGroups detaches all groups when the device is closed: a queue pair in a group cannot be
// destroyed.
func (q *qp) leaveGroups() {
	for group := range q.groups {
		gid := gidTo(group)
		C.shim_detach_mcast(q.c, &gid)
	}
	q.groups = nil
}
