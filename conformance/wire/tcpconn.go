package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// tcpConn is a TCP connection as a value, without a clock or a socket.
type tcpConn struct {
	local, remote netip.AddrPort
	// passive: the peer opened the connection.
	passive bool
	// established: both SYNs are acknowledged.
	established bool
	// err is the reason for which the connection was aborted or reset.
	err error
	// transmit sends a segment.
	transmit func(*segment)
	snd      sender
	rtx      retransmission
	rcv      receiver
}

// sender is the send state, with the names of RFC 9293.
type sender struct {
	una, nxt seqNum // the oldest unacknowledged octet, and the next one to send
	end      seqNum // the end of the queued octets
	wnd      int    // from una on
	mss      int    // of the other side; 1 before its SYN
	queue    []chunk
	manual   *chunk // a copy of the last manual chunk
	fin      bool   // FIN is queued or sent
}

// retransmission is the state of the retransmission timer and of loss recovery.
type retransmission struct {
	deadline   time.Time // of the first chunk; zero if the timer is off
	timeout    time.Duration
	count      int
	dupAcks    int
	recovering bool
	recoverEnd seqNum // while recovering: octets before this may be lost
}

// receiver is the receive state.
type receiver struct {
	nxt        seqNum // the next expected octet; 0 before the SYN
	syn, fin   bool   // SYN and FIN of the other side have come
	mss        int    // the MSS that we announce
	outOfOrder []chunk
	queue      [][]byte // one entry per segment
	unread     int      // octets in queue
	advertised int      // the last advertised window
}

// chunk is a part of the send queue that is sent in one segment.
type chunk struct {
	seq   seqNum
	data  []byte
	flags tcpFlags // SYN or FIN, which take a sequence number
	sent  bool
	// manual: the test case sends the chunk, in segments of its choice. sentRanges are those sent.
	manual     bool
	sentRanges [][2]int
}

// end returns the sequence number after the chunk.
func (p *chunk) end() seqNum {
	n := len(p.data)
	if p.flags&(syn|fin) != 0 {
		n++
	}
	return p.seq.add(n)
}

const (
	// maxWindow is the largest window without scaling.
	maxWindow = 1<<16 - 1
	// maxOutOfOrder limits the number of stored out-of-order segments.
	maxOutOfOrder = 1024
	// initialRTO is the first retransmission timeout. It doubles up to maxRTO.
	initialRTO     = 250 * time.Millisecond
	maxRTO         = 2 * time.Second
	maxRetransmits = 8
)

// open sends our SYN with sequence number isn, or SYN+ACK if the peer's SYN was received.
func (c *tcpConn) open(now time.Time, isn seqNum) {
	c.passive = c.rcv.syn
	c.snd.una, c.snd.end, c.snd.nxt, c.snd.wnd = isn, isn, isn, 1 // a window for the SYN only
	c.rtx.timeout = initialRTO
	c.snd.enqueue(chunk{flags: syn})
	c.transmitPending(now)
}

// enqueue appends a chunk to the send queue, and sets its sequence number.
func (s *sender) enqueue(p chunk) {
	p.seq = s.end
	s.end = p.end()
	s.queue = append(s.queue, p)
}

// write queues and sends octets in as few segments as the peer's MSS allows.
func (c *tcpConn) write(now time.Time, b []byte) {
	for part := range slices.Chunk(slices.Clone(b), c.snd.mss) {
		c.snd.enqueue(chunk{data: part})
	}
	c.transmitPending(now)
}

// closeWrite queues and sends FIN.
func (c *tcpConn) closeWrite(now time.Time) {
	if c.snd.fin {
		return
	}
	c.snd.fin = true
	c.snd.enqueue(chunk{flags: fin})
	c.transmitPending(now)
}

// transmitPending sends queued chunks that fit into the window, except manual ones, which the test
// case sends itself. It splits the first unacknowledged chunk if it is larger than the window.
func (c *tcpConn) transmitPending(now time.Time) {
	if c.err != nil {
		return
	}
	for i := 0; i < len(c.snd.queue); i++ {
		p := &c.snd.queue[i]
		if p.sent || p.manual {
			continue
		}
		if p.seq == c.snd.una && c.snd.wnd > 0 && c.snd.wnd < len(p.data) { // the chunk would never fit: split it
			rest := chunk{seq: p.seq.add(c.snd.wnd), data: p.data[c.snd.wnd:]}
			p.data = p.data[:c.snd.wnd]
			c.snd.queue = slices.Insert(c.snd.queue, i+1, rest)
			p = &c.snd.queue[i]
		}
		if p.end().sub(c.snd.una) > c.snd.wnd || p.flags&syn == 0 && !c.established {
			break // beyond the window, or before the handshake is complete
		}
		p.sent = true
		c.sendSegment(p.seq, p.data, p.flags)
	}
	if len(c.snd.queue) > 0 {
		c.rtx.startTimer(now)
	}
}

// startTimer starts the retransmission timer if it is off.
func (r *retransmission) startTimer(now time.Time) {
	if r.deadline.IsZero() {
		r.deadline = now.Add(r.timeout)
	}
}

// sendSegment sends a segment with the current acknowledgement and window; a SYN with our MSS.
func (c *tcpConn) sendSegment(seq seqNum, data []byte, flags tcpFlags) {
	s := segment{src: c.local, dst: c.remote, seq: seq, flags: flags, payload: data}
	if c.rcv.syn {
		s.flags |= ack
		s.ack = c.rcv.nxt
	}
	if len(data) > 0 {
		s.flags |= psh
	}
	if flags&syn != 0 {
		s.mss = uint16(c.rcv.mss)
	}
	c.rcv.advertised = c.rcv.window()
	s.window = uint16(c.rcv.advertised)
	if end := seq.add(s.len()); end.sub(c.snd.nxt) > 0 {
		c.snd.nxt = end
	}
	c.transmit(&s)
}

// sendAck sends an acknowledgement.
func (c *tcpConn) sendAck() { c.sendSegment(c.snd.nxt, nil, 0) }

// abort ends the connection with an error, and sends RST unless both sides have closed.
func (c *tcpConn) abort(why error) {
	if c.err != nil {
		return
	}
	c.err = why
	if !(c.rcv.fin && c.snd.fin && c.snd.una == c.snd.end) {
		c.sendSegment(c.snd.nxt, nil, rst)
	}
}

// tick handles an expired retransmission timer: it retransmits the first chunk that is not manual
// (the test case sends those itself), or aborts the connection after maxRetransmits. If that chunk
// has not been sent because the window is closed, it probes the window with one octet.
func (c *tcpConn) tick(now time.Time) {
	if c.err != nil || c.rtx.deadline.IsZero() || now.Before(c.rtx.deadline) {
		return
	}
	c.rtx.deadline = time.Time{}
	i := slices.IndexFunc(c.snd.queue, func(p chunk) bool { return !p.manual })
	if i < 0 {
		return
	}
	c.rtx.timeout = min(2*c.rtx.timeout, maxRTO)
	p := &c.snd.queue[i]
	if !p.sent { // the window is closed: probe it
		if len(p.data) > 0 && c.established {
			c.sendSegment(p.seq, p.data[:1], 0)
		}
		c.rtx.startTimer(now)
		return
	}
	if c.rtx.count++; c.rtx.count > maxRetransmits {
		c.abort(fmt.Errorf("the device did not acknowledge a segment sent %d times: %w", c.rtx.count, errNoResponse))
		return
	}
	c.retransmit(now, p)
}

// retransmit sends a chunk again. handleAck retransmits later chunks that may be lost too.
func (c *tcpConn) retransmit(now time.Time, p *chunk) {
	if !c.rtx.recovering {
		c.rtx.recovering, c.rtx.recoverEnd = true, c.snd.nxt
	}
	c.sendSegment(p.seq, p.data, p.flags)
	c.rtx.deadline = now.Add(c.rtx.timeout)
}

// errNoResponse is the error of a connection whose peer does not respond.
var errNoResponse = errors.New("no response")

// handle processes a segment from the device: RST, SYN, acknowledgement, then payload and FIN. It
// ignores segments before the SYN and after a reset.
func (c *tcpConn) handle(now time.Time, s *segment) {
	if c.err != nil {
		return
	}
	switch {
	case s.flags&rst != 0:
		if c.acceptsRST(s) {
			c.err = fmt.Errorf("%w by the device", conformance.ErrReset)
		}
		return
	case s.flags&syn != 0:
		c.handleSYN(s)
	case !c.rcv.syn:
		return // ignored before the SYN
	}
	if s.flags&ack != 0 {
		c.handleAck(now, s)
	}
	if c.rcv.syn && (len(s.payload) > 0 || s.flags&fin != 0) {
		c.receive(s)
	}
}

// acceptsRST reports whether a RST acknowledges our SYN or, after the peer's SYN, is in the window.
func (c *tcpConn) acceptsRST(s *segment) bool {
	if !c.rcv.syn {
		return s.flags&ack != 0 && s.ack == c.snd.end
	}
	distance := s.seq.sub(c.rcv.nxt)
	return distance >= 0 && distance <= maxWindow
}

// handleSYN processes the first SYN of the peer, and acknowledges further ones again.
func (c *tcpConn) handleSYN(s *segment) {
	if c.rcv.syn {
		c.sendAck() // our ACK was lost
		return
	}
	if s.flags&ack != 0 && s.ack != c.snd.una.add(1) {
		return // SYN of another connection
	}
	c.rcv.syn, c.rcv.nxt = true, s.seq.add(1)
	if c.snd.mss = int(s.mss); c.snd.mss == 0 {
		c.snd.mss = 536 // the default of RFC 9293
	}
}

// handleAck processes the acknowledgement number and window of a segment, and sends what fits.
func (c *tcpConn) handleAck(now time.Time, s *segment) {
	n := s.ack.sub(c.snd.una)
	switch {
	case n < 0 || s.ack.sub(c.snd.nxt) > 0:
		return // old, or beyond the sent octets
	case n == 0:
		c.handleDupAck(now, s)
	}
	windowGrew := int(s.window) > c.snd.wnd
	c.snd.wnd = int(s.window)
	if n > 0 {
		c.snd.una = s.ack
		c.snd.removeAcked()
		recovering := c.rtx.recovering && s.ack.sub(c.rtx.recoverEnd) < 0
		c.rtx = retransmission{timeout: initialRTO, recovering: recovering, recoverEnd: c.rtx.recoverEnd}
		if recovering && len(c.snd.queue) > 0 && c.snd.queue[0].sent {
			c.retransmit(now, &c.snd.queue[0]) // the next chunk is probably lost as well
		}
		if !c.established {
			c.established = true
			if !c.passive {
				c.sendAck()
			}
		}
	}
	if n > 0 || windowGrew {
		c.transmitPending(now)
	}
}

// handleDupAck counts duplicate acknowledgements, and retransmits after the third.
func (c *tcpConn) handleDupAck(now time.Time, s *segment) {
	if s.len() > 0 || int(s.window) != c.snd.wnd || len(c.snd.queue) == 0 {
		return
	}
	if c.rtx.dupAcks++; c.rtx.dupAcks == 3 && c.snd.queue[0].sent && !c.snd.queue[0].manual {
		c.retransmit(now, &c.snd.queue[0])
	}
}

// removeAcked removes acknowledged octets from the send queue. It removes a manual chunk, which the
// test case sends itself, only when all of it is acknowledged.
func (s *sender) removeAcked() {
	for len(s.queue) > 0 {
		p := &s.queue[0]
		n := s.una.sub(p.seq)
		switch {
		case n <= 0:
			return
		case s.una.sub(p.end()) >= 0:
			s.queue = s.queue[1:]
			continue
		case n <= len(p.data) && !p.manual:
			p.seq, p.data = s.una, p.data[n:]
		}
		return
	}
}
