package workload

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Immediate data says what it is about in its top bits, and counts messages in
// the others, modulo their size.
type immKind uint32

const (
	immMessage  immKind = iota << immBits // so many messages have been sent to you
	immCredit                             // so many of yours have been taken
	immProduced                           // so many are there to be read
)

const (
	immBits = 30
	immMask = 1<<immBits - 1
)

func immediate(k immKind, count int) uint32 { return uint32(k) | uint32(count)&immMask }

// countOf is the count that immediate data stands for, near to one that is known.
func countOf(imm uint32, near int) int {
	delta := int32((imm-uint32(near))<<(32-immBits)) >> (32 - immBits)
	return near + int(delta)
}

// pump posts what the connection may post.
func (c *conn) pump() (moved bool, err error) {
	// A notice lets the peer send, so that receives must be there before it where
	// messages do not wait for them.
	if !c.recv.shared || c.n.manners.NoRNR {
		if moved, err = c.recv.refill(); err != nil {
			return moved, err
		}
	}
	c.notices()
	if c.out != nil {
		did, err := c.out.pump()
		if moved = moved || did; err != nil {
			return moved, err
		}
		c.notices() // of what has just been laid out
	}
	if c.in != nil {
		did, err := c.in.pump()
		if moved = moved || did; err != nil {
			return moved, err
		}
	}
	if c.add != nil {
		moved = c.add.pump() || moved
	}
	moved = moved || len(c.sq.batch) > 0
	return moved, c.sq.flush()
}

// notices tells the peer what has been taken and what can be read.
func (c *conn) notices() {
	if x := c.in; x != nil && c.n.credits && x.next < x.total {
		if every := max(1, c.layout.window/4); x.next-c.credited >= every && c.notice(immCredit, x.next) {
			c.credited = x.next
		}
	}
	if p := c.out; p != nil && c.n.cfg.Op == OpRead && p.next > c.produced && c.notice(immProduced, p.next) {
		c.produced = p.next
	}
}

func (c *conn) notice(kind immKind, count int) bool {
	if c.sq.room() < 1 || c.sq.full() {
		return false
	}
	wr := c.sq.add(requestNotice, 0, verbs.OpSendImm)
	wr.Imm = immediate(kind, count)
	return true
}

// received takes a receive that has completed with success.
func (c *conn) received(wc *verbs.WC, r *ring, slot int) {
	c.prove()
	c.wake()
	n := int(wc.ByteLen)
	b := r.bytes(slot, n)
	if datagram(c.n.cfg.service()) {
		if n < verbs.GRHLen {
			c.violation(Completion, "a datagram of %d bytes has no room for its header area", n)
			return
		}
		n, b = n-verbs.GRHLen, b[verbs.GRHLen:]
	}
	withImm := wc.Flags&verbs.WCWithImm != 0
	kind := immKind(wc.Imm &^ immMask)
	op := c.n.cfg.Op
	// Where immediate data is a message of its own, nobody can tell a notice behind
	// a write from a write with it.
	notice := withImm && (wc.Opcode == verbs.WCOpRecv && n == 0 || c.n.manners.BareImm)
	switch {
	case notice && kind == immCredit && c.out != nil:
		c.credit(countOf(wc.Imm, c.out.credit))
	case notice && kind == immProduced && c.in != nil && op == OpRead:
		c.offer(countOf(wc.Imm, c.in.produced))
	case wc.Opcode == verbs.WCOpRecvRDMAWithImm && withImm && kind == immMessage && c.in != nil && op == OpWrite:
		c.in.written(countOf(wc.Imm, c.in.next))
	case wc.Opcode == verbs.WCOpRecv && c.in != nil && op == OpSend && withImm == c.in.numbered() && n <= r.room:
		hint := -1
		if withImm {
			hint = countOf(wc.Imm, c.in.next) - 1
		}
		c.in.received(b, hint)
	default:
		c.violation(Delivery, "%v of %d bytes with immediate data %#x, which nobody sent", wc.Opcode, n, wc.Imm)
	}
}

// credit takes the peer's word for how many messages it has taken.
func (c *conn) credit(count int) {
	p := c.out
	if count > p.next {
		c.violation(Delivery, "the peer has taken %d messages, of %d that were sent", count, p.next)
		return
	}
	p.credit = max(p.credit, count)
	p.stuckSince = 0
}

// offer takes the peer's word for how many messages can be read.
func (c *conn) offer(count int) {
	if count > c.in.total || count < c.in.produced {
		c.violation(Delivery, "the peer offers %d messages of %d, after %d", count, c.in.total, c.in.produced)
		return
	}
	c.in.produced = count
}

// resume begins an epoch with what the last one left.
func (c *conn) resume() {
	if c.out != nil {
		c.out.resume(c.peerCard.Next)
	}
	c.produced = c.peerCard.Next
	if c.in != nil {
		c.in.resume()
		c.credited = c.in.next
	}
	if c.add != nil {
		c.add.resume()
	}
}

// quiet reports that nothing has come for d since the peer said that it has sent all.
func (c *conn) quiet(d time.Duration) bool {
	if now := uint64(c.in.arrived + c.in.twice); c.quietFrom < c.peerSentAt || now != c.idleMark {
		c.quietFrom, c.idleMark = c.n.now, now
	}
	return c.n.due(max(c.quietFrom, c.peerSentAt) + d)
}

// violation notes something that the connection's service does not allow.
func (c *conn) violation(kind ViolationKind, format string, args ...any) {
	c.n.log.violation(kind, "%s with %s on rail %d: %s", hostOf(c.n.rank.Rank), hostOf(c.peer), c.rail.num, fmt.Sprintf(format, args...))
}
