package conformance

import (
	"errors"
	"io"
	"net/netip"
	"reflect"
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

// script is a Wire, and Streams with one stream, whose results are those of a list.
type script struct {
	Wire
	Stream
	results []error
}

func (s *script) next() error {
	err := s.results[0]
	s.results = s.results[1:]
	return err
}

func (s *script) Recv(time.Duration) (Frame, error) {
	return Frame{At: time.Second, Packet: []byte{7}}, s.next()
}

func (s *script) Dial(netip.AddrPort, time.Duration) (Stream, error) { return s, s.next() }
func (s *script) Listen(uint16) (Listener, error)                    { return s, s.next() }
func (s *script) Accept(time.Duration) (Stream, error)               { return s, s.next() }
func (s *script) Addr() netip.AddrPort                               { return netip.AddrPort{} }
func (s *script) Close() error                                       { return nil }
func (s *script) Local() netip.AddrPort                              { return netip.MustParseAddrPort("10.0.0.1:1") }

func (s *script) Remote() netip.AddrPort             { return netip.MustParseAddrPort("10.0.0.2:2") }
func (s *script) Read(time.Duration) ([]byte, error) { return []byte{8}, s.next() }
func (s *script) CloseWrite() error                  { return s.next() }
func (s *script) Reset() error                       { return s.next() }

// The record has what was received, and no event for a call that failed.
func TestRecordHasReceivedData(t *testing.T) {
	var r Record
	failed := errors.New("failed")
	w := r.RecordWire(&testClock{}, &script{results: []error{nil, verbs.ErrTimeout}})
	_, _ = w.Recv(0)
	if _, err := w.Recv(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("%v, want a timeout", err)
	}
	peer := &script{results: []error{failed, failed, nil, failed, nil, nil, io.EOF, verbs.ErrTimeout, ErrReset, verbs.ErrTimeout, nil, nil}}
	streams := r.RecordStreams(&testClock{}, peer)
	if _, err := streams.Dial(netip.AddrPort{}, 0); !errors.Is(err, failed) {
		t.Errorf("dial: %v", err)
	}
	if _, err := streams.Listen(1); !errors.Is(err, failed) {
		t.Errorf("listen: %v", err)
	}
	l := must.Get(streams.Listen(1))(t)
	if _, err := l.Accept(0); !errors.Is(err, failed) {
		t.Errorf("accept: %v", err)
	}
	s := must.Get(l.Accept(0))(t)
	for range 5 {
		_, _ = s.Read(0)
	}
	must.Do(t, s.CloseWrite())
	must.Do(t, s.Reset())
	want := []Event{
		{At: time.Second, Kind: EventReceived, Data: []byte{7}},
		{Kind: EventReceived, Stream: 1, Data: []byte{8}},
		{Kind: EventReceivedFIN, Stream: 1},
		{Kind: EventReset, Stream: 1},
		{Kind: EventSentFIN, Stream: 1},
		{Kind: EventReset, Stream: 1},
	}
	if events, _ := r.Events(); !reflect.DeepEqual(events, want) {
		t.Errorf("%+v, want %+v", events, want)
	}
	second := r.RecordRawTCP(&testClock{}, &fakeRawTCP{})
	_ = must.Get(second.Dial(netip.AddrPort{}, 0))(t)
	if r.Stream(1).InPackets || !r.Stream(2).InPackets || r.Stream(1).Device.Port() != 2 {
		t.Errorf("streams %+v and %+v", r.Stream(1), r.Stream(2))
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

func (d *slowPort) QueryPort(port uint8) (verbs.PortAttr, error) {
	if d.calls++; port != 1 {
		return verbs.PortAttr{}, verbs.ErrInvalid
	}
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
