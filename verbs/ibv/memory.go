//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// pd is a protection domain.
type pd struct {
	object
	c *C.struct_ibv_pd
}

// AllocPD implements verbs.Context.
func (c *Context) AllocPD() (verbs.PD, error) {
	d := &pd{object: object{ctx: c}}
	return create[verbs.PD](c, d, "alloc_pd", func() (errno error) {
		d.c, errno = C.ibv_alloc_pd(c.dev)
		return nilError(d.c, errno)
	})
}

func (d *pd) name() string    { return fmt.Sprintf("pd %d", d.c.handle) }
func (d *pd) closeOrder() int { return closeOrderDomain }
func (d *pd) destroy() error  { return shimError(C.shim_ibv_dealloc_pd(d.c)) }

// Close frees the domain.
func (d *pd) Close() error { return closeObject(d, "dealloc_pd") }

// mr is a memory region.
type mr struct {
	object
	c    *C.struct_ibv_mr
	lkey verbs.LKey
	rkey verbs.RKey
	addr uint64
	size int
	buf  []byte
	pin  runtime.Pinner
}

// emptyBuf is the memory of a region without memory.
var emptyBuf [1]byte

// RegMR implements verbs.PD. It pins the memory for the garbage collector until the region is
// destroyed. The region's address is the memory's own unless init sets another or is zero-based.
func (d *pd) RegMR(init verbs.MRInit) (verbs.MR, error) {
	first := unsafe.SliceData(init.Buf)
	if first == nil {
		first = &emptyBuf[0] // registering no bytes needs an address, too
	}
	m := &mr{object: object{ctx: d.ctx}, size: len(init.Buf), buf: init.Buf}
	m.pin.Pin(first)
	bufAddr := uintptr(unsafe.Pointer(first))
	m.addr = uint64(bufAddr)
	if init.Addr != 0 || init.Access&verbs.AccessZeroBased != 0 {
		m.addr = init.Addr
	}
	region, err := create[verbs.MR](d, m, "reg_mr", func() (errno error) {
		m.c, errno = C.shim_reg_mr(d.c, C.uintptr_t(bufAddr), C.size_t(m.size), C.uint64_t(m.addr), C.uint(init.Access))
		if m.c == nil {
			return regMRHint(cause(errno), uint64(bufAddr), m)
		}
		m.lkey, m.rkey = verbs.LKey(m.c.lkey), verbs.RKey(m.c.rkey)
		return nil
	})
	if err != nil {
		m.pin.Unpin()
	}
	return region, err
}

// regMRHint adds the likely cause to an error of registering m, whose memory is at bufAddr.
func regMRHint(err error, bufAddr uint64, m *mr) error {
	page := uint64(os.Getpagesize())
	if bufAddr%page != m.addr%page {
		err = hinted(err, fmt.Sprintf("the kernel wants memory for address %#x that begins %#x into its page, and this begins %#x into it",
			m.addr, m.addr%page, bufAddr%page), syscall.EINVAL)
	}
	if os.Geteuid() != 0 {
		err = hinted(err, fmt.Sprintf("%d bytes may be beyond the limit of locked memory; see ulimit -l", m.size), syscall.ENOMEM)
	}
	return err
}

func (m *mr) LKey() verbs.LKey { return m.lkey }
func (m *mr) RKey() verbs.RKey { return m.rkey }
func (m *mr) Addr() uint64     { return m.addr }
func (m *mr) Len() int         { return m.size }
func (m *mr) name() string     { return fmt.Sprintf("mr %#x", uint32(m.lkey)) }
func (m *mr) closeOrder() int  { return closeOrderLeaf }

// destroy implements child.
func (m *mr) destroy() error {
	if err := shimError(C.shim_ibv_dereg_mr(m.c)); err != nil {
		return err
	}
	m.pin.Unpin()
	return nil
}

// Close ends the registration.
func (m *mr) Close() error { return closeObject(m, "dereg_mr") }

// mw is a memory window.
type mw struct {
	object
	c    *C.struct_ibv_mw
	kind verbs.MWType
	rkey atomic.Uint32
}

// AllocMW implements verbs.PD.
func (d *pd) AllocMW(kind verbs.MWType) (verbs.MW, error) {
	w := &mw{object: object{ctx: d.ctx}, kind: kind}
	return create[verbs.MW](d, w, "alloc_mw", func() (errno error) {
		if kind > 0xff {
			return invalid("%v", kind) // the kernel's field has eight bits
		}
		if w.c, errno = C.ibv_alloc_mw(d.c, uint32(kind)); w.c == nil {
			return cause(errno)
		}
		w.rkey.Store(uint32(w.c.rkey))
		return nil
	})
}

func (w *mw) Type() verbs.MWType { return w.kind }
func (w *mw) RKey() verbs.RKey   { return verbs.RKey(w.rkey.Load()) }
func (w *mw) name() string       { return fmt.Sprintf("mw %#x", w.rkey.Load()) }
func (w *mw) closeOrder() int    { return closeOrderWindow }
func (w *mw) destroy() error     { return shimError(C.shim_ibv_dealloc_mw(w.c)) }

// Close frees the window, bound or not.
func (w *mw) Close() error { return closeObject(w, "dealloc_mw") }

// xrcd is an XRC domain. libibverbs does not report its number.
type xrcd struct {
	object
	c *C.struct_ibv_xrcd
}

// OpenXRCD implements verbs.Context. The domain is private to this process.
func (c *Context) OpenXRCD() (verbs.XRCD, error) {
	x := &xrcd{object: object{ctx: c}}
	return create[verbs.XRCD](c, x, "open_xrcd", func() (errno error) {
		x.c, errno = C.ibv_open_xrcd(c.dev, &C.struct_ibv_xrcd_init_attr{
			comp_mask: C.IBV_XRCD_INIT_ATTR_FD | C.IBV_XRCD_INIT_ATTR_OFLAGS, fd: -1, oflags: C.O_CREAT,
		})
		return nilError(x.c, errno)
	})
}

func (x *xrcd) name() string    { return fmt.Sprintf("xrcd %p", x.c) }
func (x *xrcd) closeOrder() int { return closeOrderDomain }
func (x *xrcd) destroy() error  { return shimError(C.shim_ibv_close_xrcd(x.c)) }

// Close closes the domain.
func (x *xrcd) Close() error { return closeObject(x, "close_xrcd") }

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
