package iwarp

import (
	"encoding/binary"
	"math"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// atomicLen is the size of an atomic operand in octets.
const atomicLen = 8

// sendAtomic builds the Atomic Request of r, a single segment, and reports false if r fails
// locally. The MSN also serves as the request identifier. A FetchAdd has a CompareMask of all ones,
// as RFC 7306 demands.
func (s *Stream) sendAtomic(r *Request, g *Segment) bool {
	switch {
	case s.ord == 0:
		s.failRequest(r, verbs.WCLocQPOpErr)
		return false
	case !s.ep.Layer.NIC.Writable(r.SGL, s.ep.PD, atomicLen):
		s.failRequest(r, verbs.WCLocProtErr)
		return false
	}
	s.startReadOrAtomic(r, g, wire.OpAtomicRequest)
	h := wire.AtomicRequest{
		Op: wire.AtomicFetchAdd, RequestID: uint32(r.msn), STag: wire.STag(r.Remote.RKey), TO: r.Remote.Addr,
		AddSwap: r.Atomic.CompareAdd, CompareMask: math.MaxUint64,
	}
	if r.Op == verbs.OpAtomicCmpAndSwp {
		h.Op, h.AddSwap, h.AddSwapMask, h.Compare = wire.AtomicCompareSwap, r.Atomic.Swap, math.MaxUint64, r.Atomic.CompareAdd
	}
	g.Header = h.Append(g.Header)
	return true
}

// receiveAtomicRequest queues a received Atomic Request, and executes it at once if no earlier
// read or atomic of the peer waits for its response.
func (s *Stream) receiveAtomicRequest(a *rxSegment, msg []byte) {
	p := s.enqueue(a)
	if p == nil { // more than the IRD: the stream has ended
		return
	}
	p.atomic = true
	if _, err := p.req.Parse(msg); err != nil {
		panic("iwarp: an Atomic Request of the right length does not parse")
	}
	s.counters().AtomicsReceived++
	if s.reads.Len() == 1 {
		s.beginResponse(atOnce)
	}
}

// executeAtomic executes an atomic of the peer and keeps the original value for the response. An
// invalid one ends the stream.
func (s *Stream) executeAtomic(p *peerRequest) {
	req := &p.req
	if req.Op != wire.AtomicFetchAdd && req.Op != wire.AtomicCompareSwap {
		s.refuseRequest(wire.TermOpOpcode, p)
		return
	}
	if req.TO%atomicLen != 0 { // RFC 7306, section 5.1: a catastrophic error of the stream
		s.refuseRequest(wire.TermOpStream, p)
		return
	}
	mem, at, err := s.resolveRemote(req.STag, req.TO, atomicLen, verbs.AccessRemoteAtomic)
	if err != nil {
		s.refuseRequest(readTermError(err, req.TO, atomicLen), p)
		return
	}
	if p.orig, err = s.ep.Layer.atomics.update(mem, at, req); err != nil {
		s.refuseRequest(wire.TermRDMAPLocal, p)
	}
}

// receiveAtomicResponse completes the oldest outstanding request. If that request is not an atomic
// with the ID of the response, or if its memory is invalid, the stream ends.
func (s *Stream) receiveAtomicResponse(a *rxSegment, msg []byte) {
	var h wire.AtomicResponse
	if _, err := h.Parse(msg); err != nil {
		panic("iwarp: an Atomic Response of the right length does not parse")
	}
	r := s.oldestOutstanding
	switch {
	case r == nil || r.Op == verbs.OpRDMARead:
		s.refuseResponse(wire.TermOpOpcode, a)
		return
	case h.RequestID != uint32(r.msn):
		s.refuseResponse(wire.TermOpUnspecified, a)
		return
	}
	word := s.ep.Layer.atomics.word[:]
	binary.LittleEndian.PutUint64(word, h.Original) // the octet order of memory
	if s.ep.Layer.NIC.Scatter(r.SGL, s.ep.PD, 0, word) != nil {
		r.status = verbs.WCLocProtErr
		s.refuse(wire.TermDDPLocal, a)
		return
	}
	s.completeResponse(r)
}

// atomicUnit applies atomics to memory. It stores the operands, because a closure for each
// atomic would be an allocation for each.
type atomicUnit struct {
	req   wire.AtomicRequest
	apply func(uint64) uint64
	word  [atomicLen]byte
}

// update executes req on the word at off and returns the previous value. It keeps the function
// value u.apply, so that a call allocates nothing.
func (u *atomicUnit) update(mem nic.Memory, off uint64, req *wire.AtomicRequest) (uint64, error) {
	if u.apply == nil {
		u.apply = u.result
	}
	u.req = *req
	return mem.Update(off, u.apply)
}

// result returns the new value of a word that holds v.
func (u *atomicUnit) result(v uint64) uint64 {
	q := &u.req
	switch {
	case q.Op == wire.AtomicFetchAdd:
		return addFields(v, q.AddSwap, q.AddSwapMask)
	case v&q.CompareMask == q.Compare&q.CompareMask:
		return v&^q.AddSwapMask | q.AddSwap&q.AddSwapMask
	default:
		return v
	}
}

// addFields adds b to a field by field: tops has the top bit of each field, and 0 means a single
// field. The carry out of a field is lost.
func addFields(a, b, tops uint64) uint64 {
	// Without the top bits no carry can leave a field; the top bits are added without carry.
	return (a&^tops + b&^tops) ^ (a^b)&tops
}
