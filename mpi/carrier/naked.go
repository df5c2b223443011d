package carrier

import "github.com/fabrictest/fabrictest/mpi/wire"

// An eager message that is as long as what a NIC sends in one packet would need another
// for the few bytes before its data. If it is as the last one was but for its data, the
// four bytes of an immediate say all that is new, and the data goes naked.

// goesNaked reports whether what b and data are would leave in two packets, and may
// leave in one: b is a prefix and a header.
func (c *Carrier) goesNaked(v via, b, data []byte) bool {
	k, ok := v.(*conn)
	if !ok || !k.rail.byWord() || len(c.rails) > 1 || k.limited && k.owed > maxNakedCredits {
		return false
	}
	mtu := k.rail.mtu.Bytes()
	return len(data) <= mtu && len(b)+len(data) > mtu && len(b) == prefixLen+1 && b[prefixLen] == wire.CachedEager
}

// maxNakedCredits is how many credits an immediate can tell of.
const maxNakedCredits = 0xff

// immediate is what is left of a prefix. With one rail, a connection brings packets in
// their order but for what else came by datagram or by ring: half of a number will do.
func (p *prefix) immediate() uint32 {
	return uint32(uint8(p.credits))<<24 | uint32(p.slots)<<16 | uint32(uint16(p.seq))
}

// tookNaked takes in a packet that is data alone.
func (c *Carrier) tookNaked(data []byte, imm uint32, by *conn) {
	p := by.peer
	if p.lost != nil {
		return
	}
	seq := p.nextIn + uint32(int32(int16(uint16(imm)-uint16(p.nextIn))))
	c.take(p, &prefix{kind: dataAlone, slots: uint8(imm >> 16), credits: uint16(imm >> 24), seq: seq}, data, by, OverConnection)
}

// hearAlone takes data whose header is that of the last.
func (c *Carrier) hearAlone(p *peer, data []byte) (err error) {
	if p.word, _, err = p.dec.Next(asBefore[:]); err != nil {
		return err
	}
	c.copied(len(data))
	return c.up.Arrived(p.rank, &p.word, data)
}

var asBefore = [1]byte{wire.CachedEager}
