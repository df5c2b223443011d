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

func TestFullRecordCountsLaterEvents(t *testing.T) {
	clock := &testClock{}
	var r Record
	b := &Bench{Runtime: noteClock{clock}, Record: &r}
	for i := range maxEvents + 2 {
		b.Note("%d", i)
	}
	events, dropped := r.Events()
	if len(events) != maxEvents || events[maxEvents-1].Text != "19999" || dropped != 2 {
		t.Errorf("%d events and %d dropped, want %d and 2", len(events), dropped, maxEvents)
	}
	r.Clear()
	b.Note("again")
	if events, dropped := r.Events(); len(events) != 1 || dropped != 0 {
		t.Errorf("after Clear: %d events and %d dropped, want 1 and 0", len(events), dropped)
	}
}

// noteClock is the runtime of a bench on which only the time is needed.
type noteClock struct{ *testClock }

func (noteClock) Go(string, func() error) Task { panic("noteClock has no tasks") }

// slowPort is a device that takes longer to query its port the second time.
type slowPort struct {
	verbs.Context
	clock *testClock
	calls int
}

func (d *slowPort) QueryPort(uint8) (verbs.PortAttr, error) {
	d.calls++
	d.clock.now += []time.Duration{time.Millisecond, 200 * time.Millisecond, 2 * time.Millisecond, 0}[d.calls-1]
	return verbs.PortAttr{}, nil
}

func TestTimeoutsFollowLongestCall(t *testing.T) {
	clock := &testClock{now: time.Hour}
	b := &Bench{Runtime: noteClock{clock}, Device: &slowPort{clock: clock}}
	if got := b.ResponseTimeout(); got != 3*time.Second {
		t.Errorf("response timeout %v before a call was measured, want 3s", got)
	}
	b.measureCalls()
	if b.CallTime != 200*time.Millisecond || b.ReactionTime() != 1600*time.Millisecond || b.ResponseTimeout() != 20*time.Second {
		t.Errorf("call %v, reaction %v, response %v; want 200ms, 1.6s, 20s", b.CallTime, b.ReactionTime(), b.ResponseTimeout())
	}
	b.Virtual = true
	if got := b.ResponseTimeout(); got != time.Minute {
		t.Errorf("response timeout %v in virtual time, want 1m", got)
	}
}
