package engine

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/internal/queue"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// errorMessage waits to be sent.
type errorMessage struct {
	path      path
	header    wire.Header
	terminate ddp.Terminate
}

// errorQueue bounds how many error messages leave: tokens come in at a rate, and
// each message takes one.
type errorQueue struct {
	waiting queue.FIFO[errorMessage]
	tokens  int64 // in parts of errorToken
	filled  mono.Time
}

// errorToken makes a token divisible into nanoseconds.
const errorToken = int64(1e9)

// allow takes a token, if there is one.
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

// offend handles a segment that its sender should not have sent: the sender is
// told, the program is told, and the QP stops unless it was made to go on.
func (q *QP) offend(in *inbound, e ddp.TermError) {
	n := q.nic
	n.Count.ErrorsFound++
	n.Report(nic.Event{Type: accusation(e), QP: q})
	switch {
	case in.group:
	case !n.errors.allow(n.clock, n.cfg.ErrorRate, n.cfg.ErrorBurst):
		n.Count.ErrorsSuppressed++
	default:
		n.errors.waiting.Push(errorMessage{
			path: in.from.back(), header: wire.NewHeader(wire.KindUD, in.from.qp, q.num, n.parsed.Key),
			terminate: ddp.Terminate{Error: e, HasLength: true, HasDDP: true, SegmentLength: uint16(in.length), DDP: *in.header},
		})
	}
	if !q.isolate {
		q.fail()
	}
}

// emitError builds the next error message, if there is one.
func (n *NIC) emitError(d *link.Datagram) bool {
	m, ok := n.errors.waiting.Pop()
	if !ok {
		return false
	}
	n.Count.ErrorsSent++
	m.path.address(d)
	b := m.header.Append(d.Payload[:0])
	b = ddp.Untagged{QN: ddp.QueueTerminate, MSN: ddp.FirstMSN}.Append(ddp.NewControl(ddp.OpTerminate, true).Append(b))
	d.Payload = wire.AppendCRC(m.terminate.Append(b), 0)
	return true
}

// takeErrorMessage notes what a peer found wrong. It changes nothing: anybody
// could have sent it.
func (n *NIC) takeErrorMessage(q *QP, from *source, body []byte) {
	var t ddp.Terminate
	if _, err := t.ParseOrder(body, ddp.OrderRFC); err != nil {
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

// accusation is the event for what a peer did wrong.
func accusation(e ddp.TermError) verbs.AsyncEventType {
	switch {
	case e.Layer == ddp.LayerRDMAP && e.Type == ddp.RDMAPRemoteProtection,
		e.Layer == ddp.LayerDDP && e.Type == ddp.DDPTagged && e != ddp.TermTaggedVersion:
		return verbs.EventQPAccessErr
	case e.Type == ddp.RDMAPLocal: // of either layer
		return verbs.EventQPFatal
	}
	return verbs.EventQPReqErr
}
