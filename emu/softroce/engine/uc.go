package engine

import (
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// handleUC handles a packet of an unreliable connection. Nothing is ever
// answered: a message that cannot be taken is dropped whole, and the next one
// starts afresh. A receive that a dropped message had begun to fill is used for
// the next; one of a shared queue, which others may be waiting for, completes
// in error.
func (q *QP) handleUC(p *wire.Packet, known bool) {
	r := &q.resp
	if !known {
		q.nic.Count.DropOpcode++
		return
	}
	info, _ := p.BTH.Opcode.Info()
	psn := p.BTH.PSN
	inOrder := psn == r.expected
	r.expected = psn.Next()
	if info.Class.Has(wire.Start) {
		if q.dropsStart() {
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
	case q.state == verbs.QPStateErr: // the receive given up had no place in its CQ
	case r.discarding:
		q.nic.Count.DropSequence++
	case !q.inSequence(info.Class):
		q.dropMessage(&q.nic.Count.DropSequence)
	case !q.lengthOK(info.Class, p):
		q.dropMessage(&q.nic.Count.DropLength)
	default:
		q.executeUC(p, info.Class)
	}
}

// dropsStart reports whether UCLosesNext drops the start of a message.
func (q *QP) dropsStart() bool {
	r := &q.resp
	if q.nic.defects.UCLosesNext && (r.gapInMessage || r.open != messageNone) {
		r.gapInMessage = false
		q.abandonMessage()
		r.discarding = true // and the rest of this message with it
		return true
	}
	return false
}

// dropMessage drops the message under way and counts why.
func (q *QP) dropMessage(counter *uint64) {
	*counter++
	q.abandonMessage()
	q.resp.discarding = true
}

// abandonMessage ends the message under way without delivering it.
func (q *QP) abandonMessage() {
	r := &q.resp
	r.open = messageNone
	if q.srq != nil && r.recv.active {
		q.completeRecvInError(verbs.WCRemInvReqErr)
	}
}

// executeUC carries out a packet in order. The PSN has been noted already, so
// what executing does to it is put right afterwards.
func (q *QP) executeUC(p *wire.Packet, c wire.Class) {
	r := &q.resp
	next := r.expected
	r.expected = p.BTH.PSN
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
		q.fail() // the receive itself is at fault
	}
}

// refusalCounter is where a message that may not be is counted: a SEND is then
// too long for its receive, a WRITE is not allowed or not as long as it said.
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
