package carrier

import (
	"slices"
	"time"
)

// seqBefore reports whether sequence number a is before b. Sequence numbers wrap.
func seqBefore(a, b uint32) bool { return int32(a-b) < 0 }

// The types of this file make packets between two ranks arrive once and in order. Every
// packet acknowledges all packets that were received before it. A packet with an
// acknowledgement alone follows after a number of packets or a delay. The sender retransmits
// packets that are not acknowledged in time.

// packetSender numbers the packets to a peer, and keeps them until the peer has acknowledged them.
type packetSender struct {
	timeout     time.Duration // first retransmission timeout
	next        uint32        // sequence number; 1 at first
	unacked     []*packet     // in sequence
	acked       []*packet     // result of Acknowledge
	retransmits int           // since the last acknowledgement
	unackedFor  time.Duration // sum of timeouts since the last acknowledgement
	expiry      time.Duration // 0 if the timer does not run
}

// NextSeq returns the sequence number of the next packet.
func (s *packetSender) NextSeq() uint32 {
	s.next++
	return s.next - 1
}

// Acknowledge removes and returns the packets with sequence numbers before ack, and stops the timer
// if there are any. The result is valid until the next call.
func (s *packetSender) Acknowledge(ack uint32) []*packet {
	n := 0
	for n < len(s.unacked) && seqBefore(s.unacked[n].seq, ack) {
		n++
	}
	if n == 0 {
		return nil
	}
	s.acked = append(s.acked[:0], s.unacked[:n]...)
	s.unacked = slices.Delete(s.unacked, 0, n)
	s.retransmits, s.unackedFor, s.expiry = 0, 0, 0
	return s.acked
}

// StartTimer starts the retransmission timer, unless it runs or all packets are
// acknowledged. It reports whether it did.
func (s *packetSender) StartTimer(now time.Duration) bool {
	if s.expiry != 0 || len(s.unacked) == 0 {
		return false
	}
	s.expiry = now + s.retransmitTimeout()
	return true
}

// retransmitTimeout doubles with every retransmission, up to a second.
func (s *packetSender) retransmitTimeout() time.Duration {
	const maxShift = 16 // avoids an overflow
	return min(time.Second, s.timeout<<min(s.retransmits, maxShift))
}

// CountExpiry counts an expiry of the timer. It returns how often the timer has expired and how long
// the peer has been silent, both since its last acknowledgement. The timeout adds to the silence
// only if transmitted is set: the NIC has sent the first packet since the timer started.
func (s *packetSender) CountExpiry(transmitted bool) (retransmits int, silent time.Duration) {
	if transmitted {
		s.unackedFor += s.retransmitTimeout()
	}
	s.retransmits++
	return s.retransmits, s.unackedFor
}

// Stop removes all packets, which it returns, and stops the timer.
func (s *packetSender) Stop() []*packet {
	all := s.unacked
	s.unacked, s.expiry = nil, 0
	return all
}

// arrivalOrder is the order in which a packet has arrived.
type arrivalOrder uint8

const (
	inOrder     arrivalOrder = iota
	tooSoon                  // must be buffered until the packets before it have arrived
	duplicate                // has arrived before
	tooFarAhead              // must be dropped
)

// maxEarly is how far ahead of its turn a packet is buffered.
const maxEarly = 4096

// packetReceiver puts the packets of a peer in sequence. It buffers packets of type P.
type packetReceiver[P any] struct {
	next  uint32       // sequence number of the next packet, 1 at first: all before it have arrived
	early map[uint32]P // packets that were received too soon
}

// Classify classifies a received packet by its sequence number. A packet in order advances the next
// number.
func (r *packetReceiver[P]) Classify(seq uint32) arrivalOrder {
	switch {
	case seq == r.next:
		r.next++
		return inOrder
	case seqBefore(seq, r.next):
		return duplicate
	case seqBefore(r.next+maxEarly, seq):
		return tooFarAhead
	}
	return tooSoon
}

// Buffer keeps an early packet. It returns false if the packet is buffered already.
func (r *packetReceiver[P]) Buffer(seq uint32, pkt P) bool {
	if r.early == nil {
		r.early = make(map[uint32]P)
	}
	if _, twice := r.early[seq]; twice {
		return false
	}
	r.early[seq] = pkt
	return true
}

// Take returns the next packet if it is buffered.
func (r *packetReceiver[P]) Take() (pkt P, ok bool) {
	if len(r.early) == 0 {
		return pkt, false
	}
	if pkt, ok = r.early[r.next]; ok {
		delete(r.early, r.next)
		r.next++
	}
	return pkt, ok
}

// ackTimer decides when to acknowledge received packets if no packet carries the acknowledgement.
type ackTimer struct {
	Every int           // packets
	Delay time.Duration // of fewer packets

	packets int           // received since the last acknowledgement
	expiry  time.Duration // when an acknowledgement is due; 0 if none is
}

// Received counts a packet. An acknowledgement is due after Every packets, or after Delay.
func (t *ackTimer) Received(now time.Duration) {
	t.packets++
	switch {
	case t.packets >= t.Every:
		t.expiry = now
	case t.expiry == 0:
		t.expiry = now + t.Delay
	}
}

// Acknowledged notes that a packet carries the acknowledgement.
func (t *ackTimer) Acknowledged() { t.packets, t.expiry = 0, 0 }
