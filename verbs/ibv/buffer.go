package ibv

import (
	"os"
	"unsafe"
)

// BufferFor returns n bytes that can be registered at addr: they lie in their page where
// addr lies in its own, which the kernel demands. For a zero-based region addr is 0.
func BufferFor(addr uint64, n int) []byte {
	page := os.Getpagesize()
	room := make([]byte, n+page)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(room))))
	off := int((addr - at) & uint64(page-1))
	return room[off : off+n : off+n]
}
