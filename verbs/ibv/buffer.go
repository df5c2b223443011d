package ibv

import (
	"os"
	"unsafe"
)

// BufferFor returns n bytes that can be registered with the IOVA addr: their offset in their page
// equals that of addr, as the kernel requires. For a zero-based region addr is 0.
func BufferFor(addr uint64, n int) []byte {
	page := os.Getpagesize()
	room := make([]byte, n+page)
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(room))))
	off := int((addr - start) & uint64(page-1))
	return room[off : off+n : off+n]
}
