package workload

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// sendQueue is what a connection has posted and not seen completed. Requests
// are gathered and posted at once; the last of each batch asks for a
// completion, which stands for those before it.
type sendQueue struct {
	c       *conn
	entries []entry // by number, modulo
	next    uint32  // number of the next request
	settled uint32  // requests before it have completed
	marked  bool    // the mark has been posted and has not completed

	batch []verbs.SendWR
	sges  []verbs.SGE // of the batch
}

// entry is one request.
type entry struct {
	kind     requestKind
	signaled bool
	imm      bool // it tells the receiver
	seq      int
}

type requestKind uint8

const (
	requestMessage requestKind = iota + 1 // a send or a write
	requestRead
	requestNotice
	requestAdd
	requestMark
)

// spareRequests are what a send queue holds besides messages.
const spareRequests = 8

// maxBatch is how many requests are posted at once.
const maxBatch = 32

func (q *sendQueue) open(c *conn, depth int) {
	n := depth + spareRequests
	q.c, q.entries = c, make([]entry, n)
	q.batch, q.sges = make([]verbs.SendWR, 0, maxBatch), make([]verbs.SGE, maxBatch)
}

// reset forgets what was posted to a queue pair that is no more.
func (q *sendQueue) reset() {
	q.next, q.settled, q.marked = 0, 0, false
	q.batch = q.batch[:0]
}

// room is how many requests fit, one place being kept for the mark.
func (q *sendQueue) room() int { return len(q.entries) - 1 - int(q.next-q.settled) }

// busy reports whether requests are outstanding.
func (q *sendQueue) busy() bool { return q.next != q.settled }

// add puts a request into the batch. The caller fills in the rest of it, and
// has made sure of room.
func (q *sendQueue) add(kind requestKind, seq int, op verbs.WROpcode) *verbs.SendWR {
	q.entries[q.next%uint32(len(q.entries))] = entry{kind: kind, seq: seq, imm: op == verbs.OpRDMAWriteImm || op == verbs.OpSendImm}
	c := q.c
	q.batch = q.batch[:len(q.batch)+1]
	wr := &q.batch[len(q.batch)-1]
	*wr = verbs.SendWR{WRID: q.id(), Opcode: op}
	if c.ah != nil {
		wr.UD = verbs.UD{AH: c.ah, QPN: c.peerCard.QPN, QKey: c.peerKey()}
	}
	wr.XRC.SRQN = c.peerCard.SRQN
	q.next++
	return wr
}

// use gives the request that was added last some local memory.
func (q *sendQueue) use(sge verbs.SGE) {
	i := len(q.batch) - 1
	q.sges[i] = sge
	q.batch[i].SGL = q.sges[i : i+1]
}

// full reports that the batch should be posted before more is added.
func (q *sendQueue) full() bool { return len(q.batch) == maxBatch }

// flush posts the batch.
func (q *sendQueue) flush() error {
	if len(q.batch) == 0 {
		return nil
	}
	last := &q.batch[len(q.batch)-1]
	last.Flags |= verbs.SendSignaled
	q.entries[(q.next-1)%uint32(len(q.entries))].signaled = true
	q.c.n.log.posted(q.c.n.now)
	_, err := q.c.qp.PostSend(q.batch)
	q.batch = q.batch[:0]
	if err != nil {
		return fmt.Errorf("posting a request: %w", err)
	}
	return nil
}

// mark posts a request behind all others to a queue pair in the error state.
func (q *sendQueue) mark() error {
	q.batch = q.batch[:0]
	q.marked = true
	q.entries[q.next%uint32(len(q.entries))] = entry{kind: requestMark, signaled: true}
	wr := verbs.SendWR{WRID: q.id(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	wr.UD.AH = q.c.ah
	q.next++
	if _, err := q.c.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return fmt.Errorf("posting to a queue pair in the error state: %w", err)
	}
	return nil
}

// id is the work request ID of the next request.
func (q *sendQueue) id() uint64 {
	return uint64(q.c.num)<<connShift | uint64(q.c.epoch&epochMask)<<32 | uint64(q.next)
}

// completed takes the completion of a request.
func (q *sendQueue) completed(wc *verbs.WC) {
	c := q.c
	n := uint32(wc.WRID)
	if n-q.settled >= q.next-q.settled {
		c.violation(Completion, "request %d completed, with %d to %d outstanding", n, q.settled, int64(q.next)-1)
		return
	}
	if wc.QPN != c.qp.QPN() {
		c.violation(Completion, "a completion names queue pair %#x, not %#x", wc.QPN, c.qp.QPN())
	}
	for q.settled != n {
		e := q.entries[q.settled%uint32(len(q.entries))]
		q.settled++
		if e.signaled {
			c.violation(Completion, "request %d completed before request %d, which was posted before it", n, q.settled-1)
		}
		c.settle(&e)
	}
	e := q.entries[n%uint32(len(q.entries))]
	q.settled++
	switch {
	case e.kind == requestMark:
		q.marked = false
	case wc.Status != verbs.WCSuccess:
		c.fail(wc.Status)
	default:
		if want := e.kind.completion(c); wc.Opcode != want {
			c.violation(Completion, "a request completed as %v, not %v", wc.Opcode, want)
		}
		if e.kind == requestRead && int(wc.ByteLen) != c.in.size || e.kind == requestAdd && wc.ByteLen != wordLen {
			c.violation(Completion, "a request completed with %d bytes", wc.ByteLen)
		}
		c.settle(&e)
	}
	c.wake()
}

// completion is the opcode that a request completes with. Devices have a table
// of their own: the one who checks must not ask the one who is checked.
func (k requestKind) completion(c *conn) verbs.WCOpcode {
	switch {
	case k == requestRead:
		return verbs.WCOpRDMARead
	case k == requestAdd:
		return verbs.WCOpFetchAdd
	case k == requestMessage && c.n.cfg.Op == OpWrite:
		return verbs.WCOpRDMAWrite
	}
	return verbs.WCOpSend
}

// settle takes a request that has succeeded.
func (c *conn) settle(e *entry) {
	c.prove()
	c.n.log.last = c.n.now
	switch e.kind {
	case requestMessage:
		c.out.settle(e)
	case requestRead:
		c.in.read(e.seq)
	case requestAdd:
		c.add.settle(e.seq)
	}
}
