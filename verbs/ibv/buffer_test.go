package ibv

import (
	"os"
	"testing"
	"unsafe"
)

func TestBufferForHasPageOffsetOfAddress(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, addr := range []uint64{0, 1, 0x7_0000_1000, 0x1234_5678_9abc, page - 1, 1<<63 + 17} {
		for _, n := range []int{1, 100, 3 * int(page)} {
			b := BufferFor(addr, n)
			at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
			if len(b) != n || cap(b) != n || at%page != addr%page {
				t.Errorf("BufferFor(%#x, %d): %d bytes (capacity %d) at %#x", addr, n, len(b), cap(b), at)
			}
		}
	}
}
