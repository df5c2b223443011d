package carrier

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// slots are a ring of packets in memory that one writes and another polls. A packet
// is at the end of its slot, so that what is written ends with the word that is polled:
// its length, and how often the ring has been gone through. It is written last.
type slots struct {
	mem   []byte
	size  int
	count int
	next  uint64 // the slot to be written or read next, over all rounds
}

const tailLen = 8

func newSlots(mem []byte, size, count int) (slots, error) {
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%tailLen != 0 || size%tailLen != 0 || len(mem) < size*count {
		return slots{}, fmt.Errorf("%d bytes of memory are no ring of %d slots of %d bytes", len(mem), count, size)
	}
	return slots{mem: mem, size: size, count: count}, nil
}

// occupied is how much of a slot a packet takes.
func occupied(n int) int { return n + tailLen }

// end is where the next slot ends.
func (s *slots) end() int { return (int(s.next%uint64(s.count)) + 1) * s.size }

// round is the one that the next slot is in. Memory begins as that of round 0.
func (s *slots) round() uint32 { return uint32(s.next/uint64(s.count)) + 1 }

func (s *slots) tail() *uint64 { return (*uint64)(unsafe.Pointer(&s.mem[s.end()-tailLen])) }

func tailOf(n int, round uint32) uint64 { return uint64(n)<<32 | uint64(round) }

// peek returns the next packet, if it is there. It stays until it is passed.
func (s *slots) peek() []byte {
	t := atomic.LoadUint64(s.tail())
	n := int(t >> 32)
	if uint32(t) != s.round() || occupied(n) > s.size {
		return nil
	}
	from := s.end() - occupied(n)
	return s.mem[from : from+n]
}

func (s *slots) pass() { s.next++ }

// put writes a packet into the next slot.
func (s *slots) put(b, rest []byte) {
	n := len(b) + len(rest)
	to := s.mem[s.end()-occupied(n):]
	copy(to[copy(to, b):], rest)
	atomic.StoreUint64(s.tail(), tailOf(n, s.round()))
	s.next++
}
