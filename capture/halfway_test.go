package capture

import "testing"

// A segment 2^31 octets away counts as retransmitted. FuzzPackets found that it was
// trimmed at a negative offset.
func TestSegmentHalfSequenceSpaceAwayIsRetransmission(t *testing.T) {
	var s Stream
	h, back := &tcpDirection{started: true, next: 5}, new(tcpDirection)
	s.handleSegment(h, back, segment{seq: 5 + 1<<31, data: []byte("data")})
	if len(s.p.Marks) != 1 || s.p.Marks[0].Kind != MarkRetransmission || h.next != 5 || len(h.outOfOrder) != 0 {
		t.Errorf("marks %v, next %d, %d held", s.p.Marks, h.next, len(h.outOfOrder))
	}
}
