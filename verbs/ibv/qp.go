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

	conn         atomic.Pointer[conn] // its connection; nil if it has none
	lastSetState atomic.Uint32        // the last state that we moved it to
	// accepting: a connection is being accepted with it, and the kernel waits for the peer.
	accepting atomic.Bool
	// connecting: a connection request with it waits for its answer.
	connecting atomic.Bool
}

// CreateQP implements verbs.Context. For ATOMIC WRITE, an RC queue pair needs libibverbs' extended
// interface for posts (ibv_qp_ex), which CreateQP requests if the device has the operation.
func (c *Context) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	q := &qp{object: object{ctx: c}, kind: init.Type, onSRQ: init.SRQ != nil}
	return create[verbs.QP](c, q, "create_qp", func() error {
		attr, err := c.initAttr(&init)
		if err != nil {
			return err
		}
		if init.Type == verbs.QPTypeRC && c.hasAtomicWrite() {
			extended := attr
			extended.comp_mask |= C.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
			extended.send_ops_flags = C.IBV_QP_EX_WITH_ATOMIC_WRITE
			// A driver may support the operation and not this interface: then q.c stays nil.
			if q.c = C.ibv_create_qp_ex(c.dev, &extended); q.c != nil {
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

// OpenQP implements verbs.Context: it opens a second handle to an XRC target by its number.
func (c *Context) OpenQP(domain verbs.XRCD, n verbs.QPN) (verbs.QP, error) {
	q := &qp{object: object{ctx: c}, kind: verbs.QPTypeXRCRecv, num: n}
	return create[verbs.QP](c, q, "open_qp", func() error {
		x, err := objectOf[*xrcd](c, "XRC domain", domain)
		if err != nil {
			return err
		}
		p, errno := C.ibv_open_qp(c.dev, &C.struct_ibv_qp_open_attr{
			comp_mask: C.IBV_QP_OPEN_ATTR_NUM | C.IBV_QP_OPEN_ATTR_XRCD | C.IBV_QP_OPEN_ATTR_TYPE,
			qp_num:    C.uint32_t(n), xrcd: x.c, qp_type: C.IBV_QPT_XRC_RECV,
		})
		if p == nil {
			return fmt.Errorf("%s: %w", q.name(), cause(errno))
		}
		q.c, q.num = p, verbs.QPN(p.qp_num)
		return nil
	})
}

// initAttr returns the attributes of a new queue pair as an ibv_qp_init_attr_ex. It checks objects,
// which the library does not.
func (c *Context) initAttr(init *verbs.QPInit) (attr C.struct_ibv_qp_init_attr_ex, err error) {
	attr.qp_type = uint32(init.Type)
	if attr.cap, err = capsToC(init.Caps); err != nil {
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
	sends, err := objectOf[*cq](c, "send completion queue", init.SendCQ)
	if err != nil {
		return attr, err
	}
	attr.send_cq = sends.c
	if init.Type == verbs.QPTypeXRCSend {
		return attr, nil
	}
	recvs, err := objectOf[*cq](c, "receive completion queue", init.RecvCQ)
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

// capsToC returns the capacities of a queue pair as an ibv_qp_cap.
func capsToC(caps verbs.QPCaps) (c C.struct_ibv_qp_cap, err error) {
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
func (q *qp) closeOrder() int    { return closeOrderQP }

// destroy implements child.
func (q *qp) destroy() error {
	if err := shimError(C.shim_ibv_destroy_qp(q.c)); err != nil {
		return err
	}
	q.sends.free()
	q.recvs.free()
	return nil
}

// Close destroys the queue pair with its requests, and its connection. It fails while a connection
// is being accepted.
func (q *qp) Close() error {
	if err := q.checkNotAccepting(); err != nil {
		return opError("destroy_qp", q.name(), err)
	}
	if err := closeObject(q, "destroy_qp"); err != nil {
		return err
	}
	if conn := q.conn.Load(); conn != nil {
		conn.release()
	}
	return nil
}

// PostSend implements verbs.QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	if err := enter(q, "post_send"); err != nil {
		return 0, err
	}
	defer q.leave()
	if q.kind == verbs.QPTypeXRCRecv {
		return 0, opError("post_send", q.name(), invalid("an XRC target has no send queue"))
	}
	n, err := q.sends.post(q, wrs)
	return n, opError("post_send", q.name(), err)
}

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := enter(q, "post_recv"); err != nil {
		return 0, err
	}
	defer q.leave()
	if q.onSRQ || q.kind == verbs.QPTypeXRCRecv || q.kind == verbs.QPTypeXRCSend {
		// siw's library would use the receive queue without a check.
		return 0, opError("post_recv", q.name(), invalid("it has no receive queue of its own"))
	}
	n, err := q.recvs.post(q.c, nil, wrs) // nil: not to a shared receive queue
	return n, opError("post_recv", q.name(), err)
}

// BindMW implements verbs.QP: it posts the bind of a type 1 window, and returns the new key.
func (q *qp) BindMW(window verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (key verbs.RKey, err error) {
	err = callVerb(q, "bind_mw", func() error {
		in := C.struct_shim_send{wr_id: C.uint64_t(wrID), flags: C.uint32_t(flags)}
		if err := copyBindOperands(q.ctx, &verbs.Bind{MW: window, Info: info}, &in); err != nil {
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

// AttachMulticast implements verbs.QP. It also records the group in q.groups.
func (q *qp) AttachMulticast(group verbs.GID) error {
	return callVerb(q, "attach_mcast", func() error {
		gid := gidToC(group)
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

// DetachMulticast implements verbs.QP.
func (q *qp) DetachMulticast(group verbs.GID) error {
	return callVerb(q, "detach_mcast", func() error {
		gid := gidToC(group)
		q.mu.Lock()
		defer q.mu.Unlock()
		err := shimError(C.shim_detach_mcast(q.c, &gid))
		if err == nil {
			delete(q.groups, group)
		}
		return err
	})
}

// leaveGroups detaches all groups on device close: a queue pair in a group cannot be destroyed.
func (q *qp) leaveGroups() {
	for group := range q.groups {
		gid := gidToC(group)
		C.shim_detach_mcast(q.c, &gid)
	}
	q.groups = nil
}

// allAttrs is the mask of all attributes.
const allAttrs = verbs.QPAttrDestQPN<<1 - 1

// Modify implements verbs.QP.
func (q *qp) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	return callVerb(q, "modify_qp", func() error {
		in, err := attrToC(&attr)
		if err != nil {
			return err
		}
		return q.modify(&in, C.int(mask))
	})
}

// checkNotAccepting returns ErrBusy while a connection is being accepted. Linux's iWARP cannot
// cancel that: rdma_destroy_id blocks until the peer has sent data, and the kernel panics (6.1,
// 6.12) if the queue pair fails or is destroyed before.
func (q *qp) checkNotAccepting() error {
	if q.accepting.Load() {
		return fmt.Errorf("%w: a connection is being accepted with it, which the kernel cannot take back: wait for the peer", verbs.ErrBusy)
	}
	return nil
}

// modify calls ibv_modify_qp, and keeps the new state for qpState. The caller holds closeLock for
// reading.
func (q *qp) modify(a *C.struct_ibv_qp_attr, mask C.int) error {
	if mask&C.IBV_QP_STATE != 0 {
		if err := q.checkNotAccepting(); err != nil {
			return err
		}
	}
	err := shimError(C.shim_modify_qp(q.c, a, mask))
	if err == nil && mask&C.IBV_QP_STATE != 0 {
		q.lastSetState.Store(uint32(a.qp_state))
	}
	return err
}

// qpState returns the state of the queue pair. Under iWARP it is the last state that we set,
// because siw before Linux 6.1 does not report it.
func (q *qp) qpState() (verbs.QPState, error) {
	if q.ctx.info.Transport == verbs.TransportIWARP {
		return verbs.QPState(q.lastSetState.Load()), nil
	}
	var a C.struct_ibv_qp_attr
	err := shimError(C.shim_query_qp(q.c, &a, C.IBV_QP_STATE))
	return verbs.QPState(a.qp_state), err
}

// Query implements verbs.QP.
func (q *qp) Query() (attr verbs.QPAttr, err error) {
	err = callVerb(q, "query_qp", func() error {
		var a C.struct_ibv_qp_attr
		err := shimError(C.shim_query_qp(q.c, &a, C.int(allAttrs)))
		if err == nil {
			attr = attrFromC(&a)
		}
		return err
	})
	return attr, err
}

// attrToC returns the attributes of a queue pair as an ibv_qp_attr.
func attrToC(a *verbs.QPAttr) (c C.struct_ibv_qp_attr, err error) {
	if c.cap, err = capsToC(a.Caps); err != nil {
		return c, err
	}
	c.qp_state, c.cur_qp_state = uint32(a.State), uint32(a.CurState)
	c.path_mtu, c.path_mig_state = uint32(a.PathMTU), uint32(a.PathMigState)
	c.qkey, c.dest_qp_num = C.uint32_t(a.QKey), C.uint32_t(a.DestQPN)
	c.rq_psn, c.sq_psn = C.uint32_t(a.RQPSN), C.uint32_t(a.SQPSN)
	c.qp_access_flags = C.uint(a.Access)
	c.ah_attr, c.alt_ah_attr = addressToC(a.AH), addressToC(a.AltAH)
	c.pkey_index, c.alt_pkey_index = C.uint16_t(a.PKeyIndex), C.uint16_t(a.AltPKeyIndex)
	if a.EnSQDAsyncNotify {
		c.en_sqd_async_notify = 1
	}
	c.max_rd_atomic, c.max_dest_rd_atomic = C.uint8_t(a.MaxRdAtomic), C.uint8_t(a.MaxDestRdAtomic)
	c.min_rnr_timer, c.timeout = C.uint8_t(a.MinRNRTimer), C.uint8_t(a.Timeout)
	c.retry_cnt, c.rnr_retry = C.uint8_t(a.RetryCnt), C.uint8_t(a.RNRRetry)
	c.port_num, c.alt_port_num, c.alt_timeout = C.uint8_t(a.Port), C.uint8_t(a.AltPort), C.uint8_t(a.AltTimeout)
	return c, nil
}

// attrFromC returns an ibv_qp_attr as attributes.
func attrFromC(c *C.struct_ibv_qp_attr) verbs.QPAttr {
	return verbs.QPAttr{
		State: verbs.QPState(c.qp_state), CurState: verbs.QPState(c.cur_qp_state),
		PathMTU: verbs.MTU(c.path_mtu), PathMigState: verbs.MigState(c.path_mig_state),
		QKey: uint32(c.qkey), RQPSN: uint32(c.rq_psn), SQPSN: uint32(c.sq_psn), DestQPN: verbs.QPN(c.dest_qp_num),
		Access: verbs.Access(c.qp_access_flags),
		Caps: verbs.QPCaps{
			MaxSendWR: int(c.cap.max_send_wr), MaxRecvWR: int(c.cap.max_recv_wr), MaxSendSGE: int(c.cap.max_send_sge),
			MaxRecvSGE: int(c.cap.max_recv_sge), MaxInline: int(c.cap.max_inline_data),
		},
		AH: addressFromC(&c.ah_attr), AltAH: addressFromC(&c.alt_ah_attr),
		PKeyIndex: uint16(c.pkey_index), AltPKeyIndex: uint16(c.alt_pkey_index),
		EnSQDAsyncNotify: c.en_sqd_async_notify != 0, SQDraining: c.sq_draining != 0,
		MaxRdAtomic: uint8(c.max_rd_atomic), MaxDestRdAtomic: uint8(c.max_dest_rd_atomic),
		MinRNRTimer: uint8(c.min_rnr_timer), Port: uint8(c.port_num), Timeout: uint8(c.timeout),
		RetryCnt: uint8(c.retry_cnt), RNRRetry: uint8(c.rnr_retry), AltPort: uint8(c.alt_port_num), AltTimeout: uint8(c.alt_timeout),
	}
}
