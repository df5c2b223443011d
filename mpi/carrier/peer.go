package carrier

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// peer is the state for one other rank.
type peer struct {
	rank  int
	lost  error
	busy  bool // in Carrier.lists.busy
	timed bool // in Carrier.lists.timed

	codec
	out        packetSender[*packet]
	in         packetReceiver[bufferedPacket]
	acks       ackTimer
	queue      []outgoing // messages that no transport has room for
	coalescing coalescing // packet of small messages
	path
	peerConns
	rings
	shm *shmPeer // nil on another host
	transfers
	liveness
}

// codec encodes and decodes the headers of messages, and has the one that is delivered.
type codec struct {
	enc    wire.Encoder
	dec    wire.Decoder
	header wire.Header
}

// path is the rail that sends datagrams to a peer, and the rails that have failed.
type path struct {
	rail       int
	railFailed [wire.MaxRails]bool // whose NIC rejects packets to the peer
	toReroute  []*packet           // packets of failed rails that no other has had room for
}

// peerConns is the connections to a peer.
type peerConns struct {
	conns          [wire.MaxRails]*conn
	connGeneration [wire.MaxRails]uint32 // number of closed connections
	nextRail       int                   // whose connection sends the next packet
	control        []outgoing            // connection messages that datagrams have no room for
	packetsSent    int                   // over any transport
	retryConnectAt int                   // packetsSent at which a refused connection is requested again
}

// rings is the rings to and from a peer.
type rings struct {
	ringOut        *ringOut
	ringIn         *ringIn
	receivedOnConn int // packets, after which a ring is offered
}

// transfers is the data for and of a peer that is not under way yet.
type transfers struct {
	queuedParts  []*transferPart // that wait for a connection
	streams      []*stream       // data for the peer that is sent in packets
	pendingReads map[uint32]*transfer
	lastReadID   uint32
}

// liveness is what is known of a silent peer.
type liveness struct {
	lastHeard time.Duration // when a packet last arrived
	probes    int           // keepalive probes since then
}

// outgoing is a queued message. It gets its sequence number when it is sent.
type outgoing struct {
	kind   kind
	header wire.Header
	data   []byte
}

func (c *Carrier) peer(rank int) *peer {
	p := c.peers[rank]
	if p == nil {
		d := &c.cfg.Datagrams
		p = &peer{
			rank: rank, liveness: liveness{lastHeard: c.Now()},
			out: newPacketSender[*packet](d.Timeout), in: newPacketReceiver[bufferedPacket](),
			acks: ackTimer{Every: d.AckEvery, Delay: d.AckDelay},
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
func (c *Carrier) markBusy(p *peer) { c.lists.busy.add(p) }

// pump sends queued messages and data. It reports whether there was room for any.
func (c *Carrier) pump() (moved bool) {
	c.lists.busy.visit(func(p *peer) (stays bool) {
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
		c.drop(pkt)
	}
	for _, k := range p.conns {
		if k != nil {
			k.fail(cause)
		}
	}
	c.failTransfers(p, cause)
	c.up.Lost(p.rank, fmt.Errorf("connection lost: %w", cause))
}
