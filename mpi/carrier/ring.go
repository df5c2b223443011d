package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// A rank that gets many packets from a peer offers it a ring: the peer then writes
// packets there, and nobody posts receives or takes completions for them. Rings must be
// looked into, so that there is a limit to them.

// ringOut is a ring in a peer's memory that we write packets to.
type ringOut struct {
	conn *conn
	at   wire.Memory
	pos  slots // without memory
	free int   // slots
}

// ringIn is a ring that a peer writes to.
type ringIn struct {
	peer *peer
	slots
	owed int // slots that it may use again and does not know of
}

// offerRing offers a peer a ring, if it is one of those who should have one.
func (c *Carrier) offerRing(p *peer) {
	r := &c.cfg.Ring
	if p.rung != nil || p.came < r.After || len(c.rings) >= r.Peers {
		return
	}
	mem, err := c.register(make([]byte, r.Slots*r.SlotSize))
	if err != nil {
		c.fault(err)
		return
	}
	c.regions = append(c.regions, mem)
	in := &ringIn{peer: p}
	if in.slots, err = newSlots(mem.buf, r.SlotSize, r.Slots); err != nil {
		c.fault(err)
		return
	}
	c.stats.Memory.add(RingBuffers, len(mem.buf))
	c.stats.Rings++
	p.rung = in
	c.rings = append(c.rings, in)
	c.lookOut.Store(true)
	le := binary.LittleEndian
	b := le.AppendUint64(nil, mem.addr)
	b = le.AppendUint32(b, uint32(mem.mrs[0].RKey()))
	b = le.AppendUint32(b, uint32(r.SlotSize))
	b = le.AppendUint16(b, uint16(r.Slots))
	if len(p.queue) > 0 || !c.leave(p, offer, nil, b) {
		c.enqueue(p, outgoing{kind: offer, data: b})
	}
}

const offerLen = 8 + 4 + 4 + 2

// ringOffered takes a peer's offer.
func (c *Carrier) ringOffered(p *peer, b []byte) error {
	le := binary.LittleEndian
	if len(b) != offerLen || p.ring != nil {
		return fmt.Errorf("%w: an offer of a ring: % x", errMalformed, b)
	}
	out := &ringOut{at: wire.Memory{Addr: le.Uint64(b), Rails: 1}}
	out.at.Keys[0] = le.Uint32(b[8:])
	out.pos.size, out.pos.count = int(le.Uint32(b[12:])), int(le.Uint16(b[16:]))
	if out.free = out.pos.count; out.free == 0 || out.pos.size < minPacket {
		return fmt.Errorf("%w: a ring of %d slots of %d bytes", errMalformed, out.pos.count, out.pos.size)
	}
	p.ring = out
	return nil
}

// hasRoom reports whether a packet of n bytes can be written.
func (r *ringOut) hasRoom(p *peer, n int) bool {
	if r.free == 0 || occupied(n) > min(r.pos.size, p.packetSize) {
		return false
	}
	r.conn = p.conns[0]
	return r.conn != nil && r.conn.state == open && r.conn.free > spare
}

// carry writes a packet to the ring. It is kept until the peer's NIC has it.
func (r *ringOut) carry(pkt *packet) error {
	k := r.conn
	c := k.c
	n := occupied(pkt.len)
	binary.NativeEndian.PutUint64(pkt.buf.b[pkt.head:], tailOf(pkt.len, r.pos.round()))
	sges := pkt.gather(k.sges[:0], k.rail.num)
	if pkt.from == nil {
		sges[0].Length += tailLen
	} else {
		sges = append(sges, pkt.buf.mem.sge(k.rail.num, pkt.buf.off+pkt.head, tailLen))
	}
	id := c.newWork(work{task: sending, conn: k, pkt: pkt})
	k.wr[0] = verbs.SendWR{
		WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: sges,
		Remote: verbs.Remote{Addr: r.at.Addr + uint64(r.pos.end()-n), RKey: verbs.RKey(r.at.Keys[0])},
	}
	if err := k.post(); err != nil {
		c.endWork(id)
		return err
	}
	r.pos.next++
	r.free--
	c.stats.Packets[OverRing]++
	c.stats.ByRail[k.rail.num] += uint64(pkt.len)
	k.took(pkt)
	return nil
}

// poll takes what has been written to a ring.
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
		k.c.took(b, k, OverRing)
		r.pass()
		r.owed++ // only now: a reply to the packet returns the slots that are owed
		k.settle()
	}
	return moved
}

// giveSlots returns how many slots more the peer may use.
func (r *ringIn) giveSlots() uint8 {
	if r == nil {
		return 0
	}
	n := min(r.owed, 255)
	r.owed -= n
	return uint8(n)
}
