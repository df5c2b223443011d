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
	out        packetSender
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
	control        []outgoing            // connection messages that datagrams have no room for
	packetsSent    int                   // over any transport
	retryConnectAt int                   // packetsSent at which a refused connection is requested again
}

// eachConn calls visit for the connections to the peer, by rail, until visit returns false.
func (p *peerConns) eachConn(visit func(*conn) (more bool)) {
	for _, k := range p.conns {
		if k != nil && !visit(k) {
			return
		}
	}
}

// findConn returns the first connection that matches; nil if none does.
func (p *peerConns) findConn(matches func(*conn) bool) *conn {
	for k := range p.eachConn {
		if matches(k) {
			return k
		}
	}
	return nil
}

// anyOpen returns an open connection; nil if there is none.
func (p *peerConns) anyOpen() *conn { return p.findConn((*conn).isOpen) }

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
	lastProbe time.Duration // when the last of them was due
}

// outgoing is a queued message. It gets its sequence number when it is sent.
type outgoing struct {
	kind   kind
	header wire.Header
	data   []byte
}

// peer returns the state for a rank, which the first call creates.
func (c *Carrier) peer(rank int) *peer {
	if c.peers[rank] == nil {
		d := &c.cfg.Datagrams
		c.peers[rank] = &peer{
			rank: rank, liveness: liveness{lastHeard: c.Now()},
			out: packetSender{timeout: d.Timeout, next: 1}, in: packetReceiver[bufferedPacket]{next: 1},
			acks: ackTimer{Every: d.AckEvery, Delay: d.AckDelay},
		}
	}
	return c.peers[rank]
}

// reachedPeers calls visit for the peers with traffic that are not lost, by rank, until visit
// returns false.
func (c *Carrier) reachedPeers(visit func(*peer) (more bool)) {
	for _, p := range c.peers {
		if p != nil && p.lost == nil && !visit(p) {
			return
		}
	}
}

// sendOrQueue sends a packet of a kind, or queues it if no transport has room.
func (c *Carrier) sendOrQueue(p *peer, k kind, data []byte) {
	if len(p.queue) > 0 || !c.trySend(p, k, nil, data) {
		c.enqueue(p, outgoing{kind: k, data: data})
	}
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
		queued := len(p.queue) + len(p.control) + len(p.streams) + len(p.queuedParts) + len(p.toReroute)
		hasNotices := func(k *conn) bool { return len(k.pendingNotices) > 0 }
		return p.lost == nil && (queued > 0 || p.findConn(hasNotices) != nil)
	})
	return moved
}

// pumpPeer sends what is queued for a peer: connection messages, packets of failed rails, messages,
// parts of transfers, and data in packets. It reports whether there was room for any.
func (c *Carrier) pumpPeer(p *peer) (moved bool) {
	c.sendQueuedControl(p)
	c.reroute(p)
	for k := range p.eachConn {
		k.sendDREP()
		// With an SRQ no completion reports that the peer has disconnected.
		if k.disconnection.awaitsPeerClose && !k.ended && k.cm.conn != nil && k.cm.conn.WaitDisconnect(0) == nil {
			c.endConn(k)
		}
		k.sendNotices()
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
		p.queue = slices.Delete(p.queue, 0, n)
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

// losePeer ends all communication with a peer and reports it to Upper, the layer above.
func (c *Carrier) losePeer(p *peer, cause error) {
	if p.lost != nil {
		return
	}
	p.lost = cause
	p.queue, p.control = nil, nil
	p.in.early = nil
	packets := p.out.Stop()
	for _, pkt := range p.toReroute {
		if !slices.Contains(packets, pkt) {
			packets = append(packets, pkt)
		}
	}
	p.toReroute = nil
	p.acks.expiry = 0
	for _, pkt := range packets {
		c.drop(pkt)
	}
	for k := range p.eachConn {
		k.fail()
	}
	c.failTransfers(p, cause)
	c.removeFromGroups(p)
	c.up.Lost(p.rank, fmt.Errorf("connection lost: %w", cause))
}

// peerList is a list of peers to visit. A peer is in it at most once.
type peerList struct {
	peers []*peer
	spare []*peer // empty slice for reuse
	in    func(*peer) *bool
}

// peerLists are the peers that Progress visits.
type peerLists struct {
	busy       peerList // with queued packets or transfers
	timed      peerList // with a timer that runs
	coalescing []*peer  // with coalesced messages
}

// newPeerLists returns empty lists of the peers with queued work (busy) or a timer (timed). A flag
// of each peer says whether it is in the list.
func newPeerLists() peerLists {
	return peerLists{
		busy:  peerList{in: func(p *peer) *bool { return &p.busy }},
		timed: peerList{in: func(p *peer) *bool { return &p.timed }},
	}
}

// add adds a peer, unless it is in the list.
func (l *peerList) add(p *peer) {
	if in := l.in(p); !*in {
		*in = true
		l.peers = append(l.peers, p)
	}
}

// visit calls handle for each peer, except those that handle adds. It removes a peer for which
// handle returns false.
func (l *peerList) visit(handle func(*peer) (stays bool)) {
	visited := l.peers
	l.peers, l.spare = l.spare[:0], nil
	for _, p := range visited {
		stays := handle(p)
		*l.in(p) = false // not in the list: add skips peers that are
		if stays {
			l.add(p)
		}
	}
	clear(visited)
	l.spare = visited[:0]
}
