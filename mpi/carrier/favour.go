package carrier

import "github.com/fabrictest/fabrictest/verbs"

// Where most peers are reached by datagrams, those that one talks with most have a
// connection: as many as there may be, counting those that others have asked for.

// noQP is what a rank answers that has as many connections as it may have.
const noQP verbs.QPN = 0

// full reports whether there is no room for another connection.
func (c *Carrier) full() bool { return c.stats.Connections >= c.cfg.HybridPeers*len(c.rails) }

// favours reports whether a peer that has no connection is to have one now. One that is
// much busier than another takes its place.
func (c *Carrier) favours(p *peer) bool {
	after := c.cfg.HybridAfter
	if p.packets < max(after, p.asksFrom) {
		return false
	}
	if !c.full() {
		return true
	}
	if p.packets%after == 0 { // seldom enough to look at all
		c.makeRoom(p)
	}
	return false
}

// makeRoom gives back the connections to the peer that was talked with least, if it was
// less than half as much as with another.
func (c *Carrier) makeRoom(p *peer) {
	var least *peer
	for _, q := range c.peers {
		if q == nil || q.conns[0] == nil || q.busy || least != nil && least.packets <= q.packets {
			continue
		}
		least = q
	}
	if least == nil || 2*least.packets >= p.packets {
		return
	}
	for _, k := range least.conns {
		if k != nil && k.canLeave() {
			k.leave()
		}
	}
}

// refused takes the answer of a peer that has no room. It is asked again when as much
// again has been sent to it.
func (c *Carrier) refused(k *conn) error {
	p := k.peer
	p.asksFrom = 2 * p.packets
	p.conns[k.rail.num] = nil
	c.stats.Connections--
	c.stats.ConnectionsRefused++
	return k.close()
}
