package mpi

import (
	"bytes"
	"encoding/binary"
)

// Payload returns n bytes of payload for an id. Payloads of different ids differ in nearly every byte.
func Payload(id, n int) []byte {
	b := make([]byte, (n+7)&^7) // whole words of 8 bytes
	x := uint64(id)*0x9e3779b97f4a7c15 + 1
	for i := 0; i < len(b); i += 8 { // the generator xorshift64
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	if len(b) > 0 {
		b[0] = byte(id) // a payload of one byte also differs
	}
	return b[:n]
}

// GuardLen is the number of guard bytes before and after a buffer. It is odd, so that
// buffers are not aligned. guardByte is their value.
const (
	GuardLen  = 37
	guardByte = 0xb5
)

// Guarded is a buffer, filled with guard bytes, with guard bytes on both sides.
type Guarded []byte

// NewGuarded returns a buffer of n bytes with guard bytes around it.
func NewGuarded(n int) Guarded { return bytes.Repeat([]byte{guardByte}, n+2*GuardLen) }

// Buf returns the buffer without the bytes around it.
func (g Guarded) Buf() []byte { return g[GuardLen : len(g)-GuardLen : len(g)-GuardLen] }

// WrittenOutside reports whether a byte was written outside of the first n bytes of the buffer. It
// returns the offset in the buffer and the value of the first one.
func (g Guarded) WrittenOutside(n int) (offset int, value byte, written bool) {
	for i, b := range g {
		if offset = i - GuardLen; (offset < 0 || offset >= n) && b != guardByte {
			return offset, b, true
		}
	}
	return 0, 0, false
}
