package conformance

import (
	"testing"
	"time"

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
	if err := r.RecordWire(clock, slowWire{clock: clock}).Send([]byte{1, 2}); err != nil {
		t.Fatal(err)
	}
	events, _ := r.Events()
	if len(events) != 1 || events[0].Kind != EventSent || events[0].At != time.Minute || len(events[0].Data) != 2 {
		t.Errorf("recorded as %+v, want two bytes sent at 1m0s", events)
	}
}
