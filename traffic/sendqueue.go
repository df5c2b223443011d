package traffic

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// SendQueue posts requests in batches, in which only the last request is signaled, and holds the
// requests that have not completed.
type SendQueue struct {
	requests []Request // by number, modulo
	next     uint32    // number of the next request
	oldest   uint32    // requests before it have completed
	draining bool      // the drain marker has not completed

	qp    verbs.QP
	id    uint64   // upper half of work request IDs
	ud    verbs.UD // the peer of datagrams
	srqn  uint32   // the peer's SRQ with XRC
	batch []verbs.SendWR
	sges  []verbs.SGE // of the batch
}

// Request is a posted request.
type Request struct {
	Kind     uint8 // the caller's
	Seq      int   // the caller's
	Returns  int   // bytes that a READ or atomic returns
	Op       verbs.WROpcode
	Signaled bool
	marker   bool // the drain marker
}

// maxBatch is the number of requests posted in one call.
const maxBatch = 32

// NewSendQueue returns a queue for depth requests. One of them is reserved for Drain.
func NewSendQueue(depth int) *SendQueue {
	return &SendQueue{requests: make([]Request, depth), batch: make([]verbs.SendWR, 0, maxBatch), sges: make([]verbs.SGE, maxBatch)}
}

// Attach sets the queue pair, and forgets the requests of an earlier one. Work request IDs
// have id in the upper half and the number of the request in the lower.
func (q *SendQueue) Attach(qp verbs.QP, id uint32) {
	q.qp, q.id, q.ud, q.srqn = qp, uint64(id)<<32, verbs.UD{}, 0
	q.next, q.oldest, q.draining = 0, 0, false
	q.batch = q.batch[:0]
}

// SetDestination sets the destination of UD requests, and the number of the peer's SRQ for XRC.
func (q *SendQueue) SetDestination(ud verbs.UD, srqn uint32) { q.ud, q.srqn = ud, srqn }

// Depth is how many requests the queue can hold, including the marker of Drain.
func (q *SendQueue) Depth() int { return len(q.requests) }

// Room is how many more requests can be added, besides the marker of Drain.
func (q *SendQueue) Room() int { return len(q.requests) - 1 - q.Outstanding() }

// Outstanding is the number of requests that have not completed.
func (q *SendQueue) Outstanding() int { return int(q.next - q.oldest) }

// Draining reports whether Drain was called and its request has not completed.
func (q *SendQueue) Draining() bool { return q.draining }

// Batched is the number of requests that Flush posts.
func (q *SendQueue) Batched() int { return len(q.batch) }

// Full reports whether Flush must be called before more requests are added.
func (q *SendQueue) Full() bool { return len(q.batch) == maxBatch }

// Add adds request r to the batch. sge is the local memory of the request; length 0 means none.
// The caller must have checked Room (of the queue) and Full (of the batch), and sets the other
// fields of the returned work request.
func (q *SendQueue) Add(r Request, sge verbs.SGE) *verbs.SendWR {
	i := len(q.batch)
	q.batch = q.batch[:i+1]
	wr := &q.batch[i]
	*wr = verbs.SendWR{WRID: q.id | uint64(q.next), Opcode: r.Op, UD: q.ud}
	wr.XRC.SRQN = q.srqn
	if q.sges[i] = sge; sge.Length > 0 {
		wr.SGL = q.sges[i : i+1]
	}
	q.push(r)
	return wr
}

// push appends a request to those that have not completed.
func (q *SendQueue) push(r Request) {
	q.requests[q.next%uint32(len(q.requests))] = r
	q.next++
}

// Flush posts the batch, with its last request signaled.
func (q *SendQueue) Flush() error {
	if len(q.batch) == 0 {
		return nil
	}
	q.batch[len(q.batch)-1].Flags |= verbs.SendSignaled
	q.requests[(q.next-1)%uint32(len(q.requests))].Signaled = true
	_, err := q.qp.PostSend(q.batch)
	q.batch = q.batch[:0]
	if err != nil {
		return fmt.Errorf("post a request: %w", err)
	}
	return nil
}

// Drain posts a marker request to a queue pair in the error state, and drops the batch. When the
// marker completes (see Draining), all requests before it have.
func (q *SendQueue) Drain() error {
	q.batch = q.batch[:0]
	q.draining = true
	wr := verbs.SendWR{WRID: q.id | uint64(q.next), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	wr.UD.AH = q.ud.AH // a UD send needs an address handle
	q.push(Request{Op: verbs.OpSend, Signaled: true, marker: true})
	if _, err := q.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return fmt.Errorf("post to a queue pair in the error state: %w", err)
	}
	return nil
}

// Complete handles the completion of a request and of the unsignaled requests before it. It calls
// done for each that succeeded, except the marker of Drain. It returns the status of the request,
// WCSuccess for the marker, and an error for a completion out of order or with wrong fields.
func (q *SendQueue) Complete(wc *verbs.WC, done func(Request)) (status verbs.WCStatus, err error) {
	n := uint32(wc.WRID)
	if n-q.oldest >= q.next-q.oldest { // modulo 2^32: n is not from oldest to next-1
		last := int64(q.next) - 1 // -1 before the first request
		return verbs.WCSuccess, fmt.Errorf("request %d completed, but only %d to %d are outstanding", n, q.oldest, last)
	}
	if wc.QPN != q.qp.QPN() {
		err = fmt.Errorf("a completion names queue pair %#x, not %#x", wc.QPN, q.qp.QPN())
	}
	for q.oldest != n {
		r := q.requests[q.oldest%uint32(len(q.requests))]
		if q.oldest++; r.Signaled && err == nil {
			err = fmt.Errorf("request %d completed before request %d, which was posted before it", n, q.oldest-1)
		}
		done(r)
	}
	r := q.requests[n%uint32(len(q.requests))]
	q.oldest++
	switch {
	case r.marker:
		q.draining = false
	case wc.Status != verbs.WCSuccess:
		return wc.Status, err
	default:
		switch want := CompletionOf(r.Op); {
		case err != nil:
		case wc.Opcode != want:
			err = fmt.Errorf("a request completed as %v, not %v", wc.Opcode, want)
		case r.Returns > 0 && int(wc.ByteLen) != r.Returns: // a READ or atomic
			err = fmt.Errorf("a request completed with %d bytes, not %d", wc.ByteLen, r.Returns)
		}
		done(r)
	}
	return verbs.WCSuccess, err
}

// CompletionOf is the opcode of the completion of a request. It does not use the table of the
// emulated devices, because programs check the devices with it.
func CompletionOf(op verbs.WROpcode) verbs.WCOpcode { return completions[op] }

// completions is indexed by the opcode of the request; those that are not listed are sends.
var completions = [verbs.OpAtomicWrite + 1]verbs.WCOpcode{
	verbs.OpRDMAWrite: verbs.WCOpRDMAWrite, verbs.OpRDMAWriteImm: verbs.WCOpRDMAWrite,
	verbs.OpRDMARead: verbs.WCOpRDMARead, verbs.OpAtomicCmpAndSwp: verbs.WCOpCompSwap,
	verbs.OpAtomicFetchAdd: verbs.WCOpFetchAdd, verbs.OpLocalInv: verbs.WCOpLocalInv,
	verbs.OpBindMW: verbs.WCOpBindMW, verbs.OpFlush: verbs.WCOpFlush, verbs.OpAtomicWrite: verbs.WCOpAtomicWrite,
}
