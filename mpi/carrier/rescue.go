package carrier

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// When a rail fails, what it took along goes by another: packets under their old numbers,
// so that a peer takes each once, and data before the words about it.

// forgets reports whether a NIC says that something was sent before it has arrived, and
// another rail may have to bring it once more: iWARP's do, for TCP has taken it then.
func (r *rail) forgets() bool {
	return len(r.c.rails) > 1 && r.dg == nil && r.limited()
}

// took notes that the NIC has a packet. Where it cannot tell when the packet has arrived,
// the peer must.
func (k *conn) took(pkt *packet) {
	if k.rail.forgets() && pkt.numbered {
		if pkt.conn == nil {
			k.peer.unacked = append(k.peer.unacked, pkt)
		}
		pkt.left = k.c.Now()
	}
	pkt.conn = k
	pkt.posted++
}

// strand has a packet wait for another rail, or for a datagram if it is the last word on a
// connection, which the peer closes when it has heard it. If it came all the same, the peer
// knows by its number.
func (c *Carrier) strand(pkt *packet) {
	p := pkt.peer
	if pkt.naked { // there is but one rail, and without it a connection
		c.lose(p, fmt.Errorf("packet %d could not be delivered", pkt.seq))
		pkt.acked = true
		c.dispose(pkt)
		return
	}
	p.stranded = append(p.stranded, pkt)
	c.isBusy(p)
	c.rescue(p)
}

// rescue sends what is stranded and has room elsewhere.
func (c *Carrier) rescue(p *peer) {
	for len(p.stranded) > 0 && p.lost == nil {
		pkt := p.stranded[0]
		var v via
		dg := c.datagrams(p)
		byDatagram := dg != nil && pkt.len <= dg.max
		if k := p.anyOpen(); k != nil && k.free > spare && k.hasCredit() {
			v = k
		} else if byDatagram && dg.free > 0 {
			v = dg
		}
		switch {
		case v != nil:
			c.stats.Retransmitted++
			c.restamp(pkt)
			if err := v.carry(pkt); err != nil {
				c.lose(p, err)
				return
			}
		case byDatagram:
			return // it waits until the NIC can take one more
		case c.reachable(p):
			c.wantConnections(p)
			return
		default:
			c.lose(p, fmt.Errorf("packet %d could not be delivered on any rail", pkt.seq))
			return
		}
		p.stranded = p.stranded[1:]
	}
}

// sendAgain strands what went by a connection that has ended, and that nobody has said the
// arrival of. What the NIC still has comes back by itself.
func (k *conn) sendAgain() {
	if !k.rail.forgets() {
		return
	}
	for _, pkt := range slices.Clone(k.peer.unacked) {
		if pkt.conn == k && pkt.posted == 0 && !slices.Contains(k.peer.stranded, pkt) {
			k.c.strand(pkt)
		}
	}
}

// writeAgain has data be written by another connection whose word cannot go by this one any
// more. Nobody has been told of it yet, so that it does no harm if it is there already.
// It waits for its turn: whoever ends a connection may be about to make another.
func (k *conn) writeAgain() {
	for _, m := range k.behind {
		m.left, m.said = 1, false
		k.peer.moves = append(k.peer.moves, &piece{move: m, n: m.n, rail: k.rail.num})
		k.c.isBusy(k.peer)
	}
	k.behind = nil
}

// again has a piece go by another rail, if there is one. Nobody knows whether an atomic was
// carried out, so that it must not be again.
func (c *Carrier) again(w work, part *piece) bool {
	p := part.move.peer
	switch {
	case part.move.op == OpAtomic:
		return false
	case w.conn == nil && !c.cutRail(p, w.dg.rail), w.conn != nil && !c.reachable(p):
		return false
	}
	part.move.by = nil // what was written may have been lost as well
	p.moves = append(p.moves, part)
	c.isBusy(p)
	return true
}

// reachable reports whether a rail is left that has not failed.
func (c *Carrier) reachable(p *peer) bool {
	for i := range c.rails {
		if k := p.conns[i]; k == nil && !p.cut[i] || k != nil && k.state != failed {
			return true
		}
	}
	return false
}

// anyOpen is a connection that stands; nil if there is none.
func (p *peer) anyOpen() *conn {
	for _, k := range p.conns {
		if k != nil && k.state == open {
			return k
		}
	}
	return nil
}

// broke says that a connection is of no use any more. If it is the last to its peer,
// so is the peer.
func (k *conn) broke(why error) {
	if k.state == failed || k.ended {
		return
	}
	if k.leaving { // the peer has closed its end
		k.c.end(k)
		return
	}
	c, p := k.c, k.peer
	k.fail(why)
	if !c.reachable(p) {
		c.lose(p, why)
		return
	}
	c.stats.RailsLost++
	k.writeAgain()
	k.sendAgain()
}

// TCP may be patient for a quarter of an hour with a cable that is cut. So where there is
// another rail, a peer that talks by it is asked for what it has not got: if that is
// something that it should have long since, its rail has failed.

var errRail = errors.New("what goes by this rail does not arrive, though the peer answers by another")

// suspectRails looks for those.
func (c *Carrier) suspectRails(now time.Duration) {
	if !c.rails[0].forgets() {
		return
	}
	patience := 4 * c.cfg.KeepaliveIdle
	for _, p := range c.peers {
		if p == nil || p.lost != nil {
			continue
		}
		for i := range c.rails {
			k := p.conns[i]
			if k == nil || k.state != open {
				continue
			}
			since, waits := k.waits()
			since = max(since, c.resumed)
			switch {
			case !waits || now-since < patience:
			case p.heard > since+patience/2 && p.openBesides(k):
				k.broke(errRail)
			default:
				c.askElsewhere(p, k)
			}
		}
	}
}

// openBesides reports whether there is another connection that stands.
func (p *peer) openBesides(k *conn) bool {
	return slices.ContainsFunc(p.conns[:], func(other *conn) bool { return other != nil && other != k && other.state == open })
}

// waits says since when something should have arrived by a connection; false if nothing is
// under way. Of packets the first tells: a peer says of none that it has it before it has
// all that are before it.
func (k *conn) waits() (since time.Duration, ok bool) {
	if k.under > 0 {
		return max(k.used, k.moved), true
	}
	if sent := k.peer.unacked; len(sent) > 0 && sent[0].conn == k {
		return sent[0].left, true
	}
	return 0, false
}

// askElsewhere asks a peer whether it is there by other connections than one.
func (c *Carrier) askElsewhere(p *peer, not *conn) {
	for _, k := range p.conns {
		if k != nil && k != not && k.state == open && k.free > spare && k.canSettle() && p.lost == nil {
			c.leaveBy(p, k, ping, nil, nil)
		}
	}
}
