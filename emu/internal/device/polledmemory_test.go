package device

import (
	"bytes"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/internal/must"
)

// aligned returns n bytes at an address that is a multiple of 8.
func aligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

func TestPolledMemory(t *testing.T) {
	for off := range uint64(9) {
		for n := range 33 {
			buf, want := aligned(64), make([]byte, 64)
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(i + 1)
			}
			copy(want[off:], data)
			if err := (polledMemory{buf}).WriteAt(data, off); err != nil || !bytes.Equal(buf, want) {
				t.Fatalf("%d bytes at %d: %x, %v", n, off, buf, err)
			}
		}
	}
	must.Fail(t, "beyond the end", (polledMemory{aligned(16)}).WriteAt(make([]byte, 8), 9), nic.ErrMemory)
	buf := aligned(24)
	for _, off := range []uint64{8, 3} {
		buf[off] = 41
		old, err := (polledMemory{buf}).Update(off, func(n uint64) uint64 { return n + 1 })
		if old != 41 || err != nil || buf[off] != 42 {
			t.Errorf("the word at %d was %d, %v, and is %d", off, old, err, buf[off])
		}
		clear(buf)
	}
	must.Fail(t, "beyond the end", must.Err((polledMemory{buf}).Update(17, nil)), nic.ErrMemory)
}

// An application that polls the last word sees all other bytes when it changes. The race
// detector checks the order too.
func TestPolledMemoryWritesLastWordLast(t *testing.T) {
	const n = 64
	buf := aligned(n)
	last := (*uint64)(unsafe.Pointer(&buf[n-8]))
	rounds := make(chan struct{})
	go func() {
		for i := byte(1); i <= 200; i++ {
			<-rounds
			if err := (polledMemory{buf}).WriteAt(bytes.Repeat([]byte{i}, n), 0); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := byte(1); i <= 200; i++ {
		rounds <- struct{}{}
		for byte(atomic.LoadUint64(last)) != i {
		}
		if !bytes.Equal(buf[:n-8], bytes.Repeat([]byte{i}, n-8)) {
			t.Fatalf("round %d: %x", i, buf)
		}
	}
}
