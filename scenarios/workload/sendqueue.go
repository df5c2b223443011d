package workload

import (
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// sendQueue holds the posted requests of a connection that have not completed. Requests are
// posted in batches; only the last of a batch is signaled.
type sendQueue struct {
	c               *conn
	entries         []request // by number, modulo
	next            uint32    // number of the next request
	completedBefore uint32    // requests before it have completed
	drainPending    bool      // the drain marker has not completed

	batch []verbs.SendWR
	sges  []verbs.SGE // of the batch
}

// request is a posted request.
type request struct {
	kind      requestKind
	signaled  bool
	announces bool // it has immediate data, which informs the receiver
	seq       int
}

type requestKind uint8

const (
	requestMessage requestKind = iota + 1 // a send or a write
	requestRead
	requestNotice
	requestAdd
	requestDrainMarker
)

// Work request IDs of requests have connection, epoch and number.
const (
	connShift = 48
	epochMask = 1<<16 - 1
)

// spareRequests is the room in a send queue besides messages.
const spareRequests = 8

// maxBatch is the number of requests posted in one call.
const maxBatch = 32

func (q *sendQueue) open(c *conn, depth int) {
	n := depth + spareRequests
	q.c, q.entries = c, make([]request, n)
	q.batch, q.sges = make([]verbs.SendWR, 0, maxBatch), make([]verbs.SGE, maxBatch)
}

// reset forgets the requests of a closed queue pair.
func (q *sendQueue) reset() {
	q.next, q.completedBefore, q.drainPending = 0, 0, false
	q.batch = q.batch[:0]
}

// room is how many requests fit, without the drain marker.
func (q *sendQueue) room() int { return len(q.entries) - 1 - int(q.next-q.completedBefore) }

func (q *sendQueue) busy() bool { return q.next != q.completedBefore }

// add adds a request to the batch. The caller fills in the rest, and has checked room.
func (q *sendQueue) add(kind requestKind, seq int, op verbs.WROpcode) *verbs.SendWR {
	q.entries[q.next%uint32(len(q.entries))] = request{kind: kind, seq: seq, announces: op == verbs.OpRDMAWriteImm || op == verbs.OpSendImm}
	c := q.c
	q.batch = q.batch[:len(q.batch)+1]
	wr := &q.batch[len(q.batch)-1]
	*wr = verbs.SendWR{WRID: q.id(), Opcode: op}
	if c.ah != nil {
		wr.UD = verbs.UD{AH: c.ah, QPN: c.peerInfo.QPN, QKey: c.peerQKey()}
	}
	wr.XRC.SRQN = c.peerInfo.SRQN
	q.next++
	return wr
}

// setSGE sets the local memory of the last request.
func (q *sendQueue) setSGE(sge verbs.SGE) {
	i := len(q.batch) - 1
	q.sges[i] = sge
	q.batch[i].SGL = q.sges[i : i+1]
}

// full reports whether the batch must be posted before more is added.
func (q *sendQueue) full() bool { return len(q.batch) == maxBatch }

func (q *sendQueue) flush() error {
	if len(q.batch) == 0 {
		return nil
	}
	last := &q.batch[len(q.batch)-1]
	last.Flags |= verbs.SendSignaled
	q.entries[(q.next-1)%uint32(len(q.entries))].signaled = true
	q.c.n.log.requestPosted(q.c.n.now)
	_, err := q.c.qp.PostSend(q.batch)
	q.batch = q.batch[:0]
	if err != nil {
		return fmt.Errorf("post a request: %w", err)
	}
	return nil
}

// postDrainMarker posts a request after all others to a queue pair in the error state.
func (q *sendQueue) postDrainMarker() error {
	q.batch = q.batch[:0]
	q.drainPending = true
	q.entries[q.next%uint32(len(q.entries))] = request{kind: requestDrainMarker, signaled: true}
	wr := verbs.SendWR{WRID: q.id(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	wr.UD.AH = q.c.ah
	q.next++
	if _, err := q.c.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return fmt.Errorf("post to a queue pair in the error state: %w", err)
	}
	return nil
}

// id is the work request ID of the next request.
func (q *sendQueue) id() uint64 {
	return uint64(q.c.index)<<connShift | uint64(q.c.epoch&epochMask)<<32 | uint64(q.next)
}

// completed handles the completion of a request and of unsignaled ones before it.
func (q *sendQueue) completed(wc *verbs.WC) {
	c := q.c
	n := uint32(wc.WRID)
	if n-q.completedBefore >= q.next-q.completedBefore {
		c.violation(traffic.Completion, "request %d completed, with %d to %d outstanding", n, q.completedBefore, int64(q.next)-1)
		return
	}
	if wc.QPN != c.qp.QPN() {
		c.violation(traffic.Completion, "a completion names queue pair %#x, not %#x", wc.QPN, c.qp.QPN())
	}
	for q.completedBefore != n {
		e := q.entries[q.completedBefore%uint32(len(q.entries))]
		q.completedBefore++
		if e.signaled {
			c.violation(traffic.Completion, "request %d completed before request %d, which was posted before it", n, q.completedBefore-1)
		}
		c.requestSucceeded(&e)
	}
	e := q.entries[n%uint32(len(q.entries))]
	q.completedBefore++
	switch {
	case e.kind == requestDrainMarker:
		q.drainPending = false
	case wc.Status != verbs.WCSuccess:
		c.fail(wc.Status)
	default:
		if want := e.kind.completion(c); wc.Opcode != want {
			c.violation(traffic.Completion, "a request completed as %v, not %v", wc.Opcode, want)
		}
		if e.kind == requestRead && int(wc.ByteLen) != c.in.size || e.kind == requestAdd && wc.ByteLen != wordLen {
			c.violation(traffic.Completion, "a request completed with %d bytes", wc.ByteLen)
		}
		c.requestSucceeded(&e)
	}
	c.schedule()
}

// completion is the opcode of the completion. It does not use the table of the emulated
// devices, which it checks.
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

// requestSucceeded handles a successful request.
func (c *conn) requestSucceeded(e *request) {
	c.noteCarriedData()
	c.n.log.last = c.n.now
	switch e.kind {
	case requestMessage:
		c.out.messageCompleted(e)
	case requestRead:
		c.in.readCompleted(e.seq)
	case requestAdd:
		c.add.handleCompletion(e.seq)
	}
}
