package carrier

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// The types of this file make the segments that a rank multicasts to a group arrive at every other member
// once and in order, though datagrams may be lost, repeated or reordered. They do no I/O.
//
// A sender keeps a window of segments. Members report, now and then, which segments they have, and the sender
// drops those that all members have. A member that lacks a segment requests it; the sender then sends it
// to this member alone. The first requests, their answers and every second report are datagrams, because a packet that
// the carrier or a NIC retransmits may take long; it retransmits the others.

// multicastSender numbers the segments of this rank for a group, and keeps them until all members have them.
type multicastSender struct {
	window  int
	next    uint32        // number of the next segment; 1 at first
	kept    []*packet     // the last segments
	members []groupMember // by rank
}

// groupMember is what a sender knows of a member.
type groupMember struct {
	rank   int
	next   uint32 // the member has all segments before
	resent uint32 // all segments before, as far as the member lacked them, were sent to it alone, reliably
}

// newMulticastSender returns a sender to members, which are in ascending order.
func newMulticastSender(window int, members []int) *multicastSender {
	s := &multicastSender{window: window, next: 1}
	for _, rank := range members {
		s.members = append(s.members, groupMember{rank, 1, 1})
	}
	return s
}

// HasRoom reports whether another segment can be sent.
func (s *multicastSender) HasRoom() bool { return len(s.kept) < s.window }

// Add keeps the next segment.
func (s *multicastSender) Add(pkt *packet) {
	s.kept = append(s.kept, pkt)
	s.next++
}

// first returns the number of the oldest segment that is kept.
func (s *multicastSender) first() uint32 { return s.next - uint32(len(s.kept)) }

// find returns the index of a member, and whether there is one.
func (s *multicastSender) find(rank int) (int, bool) {
	return slices.BinarySearchFunc(s.members, rank, func(m groupMember, rank int) int { return m.rank - rank })
}

// Handle handles the report of a member. It returns the segments to send to this member alone, over the transport
// of the report.
func (s *multicastSender) Handle(rank int, r *multicastReport) (missing []*packet) {
	i, found := s.find(rank)
	if !found || seqBefore(s.next, r.next) {
		return nil
	}
	m := &s.members[i]
	if seqBefore(m.next, r.next) {
		m.next = r.next
	}
	if !r.request {
		return nil
	}
	from := m.next
	if seqBefore(from, m.resent) {
		from = m.resent
	}
	for seq := from; seq != s.next; seq++ {
		if !r.hasEarly(seq) {
			missing = append(missing, s.kept[seq-s.first()])
		}
	}
	if r.byDatagram {
		return missing[:min(len(missing), maxRetransmitBatch)]
	}
	m.resent = s.next
	return missing
}

// Remove removes a member that is lost.
func (s *multicastSender) Remove(rank int) {
	if i, found := s.find(rank); found {
		s.members = slices.Delete(s.members, i, i+1)
	}
}

// TakeArrived removes and returns the segments that all members have.
func (s *multicastSender) TakeArrived() []*packet {
	all := s.next
	for i := range s.members {
		if seqBefore(s.members[i].next, all) {
			all = s.members[i].next
		}
	}
	n := all - s.first()
	arrived := slices.Clone(s.kept[:n])
	s.kept = slices.Delete(s.kept, 0, int(n))
	return arrived
}

// Awaited returns the members that have not reported the oldest segment.
func (s *multicastSender) Awaited() (ranks []int) {
	for i := range s.members {
		if m := &s.members[i]; len(s.kept) > 0 && m.next == s.first() {
			ranks = append(ranks, m.rank)
		}
	}
	return ranks
}

// multicastReceiver puts the segments of one sender in order, and decides when to report to the sender.
type multicastReceiver struct {
	segments packetReceiver[[]byte]
	expected uint32 // all segments before are needed by operations that have started; 1 at first
	// ackEvery is the number of segments after which a report is due, and reliableEvery that after which it
	// must not be lost: there is one in every window.
	ackEvery, reliableEvery int
	// gapDelay is how long a segment may arrive after a later one, and timeout how long an expected one
	// may take, before it is requested. Both are limits: earlier arrivals make the times shorter.
	gapDelay, timeout time.Duration
	arrivals          arrivalTime

	unreported int           // segments since the last report that cannot be lost
	noted      bool          // a datagram has reported some of them
	requests   int           // since a segment arrived in order
	expiry     time.Duration // when missing segments are requested; 0 if none is missing
	waitStart  time.Duration // when an operation began to wait for a segment, if waits is set
	waits      bool
	inOrder    [][]byte // result of Receive
}

func newMulticastReceiver(d *Datagrams) multicastReceiver {
	every := max(1, min(d.AckEvery, d.Window/2))
	return multicastReceiver{
		segments: packetReceiver[[]byte]{next: 1}, expected: 1,
		ackEvery: every, reliableEvery: min(2*every, d.Window), gapDelay: d.AckDelay, timeout: d.Timeout,
	}
}

// Expect notes that an operation needs one more segment.
func (r *multicastReceiver) Expect(now time.Duration) {
	r.expected++
	switch {
	case !seqBefore(r.segments.next, r.expected):
		r.arrivals.Sample(0)
	case !r.waits:
		r.waits, r.waitStart = true, now
	}
	r.updateTimer(now)
}

// lacks reports whether a segment is missing.
func (r *multicastReceiver) lacks() bool {
	return len(r.segments.early) > 0 || seqBefore(r.segments.next, r.expected)
}

// updateTimer starts the timer if segments are missing, and else stops it.
func (r *multicastReceiver) updateTimer(now time.Duration) {
	switch {
	case !r.lacks():
		r.expiry = 0
	case len(r.segments.early) > 0 && r.requests == 0:
		if at := now + r.arrivals.Timeout(r.gapDelay); r.expiry == 0 || at < r.expiry {
			r.expiry = at
		}
	case r.expiry == 0:
		r.expiry = now + r.arrivals.Timeout(r.timeout)
	}
}

// Receive handles a segment, of which it copies what it keeps. It returns those that are now in order, until
// the next call. resent says that the segment was sent to this rank alone: it has been lost, and does not tell how
// long others take.
func (r *multicastReceiver) Receive(now time.Duration, seq uint32, segment []byte, resent bool) ([][]byte, arrivalOrder) {
	order := r.segments.Classify(seq)
	clear(r.inOrder)
	r.inOrder = r.inOrder[:0]
	switch order {
	case inOrder:
		r.inOrder = append(r.inOrder, segment)
		for next, ok := r.segments.Take(); ok; next, ok = r.segments.Take() {
			r.inOrder = append(r.inOrder, next)
		}
		r.unreported += len(r.inOrder)
		r.requests, r.expiry = 0, 0
		if r.waits && !resent {
			r.arrivals.Sample(now - r.waitStart)
		}
		r.waits = false
	case tooSoon:
		if !r.segments.Buffer(seq, slices.Clone(segment)) {
			order = duplicate
		}
	case duplicate, tooFarAhead:
	}
	r.updateTimer(now)
	return r.inOrder, order
}

// datagramRequests is how many requests are datagrams, before one that is retransmitted.
const datagramRequests = 3

// TakeReport returns the report that is due, if any. A sender that has not sent the missing segments yet ignores
// the request, so that it is repeated, less and less often.
func (r *multicastReceiver) TakeReport(now time.Duration) (report multicastReport, due bool) {
	const maxShift, longestShift = 16, 3
	request := r.expiry != 0 && now >= r.expiry
	switch {
	case request:
		r.expiry = now + min(r.arrivals.Timeout(r.timeout)<<min(r.requests, maxShift), r.timeout<<longestShift)
		r.requests++
		return r.report(request, r.requests <= datagramRequests), true
	case r.unreported >= r.reliableEvery:
		return r.report(false, false), true
	case r.unreported >= r.ackEvery && !r.noted:
		return r.report(false, true), true
	}
	return report, false
}

// report returns what this rank has received.
func (r *multicastReceiver) report(request, byDatagram bool) multicastReport {
	if r.noted = byDatagram; !byDatagram {
		r.unreported = 0
	}
	report := multicastReport{next: r.segments.next, request: request, byDatagram: byDatagram}
	if request {
		for seq := range r.segments.early {
			report.addEarly(seq)
		}
	}
	return report
}

// multicastReport says which segments a member has.
type multicastReport struct {
	next    uint32 // all before
	request bool   // the others are missing, but for:
	early   []byte // bit i: segment next+1+i
	// byDatagram says that the report, and what answers it, may be lost. It is not encoded.
	byDatagram bool
}

const reportHeaderLen = 4 + 1

// addEarly adds a segment after next.
func (r *multicastReport) addEarly(seq uint32) {
	bit := int(seq - r.next - 1)
	for len(r.early) <= bit/8 {
		r.early = append(r.early, 0)
	}
	r.early[bit/8] |= 1 << (bit % 8)
}

// hasEarly reports whether the member has a segment that is not before next.
func (r *multicastReport) hasEarly(seq uint32) bool {
	bit := int(seq - r.next - 1)
	return seq != r.next && bit/8 < len(r.early) && r.early[bit/8]&(1<<(bit%8)) != 0
}

// append appends the encoded report, which parseMulticastReport decodes.
func (r *multicastReport) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.next)
	flags := byte(0)
	if r.request {
		flags = 1
	}
	return append(append(b, flags), r.early...)
}

func parseMulticastReport(b []byte) (r multicastReport, err error) {
	if len(b) < reportHeaderLen {
		return r, fmt.Errorf("%w: multicast report of %d bytes", errMalformed, len(b))
	}
	return multicastReport{next: binary.LittleEndian.Uint32(b), request: b[4] != 0, early: b[reportHeaderLen:]}, nil
}
