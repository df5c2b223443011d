package device

import (
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// polled is memory that programs may look at while the device writes it: the last
// word of what is written, if it is aligned and written whole, comes behind the rest
// and in one step.
type polled struct{ nic.Bytes }

const word = 8

// WriteAt copies into the memory.
func (p polled) WriteAt(b []byte, off uint64) error {
	to := p.Slice(off, uint64(len(b)))
	if to == nil {
		return nic.ErrMemory
	}
	last := len(b) - word
	if last < 0 || uintptr(unsafe.Pointer(&to[last]))%word != 0 {
		copy(to, b)
		return nil
	}
	copy(to[:last], b)
	var w uint64
	copy((*[word]byte)(unsafe.Pointer(&w))[:], b[last:])
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&to[last])), w)
	return nil
}

// Update changes a word, in one step for programs too.
func (p polled) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	to := p.Slice(off, word)
	if to == nil {
		return 0, nic.ErrMemory
	}
	if uintptr(unsafe.Pointer(&to[0]))%word != 0 {
		return p.Bytes.Update(off, f)
	}
	at := (*uint64)(unsafe.Pointer(&to[0]))
	old := atomic.LoadUint64(at)
	atomic.StoreUint64(at, f(old))
	return old, nil
}
