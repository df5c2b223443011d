//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// xrcd is an XRC domain. libibverbs does not report its number.
type xrcd struct {
	object
	c *C.struct_ibv_xrcd
}

// OpenXRCD creates an XRC domain that is private to this process.
func (c *Context) OpenXRCD() (verbs.XRCD, error) {
	x := &xrcd{object: object{ctx: c}}
	return create[verbs.XRCD](c, x, "open_xrcd", func() (errno error) {
		x.c, errno = C.ibv_open_xrcd(c.dev, &C.struct_ibv_xrcd_init_attr{
			comp_mask: C.IBV_XRCD_INIT_ATTR_FD | C.IBV_XRCD_INIT_ATTR_OFLAGS, fd: -1, oflags: C.O_CREAT,
		})
		if x.c == nil {
			return cause(errno)
		}
		return nil
	})
}

func (x *xrcd) name() string   { return fmt.Sprintf("xrcd %p", x.c) }
func (x *xrcd) rank() int      { return rankDomain }
func (x *xrcd) destroy() error { return shimError(C.shim_ibv_close_xrcd(x.c)) }

// Close closes the domain.
func (x *xrcd) Close() error { return closeObject(x, "close_xrcd") }

// OpenQP opens a second handle to an XRC target by its number.
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
