//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// cq is a completion queue.
type cq struct {
	object
	c       *C.struct_ibv_cq
	channel *channel // nil if it has none
	// overrun is set after a CQ error event, which ibv_poll_cq does not report.
	overrun atomic.Bool

	mu  sync.Mutex
	wcs *[pollBatch]C.struct_ibv_wc // mu; of the last call of ibv_poll_cq
}

// pollBatch is the maximum number of completions in one call of ibv_poll_cq.
const pollBatch = 64

// CreateCQ implements verbs.Context. It also allocates the C array that polls fill.
func (c *Context) CreateCQ(init verbs.CQInit) (verbs.CQ, error) {
	q := &cq{object: object{ctx: c}}
	return create[verbs.CQ](c, q, "create_cq", func() error {
		depth, err := depthToC(init.Depth)
		if err != nil {
			return err
		}
		var events *C.struct_ibv_comp_channel
		if init.Channel != nil {
			if q.channel, err = objectOf[*channel](c, "completion channel", init.Channel); err != nil {
				return err
			}
			events = q.channel.c
		}
		if q.c, err = C.ibv_create_cq(c.dev, depth, nil, events, 0); q.c == nil {
			return cause(err)
		}
		q.wcs = (*[pollBatch]C.struct_ibv_wc)(C.calloc(pollBatch, C.sizeof_struct_ibv_wc))
		if q.channel != nil {
			q.channel.queues.Add(1)
		}
		return nil
	})
}

// depthToC returns the depth of a completion queue, which the library checks, as a C int.
func depthToC(depth int) (C.int, error) {
	if depth > math.MaxInt32 || depth < math.MinInt32 {
		return 0, invalid("a depth of %d", depth)
	}
	return C.int(depth), nil
}

func (q *cq) name() string    { return fmt.Sprintf("cq %d", q.c.handle) }
func (q *cq) closeOrder() int { return closeOrderCQ }

// destroy implements child.
func (q *cq) destroy() error {
	if err := shimError(C.shim_ibv_destroy_cq(q.c)); err != nil {
		return err
	}
	C.free(unsafe.Pointer(q.wcs))
	q.wcs = nil
	if q.channel != nil {
		q.channel.queues.Add(-1)
	}
	return nil
}

// Close destroys the queue.
func (q *cq) Close() error { return closeObject(q, "destroy_cq") }

// Poll implements verbs.CQ. After an overrun, it returns ErrOverrun when no completions are left.
func (q *cq) Poll(into []verbs.WC) (int, error) {
	if err := enter(q, "poll_cq"); err != nil {
		return 0, err
	}
	defer q.leave()
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := 0
	for taken < len(into) {
		room := min(len(into)-taken, pollBatch)
		n := C.shim_poll_cq(q.c, C.int(room), &q.wcs[0])
		if n < 0 {
			if taken > 0 {
				return taken, nil // the next poll fails again
			}
			return 0, opError("poll_cq", q.name(), errnoError(int(n)))
		}
		for i := range n {
			copyWC(&into[taken+int(i)], &q.wcs[i])
		}
		taken += int(n)
		if int(n) < room {
			break
		}
	}
	if taken == 0 && len(into) > 0 && q.overrun.Load() {
		return 0, opError("poll_cq", q.name(), verbs.ErrOverrun)
	}
	return taken, nil
}

// copyWC copies a completion. If its status is an error, only four fields are valid and copied.
func copyWC(out *verbs.WC, in *C.struct_ibv_wc) {
	*out = verbs.WC{
		WRID: uint64(in.wr_id), Status: verbs.WCStatus(in.status), VendorErr: uint32(in.vendor_err), QPN: verbs.QPN(in.qp_num),
	}
	if out.Status != verbs.WCSuccess {
		return
	}
	out.Opcode, out.ByteLen = verbs.WCOpcode(in.opcode), uint32(in.byte_len)
	out.SrcQP, out.Flags = verbs.QPN(in.src_qp), verbs.WCFlags(in.wc_flags)
	out.PKeyIndex, out.SL = uint16(in.pkey_index), uint8(in.sl)
	word := (*[4]byte)(unsafe.Pointer(&in.anon0))[:] // union of imm_data and invalidated_rkey
	switch {
	case out.Flags&verbs.WCWithImm != 0:
		out.Imm = binary.BigEndian.Uint32(word)
	case out.Flags&verbs.WCWithInv != 0:
		out.InvalidatedRKey = verbs.RKey(binary.NativeEndian.Uint32(word))
	}
}

// ReqNotify implements verbs.CQ.
func (q *cq) ReqNotify(solicitedOnly bool) error {
	return callVerb(q, "req_notify_cq", func() error {
		var only C.int
		if solicitedOnly {
			only = 1
		}
		return shimError(C.shim_req_notify_cq(q.c, only))
	})
}

// Depth implements verbs.CQ; 0 after Close.
func (q *cq) Depth() int {
	if enter(q, "depth") != nil {
		return 0
	}
	defer q.leave()
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.c.cqe)
}

// Resize implements verbs.CQ.
func (q *cq) Resize(depth int) error {
	return callVerb(q, "resize_cq", func() error {
		entries, err := depthToC(depth)
		if err != nil {
			return err
		}
		q.mu.Lock() // the library changes the depth that Depth reads
		defer q.mu.Unlock()
		return shimError(C.shim_resize_cq(q.c, entries))
	})
}

// srq is a shared receive queue.
type srq struct {
	object
	c      *C.struct_ibv_srq
	number uint32
	recvs  recvQueue
}

// CreateSRQ implements verbs.Context, for basic SRQs and those of XRC.
func (c *Context) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	s := &srq{object: object{ctx: c}}
	return create[verbs.SRQ](c, s, "create_srq", func() error {
		domain, err := objectOf[*pd](c, "protection domain", init.PD)
		if err != nil {
			return err
		}
		attr, err := srqAttrToC(verbs.SRQAttr{MaxWR: init.MaxWR, MaxSGE: init.MaxSGE, Limit: init.Limit})
		if err != nil {
			return err
		}
		switch init.Type {
		case verbs.SRQBasic:
			s.c, err = C.ibv_create_srq(domain.c, &C.struct_ibv_srq_init_attr{attr: attr})
		case verbs.SRQXRC:
			return s.createXRC(domain, attr, &init)
		default:
			return invalid("%v", init.Type)
		}
		return nilError(s.c, err)
	})
}

// createXRC creates the queue in an XRC domain, and queries its number.
func (s *srq) createXRC(domain *pd, attr C.struct_ibv_srq_attr, init *verbs.SRQInit) error {
	x, err := objectOf[*xrcd](s.ctx, "XRC domain", init.XRCD)
	if err != nil {
		return err
	}
	completions, err := objectOf[*cq](s.ctx, "completion queue", init.CQ)
	if err != nil {
		return err
	}
	s.c, err = C.ibv_create_srq_ex(s.ctx.dev, &C.struct_ibv_srq_init_attr_ex{
		attr: attr, srq_type: C.IBV_SRQT_XRC, pd: domain.c, xrcd: x.c, cq: completions.c,
		comp_mask: C.IBV_SRQ_INIT_ATTR_TYPE | C.IBV_SRQ_INIT_ATTR_PD | C.IBV_SRQ_INIT_ATTR_XRCD | C.IBV_SRQ_INIT_ATTR_CQ,
	})
	if s.c == nil {
		return cause(err)
	}
	var n C.uint32_t
	if err := shimError(C.shim_srq_num(s.c, &n)); err != nil {
		C.shim_ibv_destroy_srq(s.c)
		return fmt.Errorf("get_srq_num: %w", err)
	}
	s.number = uint32(n)
	return nil
}

// srqAttrToC returns attributes as an ibv_srq_attr.
func srqAttrToC(a verbs.SRQAttr) (c C.struct_ibv_srq_attr, err error) {
	for _, n := range []int{a.MaxWR, a.MaxSGE, a.Limit} {
		if n < 0 || n > math.MaxInt32 {
			return c, invalid("sizes %d, %d, limit %d", a.MaxWR, a.MaxSGE, a.Limit)
		}
	}
	return C.struct_ibv_srq_attr{max_wr: C.uint32_t(a.MaxWR), max_sge: C.uint32_t(a.MaxSGE), srq_limit: C.uint32_t(a.Limit)}, nil
}

func (s *srq) name() string    { return fmt.Sprintf("srq %d", s.c.handle) }
func (s *srq) closeOrder() int { return closeOrderLeaf }
func (s *srq) Number() uint32  { return s.number }

// destroy implements child.
func (s *srq) destroy() error {
	if err := shimError(C.shim_ibv_destroy_srq(s.c)); err != nil {
		return err
	}
	s.recvs.free()
	return nil
}

// Close destroys the queue with its requests.
func (s *srq) Close() error { return closeObject(s, "destroy_srq") }

// PostRecv implements verbs.SRQ.
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := enter(s, "post_srq_recv"); err != nil {
		return 0, err
	}
	defer s.leave()
	n, err := s.recvs.post(nil, s.c, wrs) // nil: not to a queue pair
	return n, opError("post_srq_recv", s.name(), err)
}

// Modify implements verbs.SRQ.
func (s *srq) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	return callVerb(s, "modify_srq", func() error {
		in, err := srqAttrToC(attr)
		if err != nil {
			return err
		}
		return shimError(C.shim_modify_srq(s.c, &in, C.int(mask)))
	})
}

// Query implements verbs.SRQ.
func (s *srq) Query() (attr verbs.SRQAttr, err error) {
	err = callVerb(s, "query_srq", func() error {
		var a C.struct_ibv_srq_attr
		err := shimError(C.shim_query_srq(s.c, &a))
		attr = verbs.SRQAttr{MaxWR: int(a.max_wr), MaxSGE: int(a.max_sge), Limit: int(a.srq_limit)}
		return err
	})
	return attr, err
}
