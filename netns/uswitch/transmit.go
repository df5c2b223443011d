package uswitch

import "unsafe"

// transmit queues a frame for a port, coalesced with the previous one if possible. It copies the
// frame unless that is c.stable, whose bytes are valid until flush.
func (c *core) transmit(p *port, f Frame) {
	drops := &p.counters[Out].Drops
	if !p.fits(f.Bytes) {
		drops.TooBig++
		return
	}
	if c.pending >= maxMessages { // one call of a FrameHandler has emitted too many
		drops.QueueFull++
		return
	}
	b := f.Bytes
	if unsafe.SliceData(b) == unsafe.SliceData(c.stable) && len(b) == len(c.stable) {
		b = c.stable // with its capacity, which coalesce needs
	} else {
		b = c.copyUntilFlush(b)
	}
	if f.ChecksumPartial && p.pending > 0 && p.messages[p.pending-1].coalesce(b) {
		return
	}
	m := c.newMessage(p)
	m.setFrame(b, f.ChecksumPartial)
	if c.noUDPGSO && m.layout.proto == protoUDP {
		m.canAppend = false
	}
}

// transmitPacket queues a packet for a port as received. It may be a GSO packet of several frames.
func (c *core) transmitPacket(p *port, k *packet) {
	n, longest, _ := k.frames()
	// For fits, the beginning of the packet stands for its longest frame: it has the same VLAN tag.
	if !p.fits(k.bytes[:min(longest, len(k.bytes))]) {
		p.counters[Out].Drops.TooBig += uint64(n)
		return
	}
	c.newMessage(p).setPacket(k)
}

// fits reports whether a frame fits the MTU of the interface, plus a VLAN tag.
func (p *port) fits(b []byte) bool {
	room := p.mtu + etherLen
	if len(b) > room && len(b) <= room+4 && b[12] == etherVLAN>>8 && b[13] == etherVLAN&0xff {
		return true
	}
	return len(b) <= room
}

// newMessage adds a message, whose contents the caller sets, to the output of a port.
func (c *core) newMessage(p *port) *message {
	if p.pending == len(p.messages) {
		p.messages = append(p.messages, message{})
	}
	p.pending++
	c.pending++
	return &p.messages[p.pending-1]
}

// copyUntilFlush copies a FrameHandler's bytes to a buffer that is valid until flush.
func (c *core) copyUntilFlush(b []byte) []byte {
	start := len(c.copies)
	if start+len(b) > cap(c.copies) {
		// Earlier copies stay in the old buffer.
		c.copies, start = make([]byte, 0, max(2*flushCopies, len(b))), 0
	}
	c.copies = append(c.copies, b...)
	return c.copies[start:len(c.copies):len(c.copies)]
}

// full reports whether so much output is pending that it must be sent.
func (c *core) full() bool { return c.pending >= flushMessages || len(c.copies) >= flushCopies }

func (c *core) flushIfFull() {
	if c.full() {
		c.flush()
	}
}

// flush sends all pending messages, and releases the buffers of their frames.
func (c *core) flush() {
	if c.pending > 0 {
		for _, p := range c.ports {
			if p.pending == 0 {
				continue
			}
			ms := p.messages[:p.pending]
			for i := range ms {
				ms[i].finish()
			}
			c.send(p, ms)
			p.pending = 0
		}
		c.pending = 0
	}
	c.copies = c.copies[:0]
	c.delayed.releaseLent()
}
