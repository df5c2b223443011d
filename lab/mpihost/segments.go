package mpihost

import (
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// segments is the shared memory of a simulated host.
type segments map[string][]byte

// Segment implements transport.SharedMemory: it returns the memory with a name, which the first
// call creates. All calls must give the same size.
func (s segments) Segment(name string, size int) ([]byte, error) {
	if size < 1 {
		return nil, fmt.Errorf("segment %q: %w: %d bytes", name, verbs.ErrInvalid, size)
	}
	mem, exists := s[name]
	if !exists {
		mem = aligned(size)
		s[name] = mem
	}
	if len(mem) != size {
		return nil, fmt.Errorf("segment %q: %w: %d bytes requested, and another rank created it with %d", name, verbs.ErrInvalid, size, len(mem))
	}
	return mem, nil
}

// aligned returns memory that starts at a cache line, as mapped memory does, for
// atomics on its first word.
func aligned(size int) []byte {
	const line = 64
	b := make([]byte, size+line)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (line - 1)
	return b[skip : skip+size : skip+size]
}
