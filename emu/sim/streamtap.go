package sim

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamTap sees the segments of streams: as they are put on the wire at a port,
// and as they arrive at one. The segment is valid during the call. That bytes
// have arrived is told by the segments that go the other way; there are none for
// that alone.
type StreamTap func(now mono.Time, p *Port, dir Direction, s *link.Segment)

// SetStreamTap shows every segment to t from now on; nil ends it.
func (n *Net) SetStreamTap(t StreamTap) { n.streamTap = t }

var segmentFlags = [...]link.SegmentFlags{
	segmentData:   link.ACK,
	segmentSyn:    link.SYN,
	segmentAccept: link.SYN | link.ACK,
	segmentFin:    link.FIN | link.ACK,
	segmentReset:  link.RST | link.ACK,
}

// nextSeq is the number of what s sends next.
func (s *Stream) nextSeq(kind segmentKind) uint64 {
	switch {
	case kind == segmentSyn || kind == segmentAccept:
		return 0
	case kind != segmentFin && s.finSent:
		return s.written + 2
	}
	return s.written + 1
}

// took counts what s has got with seg.
func (s *Stream) took(seg *segment) {
	if seg.reset {
		return
	}
	s.net.tapSegment(s.port, In, seg)
	s.rcvd = seg.seq + uint64(len(seg.data))
	if seg.kind == segmentAccept || seg.kind == segmentFin {
		s.rcvd++
	}
}

// tapSegment shows a segment that passes p.
func (n *Net) tapSegment(p *Port, dir Direction, seg *segment) {
	if n.streamTap == nil || p == nil {
		return
	}
	flags := segmentFlags[seg.kind]
	if seg.push {
		flags |= link.PSH
	}
	from := seg.from
	n.streamTap(n.w.now, p, dir, &link.Segment{
		Src: from.local, Dst: from.remote, Seq: seg.seq, Ack: seg.ack, Flags: flags, Payload: seg.data,
	})
}

// tapAnswer shows the reset that s is answered with where there is no stream, at
// the port that it passes; nil if that is gone.
func (s *Stream) tapAnswer(dir Direction, p *Port) {
	if s.net.streamTap == nil || p == nil {
		return
	}
	s.net.streamTap(s.net.w.now, p, dir, &link.Segment{
		Src: s.remote, Dst: s.local, Seq: s.rcvd, Ack: s.nextSeq(segmentData), Flags: link.RST | link.ACK,
	})
}
