package carrier

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestSeqBeforeWraps(t *testing.T) {
	for _, c := range []struct {
		a, b uint32
		want bool
	}{{1, 2, true}, {2, 1, false}, {3, 3, false}, {math.MaxUint32, 0, true}, {5, math.MaxUint32 - 5, false}} {
		if got := seqBefore(c.a, c.b); got != c.want {
			t.Errorf("seqBefore(%d, %d) = %v", c.a, c.b, got)
		}
	}
}

func TestReceiverOrdersPackets(t *testing.T) {
	for _, c := range []struct {
		name      string
		arrive    []uint32
		delivered []uint32
		orders    []arrivalOrder
	}{
		{"in order", []uint32{1, 2, 3}, []uint32{1, 2, 3}, []arrivalOrder{inOrder, inOrder, inOrder}},
		{"swapped", []uint32{2, 3, 1, 4}, []uint32{1, 2, 3, 4}, []arrivalOrder{tooSoon, tooSoon, inOrder, inOrder}},
		{"duplicates", []uint32{1, 1, 3, 3, 2, 3}, []uint32{1, 2, 3}, []arrivalOrder{inOrder, duplicate, tooSoon, tooSoon, inOrder, duplicate}},
		{"far ahead", []uint32{2 + maxEarly, 1 + maxEarly, 1}, []uint32{1}, []arrivalOrder{tooFarAhead, tooSoon, inOrder}},
		{"old", []uint32{0, math.MaxUint32, 1}, []uint32{1}, []arrivalOrder{duplicate, duplicate, inOrder}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := packetReceiver[uint32]{next: 1}
			var got []uint32
			var orders []arrivalOrder
			for _, seq := range c.arrive {
				o := r.Classify(seq)
				orders = append(orders, o)
				switch o {
				case inOrder:
					got = append(got, seq)
					for next, ok := r.Take(); ok; next, ok = r.Take() {
						got = append(got, next)
					}
				case tooSoon:
					before := len(r.early)
					if added := r.Buffer(seq, seq); added != (len(r.early) > before) {
						t.Errorf("packet %d: Buffer returned %v with %d buffered", seq, added, len(r.early))
					}
				}
			}
			if !slices.Equal(got, c.delivered) || !slices.Equal(orders, c.orders) {
				t.Errorf("delivered %v with orders %v, want %v with %v", got, orders, c.delivered, c.orders)
			}
			if last := c.delivered[len(c.delivered)-1]; r.next != last+1 {
				t.Errorf("acknowledges all before %d after packet %d", r.next, last)
			}
		})
	}
}

func TestSenderKeepsPacketsUntilAcknowledged(t *testing.T) {
	s := packetSender{timeout: time.Millisecond, next: math.MaxUint32 - 1} // the sequence numbers wrap
	var sent []*packet
	for range 4 {
		sent = append(sent, &packet{seq: s.NextSeq()})
		s.unacked = append(s.unacked, sent[len(sent)-1])
	}
	for _, c := range []struct {
		ack  uint32
		want []*packet
	}{{sent[0].seq, nil}, {sent[2].seq, sent[:2]}, {sent[1].seq, nil}, {sent[3].seq + 1, sent[2:]}} {
		if got := s.Acknowledge(c.ack); !slices.Equal(got, c.want) {
			t.Errorf("acknowledgement %d: %v, want %v", c.ack, got, c.want)
		}
	}
	if len(s.unacked) != 0 || s.StartTimer(1) || s.expiry != 0 {
		t.Errorf("%v are unacknowledged, and the timer expires at %v", s.unacked, s.expiry)
	}
}

func TestRetransmissionTimeoutDoubles(t *testing.T) {
	const first = 300 * time.Millisecond
	s := packetSender{timeout: first, next: 1}
	s.unacked = append(s.unacked, &packet{seq: s.NextSeq()})
	if !s.StartTimer(1) || s.StartTimer(5) || s.expiry != 1+first {
		t.Fatalf("the timer expires at %v", s.expiry)
	}
	silent := time.Duration(0)
	for i, want := range []time.Duration{600 * time.Millisecond, time.Second, time.Second} {
		transmitted := i != 1 // a packet that was not transmitted does not count as silence
		if transmitted {
			silent += s.retransmitTimeout()
		}
		if n, d := s.CountExpiry(transmitted); n != i+1 || d != silent {
			t.Errorf("expiry %d: %d, silent for %v, want %v", i+1, n, d, silent)
		}
		if d := s.retransmitTimeout(); d != want {
			t.Errorf("after expiry %d the timeout is %v, want %v", i+1, d, want)
		}
	}
	s.unacked = append(s.unacked, &packet{seq: s.NextSeq()})
	s.Acknowledge(2)
	if !s.StartTimer(7) || s.expiry != 7+first {
		t.Errorf("after an acknowledgement the timer expires at %v", s.expiry)
	}
	if unacked := s.Stop(); len(unacked) != 1 || unacked[0].seq != 2 || s.expiry != 0 {
		t.Errorf("%v are unacknowledged, and the timer expires at %v", unacked, s.expiry)
	}
}

func TestAckIsDueAfterPacketsOrDelay(t *testing.T) {
	a := ackTimer{Every: 3, Delay: 100}
	for i, want := range []time.Duration{101, 101, 3} { // delayed, then at once
		if a.Received(time.Duration(i + 1)); a.expiry != want {
			t.Errorf("after packet %d an acknowledgement is due at %v, want %v", i+1, a.expiry, want)
		}
	}
	if a.Acknowledged(); a.expiry != 0 {
		t.Error("an acknowledgement is due after one was sent")
	}
	if a.Received(50); a.expiry != 150 {
		t.Errorf("an acknowledgement is due at %v, want 150", a.expiry)
	}
}
