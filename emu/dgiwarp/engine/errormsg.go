package engine

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// errorMessage is an error message to be sent.
type errorMessage struct {
	path      path
	header    wire.Header
	terminate ddp.Terminate
}

// errorQueue limits the rate of error messages by a token bucket.
type errorQueue struct {
	waiting nic.FIFO[errorMessage]
	tokens  int64 // in units; see errorToken
	filled  mono.Time
}

// errorToken is the number of units in a token: 1 token per second is 1 unit per nanosecond.
const errorToken = int64(1e9)

// allow takes a token for an error message, and reports whether there was one. The bucket gets rate
// tokens per second and holds up to burst. e.tokens counts in units, errorToken per token, of which
// the bucket gets rate per nanosecond.
func (e *errorQueue) allow(now mono.Time, rate, burst int) bool {
	elapsed := int64(now.Sub(e.filled))
	e.filled = now
	full := int64(burst) * errorToken
	if elapsed > full/int64(max(rate, 1)) {
		e.tokens = full
	} else {
		e.tokens = min(e.tokens+elapsed*int64(rate), full)
	}
	if e.tokens < errorToken {
		return false
	}
	e.tokens -= errorToken
	return true
}

// refuseSegment handles an invalid segment: it raises an event, sends an error message unless the
// segment was multicast or a rate limit forbids it, and fails the QP unless it is to survive errors
// of peers (isolate). The error message has the key of the received packet, n.parsed.
func (q *QP) refuseSegment(in *inbound, e ddp.TermError) {
	n := q.nic
	n.Count.ErrorsFound++
	n.Report(nic.Event{Type: iwarp.PeerErrorEvent(e), QP: q})
	switch {
	case in.group:
	case !n.errors.allow(n.clock, n.cfg.ErrorRate, n.cfg.ErrorBurst):
		n.Count.ErrorsSuppressed++
	default:
		n.errors.waiting.Push(errorMessage{
			path: in.from.replyPath(), header: wire.NewHeader(wire.KindUD, in.from.qp, q.QPN, n.parsed.Key),
			terminate: ddp.Terminate{Error: e, HasLength: true, HasDDP: true, SegmentLength: uint16(in.length), DDP: *in.header},
		})
	}
	if !q.isolate {
		q.fail()
	}
}

// emitError builds the next error message and reports whether there was one.
func (n *NIC) emitError(d *link.Datagram) bool {
	m, ok := n.errors.waiting.Pop()
	if !ok {
		return false
	}
	n.Count.ErrorsSent++
	m.path.address(d)
	b := m.header.Append(d.Payload[:0])
	b = ddp.Untagged{QN: ddp.QueueTerminate, MSN: ddp.FirstMSN}.Append(ddp.NewControl(ddp.OpTerminate, lastSegment).Append(b))
	d.Payload = wire.AppendCRC(m.terminate.Append(b), packetStart)
	return true
}

// receiveErrorMessage records the error that a peer reports, and raises an event. It does not fail
// the QP, since the message may be forged.
func (n *NIC) receiveErrorMessage(q *QP, from *source, body []byte) {
	var t ddp.Terminate
	if _, err := t.ParseWithOrder(body, ddp.OrderRFC); err != nil { // the order of bits in RFC 5040
		n.Count.DropMalformed++
		return
	}
	n.Count.ErrorsReceived++
	q.reported = ErrorReport{From: from.src, FromQP: from.qp, Error: t.Error}
	if t.HasDDP && !t.DDP.Control.Tagged {
		q.reported.MSN, q.reported.HasMSN = t.DDP.Untagged.MSN, true
	}
	n.Report(nic.Event{Type: verbs.EventQPReqErr, QP: q})
}
