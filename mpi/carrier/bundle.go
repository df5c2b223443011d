package carrier

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// A program that begins many sends at once has small words leave together. The first
// few go at once, each by itself: a program that talks in turns, or begins one send and
// computes, is not held up. Those behind them, as long as the program has not looked for
// what comes, share a packet. It leaves when it is full, when anything else is to leave
// for the peer, or when the program next looks.

const (
	// bundleAfter is how many packets leave by themselves first.
	bundleAfter = 2
	// bundleWord is the largest word that is collected.
	bundleWord = 512
	// bundleBytes is how long a packet of several words is at most: no longer than one
	// that a NIC sends whole, or than a slot of a ring.
	bundleBytes = 4000
	lengthLen   = 2
)

// bundle is a packet that is being filled.
type bundle struct {
	pkt  *packet
	via  via
	b    []byte
	most int
}

// holds reports whether a word with so much data has a place in it.
func (u *bundle) holds(n int) bool {
	return u.pkt != nil && n <= bundleWord && len(u.b)+lengthLen+wire.MaxLen+n <= u.most
}

// collected puts a word into a bundle, if it should go into one.
func (c *Carrier) collected(p *peer, h *wire.Header, data []byte) bool {
	u := &p.filling
	if !u.holds(len(data)) && !c.begins(p, len(data)) {
		return false
	}
	at := len(u.b)
	b := p.enc.Append(u.b[:at+lengthLen], h)
	c.copied(len(data))
	b = append(b, data...)
	binary.LittleEndian.PutUint16(b[at:], uint16(len(b)-at-lengthLen))
	u.b = b
	c.stats.Coalesced++
	return true
}

// begins begins a bundle, if it is time for one.
func (c *Carrier) begins(p *peer, n int) bool {
	if c.cfg.NoCoalescing || p.beside != nil || len(p.queue) > 0 || n > bundleWord || p.era != c.era || p.burst < bundleAfter || c.inside {
		return false
	}
	v := c.way(p, around+lengthLen+n)
	most := bundleBytes
	switch v := v.(type) {
	case *ringOut:
		most = min(most, v.pos.size-tailLen, p.packetSize)
	case *conn:
		most = min(most, c.cfg.PacketSize)
	default:
		return false
	}
	pkt, err := c.newPacket(p)
	if err != nil {
		c.fault(err)
		return false
	}
	p.filling = bundle{pkt: pkt, via: v, b: pkt.buf.b[:prefixLen], most: min(most, len(pkt.buf.b)-tailLen)}
	if c.filling = append(c.filling, p); len(c.filling) == 1 {
		c.up.FlushNeeded()
	}
	return true
}

// Flush lets go what was collected, and reports whether there was anything.
func (c *Carrier) Flush() (some bool) {
	for i, p := range c.filling {
		c.filling[i] = nil
		if p.filling.pkt != nil {
			c.flush(p)
			some = true
		}
	}
	c.filling = c.filling[:0]
	return some
}

func (c *Carrier) flush(p *peer) {
	u := p.filling
	p.filling = bundle{}
	pkt := u.pkt
	if p.lost != nil {
		pkt.acked = true
		c.dispose(pkt)
		return
	}
	pkt.head, pkt.len = len(u.b), len(u.b)
	pkt.numbered, pkt.seq = true, p.nextOut
	p.nextOut++
	c.stamp(pkt, words, u.via)
	if err := u.via.carry(pkt); err != nil {
		pkt.acked = true
		c.dispose(pkt)
		c.lose(p, err)
		return
	}
	c.left(p)
}

// hearWords takes the words of a bundle.
func (c *Carrier) hearWords(p *peer, b []byte) error {
	for len(b) > 0 && p.lost == nil {
		if len(b) < lengthLen || len(b)-lengthLen < int(binary.LittleEndian.Uint16(b)) {
			return fmt.Errorf("%w: %d bytes of several words", errMalformed, len(b))
		}
		n := lengthLen + int(binary.LittleEndian.Uint16(b))
		if err := c.hearWord(p, b[lengthLen:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
