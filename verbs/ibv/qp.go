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
	ex    *C.struct_ibv_qp_ex // nil if it has no operations of the newer interface
	kind  verbs.QPType
	num   verbs.QPN
	onSRQ bool
	sends sendQueue
	recvs recvQueue

	mu     sync.Mutex
	groups map[verbs.GID]struct{} // mu; multicast groups it is in

	conn  atomic.Pointer[conn] // what the connection manager has made of it
	asked atomic.Uint32        // the state that it was last taken to by us
	// accepting says that the kernel waits for the first word of a peer whose request was
	// accepted with it.
	accepting atomic.Bool
}

// CreateQP makes a queue pair.
func (c *Context) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	const op = "create_qp"
	if err := c.enter(op); err != nil {
		return nil, err
	}
	defer c.leave()
	attr, err := c.initAttr(op, &init)
	if err != nil {
		return nil, err
	}
	if init.Type == verbs.QPTypeRC && c.hasAtomicWrite() {
		with := attr
		with.comp_mask |= C.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
		with.send_ops_flags = C.IBV_QP_EX_WITH_ATOMIC_WRITE
		if p := C.ibv_create_qp_ex(c.dev, &with); p != nil {
			q := newQP(c, p, init.Type)
			q.ex, q.onSRQ = C.ibv_qp_to_qp_ex(p), init.SRQ != nil
			return q, nil
		}
		// A driver may have the operation and not the interface.
	}
	p, errno := C.ibv_create_qp_ex(c.dev, &attr)
	if p == nil {
		return nil, failed(op, c.info.Name, cause(errno))
	}
	q := newQP(c, p, init.Type)
	q.onSRQ = init.SRQ != nil
	return q, nil
}

// newQP adopts a queue pair of the library's.
func newQP(c *Context, p *C.struct_ibv_qp, kind verbs.QPType) *qp {
	q := &qp{object: object{ctx: c}, c: p, kind: kind, num: verbs.QPN(p.qp_num)}
	c.addChild(q)
	return q
}

// initAttr translates what a queue pair is to be. Types that there are not go to the
// library, which refuses them; objects that there are not it would follow.
func (c *Context) initAttr(op string, init *verbs.QPInit) (attr C.struct_ibv_qp_init_attr_ex, err error) {
	attr.qp_type = uint32(init.Type)
	if attr.cap, err = capsTo(op, init.Caps); err != nil {
		return attr, err
	}
	if init.SignalAll {
		attr.sq_sig_all = 1
	}
	if init.Type == verbs.QPTypeXRCRecv {
		x, err := objectOf[*xrcd](c, op, "XRC domain", init.XRCD)
		if err != nil {
			return attr, err
		}
		attr.comp_mask, attr.xrcd = C.IBV_QP_INIT_ATTR_XRCD, x.c
		return attr, nil
	}
	domain, err := objectOf[*pd](c, op, "protection domain", init.PD)
	if err != nil {
		return attr, err
	}
	attr.comp_mask, attr.pd = C.IBV_QP_INIT_ATTR_PD, domain.c
	sends, err := objectOf[*cq](c, op, "completion queue to send", init.SendCQ)
	if err != nil {
		return attr, err
	}
	attr.send_cq = sends.c
	if init.Type == verbs.QPTypeXRCSend {
		return attr, nil
	}
	recvs, err := objectOf[*cq](c, op, "completion queue to receive", init.RecvCQ)
	if err != nil {
		return attr, err
	}
	attr.recv_cq = recvs.c
	if init.SRQ != nil {
		s, err := objectOf[*srq](c, op, "shared receive queue", init.SRQ)
		if err != nil {
			return attr, err
		}
		attr.srq = s.c
	}
	return attr, nil
}

func capsTo(op string, caps verbs.QPCaps) (c C.struct_ibv_qp_cap, err error) {
	for _, n := range []int{caps.MaxSendWR, caps.MaxRecvWR, caps.MaxSendSGE, caps.MaxRecvSGE, caps.MaxInline} {
		if n < 0 || n > math.MaxInt32 {
			return c, invalid(op, "", "sizes %+v", caps)
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

// Close destroys the queue pair with what is in it, and the connection that it has.
func (q *qp) Close() error {
	if err := q.settled(); err != nil {
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
		return 0, invalid("post_send", q.name(), "an XRC target sends nothing")
	}
	n, err := q.sends.post(q, wrs)
	if err != nil {
		return n, failed("post_send", q.name(), err)
	}
	return n, nil
}

// PostRecv posts receives.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := enter(q, "post_recv"); err != nil {
		return 0, err
	}
	defer q.leave()
	if q.onSRQ || q.kind == verbs.QPTypeXRCRecv || q.kind == verbs.QPTypeXRCSend {
		// It has no queue of its own, and libibverbs' siw would look for one.
		return 0, invalid("post_recv", q.name(), "its receives are not its own")
	}
	n, err := q.recvs.post(q.c, nil, wrs)
	if err != nil {
		return n, failed("post_recv", q.name(), err)
	}
	return n, nil
}

// BindMW binds a type 1 window.
func (q *qp) BindMW(window verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	const op = "bind_mw"
	if err := enter(q, op); err != nil {
		return 0, err
	}
	defer q.leave()
	in := C.struct_shim_send{wr_id: C.uint64_t(wrID), flags: C.uint32_t(flags)}
	if err := bindOperands(q.ctx, op, &verbs.Bind{MW: window, Info: info}, &in); err != nil {
		return 0, err
	}
	q.sends.mu.Lock() // binds of one window are one behind the other
	defer q.sends.mu.Unlock()
	w := window.(*mw)
	if err := shimError(C.shim_bind_mw(q.c, w.c, &in)); err != nil {
		return 0, failed(op, q.name(), err)
	}
	w.rkey.Store(uint32(w.c.rkey))
	return w.RKey(), nil
}

// AttachMulticast has a datagram queue pair receive what is sent to a group.
func (q *qp) AttachMulticast(group verbs.GID) error {
	const op = "attach_mcast"
	if err := enter(q, op); err != nil {
		return err
	}
	defer q.leave()
	gid := gidTo(group)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := shimError(C.shim_attach_mcast(q.c, &gid)); err != nil {
		return failed(op, q.name(), err)
	}
	if q.groups == nil {
		q.groups = make(map[verbs.GID]struct{})
	}
	q.groups[group] = struct{}{}
	return nil
}

// DetachMulticast has it leave the group.
func (q *qp) DetachMulticast(group verbs.GID) error {
	const op = "detach_mcast"
	if err := enter(q, op); err != nil {
		return err
	}
	defer q.leave()
	gid := gidTo(group)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := shimError(C.shim_detach_mcast(q.c, &gid)); err != nil {
		return failed(op, q.name(), err)
	}
	delete(q.groups, group)
	return nil
}

// leaveGroups is for a device that is being closed: a queue pair in a group stays.
func (q *qp) leaveGroups() {
	for group := range q.groups {
		gid := gidTo(group)
		C.shim_detach_mcast(q.c, &gid)
	}
	q.groups = nil
}
