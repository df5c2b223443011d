package sim

import (
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// tcpHeaderLen is the TCP header with timestamps.
const tcpHeaderLen = 32

type segmentKind uint8

const (
	segmentData segmentKind = iota
	segmentSyn
	segmentSynAck
	segmentFin
	segmentReset
)

var segmentNames = [...]string{"data", "syn", "accept", "fin", "reset"}

// segment is a segment of a stream in flight. Segments are pooled.
type segment struct {
	kind      segmentKind
	sender    *Stream
	data      []byte
	readBytes int // bytes of data that the receiver has read

	seq, ack uint64 // as in link.Segment
	push     bool   // PSH: last segment of a write

	stall time.Duration
	reset bool // the stream is reset when it arrives

	fromEpoch, toEpoch uint32 // of the links when sent, to detect that one went down

	transit trunkTransit
}

type streamRands struct {
	cut, stall, corrupt, reset *rand.Rand // nil if the rate is 0
}

// initRands creates the random number generators of the stream's impairments; name is their prefix.
func (s *Stream) initRands(name string) {
	c := &s.net.cfg.Stream
	for _, k := range []struct {
		ppm  uint32
		kind string
		to   **rand.Rand
	}{
		{c.CutPPM, "cut", &s.rands.cut},
		{c.StallPPM, "stall", &s.rands.stall},
		{c.CorruptPPM, "corrupt", &s.rands.corrupt},
		{c.ResetPPM, "reset", &s.rands.reset},
	} {
		if k.ppm > 0 {
			*k.to = s.net.w.Rand(name + "/" + k.kind)
		}
	}
}

// releaseSegment returns a segment to the pool.
func (n *Net) releaseSegment(seg *segment) {
	*seg = segment{data: seg.data[:0]}
	n.segments.put(seg)
}

// releaseAll returns the segments of a queue to the pool.
func (n *Net) releaseAll(q *nic.FIFO[*segment]) {
	for seg, ok := q.Pop(); ok; seg, ok = q.Pop() {
		n.releaseSegment(seg)
	}
}

// newSegment returns a segment without data, with the stream's next sequence number.
func (s *Stream) newSegment(kind segmentKind) *segment {
	seg := s.net.segments.get()
	seg.kind, seg.sender = kind, s
	seg.seq, seg.ack = s.nextSeq(kind), s.rcvNxt
	return seg
}

// gatherList is the unsent rest of the buffers of a Writev.
type gatherList struct {
	bufs [][]byte
	off  int // in bufs[0]
	left int // bytes
}

// take removes the next n bytes from the list and appends them to b.
func (g *gatherList) take(b []byte, n int) []byte {
	g.left -= n
	for n > 0 {
		front := g.bufs[0][g.off:]
		if n < len(front) {
			b = append(b, front[:n]...)
			g.off += n
			break
		}
		b = append(b, front...)
		n -= len(front)
		g.bufs, g.off = g.bufs[1:], 0
	}
	return b
}

// cutSegment takes the next segment from the list, up to the MSS, the next StreamEvent, or a random
// offset, and applies the StreamEvents and the random impairments to it. Every segment draws as
// many random numbers, so that a changed probability does not shift the numbers of later segments.
func (s *Stream) cutSegment(from *gatherList) *segment {
	seg := s.newSegment(segmentData)
	n := min(from.left, s.mss)
	c := &s.net.cfg.Stream
	if r := s.rands.cut; r != nil {
		cut, at := randBelow(r, impair.PPM) < int(c.CutPPM), r.Uint64()
		if cut {
			hi, _ := bits.Mul64(at, uint64(n)) // scales the random number to [0, n)
			n = int(hi) + 1
		}
	}
	n = s.applyEventsAt(seg, n)
	seg.data = from.take(seg.data, n)
	seg.push = from.left == 0
	s.applyCorruption(seg)
	if r := s.rands.stall; r != nil && randBelow(r, impair.PPM) < int(c.StallPPM) {
		seg.stall += c.StallFor
	}
	if r := s.rands.corrupt; r != nil {
		hit, at := randBelow(r, impair.PPM) < int(c.CorruptPPM), r.Uint64()
		if hit {
			bit, _ := bits.Mul64(at, uint64(n)*8) // in the order of transmission: 0 is the highest of a byte
			seg.data[bit/8] ^= 0x80 >> (bit % 8)
		}
	}
	if r := s.rands.reset; r != nil && randBelow(r, impair.PPM) < int(c.ResetPPM) {
		seg.reset = true
	}
	s.written += uint64(n)
	return seg
}

// applyEventsAt applies the StreamEvents at s.written, the offset of seg in the stream, to seg. It
// returns the length n of seg, shortened to end before the next event: all but StreamCorrupt start
// a segment, and StreamCut does only that.
func (s *Stream) applyEventsAt(seg *segment, n int) int {
	for _, e := range s.events {
		switch {
		case e.Action == StreamCorrupt || e.Offset < s.written:
		case e.Offset > s.written:
			if ahead := e.Offset - s.written; ahead < uint64(n) {
				n = int(ahead)
			}
			return n
		case e.Action == StreamStall:
			seg.stall += e.For
		case e.Action == StreamReset:
			seg.reset = true
		}
	}
	return n
}

// applyCorruption inverts the bits of seg that StreamEvents name, and removes the events before the
// end of seg from s.events.
func (s *Stream) applyCorruption(seg *segment) {
	end := s.written + uint64(len(seg.data))
	for len(s.events) > 0 && s.events[0].Offset < end {
		if e := s.events[0]; e.Action == StreamCorrupt {
			seg.data[e.Offset-s.written] ^= 1 << e.Bit
		}
		s.events = s.events[1:]
	}
}

// farPort returns the peer's port; nil if it has closed or lost the address of the stream.
func (s *Stream) farPort() *Port { return s.net.byAddr[s.remote.Addr()] }

// returnLatency returns the latency of a small packet from the peer.
func (s *Stream) returnLatency() time.Duration {
	far := s.farPort()
	switch {
	case far == nil: // the peer's port has closed, or lost the address
		return s.port.downlink.latency
	case s.net.cfg.Cable:
		return far.uplink.latency
	}
	all := far.uplink.latency + s.port.downlink.latency
	s.net.walkPath(far.sw, s.port.sw, flowHash(s.remote, s.local), func(w *trunkDir) { all += w.latency })
	return all
}

// transmit passes seg through the stack and the NIC of its sender, and then to the cable.
func (s *Stream) transmit(seg *segment) {
	if stack := s.port.nic.tcpSend; stack != nil {
		w := s.net.w
		s.acceptedAt = stack.pass(w.now, s.describe(seg))
		w.At(s.acceptedAt, (*segmentLeavesStack)(seg), 0)
		return
	}
	(*segmentLeavesStack)(seg).HandleEvent(s.net.w.now, 0)
}

// describe returns seg as the packet of a stage.
func (s *Stream) describe(seg *segment) nicPacket {
	return nicPacket{flow: flowHash(s.local, s.remote), bytes: s.wireBytes(seg)}
}

// putOnWire puts seg on the sender's uplink, which datagrams share. Queues do not drop segments.
func (s *Stream) putOnWire(seg *segment) {
	w := s.net.w
	s.traceSegment("send", seg)
	s.net.tapSegment(s.port, Out, seg)
	seg.fromEpoch = s.port.epoch
	// The maximum keeps the order: after a link went down, which flushes its queue, a segment could
	// overtake earlier ones.
	s.switchArrival = max(s.switchArrival, s.port.uplink.send(w.now, s.wireBytes(seg)))
	w.At(s.switchArrival, (*segmentAtSwitch)(seg), 0)
}

// wireBytes returns the length of seg as an IP packet.
func (s *Stream) wireBytes(seg *segment) int { return s.headerBytes() + len(seg.data) }

// headerBytes returns the length of the IP and TCP headers of a segment.
func (s *Stream) headerBytes() int {
	if s.remote.Addr().Is4() {
		return link.IPv4HeaderLen + tcpHeaderLen
	}
	return link.IPv6HeaderLen + tcpHeaderLen
}

type (
	segmentLeavesStack  segment
	segmentLeavesSender segment
	segmentAtSwitch     segment
	segmentAtPort       segment
	segmentAtStack      segment
	segmentInReceiver   segment
	retryHandler        Stream
)

// HandleEvent implements Handler. The segment leaves the network stack of the sender, and passes
// the sender's NIC, if that takes time.
func (h *segmentLeavesStack) HandleEvent(now mono.Time, _ uint64) {
	seg, s := (*segment)(h), h.sender
	if nic := s.port.nic.send; nic != nil {
		leaves := nic.pass(now, s.describe(seg))
		if s.port.nic.tcpSend == nil {
			s.acceptedAt = leaves.Add(-nic.Latency)
		}
		s.net.w.At(leaves, (*segmentLeavesSender)(seg), 0)
		return
	}
	s.putOnWire(seg)
}

// HandleEvent implements Handler. The segment leaves the sender's NIC.
func (h *segmentLeavesSender) HandleEvent(mono.Time, uint64) { h.sender.putOnWire((*segment)(h)) }

// HandleEvent implements Handler. The segment has reached a switch: it crosses the next trunk, or
// the cable to the receiver's port.
func (h *segmentAtSwitch) HandleEvent(now mono.Time, _ uint64) {
	seg, s := (*segment)(h), h.sender
	n, far := s.net, s.farPort()
	if far == nil { // closed, and its streams reset
		n.releaseSegment(seg)
		return
	}
	if s.port.sw != far.sw && !n.crossTrunk(now, seg, far) {
		return // the segment is on a trunk, and comes here again when it has crossed it
	}
	seg.toEpoch = far.epoch
	if n.cfg.Cable {
		(*segmentAtPort)(seg).HandleEvent(now, 0)
		return
	}
	s.portArrival = max(s.portArrival, far.downlink.send(now, s.wireBytes(seg)))
	n.w.At(s.portArrival, (*segmentAtPort)(seg), 0)
}

// HandleEvent implements Handler. The segment has reached the receiver's port, and passes the
// receiver's NIC, if that takes time and the port is not closed.
func (h *segmentAtPort) HandleEvent(now mono.Time, _ uint64) {
	seg, s := (*segment)(h), h.sender
	if far := s.farPort(); far != nil && far.nic.receive != nil {
		s.net.w.At(far.nic.receive.pass(now, s.describe(seg)), (*segmentAtStack)(seg), 0)
		return
	}
	(*segmentAtStack)(seg).HandleEvent(now, 0)
}

// HandleEvent implements Handler. The segment has passed the receiver's NIC, and passes the
// receiver's network stack, if that takes time and the port is not closed.
func (h *segmentAtStack) HandleEvent(now mono.Time, _ uint64) {
	seg, s := (*segment)(h), h.sender
	if far := s.farPort(); far != nil && far.nic.tcpReceive != nil {
		s.net.w.At(far.nic.tcpReceive.pass(now, s.describe(seg)), (*segmentInReceiver)(seg), 0)
		return
	}
	(*segmentInReceiver)(seg).HandleEvent(now, 0)
}

// HandleEvent implements Handler. The segment has passed the receiver's NIC and network stack: it
// is delivered, or held for a retransmission or stall. Later segments wait behind it.
func (h *segmentInReceiver) HandleEvent(now mono.Time, _ uint64) {
	seg, s := (*segment)(h), h.sender
	switch {
	case s.held.Len() > 0: // keep the order
		s.held.Push(seg)
	case !s.pathUp(seg):
		s.held.Push(seg)
		s.attempts = 1
		s.retryTimer.Reset(now.Add(s.net.cfg.Stream.RetryDelay))
	case seg.stall > 0:
		s.held.Push(seg)
		s.attempts = 0
		s.retryTimer.Reset(now.Add(seg.stall))
		seg.stall = 0
	default:
		s.arrive(seg)
	}
}

// pathUp reports whether seg crossed links that stayed up, the ports can reach each other, and all
// switches on the path have a next hop.
func (s *Stream) pathUp(seg *segment) bool {
	far := s.farPort()
	return far != nil && seg.fromEpoch == s.port.epoch && seg.toEpoch == far.epoch &&
		!s.port.isDown && !far.isDown && s.net.reachable(s.port, far) &&
		!seg.transit.lost && s.net.walkPath(s.port.sw, far.sw, flowHash(s.local, s.remote), func(*trunkDir) {})
}

// HandleEvent retransmits the held segments in order, each after its stall. While the path is down,
// it tries again with exponential backoff. After Retries attempts, or once the peer has no port,
// the stream fails.
func (h *retryHandler) HandleEvent(now mono.Time, _ uint64) {
	s := (*Stream)(h)
	c := &s.net.cfg.Stream
	for s.held.Len() > 0 {
		seg := *s.held.First()
		far := s.farPort()
		if far == nil {
			s.fail(link.ErrReset)
			s.net.releaseAll(&s.held)
			return
		}
		seg.fromEpoch, seg.toEpoch = s.port.epoch, far.epoch // those of the retransmission
		seg.transit.lost = false
		if !s.pathUp(seg) {
			if s.attempts++; s.attempts > c.Retries {
				s.fail(link.ErrReset)
				s.net.releaseAll(&s.held)
				return
			}
			delay := c.RetryDelay << min(s.attempts-1, 32)
			if delay <= 0 || delay > c.RetryDelayMax { // not positive: the shift has overflowed
				delay = c.RetryDelayMax
			}
			s.retryTimer.Reset(now.Add(delay))
			return
		}
		s.attempts = 0
		if seg.stall > 0 {
			s.retryTimer.Reset(now.Add(seg.stall))
			seg.stall = 0
			return
		}
		s.held.Pop()
		s.arrive(seg)
	}
}

// arrive delivers seg, which s has sent, to the peer's stream: a SYN to a listener, data and FIN to
// the reader, a reset as an error. If the peer has failed, s is reset.
func (s *Stream) arrive(seg *segment) {
	n := s.net
	now := n.w.now
	if seg.kind == segmentSyn {
		n.accept(s, seg)
		n.releaseSegment(seg)
		return
	}
	to := s.peer
	if to == nil || to.err != nil {
		if to != nil && seg.kind != segmentReset && s.err == nil {
			// The peer has failed, and its reset was lost.
			s.resetByPeer(link.ErrReset)
		}
		n.releaseSegment(seg)
		return
	}
	to.traceSegment("deliver", seg)
	to.recordReceived(seg)
	switch {
	case seg.reset: // by an event or impairment
		n.releaseSegment(seg)
		to.transmit(to.newSegment(segmentReset))
		to.fail(link.ErrReset)
	case seg.kind == segmentData:
		to.in.Push(seg)
		to.readable.call(now)
	case seg.kind == segmentFin:
		n.releaseSegment(seg)
		to.eof = true
		to.readable.call(now)
		to.removeIfDone()
	case seg.kind == segmentSynAck:
		n.releaseSegment(seg)
		to.open = true
		if to.finQueued {
			to.sendFin()
		}
		to.writable.call(now)
	case seg.kind == segmentReset:
		n.releaseSegment(seg)
		to.fail(link.ErrReset)
	}
}

// traceSegment adds a line about seg to the trace.
func (s *Stream) traceSegment(action string, seg *segment) {
	if w := s.net.w; w.Tracing() {
		w.Tracef("%s stream %s %s %v>%v len=%d crc=%x", s.port.cfg.Name, action, segmentNames[seg.kind],
			seg.sender.local, seg.sender.remote, len(seg.data), crc32.Checksum(seg.data, castagnoli))
	}
}
