package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Small messages to a peer are coalesced into one packet when a program starts several
// without a call of Progress between them. The first coalesceAfter messages are sent at
// once, which keeps the latency of a single message low. The packet is sent when it is
// full, before any other packet to the peer, and in the next Progress.

const (
	// coalesceAfter is how many packets of a burst are sent without coalescing.
	coalesceAfter = 2
	// maxCoalescedData is the largest payload of a coalesced message.
	maxCoalescedData = 512
	// maxCoalescedPacket limits a packet of coalesced messages to a common path MTU.
	maxCoalescedPacket = 4000
	lengthLen          = 2
)

// coalescing is the packet that collects messages for a peer; pkt is nil without one.
type coalescing struct {
	burst   int    // packets sent since the last call of Progress
	burstAt uint64 // clock.progressCalls of the burst
	pkt     *packet
	sender  sender
	b       []byte
	maxLen  int
}

// fits reports whether a message with n bytes of data fits into the packet.
func (u *coalescing) fits(n int) bool {
	return u.pkt != nil && n <= maxCoalescedData && len(u.b)+lengthLen+wire.MaxLen+n <= u.maxLen
}

// start sets pkt, the packet in which messages of up to maxLen bytes together are collected until
// they are sent over the transport via. If pkt is nil, no messages are collected.
func (u *coalescing) start(pkt *packet, via sender, maxLen int) {
	u.pkt, u.sender, u.b, u.maxLen = pkt, via, nil, maxLen
	if pkt != nil {
		u.b = pkt.Buf.B[:PrefixLen]
	}
}

// coalesce appends a message to the packet of coalesced messages to the peer. It returns false if
// the message must be sent alone.
func (c *Carrier) coalesce(p *peer, h *wire.Header, data []byte) bool {
	u := &p.coalescing
	if !u.fits(len(data)) && !c.startCoalescing(p, len(data)) {
		return false
	}
	at := len(u.b)
	b := p.enc.Append(u.b[:at+lengthLen], h)
	c.mem.ChargeCopy(len(data)) // the copy takes virtual time
	b = append(b, data...)
	binary.LittleEndian.PutUint16(b[at:], uint16(len(b)-at-lengthLen))
	u.b = b
	c.stats.Coalesced++
	return true
}

// startCoalescing starts a packet of coalesced messages, or returns false. A message of n bytes
// must be short, part of a burst (sends since the last Progress), and sent over a connection.
func (c *Carrier) startCoalescing(p *peer, n int) bool {
	inBurst := p.coalescing.burstAt == c.clock.progressCalls && p.coalescing.burst >= coalesceAfter
	if c.cfg.NoCoalescing || p.shm != nil || len(p.queue) > 0 || n > maxCoalescedData || !inBurst || c.clock.inProgress {
		return false
	}
	via := c.selectSender(p, maxOverhead+lengthLen+n)
	if via == nil || via.usedConn() == nil {
		return false
	}
	pkt, err := c.newPacketOf(p, c.cfg.PacketSize)
	if err != nil {
		c.failAll(err)
		return false
	}
	p.coalescing.start(pkt, via, min(maxCoalescedPacket, via.maxPacket(), len(pkt.Buf.B)-transport.TrailerLen))
	c.lists.coalescing = append(c.lists.coalescing, p)
	if len(c.lists.coalescing) == 1 {
		c.up.FlushNeeded()
	}
	return true
}

// Flush sends all coalesced messages, and reports whether there were any.
func (c *Carrier) Flush() (sent bool) {
	for i, p := range c.lists.coalescing {
		c.lists.coalescing[i] = nil
		if p.coalescing.pkt != nil {
			c.flush(p)
			sent = true
		}
	}
	c.lists.coalescing = c.lists.coalescing[:0]
	return sent
}

// flush sends the packet of coalesced messages to a peer, which must have one.
func (c *Carrier) flush(p *peer) {
	u := p.coalescing
	p.coalescing.start(nil, nil, 0) // collects no messages
	pkt := u.pkt
	if p.lost != nil {
		c.drop(pkt)
		return
	}
	pkt.CopiedLen, pkt.Len = len(u.b), len(u.b)
	pkt.numbered, pkt.seq = true, p.out.NextSeq()
	c.writePrefix(pkt, coalesced, u.sender)
	if err := u.sender.transmit(pkt); err != nil {
		c.drop(pkt)
		c.losePeer(p, err)
		return
	}
	c.countSent(p)
}

// deliverCoalesced delivers each message of a coalesced packet.
func (c *Carrier) deliverCoalesced(p *peer, b []byte) error {
	for len(b) > 0 && p.lost == nil {
		if len(b) < lengthLen || len(b)-lengthLen < int(binary.LittleEndian.Uint16(b)) {
			return fmt.Errorf("%w: %d bytes of coalesced messages", errMalformed, len(b))
		}
		n := lengthLen + int(binary.LittleEndian.Uint16(b))
		if err := c.deliverMessage(p, b[lengthLen:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// An eager message of MTU size plus its header would take two packets of the NIC. If the
// header equals that of the previous message, the data is sent alone, and immediate data
// holds the variable fields of the prefix.

// canOmitHeader reports whether a message is sent without its header: the header would make the
// packet exceed the MTU, and the receiver has it from the previous message (CachedEager). The
// immediate data must have room for the credits, and the only rail keeps the order of packets.
func (c *Carrier) canOmitHeader(via sender, header, data []byte) bool {
	k, ok := via.(*conn)
	if !ok || !k.rail.HasImmediates() || len(c.rails) > 1 || k.credits.enabled && k.credits.toReturn > maxImmediateCredits {
		return false
	}
	mtu := k.rail.MTU.Bytes()
	return len(data) <= mtu && len(header)+len(data) > mtu && len(header) == PrefixLen+1 && header[PrefixLen] == wire.CachedEager
}

// maxImmediateCredits is the largest number of credits in an immediate.
const maxImmediateCredits = 0xff

// receiveHeaderless handles a packet of data alone. imm has the returned credits and ring slots,
// and the low half of the sequence number.
func (c *Carrier) receiveHeaderless(data []byte, imm uint32, conn *conn) {
	p := conn.peer
	if p.lost != nil {
		return
	}
	next := p.in.next
	// The number nearest to next that has the low half in imm.
	seq := next + uint32(int32(int16(uint16(imm)-uint16(next))))
	c.receiveFrom(p, &prefix{kind: headerlessData, slots: uint8(imm >> 16), credits: uint16(imm >> 24), seq: seq}, data, conn, OverConnection)
}

// deliverHeaderless delivers data with the header of the previous eager message of the peer.
func (c *Carrier) deliverHeaderless(p *peer, data []byte) (err error) {
	if p.header, _, err = p.dec.Next(cachedHeader[:]); err != nil {
		return err
	}
	return c.passUp(p.rank, &p.header, data)
}

var cachedHeader = [1]byte{wire.CachedEager}
