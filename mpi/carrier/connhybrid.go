package carrier

import "github.com/fabrictest/fabrictest/verbs"

// With Hybrid the busiest peers have a connection, at most HybridPeers, counting those that
// peers have requested. All other peers are reached by datagrams.

// noQP in a REP rejects a connection.
const noQP verbs.QPN = 0

// connectionsFull reports whether the limit of connections is reached.
func (c *Carrier) connectionsFull() bool {
	return c.stats.Connections >= c.cfg.HybridPeers*len(c.rails)
}

// shouldConnect reports whether a peer should be connected now. If the limit is reached,
// it may evict the least used connection.
func (c *Carrier) shouldConnect(p *peer) bool {
	minPackets := c.cfg.HybridAfter
	if p.packetsSent < max(minPackets, p.retryConnectAt) {
		return false
	}
	if !c.connectionsFull() {
		return true
	}
	if p.packetsSent%minPackets == 0 { // seldom, because it visits all peers
		c.evictLeastUsed(p)
	}
	return false
}

// evictLeastUsed disconnects the peer with the fewest packets, if it has less than half as
// many as p.
func (c *Carrier) evictLeastUsed(p *peer) {
	var victim *peer
	for _, q := range c.peers {
		if q != nil && q.conns[0] != nil && !q.busy && (victim == nil || q.packetsSent < victim.packetsSent) {
			victim = q
		}
	}
	if victim == nil || 2*victim.packetsSent >= p.packetsSent {
		return
	}
	for k := range victim.eachConn {
		if k.canDisconnect() {
			k.disconnect()
		}
	}
}

// connectionRefused handles a connection request that the peer has rejected. The next request is
// sent when the number of packets to the peer has doubled.
func (c *Carrier) connectionRefused(k *conn) error {
	p := k.peer
	p.retryConnectAt = 2 * p.packetsSent
	p.conns[k.rail.Num] = nil
	c.stats.Connections--
	c.stats.ConnectionsRefused++
	return k.close()
}
