package device

import (
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// polledMemory is a memory region that applications may poll while the device writes it.
// If the last 8 bytes of a write are aligned, they are stored after all others, atomically.
type polledMemory struct{ nic.Bytes }

const wordBytes = 8

// WriteAt implements nic.Memory. If the last 8 bytes are aligned, it stores them atomically, after
// all others: an application may poll them to learn that the data has arrived.
func (p polledMemory) WriteAt(b []byte, off uint64) error {
	to := p.Slice(off, uint64(len(b)))
	if to == nil {
		return nic.ErrMemory
	}
	last := len(b) - wordBytes
	if last < 0 || uintptr(unsafe.Pointer(&to[last]))%wordBytes != 0 {
		copy(to, b)
		return nil
	}
	copy(to[:last], b)
	var w uint64
	copy((*[wordBytes]byte)(unsafe.Pointer(&w))[:], b[last:])
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&to[last])), w)
	return nil
}

// Update implements nic.Memory: it replaces the 8-byte word at off by f of its old value, and
// returns the old value. If the word is aligned, an application that reads it sees the old or the
// new value, never a mixture.
func (p polledMemory) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	to := p.Slice(off, wordBytes)
	if to == nil {
		return 0, nic.ErrMemory
	}
	if uintptr(unsafe.Pointer(&to[0]))%wordBytes != 0 {
		return p.Bytes.Update(off, f)
	}
	at := (*uint64)(unsafe.Pointer(&to[0]))
	old := atomic.LoadUint64(at)
	atomic.StoreUint64(at, f(old))
	return old, nil
}
