package nic

import (
	"encoding/binary"
	"errors"
)

// Memory is the bytes of a registered region. An engine reaches an
// application's memory only through it, so that the application may live in
// another process. Offsets are within bounds: the table has checked them.
type Memory interface {
	// ReadAt fills p from off on.
	ReadAt(p []byte, off uint64) error
	// WriteAt copies p to off.
	WriteAt(p []byte, off uint64) error
	// Update replaces the aligned 8-byte word at off by f of it, in one step as
	// far as the device's other accesses go, and returns the word it found.
	Update(off uint64, f func(uint64) uint64) (uint64, error)
	Len() uint64
}

// Slicer is Memory whose bytes can be had in place, so that they can be sent
// without being copied first.
type Slicer interface {
	Memory
	// Slice returns the n bytes from off on, or nil if they are not there. They
	// are the application's: what they hold may change at any time.
	Slice(off, n uint64) []byte
}

// ErrMemory is what a Memory returns when the bytes behind it are gone.
var ErrMemory = errors.New("memory is no longer there")

// Bytes is Memory of this process.
type Bytes []byte

// ReadAt copies from the slice.
func (b Bytes) ReadAt(p []byte, off uint64) error {
	if off > uint64(len(b)) || uint64(len(p)) > uint64(len(b))-off {
		return ErrMemory
	}
	copy(p, b[off:])
	return nil
}

// WriteAt copies into the slice.
func (b Bytes) WriteAt(p []byte, off uint64) error {
	if off > uint64(len(b)) || uint64(len(p)) > uint64(len(b))-off {
		return ErrMemory
	}
	copy(b[off:], p)
	return nil
}

// Slice returns a part of the slice.
func (b Bytes) Slice(off, n uint64) []byte {
	if off > uint64(len(b)) || n > uint64(len(b))-off {
		return nil
	}
	return b[off : off+n : off+n]
}

// Update works on a little-endian word: the byte order of every host we run on.
func (b Bytes) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	if off > uint64(len(b)) || uint64(len(b))-off < 8 {
		return 0, ErrMemory
	}
	word := b[off : off+8]
	old := binary.LittleEndian.Uint64(word)
	binary.LittleEndian.PutUint64(word, f(old))
	return old, nil
}

// Len is the length of the slice.
func (b Bytes) Len() uint64 { return uint64(len(b)) }
