package workload

import (
	"encoding/binary"
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

	posted, completed int // over all incarnations
	published         int // messages before it were published for the peer to read
	readableSent      int // value of next in the last readable notice
	sentAt            time.Duration
	windowClosedSince time.Duration // unreliable services only
}

// limit is the number of messages that may be sent so far: as many as the workload allows, and with
// flow control no more than the peer, unless it has ended, has room for.
func (p *producer) limit() int {
	n := min(p.total, p.allowed)
	if p.link.kind.flowControl && !p.link.peer.gone {
		n = min(n, p.credit+p.link.peerInfo.Slots)
	}
	return n
}

// complete reports whether all messages were acknowledged or, for reads, announced as readable.
func (p *producer) complete() bool {
	if p.link.cfg.Op == OpRead {
		return p.next == p.total && p.readableSent == p.total
	}
	return p.acked == p.total
}

// reopenWindow lets an unreliable service send without credits when they have been missing for a
// while: messages or the credit notice may be lost.
func (p *producer) reopenWindow() {
	l := p.link
	if reliable(l.cfg.service()) || p.next == min(p.total, p.allowed) || p.next < p.limit() {
		p.windowClosedSince = 0
		return
	}
	if p.windowClosedSince == 0 {
		p.windowClosedSince = l.now
	}
	if l.due(p.windowClosedSince + l.grace()) {
		p.credit, p.windowClosedSince = p.next, 0
	}
}

// pump posts messages up to the limit, or for reads publishes them, and reports whether there were
// any. It leaves room in the send queue for notices: messages with a count as immediate data, and no
// other data.
func (p *producer) pump() (moved bool, err error) {
	if p.link.cfg.Op == OpRead {
		return p.publish(), nil
	}
	p.reopenWindow()
	sq := p.link.sq
	depth := p.link.depth
	for limit := p.limit(); p.next < limit && p.next-p.acked < depth && sq.Room() > noticeRoom; {
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
		if err := p.link.flushIfFull(); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// post adds the next message to the batch. The last write that may be sent now, and one in
// announceEvery writes, has immediate data, which announces it and the writes before it.
func (p *producer) post(last bool) {
	const announceEvery = 8 // writes between announcements to the receiver
	c := p.link
	at := c.stagingSlot(p.next)
	p.Fill(c.mem.buf[at:at+p.size], p.next)
	op := verbs.OpSend
	switch {
	case c.cfg.Op == OpWrite && (last || (p.next+1)%announceEvery == 0):
		op = verbs.OpRDMAWriteImm
	case c.cfg.Op == OpWrite:
		op = verbs.OpRDMAWrite
	case c.numbersMessages():
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

// publish writes messages into memory that the peer can read, and reports whether there were any.
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

// messageCompleted handles the completion of a message. That of a send, or of a write with
// immediate data, proves that all messages up to it were announced to the receiver.
func (p *producer) messageCompleted(r traffic.Request) {
	p.acked = r.Seq + 1
	p.completed++
	p.windowClosedSince = 0
	if p.link.cfg.Op == OpSend || r.Op == verbs.OpRDMAWriteImm {
		p.announced = p.acked
	}
}

// resume continues with next, the first message that the receiver lacks. It records a violation if
// next is before an acknowledged message, or after the last that was sent.
func (p *producer) resume(next int) {
	switch {
	case next < p.announced && reliable(p.link.cfg.service()) && !p.link.traits.CompletesEarly:
		p.link.violation(traffic.Delivery, "%d messages were acknowledged, of which only %d arrived", p.announced, next)
	case next > p.next:
		p.link.violation(traffic.Delivery, "%d messages arrived, of %d that were sent", next, p.next)
	}
	p.next, p.acked, p.announced, p.credit, p.readableSent = next, next, next, next, next
}

// atomicAdder adds 1 to a word of the peer with fetch-and-add, as often as the workload wants.
// Other ranks add to the same word. A failed atomic may have been executed, therefore failures
// leave a range for the final value.
type atomicAdder struct {
	link    *link
	total   int
	allowed int // by the workload, so far

	posted    int // over all incarnations
	completed int // with success
	resolved  int // completed or failed
	peerWords []wordState
}

// wordState is the state of a word of the peer, which has one on each rail.
type wordState struct {
	completed int    // atomics of this rank
	lastOld   uint64 // old value that the last one returned
}

const (
	wordLen = 8
	maxAdds = 4 // outstanding
)

// complete reports whether all atomics are posted, and have completed or were abandoned.
func (a *atomicAdder) complete() bool { return a.posted == a.total && a.resolved == a.posted }

// pump posts atomics up to the limits of the workload and of the queue, at most maxAdds without a
// result, and reports whether it posted any. It leaves room for one notice.
func (a *atomicAdder) pump() (moved bool) {
	c := a.link
	for a.posted < a.allowed && a.posted-a.resolved < maxAdds && c.sq.Room() > 1 && !c.sq.Full() {
		r := traffic.Request{Kind: requestAdd, Seq: a.posted, Op: verbs.OpAtomicFetchAdd, Returns: wordLen}
		wr := c.sq.Add(r, c.mem.sge(a.resultOffset(a.posted), wordLen))
		wr.Remote = verbs.Remote{Addr: c.peerInfo.Word, RKey: c.peerInfo.WordKey}
		wr.Atomic.CompareAdd = 1
		a.posted++
		moved = true
	}
	return moved
}

// resultOffset is the offset in private memory of the old value that atomic n returns.
func (a *atomicAdder) resultOffset(n int) int { return a.link.resultsAt + n%maxAdds*wordLen }

// handleCompletion checks the old value of atomic n: it grows with every atomic of this rank, and is
// at least the number of those that have completed.
func (a *atomicAdder) handleCompletion(n int) {
	a.completed++
	a.resolved = n + 1
	at := a.resultOffset(n)
	got := binary.LittleEndian.Uint64(a.link.mem.buf[at:])
	w := &a.peerWords[a.link.rail.num]
	if w.completed > 0 && got <= w.lastOld || got < uint64(w.completed) {
		a.link.violation(traffic.Contents, "atomic %d returned the old value %d, after an earlier one returned %d", n, got, w.lastOld)
	}
	w.completed++
	w.lastOld = got
}

// verifyAtomics checks that this rank's words counted at least the atomics that the peers saw
// complete, and at most those that they posted. Without a report of every peer it checks nothing.
func (n *node) verifyAtomics() {
	least, most := 0, 0
	for _, c := range n.conns {
		if c.add == nil || !c.finished() {
			return
		}
		least += c.peerFinal.AddsProven
		most += c.peerFinal.Adds
	}
	sum := uint64(0)
	for _, r := range n.rails {
		if r.word == nil {
			return
		}
		sum += binary.LittleEndian.Uint64(r.word.buf)
		n.log.checked += wordLen
	}
	if sum < uint64(least) || sum > uint64(most) {
		n.log.violation(traffic.Contents, "memory of %s: atomics add up to %d, want %d to %d", n.host(), sum, least, most)
	}
}
