package conformance

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// slowWire takes a second to send.
type slowWire struct {
	Wire
	clock *testClock
}

func (w slowWire) Send([]byte) error { w.clock.now += time.Second; return nil }

type testClock struct {
	verbs.Proc
	now time.Duration
}

func (c *testClock) Now() time.Duration { return c.now }

func TestSentPacketIsRecordedWithTimeBeforeSend(t *testing.T) {
	var r Record
	clock := &testClock{now: time.Minute}
	must.Do(t, r.RecordWire(clock, slowWire{clock: clock}).Send([]byte{1, 2}))
	events, _ := r.Events()
	if len(events) != 1 || events[0].Kind != EventSent || events[0].At != time.Minute || len(events[0].Data) != 2 {
		t.Errorf("recorded as %+v, want two bytes sent at 1m0s", events)
	}
}

// fakeRawTCP is a RawTCP and its only stream.
type fakeRawTCP struct {
	RawTCP
	RawStream
	options TCPOptions
	held    []byte
	parts   [][2]int
}

func (t *fakeRawTCP) Dial(netip.AddrPort, time.Duration) (Stream, error) { return t, nil }
func (t *fakeRawTCP) SetOptions(s TCPOptions)                            { t.options = s }
func (t *fakeRawTCP) Local() netip.AddrPort                              { return netip.MustParseAddrPort("10.0.0.1:1") }

func (t *fakeRawTCP) Remote() netip.AddrPort { return netip.MustParseAddrPort("10.0.0.2:2") }
func (t *fakeRawTCP) Write([]byte) error     { return nil }

func (t *fakeRawTCP) Hold(b []byte) error {
	t.held = b
	return nil
}

func (t *fakeRawTCP) SendHeld(from, to int) error {
	t.parts = append(t.parts, [2]int{from, to})
	return nil
}

func (t *fakeRawTCP) SendHeldFIN(from int) error { return t.SendHeld(from, len(t.held)) }

// A recorded stream records its data and still implements RawStream.
func TestRecordRawTCPRecordsAndForwards(t *testing.T) {
	under, r := new(fakeRawTCP), new(Record)
	tcp := r.RecordRawTCP(&testClock{}, under)
	tcp.SetOptions(TCPOptions{MSS: 536})
	s := must.Get(tcp.Dial(netip.AddrPort{}, 0))(t)
	raw, ok := s.(RawStream)
	if !ok {
		t.Fatalf("%T is no RawStream", s)
	}
	if raw.Write([]byte("one")) != nil || raw.Hold([]byte("two")) != nil || raw.SendHeld(1, 3) != nil || raw.SendHeld(0, 1) != nil {
		t.Error("send failed")
	}
	if raw.SendHeldFIN(2) != nil {
		t.Error("FIN failed")
	}
	if under.options.MSS != 536 || string(under.held) != "two" || len(under.parts) != 3 || under.parts[0] != [2]int{1, 3} {
		t.Errorf("%+v", under)
	}
	events, _ := r.Events()
	if len(events) != 3 || events[2].Kind != EventSentFIN || string(events[0].Data) != "one" || string(events[1].Data) != "two" || !r.Stream(1).InPackets {
		t.Errorf("%+v, %+v", events, r.Stream(1))
	}
}
