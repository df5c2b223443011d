package engine

import "fmt"

// checkInvariants panics if a QP's bookkeeping contradicts itself. It is a handful of
// comparisons and always on: whatever a peer sends, it must not come to this,
// and going on would write to the wrong memory or complete the wrong request.
func (q *QP) checkInvariants() {
	r := &q.req
	next, sent := r.sinceUna(r.next), r.sinceUna(r.max)
	switch {
	case next > sent || sent > halfPSNSpace:
		q.panicInvariant("PSNs out of order")
	case q.sq.tail-q.sq.head > uint32(len(q.sq.ring)):
		q.panicInvariant("more sends queued than fit")
	case r.cur-q.sq.head > q.sq.tail-q.sq.head:
		q.panicInvariant("sending what is not queued")
	case q.rq.Overfull():
		q.panicInvariant("more receives queued than fit")
	case q.resp.replays.count > len(q.resp.replays.ring):
		q.panicInvariant("more replays kept than fit")
	case q.resp.recv.active && q.resp.recv.filled > q.resp.recv.length:
		q.panicInvariant("a receive holds more than its buffers")
	}
}

func (q *QP) panicInvariant(what string) {
	panic(fmt.Sprintf("%s in %v: %s: requester %+v, sends %d..%d of %d, receives %v, responder expects %#x, holds %d of %d bytes",
		q.name(), q.state, what, q.req, q.sq.head, q.sq.tail, len(q.sq.ring), &q.rq,
		uint32(q.resp.expected), q.resp.recv.filled, q.resp.recv.length))
}
