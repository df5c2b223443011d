package perflab

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestSegmentsAreVerified(t *testing.T) {
	cfg := must.Get(RawUDPStreamConfig{SegmentBytes: 1000, AppBytes: 1500}.withDefaults())(t)
	s, o := newSegmentWriter(cfg), newSegmentReader(cfg)
	seg := make([]byte, 1000)
	for range 10 {
		s.write(seg)
		o.read(seg)
	}
	if o.res.Received != 10 || o.res.Bytes != 10000 || o.next != 10 || o.res.Corrupt != 0 {
		t.Errorf("opened %+v, next %d", o.res, o.next)
	}
	s.write(seg)
	for _, i := range []int{0, 500, 999} {
		seg[i] ^= 1
		o.read(seg)
		seg[i] ^= 1
	}
	o.read(seg[:999])
	o.read(nil)
	if o.res.Corrupt != 5 || o.res.Received != 10 {
		t.Errorf("3 flipped bits and 2 wrong lengths: %d corrupt, %d received", o.res.Corrupt, o.res.Received)
	}
	s.seq = probeSeq
	s.write(seg)
	if o.read(seg); o.res.Received != 10 || o.next != 10 {
		t.Error("a probe was counted")
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []RawUDPStreamConfig{
		{SegmentBytes: 11}, {SegmentBytes: 65508}, {BatchSegments: 1025}, {BatchSegments: -1}, {AppBytes: 100}, {WindowBytes: 4096},
	} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%+v passed", c)
		}
	}
	for _, c := range []RawUDPPingPongConfig{{Rounds: 1}, {Bytes: -1}, {Bytes: 65508}} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%+v passed", c)
		}
	}
	if c, err := (RawUDPStreamConfig{}).withDefaults(); err != nil || c.BatchSegments != 15 {
		t.Errorf("defaults: %d segments, %v; want 15 of 4 KiB", c.BatchSegments, err)
	}
}

func TestResults(t *testing.T) {
	r := RawUDPStreamResult{Elapsed: time.Second, Sent: 10, Received: 7, Corrupt: 1, Bytes: 1e9}
	if r.Gbps() != 8 || r.Lost() != 2 {
		t.Errorf("%v Gb/s, %d lost; want 8, 2", r.Gbps(), r.Lost())
	}
	p := RawUDPPingPongResult{blocks: []time.Duration{blockRounds * 2000, blockRounds * 4000, blockRounds * 60000}}
	if p.HalfMicros() != 2 {
		t.Errorf("half a round trip of %v µs, want 2", p.HalfMicros())
	}
}

func TestCompareCancelsDrift(t *testing.T) {
	drift := 1.0
	measure := func(v float64) func() (float64, error) {
		return func() (float64, error) { drift += 0.1; return v * drift, nil }
	}
	c, err := Compare(5, measure(10), measure(20))
	if err != nil || c.Ratio < 1.99 || c.Ratio > 2.01 {
		t.Errorf("%+v, %v; want ratio 2", c, err)
	}
	if c.Noise == 0 {
		t.Error("a base that drifts has noise")
	}
	broken := errors.New("broken")
	must.Fail(t, "error", must.Err(Compare(1, measure(1), func() (float64, error) { return 0, broken })), broken)
	if _, err := Compare(0, measure(1), measure(1)); err == nil {
		t.Error("compared nothing")
	}
}

func TestFlowContinuesAfterLoss(t *testing.T) {
	var f flow
	if base := f.waitForWindow(10, 0, 5); base != 10 {
		t.Errorf("after a stall base %d, want 10", base)
	}
	f.received.Store(7)
	if base := f.waitForWindow(10, 0, 5); base != 7 {
		t.Errorf("with room base %d, want 7", base)
	}
}
