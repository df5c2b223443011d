package capture

import "testing"

// A segment half of all sequence numbers away is neither ahead nor behind; it counts
// as old. (Found by FuzzPackets: it was cut at a place before its beginning.)
func TestSegmentHalfTheNumbersAwayIsOld(t *testing.T) {
	var s Stream
	h, back := &half{begun: true, next: 5}, new(half)
	s.segment(h, back, segment{seq: 5 + 1<<31, data: []byte("data")})
	if len(s.p.Marks) != 1 || s.p.Marks[0].Kind != MarkRetransmission || h.next != 5 || len(h.held) != 0 {
		t.Errorf("marks %v, next %d, %d held", s.p.Marks, h.next, len(h.held))
	}
}
