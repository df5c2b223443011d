package engine

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// executeRead executes a READ, atomic, FLUSH or ATOMIC WRITE, and schedules its response.
func (q *QP) executeRead(p *wire.Packet, c wire.Class) verdict {
	e, v := q.admitRead(p, c)
	if v != accepted {
		return v
	}
	r := &q.resp
	e.op = p.BTH.Opcode.Operation()
	e.first = p.BTH.PSN
	packets := int32(1)
	switch { // a request that is not executed fails the QP: its entry is not used
	case c.Has(wire.Read):
		e.va, e.rkey, e.length = p.RETH.VA, p.RETH.RKey, p.RETH.DMALen
		packets = packetCount(e.length, q.mtu)
	case c.Has(wire.Atomic):
		v = q.runAtomic(p, e)
	case c.Has(wire.AtomicWrite):
		v = q.runAtomicWrite(p)
	}
	if v != accepted {
		return v
	}
	e.last = e.first.Add(packets - 1)
	e.pd = q.accessPD()
	r.expected = r.expected.Add(packets)
	if !c.Has(wire.Read) {
		r.ackPSN = e.last // an ACK may carry this PSN, unlike that of a READ
	}
	r.countMessage()
	e.msn = r.msn
	q.replayFrom(e, e.first, e.length)
	return accepted
}

// admitRead checks access flags, memory range and responder resources. A FLUSH needs no access flag
// of the QP, only of the memory. admitRead returns a new replay entry, which keeps the request to
// answer duplicates of it; by the policy ReplaceUnanswered it may replace one not yet answered.
func (q *QP) admitRead(p *wire.Packet, c wire.Class) (*replay, verdict) {
	need, va, rkey, n := verbs.AccessRemoteRead, p.RETH.VA, p.RETH.RKey, uint64(p.RETH.DMALen)
	switch {
	case c.Has(wire.Atomic):
		need, va, rkey, n = verbs.AccessRemoteAtomic, p.AtomicETH.VA, p.AtomicETH.RKey, 8
	case c.Has(wire.AtomicWrite):
		need = verbs.AccessRemoteWrite
		if p.RETH.DMALen != 8 || len(p.Payload) != 8 {
			return nil, refusedInvalid
		}
	case c.Has(wire.Flush):
		need = flushAccess(p.FETH)
		if p.FETH.Selectivity == uint8(verbs.FlushMR) {
			va, n = q.nic.Mem.Span(rkey)
		}
	}
	flush := c.Has(wire.Flush)
	switch {
	case !flush && q.attr.Access&need == 0, p.RETH.DMALen > maxMessage, len(q.resp.replays.ring) == 0:
		return nil, refusedInvalid
	case flush && need == 0:
		return nil, refusedInvalid
	case (c.Has(wire.Atomic) || c.Has(wire.AtomicWrite)) && va&7 != 0:
		return nil, refusedInvalid
	}
	if _, _, err := q.remoteMemory(rkey, va, n, need); err != nil {
		return nil, refusedAccess
	}
	e := q.resp.replays.add(q.nic.policy.ReplaceUnanswered)
	if e == nil {
		return nil, refusedInvalid
	}
	return e, accepted
}

// flushAccess returns the access that a FLUSH needs, or 0 if its placement type is unknown.
func flushAccess(f wire.FETH) verbs.Access {
	var need verbs.Access
	if f.Placement&uint8(verbs.FlushGlobal) != 0 {
		need |= verbs.AccessFlushGlobal
	}
	if f.Placement&uint8(verbs.FlushPersistent) != 0 {
		need |= verbs.AccessFlushPersistent
	}
	return need
}

// runAtomic executes a COMPARE_SWAP or FETCH_ADD and keeps the original value for duplicates.
func (q *QP) runAtomic(p *wire.Packet, e *replay) verdict {
	a := &p.AtomicETH
	mem, at, err := q.remoteMemory(a.RKey, a.VA, 8, verbs.AccessRemoteAtomic)
	if err != nil {
		return refusedAccess
	}
	u := &q.nic.atomics
	u.op, u.swapAdd, u.compare = p.BTH.Opcode.Operation(), a.SwapAdd, a.Compare
	if e.original, err = u.update(mem, at); err != nil {
		return refusedOperational
	}
	return accepted
}

// runAtomicWrite stores the eight bytes of an ATOMIC WRITE atomically.
func (q *QP) runAtomicWrite(p *wire.Packet) verdict {
	mem, at, err := q.remoteMemory(p.RETH.RKey, p.RETH.VA, 8, verbs.AccessRemoteWrite)
	if err != nil {
		return refusedAccess
	}
	u := &q.nic.atomics
	u.op, u.swapAdd = wire.OpAtomicWrite, binary.LittleEndian.Uint64(p.Payload)
	if _, err := u.update(mem, at); err != nil {
		return refusedOperational
	}
	return accepted
}

// replayFrom schedules the response to e, or n bytes of it from psn for a duplicate READ.
func (q *QP) replayFrom(e *replay, psn wire.PSN, n uint32) {
	off := uint32(psn.Sub(e.first)) * uint32(q.mtu)
	e.from, e.next = psn, psn
	e.to = psn.Add(packetCount(n, q.mtu) - 1)
	e.end = off + n
	e.unsent, e.refused, e.saved = true, false, savedBytes{}
	q.resp.replays.markUnsent(e)
	q.resp.reading = true
	q.wake()
}

// handleDuplicate handles a request that was executed before. It acknowledges a SEND or
// WRITE again, reads again for a READ, and repeats the result of an atomic.
func (q *QP) handleDuplicate(p *wire.Packet) {
	r := &q.resp
	psn := p.BTH.PSN
	c := p.BTH.Opcode.Class()
	if c&(wire.Send|wire.Write) != 0 {
		ack := r.ackPSN
		q.nic.Count.Duplicates++
		if r.delay.on { // the peer has waited for the delayed ACK
			q.delayExpired()
		}
		q.respond(answer{psn: ack, ack: true})
		return
	}
	e := r.replays.find(psn)
	if e == nil || !q.matchesReplay(p, e, c.Has(wire.Read)) {
		q.nic.Count.DropReplay++
		return
	}
	q.nic.Count.Duplicates++
	n := e.length
	if e.op == wire.OpReadRequest {
		n = p.RETH.DMALen
		q.shortenReplay(p, e)
	}
	q.replayFrom(e, psn, n)
	if e.op == wire.OpReadRequest {
		_, _, err := q.remoteMemoryFor(e, p.RETH.VA, uint64(n)) // the R_Key may have become invalid
		e.refused = err != nil
	}
}

// matchesReplay reports whether a duplicate matches e. A duplicate READ may start
// at a later packet and be shorter, but must stay within the original range. For
// other requests the PSN is sufficient, since they are not executed again.
func (q *QP) matchesReplay(p *wire.Packet, e *replay, read bool) bool {
	if !read {
		return e.op != wire.OpReadRequest
	}
	off := uint32(p.BTH.PSN.Sub(e.first)) * uint32(q.mtu)
	return e.op == wire.OpReadRequest && p.RETH.RKey == e.rkey &&
		p.RETH.VA == e.va+uint64(off) && p.RETH.DMALen <= e.length-off
}

// shortenReplay implements the policy ContinuePartialRead: it answers a duplicate of the end of a
// READ as a continuation, with MIDDLE and LAST, and forgets the beginning.
func (q *QP) shortenReplay(p *wire.Packet, e *replay) {
	if q.nic.policy.ContinuePartialRead && p.BTH.PSN != e.first {
		// Earlier packets can no longer be repeated.
		e.va, e.length, e.first = p.RETH.VA, p.RETH.DMALen, p.BTH.PSN
		e.continued = true
	}
}

// maxSaved limits the bytes that a QP saves for READ responses. A SEND with
// invalidate that would exceed it gets an RNR NAK.
const maxSaved = 512 << 10

// saveReads copies the memory that unsent READ responses need before a SEND
// invalidates rkey. Memory must not be read after its key is invalidated.
func (q *QP) saveReads(rkey uint32) {
	for i := range q.resp.replays.count {
		e := q.resp.replays.at(i)
		if !e.readsBy(rkey) {
			continue
		}
		from := e.offset(q.mtu)
		data := make([]byte, e.end-from)
		if q.readMemory(e, from, data) {
			e.saved = savedBytes{valid: true, from: from, data: data}
		}
	}
}

// canSave reports whether saveReads stays within maxSaved.
func (q *QP) canSave(rkey uint32) bool {
	total := uint64(0)
	for i := range q.resp.replays.count {
		e := q.resp.replays.at(i)
		total += uint64(len(e.saved.data))
		if e.readsBy(rkey) {
			total += uint64(e.end - e.offset(q.mtu))
		}
	}
	return total <= maxSaved
}
