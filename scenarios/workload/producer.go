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

	link  *link
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
	readableSent      int // value of next in the last readable notice
	sentAt            time.Duration
	windowClosedSince time.Duration // unreliable services only
}

// limit is the number of messages that may be sent so far.
func (p *producer) limit() int {
	n := min(p.total, p.allowed)
	if p.link.kind.flowControl && !p.link.peer.gone {
		n = min(n, p.credit+p.link.peerInfo.Slots)
	}
	return n
}

func (p *producer) complete() bool {
	if p.link.cfg.Op == OpRead {
		return p.next == p.total && p.readableSent == p.total
	}
	return p.acked == p.total
}

// reopenWindow ignores missing credits of an unreliable service after a while: messages or
// the credit notice may be lost.
func (p *producer) reopenWindow() {
	n := p.link
	if reliable(n.cfg.service()) || p.next == min(p.total, p.allowed) || p.next < p.limit() {
		p.windowClosedSince = 0
		return
	}
	if p.windowClosedSince == 0 {
		p.windowClosedSince = n.now
	}
	if n.due(p.windowClosedSince + n.grace()) {
		p.credit, p.windowClosedSince = p.next, 0
	}
}

// pump posts or publishes messages up to the limit.
func (p *producer) pump() (moved bool, err error) {
	if p.link.cfg.Op == OpRead {
		return p.publish(), nil
	}
	p.reopenWindow()
	sq := p.link.sq
	depth := p.link.depth
	for limit := p.limit(); p.next < limit && p.next-p.acked < depth && sq.Room() > spareRequests/2; {
		last := p.next+1 == limit || p.next+1-p.acked == depth
		p.post(last)
		moved = true
		if p.link.kind.thinkPerMessage {
			if err := p.link.flush(); err != nil {
				return moved, err
			}
			p.link.think()
			p.link.schedule() // for the next message
			return moved, nil
		}
		if sq.Full() {
			if err := p.link.flush(); err != nil {
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
	c := p.link
	at := c.stagingSlot(p.next)
	p.Fill(c.mem.buf[at:at+p.size], p.next)
	op := verbs.OpSend
	switch {
	case c.cfg.Op == OpWrite && (last || (p.next+1)%announceEvery == 0):
		op = verbs.OpRDMAWriteImm
	case c.cfg.Op == OpWrite:
		op = verbs.OpRDMAWrite
	case p.numbered():
		op = verbs.OpSendImm // too short to hold its number
	}
	wr := c.sq.Add(traffic.Request{Kind: requestMessage, Seq: p.next, Op: op}, c.mem.sge(at, p.size))
	if op != verbs.OpSend {
		wr.Imm = immediate(immMessage, p.next+1)
	}
	if c.cfg.Op == OpWrite {
		wr.Remote = verbs.Remote{Addr: c.peerInfo.Memory + uint64(c.slot(p.next)), RKey: c.peerInfo.RKey}
	}
	p.next++
	p.posted++
	if p.next == 1 || c.kind.timePerMessage {
		p.sentAt = c.proc.Now()
	}
}

// numbered reports whether immediate data holds the message number. Without it the order
// counts.
func (p *producer) numbered() bool { return p.size < traffic.StampLen && !p.link.traits.SeparateImm }

// publish writes messages into public memory, where the peer can read them.
func (p *producer) publish() (moved bool) {
	c := p.link
	for limit := p.limit(); p.next < limit; p.next++ {
		at := c.slot(p.next)
		p.Fill(c.public.buf[at:at+p.size], p.next)
		p.published = max(p.published, p.next+1)
		moved = true
		if c.kind.thinkPerMessage {
			c.think()
		}
	}
	return moved
}

// messageCompleted handles the completion of a message.
func (p *producer) messageCompleted(r traffic.Request) {
	p.acked = r.Seq + 1
	p.completed++
	p.windowClosedSince = 0
	if p.link.cfg.Op == OpSend || r.WithImm() {
		p.announced = p.acked
	}
}

// resume continues with the first message that the receiver lacks.
func (p *producer) resume(next int) {
	switch {
	case next < p.announced && reliable(p.link.cfg.service()) && !p.link.traits.CompletesEarly:
		p.link.violation(traffic.Delivery, "%d messages were acknowledged, of which only %d arrived", p.announced, next)
	case next > p.next:
		p.link.violation(traffic.Delivery, "%d messages arrived, of %d that were sent", next, p.next)
	}
	p.next, p.acked, p.announced, p.credit, p.readableSent = next, next, next, next, next
}
