//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"runtime"
	"sort"
	"sync"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// probed has the results of probe.
type probed struct {
	once        sync.Once
	caps        verbs.Caps
	inline      int
	atomicWrite bool
	err         error
}

// maxProbedInline bounds the search for the limit of inline data.
const maxProbedInline = 4096

// probe finds out capabilities that no query of libibverbs reports, by creating objects.
// The caller holds the read lock of closeLock.
func (c *Context) probe() (*probed, error) {
	p := &c.probes
	p.once.Do(func() {
		var x C.struct_ibv_device_attr_ex
		if p.err = shimError(C.shim_query_device(c.dev, &x)); p.err != nil {
			return
		}
		p.atomicWrite = uint64(x.device_cap_flags_ex)&capAtomicWrite != 0
		domain, errno := C.ibv_alloc_pd(c.dev)
		if domain == nil {
			p.err = cause(errno)
			return
		}
		defer C.ibv_dealloc_pd(domain)
		queue, errno := C.ibv_create_cq(c.dev, 16, nil, nil, 0)
		if queue == nil {
			p.err = cause(errno)
			return
		}
		defer C.ibv_destroy_cq(queue)
		p.caps = probeServices(domain, queue) | probeZeroBased(domain)
		if C.shim_resize_cq(queue, 32) == 0 {
			p.caps |= verbs.CapResizeCQ
		}
		if hasCM() {
			p.caps |= verbs.CapCM
		}
		p.inline = inlineLimit(domain, queue, p.caps)
	})
	return p, p.err
}

// probeServices returns the transport services for which queue pairs can be created.
func probeServices(domain *C.struct_ibv_pd, queue *C.struct_ibv_cq) (caps verbs.Caps) {
	for _, s := range []struct {
		kind verbs.QPType
		cap  verbs.Caps
	}{{verbs.QPTypeRC, verbs.CapRC}, {verbs.QPTypeUC, verbs.CapUC}, {verbs.QPTypeUD, verbs.CapUD}} {
		if canCreateQP(domain, queue, s.kind, 0) {
			caps |= s.cap
		}
	}
	return caps
}

// canCreateQP reports whether a queue pair with that much inline data can be created.
func canCreateQP(domain *C.struct_ibv_pd, queue *C.struct_ibv_cq, kind verbs.QPType, inline int) bool {
	attr := C.struct_ibv_qp_init_attr{send_cq: queue, recv_cq: queue, qp_type: uint32(kind)}
	attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge, attr.cap.max_recv_sge = 1, 1, 1, 1
	attr.cap.max_inline_data = C.uint32_t(inline)
	p := C.ibv_create_qp(domain, &attr)
	if p == nil {
		return false
	}
	C.ibv_destroy_qp(p)
	return true
}

// inlineLimit returns the maximum of inline data with which a queue pair can be created.
func inlineLimit(domain *C.struct_ibv_pd, queue *C.struct_ibv_cq, caps verbs.Caps) int {
	kind := verbs.QPTypeRC
	if !caps.Has(verbs.CapRC) {
		kind = verbs.QPTypeUD
	}
	return sort.Search(maxProbedInline, func(n int) bool { return !canCreateQP(domain, queue, kind, n+1) })
}

// probeZeroBased returns CapZeroBased if a region with address 0 can be registered.
func probeZeroBased(domain *C.struct_ibv_pd) verbs.Caps {
	buf := BufferFor(0, 64)
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	m := C.shim_reg_mr(domain, C.uintptr_t(uintptr(unsafe.Pointer(&buf[0]))), C.size_t(len(buf)), 0, C.IBV_ACCESS_LOCAL_WRITE|C.IBV_ACCESS_ZERO_BASED)
	if m == nil {
		return 0
	}
	C.ibv_dereg_mr(m)
	return verbs.CapZeroBased
}
