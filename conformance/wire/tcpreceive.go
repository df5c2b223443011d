package wire

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// receive processes the payload and FIN of a segment.
func (c *tcpConn) receive(s *segment) {
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
func (c *tcpConn) storeOutOfOrder(p chunk) {
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
func (c *tcpConn) deliver(p chunk) {
	if len(p.data) > 0 {
		c.readQueue = append(c.readQueue, slices.Clone(p.data))
		c.unreadLen += len(p.data)
	}
	c.rcvNxt = p.end()
	c.finReceived = p.flags&fin != 0
}

// deliverOutOfOrder delivers stored segments that are next.
func (c *tcpConn) deliverOutOfOrder() {
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
func (c *tcpConn) read() ([]byte, error) {
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

// hold queues octets that only sendHeldRange sends.
func (c *tcpConn) hold(b []byte) error {
	if c.heldChunk != nil && c.heldChunk.held {
		return errors.New("octets are held already: send all of them first")
	}
	c.enqueue(chunk{data: slices.Clone(b), held: true})
	p := c.sendQueue[len(c.sendQueue)-1] // a copy: chunks in the queue move
	c.heldChunk = &p
	return nil
}

// sendHeldFIN sends the held octets from an offset on, with FIN.
func (c *tcpConn) sendHeldFIN(now time.Time, from int) error {
	if c.heldChunk == nil || c.sndEnd != c.heldChunk.end() || c.finQueued {
		return errors.New("octets were written after the held ones")
	}
	n := len(c.heldChunk.data)
	if err := c.sendHeldRange(now, from, n, fin); err != nil {
		return err
	}
	c.finQueued = true
	c.enqueue(chunk{flags: fin, sent: true})
	c.startRetransmitTimer(now)
	return nil
}

// sendHeldRange sends a range of the held octets as one segment. Once every octet was sent,
// they are retransmitted like others.
func (c *tcpConn) sendHeldRange(now time.Time, from, to int, f tcpFlags) error {
	p := c.heldChunk
	switch {
	case c.err != nil:
		return c.err
	case p == nil:
		return errors.New("no octets are held")
	case from < 0 || to > len(p.data) || from >= to:
		return fmt.Errorf("range %d to %d of %d held octets", from, to, len(p.data))
	}
	c.sendSegment(p.seq.add(from), p.data[from:to], f)
	if !p.held {
		return nil
	}
	p.sentRanges = append(p.sentRanges, [2]int{from, to})
	if covered(p.sentRanges, len(p.data)) {
		p.held = false
		c.queueHeld(now)
	}
	return nil
}

// queueHeld replaces the chunk that was held back, and is now sent, by chunks of one MSS in the
// send queue, which are retransmitted if lost.
func (c *tcpConn) queueHeld(now time.Time) {
	var rest []chunk
	at := c.heldChunk.seq
	for part := range slices.Chunk(c.heldChunk.data, max(c.peerMSS, 1)) {
		rest = append(rest, chunk{seq: at, data: part, sent: true})
		at = at.add(len(part))
	}
	if i := slices.IndexFunc(c.sendQueue, func(x chunk) bool { return x.held }); i >= 0 {
		c.sendQueue = slices.Concat(c.sendQueue[:i], rest, c.sendQueue[i+1:])
	}
	c.removeAcked()
	if len(c.sendQueue) > 0 {
		c.startRetransmitTimer(now)
	}
}

// covered reports whether the ranges together cover n octets.
func covered(parts [][2]int, n int) bool {
	parts = slices.SortedFunc(slices.Values(parts), func(x, y [2]int) int { return x[0] - y[0] })
	at := 0
	for _, p := range parts {
		if p[0] > at {
			return false
		}
		at = max(at, p[1])
	}
	return at >= n
}
