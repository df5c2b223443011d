package simlab

import (
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/lab"
)

// stream models TCP on the sending side of a stream. It divides written data into
// segments, and applies the impairments of both hosts' cables to each:
//
//   - A lost or truncated segment is retransmitted: after dupAckThreshold later
//     segments have arrived, or else after a timeout that doubles with each loss.
//   - A delayed or reordered segment delays all later ones, because a stream is in
//     order.
//   - A corrupted segment is delivered corrupted, because the TCP checksum is weak.
//   - Duplicates have no effect.
//
// Segments that have arrived are written to the wrapped stream. Writes are always
// accepted in full: the send buffer is unlimited.
type stream struct {
	link.StreamLink
	port, peerPort *streamPort // peerPort is nil if the address has no port
	connNumber     int         // of the stream at port, see streamPort.connNumber
	peerConnNumber int         // at peerPort
	written        uint64

	queue        []*segment
	lostSegments int  // in queue, to be retransmitted
	writeClosed  bool // CloseWrite was called; it takes effect after queue
	err          error
	outcomes     []impair.Outcome
}

// segment is a part of a stream that has not been delivered.
type segment struct {
	data        []byte
	arrival     mono.Time // if it is not lost
	lost        bool      // to be retransmitted
	retransmits int       // so far
	dupAcks     int       // later segments that arrived since it was lost
	reset       bool      // resets the stream on arrival
}

const (
	// minRTO is the initial retransmission timeout; that of Linux.
	minRTO = 200 * time.Millisecond
	// maxBackoff is the maximum number of doublings of the timeout.
	maxBackoff = 8
	// dupAckThreshold is the number of duplicate ACKs that trigger a fast retransmit.
	dupAckThreshold = 3
	// fastRetransmitDelay is the time until the duplicate ACKs are received.
	fastRetransmitDelay = 10 * time.Microsecond
)

// unimpaired reports whether data can be passed on as it is: neither the port's cable nor the
// peer's has impairments or events, and no segment is queued.
func (s *stream) unimpaired() bool {
	for _, p := range []*streamPort{s.port, s.peerPort} {
		if p == nil { // the peer's address has no port
			continue
		}
		for dir := range p.pipes {
			if !p.pipes[dir].Transparent() || !p.matchers[dir].Empty() {
				return false
			}
		}
	}
	return len(s.queue) == 0
}

// Write implements link.StreamLink.
func (s *stream) Write(now mono.Time, b []byte) (int, error) {
	const more = false
	return s.Writev(now, [][]byte{b}, more)
}

// Writev implements link.StreamLink. It divides the data into segments, unless the stream is
// unimpaired or not connected yet: then the wrapped stream writes it.
func (s *stream) Writev(now mono.Time, bufs [][]byte, more bool) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.writeClosed:
		return 0, link.ErrWriteClosed
	case s.unimpaired() || !s.Connected(now):
		n, err := s.StreamLink.Writev(now, bufs, more)
		s.written += uint64(n)
		return n, err
	}
	// An empty write returns a pending error of the wrapped stream.
	if _, err := s.StreamLink.Write(now, nil); err != nil {
		return 0, err
	}
	data := slices.Concat(bufs...)
	for rest := data; len(rest) > 0; {
		part := rest[:min(len(rest), max(s.MSS(), 1))]
		rest = rest[len(part):]
		s.sendSegment(now, part)
	}
	s.deliver()
	return len(data), s.err
}

// sendSegment queues a new segment and sends it, unless an event drops it.
func (s *stream) sendSegment(now mono.Time, data []byte) {
	seg := &segment{data: data}
	s.queue = append(s.queue, seg)
	delay, dropped := s.applyEvents(seg)
	s.written += uint64(len(data))
	if dropped {
		s.markLost(now, seg)
		return
	}
	s.transmit(now, seg, delay)
}

// applyEvents applies the stream events of both ports to a new segment, which begins at the offset
// s.written of the stream. It returns the delay that they add, and whether one drops the segment.
func (s *stream) applyEvents(seg *segment) (delay time.Duration, dropped bool) {
	apply := func(p *streamPort, dir lab.Direction, connNumber int) {
		if p == nil {
			return
		}
		for _, e := range p.matchers[dir].Match(connNumber, s.written, len(seg.data)) {
			switch e.Do {
			case lab.StreamDrop:
				dropped = true
				p.drops[dir]++
			case lab.StreamDelay:
				delay += e.Delay
			case lab.StreamCorrupt:
				seg.data[e.Offset-s.written] ^= 1 << e.Bit
			case lab.StreamReset:
				seg.reset = true
			}
		}
	}
	apply(s.port, lab.Out, s.connNumber)
	apply(s.peerPort, lab.In, s.peerConnNumber)
	return delay, dropped
}

// transmit sends a segment, or retransmits a lost one: it applies the random impairments of
// both cables, and sets the segment's arrival or marks it as lost. delay is what events add.
func (s *stream) transmit(now mono.Time, seg *segment, delay time.Duration) {
	if seg.lost {
		seg.lost = false
		s.lostSegments--
	}
	for _, cable := range []struct {
		port *streamPort
		dir  lab.Direction
	}{{s.port, lab.Out}, {s.peerPort, lab.In}} {
		if cable.port == nil {
			continue
		}
		pipeDelay, ok := s.applyPipe(cable.port.pipes[cable.dir], now, seg)
		if !ok {
			s.markLost(now, seg)
			return
		}
		delay += pipeDelay
	}
	seg.arrival = now.Add(delay)
	s.countDupAcks(now, seg)
	if delay > 0 { // else the caller calls deliver
		s.port.world.AtFunc(seg.arrival, s.deliver)
	}
}

// applyPipe applies the impairments of one direction of a cable to a segment. Of several
// copies the first to arrive counts; truncated copies are lost. ok is false if none arrives.
func (s *stream) applyPipe(pipe *impair.Pipe, now mono.Time, seg *segment) (delay time.Duration, ok bool) {
	if pipe.Transparent() {
		return 0, true
	}
	d := link.Datagram{Src: s.LocalAddr(), Dst: s.RemoteAddr(), Payload: seg.data}
	s.outcomes = pipe.Apply(now, &d, s.outcomes[:0])
	first := -1
	for i := range s.outcomes {
		if len(s.outcomes[i].Datagram.Payload) == len(seg.data) && (first < 0 || s.outcomes[i].Delay < s.outcomes[first].Delay) {
			first = i
		}
	}
	if first < 0 {
		return 0, false
	}
	copy(seg.data, s.outcomes[first].Datagram.Payload)
	return s.outcomes[first].Delay, true
}

// markLost schedules the retransmission of a lost segment; its timeout doubles with every loss.
func (s *stream) markLost(now mono.Time, seg *segment) {
	seg.lost, seg.dupAcks = true, 0
	s.lostSegments++
	wait := minRTO << min(seg.retransmits, maxBackoff)
	seg.retransmits++
	s.retransmitAt(seg, now.Add(wait))
}

// retransmitAt retransmits a lost segment at the time at, unless another timer has done so earlier
// or the stream has failed. The scenario's events apply only to the first transmission of a segment,
// and do not delay this one.
func (s *stream) retransmitAt(seg *segment, at mono.Time) {
	retransmits := seg.retransmits
	s.port.world.AtFunc(at, func() {
		if seg.lost && seg.retransmits == retransmits && s.err == nil {
			s.transmit(s.port.world.Now(), seg, 0)
			s.deliver()
		}
	})
}

// countDupAcks adds a duplicate ACK, which a segment will cause when it arrives, to each lost
// segment before it in the queue. It schedules the fast retransmit of a segment that now has
// dupAckThreshold of them.
func (s *stream) countDupAcks(now mono.Time, arriving *segment) {
	remaining := s.lostSegments
	for _, seg := range s.queue {
		if remaining == 0 || seg == arriving {
			return
		}
		if seg.lost {
			remaining--
			if seg.dupAcks++; seg.dupAcks == dupAckThreshold {
				s.retransmitAt(seg, now.Add(fastRetransmitDelay))
			}
		}
	}
}

// deliver writes arrived segments to the wrapped stream, in order. A segment with reset aborts the
// stream. After the last segment, deliver closes the stream for writing if CloseWrite was called.
func (s *stream) deliver() {
	now := s.port.world.Now()
	for len(s.queue) > 0 {
		seg := s.queue[0]
		if seg.lost || now.Before(seg.arrival) || s.err != nil {
			return
		}
		if seg.reset {
			s.queue, s.err = nil, link.ErrReset
			_ = s.StreamLink.Abort(now)
			return
		}
		n, err := s.StreamLink.Write(now, seg.data)
		if err != nil {
			s.queue, s.err = nil, err
			return
		}
		if seg.data = seg.data[n:]; len(seg.data) > 0 {
			return // until Ready finds the stream writable
		}
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
	if s.writeClosed && s.err == nil {
		s.err = s.StreamLink.CloseWrite(now)
	}
}

// Read implements link.StreamLink.
func (s *stream) Read(now mono.Time, b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.StreamLink.Read(now, b)
}

// CloseWrite implements link.StreamLink. It takes effect after the queued segments.
func (s *stream) CloseWrite(now mono.Time) error {
	if len(s.queue) == 0 || s.err != nil {
		return s.StreamLink.CloseWrite(now)
	}
	s.writeClosed = true
	return nil
}

// Abort implements link.StreamLink.
func (s *stream) Abort(now mono.Time) error {
	s.queue = nil
	return s.StreamLink.Abort(now)
}
