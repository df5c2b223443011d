package engine

import (
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// takeUC handles a packet of an unreliable connection. Nothing is ever
// answered: a message that cannot be taken is dropped whole, and the next one
// starts afresh. A receive that a dropped message had begun to fill is used for
// the next; one of a shared queue, which others may be waiting for, completes
// in error.
func (q *QP) takeUC(p *wire.Packet, known bool) {
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
		if q.skipStart() {
			q.nic.Count.DropSequence++
			return
		}
		q.abandon()
		r.broken = false
	} else if !inOrder {
		r.cut = r.cut || r.open != messageNone
		q.breakMessage(&q.nic.Count.DropSequence)
		return
	}
	switch {
	case q.state == verbs.QPStateErr: // the receive given up had no place in its CQ
	case r.broken:
		q.nic.Count.DropSequence++
	case !q.inSequence(info.Class):
		q.breakMessage(&q.nic.Count.DropSequence)
	case !q.lengthOK(info.Class, p):
		q.breakMessage(&q.nic.Count.DropLength)
	default:
		q.executeUC(p, info.Class)
	}
}

// skipStart reports whether UCLosesNext drops the start of a message.
func (q *QP) skipStart() bool {
	r := &q.resp
	if q.nic.q.UCLosesNext && (r.cut || r.open != messageNone) {
		r.cut = false
		q.abandon()
		r.broken = true // and the rest of this message with it
		return true
	}
	return false
}

// breakMessage drops the message under way and counts why.
func (q *QP) breakMessage(counter *uint64) {
	*counter++
	q.abandon()
	q.resp.broken = true
}

// abandon ends the message under way without delivering it.
func (q *QP) abandon() {
	r := &q.resp
	r.open = messageNone
	if q.srq != nil && r.held.active {
		q.endHeld(verbs.WCRemInvReqErr)
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
		q.breakMessage(&q.nic.Count.DropNoReceive)
	case refusedInvalid:
		q.breakMessage(q.refusalCounter(c))
	case refusedAccess:
		q.breakMessage(&q.nic.Count.DropAccess)
	case refusedOperational:
		q.breakMessage(&q.nic.Count.DropAccess)
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
