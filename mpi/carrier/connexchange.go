package carrier

import "fmt"

// Connections are established by messages over datagrams, named as those of the InfiniBand
// CM: REQ, REP, RTU. If the REQs of two ranks cross, that of the lower rank wins.

// connect starts to connect to a peer on a rail.
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

// psn is the initial PSN of a rank on the connection: a hash of the seed, the two ranks and the rail.
func (k *conn) psn(rank int) uint32 {
	x := k.c.env.Seed ^ uint64(rank)<<32 ^ uint64(k.peer.rank+k.c.env.Rank)<<8 ^ uint64(k.rail.Num)
	x *= 0x9e3779b97f4a7c15
	return uint32(x>>40) & (1<<24 - 1)
}

// sendConnMessage sends a connection message by datagram, or queues it.
func (c *Carrier) sendConnMessage(p *peer, msg kind, body []byte) {
	if dg := c.datagrams(p); len(p.control) == 0 && dg.hasRoom(p, prefixLen+len(body)) {
		c.sendOn(p, dg, msg, nil, body)
		return
	}
	p.control = append(p.control, outgoing{kind: msg, data: body})
	c.markBusy(p)
}

// sendQueuedControl sends queued connection messages.
func (c *Carrier) sendQueuedControl(p *peer) {
	for len(p.control) > 0 && p.lost == nil {
		o := p.control[0]
		dg := c.datagrams(p)
		if !dg.hasRoom(p, prefixLen+len(o.data)) {
			return
		}
		p.control = p.control[1:]
		c.sendOn(p, dg, o.kind, nil, o.data)
	}
}

// handleConnMessage handles a connection message of a peer. If the REQs of two ranks cross, the
// REQ of the lower rank is used.
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
	if k != nil && k.disconnection.lastPacket && k.state != failed { // the peer has noticed its end
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
	case k.state == requested && p.rank < c.env.Rank: // their request wins
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
