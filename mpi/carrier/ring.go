package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// A rank that receives many packets from a peer offers it a ring. The peer writes packets
// to it with RDMA, without receives and completions at the receiver. Rings must be polled,
// therefore their number is limited.

// ringOut is a ring in the memory of a peer.
type ringOut struct {
	conn      *conn
	remote    wire.Memory
	slots     slotRing // position only: the memory is the peer's
	freeSlots int
}

// ringIn is a ring that a peer writes to.
type ringIn struct {
	peer *peer
	slotRing
	slotsToReturn int // read slots that the peer does not know of yet
}

// offerRing creates a ring for a busy peer and offers it.
func (c *Carrier) offerRing(p *peer) {
	r := &c.cfg.Ring
	if p.ringIn != nil || p.receivedOnConn < r.After || len(c.rings) >= r.Peers {
		return
	}
	block, err := c.mem.Keep(memory.RingBuffers, make([]byte, r.Slots*r.SlotSize))
	if err != nil {
		c.failAll(err)
		return
	}
	mem := block.All()
	in := &ringIn{peer: p}
	if in.slotRing, err = newSlots(mem.Bytes(), r.SlotSize, r.Slots); err != nil {
		c.failAll(err)
		return
	}
	c.stats.Rings++
	p.ringIn = in
	c.rings = append(c.rings, in)
	c.mustPoll.Store(true)
	le := binary.LittleEndian
	b := le.AppendUint64(nil, mem.Memory().Addr)
	b = le.AppendUint32(b, mem.Memory().Keys[0])
	b = le.AppendUint32(b, uint32(r.SlotSize))
	b = le.AppendUint16(b, uint16(r.Slots))
	if len(p.queue) > 0 || !c.trySend(p, ringOffer, nil, b) {
		c.enqueue(p, outgoing{kind: ringOffer, data: b})
	}
}

const offerLen = 8 + 4 + 4 + 2

// handleRingOffer starts to use a ring that a peer offers.
func (c *Carrier) handleRingOffer(p *peer, b []byte) error {
	le := binary.LittleEndian
	if len(b) != offerLen || p.ringOut != nil {
		return fmt.Errorf("%w: an offer of a ring: % x", errMalformed, b)
	}
	out := &ringOut{remote: wire.Memory{Addr: le.Uint64(b), Rails: 1}}
	out.remote.Keys[0] = le.Uint32(b[8:])
	out.slots.size, out.slots.count = int(le.Uint32(b[12:])), int(le.Uint16(b[16:]))
	if out.freeSlots = out.slots.count; out.freeSlots == 0 || out.slots.size < minPacket {
		return fmt.Errorf("%w: a ring of %d slots of %d bytes", errMalformed, out.slots.count, out.slots.size)
	}
	p.ringOut = out
	return nil
}

// hasRoom reports whether a packet of n bytes can be written now.
func (r *ringOut) hasRoom(p *peer, n int) bool {
	if r.freeSlots == 0 || slotBytes(n) > min(r.slots.size, p.maxPacket) {
		return false
	}
	r.conn = p.conns[0]
	return r.conn != nil && r.conn.state == open && r.conn.freeWRs > reservedWRs
}

// transmit writes a packet to the ring. The carrier keeps it until the peer's NIC has
// acknowledged it.
func (r *ringOut) transmit(pkt *packet) error {
	k := r.conn
	c := k.c
	n := slotBytes(pkt.len)
	binary.NativeEndian.PutUint64(pkt.buf.B[pkt.copiedLen:], encodeTail(pkt.len, r.slots.lap()))
	sges := pkt.gather(k.sges[:0], k.rail.num)
	if pkt.gathered == nil {
		sges[0].Length += tailLen
	} else {
		sges = append(sges, pkt.buf.SGE(k.rail.num, pkt.copiedLen, tailLen))
	}
	id := c.newWork(work{task: sending, conn: k, pkt: pkt})
	k.wr[0] = verbs.SendWR{
		WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: sges,
		Remote: verbs.Remote{Addr: r.remote.Addr + uint64(r.slots.end()-n), RKey: verbs.RKey(r.remote.Keys[0])},
	}
	if err := k.post(); err != nil {
		c.endWork(id)
		return err
	}
	r.slots.next++
	r.freeSlots--
	c.stats.Packets[OverRing]++
	c.stats.ByRail[k.rail.num] += uint64(pkt.len)
	k.packetPosted(pkt)
	return nil
}

// poll handles packets that the peer has written.
func (r *ringIn) poll() (moved bool) {
	p := r.peer
	k := p.conns[0]
	if p.lost != nil || k == nil {
		return false
	}
	for range r.count {
		b := r.peek()
		if b == nil {
			break
		}
		moved = true
		k.c.receivePacket(b, k, OverRing)
		r.advance()
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
