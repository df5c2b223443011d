package conformance

import (
	"net/netip"
	"testing"
	"time"
)

// byHand is a TCP whose only stream takes everything.
type byHand struct {
	Segments
	Segmented
	shape TCPShape
	held  []byte
	parts [][2]int
}

func (t *byHand) Dial(netip.AddrPort, time.Duration) (Stream, error) { return t, nil }
func (t *byHand) Shape(s TCPShape)                                   { t.shape = s }
func (t *byHand) Local() netip.AddrPort                              { return netip.MustParseAddrPort("10.0.0.1:1") }

func (t *byHand) Remote() netip.AddrPort { return netip.MustParseAddrPort("10.0.0.2:2") }
func (t *byHand) Write([]byte) error     { return nil }

func (t *byHand) Hold(b []byte) error {
	t.held = b
	return nil
}

func (t *byHand) Release(from, to int) error {
	t.parts = append(t.parts, [2]int{from, to})
	return nil
}

func (t *byHand) ReleaseEnd(from int) error { return t.Release(from, len(t.held)) }

// What is said over a TCP by hand is in the record, and the case gets at its segments all
// the same.
func TestSegmentsAreRecordedAndPassedOn(t *testing.T) {
	under, r := new(byHand), new(Record)
	tcp := r.RecordedSegments(&testClock{}, under)
	tcp.Shape(TCPShape{MSS: 536})
	s, err := tcp.Dial(netip.AddrPort{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	by, ok := s.(Segmented)
	if !ok {
		t.Fatalf("%T has no segments", s)
	}
	if by.Write([]byte("one")) != nil || by.Hold([]byte("two")) != nil || by.Release(1, 3) != nil || by.Release(0, 1) != nil {
		t.Error("refused")
	}
	if by.ReleaseEnd(2) != nil {
		t.Error("refused to end")
	}
	if under.shape.MSS != 536 || string(under.held) != "two" || len(under.parts) != 3 || under.parts[0] != [2]int{1, 3} {
		t.Errorf("%+v", under)
	}
	events, _ := r.Events()
	if len(events) != 3 || events[2].Kind != EventSentEnd || string(events[0].Data) != "one" || string(events[1].Data) != "two" || !r.Ends(1).InPackets {
		t.Errorf("%+v, %+v", events, r.Ends(1))
	}
}
