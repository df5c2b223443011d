//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// atomicWrite posts an atomic write. libibverbs posts it only by ibv_wr_atomic_write, which
// takes the eight bytes as an argument, not a scatter/gather list.
func (s *sendQueue) atomicWrite(q *qp, w *verbs.SendWR) error {
	if q.ex == nil {
		return fmt.Errorf("%w: %s has no atomic writes", verbs.ErrNotSupported, q.ctx.info.Name)
	}
	var in C.struct_shim_send
	in.wr_id, in.flags = C.uint64_t(w.WRID), C.uint32_t(w.Flags)
	if err := operands(q, w, &in); err != nil {
		return err
	}
	word := w.Inline
	if w.Flags&verbs.SendInline == 0 {
		var err error
		if word, err = q.ctx.bytesOf(w.SGL); err != nil {
			return err
		}
	}
	if len(word) != 8 {
		return fmt.Errorf("%w: an atomic write of %d bytes", verbs.ErrInvalid, len(word))
	}
	eight := C.uint64_t(binary.NativeEndian.Uint64(word))
	return shimError(C.shim_atomic_write(q.ex, &in, unsafe.Pointer(&eight)))
}

// bytesOf copies the bytes of a scatter/gather list out of its regions.
func (c *Context) bytesOf(sgl []verbs.SGE) ([]byte, error) {
	var all []byte
	c.mu.Lock()
	defer c.mu.Unlock()
next:
	for _, e := range sgl {
		for o := range c.children {
			m, ok := o.(*mr)
			if ok && m.lkey == e.LKey && e.Addr >= m.addr && e.Addr-m.addr <= uint64(m.size) && uint64(e.Length) <= uint64(m.size)-(e.Addr-m.addr) {
				all = append(all, m.buf[e.Addr-m.addr:][:e.Length]...)
				continue next
			}
		}
		return nil, fmt.Errorf("%w: %d bytes at %#x are in no region with the key %#x", verbs.ErrInvalid, e.Length, e.Addr, uint32(e.LKey))
	}
	return all, nil
}
