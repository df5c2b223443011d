package workload

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// consumer checks the messages of one direction of a connection.
type consumer struct {
	traffic.Content

	link  *link
	total int
	size  int

	next       int          // one more than the highest message that has arrived
	missing    map[int]bool // messages before next
	bytes      int64
	arrived    int
	duplicates int
	reordered  int

	reads
	creditSent int    // value of next in the last credit notice
	quietCount uint64 // arrivals at quietSince
	quietSince time.Duration
	onArrival  func(seq int)
}

// reads is the state of a consumer that reads its messages.
type reads struct {
	readable  int // messages before it can be read
	nextRead  int // next message to read
	posted    int
	completed int
}

// lossy reports whether the service may lose messages.
func (x *consumer) lossy() bool { return !reliable(x.link.cfg.service()) }

// checkComplete reports whether no more messages are expected. It records a violation if
// acknowledged messages have not arrived.
func (x *consumer) checkComplete(peer *remoteEnd) bool {
	if x.next == x.total && len(x.missing) == 0 {
		return true
	}
	// The sender reports that all messages were acknowledged: those that do not arrive
	// within the grace period are lost. With reads, or completions that do not mean
	// delivery, its report proves nothing.
	if peer.peerFinal == nil || x.link.cfg.Op == OpRead || x.link.traits.CompletesEarly || !x.quietAfter(peer.peerSentAt) {
		return false
	}
	if !x.lossy() && x.next < x.total {
		x.link.violation(traffic.Delivery, "messages %d to %d were acknowledged and never arrived", x.next, x.total-1)
		x.next = x.total
	}
	return true
}

// pump posts reads of messages that the peer published, and reports whether it posted any. It leaves
// room in the send queue for notices: messages with a count as immediate data, and no other data.
func (x *consumer) pump() (moved bool, err error) {
	c := x.link
	if c.cfg.Op != OpRead {
		return false, nil
	}
	for x.nextRead < x.readable && x.nextRead-x.next < c.depth && c.sq.Room() > noticeRoom {
		at := c.stagingSlot(x.nextRead)
		wr := c.sq.Add(traffic.Request{Kind: requestRead, Seq: x.nextRead, Op: verbs.OpRDMARead, Returns: x.size}, c.mem.sge(at, x.size))
		wr.Remote = verbs.Remote{Addr: c.peerInfo.Memory + uint64(c.slot(x.nextRead)), RKey: c.peerInfo.RKey}
		x.nextRead++
		x.posted++
		moved = true
		if err := c.flushIfFull(); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// readCompleted checks a message that was read.
func (x *consumer) readCompleted(seq int) {
	x.completed++
	at := x.link.stagingSlot(seq)
	x.compare(x.link.mem.buf[at:at+x.size], seq)
	x.countArrival(seq)
}

// writesAnnounced checks the new messages that the peer has written to memory. count is the number
// of all messages so far, which the peer has announced by immediate data; it must have increased,
// by no more than the window.
func (x *consumer) writesAnnounced(count int) {
	if count <= x.next {
		x.duplicates++
		x.link.violation(traffic.Delivery, "a write announced %d messages, after %d had been", count, x.next)
		return
	}
	if count > x.total || count > x.next+x.link.window {
		x.link.violation(traffic.Delivery, "a write announced %d messages of %d, after %d", count, x.total, x.next)
		return
	}
	for seq := x.next; seq < count; seq++ {
		at := x.link.slot(seq)
		x.compare(x.link.public.buf[at:at+x.size], seq)
		x.countArrival(seq)
	}
}

// messageReceived checks a message in a receive. hint is its number from immediate data; -1
// without. If b is not the expected message, the number in its data says which it is. Without that
// number a message of a reliable service counts as the expected one, so that later ones match.
func (x *consumer) messageReceived(b []byte, hint int) {
	x.link.log.checked += int64(len(b))
	if len(b) != x.size {
		x.link.violation(traffic.Contents, "message %d has %d bytes, not %d", x.next, len(b), x.size)
		if !x.lossy() && x.next < x.total {
			x.countArrival(x.next)
		}
		return
	}
	seq := x.next
	if hint >= 0 {
		seq = hint
	}
	if seq < x.total && x.Matches(b, seq) {
		x.countArrival(seq)
		return
	}
	if other, ok := x.ParseSeq(b, 0, x.total); ok {
		if !x.Matches(b, other) {
			x.link.violation(traffic.Contents, "message %d: %s", other, x.Describe(b, other, x.total))
		}
		x.countArrival(other)
		return
	}
	x.link.violation(traffic.Contents, "message %d: %s", seq, x.Describe(b, seq, x.total))
	if !x.lossy() && seq < x.total {
		x.countArrival(seq)
	}
}

// compare records a violation if b is not message seq.
func (x *consumer) compare(b []byte, seq int) {
	x.link.log.checked += int64(len(b))
	if !x.Matches(b, seq) {
		x.link.violation(traffic.Contents, "message %d: %s", seq, x.Describe(b, seq, x.total))
	}
}

// countArrival counts a message and checks the order. Loss is checked at the end.
func (x *consumer) countArrival(seq int) {
	cfg := &x.link.cfg
	switch {
	case seq == x.next:
		x.next++
	case seq > x.next:
		if !x.lossy() {
			x.link.violation(traffic.Delivery, "message %d arrived before message %d", seq, x.next)
		}
		if x.missing == nil {
			x.missing = map[int]bool{}
		}
		for ; x.next < seq; x.next++ {
			x.missing[x.next] = true
		}
		x.next++
	case x.missing[seq]:
		x.reordered++
		if !x.lossy() || !cfg.excused(ExcuseReorders) {
			x.link.violation(traffic.Delivery, "message %d arrived after message %d", seq, x.next-1)
		}
		delete(x.missing, seq)
	default:
		x.duplicates++
		if !x.lossy() || !cfg.excused(ExcuseDuplicates) {
			x.link.violation(traffic.Delivery, "message %d arrived twice", seq)
		}
		return
	}
	x.arrived++
	x.bytes += int64(x.size)
	x.link.log.messagesArrived(x.link.now, 1, x.size)
	x.onArrival(seq)
}

// verify records a violation if messages were lost and the configuration does not excuse that. It
// checks only if finished, that is if both ends have completed.
func (x *consumer) verify(finished bool) {
	lost := x.total - x.arrived
	if lost > 0 && finished && !(x.lossy() && x.link.cfg.excused(ExcuseLoses)) {
		x.link.violation(traffic.Delivery, "%d of %d messages never arrived", lost, x.total)
	}
}

// quietAfter reports whether nothing has arrived for the grace period (the time for packets in
// flight to arrive), which starts at the given time or at the last arrival after it.
func (x *consumer) quietAfter(at time.Duration) bool {
	l := x.link
	if now := uint64(x.arrived + x.duplicates); x.quietSince < at || now != x.quietCount {
		x.quietSince, x.quietCount = l.now, now
	}
	return l.due(max(x.quietSince, at) + l.grace())
}
