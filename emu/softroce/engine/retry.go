package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// timeout handles an expired transport timer. The requester retransmits from the oldest
// unacknowledged PSN, or fails when no retry is left.
func (q *QP) timeout() {
	r := &q.req
	r.timer, r.rnrUntil = mono.Never, mono.Never
	if !r.outstanding() {
		return
	}
	q.nic.Count.Timeouts++
	if !q.useRetry() {
		return
	}
	r.nakSeen = false
	q.rewind(r.una)
}

// loadRetries restores the retry counters to the attributes of the QP.
func (q *QP) loadRetries() {
	r := &q.req
	r.retries, r.rnrRetries = q.attr.RetryCnt, q.attr.RNRRetry
}

// useRetry decrements the retry counter. If no retry is left, an ARMED QP migrates
// to its alternate path; others fail.
func (q *QP) useRetry() bool {
	r := &q.req
	switch {
	case q.attr.RetryCnt == 7 && q.nic.policy.UnlimitedRetries:
	case r.retries > 0:
		r.retries--
	case q.attr.PathMigState == verbs.MigArmed:
		q.migrate()
		r.retries = q.attr.RetryCnt
	default:
		q.nic.Count.RetryExceeded++
		q.failRequest(q.sq.at(q.sq.head), verbs.WCRetryExcErr)
		return false
	}
	return true
}

// rewind makes psn the next packet to send.
func (q *QP) rewind(psn wire.PSN) {
	r := &q.req
	r.timer = mono.Never
	r.reads = 0
	r.cur, r.pkt, r.next = q.sq.head, 0, psn
	for ; r.cur != q.sq.tail; r.cur++ {
		w := q.sq.at(r.cur)
		if w.state == wqePosted || w.state == wqeFailed {
			break
		}
		if w.state == wqeDone {
			continue
		}
		if psn.Sub(w.last) <= 0 {
			r.pkt = psn.Sub(w.first)
			break
		}
		if w.readLike() {
			r.reads++
		}
	}
	r.sinceAckReq = 0
	q.wake()
}

// retransmitFrom retransmits from psn, once for each loss. Further NAKs for the
// same PSN are ignored until there is progress.
func (q *QP) retransmitFrom(psn wire.PSN) {
	r := &q.req
	switch {
	case r.next == psn:
		return
	case r.nakSeen && r.nakPSN == psn:
		return
	case r.nakSeen && q.nic.policy.OneNAKPerWindow:
		return
	}
	if !q.useRetry() {
		return
	}
	r.nakSeen, r.nakPSN, r.nakEnd = true, psn, r.max
	q.rewind(psn)
}

// handleRNRNAK rewinds to psn and waits for the RNR timer. A duplicate RNR NAK does
// not change the wait.
func (q *QP) handleRNRNAK(now mono.Time, psn wire.PSN, code uint8) {
	r := &q.req
	w := q.findRequest(psn)
	if w == nil || r.rnrUntil != mono.Never {
		return
	}
	if q.attr.RNRRetry != 7 {
		if r.rnrRetries == 0 {
			q.nic.Count.RNRExceeded++
			q.failRequest(w, verbs.WCRNRRetryExcErr)
			return
		}
		r.rnrRetries--
	}
	q.rewind(psn) // also stops the transport timer
	r.rnrUntil = now.Add(q.rnrDelay(code))
}

func (q *QP) rnrDelay(code uint8) time.Duration {
	if d := q.nic.policy.RNRCode25; code == 25 && d != 0 {
		return q.roundTimer(d)
	}
	return q.roundTimer(wire.RNRDelay(code))
}

// rnrWaitExpired ends an RNR wait.
func (q *QP) rnrWaitExpired() {
	q.req.rnrUntil = mono.Never
	q.wake()
}

// ackTimeout returns the interval of the transport timer, or 0 if it is disabled.
func (q *QP) ackTimeout() time.Duration {
	return q.roundTimer(wire.AckTimeout(q.attr.Timeout))
}

// roundTimer rounds a timer up to the policy's granularity.
func (q *QP) roundTimer(d time.Duration) time.Duration {
	tick := q.nic.policy.TimerGranularity
	if tick == 0 {
		return d
	}
	return (d + tick - 1) / tick * tick
}
