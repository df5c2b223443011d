package iwarp

import "testing"

// A real network may reorder the packets of two messages.
func TestReorderedSegmentsMakeAMessage(t *testing.T) {
	payload := make([]byte, 100)
	segment := func(msn uint32, at int, last bool) Packet {
		return UD(Send(msn, payload).MO(uint32(at)).Last(last))
	}
	write := func(at uint64, last bool) Packet { return UD(Write(1, 0x1000+at, payload).Last(last)) }
	m := PartialMessages[Packet]{WriteTO: 0x1000}
	for _, p := range []Packet{segment(1, 200, true), segment(2, 100, true), write(100, true), segment(1, 0, false)} {
		if got := m.Add(p); got != nil {
			t.Fatalf("%d segments before the message is complete", len(got))
		}
	}
	for msn, p := range map[uint32]Packet{0: write(0, false), 1: segment(1, 100, false), 2: segment(2, 0, false)} {
		all := m.Add(p)
		for i, s := range all {
			if Val(s.Segment.DDP.MSN) != msn || m.offset(s) != uint64(100*i) {
				t.Errorf("segment %d: MSN %d, offset %d", i, Val(s.Segment.DDP.MSN), m.offset(s))
			}
		}
		if want := map[uint32]int{0: 2, 1: 3, 2: 2}[msn]; len(all) != want {
			t.Errorf("message %d has %d segments, want %d", msn, len(all), want)
		}
	}
	if len(m.byMSN) != 0 {
		t.Errorf("%d messages remain", len(m.byMSN))
	}
}
