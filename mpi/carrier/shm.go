package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// Ranks of one host exchange packets through shared memory, with a ring in each direction.

// shmPeer is a peer on the same host, with the rings to and from it.
type shmPeer struct {
	transport.SharedRings
	c    *Carrier
	peer *peer
}

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

// openSharedMemoryWith creates the rings to and from a rank of this host, in a segment for the two.
func (c *Carrier) openSharedMemoryWith(rank int) error {
	r := &c.cfg.Ring
	size := max(r.SlotSize, c.cfg.PacketSize+transport.TailLen)
	all := transport.SharedRingsLen(size, r.Slots)
	low, high := min(rank, c.env.Rank), max(rank, c.env.Rank)
	mem, err := c.env.Shared.Segment(fmt.Sprintf("ranks-%d-%d", low, high), all)
	if err != nil {
		return err
	}
	c.mem.Usage.Add(memory.SharedSegments, all)
	n := &shmPeer{c: c, peer: c.peer(rank)}
	if n.SharedRings, err = transport.NewSharedRings(mem, size, r.Slots, c.env.Rank == low); err != nil {
		return err
	}
	n.peer.shm = n
	c.polled.shared = append(c.polled.shared, n)
	c.waiter.mustPoll.Store(true)
	return nil
}

// usedConn implements sender: shared memory uses no connection.
func (n *shmPeer) usedConn() *conn { return nil }

// maxPacket implements sender.
func (n *shmPeer) maxPacket() int { return n.MaxPacket() }

// transmit implements sender: it copies a packet into the ring.
func (n *shmPeer) transmit(pkt *packet) error {
	n.Write(pkt.Buf.B[:pkt.Len])
	n.c.stats.Packets[OverSharedMemory]++
	n.c.drop(pkt)
	return nil
}

// poll handles packets that the peer has written.
func (n *shmPeer) poll() (moved bool) {
	if n.peer.lost != nil {
		return false
	}
	for range n.Slots() {
		b := n.Peek()
		if b == nil {
			break
		}
		moved = true
		n.c.receivePacket(b, nil, OverSharedMemory)
		n.Advance()
	}
	return moved
}
