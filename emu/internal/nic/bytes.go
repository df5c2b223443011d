package nic

import (
	"encoding/binary"
	"errors"
)

// Memory is the memory of a region. Engines access application memory only through it, because the
// application may be another process. The caller has checked the offsets.
type Memory interface {
	// ReadAt fills p with the bytes at off.
	ReadAt(p []byte, off uint64) error
	// WriteAt copies p to off.
	WriteAt(p []byte, off uint64) error
	// Update replaces the aligned 8-byte word w at off by f(w) and returns w. It is atomic
	// with respect to other accesses of the device.
	Update(off uint64, f func(uint64) uint64) (uint64, error)
	Len() uint64
}

// Slicer is Memory that can be accessed in place, without a copy.
type Slicer interface {
	Memory
	// Slice returns n bytes at off, or nil if they are out of range. The application may
	// change them at any time.
	Slice(off, n uint64) []byte
}

// WritePart copies p to offset off of mem. It is for a part of a message that is not its end: on
// Memory that can be accessed in place, it does not wait until all bytes are visible, which WriteAt
// does.
func WritePart(mem Memory, p []byte, off uint64) error {
	if s, ok := mem.(Slicer); ok {
		if to := s.Slice(off, uint64(len(p))); to != nil {
			copy(to, p)
			return nil
		}
	}
	return mem.WriteAt(p, off)
}

// ErrMemory is returned when the memory does not exist any more.
var ErrMemory = errors.New("memory is no longer there")

// Bytes is Memory of this process.
type Bytes []byte

// ReadAt copies from the slice. It returns ErrMemory if the slice ends before off+len(p).
func (b Bytes) ReadAt(p []byte, off uint64) error {
	if off > uint64(len(b)) || uint64(len(p)) > uint64(len(b))-off {
		return ErrMemory
	}
	copy(p, b[off:])
	return nil
}

// WriteAt copies into the slice. It returns ErrMemory if the slice ends before off+len(p).
func (b Bytes) WriteAt(p []byte, off uint64) error {
	if off > uint64(len(b)) || uint64(len(p)) > uint64(len(b))-off {
		return ErrMemory
	}
	copy(b[off:], p)
	return nil
}

// Slice returns a part of the slice; nil if it is out of range.
func (b Bytes) Slice(off, n uint64) []byte {
	if off > uint64(len(b)) || n > uint64(len(b))-off {
		return nil
	}
	return b[off : off+n : off+n]
}

// Update replaces the 64-bit word at off by f(word) and returns the old word. Words are
// little-endian, the byte order of all supported hosts.
func (b Bytes) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	if off > uint64(len(b)) || uint64(len(b))-off < 8 {
		return 0, ErrMemory
	}
	word := b[off : off+8]
	old := binary.LittleEndian.Uint64(word)
	binary.LittleEndian.PutUint64(word, f(old))
	return old, nil
}

// Len returns the length of the slice.
func (b Bytes) Len() uint64 { return uint64(len(b)) }
