package perflab

import (
	"testing"
	"time"
)

func TestSegmentsAreVerified(t *testing.T) {
	cfg := RawStreamConfig{Bytes: 1000, CopyAndCRC: true}
	s, o := newSegmentWriter(cfg), newSegmentReader(cfg)
	s.app, o.app = s.app[:1500], o.app[:1500]
	seg := make([]byte, 1000)
	for range 10 {
		s.write(seg)
		o.read(seg)
	}
	if o.result.Received != 10 || o.result.Bytes != 10000 || o.next != 10 || o.result.Corrupt != 0 {
		t.Errorf("opened %+v, next %d", o.result, o.next)
	}
	s.write(seg)
	for _, i := range []int{0, 500, 999} {
		seg[i] ^= 1
		o.read(seg)
		seg[i] ^= 1
	}
	o.read(seg[:999])
	o.read(nil)
	if o.result.Corrupt != 5 || o.result.Received != 10 {
		t.Errorf("3 flipped bits and 2 wrong lengths: %d corrupt, %d received", o.result.Corrupt, o.result.Received)
	}
	s.seq = firstProbeSeq
	s.write(seg)
	if o.read(seg); o.result.Received != 10 || o.next != 10 {
		t.Error("a probe was counted")
	}
}

func TestBatchFillsSuperPacket(t *testing.T) {
	if n := batchSegments(4096); n != 15 {
		t.Errorf("a batch has %d segments of 4 KiB, want 15", n)
	}
}

func TestGoodput(t *testing.T) {
	if r := (RawUDPStreamResult{Elapsed: time.Second, Bytes: 1e9}); r.Gbps() != 8 {
		t.Errorf("%v Gb/s; want 8", r.Gbps())
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
