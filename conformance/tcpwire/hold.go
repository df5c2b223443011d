package tcpwire

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// hold queues octets that only sendHeld sends.
func (c *conn) hold(b []byte) error {
	if c.held != nil && c.held.held {
		return errors.New("octets are held already: send all of them first")
	}
	c.enqueue(chunk{data: slices.Clone(b), held: true})
	p := c.sendQueue[len(c.sendQueue)-1]
	c.held = &p
	return nil
}

// sendHeld sends a range of the held octets as one segment. Once every octet was sent, they
// are retransmitted like others.
func (c *conn) sendHeld(now time.Time, from, to int) error {
	return c.sendHeldRange(now, from, to, 0)
}

// sendHeldFIN sends the held octets from an offset on, with FIN.
func (c *conn) sendHeldFIN(now time.Time, from int) error {
	if c.held == nil || c.sndEnd != c.held.end() || c.finQueued {
		return errors.New("octets were written after the held ones")
	}
	n := len(c.held.data)
	if err := c.sendHeldRange(now, from, n, fin); err != nil {
		return err
	}
	c.finQueued = true
	c.enqueue(chunk{flags: fin, sent: true})
	c.startRetransmitTimer(now)
	return nil
}

func (c *conn) sendHeldRange(now time.Time, from, to int, f flags) error {
	p := c.held
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
func (c *conn) queueHeld(now time.Time) {
	var rest []chunk
	at := c.held.seq
	for part := range slices.Chunk(c.held.data, max(c.peerMSS, 1)) {
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
