package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// replay is a READ, an atomic or their like: what was asked, so that it can be
// answered again, and how much of the answer has left.
type replay struct {
	op          wire.Operation
	first, last wire.PSN
	va          uint64
	rkey        uint32
	length      uint32
	original    uint64 // an atomic's result, never computed twice
	msn         wire.MSN
	pd          nic.PD // that the key belongs to

	// The answer under way covers [from, to]; next is its next packet. A retry
	// may ask for less than the original.
	from, next, to wire.PSN
	end            uint32 // offset behind the last byte of it
	unsent         bool
	delivered      bool // an answer has left to its end
	refused        bool // a duplicate READ arrived after its key had become invalid
	continued      bool // Defects.SubReadContinues: answered as the rest of a longer READ
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

// add makes room for a new entry at the cost of the oldest, unless that was
// never answered: then the peer has exceeded what it was granted. A second
// answer that is still to leave is no obstacle. Who has room for a new request
// has had the first, and a late duplicate asks for nothing.
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

// find returns the entry that psn belongs to, or nil. Newer ones come first: a
// QP that seldom reads may hold one of the same PSN, a whole round older.
func (r *replayRing) find(psn wire.PSN) *replay {
	for i := r.count - 1; i >= 0; i-- {
		if e := r.at(i); psn.Sub(e.first) >= 0 && psn.Sub(e.last) <= 0 {
			return e
		}
	}
	return nil
}

// due returns the entry to answer next, in PSN order, or nil. With newFirst, as
// Defects.DupReadWaits has it, what was answered before waits for the rest.
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

// stirs notes that an entry has something to send again, or for the first time.
func (r *replayRing) markUnsent(e *replay) {
	for i := r.count - 1; i >= 0; i-- {
		if r.at(i) == e {
			r.idle = min(r.idle, i)
			return
		}
	}
}

// resize changes the number of entries and keeps the newest.
func (r *responder) resize(n int) {
	old := r.replays
	r.replays = replayRing{ring: make([]replay, n)}
	for i := max(0, old.count-n); i < old.count; i++ {
		*r.replays.add(true) = *old.at(i)
	}
}

// forget drops everything that is still to be answered.
func (r *responder) dropPending() {
	r.pending, r.reading, r.hold.covers = false, false, 0
	for i := range r.replays.count {
		r.replays.at(i).finish()
	}
}

// executeRead takes a request that is answered with more than an ACK.
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
			r.replays.count-- // never happened
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
		r.ackPSN = e.last // unlike a READ's, an ACK may name it
	}
	q.countMessage()
	e.msn = r.msn
	q.replayFrom(e, e.first, e.length)
	return accepted
}

// admitRead checks rights, range and the responder resources agreed on, and
// returns the entry to fill.
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
	e := q.resp.replays.add(q.nic.defects.NoRdAtomicLimit)
	if e == nil {
		return nil, refusedInvalid
	}
	return e, accepted
}

// flushAccess is the access a FLUSH needs; 0 if it asks for nothing known.
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

// replayFrom schedules the answer to e from psn on, n bytes of it.
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

// duplicate answers a request that was executed before. SENDs and WRITEs are
// acknowledged again; a READ is read again; an atomic's result is repeated.
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
		q.applySubReadDefect(p, e)
	}
	q.replayFrom(e, psn, n)
	if e.op == wire.OpReadRequest {
		_, _, err := q.remoteMemoryFor(e, p.RETH.VA, uint64(n))
		e.refused = err != nil
	}
}

// matchesReplay reports whether a duplicate asks for what e holds. A READ may ask for
// less than the original, from a later packet on, never for more or other
// memory. Of anything else only the PSN counts, since nothing is executed.
func (q *QP) matchesReplay(p *wire.Packet, e *replay, read bool) bool {
	if !read {
		return e.op != wire.OpReadRequest // which alone has more than one PSN
	}
	off := uint32(p.BTH.PSN.Sub(e.first)) * uint32(q.mtu)
	return e.op == wire.OpReadRequest && p.RETH.RKey == e.rkey &&
		p.RETH.VA == e.va+uint64(off) && p.RETH.DMALen <= e.length-off
}

// applySubReadDefect does to a repeated READ what defects ask for.
func (q *QP) applySubReadDefect(p *wire.Packet, e *replay) {
	if q.nic.defects.SubReadContinues && p.BTH.PSN != e.first {
		// What came before is forgotten.
		e.va, e.length, e.first = p.RETH.VA, p.RETH.DMALen, p.BTH.PSN
		e.continued = true
	}
}

// finish ends the answer under way.
func (e *replay) finish() { e.unsent, e.saved = false, savedBytes{} }

// maxSaved is how many bytes a QP saves for READ responses. A SEND that invalidates a
// key while more are to be sent is refused by an RNR NAK: the peer sends it again.
const maxSaved = 512 << 10

// saveReads copies the bytes that unsent READ responses need of the memory that rkey
// names, before a SEND invalidates rkey. READs that arrived before the SEND are
// answered with them, and memory is not read once its key is invalid.
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

// canSave reports whether saveReads keeps to maxSaved.
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

// readsBy reports whether e is a READ whose answer still needs memory by that key.
func (e *replay) readsBy(rkey uint32) bool {
	return e.unsent && e.op == wire.OpReadRequest && e.rkey == rkey && !e.refused && !e.saved.valid
}

// offset is that of the next response packet in the READ.
func (e *replay) offset(mtu int32) uint32 { return uint32(e.next.Sub(e.first)) * uint32(mtu) }

// readMemory fills b with what e asked for from offset off on. It reports false if
// the memory may not be read, or no longer.
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

// remoteMemoryFor resolves the key of a replayed READ in the domain it came for.
func (q *QP) remoteMemoryFor(e *replay, va, n uint64) (nic.Memory, uint64, error) {
	return q.remoteMemoryIn(e.pd, e.rkey, va, n, verbs.AccessRemoteRead)
}
