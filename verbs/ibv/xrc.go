//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// xrcd is an XRC domain. The library tells no number of it.
type xrcd struct {
	object
	c *C.struct_ibv_xrcd
}

// OpenXRCD makes an XRC domain of this process's own.
func (c *Context) OpenXRCD() (verbs.XRCD, error) {
	if err := c.enter("open_xrcd"); err != nil {
		return nil, err
	}
	defer c.leave()
	x, errno := C.ibv_open_xrcd(c.dev, &C.struct_ibv_xrcd_init_attr{
		comp_mask: C.IBV_XRCD_INIT_ATTR_FD | C.IBV_XRCD_INIT_ATTR_OFLAGS, fd: -1, oflags: C.O_CREAT,
	})
	if x == nil {
		return nil, failed("open_xrcd", c.info.Name, cause(errno))
	}
	o := &xrcd{object: object{ctx: c}, c: x}
	c.addChild(o)
	return o, nil
}

func (x *xrcd) name() string   { return fmt.Sprintf("xrcd %p", x.c) }
func (x *xrcd) rank() int      { return rankDomain }
func (x *xrcd) destroy() error { return shimError(C.shim_ibv_close_xrcd(x.c)) }

// Close closes the domain.
func (x *xrcd) Close() error { return closeObject(x, "close_xrcd") }

// OpenQP opens a second handle to an XRC target by its number.
func (c *Context) OpenQP(domain verbs.XRCD, n verbs.QPN) (verbs.QP, error) {
	const op = "open_qp"
	if err := c.enter(op); err != nil {
		return nil, err
	}
	defer c.leave()
	x, err := objectOf[*xrcd](c, op, "XRC domain", domain)
	if err != nil {
		return nil, err
	}
	p, errno := C.ibv_open_qp(c.dev, &C.struct_ibv_qp_open_attr{
		comp_mask: C.IBV_QP_OPEN_ATTR_NUM | C.IBV_QP_OPEN_ATTR_XRCD | C.IBV_QP_OPEN_ATTR_TYPE,
		qp_num:    C.uint32_t(n), xrcd: x.c, qp_type: C.IBV_QPT_XRC_RECV,
	})
	if p == nil {
		return nil, failed(op, fmt.Sprintf("qp %#x", uint32(n)), cause(errno))
	}
	return newQP(c, p, verbs.QPTypeXRCRecv), nil
}
