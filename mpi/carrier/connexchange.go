package carrier

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Connections are established by messages over datagrams, named as those of the InfiniBand
// CM: REQ, REP, RTU. If the REQs of two ranks cross, that of the lower rank wins.

// connect starts to connect to a peer on a rail: by the connection manager if the rail has no
// datagrams (iWARP), else by a REQ in a datagram. A rank connects to itself without messages.
func (c *Carrier) connect(p *peer, r *rail) error {
	if r.dg == nil {
		return r.cm.connect(p)
	}
	if p.rank == c.env.Rank {
		return c.connectSelf(p, r)
	}
	k, err := c.newConn(p, r, requested)
	if err != nil {
		return err
	}
	c.sendConnMessage(p, connREQ, k.connInfo().bytes())
	return nil
}

// connInfo returns the information that the peer needs to connect its queue pair to k.
func (k *conn) connInfo() connInfo {
	return connInfo{rail: k.rail.Num, qpn: k.QP.QPN(), psn: k.psn(k.c.env.Rank), credits: k.c.cfg.Receives + reservedCredits}
}

// psn returns the initial PSN of rank, one of the two ends of the connection: 24 bits of a hash of
// the seed, that rank, the sum of both ranks and the rail. Both ends compute the same.
func (k *conn) psn(rank int) uint32 {
	x := k.c.env.Seed ^ uint64(rank)<<32 ^ uint64(k.peer.rank+k.c.env.Rank)<<8 ^ uint64(k.rail.Num)
	x *= 0x9e3779b97f4a7c15 // 2^64 / golden ratio, for a multiplicative hash
	return uint32(x >> 40)
}

// sendConnMessage sends a connection message by datagram, or queues it.
func (c *Carrier) sendConnMessage(p *peer, msg kind, body []byte) {
	p.control = append(p.control, outgoing{kind: msg, data: body})
	c.sendQueuedControl(p)
	if len(p.control) > 0 {
		c.markBusy(p)
	}
}

// sendQueuedControl sends the queued connection messages to a peer, as many as the queue pair for
// datagrams has room for.
func (c *Carrier) sendQueuedControl(p *peer) {
	for len(p.control) > 0 && p.lost == nil {
		o := p.control[0]
		dg := c.datagrams(p)
		if !dg.hasRoom(p, PrefixLen+len(o.data)) {
			return
		}
		p.control = p.control[1:]
		c.sendOn(p, dg, o.kind, nil, o.data)
	}
}

// handleConnMessage handles a connection message of a peer: a REQ asks for a connection, a REP
// accepts it or, with noQP as QPN, rejects it, an RTU is the first packet on it, and DREQ and DREP
// end it. If the REQs of two ranks cross, the REQ of the lower rank is used.
func (c *Carrier) handleConnMessage(p *peer, msg kind, body []byte) error {
	switch msg {
	case connRTU: // its arrival has opened the connection
		return nil
	case connDREQ, connDREP:
		if len(body) != 1 || int(body[0]) >= len(c.rails) {
			return fmt.Errorf("%w: disconnect on an unknown rail: % x", errMalformed, body)
		}
		if k := p.conns[body[0]]; k != nil {
			k.handleDisconnect(msg)
		}
		return nil
	}
	h, err := c.parseConnInfo(body)
	if err != nil {
		return err
	}
	if c.rails[h.rail].dg == nil {
		return fmt.Errorf("%w: connection message on rail %d", errMalformed, h.rail)
	}
	k := p.conns[h.rail]
	if msg == connREP {
		if k == nil || k.state != requested {
			return fmt.Errorf("%w: REP without a REQ", errMalformed)
		}
		if h.qpn == noQP {
			return c.connectionRefused(k)
		}
		if err := k.connectQP(h); err != nil {
			k.connFailed(err)
			return nil
		}
		k.state = open
		c.stats.ConnectionsOpened++
		c.markBusy(p)
		c.sendOn(p, k, connRTU, nil, nil)
		return nil
	}
	// msg is a REQ.
	if k != nil && k.disconnection.noMorePackets && k.state != failed { // the peer has ended k
		c.endConn(k)
		k = nil
	}
	switch {
	case k == nil && c.cfg.Design == Hybrid && c.connectionsFull():
		c.sendConnMessage(p, connREP, connInfo{rail: h.rail, qpn: noQP}.bytes())
		return nil
	case k == nil:
		if k, err = c.newConn(p, c.rails[h.rail], accepted); err != nil {
			return err
		}
	case k.state == requested && p.rank < c.env.Rank: // the peer's request wins
		k.state = accepted
	case k.state == requested: // our request wins, and the peer knows
		return nil
	default: // the rail has failed, or the connection exists
		return nil
	}
	if err := k.connectQP(h); err != nil {
		k.connFailed(err)
		return nil
	}
	c.stats.ConnectionsOpened++
	c.sendConnMessage(p, connREP, k.connInfo().bytes())
	return nil
}

// connectQP connects our queue pair to that of the peer, up to the state RTS.
func (k *conn) connectQP(h connInfo) error {
	k.credits.available = h.credits
	return k.rail.ConnectRC(k.QP, h.remote(k.rail.endpoint(k.peer)), k.psn(k.c.env.Rank))
}

// connInfo is the information that two ranks exchange to connect.
type connInfo struct {
	rail    int
	qpn     verbs.QPN
	psn     uint32
	credits int
}

// remote is the queue pair of the peer at an endpoint.
func (h connInfo) remote(at transport.Endpoint) transport.Remote {
	return transport.Remote{GID: at.GID, QPN: h.qpn, PSN: h.psn}
}

const connInfoLen = 1 + 4 + 4 + 2

// bytes encodes the information for the peer.
func (h connInfo) bytes() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, connInfoLen), byte(h.rail))
	b = le.AppendUint32(b, uint32(h.qpn))
	b = le.AppendUint32(b, h.psn)
	return le.AppendUint16(b, uint16(h.credits))
}

// parseConnInfo decodes a connInfo of a peer, and checks its length and rail.
func (c *Carrier) parseConnInfo(b []byte) (h connInfo, err error) {
	if len(b) != connInfoLen || int(b[0]) >= len(c.rails) {
		return h, fmt.Errorf("%w: of a connection: % x", errMalformed, b)
	}
	le := binary.LittleEndian
	return connInfo{int(b[0]), verbs.QPN(le.Uint32(b[1:])), le.Uint32(b[5:]), int(le.Uint16(b[9:]))}, nil
}

// Atomics on a rank's own memory must be executed by its NIC, like those of other ranks: a rank
// connects to itself on demand, with a second queue pair as the passive end.

// newLoopbackQP creates the queue pair at the passive end of a connection of this rank to itself.
func (r *rail) newLoopbackQP() (verbs.QP, error) {
	qp, err := r.NewRC(verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, nil)
	if err == nil {
		r.loopbackQPs = append(r.loopbackQPs, qp)
	}
	return qp, err
}

// connectSelf connects a queue pair of this rank to another one of this rank (loopback), for
// atomics on its own memory, without a connection manager. The two ends start with different PSNs.
func (c *Carrier) connectSelf(p *peer, r *rail) (err error) {
	k, err := c.newConn(p, r, open)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.conns[r.Num] = nil
			c.stats.Connections--
			err = errors.Join(err, k.close())
		}
	}()
	end, err := r.newLoopbackQP()
	if err != nil {
		return err
	}
	mine, theirs := k.connInfo(), connInfo{qpn: end.QPN(), psn: k.psn(p.rank) + 1, credits: k.credits.available}
	if err := r.ConnectRC(end, mine.remote(r.endpoint(p)), theirs.psn); err != nil {
		return err
	}
	c.stats.ConnectionsOpened++
	c.markBusy(p)
	return k.connectQP(theirs)
}

// With Hybrid the busiest peers have a connection, at most HybridPeers, counting those that
// peers have requested. All other peers are reached by datagrams.

// noQP in a REP rejects a connection.
const noQP verbs.QPN = 0

// connectionsFull reports whether the limit of connections is reached.
func (c *Carrier) connectionsFull() bool {
	return c.stats.Connections >= c.cfg.HybridPeers*len(c.rails)
}

// shouldConnect reports whether the design Hybrid should connect to a peer now: after HybridAfter
// packets or, if the peer has refused, retryConnectAt packets. If all allowed connections exist, it
// returns false, and may evict the least used one for a later call.
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

// evictLeastUsed disconnects the idle peer with the least packetsSent, if that is less than half of
// p's, so that p can be connected later.
func (c *Carrier) evictLeastUsed(p *peer) {
	var least *peer
	for _, q := range c.peers {
		if q != nil && q.conns[0] != nil && !q.busy && (least == nil || q.packetsSent < least.packetsSent) {
			least = q
		}
	}
	if least == nil || 2*least.packetsSent >= p.packetsSent {
		return
	}
	for k := range least.eachConn {
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
