package uswitch

import "unsafe"

// transmit puts a frame on its way out of a port, joined to the one before it if
// it follows on that.
func (c *core) transmit(p *port, f Frame) {
	drops := &p.counts[Out].Drops
	if !p.fits(f.Bytes) {
		drops.TooBig++
		return
	}
	if c.pending >= maxMessages {
		drops.HeldFull++
		return
	}
	b := f.Bytes
	if unsafe.SliceData(b) == unsafe.SliceData(c.stable) && len(b) == len(c.stable) {
		b = c.stable // with what follows it in memory, for join to see
	} else {
		b = c.copy(b)
	}
	if f.ChecksumPartial && p.used > 0 && p.messages[p.used-1].join(b) {
		return
	}
	m := c.message(p)
	m.start(b, f.ChecksumPartial)
	if c.singleUDP && m.layout.proto == protoUDP {
		m.open = false
	}
}

func (c *core) transmitWhole(p *port, k *packet) {
	if n, longest, _ := k.frames(); !p.fits(k.bytes[:min(longest, len(k.bytes))]) {
		p.counts[Out].Drops.TooBig += uint64(n)
		return
	}
	c.message(p).whole(k)
}

// fits reports whether the port's interface takes a frame. A tag is extra.
func (p *port) fits(b []byte) bool {
	room := p.mtu + etherLen
	if len(b) > room && len(b) <= room+4 && b[12] == etherVLAN>>8 && b[13] == etherVLAN&0xff {
		return true
	}
	return len(b) <= room
}

func (c *core) message(p *port) *message {
	if p.used == len(p.messages) {
		p.messages = append(p.messages, message{})
	}
	p.used++
	c.pending++
	return &p.messages[p.used-1]
}

// copy keeps bytes of a Path's until flush.
func (c *core) copy(b []byte) []byte {
	start := len(c.copies)
	if start+len(b) > cap(c.copies) {
		// What has been handed out stays where it is; this is the next piece.
		c.copies, start = make([]byte, 0, max(2*flushCopies, len(b))), 0
	}
	c.copies = append(c.copies, b...)
	return c.copies[start:len(c.copies):len(c.copies)]
}

func (c *core) full() bool { return c.pending >= flushMessages || len(c.copies) >= flushCopies }

func (c *core) flushIfFull() {
	if c.full() {
		c.flush()
	}
}

// flush sends everything that is on its way out.
func (c *core) flush() {
	if c.pending > 0 {
		for _, p := range c.ports {
			if p.used == 0 {
				continue
			}
			ms := p.messages[:p.used]
			for i := range ms {
				ms[i].finish()
			}
			c.send(p, ms)
			p.used = 0
		}
		c.pending = 0
	}
	c.copies = c.copies[:0]
	c.held.giveBack()
}
