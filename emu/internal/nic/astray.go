package nic

import (
	"bytes"
	"encoding/binary"
)

// What memory looks like to a device that errs about it.

// slackLen is how far an access may leave its region by Defects.RangeSlack.
const slackLen = 8

// slack is memory with room before and behind it, in which there is nothing:
// zeros to who reads, and a void to who writes. Offsets count from the room on.
type slack struct{ Memory }

// inside is the part of n bytes at off that is there: where it begins in them,
// how long it is, and where it is in the memory.
func (s slack) inside(n int, off uint64) (from, size int, at uint64) {
	first, last := max(off, slackLen), min(off+uint64(n), slackLen+s.Memory.Len())
	if first >= last {
		return 0, 0, 0
	}
	return int(first - off), int(last - first), first - slackLen
}

func (s slack) ReadAt(p []byte, off uint64) error {
	clear(p)
	from, size, at := s.inside(len(p), off)
	return s.Memory.ReadAt(p[from:from+size], at)
}

func (s slack) WriteAt(p []byte, off uint64) error {
	from, size, at := s.inside(len(p), off)
	return s.Memory.WriteAt(p[from:from+size], at)
}

func (s slack) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	var word [8]byte
	if err := s.ReadAt(word[:], off); err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(word[:])
	binary.LittleEndian.PutUint64(word[:], f(old))
	return old, s.WriteAt(word[:], off)
}

// late is memory that is written to when later says so.
type late struct {
	Memory
	later func(write func())
}

func (l late) WriteAt(p []byte, off uint64) error {
	p = bytes.Clone(p)
	l.later(func() { _ = l.Memory.WriteAt(p, off) }) // it may be gone by then
	return nil
}
