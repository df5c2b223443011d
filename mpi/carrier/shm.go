package carrier

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/racesync"
	"github.com/fabrictest/fabrictest/mpi/memory"
)

// Ranks of one host exchange packets through shared memory, with a ring in each direction.
// Read counters in that memory replace credits.

// shmPeer is a peer on the same host, with the rings to and from it.
type shmPeer struct {
	c       *Carrier
	peer    *peer
	out, in slotRing
	outRead *uint64 // packets that the peer has read
	inRead  *uint64 // packets that this rank has read
}

// Each counter has a cache line of its own, which avoids false sharing.
const cacheLine = 64

// openSharedMemory creates the rings to the ranks of this host.
func (c *Carrier) openSharedMemory() error {
	e := c.env
	if e.Shared == nil || c.cfg.NoSharedMemory {
		return nil
	}
	for rank, node := range e.Nodes {
		if rank == e.Rank || node != e.Nodes[e.Rank] {
			continue
		}
		if err := c.openSharedMemoryWith(rank); err != nil {
			return fmt.Errorf("shared memory with rank %d: %w", rank, err)
		}
	}
	return nil
}

func (c *Carrier) openSharedMemoryWith(rank int) error {
	r := &c.cfg.Ring
	size := max(r.SlotSize, c.cfg.PacketSize+tailLen)
	ring := cacheLine + size*r.Slots
	low, high := min(rank, c.env.Rank), max(rank, c.env.Rank)
	mem, err := c.env.Shared.Segment(fmt.Sprintf("ranks-%d-%d", low, high), 2*ring)
	if err != nil {
		return err
	}
	c.mem.Usage.Add(memory.SharedSegments, 2*ring)
	up, down := mem[:ring], mem[ring:2*ring] // from the lower rank to the higher, and back
	if c.env.Rank == high {
		up, down = down, up
	}
	n := &shmPeer{c: c, peer: c.peer(rank), outRead: counterIn(up), inRead: counterIn(down)}
	if n.out, err = newSlots(up[cacheLine:], size, r.Slots); err != nil {
		return err
	}
	if n.in, err = newSlots(down[cacheLine:], size, r.Slots); err != nil {
		return err
	}
	n.peer.shm = n
	c.shmPeers = append(c.shmPeers, n)
	c.mustPoll.Store(true)
	return nil
}

func counterIn(mem []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem))) }

func (n *shmPeer) hasRoom(size int) bool {
	return slotBytes(size) <= n.out.size && n.out.next-atomic.LoadUint64(n.outRead) < uint64(n.out.count)
}

// transmit copies a packet into the ring.
func (n *shmPeer) transmit(pkt *packet) error {
	racesync.Send()
	if pkt.gathered == nil {
		n.out.write(pkt.buf.B[:pkt.len], nil)
	} else {
		n.out.write(pkt.buf.B[:pkt.copiedLen], pkt.gathered.Bytes())
	}
	n.c.stats.Packets[OverSharedMemory]++
	pkt.acked = true
	n.c.freePacket(pkt)
	return nil
}

// poll handles packets that the peer has written.
func (n *shmPeer) poll() (moved bool) {
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
		n.c.receivePacket(b, nil, OverSharedMemory)
		n.in.advance()
		atomic.StoreUint64(n.inRead, n.in.next)
	}
	return moved
}
