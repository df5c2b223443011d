package transport

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/process"
)

// SlotRing is a ring of packets that one side writes and the other polls. A packet ends at
// the end of its slot with an 8-byte trailer that is written last: its length and the lap.
type SlotRing struct {
	mem   []byte
	size  int
	count int
	next  uint64 // slot, counted over all laps
}

// TrailerLen is the length of the trailer.
const TrailerLen = 8

// NewSlotRing returns a ring of count slots of size bytes in mem, which must be zeroed.
func NewSlotRing(mem []byte, size, count int) (SlotRing, error) {
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%TrailerLen != 0 || size%TrailerLen != 0 || len(mem) < size*count {
		return SlotRing{}, fmt.Errorf("%d bytes of memory cannot hold a ring of %d slots of %d bytes: too short or misaligned", len(mem), count, size)
	}
	return SlotRing{mem: mem, size: size, count: count}, nil
}

// Slots is the number of slots.
func (s *SlotRing) Slots() int { return s.count }

// MaxPacket is the length of the longest packet.
func (s *SlotRing) MaxPacket() int { return s.size - TrailerLen }

// end is the offset of the end of the next slot.
func (s *SlotRing) end() int { return (int(s.next%uint64(s.count)) + 1) * s.size }

// trailerOf is the trailer of a packet of n bytes in the next slot: its length and the lap.
func (s *SlotRing) trailerOf(n int) uint64 { return uint64(n)<<32 | uint64(s.lap()) }

// lap is the number of the current pass over the slots. It starts at 1, so that zeroed memory
// holds no packet of the first lap.
func (s *SlotRing) lap() uint32 { return uint32(s.next/uint64(s.count)) + 1 }

// trailer is the trailer in the memory of the next slot.
func (s *SlotRing) trailer() *uint64 { return (*uint64)(unsafe.Pointer(&s.mem[s.end()-TrailerLen])) }

// Peek returns the next packet, which stays in its slot until Advance. It returns nil if the slot's
// trailer, which the writer stores last, is not of the current lap (pass over the slots), or if the
// length in it exceeds a slot.
func (s *SlotRing) Peek() []byte {
	t := atomic.LoadUint64(s.trailer())
	n := int(t >> 32)
	if uint32(t) != s.lap() || n > s.MaxPacket() {
		return nil
	}
	from := s.end() - TrailerLen - n
	return s.mem[from : from+n]
}

// Advance frees the slot of the packet that Peek returned.
func (s *SlotRing) Advance() { s.next++ }

// write copies a packet to the end of the next slot, before its trailer, and then stores the
// trailer, which makes the packet visible to the reader.
func (s *SlotRing) write(b []byte) {
	copy(s.mem[s.end()-TrailerLen-len(b):], b)
	atomic.StoreUint64(s.trailer(), s.trailerOf(len(b)))
	s.next++
}

// RemoteRing is the position in a ring in a peer's memory, which this rank writes with RDMA.
type RemoteRing struct {
	Addr  uint64
	Key   uint32
	slots SlotRing // position only: the memory is the peer's
	free  int      // slots
}

// NewRemoteRing returns the position in an unused ring at an address of the peer's memory, with
// count slots of size bytes. key is its RKey.
func NewRemoteRing(addr uint64, key uint32, size, count int) RemoteRing {
	return RemoteRing{Addr: addr, Key: key, slots: SlotRing{size: size, count: count}, free: count}
}

// MaxPacket is the length of the longest packet.
func (r *RemoteRing) MaxPacket() int { return r.slots.MaxPacket() }

// HasRoom reports whether there is a free slot for a packet of n bytes.
func (r *RemoteRing) HasRoom(n int) bool { return r.free > 0 && n <= r.MaxPacket() }

// Next returns the address to write the next packet of n bytes to, and the trailer to write after
// it, which marks the packet as complete.
func (r *RemoteRing) Next(n int) (addr, trailer uint64) {
	return r.Addr + uint64(r.slots.end()-TrailerLen-n), r.slots.trailerOf(n)
}

// Advance moves on to the next slot, after a packet was written.
func (r *RemoteRing) Advance() {
	r.slots.next++
	r.free--
}

// AddFree adds n free slots, whose packets the peer has read.
func (r *RemoteRing) AddFree(n int) { r.free += n }

// SharedRings are the rings between two ranks of one host in shared memory, one in each
// direction. Read counters in that memory replace credits.
type SharedRings struct {
	out, in SlotRing
	outRead *uint64 // packets that the peer has read
	inRead  *uint64 // packets that this rank has read
}

// Each counter has a cache line of its own, which avoids false sharing.
const cacheLine = 64

// SharedRingsLen is the length of the memory of two rings of count slots of size bytes.
func SharedRingsLen(size, count int) int { return 2 * (cacheLine + size*count) }

// NewSharedRings returns the rings in a zeroed segment of SharedRingsLen bytes. One of the two
// ranks passes true for first, the other false, so that each writes to the ring that the other reads.
func NewSharedRings(mem []byte, size, count int, first bool) (r SharedRings, err error) {
	half := SharedRingsLen(size, count) / 2
	out, in := mem[:half], mem[half:2*half]
	if !first {
		out, in = in, out
	}
	r.outRead, r.inRead = counterIn(out), counterIn(in) // before each ring: how many of its packets were read
	if r.out, err = NewSlotRing(out[cacheLine:], size, count); err != nil {
		return r, err
	}
	r.in, err = NewSlotRing(in[cacheLine:], size, count)
	return r, err
}

// counterIn returns the read counter at the start of a ring's memory.
func counterIn(mem []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem))) }

// HasRoom reports whether there is a free slot for a packet of n bytes.
func (r *SharedRings) HasRoom(n int) bool {
	return n <= r.out.MaxPacket() && r.out.next-atomic.LoadUint64(r.outRead) < uint64(r.out.count)
}

// Write copies a packet into the ring to the peer.
func (r *SharedRings) Write(b []byte) {
	process.RaceSend() // for the race detector, which does not see that Peek in the peer is ordered after Write
	r.out.write(b)
}

// MaxPacket is the length of the longest packet.
func (r *SharedRings) MaxPacket() int { return r.out.MaxPacket() }

// Slots is the number of slots of each ring.
func (r *SharedRings) Slots() int { return r.in.count }

// Peek returns the next packet of the peer; nil if there is none. The packet stays until Advance.
func (r *SharedRings) Peek() []byte {
	b := r.in.Peek()
	if b != nil {
		process.RaceReceived() // for the race detector, which does not see that Peek is ordered after the peer's Write
	}
	return b
}

// Advance frees the slot of the packet that Peek returned.
func (r *SharedRings) Advance() {
	r.in.Advance()
	atomic.StoreUint64(r.inRead, r.in.next)
}
