package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// bufferedPacket is a packet that was received out of order.
type bufferedPacket struct {
	kind kind
	body []byte
}

// receivePacket handles a packet with a prefix, unless its peer is lost. conn is the connection on
// which it arrived, nil for datagrams and shared memory. It discards packets that are malformed,
// or whose sender is this rank or no rank of the job.
func (c *Carrier) receivePacket(b []byte, conn *conn, transport Transport) {
	pre, body, err := parsePrefix(b)
	isOwn, isMulticast := int(pre.from) == c.env.Rank, pre.kind == multicastSegment
	switch {
	case err == nil && isOwn && isMulticast: // a NIC also delivers the packets of its own rank
		return
	case err != nil || int(pre.from) >= len(c.peers) || isOwn:
		c.stats.Discarded++
		return
	}
	p := c.peer(int(pre.from))
	switch {
	case p.lost != nil:
	case isMulticast:
		p.lastHeard, p.probes = c.Now(), 0
		c.receiveMulticast(p, pre.kind, body)
	default:
		c.handleAck(p, pre.ack)
		c.receiveFrom(p, &pre, body, conn, transport)
	}
}

// receiveFrom handles a packet of a peer: it takes the credits and ring slots that the packet
// returns, schedules its acknowledgement, and delivers contents in sequence. A peer that sends on a
// connection may be offered a ring.
func (c *Carrier) receiveFrom(p *peer, pre *prefix, body []byte, conn *conn, transport Transport) {
	p.lastHeard, p.probes = c.Now(), 0
	if conn != nil {
		conn.packetReceived(pre)
	}
	if p.ringOut != nil {
		p.ringOut.AddFree(int(pre.slots))
	}
	switch pre.kind {
	case probe:
		c.sendAckOnly(p, conn)
		return
	case ackOnly:
		return
	case multicastReportDatagram, multicastResentDatagram:
		c.receiveMulticast(p, pre.kind, body)
		return
	}
	switch transport {
	case OverDatagrams:
		c.scheduleAck(p)
	case OverConnection:
		p.receivedOnConn++
		if c.cfg.Design.hasRings() {
			c.offerRing(p)
		}
	}
	if conn != nil && conn.rail.needsPeerAcks() { // then packets on connections need acknowledgements, too
		c.scheduleAck(p)
	}
	switch p.in.Classify(pre.seq) {
	case inOrder:
		c.deliver(p, pre.kind, body)
		for p.lost == nil {
			next, ok := p.in.Take()
			if !ok {
				break
			}
			c.deliver(p, next.kind, next.body)
		}
	case tooSoon:
		c.stats.OutOfOrder++
		c.mem.ChargeCopy(len(body))
		if !p.in.Buffer(pre.seq, bufferedPacket{pre.kind, append([]byte(nil), body...)}) {
			c.stats.Duplicates++
		}
	case duplicate:
		c.stats.Duplicates++
		p.acks.expiry = c.Now() // our acknowledgement was lost: send another at once
	case tooFarAhead:
		c.stats.Discarded++
	}
}

// deliver handles the contents of the next packet in sequence. If that fails, the peer is lost.
func (c *Carrier) deliver(p *peer, k kind, body []byte) {
	var err error
	switch k {
	case message:
		err = c.deliverMessage(p, body)
	case coalesced:
		err = c.deliverCoalesced(p, body)
	case headerlessData:
		err = c.deliverHeaderless(p, body)
	case connREQ, connREP, connRTU, connDREQ, connDREP:
		err = c.handleConnMessage(p, k, body)
	case ringOffer:
		err = c.handleRingOffer(p, body)
	case putData, getRequest, getData:
		err = c.handleData(p, k, body)
	case multicastResent:
		err = c.receiveSegment(p, body, true)
	case multicastReported:
		err = c.handleReport(p, body, false)
	}
	if err != nil {
		c.losePeer(p, err)
	}
}

// deliverMessage decodes a message and passes it to Upper, the layer above.
func (c *Carrier) deliverMessage(p *peer, b []byte) (err error) {
	var data []byte
	if p.header, data, err = p.dec.Next(b); err != nil {
		return err
	}
	return c.passUp(p.rank, &p.header, data)
}

// passUp passes a message to Upper, which copies the data. Both take virtual time.
func (c *Carrier) passUp(rank int, h *wire.Header, data []byte) error {
	c.env.Charge(verbs.WorkMessage, 1, c.costs.Message)
	c.mem.ChargeCopy(len(data))
	return c.up.Arrived(rank, h, data)
}
