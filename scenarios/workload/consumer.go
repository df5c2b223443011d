package workload

import (
	"github.com/fabrictest/fabrictest/verbs"
)

// consumer takes the messages of one direction of a connection and checks them.
type consumer struct {
	content

	c     *conn
	total int
	size  int

	next    int          // one more than the highest message that has come
	missing map[int]bool // messages before next that have not
	bytes   int64
	arrived int
	twice   int
	swapped int

	produced int // messages before it can be read
	reading  int // the first message not asked for
	posted   int // reads
	good     int
}

// numbered is what the producer at the other end says of its messages.
func (x *consumer) numbered() bool { return x.size < stampLen && !x.c.n.manners.BareImm }

func (x *consumer) lossy() bool { return !reliable(x.c.n.cfg.service()) }

// complete reports that nothing more is expected.
func (x *consumer) complete() bool {
	if x.next == x.total && len(x.missing) == 0 {
		return true
	}
	// The sender says that all has been acknowledged: what does not come within a
	// while is lost. One whose messages are read cannot know, nor one whose requests
	// complete before they have arrived.
	if x.c.peerFinal == nil || x.c.n.cfg.Op == OpRead || x.c.n.manners.Unproven || !x.c.quiet(x.c.n.grace) {
		return false
	}
	if x.lossy() {
		return true
	}
	if x.next < x.total {
		x.c.violation(Delivery, "messages %d to %d were acknowledged and never arrived", x.next, x.total-1)
		x.next = x.total
	}
	return true
}

// pump posts reads of what the peer has laid out.
func (x *consumer) pump() (moved bool, err error) {
	c := x.c
	if c.n.cfg.Op != OpRead {
		return false, nil
	}
	for x.reading < x.produced && x.reading-x.next < c.layout.depth && c.sq.room() > spareRequests/2 {
		at := c.layout.staged(x.reading)
		wr := c.sq.add(requestRead, x.reading, verbs.OpRDMARead)
		c.sq.use(c.mem.sge(at, x.size))
		wr.Remote = verbs.Remote{Addr: c.peerCard.Memory + uint64(c.layout.slot(x.reading)), RKey: c.peerCard.RKey}
		x.reading++
		x.posted++
		moved = true
		if c.sq.full() {
			if err := c.sq.flush(); err != nil {
				return moved, err
			}
		}
	}
	return moved, nil
}

// read takes a message that has been read.
func (x *consumer) read(seq int) {
	x.good++
	at := x.c.layout.staged(seq)
	x.check(x.c.mem.buf[at:at+x.size], seq)
	x.accept(seq)
}

// written takes all messages before count, which are in their slots.
func (x *consumer) written(count int) {
	if count <= x.next {
		x.twice++
		x.c.violation(Delivery, "a write announced %d messages, after %d had been", count, x.next)
		return
	}
	if count > x.total || count > x.next+x.c.layout.window {
		x.c.violation(Delivery, "a write announced %d messages of %d, after %d", count, x.total, x.next)
		return
	}
	for seq := x.next; seq < count; seq++ {
		at := x.c.layout.slot(seq)
		x.check(x.c.public.buf[at:at+x.size], seq)
		x.accept(seq)
	}
}

// received takes a message that came with a receive. hint is its number as the
// immediate data says, -1 if there was none.
func (x *consumer) received(b []byte, hint int) {
	x.c.n.log.checked += int64(len(b))
	if len(b) != x.size {
		x.c.violation(Contents, "message %d has %d bytes, not %d", x.next, len(b), x.size)
		if !x.lossy() && x.next < x.total {
			x.accept(x.next)
		}
		return
	}
	seq := x.next
	if hint >= 0 {
		seq = hint
	}
	if seq < x.total && x.right(b, seq) {
		x.accept(seq)
		return
	}
	if other, ok := x.number(b, 0, x.total); ok {
		if !x.right(b, other) {
			x.c.violation(Contents, "message %d: %s", other, x.describe(b, other, x.total))
		}
		x.accept(other)
		return
	}
	x.c.violation(Contents, "message %d: %s", seq, x.describe(b, seq, x.total))
	if !x.lossy() && seq < x.total {
		x.accept(seq)
	}
}

// check compares a message that is where it must be.
func (x *consumer) check(b []byte, seq int) {
	x.c.n.log.checked += int64(len(b))
	if !x.right(b, seq) {
		x.c.violation(Contents, "message %d: %s", seq, x.describe(b, seq, x.total))
	}
}

// accept counts the arrival of a message. A reliable service has them come one
// after the other; others are judged at the end.
func (x *consumer) accept(seq int) {
	cfg := &x.c.n.cfg
	switch {
	case seq == x.next:
		x.next++
	case seq > x.next:
		if !x.lossy() {
			x.c.violation(Delivery, "message %d arrived before message %d", seq, x.next)
		}
		if x.missing == nil {
			x.missing = map[int]bool{}
		}
		for ; x.next < seq; x.next++ {
			x.missing[x.next] = true
		}
		x.next++
	case x.missing[seq]:
		x.swapped++
		if !x.lossy() || !cfg.excused(ExcuseReorders) {
			x.c.violation(Delivery, "message %d arrived after message %d", seq, x.next-1)
		}
		delete(x.missing, seq)
	default:
		x.twice++
		if !x.lossy() || !cfg.excused(ExcuseDuplicates) {
			x.c.violation(Delivery, "message %d arrived twice", seq)
		}
		return
	}
	x.arrived++
	x.bytes += int64(x.size)
	x.c.n.log.arrived(x.c.n.now, 1, x.size)
	if x.c.n.onArrival != nil {
		x.c.n.onArrival(x.c, seq)
	}
}

// verify judges what can be judged only at the end, if the end was a good one.
func (x *consumer) verify() {
	lost := x.total - x.arrived
	if lost > 0 && x.c.finished() && !(x.lossy() && x.c.n.cfg.excused(ExcuseLoses)) {
		x.c.violation(Delivery, "%d of %d messages never arrived", lost, x.total)
	}
}

// resume goes on with a new queue pair.
func (x *consumer) resume() {
	x.produced, x.reading = x.next, x.next
}
