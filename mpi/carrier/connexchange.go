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

func (k *conn) connInfo() connInfo {
	return connInfo{rail: k.rail.Num, qpn: k.QP.QPN(), psn: k.psn(k.c.env.Rank), credits: k.c.cfg.Receives + reservedCredits}
}

// psn is the initial PSN of a rank on the connection.
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

// handleConnMessage handles a connection message of a peer.
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

// connectQP connects our end to the peer's, up to the state RTS.
func (k *conn) connectQP(h connInfo) error {
	k.available = h.credits
	return k.rail.ConnectRC(k.QP, h.remote(k.rail.endpoint(k.peer)), k.psn(k.c.env.Rank))
}

// Idle connections are closed. One end sends a DREQ as its last packet; the other sends a
// DREP when nothing is outstanding. Later messages establish another connection.

// disconnectIdle sends a DREQ on idle connections. With several rails it does not, because
// a DREQ may wait for packets on another rail, and the end would look like a failure.
func (c *Carrier) disconnectIdle() {
	if c.cfg.IdleTimeout == 0 || c.Now()-c.conns.lastIdleCheck < c.cfg.IdleTimeout/2 || len(c.rails) > 1 {
		return
	}
	c.conns.lastIdleCheck = c.Now()
	for _, p := range c.peers {
		if p == nil || p.lost != nil || p.busy {
			continue
		}
		for _, k := range p.conns {
			if k != nil && k.canDisconnect() && c.Now()-k.lastUsed >= c.cfg.IdleTimeout {
				k.disconnect()
			}
		}
	}
}

// canDisconnect reports whether the connection is idle and has a credit for a DREQ.
func (k *conn) canDisconnect() bool { return k.state == open && k.Outstanding() == 0 && k.hasCredit() }

// disconnect sends a DREQ.
func (k *conn) disconnect() {
	k.state = closing
	k.c.sendOn(k.peer, k, connDREQ, nil, []byte{byte(k.rail.Num)})
}

// handleDisconnect handles a DREQ or a DREP.
func (k *conn) handleDisconnect(msg kind) {
	k.disconnection.receivedDREQ = true
	switch {
	case k.state == open || k.state == accepted:
		k.state = closing
		k.c.markBusy(k.peer)
		k.sendDREP()
	case msg == connDREQ && k.rail.LacksRNR():
		// The DREQs crossed, and neither rank knows whether its own has arrived. The lower
		// rank sends a DREP.
		if k.disconnection.receivedDREQ = k.c.env.Rank < k.peer.rank; k.disconnection.receivedDREQ {
			k.c.markBusy(k.peer)
			k.sendDREP()
		}
	case msg == connDREQ: // the DREQs crossed; the peer may not have received ours yet
		if k.disconnection.lastPacket = true; k.Outstanding() == 0 {
			k.c.endConn(k)
		}
	default: // the peer has received our DREQ, and nothing else was outstanding
		k.disconnection.lastPacket = true
		k.c.endConn(k)
	}
}

// endIfPeerClosed ends a connection whose peer has disconnected. With an SRQ no completion
// reports that.
func (k *conn) endIfPeerClosed() {
	if k.disconnection.awaitsPeerClose && !k.ended && k.cm.conn != nil && k.cm.conn.WaitDisconnect(0) == nil {
		k.c.endConn(k)
	}
}

// sendDREP sends a DREP when nothing is outstanding. It is the last packet of the
// connection.
func (k *conn) sendDREP() {
	if k.state != closing || !k.disconnection.receivedDREQ || k.disconnection.lastPacket || k.Outstanding() > 0 || !k.canSendAck() {
		return
	}
	// On iWARP a completion means that TCP has the packet: closing now could cut it off.
	k.disconnection.lastPacket, k.disconnection.awaitsPeerClose = true, k.rail.LacksRNR()
	k.c.sendOn(k.peer, k, connDREP, nil, []byte{byte(k.rail.Num)})
}
