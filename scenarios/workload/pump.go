package workload

import (
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Immediate data has a kind in its top bits and a message count, modulo 2^30, in the others.
type immKind uint32

const (
	immMessage  immKind = iota << immBits // messages sent to the receiver
	immCredit                             // messages of the receiver consumed
	immReadable                           // messages that the receiver can read
)

const (
	immBits = 30
	immMask = 1<<immBits - 1
)

// immediate returns immediate data with a kind and the low bits of a count.
func immediate(k immKind, count int) uint32 { return uint32(k) | uint32(count)&immMask }

// countOf returns the count in immediate data, which holds its low immBits bits only: of the
// possible counts the one closest to near.
func countOf(imm uint32, near int) int {
	delta := int32((imm-uint32(near))<<(32-immBits)) >> (32 - immBits)
	return near + int(delta)
}

// pump refills receives, and posts messages, reads, atomics and notices (messages with only a count
// as immediate data). It reports whether it posted any.
func (c *conn) pump() (moved bool, err error) {
	// A credit notice lets the peer send: without RNR NAKs, receives must be posted before.
	if !c.recv.Shared || c.traits.NoRNR {
		if moved, err = c.recv.refill(); err != nil {
			return moved, err
		}
	}
	c.sendNotices()
	if c.out != nil {
		did, err := c.out.pump()
		moved = moved || did
		if err != nil {
			return moved, err
		}
		c.sendNotices() // for messages just published
	}
	if c.in != nil {
		did, err := c.in.pump()
		moved = moved || did
		if err != nil {
			return moved, err
		}
	}
	if c.add != nil {
		moved = c.add.pump() || moved
	}
	moved = moved || c.sq.Batched() > 0
	return moved, c.flush()
}

// sendNotices posts the notices that are due: after every quarter of the window the number of
// messages consumed (credit), and the number of messages that the peer can read (readable).
func (c *conn) sendNotices() {
	if x := c.in; x != nil && c.kind.flowControl && x.next < x.total {
		if every := max(1, c.window/4); x.next-x.creditSent >= every && c.sendNotice(immCredit, x.next) {
			x.creditSent = x.next
		}
	}
	if p := c.out; p != nil && c.cfg.Op == OpRead && p.next > p.readableSent && c.sendNotice(immReadable, p.next) {
		p.readableSent = p.next
	}
}

// sendNotice adds a notice to the batch: a message without data, with a kind and a count as
// immediate data. It reports false if the send queue has no room.
func (c *conn) sendNotice(kind immKind, count int) bool {
	if c.sq.Room() < 1 || c.sq.Full() {
		return false
	}
	wr := c.sq.Add(traffic.Request{Kind: requestNotice, Op: verbs.OpSendImm}, verbs.SGE{})
	wr.Imm = immediate(kind, count)
	return true
}

// received handles a successful receive: a notice, which has a count in immediate data, the
// announcement of writes, or a message. Anything else is a violation.
func (c *conn) received(wc *verbs.WC, r *recvRing, slot int) {
	c.noteCarriedData()
	c.schedule()
	n := int(wc.ByteLen)
	b := r.bytes(slot, n)
	if datagram(c.cfg.service()) {
		if n < verbs.GRHLen {
			c.violation(traffic.Completion, "a datagram of %d bytes is shorter than its GRH", n)
			return
		}
		n, b = n-verbs.GRHLen, b[verbs.GRHLen:]
	}
	withImm := wc.Flags&verbs.WCWithImm != 0
	kind := immKind(wc.Imm &^ immMask)
	op := c.cfg.Op
	// If immediate data arrives as a separate message, a notice after a write looks like a
	// write with immediate data.
	notice := withImm && (wc.Opcode == verbs.WCOpRecv && n == 0 || c.traits.SeparateImm)
	switch {
	case notice && kind == immCredit && c.out != nil:
		c.handleCredit(countOf(wc.Imm, c.out.credit))
	case notice && kind == immReadable && c.in != nil && op == OpRead:
		count := countOf(wc.Imm, c.in.readable)
		if count > c.in.total || count < c.in.readable {
			c.violation(traffic.Delivery, "the peer offers %d messages of %d, after %d", count, c.in.total, c.in.readable)
			return
		}
		c.in.readable = count
	case wc.Opcode == verbs.WCOpRecvRDMAWithImm && withImm && kind == immMessage && c.in != nil && op == OpWrite:
		c.in.writesAnnounced(countOf(wc.Imm, c.in.next))
	case wc.Opcode == verbs.WCOpRecv && c.in != nil && op == OpSend && withImm == c.numbersMessages() && n <= r.slotLen:
		hint := -1
		if withImm {
			hint = countOf(wc.Imm, c.in.next) - 1
		}
		c.in.messageReceived(b, hint)
	default:
		c.violation(traffic.Delivery, "%v of %d bytes with immediate data %#x, which was not sent", wc.Opcode, n, wc.Imm)
	}
}

// handleCredit notes how many messages the peer has consumed.
func (c *conn) handleCredit(count int) {
	p := c.out
	if count > p.next {
		c.violation(traffic.Delivery, "the peer has taken %d messages, of %d that were sent", count, p.next)
		return
	}
	p.credit = max(p.credit, count)
	p.windowClosedSince = 0
}

// resume continues on a new queue pair: the messages in both directions (c.out and c.in) from the
// first that has not arrived, and the atomics (c.add) after those that were posted.
func (c *conn) resume() {
	if c.out != nil {
		c.out.resume(c.peerInfo.Next)
	}
	if x := c.in; x != nil {
		x.readable, x.nextRead, x.creditSent = x.next, x.next, x.next
	}
	if c.add != nil {
		c.add.resolved = c.add.posted // the results of those outstanding stay unknown
	}
}

// Kinds of requests.
const (
	requestMessage uint8 = iota + 1 // a send or a write
	requestRead
	requestNotice
	requestAdd
)

// requestCompleted handles the completion of a request and of unsignaled ones before it.
func (c *conn) requestCompleted(wc *verbs.WC) {
	status, err := c.sq.Complete(wc, c.requestSucceeded)
	if err != nil {
		c.violation(traffic.Completion, "%v", err)
	}
	if status != verbs.WCSuccess {
		c.fail(status)
	}
	c.schedule()
}

// requestSucceeded handles a successful request.
func (c *conn) requestSucceeded(r traffic.Request) {
	c.noteCarriedData()
	c.log.last = c.now
	switch r.Kind {
	case requestMessage:
		c.out.messageCompleted(r)
	case requestRead:
		c.in.readCompleted(r.Seq)
	case requestAdd:
		c.add.handleCompletion(r.Seq)
	}
}
