package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// replay is an executed READ, atomic, FLUSH or ATOMIC WRITE, kept to repeat its
// response, and the state of the response being sent.
type replay struct {
	op          wire.Operation
	first, last wire.PSN
	va          uint64
	rkey        uint32
	length      uint32
	original    uint64 // result of an atomic, repeated for duplicates
	msn         wire.MSN
	pd          nic.PD // protection domain in which rkey is checked

	// The response being sent has the PSNs [from, to]; next is the next one. A
	// duplicate READ may request less than the original.
	from, next, to wire.PSN
	end            uint32 // offset of the end of the response in the READ
	unsent         bool
	delivered      bool // a response was sent completely
	refused        bool // a duplicate READ arrived after its key had become invalid
	continued      bool // respond with MIDDLE and LAST
	saved          savedBytes
}

// savedBytes are the bytes that a READ response needs of memory whose key was
// invalidated by a later request before the response was sent.
type savedBytes struct {
	valid bool
	from  uint32 // offset in the READ
	data  []byte
}

// replayRing holds the last max_dest_rd_atomic requests, oldest first.
type replayRing struct {
	ring  []replay
	head  int
	count int
	idle  int // number of oldest entries without a response to send; due skips them
}

func (r *replayRing) at(i int) *replay { return &r.ring[(r.head+i)%len(r.ring)] }

// add returns a new entry and overwrites the oldest if the ring is full. It returns
// nil if the oldest was never answered: the peer has exceeded max_dest_rd_atomic.
// An unsent repetition does not count, because a peer that sends a new request has
// received the first response.
func (r *replayRing) add(evenUnanswered bool) *replay {
	if len(r.ring) == 0 {
		return nil
	}
	if r.count == len(r.ring) {
		if !r.at(0).delivered && !evenUnanswered {
			return nil
		}
		r.head = (r.head + 1) % len(r.ring)
		r.count--
		r.idle = max(0, r.idle-1)
	}
	r.count++
	e := r.at(r.count - 1)
	*e = replay{}
	return e
}

// find returns the newest entry that psn belongs to, or nil. An old entry may have
// the same PSN after a wrap.
func (r *replayRing) find(psn wire.PSN) *replay {
	for i := r.count - 1; i >= 0; i-- {
		if e := r.at(i); psn.Sub(e.first) >= 0 && psn.Sub(e.last) <= 0 {
			return e
		}
	}
	return nil
}

// due returns the entry whose response is sent next, in PSN order, or nil. With
// newFirst repeated responses are sent last.
func (r *replayRing) due(newFirst bool) *replay {
	var found *replay
	for i := min(r.idle, r.count); i < r.count; i++ {
		e := r.at(i)
		if !e.unsent {
			if i == r.idle {
				r.idle++
			}
			continue
		}
		if !newFirst || !e.delivered {
			return e
		}
		if found == nil {
			found = e
		}
	}
	return found
}

// markUnsent makes due consider an entry that has a response to send.
func (r *replayRing) markUnsent(e *replay) {
	for i := r.count - 1; i >= 0; i-- {
		if r.at(i) == e {
			r.idle = min(r.idle, i)
			return
		}
	}
}

// resize changes the number of entries and keeps the newest ones.
func (r *responder) resize(n int) {
	old := r.replays
	r.replays = replayRing{ring: make([]replay, n)}
	for i := max(0, old.count-n); i < old.count; i++ {
		*r.replays.add(true) = *old.at(i)
	}
}

// dropPending drops all unsent responses.
func (r *responder) dropPending() {
	r.pending, r.reading, r.hold.covers = false, false, 0
	for i := range r.replays.count {
		r.replays.at(i).finish()
	}
}

// executeRead executes a READ, atomic, FLUSH or ATOMIC WRITE.
func (q *QP) executeRead(p *wire.Packet, c wire.Class) verdict {
	e, v := q.admitRead(p, c)
	if v != accepted {
		return v
	}
	r := &q.resp
	e.op = p.BTH.Opcode.Operation()
	e.first = p.BTH.PSN
	packets := int32(1)
	switch {
	case c.Has(wire.Read):
		e.va, e.rkey, e.length = p.RETH.VA, p.RETH.RKey, p.RETH.DMALen
		packets = packetCount(e.length, q.mtu)
	case c.Has(wire.Atomic):
		if v := q.runAtomic(p, e); v != accepted {
			r.replays.count-- // not executed
			return v
		}
	case c.Has(wire.AtomicWrite):
		if v := q.runAtomicWrite(p); v != accepted {
			r.replays.count--
			return v
		}
	}
	e.last = e.first.Add(packets - 1)
	e.pd = q.accessPD()
	r.expected = r.expected.Add(packets)
	if !c.Has(wire.Read) {
		r.ackPSN = e.last // an ACK may carry this PSN, unlike that of a READ
	}
	q.countMessage()
	e.msn = r.msn
	q.replayFrom(e, e.first, e.length)
	return accepted
}

// admitRead checks access flags, memory range and responder resources, and returns
// a new replay entry.
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
		if p.FETH.Selectivity == wire.Selectivity(verbs.FlushMR) {
			va, n = q.nic.Mem.Span(rkey)
		}
	}
	flush := c.Has(wire.Flush)
	switch {
	case !flush && !q.allowsAccess(need), p.RETH.DMALen > maxMessage, len(q.resp.replays.ring) == 0:
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

// flushAccess returns the access that a FLUSH needs, or 0 if its placement type is
// unknown.
func flushAccess(f wire.FETH) verbs.Access {
	var need verbs.Access
	if f.Placement&wire.Placement(verbs.FlushGlobal) != 0 {
		need |= verbs.AccessFlushGlobal
	}
	if f.Placement&wire.Placement(verbs.FlushPersistent) != 0 {
		need |= verbs.AccessFlushPersistent
	}
	return need
}

// replayFrom schedules n bytes of the response to e, starting at psn.
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

// duplicate handles a request that was executed before. It acknowledges a SEND or
// WRITE again, reads again for a READ, and repeats the result of an atomic.
func (q *QP) duplicate(p *wire.Packet) {
	r := &q.resp
	psn := p.BTH.PSN
	info, _ := p.BTH.Opcode.Info()
	if info.Class&(wire.Send|wire.Write) != 0 {
		ack := r.ackPSN
		q.nic.Count.Duplicates++
		if r.hold.on {
			q.releaseAck()
			r.hold.noteFailure()
		}
		q.respond(answer{psn: ack, ack: true})
		return
	}
	e := r.replays.find(psn)
	if e == nil || !q.matchesReplay(p, e, info.Class.Has(wire.Read)) {
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
		_, _, err := q.remoteMemoryFor(e, p.RETH.VA, uint64(n))
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

// shortenReplay implements the policy ContinuePartialRead for a duplicate READ.
func (q *QP) shortenReplay(p *wire.Packet, e *replay) {
	if q.nic.policy.ContinuePartialRead && p.BTH.PSN != e.first {
		// Earlier packets can no longer be repeated.
		e.va, e.length, e.first = p.RETH.VA, p.RETH.DMALen, p.BTH.PSN
		e.continued = true
	}
}

// finish ends the response being sent.
func (e *replay) finish() { e.unsent, e.saved = false, savedBytes{} }

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

// readsBy reports whether the unsent response to a READ needs memory of rkey.
func (e *replay) readsBy(rkey uint32) bool {
	return e.unsent && e.op == wire.OpReadRequest && e.rkey == rkey && !e.refused && !e.saved.valid
}

// offset returns the offset of the next response packet in the READ.
func (e *replay) offset(mtu int32) uint32 { return uint32(e.next.Sub(e.first)) * uint32(mtu) }

// readMemory fills b with the data of e from offset off. It reports false if the
// memory is not readable.
func (q *QP) readMemory(e *replay, off uint32, b []byte) bool {
	switch {
	case e.refused:
		return false
	case e.saved.valid:
		copy(b, e.saved.data[off-e.saved.from:])
		return true
	}
	mem, at, err := q.remoteMemoryFor(e, e.va+uint64(off), uint64(len(b)))
	if err != nil {
		return false
	}
	return len(b) == 0 || mem.ReadAt(b, at) == nil
}

// remoteMemoryFor resolves the R_Key of e in the protection domain of the original
// request.
func (q *QP) remoteMemoryFor(e *replay, va, n uint64) (nic.Memory, uint64, error) {
	return q.remoteMemoryIn(e.pd, e.rkey, va, n, verbs.AccessRemoteRead)
}
