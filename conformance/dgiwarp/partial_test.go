package dgiwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// A real network may reorder the packets of two messages.
func TestReorderedSegmentsMakeAMessage(t *testing.T) {
	segment := func(msn uint32, at int, last bool) arrival {
		s := iwarp.Send(msn, data(100)).MO(uint32(at)).Last(last)
		return arrival{ReceivedPacket: iwarp.ReceivedPacket{Packet: iwarp.UD(s)}}
	}
	m := partialMessages{}
	for _, a := range []arrival{segment(1, 200, true), segment(2, 100, true), segment(1, 0, false)} {
		if got := m.add(a); got != nil {
			t.Fatalf("%d segments before the message is complete", len(got))
		}
	}
	for msn, a := range map[uint32]arrival{1: segment(1, 100, false), 2: segment(2, 0, false)} {
		all := m.add(a)
		for i, s := range all {
			if iwarp.Val(s.Segment.DDP.MSN) != msn || messageOffset(s) != uint64(100*i) {
				t.Errorf("segment %d: MSN %d, offset %d", i, iwarp.Val(s.Segment.DDP.MSN), messageOffset(s))
			}
		}
		if len(all) != 4-int(msn) {
			t.Errorf("message %d has %d segments", msn, len(all))
		}
	}
	if len(m) != 0 {
		t.Errorf("%d messages remain", len(m))
	}
}
