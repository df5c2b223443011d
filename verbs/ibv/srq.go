//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/verbs"
)

// srq is a shared receive queue.
type srq struct {
	object
	c      *C.struct_ibv_srq
	number uint32
	recvs  recvQueue
}

// CreateSRQ implements verbs.Context.
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
	on, err := objectOf[*cq](s.ctx, "completion queue", init.CQ)
	if err != nil {
		return err
	}
	s.c, err = C.ibv_create_srq_ex(s.ctx.dev, &C.struct_ibv_srq_init_attr_ex{
		attr: attr, srq_type: C.IBV_SRQT_XRC, pd: domain.c, xrcd: x.c, cq: on.c,
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
	n, err := s.recvs.post(nil, s.c, wrs)
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
