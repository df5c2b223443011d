package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxOverhead is the largest size of prefix and header.
const maxOverhead = PrefixLen + wire.MaxLen

// CanSend reports whether a message with n bytes of data can be sent to a peer now. It is true for
// a lost peer, for which Send reports the error.
func (c *Carrier) CanSend(rank, n int) bool {
	if rank == c.env.Rank {
		return true
	}
	p := c.peer(rank)
	return p.lost != nil || p.coalescing.fits(n) || len(p.queue) == 0 && c.selectSender(p, maxOverhead+n) != nil
}

// MaxData is the largest data of a message: that of a packet that every rail can send.
func (c *Carrier) MaxData() int {
	n := c.cfg.PacketSize
	for _, r := range c.rails {
		if r.dg != nil && c.cfg.Design.hasDatagrams() {
			n = min(n, r.dg.MaxPacket)
		}
	}
	return n - maxOverhead
}

// Send sends a message to a peer, or to this rank itself, or queues a copy if no transport has
// room. Upper.Finished reports when the owner, if any, may reuse the data.
func (c *Carrier) Send(rank int, h *wire.Header, data []byte, owner any) {
	c.env.Charge(verbs.WorkMessage, 1, c.costs.Message)
	if rank == c.env.Rank {
		c.mem.ChargeCopy(len(data))
		c.stats.Packets[OverLoopback]++
		c.loopback = append(c.loopback, outgoing{kind: message, header: *h, data: append([]byte(nil), data...)})
		c.finished(owner, OpSend, nil)
		return
	}
	p := c.peer(rank)
	if p.lost != nil {
		c.finished(owner, OpSend, p.lost)
		return
	}
	if c.coalesce(p, h, data) {
		c.finished(owner, OpSend, nil)
		return
	}
	if len(p.queue) == 0 {
		if via := c.selectSender(p, maxOverhead+len(data)); via != nil {
			if p.shm == nil { // shared memory copies in any case
				if gathered := c.gatherRegion(data, owner); gathered != nil { // Finished follows when no NIC needs it
					c.stats.Gathered++
					c.sendContents(p, via, contents{kind: message, header: h, gathered: gathered, owner: owner})
					return
				}
				if o, ok := owner.(UnbufferedOwner); ok && o.IsUnbuffered() && acknowledgesPackets(via) {
					c.sendContents(p, via, contents{kind: message, header: h, data: data, owner: owner})
					return
				}
			}
			if c.sendOn(p, via, message, h, data) {
				c.finished(owner, OpSend, nil)
				return
			}
		}
	}
	if p.lost != nil {
		c.finished(owner, OpSend, p.lost)
		return
	}
	c.mem.ChargeCopy(len(data))
	c.enqueue(p, outgoing{kind: message, header: *h, data: append([]byte(nil), data...)})
	c.finished(owner, OpSend, nil)
}

// finished reports the end of an operation to its owner, if it has one.
func (c *Carrier) finished(owner any, op Op, err error) {
	if owner != nil {
		c.up.Finished(owner, op, err)
	}
}

// BlockingOwner is the owner of data that may block until it has its buffer back. Such data
// is copied: a gathered buffer is not reusable before the peer has the data.
type BlockingOwner interface{ IsBlocking() bool }

// UnbufferedOwner is the owner of data whose send ends when the peer's NIC has acknowledged it, even if the carrier
// copies the data. Messages over transports without such acknowledgements, and coalesced and queued ones, do not wait.
type UnbufferedOwner interface{ IsUnbuffered() bool }

// acknowledgesPackets reports whether the peer's NIC acknowledges the packets of a transport.
func acknowledgesPackets(via sender) bool {
	k := via.usedConn()
	return k != nil && !k.rail.needsPeerAcks()
}

// gatherRegion registers data in a buffer that the program uses often, so that the NIC can gather
// it. It returns nil if the data is to be copied after its header instead: from any other buffer,
// without an owner, and if the owner waits for this send only, because a copy completes sooner.
func (c *Carrier) gatherRegion(data []byte, owner any) *memory.Region {
	if o, ok := owner.(BlockingOwner); owner == nil || ok && o.IsBlocking() || !c.mem.IsFrequent(data) {
		return nil
	}
	r, err := c.mem.RegisterWithNICs(data)
	if err != nil {
		return nil // copy it instead
	}
	return r
}

// sender is a transport to a peer.
type sender interface {
	// transmit sends a packet for which there is room.
	transmit(pkt *packet) error
	// usedConn is the connection that delivers the packets; nil without one.
	usedConn() *conn
	// maxPacket is the length of the longest packet.
	maxPacket() int
}

// selectSender returns a transport that has room for n bytes to a peer now; nil if none has.
func (c *Carrier) selectSender(p *peer, n int) sender {
	if p.coalescing.pkt != nil {
		c.flush(p) // coalesced messages come first
	}
	if p.shm != nil {
		if p.shm.HasRoom(n) {
			return p.shm
		}
		return nil
	}
	if p.ringOut != nil && p.ringOut.hasRoom(n) {
		return p.ringOut
	}
	if c.cfg.Design.hasConnections() {
		if k := c.connection(p, n); k != nil {
			return k
		}
		if c.cfg.Design != Hybrid {
			return nil
		}
	}
	if dg := c.datagrams(p); dg != nil && dg.hasRoom(p, n) {
		return dg
	}
	return nil
}

// trySend sends a packet if a transport has room. It returns false if none has, or if sending
// failed: then the peer is lost.
func (c *Carrier) trySend(p *peer, k kind, h *wire.Header, data []byte) bool {
	n := PrefixLen + len(data)
	if k == message {
		n += wire.MaxLen
	}
	via := c.selectSender(p, n)
	if via == nil {
		return false
	}
	return c.sendOn(p, via, k, h, data)
}

// sendOn sends a packet over a transport with room. It returns false if that failed, and the peer is
// then lost.
func (c *Carrier) sendOn(p *peer, via sender, k kind, h *wire.Header, data []byte) bool {
	return c.sendContents(p, via, contents{kind: k, header: h, data: data})
}

// contents is what a packet is made of.
type contents struct {
	kind     kind
	header   *wire.Header // of a message
	data     []byte
	gathered *memory.Region // data that the NIC gathers, instead of data
	owner    any            // that waits until the packet is acknowledged
}

// sendContents sends a packet with the contents o over the transport via, which has room. It
// returns false if that failed: then the peer is lost, or all peers if there is no buffer.
func (c *Carrier) sendContents(p *peer, via sender, o contents) bool {
	if p.coalescing.pkt != nil {
		c.flush(p) // coalesced messages come first
	}
	pkt, err := c.newPacketOf(p, maxOverhead+len(o.data)+transport.TrailerLen)
	if err != nil {
		c.failAll(err)
		return false
	}
	b := pkt.Buf.B[:PrefixLen]
	if o.kind == message {
		b = p.enc.Append(b, o.header)
	}
	if o.kind == message && o.gathered == nil && c.canOmitHeader(via, b, o.data) {
		pkt.HasImm, b = true, b[:0]
		c.stats.Headerless++
	}
	b = append(b, o.data...)
	c.mem.ChargeCopy(len(o.data)) // the copy takes virtual time
	pkt.CopiedLen, pkt.Len, pkt.owner = len(b), len(b), o.owner
	if o.gathered != nil {
		pkt.Gathered = o.gathered
		pkt.Len += o.gathered.Len()
	}
	pkt.numbered = o.kind.isNumbered()
	if pkt.numbered {
		pkt.seq = p.out.NextSeq()
	}
	c.writePrefix(pkt, o.kind, via)
	if err := via.transmit(pkt); err != nil {
		c.drop(pkt)
		c.losePeer(p, err)
		return false
	}
	c.countSent(p)
	return true
}

// countSent counts a packet to a peer: in packetsSent, by which the design Hybrid selects the peers
// to connect to, and in the current burst, by which coalescing starts. A burst ends with the next
// call of Progress.
func (c *Carrier) countSent(p *peer) {
	p.packetsSent++
	if u := &p.coalescing; u.burstAt == c.clock.progressCalls {
		u.burst++
	} else {
		u.burstAt, u.burst = c.clock.progressCalls, 1
	}
}

// writePrefix writes the prefix of a packet that is sent over the transport via. A headerless
// packet has immediate data instead of a prefix.
func (c *Carrier) writePrefix(pkt *packet, k kind, via sender) {
	pre := prefix{kind: k, from: uint32(c.env.Rank), seq: pkt.seq, ack: pkt.peer.in.next}
	if conn := via.usedConn(); conn != nil { // a datagram returns no credits: it may arrive twice
		pre.credits, pre.slots = conn.takeCreditsToReturn(), pkt.peer.ringIn.takeSlotsToReturn()
	}
	if pkt.HasImm {
		// The low half of the sequence number suffices, because one connection delivers in order
		// and only datagrams and rings reorder. The credits fit, as canOmitHeader has checked. An
		// immediate has no acknowledgement.
		pkt.Imm = uint32(uint8(pre.credits))<<24 | uint32(pre.slots)<<16 | uint32(uint16(pre.seq))
		return
	}
	pre.put(pkt.Buf.B)
	pkt.peer.acks.Acknowledged()
}

// newPacketOf returns an empty packet to a peer, with a send buffer of n bytes or more.
func (c *Carrier) newPacketOf(p *peer, n int) (*packet, error) {
	buf, err := c.mem.SendBuffer(n)
	if err != nil {
		return nil, err
	}
	pkt := c.packets.take()
	*pkt = packet{peer: p, Packet: transport.Packet{Buf: buf}}
	return pkt, nil
}

// drop frees a packet that needs no acknowledgement when no NIC has it any more.
func (c *Carrier) drop(pkt *packet) {
	pkt.acked = true
	c.freePacket(pkt)
}

// freePacket frees a packet if it is acknowledged and no NIC has it any more. It must be called
// whenever one of the two becomes true.
func (c *Carrier) freePacket(pkt *packet) {
	if pkt.posted > 0 || !pkt.acked || pkt.Buf == nil {
		return
	}
	pkt.Buf.Release()
	pkt.Buf = nil
	if pkt.Gathered != nil {
		c.release(pkt.Gathered)
	}
	if pkt.owner != nil {
		c.finished(pkt.owner, OpSend, pkt.peer.lost)
	}
	c.packets.idle = append(c.packets.idle, pkt)
}

// transmit implements sender: it sends a packet as a datagram. Unless datagrams are reliable, the
// carrier keeps a numbered packet until the peer acknowledges it.
func (d *datagrams) transmit(pkt *packet) error {
	c, p := d.rail.c, pkt.peer
	c.stats.Packets[OverDatagrams]++
	c.stats.ByRail[d.rail.Num] += uint64(pkt.Len)
	pkt.acked = d.Reliable || !pkt.numbered
	if !pkt.acked {
		p.out.unacked = append(p.out.unacked, pkt)
		c.startRetransmitTimer(p)
	}
	return c.postDatagram(pkt)
}

// sendCompleted handles the completion of a packet. A datagram that failed is posted on another
// rail; if none is left, the peer is lost.
func (c *Carrier) sendCompleted(w work, wc *verbs.WC) {
	pkt := w.pkt
	pkt.posted--
	if w.conn == nil {
		w.dg.CountCompletion()
		if wc.Status != verbs.WCSuccess && pkt.peer != nil && pkt.peer.lost == nil { // members request a lost multicast
			otherWorks := c.failRail(pkt.peer, w.dg.rail)
			if otherWorks && c.postDatagram(pkt) == nil {
				return
			}
			c.losePeer(pkt.peer, statusError{"datagram", wc.Status})
		}
		c.freePacket(pkt)
		return
	}
	w.conn.sendCompleted(pkt, wc)
}

// statusError is a work completion with an error status.
type statusError struct {
	what   string
	status verbs.WCStatus
}

func (e statusError) Error() string { return e.what + ": " + e.status.String() }
