//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"sync"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// postBatch is the maximum number of requests in one call of the library.
const postBatch = 64

// grow returns n elements of C memory: those of s if it has room; otherwise it frees s and
// allocates new ones.
func grow[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	freeC(s)
	size := max(n, 2*cap(s), 16)
	var t T
	return unsafe.Slice((*T)(C.calloc(C.size_t(size), C.size_t(unsafe.Sizeof(t)))), size)[:n]
}

// freeC frees memory of grow.
func freeC[T any](s []T) { C.free(unsafe.Pointer(unsafe.SliceData(s))) }

// recvQueue converts receive requests to those of the library, in C memory that it reuses.
type recvQueue struct {
	mu  sync.Mutex
	in  []C.struct_shim_recv
	wr  []C.struct_ibv_recv_wr
	sge []C.struct_ibv_sge
}

// post posts receives to the queue pair q or, if that is nil, to the shared receive queue s, in
// batches. The shim makes the requests of libibverbs, r.wr, from r.in and r.sge.
func (r *recvQueue) post(q *C.struct_ibv_qp, s *C.struct_ibv_srq, wrs []verbs.RecvWR) (posted int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(wrs) > 0 {
		n, sges := min(len(wrs), postBatch), 0
		for i := range wrs[:n] {
			sges += len(wrs[i].SGL)
		}
		r.in, r.wr, r.sge = grow(r.in, n), grow(r.wr, n), grow(r.sge, max(sges, 1))
		nextSGE := 0
		for i := range wrs[:n] {
			w := &wrs[i]
			r.in[i] = C.struct_shim_recv{wr_id: C.uint64_t(w.WRID), first_sge: C.uint32_t(nextSGE), num_sge: C.uint32_t(len(w.SGL))}
			nextSGE += copySGL(r.sge[nextSGE:], w.SGL)
		}
		var taken C.int
		ret := C.shim_post_recv(q, s, &r.in[0], &r.wr[0], &r.sge[0], C.int(n), &taken)
		posted += int(taken)
		if ret != 0 {
			return posted, errnoError(int(ret))
		}
		wrs = wrs[n:]
	}
	return posted, nil
}

// free frees the C memory.
func (r *recvQueue) free() {
	freeC(r.in)
	freeC(r.wr)
	freeC(r.sge)
	r.in, r.wr, r.sge = nil, nil, nil
}

// copySGL copies a scatter/gather list and returns its length.
func copySGL(into []C.struct_ibv_sge, sgl []verbs.SGE) int {
	for i := range sgl {
		into[i] = C.struct_ibv_sge{addr: C.uint64_t(sgl[i].Addr), length: C.uint32_t(sgl[i].Length), lkey: C.uint32_t(sgl[i].LKey)}
	}
	return len(sgl)
}

// sendQueue is recvQueue for send requests.
type sendQueue struct {
	mu   sync.Mutex
	in   []C.struct_shim_send
	wr   []C.struct_ibv_send_wr
	sge  []C.struct_ibv_sge
	data []byte // copies of inline data in C memory
}

// free frees the C memory.
func (s *sendQueue) free() {
	freeC(s.in)
	freeC(s.wr)
	freeC(s.sge)
	freeC(s.data)
	s.in, s.wr, s.sge, s.data = nil, nil, nil, nil
}

// post posts send requests in order, in batches that end before an atomic write or after a bind. It
// stops at a request that cannot be posted, and returns the number of those before it.
func (s *sendQueue) post(q *qp, wrs []verbs.SendWR) (posted int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(wrs) > 0 {
		var n int
		var taken C.int
		var ret C.int
		if wrs[0].Opcode == verbs.OpAtomicWrite {
			if n, err = 1, s.atomicWrite(q, &wrs[0]); err != nil {
				return posted, err
			}
			taken = 1
		} else {
			n, err = s.convert(q, wrs)
			if n > 0 {
				ret = C.shim_post_send(q.c, &s.in[0], &s.wr[0], &s.sge[0], C.int(n), &taken)
			}
		}
		posted += int(taken)
		if ret != 0 {
			return posted, errnoError(int(ret))
		}
		if err != nil {
			return posted, err
		}
		if last := &wrs[n-1]; last.Opcode == verbs.OpBindMW {
			setBoundKey(last)
		}
		wrs = wrs[n:]
	}
	return posted, nil
}

// batchOf returns the requests that are posted in one call: up to a bind, since its window gets the
// new key after the call, and without atomic writes, which another function posts.
func batchOf(wrs []verbs.SendWR) []verbs.SendWR {
	for i := range wrs[:min(len(wrs), postBatch)] {
		switch {
		case wrs[i].Opcode == verbs.OpBindMW:
			return wrs[:i+1]
		case wrs[i].Opcode == verbs.OpAtomicWrite:
			return wrs[:i]
		}
	}
	return wrs[:min(len(wrs), postBatch)]
}

// convert converts the first requests in wrs for the shim and returns their number. The error is
// that of the next request, if the library cannot post it.
func (s *sendQueue) convert(q *qp, wrs []verbs.SendWR) (n int, err error) {
	wrs = batchOf(wrs)
	sges, bytes := 0, 0
	for i := range wrs {
		if wrs[i].Flags&verbs.SendInline != 0 {
			sges++
			bytes += len(wrs[i].Inline)
		} else {
			sges += len(wrs[i].SGL)
		}
	}
	s.in, s.wr, s.sge, s.data = grow(s.in, len(wrs)), grow(s.wr, len(wrs)), grow(s.sge, max(sges, 1)), grow(s.data, bytes)
	nextSGE, dataLen := 0, 0
	for i := range wrs {
		w, out := &wrs[i], &s.in[i]
		*out = C.struct_shim_send{wr_id: C.uint64_t(w.WRID), opcode: C.uint32_t(w.Opcode), flags: C.uint32_t(w.Flags), first_sge: C.uint32_t(nextSGE)}
		if err := copyOperands(q, w, out); err != nil {
			return i, err
		}
		if w.Flags&verbs.SendInline == 0 {
			out.num_sge = C.uint32_t(copySGL(s.sge[nextSGE:], w.SGL))
		} else if len(w.Inline) > 0 {
			copy(s.data[dataLen:], w.Inline)
			s.sge[nextSGE] = C.struct_ibv_sge{addr: C.uint64_t(uintptr(unsafe.Pointer(&s.data[dataLen]))), length: C.uint32_t(len(w.Inline))}
			out.num_sge = 1
			dataLen += len(w.Inline)
		}
		nextSGE += int(out.num_sge)
	}
	return len(wrs), nil
}

// copyOperands copies the fields of a request besides its scatter/gather list. out.imm also holds
// the key to invalidate.
func copyOperands(q *qp, w *verbs.SendWR, out *C.struct_shim_send) (err error) {
	out.remote_srqn = C.uint32_t(w.XRC.SRQN)
	switch w.Opcode {
	case verbs.OpSend:
	case verbs.OpSendImm:
		out.imm = C.uint32_t(w.Imm)
	case verbs.OpSendInv, verbs.OpLocalInv:
		out.imm = C.uint32_t(w.InvalidateRKey)
	case verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpRDMAWriteImm, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite:
		out.imm = C.uint32_t(w.Imm)
		out.remote_addr, out.rkey = C.uint64_t(w.Remote.Addr), C.uint32_t(w.Remote.RKey)
		out.compare_add, out.swap = C.uint64_t(w.Atomic.CompareAdd), C.uint64_t(w.Atomic.Swap)
	case verbs.OpBindMW:
		err = copyBindOperands(q.ctx, &w.Bind, out)
	case verbs.OpFlush:
		return fmt.Errorf("%w: the libibverbs that this was built with has no flush", verbs.ErrNotSupported)
	default:
		return fmt.Errorf("%w: there is no operation %d", verbs.ErrInvalid, uint32(w.Opcode))
	}
	if err == nil && q.kind == verbs.QPTypeUD {
		var to *ah
		if to, err = objectOf[*ah](q.ctx, "address handle", w.UD.AH); err == nil {
			out.ah, out.remote_qpn, out.remote_qkey = to.c, C.uint32_t(w.UD.QPN), C.uint32_t(w.UD.QKey)
		}
	}
	return err
}

// copyBindOperands copies the fields of a bind. A bind of length 0 has no region.
func copyBindOperands(c *Context, b *verbs.Bind, out *C.struct_shim_send) error {
	w, err := objectOf[*mw](c, "memory window", b.MW)
	if err != nil {
		return err
	}
	if b.Info.MR != nil {
		m, err := objectOf[*mr](c, "memory region", b.Info.MR)
		if err != nil {
			return err
		}
		out.mr = m.c
	}
	out.mw, out.mw_rkey = w.c, C.uint32_t(b.RKey)
	out.bind_addr, out.bind_length = C.uint64_t(b.Info.Addr), C.uint64_t(b.Info.Length)
	out.bind_access = C.uint32_t(b.Info.Access)
	return nil
}

// setBoundKey stores the key of a type 2 window after its bind was posted: the library expects
// its caller to do that, and uses the stored key for the next bind.
func setBoundKey(w *verbs.SendWR) {
	m := w.Bind.MW.(*mw)
	m.c.rkey = C.uint32_t(w.Bind.RKey)
	m.rkey.Store(uint32(w.Bind.RKey))
}

// atomicWrite posts an atomic write. libibverbs posts it only by ibv_wr_atomic_write, which
// takes the eight bytes as an argument, not a scatter/gather list.
func (s *sendQueue) atomicWrite(q *qp, w *verbs.SendWR) error {
	if q.ex == nil { // the queue pair was created without the extended operations
		return fmt.Errorf("%w: %s has no atomic writes", verbs.ErrNotSupported, q.ctx.info.Name)
	}
	var in C.struct_shim_send
	in.wr_id, in.flags = C.uint64_t(w.WRID), C.uint32_t(w.Flags)
	if err := copyOperands(q, w, &in); err != nil {
		return err
	}
	data := w.Inline
	if w.Flags&verbs.SendInline == 0 {
		var err error
		if data, err = q.ctx.readSGL(w.SGL); err != nil {
			return err
		}
	}
	if len(data) != 8 {
		return fmt.Errorf("%w: an atomic write of %d bytes", verbs.ErrInvalid, len(data))
	}
	value := C.uint64_t(binary.NativeEndian.Uint64(data))
	return shimError(C.shim_atomic_write(q.ex, &in, unsafe.Pointer(&value)))
}

// readSGL returns a copy of the memory that a scatter/gather list names.
func (c *Context) readSGL(sgl []verbs.SGE) ([]byte, error) {
	var all []byte
	c.mu.Lock()
	defer c.mu.Unlock()
next:
	for _, e := range sgl {
		for o := range c.children {
			m, ok := o.(*mr)
			if !ok || m.lkey != e.LKey || e.Addr < m.addr {
				continue
			}
			if off := e.Addr - m.addr; off <= uint64(m.size) && uint64(e.Length) <= uint64(m.size)-off {
				all = append(all, m.buf[off:][:e.Length]...)
				continue next
			}
		}
		return nil, fmt.Errorf("%w: %d bytes at %#x are in no region with the key %#x", verbs.ErrInvalid, e.Length, e.Addr, uint32(e.LKey))
	}
	return all, nil
}
