package workload

import (
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// producer sends the messages of one direction of a connection: it posts sends or writes,
// or publishes messages for the peer to read.
type producer struct {
	traffic.Content

	c     *conn
	total int
	size  int
	// allowed is how many messages the workload permits so far.
	allowed int

	next      int // first message not posted or published
	acked     int // messages before it have completed
	announced int // messages before it are known to the receiver
	credit    int // messages before it were consumed by the receiver

	posted, completed int // over all epochs
	published         int // messages before it were published for the peer to read
	sentAt            time.Duration
	windowClosedSince time.Duration // unreliable services only
}

// limit is the number of messages that may be sent so far.
func (p *producer) limit() int {
	n := min(p.total, p.allowed)
	if p.c.n.flowControl && !p.c.peerGone() {
		n = min(n, p.credit+p.c.peerInfo.Slots)
	}
	return n
}

func (p *producer) complete() bool {
	if p.c.n.cfg.Op == OpRead {
		return p.next == p.total && p.c.readableSent == p.total
	}
	return p.acked == p.total
}

// reopenWindow ignores missing credits of an unreliable service after a while: messages or
// the credit notice may be lost.
func (p *producer) reopenWindow() {
	n := p.c.n
	if reliable(n.cfg.service()) || p.next == min(p.total, p.allowed) || p.next < p.limit() {
		p.windowClosedSince = 0
		return
	}
	if p.windowClosedSince == 0 {
		p.windowClosedSince = n.now
	}
	if n.due(p.windowClosedSince + n.grace) {
		p.credit, p.windowClosedSince = p.next, 0
	}
}

// pump posts or publishes messages up to the limit.
func (p *producer) pump() (moved bool, err error) {
	if p.c.n.cfg.Op == OpRead {
		return p.publish(), nil
	}
	p.reopenWindow()
	sq := &p.c.sq
	depth := p.c.layout.depth
	for limit := p.limit(); p.next < limit && p.next-p.acked < depth && sq.room() > spareRequests/2; {
		last := p.next+1 == limit || p.next+1-p.acked == depth
		p.post(last)
		moved = true
		if p.c.n.thinkPerMessage {
			if err := sq.flush(); err != nil {
				return moved, err
			}
			p.c.n.think()
			p.c.schedule() // for the next message
			return moved, nil
		}
		if sq.full() {
			if err := sq.flush(); err != nil {
				return moved, err
			}
		}
	}
	return moved, nil
}

// announceEvery is the number of writes between announcements to the receiver.
const announceEvery = 8

// post adds the next message to the batch.
func (p *producer) post(last bool) {
	c := p.c
	at := c.layout.stagingSlot(p.next)
	p.Fill(c.mem.buf[at:at+p.size], p.next)
	var wr *verbs.SendWR
	switch {
	case c.n.cfg.Op == OpWrite:
		op := verbs.OpRDMAWrite
		if last || (p.next+1)%announceEvery == 0 {
			op = verbs.OpRDMAWriteImm
		}
		wr = c.sq.add(requestMessage, p.next, op)
		wr.Remote = verbs.Remote{Addr: c.peerInfo.Memory + uint64(c.layout.slot(p.next)), RKey: c.peerInfo.RKey}
		wr.Imm = immediate(immMessage, p.next+1)
	case p.numbered():
		// Too short to hold its number.
		wr = c.sq.add(requestMessage, p.next, verbs.OpSendImm)
		wr.Imm = immediate(immMessage, p.next+1)
	default:
		c.sq.add(requestMessage, p.next, verbs.OpSend)
	}
	c.sq.setSGE(c.mem.sge(at, p.size))
	p.next++
	p.posted++
	if p.next == 1 || p.c.n.timePerMessage {
		p.sentAt = c.n.proc.Now()
	}
}

// numbered reports whether immediate data holds the message number. Without it the order
// counts.
func (p *producer) numbered() bool { return p.size < traffic.StampLen && !p.c.n.traits.SeparateImm }

// publish writes messages into public memory, where the peer can read them.
func (p *producer) publish() (moved bool) {
	c := p.c
	for limit := p.limit(); p.next < limit; p.next++ {
		at := c.layout.slot(p.next)
		p.Fill(c.public.buf[at:at+p.size], p.next)
		p.published = max(p.published, p.next+1)
		moved = true
		if c.n.thinkPerMessage {
			c.n.think()
		}
	}
	return moved
}

// messageCompleted handles the completion of a message.
func (p *producer) messageCompleted(e *request) {
	p.acked = e.seq + 1
	p.completed++
	p.windowClosedSince = 0
	if p.c.n.cfg.Op == OpSend || e.announces {
		p.announced = p.acked
	}
}

// resume continues with the first message that the receiver lacks.
func (p *producer) resume(next int) {
	switch {
	case next < p.announced && reliable(p.c.n.cfg.service()) && !p.c.n.traits.CompletesEarly:
		p.c.violation(traffic.Delivery, "%d messages were acknowledged, of which only %d arrived", p.announced, next)
	case next > p.next:
		p.c.violation(traffic.Delivery, "%d messages arrived, of %d that were sent", next, p.next)
	}
	p.next, p.acked, p.announced, p.credit = next, next, next, next
}
