package carrier

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// peer is another rank, from the first thing that is said to it or by it.
type peer struct {
	rank int
	enc  wire.Encoder
	dec  wire.Decoder
	word wire.Header // that is being taken in

	nextOut, nextIn uint32           // numbers of packets
	early           map[uint32]early // that came before their turn
	queue           []outgoing       // words that wait for room
	control         []outgoing       // words about connections that do
	busy            bool             // it is among Carrier.busy

	filling bundle // words that leave together
	burst   int    // packets that have left since the last look at what has come
	era     uint64 // that look

	conns      [wire.MaxRails]*conn
	had        [wire.MaxRails]uint32 // connections, of those that were given back
	turn       int                   // of the connection to be used next
	packets    int                   // that were sent to it
	asksFrom   int                   // of them, so many before it is asked for a connection again
	came       int                   // that came from it by connection
	packetSize int                   // of the largest
	stranded   []*packet             // whose rail has failed, and that no other had room for yet
	ring       *ringOut
	rung       *ringIn
	beside     *neighbour // nil if it is on another host
	moves      []*piece   // that wait for a connection
	streams    []*stream  // data for it that goes in packets
	wishes     map[uint32]*move
	wish       uint32

	datagramState
	heard time.Duration // when something came last
	pings int           // keepalive probes since then
	lost  error
}

// datagramState is what makes datagrams to and from a peer reliable.
type datagramState struct {
	by         int                 // the rail that datagrams to it take
	cut        [wire.MaxRails]bool // rails that do not reach it any more, as their NICs say
	unacked    []*packet           // in the order of their numbers
	tries      int
	unanswered time.Duration // timeouts of packets that left, since it last acknowledged one
	resendAt   time.Duration // 0 if there is nothing to send again
	taken      int           // packets since the last acknowledgement of ours
	ackAt      time.Duration // when there must be another; 0 if it need not
	timed      bool          // it is among Carrier.timed
}

// outgoing is something that has not left yet. It gets its number when it does.
type outgoing struct {
	kind kind
	word wire.Header
	data []byte
}

// early is a packet that came before its turn.
type early struct {
	kind kind
	body []byte
}

// packet is on its way.
type packet struct {
	peer     *peer
	conn     *conn // by which it went; nil for datagrams
	buf      *buffer
	len      int
	seq      uint32
	numbered bool
	posted   int           // how often a NIC has it at the moment
	acked    bool          // nobody needs it any more once no NIC has it
	head     int           // of it that is in the buffer
	from     *Region       // where the rest is; nil if all is
	owner    any           // whose that is
	left     time.Duration // when it did, last
	naked    bool          // it is data alone
	imm      uint32        // then: what else there is to know
}

func (c *Carrier) peer(rank int) *peer {
	p := c.peers[rank]
	if p == nil {
		p = &peer{rank: rank, nextOut: 1, nextIn: 1, packetSize: c.cfg.PacketSize, heard: c.Now()}
		c.peers[rank] = p
	}
	return p
}

// enqueue has something wait for room.
func (c *Carrier) enqueue(p *peer, o outgoing) {
	c.stats.Queued++
	p.queue = append(p.queue, o)
	c.isBusy(p)
}

// isBusy has a peer be looked at until nothing waits there.
func (c *Carrier) isBusy(p *peer) {
	if !p.busy {
		p.busy = true
		c.busy = append(c.busy, p)
	}
}

// pump lets leave what waits and has room now.
func (c *Carrier) pump() (moved bool) {
	visit(&c.busy, &c.spareBusy, func(p *peer) {
		if p.lost == nil {
			moved = c.pumpPeer(p) || moved
		}
		if p.busy = false; p.lost == nil && (len(p.queue) > 0 || len(p.control) > 0 || len(p.streams) > 0 || len(p.moves) > 0 || len(p.stranded) > 0 || p.hasBehind()) {
			c.isBusy(p)
		}
	})
	return moved
}

// visit empties a list and looks at each peer that was in it. Whatever look adds to
// the list stays: the peer itself, or another that is sent to when a peer is lost.
func visit(list, spare *[]*peer, look func(*peer)) {
	visited := *list
	*list, *spare = (*spare)[:0], nil
	for _, p := range visited {
		look(p)
	}
	clear(visited)
	*spare = visited[:0]
}

func (c *Carrier) pumpPeer(p *peer) (moved bool) {
	c.pumpControl(p)
	c.rescue(p)
	for _, k := range p.conns {
		if k != nil {
			k.depart()
			k.closed()
			k.sayBehind()
		}
	}
	n := 0
	for n < len(p.queue) && p.lost == nil {
		o := &p.queue[n]
		if !c.leave(p, o.kind, &o.word, o.data) {
			break
		}
		n++
	}
	if n > 0 && p.lost == nil {
		rest := copy(p.queue, p.queue[n:])
		clear(p.queue[rest:])
		p.queue = p.queue[:rest]
	}
	for len(p.moves) > 0 && p.lost == nil && c.begin(p, p.moves[0]) {
		p.moves = p.moves[1:]
		moved = true
	}
	if len(p.queue) == 0 && p.lost == nil {
		moved = c.pumpStreams(p) || moved
	}
	return moved || n > 0
}

// took takes in a packet, from whatever way.
func (c *Carrier) took(b []byte, by *conn, way Transport) {
	pre, body, err := parsePrefix(b)
	if err != nil || int(pre.from) >= len(c.peers) || int(pre.from) == c.env.Rank {
		c.stats.Discarded++
		return
	}
	p := c.peer(int(pre.from))
	if p.lost == nil {
		c.acknowledged(p, pre.ack)
		c.take(p, &pre, body, by, way)
	}
}

// take takes in a packet of a peer's.
func (c *Carrier) take(p *peer, pre *prefix, body []byte, by *conn, way Transport) {
	p.heard, p.pings = c.Now(), 0
	if by != nil {
		by.heard(pre)
	}
	if p.ring != nil {
		p.ring.free += int(pre.slots)
	}
	switch pre.kind {
	case ping:
		c.sendBare(p, by)
		return
	case bare:
		return
	}
	switch way {
	case OverDatagrams:
		c.oweAck(p)
	case OverConnection:
		if p.came++; c.cfg.Design.rings() {
			c.offerRing(p)
		}
	}
	if by != nil && by.rail.forgets() {
		c.oweAck(p)
	}
	if pre.seq != p.nextIn {
		c.outOfTurn(p, pre, body)
		return
	}
	c.inTurn(p, pre.kind, body)
	for p.lost == nil && len(p.early) > 0 {
		next, ok := p.early[p.nextIn]
		if !ok {
			break
		}
		delete(p.early, p.nextIn)
		c.inTurn(p, next.kind, next.body)
	}
}

// maxEarly is how far before its turn a packet may come.
const maxEarly = 4096

func (c *Carrier) outOfTurn(p *peer, pre *prefix, body []byte) {
	switch {
	case before(pre.seq, p.nextIn):
		c.stats.Duplicates++
		p.ackAt = c.Now() // what we said of it was lost
		return
	case before(p.nextIn+maxEarly, pre.seq):
		c.stats.Discarded++
		return
	}
	c.stats.OutOfOrder++
	if p.early == nil {
		p.early = make(map[uint32]early)
	}
	if _, twice := p.early[pre.seq]; twice {
		c.stats.Duplicates++
		return
	}
	p.early[pre.seq] = early{pre.kind, append([]byte(nil), body...)}
}

// inTurn takes the packet that is next.
func (c *Carrier) inTurn(p *peer, k kind, body []byte) {
	p.nextIn++
	var err error
	switch k {
	case word:
		err = c.hearWord(p, body)
	case words:
		err = c.hearWords(p, body)
	case dataAlone:
		err = c.hearAlone(p, body)
	case ask, answer, ready, bye, goodbye:
		err = c.connectionWord(p, k, body)
	case offer:
		err = c.ringOffered(p, body)
	case put, get, got:
		err = c.piece(p, k, body)
	}
	if err != nil {
		c.lose(p, err)
	}
}

// hearWord takes a word, and the data behind it.
func (c *Carrier) hearWord(p *peer, b []byte) (err error) {
	var data []byte
	if p.word, data, err = p.dec.Next(b); err != nil {
		return err
	}
	c.copied(len(data)) // to where it belongs, or where it waits
	return c.up.Arrived(p.rank, &p.word, data)
}

// lose ends everything that has to do with a peer.
func (c *Carrier) lose(p *peer, cause error) {
	if p.lost != nil {
		return
	}
	p.lost = cause
	p.queue, p.control, p.early = nil, nil, nil
	gone := p.unacked
	for _, pkt := range p.stranded {
		if !slices.Contains(gone, pkt) {
			gone = append(gone, pkt)
		}
	}
	p.unacked, p.stranded, p.resendAt, p.ackAt = nil, nil, 0, 0
	for _, pkt := range gone {
		pkt.acked = true
		c.dispose(pkt)
	}
	for _, k := range p.conns {
		if k != nil {
			k.fail(cause)
		}
	}
	c.loseMoves(p, cause)
	c.up.Lost(p.rank, fmt.Errorf("the way to it: %w", cause))
}
