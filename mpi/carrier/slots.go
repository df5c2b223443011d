package carrier

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// slotRing is a ring of packets that one side writes and the other polls. A packet ends at
// the end of its slot with an 8-byte tail that is written last: its length and the lap.
type slotRing struct {
	mem   []byte
	size  int
	count int
	next  uint64 // slot, counted over all laps
}

const tailLen = 8

func newSlots(mem []byte, size, count int) (slotRing, error) {
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%tailLen != 0 || size%tailLen != 0 || len(mem) < size*count {
		return slotRing{}, fmt.Errorf("%d bytes of memory are no ring of %d slots of %d bytes", len(mem), count, size)
	}
	return slotRing{mem: mem, size: size, count: count}, nil
}

// slotBytes is how much of a slot a packet of n bytes takes.
func slotBytes(n int) int { return n + tailLen }

// end is the offset of the end of the next slot.
func (s *slotRing) end() int { return (int(s.next%uint64(s.count)) + 1) * s.size }

// lap numbers the passes through the ring, from 1: zeroed memory is an older lap.
func (s *slotRing) lap() uint32 { return uint32(s.next/uint64(s.count)) + 1 }

func (s *slotRing) tail() *uint64 { return (*uint64)(unsafe.Pointer(&s.mem[s.end()-tailLen])) }

func encodeTail(n int, round uint32) uint64 { return uint64(n)<<32 | uint64(round) }

// peek returns the next packet; nil if it is not complete. It stays until advance.
func (s *slotRing) peek() []byte {
	t := atomic.LoadUint64(s.tail())
	n := int(t >> 32)
	if uint32(t) != s.lap() || slotBytes(n) > s.size {
		return nil
	}
	from := s.end() - slotBytes(n)
	return s.mem[from : from+n]
}

func (s *slotRing) advance() { s.next++ }

// write writes a packet, in two parts, into the next slot.
func (s *slotRing) write(first, second []byte) {
	n := len(first) + len(second)
	to := s.mem[s.end()-slotBytes(n):]
	copy(to[copy(to, first):], second)
	atomic.StoreUint64(s.tail(), encodeTail(n, s.lap()))
	s.next++
}
