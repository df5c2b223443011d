package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// A rank that receives many packets from a peer offers it a ring. The peer writes packets
// to it with RDMA, without receives and completions at the receiver. Rings must be polled,
// therefore their number is limited.

// ringOut is a ring in the memory of a peer.
type ringOut struct {
	transport.RemoteRing
	peer  *peer
	conn  *conn // that writes to it
	limit int   // of a packet, whatever the size of a slot
}

// ringIn is a ring that a peer writes to.
type ringIn struct {
	transport.SlotRing
	peer          *peer
	slotsToReturn int // read slots that the peer does not know of yet
}

// offerRing creates a ring for a peer that has sent Ring.After packets on connections, and offers
// it to the peer, unless the peer has a ring already or there are Ring.Peers rings.
func (c *Carrier) offerRing(p *peer) {
	r := &c.cfg.Ring
	if p.ringIn != nil || p.receivedOnConn < r.After || len(c.polled.remote) >= r.Peers {
		return
	}
	block, err := c.mem.Keep(memory.RingBuffers, make([]byte, r.Slots*r.SlotSize))
	if err != nil {
		c.failAll(err)
		return
	}
	mem := block.All()
	in := &ringIn{peer: p}
	if in.SlotRing, err = transport.NewSlotRing(mem.Bytes(), r.SlotSize, r.Slots); err != nil {
		c.failAll(err)
		return
	}
	c.stats.Rings++
	p.ringIn = in
	c.polled.remote = append(c.polled.remote, in)
	c.waiter.mustPoll.Store(true) // an RDMA write raises no event here
	le := binary.LittleEndian
	b := le.AppendUint64(nil, mem.Memory().Addr)
	b = le.AppendUint32(b, mem.Memory().Keys[0])
	b = le.AppendUint32(b, uint32(r.SlotSize))
	b = le.AppendUint16(b, uint16(r.Slots))
	c.sendOrQueue(p, ringOffer, b)
}

const offerLen = 8 + 4 + 4 + 2

// handleRingOffer starts to use a ring that a peer offers.
func (c *Carrier) handleRingOffer(p *peer, b []byte) error {
	le := binary.LittleEndian
	if len(b) != offerLen || p.ringOut != nil {
		return fmt.Errorf("%w: an offer of a ring: % x", errMalformed, b)
	}
	size, count := int(le.Uint32(b[12:])), int(le.Uint16(b[16:]))
	if count == 0 || size < minPacket {
		return fmt.Errorf("%w: a ring of %d slots of %d bytes", errMalformed, count, size)
	}
	p.ringOut = &ringOut{RemoteRing: transport.NewRemoteRing(le.Uint64(b), le.Uint32(b[8:]), size, count), peer: p, limit: c.cfg.PacketSize}
	return nil
}

// hasRoom reports whether a packet of n bytes can be written now. It selects the connection that
// transmit uses: that of rail 0, whose RKey the peer has offered.
func (r *ringOut) hasRoom(n int) bool {
	if !r.HasRoom(n) || n+transport.TrailerLen > r.limit {
		return false
	}
	r.conn = r.peer.conns[0]
	return r.conn != nil && r.conn.canWrite()
}

// usedConn implements sender.
func (r *ringOut) usedConn() *conn { return r.conn }

// maxPacket implements sender.
func (r *ringOut) maxPacket() int { return min(r.MaxPacket(), r.limit) }

// transmit implements sender: it writes a packet and its trailer to the ring. The carrier keeps the
// packet until the peer's NIC has acknowledged the write.
func (r *ringOut) transmit(pkt *packet) error {
	k := r.conn
	c := k.c
	addr, trailer := r.Next(pkt.Len)
	id := c.requests.Add(work{task: sending, conn: k, pkt: pkt})
	wr := k.Request()
	*wr = verbs.SendWR{} // field by field, because a copy of this long struct takes time
	wr.WRID, wr.Opcode, wr.SGL = id, verbs.OpRDMAWrite, pkt.AppendSGLWithTrailer(k.SGL(), k.rail.Num, trailer)
	if k.mustSignal(pkt) {
		wr.Flags = verbs.SendSignaled
	}
	wr.Remote = verbs.Remote{Addr: addr, RKey: verbs.RKey(r.Key)}
	if err := k.post(); err != nil {
		c.requests.Remove(id)
		return err
	}
	r.Advance()
	c.stats.Packets[OverRing]++
	c.stats.ByRail[k.rail.Num] += uint64(pkt.Len)
	k.packetPosted(pkt)
	return nil
}

// signalInterval is the number of writes to a ring of which at least one is signaled. The others complete
// with it, so that most writes need neither a completion nor an acknowledgement of the peer's NIC.
const signalInterval = 16

// mustSignal reports whether the write of a packet to a ring must be signaled: because a request waits
// until its data is sent, because a completion is no delivery, or after enough unsignaled ones.
func (k *conn) mustSignal(pkt *packet) bool {
	return pkt.owner != nil || k.rail.IsIWARP() || k.Unsignaled() >= signalInterval-1
}

// poll handles packets that the peer has written, and reports whether there were any.
func (r *ringIn) poll() (moved bool) {
	p := r.peer
	k := p.conns[0]
	if p.lost != nil || k == nil {
		return false
	}
	for range r.Slots() {
		b := r.Peek()
		if b == nil {
			break
		}
		moved = true
		k.c.receivePacket(b, k, OverRing)
		r.Advance()
		r.slotsToReturn++ // only now: a reply to the packet may return the slot
		k.returnManyCredits()
	}
	return moved
}

// takeSlotsToReturn returns the number of read slots, for the prefix of the next packet.
func (r *ringIn) takeSlotsToReturn() uint8 {
	if r == nil {
		return 0
	}
	n := min(r.slotsToReturn, 255)
	r.slotsToReturn -= n
	return uint8(n)
}

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
	size := max(r.SlotSize, c.cfg.PacketSize+transport.TrailerLen)
	all := transport.SharedRingsLen(size, r.Slots)
	low, high := min(rank, c.env.Rank), max(rank, c.env.Rank)
	mem, err := c.env.Shared.Segment(fmt.Sprintf("ranks-%d-%d", low, high), all)
	if err != nil {
		return err
	}
	c.mem.Usage.Add(memory.SharedSegments, all)
	n := &shmPeer{c: c, peer: c.peer(rank)}
	writesFirst := c.env.Rank == low // this rank writes to the first of the two rings, and the other to the second
	if n.SharedRings, err = transport.NewSharedRings(mem, size, r.Slots, writesFirst); err != nil {
		return err
	}
	n.peer.shm = n
	c.polled.shared = append(c.polled.shared, n)
	c.waiter.mustPoll.Store(true) // shared memory raises no event
	return nil
}

// usedConn implements sender: shared memory uses no connection.
func (n *shmPeer) usedConn() *conn { return nil }

// maxPacket implements sender.
func (n *shmPeer) maxPacket() int { return n.MaxPacket() }

// transmit implements sender: it copies a packet into the ring, and frees it.
func (n *shmPeer) transmit(pkt *packet) error {
	n.Write(pkt.Buf.B[:pkt.Len])
	n.c.stats.Packets[OverSharedMemory]++
	n.c.drop(pkt)
	return nil
}

// poll handles packets that the peer has written, and reports whether there were any.
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
