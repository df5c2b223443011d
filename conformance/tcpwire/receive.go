package tcpwire

import (
	"io"
	"slices"
)

// receive processes the payload and FIN of a segment.
func (c *conn) receive(s *segment) {
	window := max(0, maxWindow-c.unreadLen)
	p := chunk{seq: s.seq, data: s.payload, flags: s.flags & fin}
	if n := c.rcvNxt.sub(p.seq); n > 0 { // remove octets received before
		if n > len(p.data) {
			n = len(p.data)
		}
		p.seq, p.data = p.seq.add(n), p.data[n:]
	}
	switch n := p.seq.sub(c.rcvNxt); {
	case p.end().sub(c.rcvNxt) <= 0: // a duplicate
	case p.end().sub(c.rcvNxt) > window+1, c.finReceived: // outside the window
	case n > 0:
		c.storeOutOfOrder(p)
	default:
		c.deliver(p)
		c.deliverOutOfOrder()
	}
	c.sendAck()
}

// storeOutOfOrder stores a segment that is not next.
func (c *conn) storeOutOfOrder(p chunk) {
	if len(c.outOfOrder) >= maxOutOfOrder {
		return
	}
	p.data = slices.Clone(p.data)
	i, _ := slices.BinarySearchFunc(c.outOfOrder, p, func(x, y chunk) int {
		if d := x.seq.sub(y.seq); d != 0 {
			return d
		}
		return y.end().sub(x.end()) // longer ones first
	})
	c.outOfOrder = slices.Insert(c.outOfOrder, i, p)
}

// deliver appends the next octets to the read queue.
func (c *conn) deliver(p chunk) {
	if len(p.data) > 0 {
		c.readQueue = append(c.readQueue, slices.Clone(p.data))
		c.unreadLen += len(p.data)
	}
	c.rcvNxt = p.end()
	c.finReceived = p.flags&fin != 0
}

// deliverOutOfOrder delivers stored segments that are next.
func (c *conn) deliverOutOfOrder() {
	for len(c.outOfOrder) > 0 && !c.finReceived {
		p := c.outOfOrder[0]
		n := c.rcvNxt.sub(p.seq)
		if n < 0 {
			return
		}
		c.outOfOrder = c.outOfOrder[1:]
		if p.end().sub(c.rcvNxt) <= 0 {
			continue
		}
		p.seq, p.data = p.seq.add(min(n, len(p.data))), p.data[min(n, len(p.data)):]
		c.deliver(p)
	}
}

// read returns the payload of the next segment, nil if there is none, or the error after
// all payload was read.
func (c *conn) read() ([]byte, error) {
	if len(c.readQueue) > 0 {
		b := c.readQueue[0]
		c.readQueue, c.unreadLen = c.readQueue[1:], c.unreadLen-len(b)
		// Send a window update if the advertised window was small.
		if c.err == nil && !c.finReceived && c.advertised < maxWindow/2 && maxWindow-c.unreadLen >= maxWindow/2 {
			c.sendAck()
		}
		return b, nil
	}
	if c.finReceived { // a later RST does not change that
		return nil, io.EOF
	}
	return nil, c.err
}
