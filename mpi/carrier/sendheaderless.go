package carrier

import "github.com/fabrictest/fabrictest/mpi/wire"

// An eager message of MTU size plus its header would take two packets of the NIC. If the
// header equals that of the previous message, the data is sent alone, and immediate data
// holds the variable fields of the prefix.

// canOmitHeader reports whether a message is sent without its header: the header would make the
// packet exceed the MTU, and the receiver knows it from the previous message (CachedEager).
func (c *Carrier) canOmitHeader(via sender, header, data []byte) bool {
	k, ok := via.(*conn)
	if !ok || !k.rail.HasImmediates() || len(c.rails) > 1 || k.credits.enabled && k.credits.toReturn > maxImmediateCredits {
		return false
	}
	mtu := k.rail.MTU.Bytes()
	return len(data) <= mtu && len(header)+len(data) > mtu && len(header) == prefixLen+1 && header[prefixLen] == wire.CachedEager
}

// maxImmediateCredits is the largest number of credits in an immediate.
const maxImmediateCredits = 0xff

// receiveHeaderless handles a packet of data alone.
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
	c.mem.ChargeCopy(len(data))
	return c.up.Arrived(p.rank, &p.header, data)
}

var cachedHeader = [1]byte{wire.CachedEager}
