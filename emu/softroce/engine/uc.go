package engine

import (
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// handleUC handles a UC packet; known says that its opcode is defined. A message with an error is
// dropped without a response. The next message reuses its receive, but a receive of an SRQ
// completes in error. By policy SkipAfterGap the message after an incomplete one is dropped too.
func (q *QP) handleUC(p *wire.Packet, known bool) {
	r := &q.resp
	q.reportCommEst()
	if !known {
		q.nic.Count.DropOpcode++
		return
	}
	c := p.BTH.Opcode.Class()
	psn := p.BTH.PSN
	inOrder := psn == r.expected
	r.expected = psn.Next()
	if c.Has(wire.Start) {
		if q.skipAfterGap() {
			q.nic.Count.DropSequence++
			return
		}
		q.abandonMessage()
		r.discarding = false
	} else if !inOrder {
		r.gapInMessage = r.gapInMessage || r.open != messageNone
		q.dropMessage(&q.nic.Count.DropSequence)
		return
	}
	switch {
	case q.state == verbs.QPStateErr: // abandonMessage overran the CQ
	case r.discarding:
		q.nic.Count.DropSequence++
	case !q.inSequence(c):
		q.dropMessage(&q.nic.Count.DropSequence)
	case !q.lengthOK(c, p):
		q.dropMessage(&q.nic.Count.DropLength)
	default:
		q.executeUC(p, c)
	}
}

// skipAfterGap implements the policy SkipAfterGap: after an incomplete message it drops the next
// one, and returns true.
func (q *QP) skipAfterGap() bool {
	r := &q.resp
	if q.nic.policy.SkipAfterGap && (r.gapInMessage || r.open != messageNone) {
		r.gapInMessage = false
		q.abandonMessage()
		r.discarding = true // also drop the rest of this message
		return true
	}
	return false
}

// dropMessage drops the unfinished message, and its later packets, and increments counter.
func (q *QP) dropMessage(counter *uint64) {
	*counter++
	q.abandonMessage()
	q.resp.discarding = true
}

// abandonMessage ends the unfinished message without delivering it. A claimed receive of an SRQ
// completes in error; one of the QP stays claimed, for the next message.
func (q *QP) abandonMessage() {
	r := &q.resp
	r.open = messageNone
	if q.cfg.SRQ != nil && r.recv.active {
		q.completeRecvInError(verbs.WCRemInvReqErr)
	}
}

// executeUC executes a packet. executeSend and executeWrite advance the expected PSN, but handleUC
// has advanced it already: executeUC restores its value.
func (q *QP) executeUC(p *wire.Packet, c wire.Class) {
	r := &q.resp
	next := r.expected
	var v verdict
	if c.Has(wire.Send) {
		v = q.executeSend(p, c)
	} else {
		v = q.executeWrite(p, c)
	}
	r.expected = next
	switch v {
	case accepted:
	case notReady:
		q.dropMessage(&q.nic.Count.DropNoReceive)
	case refusedInvalid:
		q.dropMessage(q.refusalCounter(c))
	case refusedAccess:
		q.dropMessage(&q.nic.Count.DropAccess)
	case refusedOperational:
		q.dropMessage(&q.nic.Count.DropAccess)
		q.fail() // the receive was invalid
	}
}

// refusalCounter returns the drop counter for an invalid message: a SEND is too
// long for its receive; a WRITE is not allowed or has a wrong length.
func (q *QP) refusalCounter(c wire.Class) *uint64 {
	switch {
	case c.Has(wire.Send):
		return &q.nic.Count.DropTooLong
	case q.attr.Access&verbs.AccessRemoteWrite == 0:
		return &q.nic.Count.DropAccess
	default:
		return &q.nic.Count.DropLength
	}
}
