package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// around is the most that there is around the data of a word.
const around = prefixLen + wire.MaxLen

// CanSend reports whether a word with n bytes of data can leave for a peer at once.
func (c *Carrier) CanSend(rank, n int) bool {
	if rank == c.env.Rank {
		return true
	}
	p := c.peer(rank)
	if p.filling.holds(n) {
		return true
	}
	return p.lost != nil || len(p.queue) == 0 && c.way(p, around+n) != nil
}

// MaxData is how much data a word can have.
func (c *Carrier) MaxData() int {
	n := c.cfg.PacketSize
	for _, r := range c.rails {
		if r.dg != nil && !c.rdma() {
			n = min(n, r.dg.max)
		}
	}
	return n - around
}

// Send carries a word to a peer, or to this rank itself. Finished says when the data
// is its owner's again, if there is one.
func (c *Carrier) Send(rank int, h *wire.Header, data []byte, owner any) {
	if rank == c.env.Rank {
		c.stats.Packets[OverLoopback]++
		c.own = append(c.own, outgoing{kind: word, word: *h, data: append([]byte(nil), data...)})
		c.finished(owner, OpSend, nil)
		return
	}
	p := c.peer(rank)
	if p.lost != nil {
		c.finished(owner, OpSend, p.lost)
		return
	}
	if c.collected(p, h, data) {
		c.finished(owner, OpSend, nil)
		return
	}
	if len(p.queue) == 0 {
		if v := c.way(p, around+len(data)); v != nil {
			if p.beside == nil { // to whom all is copied anyway
				if from := c.gathers(data, owner); from != nil {
					c.leaveGathered(p, v, h, from, owner)
					return
				}
			}
			if c.leaveBy(p, v, word, h, data) {
				c.finished(owner, OpSend, nil)
				return
			}
		}
	}
	if p.lost != nil {
		c.finished(owner, OpSend, p.lost)
		return
	}
	c.enqueue(p, outgoing{kind: word, word: *h, data: append([]byte(nil), data...)})
	c.finished(owner, OpSend, nil)
}

// leaveGathered sends a word whose data stays where it is. Its owner has it back when no
// NIC needs it any more.
func (c *Carrier) leaveGathered(p *peer, v via, h *wire.Header, from *Region, owner any) {
	c.stats.Gathered++
	c.depart(p, v, word, h, nil, from, owner)
}

func (c *Carrier) finished(owner any, op Op, err error) {
	if owner != nil {
		c.up.Finished(owner, op, err)
	}
}

// via is a way by which a packet can leave.
type via interface {
	// carry takes a packet of a peer's that has been made.
	carry(pkt *packet) error
}

// way returns how a packet of n bytes can leave for a peer at once; nil if it cannot.
func (c *Carrier) way(p *peer, n int) via {
	if p.filling.pkt != nil {
		c.flush(p) // what comes behind it must not overtake it
	}
	if p.beside != nil {
		if p.beside.hasRoom(n) {
			return p.beside
		}
		return nil
	}
	if p.ring != nil && p.ring.hasRoom(p, n) {
		return p.ring
	}
	if c.cfg.Design.connects() {
		if k := c.connection(p, n); k != nil {
			return k
		}
		if c.cfg.Design != Hybrid {
			return nil
		}
	}
	if dg := c.datagrams(p); dg != nil && dg.hasRoom(p, n) {
		return dg
	}
	return nil
}

// leave sends something to a peer, if it can do so at once.
func (c *Carrier) leave(p *peer, k kind, h *wire.Header, data []byte) bool {
	n := prefixLen + len(data)
	if k == word {
		n += wire.MaxLen
	}
	v := c.way(p, n)
	if v == nil {
		return false
	}
	return c.leaveBy(p, v, k, h, data)
}

// leaveBy sends something a certain way, which has room.
func (c *Carrier) leaveBy(p *peer, v via, k kind, h *wire.Header, data []byte) bool {
	return c.depart(p, v, k, h, data, nil, nil)
}

func (c *Carrier) depart(p *peer, v via, k kind, h *wire.Header, data []byte, from *Region, owner any) bool {
	if p.filling.pkt != nil {
		c.flush(p) // the order of words is that in which they were given
	}
	pkt, err := c.newPacketOf(p, around+len(data)+tailLen)
	if err != nil {
		c.fault(err)
		return false
	}
	b := pkt.buf.b[:prefixLen]
	if k == word {
		b = p.enc.Append(b, h)
	}
	if k == word && from == nil && c.goesNaked(v, b, data) {
		pkt.naked, b = true, b[:0]
		c.stats.Headerless++
	}
	b = append(b, data...)
	c.copied(len(data))
	pkt.head, pkt.len = len(b), len(b)
	if from != nil {
		pkt.from, pkt.owner = from, owner
		pkt.len += from.len
	}
	if pkt.numbered = k.sequenced(); pkt.numbered {
		pkt.seq = p.nextOut
		p.nextOut++
	}
	c.stamp(pkt, k, v)
	if err := v.carry(pkt); err != nil {
		pkt.acked = true
		c.dispose(pkt)
		c.lose(p, err)
		return false
	}
	c.left(p)
	return true
}

// left counts a packet.
func (c *Carrier) left(p *peer) {
	p.packets++
	if p.era != c.era {
		p.era, p.burst = c.era, 0
	}
	p.burst++
}

// stamp writes the prefix of a packet that is about to leave.
func (c *Carrier) stamp(pkt *packet, k kind, v via) {
	pre := prefix{kind: k, from: uint32(c.env.Rank), seq: pkt.seq, ack: pkt.peer.nextIn}
	switch v := v.(type) {
	case *conn:
		pre.credits, pre.slots = v.giveCredits(), pkt.peer.rung.giveSlots()
	case *ringOut:
		pre.credits, pre.slots = v.conn.giveCredits(), pkt.peer.rung.giveSlots()
	} // a datagram may come twice, and would give back twice
	if pkt.naked {
		pkt.imm = pre.immediate()
		return // it acknowledges no datagrams
	}
	pre.put(pkt.buf.b)
	pkt.peer.taken, pkt.peer.ackAt = 0, 0
}

func (c *Carrier) newPacketOf(p *peer, n int) (*packet, error) {
	buf, err := c.sendBuffer(n)
	if err != nil {
		return nil, err
	}
	last := len(c.idlePkts) - 1
	if last < 0 {
		return &packet{peer: p, buf: buf}, nil
	}
	pkt := c.idlePkts[last]
	c.idlePkts = c.idlePkts[:last]
	*pkt = packet{peer: p, buf: buf}
	return pkt, nil
}

// dispose ends a packet that nobody needs any more, as soon as no NIC has it.
func (c *Carrier) dispose(pkt *packet) {
	if pkt.posted > 0 || !pkt.acked || pkt.buf == nil {
		return
	}
	pkt.buf.giveBack()
	pkt.buf = nil
	if pkt.from != nil {
		c.Release(pkt.from)
		c.finished(pkt.owner, OpSend, pkt.peer.lost)
	}
	c.idlePkts = append(c.idlePkts, pkt)
}

// carry sends a packet as a datagram, and keeps it until the peer acknowledges it.
func (d *datagrams) carry(pkt *packet) error {
	c, p := d.rail.c, pkt.peer
	c.stats.Packets[OverDatagrams]++
	c.stats.ByRail[d.rail.num] += uint64(pkt.len)
	if pkt.acked = d.reliable || !pkt.numbered; !pkt.acked {
		p.unacked = append(p.unacked, pkt)
		if p.resendAt == 0 {
			p.resendAt = c.Now() + c.cfg.Datagrams.Timeout
			c.hasDeadline(p)
		}
	}
	return c.postDatagram(pkt)
}

// sent takes the completion of a packet.
func (c *Carrier) sent(w work, wc *verbs.WC) {
	pkt := w.pkt
	pkt.posted--
	if w.conn == nil {
		w.dg.free++
		if wc.Status != verbs.WCSuccess && pkt.peer.lost == nil {
			if c.cutRail(pkt.peer, w.dg.rail) && c.postDatagram(pkt) == nil {
				return
			}
			c.lose(pkt.peer, statusError{"a datagram", wc.Status})
		}
		c.dispose(pkt)
		return
	}
	w.conn.sent(pkt, wc)
}

// statusError is a request that failed.
type statusError struct {
	what   string
	status verbs.WCStatus
}

func (e statusError) Error() string { return e.what + ": " + e.status.String() }
