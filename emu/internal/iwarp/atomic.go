package iwarp

import (
	"encoding/binary"
	"math"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// atomicLen is the size of the word that atomics work on.
const atomicLen = 8

// sendAtomic makes the Atomic Request of r, a single segment. Its number serves
// as identifier.
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

// atomicRequest takes an Atomic Request. It waits its turn among the reads.
func (s *Stream) receiveAtomicRequest(a *rxSegment, msg []byte) {
	p := s.enqueue(a)
	if p == nil {
		return
	}
	p.atomic = true
	if _, err := p.req.Parse(msg); err != nil {
		panic("iwarp: an Atomic Request of the right length does not parse")
	}
	s.counters().AtomicsReceived++
	if s.reads.count == 1 {
		s.beginResponse(false)
	}
}

// execute carries an atomic out.
func (s *Stream) executeAtomic(p *peerRequest) {
	req := &p.req
	if req.Op != wire.AtomicFetchAdd && req.Op != wire.AtomicCompareSwap {
		s.refuseRead(wire.TermOpOpcode, p)
		return
	}
	if req.TO%atomicLen != 0 {
		s.refuseRead(wire.TermOpStream, p)
		return
	}
	mem, at, err := s.resolveRemote(req.STag, req.TO, atomicLen, verbs.AccessRemoteAtomic)
	if err != nil {
		s.refuseRead(readTermError(err, req.TO, atomicLen), p)
		return
	}
	if p.orig, err = s.ep.Layer.atomics.update(mem, at, req); err != nil {
		s.refuseRead(wire.TermRDMAPLocal, p)
		return
	}
}

// atomicResponse takes the answer to one of our atomics.
func (s *Stream) receiveAtomicResponse(a *rxSegment, msg []byte) {
	var h wire.AtomicResponse
	if _, err := h.Parse(msg); err != nil {
		panic("iwarp: an Atomic Response of the right length does not parse")
	}
	r := s.oldestRead
	switch {
	case r == nil || r.Op == verbs.OpRDMARead:
		s.refuseResponse(wire.TermOpOpcode, a)
		return
	case h.RequestID != uint32(r.msn):
		s.refuseResponse(wire.TermOpUnspecified, a)
		return
	}
	word := s.ep.Layer.atomics.hostOrder(h.Original)
	if s.ep.Layer.NIC.Scatter(r.SGL, s.ep.PD, 0, word) != nil {
		r.status = verbs.WCLocProtErr
		s.refuse(wire.TermDDPLocal, a)
		return
	}
	s.completeResponse(r)
}

// atomicUnit applies atomics to memory. A layer has one and keeps the operands in
// it: a function made for each atomic, to be handed to a Memory, would be
// allocated for each.
type atomicUnit struct {
	req   wire.AtomicRequest
	apply func(uint64) uint64
	word  [atomicLen]byte
}

// update carries out req on the word at off, and returns what was there before.
func (u *atomicUnit) update(mem nic.Memory, off uint64, req *wire.AtomicRequest) (uint64, error) {
	if u.apply == nil {
		u.apply = u.result
	}
	u.req = *req
	return mem.Update(off, u.apply)
}

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

// addFields adds b to a in the fields whose top bits are the ones of tops: the
// carry out of a field is lost. With no ones there is a single field.
func addFields(a, b, tops uint64) uint64 {
	// Below the top bits carries cannot leave a field; the top bits themselves are
	// a sum without carry.
	return (a&^tops + b&^tops) ^ (a^b)&tops
}

// hostOrder returns the octets of a word as this host stores them. They are valid
// until the next call.
func (u *atomicUnit) hostOrder(v uint64) []byte {
	binary.LittleEndian.PutUint64(u.word[:], v)
	return u.word[:]
}
