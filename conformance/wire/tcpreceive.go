package wire

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// receive processes the payload and FIN of a segment and sends an ACK, also for a duplicate.
func (c *tcpConn) receive(s *segment) {
	p := chunk{seq: s.seq, data: s.payload, flags: s.flags & fin}
	switch end := p.end().sub(c.rcv.nxt); {
	case end <= 0: // a duplicate
	case end > c.rcv.window()+1, c.rcv.fin: // outside the window (+1 for a FIN), or after the peer's FIN
	case p.seq.sub(c.rcv.nxt) > 0:
		c.rcv.storeOutOfOrder(p)
	default:
		c.rcv.deliver(p)
		c.rcv.deliverOutOfOrder()
	}
	c.sendAck()
}

// window returns the receive window.
func (r *receiver) window() int { return max(0, maxWindow-r.unread) }

// storeOutOfOrder stores a segment that arrived before octets that precede it, sorted by sequence
// number. It drops the segment if maxOutOfOrder are stored.
func (r *receiver) storeOutOfOrder(p chunk) {
	if len(r.outOfOrder) >= maxOutOfOrder {
		return
	}
	p.data = slices.Clone(p.data)
	i, _ := slices.BinarySearchFunc(r.outOfOrder, p, func(x, y chunk) int {
		if d := x.seq.sub(y.seq); d != 0 {
			return d
		}
		return y.end().sub(x.end()) // longer ones first
	})
	r.outOfOrder = slices.Insert(r.outOfOrder, i, p)
}

// deliver appends the octets of a chunk that were not received before to the read queue.
func (r *receiver) deliver(p chunk) {
	if fresh := p.data[min(r.nxt.sub(p.seq), len(p.data)):]; len(fresh) > 0 {
		r.queue = append(r.queue, slices.Clone(fresh))
		r.unread += len(fresh)
	}
	r.nxt = p.end()
	r.fin = p.flags&fin != 0
}

// deliverOutOfOrder delivers stored segments up to the next gap.
func (r *receiver) deliverOutOfOrder() {
	for len(r.outOfOrder) > 0 && !r.fin && r.outOfOrder[0].seq.sub(r.nxt) <= 0 {
		p := r.outOfOrder[0]
		r.outOfOrder = r.outOfOrder[1:]
		if p.end().sub(r.nxt) > 0 {
			r.deliver(p)
		}
	}
}

// read returns the payload of the next segment. Without one it returns nil, and the error that
// ended the stream, if any.
func (c *tcpConn) read() ([]byte, error) {
	if len(c.rcv.queue) > 0 {
		b := c.rcv.queue[0]
		c.rcv.queue, c.rcv.unread = c.rcv.queue[1:], c.rcv.unread-len(b)
		// Send a window update if the advertised window was small and is large now.
		if c.err == nil && !c.rcv.fin && c.rcv.advertised < maxWindow/2 && maxWindow-c.rcv.unread >= maxWindow/2 {
			c.sendAck()
		}
		return b, nil
	}
	if c.rcv.fin { // a later RST does not change that
		return nil, io.EOF
	}
	return nil, c.err
}

var errNoneHeld = errors.New("no octets are held")

// queueManual holds octets: it queues them as a manual chunk, which the test case sends by
// sendManualRange.
func (c *tcpConn) queueManual(b []byte) error {
	if last := c.snd.manual; last != nil && last.manual { // some of its octets have not been sent
		return errors.New("octets are held already: send all of them first")
	}
	c.snd.enqueue(chunk{data: slices.Clone(b), manual: true})
	p := c.snd.queue[len(c.snd.queue)-1] // a copy: chunks in the queue move
	c.snd.manual = &p
	return nil
}

// sendManualFIN sends the octets of the manual chunk (octets that the test case holds back and
// sends itself) from an offset on, with FIN. It returns an error if no octets are held, or if other
// octets or FIN were written after them.
func (c *tcpConn) sendManualFIN(now time.Time, from int) error {
	switch {
	case c.snd.manual == nil:
		return errNoneHeld
	case c.snd.end != c.snd.manual.end() || c.snd.fin:
		return errors.New("octets or FIN were written after the held octets")
	}
	if err := c.sendManualRange(now, from, len(c.snd.manual.data), fin); err != nil {
		return err
	}
	c.snd.fin = true
	c.snd.enqueue(chunk{flags: fin, sent: true})
	c.rtx.startTimer(now)
	return nil
}

// sendManualRange sends a range of the octets of the manual chunk (octets that the test case holds
// back) as one segment with the given flags. Once every octet was sent, the chunk is no longer
// manual: lost octets are retransmitted.
func (c *tcpConn) sendManualRange(now time.Time, from, to int, flags tcpFlags) error {
	p := c.snd.manual
	switch {
	case c.err != nil:
		return c.err
	case p == nil:
		return errNoneHeld
	case from < 0 || to > len(p.data) || from >= to:
		return fmt.Errorf("range %d to %d is empty or not within the %d held octets", from, to, len(p.data))
	}
	c.sendSegment(p.seq.add(from), p.data[from:to], flags)
	if !p.manual {
		return nil
	}
	p.sentRanges = append(p.sentRanges, [2]int{from, to})
	if covered(p.sentRanges, len(p.data)) {
		p.manual = false
		c.replaceManual(now)
	}
	return nil
}

// replaceManual is called when the test case has sent every octet of the manual chunk (octets that
// it holds back and sends itself). It replaces the chunk in the send queue by ordinary chunks of
// one MSS, which are retransmitted if lost.
func (c *tcpConn) replaceManual(now time.Time) {
	var rest []chunk
	at := c.snd.manual.seq
	for part := range slices.Chunk(c.snd.manual.data, c.snd.mss) {
		rest = append(rest, chunk{seq: at, data: part, sent: true})
		at = at.add(len(part))
	}
	if i := slices.IndexFunc(c.snd.queue, func(x chunk) bool { return x.manual }); i >= 0 {
		c.snd.queue = slices.Concat(c.snd.queue[:i], rest, c.snd.queue[i+1:])
	}
	c.snd.removeAcked()
	if len(c.snd.queue) > 0 {
		c.rtx.startTimer(now)
	}
}

// covered reports whether the ranges, of octets from the first to before the second number, cover
// all n octets.
func covered(ranges [][2]int, n int) bool {
	sorted := slices.SortedFunc(slices.Values(ranges), func(x, y [2]int) int { return x[0] - y[0] })
	at := 0
	for _, r := range sorted {
		if r[0] > at {
			return false
		}
		at = max(at, r[1])
	}
	return at >= n
}
