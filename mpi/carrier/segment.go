package carrier

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/racesync"
)

// Ranks of one host have memory in common, with a ring in it for each direction. How
// far the reader has come is in that memory too, so nobody has to be told.

// neighbour is a peer on the same host.
type neighbour struct {
	c       *Carrier
	peer    *peer
	out, in slots
	outRead *uint64 // how many of our packets the peer has taken
	inRead  *uint64 // how many of its we have
}

// A counter has a line of the cache for itself: two processors use it.
const cacheLine = 64

// openSegments makes rings for the ranks of this host.
func (c *Carrier) openSegments() error {
	e := c.env
	if e.Shared == nil || c.cfg.NoSharedMemory {
		return nil
	}
	for rank, node := range e.Nodes {
		if rank == e.Rank || node != e.Nodes[e.Rank] {
			continue
		}
		if err := c.openSegment(rank); err != nil {
			return fmt.Errorf("memory in common with rank %d: %w", rank, err)
		}
	}
	return nil
}

func (c *Carrier) openSegment(rank int) error {
	r := &c.cfg.Ring
	size := max(r.SlotSize, c.cfg.PacketSize+tailLen)
	ring := cacheLine + size*r.Slots
	low, high := min(rank, c.env.Rank), max(rank, c.env.Rank)
	mem, err := c.env.Shared.Segment(fmt.Sprintf("ranks-%d-%d", low, high), 2*ring)
	if err != nil {
		return err
	}
	c.stats.Memory.add(SharedSegments, 2*ring)
	up, down := mem[:ring], mem[ring:2*ring] // from the lower rank to the higher, and back
	if c.env.Rank == high {
		up, down = down, up
	}
	n := &neighbour{c: c, peer: c.peer(rank), outRead: counterIn(up), inRead: counterIn(down)}
	if n.out, err = newSlots(up[cacheLine:], size, r.Slots); err != nil {
		return err
	}
	if n.in, err = newSlots(down[cacheLine:], size, r.Slots); err != nil {
		return err
	}
	n.peer.beside = n
	c.neighbours = append(c.neighbours, n)
	c.lookOut.Store(true)
	return nil
}

func counterIn(mem []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem))) }

func (n *neighbour) hasRoom(size int) bool {
	return occupied(size) <= n.out.size && n.out.next-atomic.LoadUint64(n.outRead) < uint64(n.out.count)
}

// carry copies a packet to the peer.
func (n *neighbour) carry(pkt *packet) error {
	racesync.Send()
	if pkt.from == nil {
		n.out.put(pkt.buf.b[:pkt.len], nil)
	} else {
		n.out.put(pkt.buf.b[:pkt.head], pkt.from.mem.buf[pkt.from.off:][:pkt.len-pkt.head])
	}
	n.c.stats.Packets[OverSharedMemory]++
	pkt.acked = true
	n.c.dispose(pkt)
	return nil
}

// poll takes what the peer has copied to us.
func (n *neighbour) poll() (moved bool) {
	if n.peer.lost != nil {
		return false
	}
	for range n.in.count {
		b := n.in.peek()
		if b == nil {
			break
		}
		racesync.Received()
		moved = true
		n.c.took(b, nil, OverSharedMemory)
		n.in.pass()
		atomic.StoreUint64(n.inRead, n.in.next)
	}
	return moved
}
