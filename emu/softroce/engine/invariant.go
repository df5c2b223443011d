package engine

import "fmt"

// checkInvariants panics if the state of a QP is inconsistent. No input from a peer
// may cause this. The checks are cheap and always enabled, because continuing could
// write to the wrong memory.
func (q *QP) checkInvariants() {
	r := &q.req
	next, sent := r.sinceUna(r.next), r.sinceUna(r.max)
	switch {
	case next > sent || sent > halfPSNSpace:
		q.panicInvariant("PSNs out of order")
	case q.sq.tail-q.sq.head > uint32(len(q.sq.ring)):
		q.panicInvariant("send queue exceeds its ring")
	case r.cur-q.sq.head > q.sq.tail-q.sq.head:
		q.panicInvariant("current request is not in the send queue")
	case q.rq.Overfull():
		q.panicInvariant("receive queue exceeds its ring")
	case q.resp.replays.count > len(q.resp.replays.ring):
		q.panicInvariant("replay entries exceed the ring")
	case q.resp.recv.active && q.resp.recv.filled > q.resp.recv.length:
		q.panicInvariant("receive filled beyond its length")
	}
}

func (q *QP) panicInvariant(what string) {
	panic(fmt.Sprintf("%s in %v: %s: requester %+v, sends %d..%d of %d, receives %v, responder expects %#x, holds %d of %d bytes",
		q.name(), q.state, what, q.req, q.sq.head, q.sq.tail, len(q.sq.ring), &q.rq,
		uint32(q.resp.expected), q.resp.recv.filled, q.resp.recv.length))
}
