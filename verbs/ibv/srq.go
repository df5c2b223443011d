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

// CreateSRQ makes a shared receive queue.
func (c *Context) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	const op = "create_srq"
	if err := c.enter(op); err != nil {
		return nil, err
	}
	defer c.leave()
	domain, err := objectOf[*pd](c, op, "protection domain", init.PD)
	if err != nil {
		return nil, err
	}
	for _, n := range []int{init.MaxWR, init.MaxSGE, init.Limit} {
		if n < 0 || n > math.MaxInt32 {
			return nil, invalid(op, c.info.Name, "sizes %d, %d, limit %d", init.MaxWR, init.MaxSGE, init.Limit)
		}
	}
	attr := C.struct_ibv_srq_attr{max_wr: C.uint32_t(init.MaxWR), max_sge: C.uint32_t(init.MaxSGE), srq_limit: C.uint32_t(init.Limit)}
	s := &srq{object: object{ctx: c}}
	var errno error
	switch init.Type {
	case verbs.SRQBasic:
		s.c, errno = C.ibv_create_srq(domain.c, &C.struct_ibv_srq_init_attr{attr: attr})
	case verbs.SRQXRC:
		var x *xrcd
		var on *cq
		if x, err = objectOf[*xrcd](c, op, "XRC domain", init.XRCD); err != nil {
			return nil, err
		}
		if on, err = objectOf[*cq](c, op, "completion queue", init.CQ); err != nil {
			return nil, err
		}
		s.c, errno = C.ibv_create_srq_ex(c.dev, &C.struct_ibv_srq_init_attr_ex{
			attr: attr, srq_type: C.IBV_SRQT_XRC, pd: domain.c, xrcd: x.c, cq: on.c,
			comp_mask: C.IBV_SRQ_INIT_ATTR_TYPE | C.IBV_SRQ_INIT_ATTR_PD | C.IBV_SRQ_INIT_ATTR_XRCD | C.IBV_SRQ_INIT_ATTR_CQ,
		})
	default:
		return nil, invalid(op, c.info.Name, "%v", init.Type)
	}
	if s.c == nil {
		return nil, failed(op, c.info.Name, cause(errno))
	}
	if init.Type == verbs.SRQXRC {
		var n C.uint32_t
		if err := shimError(C.shim_srq_num(s.c, &n)); err != nil {
			C.shim_ibv_destroy_srq(s.c)
			return nil, failed("get_srq_num", c.info.Name, err)
		}
		s.number = uint32(n)
	}
	c.addChild(s)
	return s, nil
}

func (s *srq) name() string   { return fmt.Sprintf("srq %d", s.c.handle) }
func (s *srq) rank() int      { return rankLeaf }
func (s *srq) Number() uint32 { return s.number }

func (s *srq) destroy() error {
	if err := shimError(C.shim_ibv_destroy_srq(s.c)); err != nil {
		return err
	}
	s.recvs.free()
	return nil
}

// Close destroys the queue with what is in it.
func (s *srq) Close() error { return closeObject(s, "destroy_srq") }

// PostRecv posts receives.
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := enter(s, "post_srq_recv"); err != nil {
		return 0, err
	}
	defer s.leave()
	n, err := s.recvs.post(nil, s.c, wrs)
	if err != nil {
		return n, failed("post_srq_recv", s.name(), err)
	}
	return n, nil
}

// Modify changes size or limit.
func (s *srq) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	const op = "modify_srq"
	if err := enter(s, op); err != nil {
		return err
	}
	defer s.leave()
	if attr.MaxWR < 0 || attr.Limit < 0 || attr.MaxWR > math.MaxInt32 || attr.Limit > math.MaxInt32 {
		return invalid(op, s.name(), "size %d, limit %d", attr.MaxWR, attr.Limit)
	}
	in := C.struct_ibv_srq_attr{max_wr: C.uint32_t(attr.MaxWR), max_sge: C.uint32_t(attr.MaxSGE), srq_limit: C.uint32_t(attr.Limit)}
	return failed(op, s.name(), shimError(C.shim_modify_srq(s.c, &in, C.int(mask))))
}

// Query tells sizes and limit.
func (s *srq) Query() (verbs.SRQAttr, error) {
	const op = "query_srq"
	if err := enter(s, op); err != nil {
		return verbs.SRQAttr{}, err
	}
	defer s.leave()
	var a C.struct_ibv_srq_attr
	if err := shimError(C.shim_query_srq(s.c, &a)); err != nil {
		return verbs.SRQAttr{}, failed(op, s.name(), err)
	}
	return verbs.SRQAttr{MaxWR: int(a.max_wr), MaxSGE: int(a.max_sge), Limit: int(a.srq_limit)}, nil
}
