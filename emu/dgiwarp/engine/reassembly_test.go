package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// Messages of any length arrive, segmented into packets of equal length that fit the MTU.
func TestUDSegmentsMessagesAtMTU(t *testing.T) {
	const payload = testMTU - 20 - 8 - wire.UDOverhead - untaggedHeader
	for _, n := range []int{0, 1, 100, payload - 1, payload, payload + 1, 2 * payload, 10_000, MaxUDSend} {
		w, a, b := pair(t, false)
		var packets []wire.Packet
		w.intercept = func(_ *link.Datagram, k *wire.Packet) bool { packets = append(packets, *k); return false }
		b.recv(1, 0, recvAt)
		want := bytes.Clone(a.fill(0, n, n))
		a.send(b, 2, n)
		w.run(time.Millisecond)
		a.expectSuccess(1)
		wc := b.expectSuccess(1)[0]
		if wc.ByteLen != uint32(n+verbs.GRHLen) || !bytes.Equal(b.bytes(recvAt+verbs.GRHLen, n), want) {
			t.Errorf("%d bytes: length %d, equal %v", n, wc.ByteLen, bytes.Equal(b.bytes(recvAt+verbs.GRHLen, n), want))
		}
		if count := max(1, (n+payload-1)/payload); len(packets) != count {
			t.Errorf("%d bytes in %d packets, want %d", n, len(packets), count)
		}
		mo := 0
		for i, k := range packets {
			var h ddp.Header
			body, _ := h.Parse(k.ULPDU)
			last := i == len(packets)-1
			if h.Control.Last != last || h.Untagged.MO != uint32(mo) || h.Untagged.MSN != 1 || !last && len(body) != payload {
				t.Errorf("%d bytes, packet %d: %+v with %d octets, want MO %d, last %v", n, i, h, len(body), mo, last)
			}
			mo += len(body)
		}
	}
}

// A lost message does not affect the next, whatever its MSN.
func TestUDLossAffectsOneMessage(t *testing.T) {
	w, a, b := pair(t, false)
	n := 0
	w.intercept = func(*link.Datagram, *wire.Packet) bool { n++; return n%2 == 0 }
	for i := range 20 {
		b.recv(uint64(i), 100*i, 100)
		a.send(b, uint64(i), 10)
	}
	w.run(time.Millisecond)
	a.expectSuccess(20)
	b.expectSuccess(10)
}

// Segments arrive in any order, some twice, from several sources at once.
func TestUDReassemblesReorderedAndDuplicateSegments(t *testing.T) {
	w := newNetwork(t)
	b := w.host().newQP(false)
	w.latePercent = 60
	var sources []*testQP
	for range 3 {
		sources = append(sources, w.host().newQP(false))
	}
	w.intercept = func(d *link.Datagram, _ *wire.Packet) bool {
		if w.rng.IntN(3) == 0 { // a second copy
			w.inFlight = append(w.inFlight, delivery{w.now.Add(time.Duration(1+w.rng.IntN(50)) * time.Microsecond), *d})
			w.inFlight[len(w.inFlight)-1].d.Payload = bytes.Clone(d.Payload)
			sortInFlight(w)
		}
		return false
	}
	total := 0
	for round := range 20 {
		for i, s := range sources {
			n := 3000 + 1000*i + 13*round
			s.fill(0, n, n)
			b.recv(uint64(total), 10_000*i, 10_000)
			s.send(b, 1, n)
			total++
		}
		w.run(time.Millisecond)
		for _, wc := range b.expectSuccess(len(sources)) {
			n := int(wc.ByteLen) - verbs.GRHLen
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(n + i*7 + i>>8)
			}
			if !bytes.Equal(b.bytes(recvAt+10_000*int(wc.WRID%3)+verbs.GRHLen, n), want) {
				t.Fatalf("round %d: message of %d bytes differs", round, n)
			}
		}
		for _, s := range sources {
			s.expectSuccess(1)
		}
		w.run(200 * time.Millisecond) // duplicate segments may have started new messages, which expire
	}
	if len(b.h.nic.messages.open) != 0 {
		t.Errorf("%d messages are open", len(b.h.nic.messages.open))
	}
}

func sortInFlight(w *network) {
	for i := len(w.inFlight) - 1; i > 0 && w.inFlight[i].at < w.inFlight[i-1].at; i-- {
		w.inFlight[i], w.inFlight[i-1] = w.inFlight[i-1], w.inFlight[i]
	}
}

// segmentOf returns a segment of a message of one source.
func segmentOf(mo uint32, n int, last bool, op ddp.Opcode) *inbound {
	h := &ddp.Header{Control: ddp.NewControl(op, last), Untagged: ddp.Untagged{MSN: 1, MO: mo}}
	return &inbound{from: &source{qp: 1}, header: h, body: make([]byte, n)}
}

func TestUDSegmentBeyondMaxMessageIsError(t *testing.T) {
	for _, mo := range []uint32{MaxUDSend - 9, MaxUDSend, MaxUDSend + 1, 1<<32 - 10, 1<<32 - 1} {
		_, _, b := pair(t, false, isolated)
		b.receiveSegment(segmentOf(mo, 10, false, ddp.OpSend))
		if n := b.h.nic; n.Count.ErrorsFound != 1 || len(n.messages.open) != 0 {
			t.Errorf("MO %d: %d errors, %d open", mo, n.Count.ErrorsFound, len(n.messages.open))
		}
	}
	_, _, b := pair(t, false, isolated)
	if b.receiveSegment(segmentOf(MaxUDSend-10, 10, false, ddp.OpSend)); b.h.nic.Count.ErrorsFound != 0 || len(b.h.nic.messages.open) != 1 {
		t.Error("the last octets of the longest message were refused")
	}
}

func TestUDContradictorySegmentsDropMessage(t *testing.T) {
	for _, tc := range []struct {
		name string
		segs []*inbound
	}{
		{"two ends", []*inbound{segmentOf(1000, 10, true, ddp.OpSend), segmentOf(2000, 10, true, ddp.OpSend)}},
		{"beyond the end", []*inbound{segmentOf(1000, 10, true, ddp.OpSend), segmentOf(1005, 10, false, ddp.OpSend)}},
		{"end before a received segment", []*inbound{segmentOf(2000, 10, false, ddp.OpSend), segmentOf(1000, 10, true, ddp.OpSend)}},
		{"another opcode", []*inbound{segmentOf(1000, 10, false, ddp.OpSend), segmentOf(0, 10, false, ddp.OpSendSE)}},
	} {
		_, _, b := pair(t, false)
		for _, s := range tc.segs {
			b.receiveSegment(s)
		}
		if n := b.h.nic; n.Count.DropSegment != 1 || len(n.messages.open) != 0 {
			t.Errorf("%s: %d dropped, %d open", tc.name, n.Count.DropSegment, len(n.messages.open))
		}
	}
}

func TestUDIncompleteMessageConsumesNoReceive(t *testing.T) {
	w, a, b := pair(t, false)
	w.intercept = func(_ *link.Datagram, k *wire.Packet) bool { return k.ULPDU[0]&lastFlag != 0 && len(k.ULPDU) > 100 }
	b.recv(1, 0, 10_000)
	for range 10 {
		a.send(b, 1, 5000)
	}
	w.run(time.Millisecond)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	if wc := b.expectSuccess(1)[0]; wc.ByteLen != 50 {
		t.Errorf("%+v", wc)
	}
}

func TestUDReassemblyIsBounded(t *testing.T) {
	w := newNetwork(t)
	a, b := w.host().newQP(false), w.host(func(c *Config) { c.Messages = 4 }).newQP(false)
	w.intercept = func(_ *link.Datagram, k *wire.Packet) bool { return k.ULPDU[0]&lastFlag != 0 }
	for range 10 {
		a.send(b, 1, 5000)
	}
	w.run(50 * time.Millisecond)
	n := b.h.nic
	if len(n.messages.open) != 4 || n.Count.DropExpired != 6 {
		t.Errorf("%d open, %d expired", len(n.messages.open), n.Count.DropExpired)
	}
	w.run(51 * time.Millisecond)
	if len(n.messages.open) != 0 || n.Count.DropExpired != 10 || n.Deadline() <= w.now {
		t.Errorf("%d open after 101 ms, %d dropped, deadline %v", len(n.messages.open), n.Count.DropExpired, n.Deadline())
	}
	if len(n.messages.free) > 4 {
		t.Errorf("%d buffers kept", len(n.messages.free))
	}
}
