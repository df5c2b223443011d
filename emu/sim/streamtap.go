package sim

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamTap observes the segments of streams as they are sent and as they
// arrive. The segment is valid during the call. There are no pure ACKs:
// segments of the other direction acknowledge.
type StreamTap func(now mono.Time, p *Port, dir Direction, s *link.Segment)

// SetStreamTap replaces the StreamTap; nil removes it.
func (n *Net) SetStreamTap(t StreamTap) { n.streamTap = t }

var segmentFlags = [...]link.SegmentFlags{
	segmentData:   link.ACK,
	segmentSyn:    link.SYN,
	segmentAccept: link.SYN | link.ACK,
	segmentFin:    link.FIN | link.ACK,
	segmentReset:  link.RST | link.ACK,
}

// nextSeq returns the sequence number of the next segment of s.
func (s *Stream) nextSeq(kind segmentKind) uint64 {
	switch {
	case kind == segmentSyn || kind == segmentAccept:
		return 0
	case kind != segmentFin && s.finSent:
		return s.written + 2
	}
	return s.written + 1
}

// countReceived advances RCV.NXT past seg.
func (s *Stream) countReceived(seg *segment) {
	if seg.reset {
		return
	}
	s.net.tapSegment(s.port, In, seg)
	s.rcvNxt = seg.seq + uint64(len(seg.data))
	if seg.kind == segmentAccept || seg.kind == segmentFin {
		s.rcvNxt++
	}
}

// tapSegment shows seg to the StreamTap.
func (n *Net) tapSegment(p *Port, dir Direction, seg *segment) {
	if n.streamTap == nil || p == nil {
		return
	}
	flags := segmentFlags[seg.kind]
	if seg.push {
		flags |= link.PSH
	}
	from := seg.sender
	n.streamTap(n.w.now, p, dir, &link.Segment{
		Src: from.local, Dst: from.remote, Seq: seg.seq, Ack: seg.ack, Flags: flags, Payload: seg.data,
	})
}

// tapReset shows the RST that answers s where there is no peer, at port p,
// which may be nil.
func (s *Stream) tapReset(dir Direction, p *Port) {
	if s.net.streamTap == nil || p == nil {
		return
	}
	s.net.streamTap(s.net.w.now, p, dir, &link.Segment{
		Src: s.remote, Dst: s.local, Seq: s.rcvNxt, Ack: s.nextSeq(segmentData), Flags: link.RST | link.ACK,
	})
}
