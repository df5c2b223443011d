package carrier

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/reliable"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// peer is the state for one other rank.
type peer struct {
	rank   int
	enc    wire.Encoder
	dec    wire.Decoder
	header wire.Header // of the message that is delivered

	out     reliable.Sender[*packet]
	in      reliable.Receiver[bufferedPacket]
	acks    reliable.AckTimer
	queue   []outgoing // messages that no transport has room for
	control []outgoing // connection messages that datagrams have no room for
	busy    bool       // in Carrier.busyPeers
	timed   bool       // in Carrier.timedPeers

	coalescing coalescing // packet of small messages
	burst      int        // packets sent since the last call of Progress
	burstAt    uint64     // Carrier.progressCalls of the burst

	conns          [wire.MaxRails]*conn
	connGeneration [wire.MaxRails]uint32 // number of closed connections
	nextRail       int                   // whose connection sends the next packet
	packetsSent    int
	retryConnectAt int // packetsSent at which a refused connection is requested again
	receivedOnConn int // packets, on connections
	maxPacket      int
	toReroute      []*packet // packets of failed rails that no other has had room for
	ringOut        *ringOut
	ringIn         *ringIn
	shm            *shmPeer        // nil on another host
	queuedParts    []*transferPart // that wait for a connection
	streams        []*stream       // data for the peer that is sent in packets
	pendingReads   map[uint32]*transfer
	lastReadID     uint32

	rail       int                 // that sends datagrams to the peer
	railFailed [wire.MaxRails]bool // rails whose NIC rejects packets to the peer
	lastHeard  time.Duration       // when a packet last arrived
	probes     int                 // keepalive probes since then
	lost       error
}

// outgoing is a queued message. It gets its sequence number when it is sent.
type outgoing struct {
	kind   kind
	header wire.Header
	data   []byte
}

// bufferedPacket is a packet that was received out of order.
type bufferedPacket struct {
	kind kind
	body []byte
}

// packet is a packet that was sent or is about to be.
type packet struct {
	transport.Packet
	peer       *peer
	sentOn     *conn // nil for datagrams
	seq        uint32
	numbered   bool
	posted     int            // send requests with it that the NIC has
	acked      bool           // the packet is freed when posted is 0
	copiedLen  int            // length of the part in buf
	gathered   *memory.Region // the rest of the packet; nil if all is in buf
	owner      any            // of gathered
	sentAt     time.Duration  // last time
	headerless bool           // data alone, without prefix and header
	imm        uint32         // immediate data of a headerless packet
}

// Seq is the sequence number.
func (pkt *packet) Seq() uint32 { return pkt.seq }

func (c *Carrier) peer(rank int) *peer {
	p := c.peers[rank]
	if p == nil {
		d := &c.cfg.Datagrams
		p = &peer{
			rank: rank, maxPacket: c.cfg.PacketSize, lastHeard: c.Now(),
			out: reliable.NewSender[*packet](d.Timeout), in: reliable.NewReceiver[bufferedPacket](),
			acks: reliable.AckTimer{Every: d.AckEvery, Delay: d.AckDelay},
		}
		c.peers[rank] = p
	}
	return p
}

// enqueue queues a message until a transport has room.
func (c *Carrier) enqueue(p *peer, o outgoing) {
	c.stats.Queued++
	p.queue = append(p.queue, o)
	c.markBusy(p)
}

// markBusy adds a peer to those that pump serves.
func (c *Carrier) markBusy(p *peer) { c.busyPeers.add(p) }

// pump sends queued messages and data. It reports whether there was room for any.
func (c *Carrier) pump() (moved bool) {
	c.busyPeers.visit(func(p *peer) (stays bool) {
		if p.lost == nil {
			moved = c.pumpPeer(p) || moved
		}
		return p.lost == nil && (len(p.queue) > 0 || len(p.control) > 0 || len(p.streams) > 0 || len(p.queuedParts) > 0 || len(p.toReroute) > 0 || p.hasPendingNotices())
	})
	return moved
}

func (c *Carrier) pumpPeer(p *peer) (moved bool) {
	c.sendQueuedControl(p)
	c.reroute(p)
	for _, k := range p.conns {
		if k != nil {
			k.sendDREP()
			k.endIfPeerClosed()
			k.sendNotices()
		}
	}
	n := 0
	for n < len(p.queue) && p.lost == nil {
		o := &p.queue[n]
		if !c.trySend(p, o.kind, &o.header, o.data) {
			break
		}
		n++
	}
	if n > 0 && p.lost == nil {
		rest := copy(p.queue, p.queue[n:])
		clear(p.queue[rest:])
		p.queue = p.queue[:rest]
	}
	for len(p.queuedParts) > 0 && p.lost == nil && c.tryPost(p, p.queuedParts[0]) {
		p.queuedParts = p.queuedParts[1:]
		moved = true
	}
	if len(p.queue) == 0 && p.lost == nil {
		moved = c.pumpStreams(p) || moved
	}
	return moved || n > 0
}

// receivePacket handles a packet with a prefix, from any transport.
func (c *Carrier) receivePacket(b []byte, conn *conn, transport Transport) {
	pre, body, err := parsePrefix(b)
	if err != nil || int(pre.from) >= len(c.peers) || int(pre.from) == c.env.Rank {
		c.stats.Discarded++
		return
	}
	p := c.peer(int(pre.from))
	if p.lost == nil {
		c.handleAck(p, pre.ack)
		c.receiveFrom(p, &pre, body, conn, transport)
	}
}

// receiveFrom handles a packet of a peer: its credits, its acknowledgement and, in
// sequence, its contents.
func (c *Carrier) receiveFrom(p *peer, pre *prefix, body []byte, conn *conn, transport Transport) {
	p.lastHeard, p.probes = c.Now(), 0
	if conn != nil {
		conn.packetReceived(pre)
	}
	if p.ringOut != nil {
		p.ringOut.Freed(int(pre.slots))
	}
	switch pre.kind {
	case probe:
		c.sendAckOnly(p, conn)
		return
	case ackOnly:
		return
	}
	switch transport {
	case OverDatagrams:
		c.scheduleAck(p)
	case OverConnection:
		if p.receivedOnConn++; c.cfg.Design.hasRings() {
			c.offerRing(p)
		}
	}
	if conn != nil && conn.rail.completesBeforeDelivery() {
		c.scheduleAck(p)
	}
	switch p.in.Receive(pre.seq) {
	case reliable.InOrder:
		c.deliver(p, pre.kind, body)
		for p.lost == nil {
			next, ok := p.in.Take()
			if !ok {
				break
			}
			c.deliver(p, next.kind, next.body)
		}
	case reliable.Early:
		c.stats.OutOfOrder++
		if !p.in.Buffer(pre.seq, bufferedPacket{pre.kind, append([]byte(nil), body...)}) {
			c.stats.Duplicates++
		}
	case reliable.Duplicate:
		c.stats.Duplicates++
		p.acks.ExpireAt(c.Now()) // our acknowledgement was lost
	case reliable.TooEarly:
		c.stats.Discarded++
	}
}

// deliver handles the contents of the next packet in sequence.
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
	}
	if err != nil {
		c.losePeer(p, err)
	}
}

// deliverMessage decodes a message and passes it to Upper.
func (c *Carrier) deliverMessage(p *peer, b []byte) (err error) {
	var data []byte
	if p.header, data, err = p.dec.Next(b); err != nil {
		return err
	}
	c.env.Costs.ChargeCopy(len(data)) // Upper copies it out
	return c.up.Arrived(p.rank, &p.header, data)
}

// losePeer ends all communication with a peer and reports it to Upper.
func (c *Carrier) losePeer(p *peer, cause error) {
	if p.lost != nil {
		return
	}
	p.lost = cause
	p.queue, p.control = nil, nil
	p.in.Drop()
	packets := p.out.Stop()
	for _, pkt := range p.toReroute {
		if !slices.Contains(packets, pkt) {
			packets = append(packets, pkt)
		}
	}
	p.toReroute = nil
	p.acks.ExpireAt(0)
	for _, pkt := range packets {
		pkt.acked = true
		c.freePacket(pkt)
	}
	for _, k := range p.conns {
		if k != nil {
			k.fail(cause)
		}
	}
	c.failTransfers(p, cause)
	c.up.Lost(p.rank, fmt.Errorf("connection lost: %w", cause))
}
