package workload

import (
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// producer sends the messages of one direction of a connection: it posts sends
// or writes, or lays them out for the peer to read.
type producer struct {
	content

	c     *conn
	total int
	size  int
	// allowed is how many messages the workload lets go so far.
	allowed int

	next   int // the first message not yet posted, or laid out
	acked  int // messages before it have completed
	told   int // messages before it are known to the receiver if they have completed
	credit int // messages before it have been taken by the receiver

	posted, good int // over all epochs
	laid         int // messages before it have been laid out for the peer to read
	sentAt       time.Duration
	stuckSince   time.Duration // unreliable: the window has been closed since
}

// limit is where the producer must stop for now.
func (p *producer) limit() int {
	n := min(p.total, p.allowed)
	if p.c.n.credits && !p.c.gone() {
		n = min(n, p.credit+p.c.peerCard.Slots)
	}
	return n
}

func (p *producer) complete() bool {
	if p.c.n.cfg.Op == OpRead {
		return p.next == p.total && p.c.produced == p.total
	}
	return p.acked == p.total
}

// unstick opens the window of an unreliable service if nothing has been heard
// of the receiver for a while: the last messages or its notice may be lost.
func (p *producer) unstick() {
	n := p.c.n
	if reliable(n.cfg.service()) || p.next == min(p.total, p.allowed) || p.next < p.limit() {
		p.stuckSince = 0
		return
	}
	if p.stuckSince == 0 {
		p.stuckSince = n.now
	}
	if n.due(p.stuckSince + n.grace) {
		p.credit, p.stuckSince = p.next, 0
	}
}

// pump posts what may be posted.
func (p *producer) pump() (moved bool, err error) {
	if p.c.n.cfg.Op == OpRead {
		return p.layOut(), nil
	}
	p.unstick()
	sq := &p.c.sq
	depth := p.c.layout.depth
	for limit := p.limit(); p.next < limit && p.next-p.acked < depth && sq.room() > spareRequests/2; {
		last := p.next+1 == limit || p.next+1-p.acked == depth
		p.post(last)
		moved = true
		if p.c.n.thinks {
			if err := sq.flush(); err != nil {
				return moved, err
			}
			p.c.n.think()
			p.c.wake() // for the next one
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

// announceEvery is how many writes may pass before the receiver is told.
const announceEvery = 8

// post puts the next message into the batch.
func (p *producer) post(last bool) {
	c := p.c
	at := c.layout.staged(p.next)
	p.fill(c.mem.buf[at:at+p.size], p.next)
	var wr *verbs.SendWR
	switch {
	case c.n.cfg.Op == OpWrite:
		op := verbs.OpRDMAWrite
		if last || (p.next+1)%announceEvery == 0 {
			op = verbs.OpRDMAWriteImm
		}
		wr = c.sq.add(requestMessage, p.next, op)
		wr.Remote = verbs.Remote{Addr: c.peerCard.Memory + uint64(c.layout.slot(p.next)), RKey: c.peerCard.RKey}
		wr.Imm = immediate(immMessage, p.next+1)
	case p.numbered():
		// Too short to say which message it is.
		wr = c.sq.add(requestMessage, p.next, verbs.OpSendImm)
		wr.Imm = immediate(immMessage, p.next+1)
	default:
		c.sq.add(requestMessage, p.next, verbs.OpSend)
	}
	c.sq.use(c.mem.sge(at, p.size))
	p.next++
	p.posted++
	if p.next == 1 || p.c.n.timed {
		p.sentAt = c.n.proc.Now()
	}
}

// numbered reports whether immediate data says which message one is. Where there is
// no such thing with a message, their order has to.
func (p *producer) numbered() bool { return p.size < stampLen && !p.c.n.manners.BareImm }

// layOut puts messages where the peer can read them; a notice follows.
func (p *producer) layOut() (moved bool) {
	c := p.c
	for limit := p.limit(); p.next < limit; p.next++ {
		at := c.layout.slot(p.next)
		p.fill(c.public.buf[at:at+p.size], p.next)
		p.laid = max(p.laid, p.next+1)
		moved = true
		if c.n.thinks {
			c.n.think()
		}
	}
	return moved
}

// settle takes a message that has been acknowledged.
func (p *producer) settle(e *entry) {
	p.acked = e.seq + 1
	p.good++
	p.stuckSince = 0
	if p.c.n.cfg.Op == OpSend || e.imm {
		p.told = p.acked
	}
}

// resume goes on from what the receiver has.
func (p *producer) resume(next int) {
	switch {
	case next < p.told && reliable(p.c.n.cfg.service()) && !p.c.n.manners.Unproven:
		p.c.violation(Delivery, "%d messages were acknowledged, of which only %d arrived", p.told, next)
	case next > p.next:
		p.c.violation(Delivery, "%d messages arrived, of %d that were sent", next, p.next)
	}
	p.next, p.acked, p.told, p.credit = next, next, next, next
}
