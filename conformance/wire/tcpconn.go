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

	// Send state, with the names of RFC 9293: sndUna is the oldest unacknowledged octet,
	// sndNxt the next one to send, sndEnd the end of the queued octets.
	sndUna, sndEnd, sndNxt seqNum
	sndWnd                 int // from sndUna on
	peerMSS                int // of the other side
	sendQueue              []chunk
	rtxDeadline            time.Time // of the first chunk; zero if the timer is off
	rto                    time.Duration
	retransmits            int
	dupAcks                int // duplicate acknowledgements
	recovering             bool
	recoverEnd             seqNum // while recovering: octets before this may be lost
	heldChunk              *chunk
	finQueued              bool // FIN is queued or sent

	// Receive state. rcvNxt is the next expected octet; 0 before the SYN.
	rcvNxt      seqNum
	synReceived bool
	ownMSS      int // the MSS that we announce
	outOfOrder  []chunk
	readQueue   [][]byte // one entry per segment
	unreadLen   int
	finReceived bool // the other side's FIN has come
	advertised  int  // the last advertised window
}

// chunk is a part of the send queue that is sent in one segment.
type chunk struct {
	seq   seqNum
	data  []byte
	flags tcpFlags // SYN or FIN, which take a sequence number
	sent  bool
	// held: only the case sends the chunk. sentRanges are the parts sent so far.
	held       bool
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
	// initialRTO is the first retransmission timeout. It doubles up to maxRTO, for
	// maxRetransmits retransmissions.
	initialRTO     = 250 * time.Millisecond
	maxRTO         = 2 * time.Second
	maxRetransmits = 8
)

// open sends our SYN with the initial sequence number isn, or SYN+ACK if the peer's SYN was
// received.
func (c *tcpConn) open(now time.Time, isn seqNum) {
	c.passive = c.synReceived
	c.sndUna, c.sndEnd, c.sndNxt, c.rto, c.sndWnd = isn, isn, isn, initialRTO, 1
	c.enqueue(chunk{flags: syn})
	c.transmitPending(now)
}

// enqueue appends a chunk to the send queue, and sets its sequence number.
func (c *tcpConn) enqueue(p chunk) {
	p.seq = c.sndEnd
	c.sndEnd = p.end()
	c.sendQueue = append(c.sendQueue, p)
}

// write queues and sends octets in as few segments as the peer's MSS allows.
func (c *tcpConn) write(now time.Time, b []byte) {
	for part := range slices.Chunk(slices.Clone(b), max(c.peerMSS, 1)) {
		c.enqueue(chunk{data: part})
	}
	c.transmitPending(now)
}

// closeWrite queues and sends FIN.
func (c *tcpConn) closeWrite(now time.Time) {
	if c.finQueued {
		return
	}
	c.finQueued = true
	c.enqueue(chunk{flags: fin})
	c.transmitPending(now)
}

// transmitPending sends queued chunks that fit into the window, except held ones, which
// sendHeldRange sends.
func (c *tcpConn) transmitPending(now time.Time) {
	if c.err != nil {
		return
	}
	for i := 0; i < len(c.sendQueue); i++ {
		p := &c.sendQueue[i]
		if p.sent || p.held {
			continue
		}
		if p.seq == c.sndUna && c.sndWnd > 0 && c.sndWnd < len(p.data) { // the chunk would never fit: split it
			rest := chunk{seq: p.seq.add(c.sndWnd), data: p.data[c.sndWnd:]}
			p.data = p.data[:c.sndWnd]
			c.sendQueue = slices.Insert(c.sendQueue, i+1, rest)
			p = &c.sendQueue[i]
		}
		if p.end().sub(c.sndUna) > max(c.sndWnd, 0) || p.flags&syn == 0 && !c.established {
			break
		}
		p.sent = true
		c.sendSegment(p.seq, p.data, p.flags)
		c.startRetransmitTimer(now)
	}
	if len(c.sendQueue) > 0 {
		c.startRetransmitTimer(now)
	}
}

// startRetransmitTimer starts the retransmission timer if it is off.
func (c *tcpConn) startRetransmitTimer(now time.Time) {
	if c.rtxDeadline.IsZero() {
		c.rtxDeadline = now.Add(c.rto)
	}
}

// sendSegment sends a segment with the current acknowledgement and window.
func (c *tcpConn) sendSegment(seq seqNum, data []byte, flags tcpFlags) {
	s := segment{src: c.local, dst: c.remote, seq: seq, flags: flags, payload: data}
	if c.synReceived {
		s.flags |= ack
		s.ack = c.rcvNxt
	}
	if len(data) > 0 {
		s.flags |= psh
	}
	if flags&syn != 0 {
		s.mss = uint16(c.ownMSS)
	}
	c.advertised = max(0, maxWindow-c.unreadLen)
	s.window = uint16(c.advertised)
	if end := seq.add(s.len()); end.sub(c.sndNxt) > 0 {
		c.sndNxt = end
	}
	c.transmit(&s)
}

// sendAck sends an acknowledgement.
func (c *tcpConn) sendAck() { c.sendSegment(c.sndNxt, nil, 0) }

// abort ends the connection with an error, and sends RST unless both sides have closed.
func (c *tcpConn) abort(why error) {
	if c.err != nil {
		return
	}
	c.err = why
	if !(c.finReceived && c.finQueued && c.sndUna == c.sndEnd) {
		c.sendSegment(c.sndNxt, nil, rst)
	}
}

// tick handles an expired retransmission timer: it retransmits the first chunk that is not held
// back, or probes a closed window.
func (c *tcpConn) tick(now time.Time) {
	if c.err != nil || c.rtxDeadline.IsZero() || now.Before(c.rtxDeadline) {
		return
	}
	c.rtxDeadline = time.Time{}
	i := slices.IndexFunc(c.sendQueue, func(p chunk) bool { return !p.held })
	if i < 0 {
		return
	}
	c.rto = min(2*c.rto, maxRTO)
	p := &c.sendQueue[i]
	if !p.sent { // the window is closed: probe it
		if len(p.data) > 0 && c.established {
			c.sendSegment(p.seq, p.data[:1], 0)
		}
		c.startRetransmitTimer(now)
		return
	}
	if c.retransmits++; c.retransmits > maxRetransmits {
		c.abort(fmt.Errorf("the device did not acknowledge a segment sent %d times: %w", c.retransmits, errNoResponse))
		return
	}
	c.retransmit(now, p)
}

// retransmit sends a chunk again. handleAck retransmits later chunks that may be lost too.
func (c *tcpConn) retransmit(now time.Time, p *chunk) {
	if !c.recovering {
		c.recovering, c.recoverEnd = true, c.sndNxt
	}
	c.sendSegment(p.seq, p.data, p.flags)
	c.rtxDeadline = now.Add(c.rto)
}

// errNoResponse is the error of a connection whose peer does not respond.
var errNoResponse = errors.New("no response")

// handle processes a segment from the peer.
func (c *tcpConn) handle(now time.Time, s *segment) {
	if c.err != nil {
		return
	}
	switch {
	case s.flags&rst != 0:
		c.handleRST(s)
		return
	case s.flags&syn != 0:
		c.handleSYN(s)
	case !c.synReceived:
		return // ignored before the SYN
	}
	if s.flags&ack != 0 {
		c.handleAck(now, s)
	}
	if c.synReceived && (len(s.payload) > 0 || s.flags&fin != 0) {
		c.receive(s)
	}
}

// handleRST processes a RST with an acceptable sequence number.
func (c *tcpConn) handleRST(s *segment) {
	switch {
	case !c.synReceived && (s.flags&ack == 0 || s.ack != c.sndEnd),
		c.synReceived && (s.seq.sub(c.rcvNxt) < 0 || s.seq.sub(c.rcvNxt) > maxWindow):
		return
	}
	c.err = fmt.Errorf("%w by the device", conformance.ErrReset)
}

// handleSYN processes the first SYN of the peer, and acknowledges further ones again.
func (c *tcpConn) handleSYN(s *segment) {
	if c.synReceived {
		c.sendAck() // our ACK was lost
		return
	}
	if s.flags&ack != 0 && s.ack != c.sndUna.add(1) {
		return // SYN of another connection
	}
	c.synReceived, c.rcvNxt = true, s.seq.add(1)
	if c.peerMSS = int(s.mss); c.peerMSS == 0 {
		c.peerMSS = 536 // the default of RFC 9293
	}
}

// handleAck processes the acknowledgement number and the window of a segment.
func (c *tcpConn) handleAck(now time.Time, s *segment) {
	n := s.ack.sub(c.sndUna)
	switch {
	case n < 0 || s.ack.sub(c.sndNxt) > 0:
		return // old, or beyond the sent octets
	case n == 0:
		c.handleDupAck(now, s)
	}
	windowGrew := int(s.window) > c.sndWnd
	c.sndWnd = int(s.window)
	if n > 0 {
		c.sndUna, c.rto, c.retransmits, c.dupAcks, c.rtxDeadline = s.ack, initialRTO, 0, 0, time.Time{}
		c.removeAcked()
		if c.recovering = c.recovering && c.sndUna.sub(c.recoverEnd) < 0; c.recovering && len(c.sendQueue) > 0 && c.sendQueue[0].sent {
			c.retransmit(now, &c.sendQueue[0]) // the next chunk is probably lost as well
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
	if s.len() > 0 || int(s.window) != c.sndWnd || len(c.sendQueue) == 0 {
		return
	}
	if c.dupAcks++; c.dupAcks == 3 && c.sendQueue[0].sent && !c.sendQueue[0].held {
		c.retransmit(now, &c.sendQueue[0])
	}
}

// removeAcked removes acknowledged octets from the send queue.
func (c *tcpConn) removeAcked() {
	for len(c.sendQueue) > 0 {
		p := &c.sendQueue[0]
		n := c.sndUna.sub(p.seq)
		switch {
		case n <= 0:
			return
		case c.sndUna.sub(p.end()) >= 0:
			c.sendQueue = c.sendQueue[1:]
			continue
		case n <= len(p.data) && !p.held:
			p.seq, p.data = c.sndUna, p.data[n:]
		}
		return
	}
}
