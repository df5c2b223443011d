//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// ah is an address handle.
type ah struct {
	object
	c    *C.struct_ibv_ah
	attr verbs.AHAttr
}

// CreateAH implements verbs.PD.
func (d *pd) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	a := &ah{object: object{ctx: d.ctx}, attr: attr}
	return create[verbs.AH](d, a, "create_ah", func() (errno error) {
		in := addressToC(attr)
		a.c, errno = C.ibv_create_ah(d.c, &in)
		return nilError(a.c, errno)
	})
}

func (a *ah) Attr() verbs.AHAttr { return a.attr }
func (a *ah) name() string       { return fmt.Sprintf("ah to %v", a.attr.GRH.DGID) }
func (a *ah) closeOrder() int    { return closeOrderLeaf }
func (a *ah) destroy() error     { return shimError(C.shim_ibv_destroy_ah(a.c)) }

// Close frees the handle.
func (a *ah) Close() error { return closeObject(a, "destroy_ah") }

// addressToC returns an address as an ibv_ah_attr with a GRH, which RoCE always has.
func addressToC(a verbs.AHAttr) (c C.struct_ibv_ah_attr) {
	c.grh.dgid = gidToC(a.GRH.DGID)
	c.grh.flow_label = C.uint32_t(a.GRH.FlowLabel)
	c.grh.sgid_index = C.uint8_t(a.GRH.SGIDIndex)
	c.grh.hop_limit = C.uint8_t(a.GRH.HopLimit)
	c.grh.traffic_class = C.uint8_t(a.GRH.TrafficClass)
	c.sl = C.uint8_t(a.SL)
	c.static_rate = C.uint8_t(a.StaticRate)
	c.port_num = C.uint8_t(a.Port)
	c.is_global = 1
	return c
}

// addressFromC returns an ibv_ah_attr as an address.
func addressFromC(c *C.struct_ibv_ah_attr) verbs.AHAttr {
	return verbs.AHAttr{
		GRH: verbs.GRH{
			DGID: gidFromC(&c.grh.dgid), FlowLabel: uint32(c.grh.flow_label), SGIDIndex: uint8(c.grh.sgid_index),
			HopLimit: uint8(c.grh.hop_limit), TrafficClass: uint8(c.grh.traffic_class),
		},
		SL: uint8(c.sl), StaticRate: uint8(c.static_rate), Port: uint8(c.port_num),
	}
}

func gidToC(g verbs.GID) (c C.union_ibv_gid) {
	*(*verbs.GID)(unsafe.Pointer(&c)) = g
	return c
}

func gidFromC(c *C.union_ibv_gid) verbs.GID { return *(*verbs.GID)(unsafe.Pointer(c)) }
