package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// peerRequest is a Read or Atomic Request of the peer whose response is not output completely.
type peerRequest struct {
	control    [wire.ControlLen]byte // of its segment, as received
	atomic     bool
	invalidate wire.STag
	msn        wire.MSN
	// read is the remainder of a read, advanced by every segment of the response.
	read wire.ReadRequest
	req  wire.AtomicRequest
	orig uint64 // value before the atomic
}

// enqueue appends a read or an atomic of the peer to the queue of those to answer. If the queue has
// as many as the IRD allows, enqueue ends the stream and returns nil. Policies imitate devices that
// accept one more than the next power of two, or send another Terminate error.
func (s *Stream) enqueue(a *rxSegment) *peerRequest {
	limit := int(s.ird)
	if s.policy().RoundUpIRD && s.ird > 0 {
		limit = nic.CeilPow2(limit) + 1
	}
	if s.reads == nil {
		s.reads = new(nic.FIFO[peerRequest])
	}
	if s.reads.Len() >= limit {
		e := wire.TermUntaggedNoBuffer
		if s.policy().Terminate.ExcessReadIsStream {
			e = wire.TermOpStream
		}
		s.refuse(e, a)
		return nil
	}
	s.reads.Push(peerRequest{control: [2]byte(a.raw), invalidate: a.hdr.Untagged.Invalidate, msn: a.hdr.Untagged.MSN})
	return s.reads.Last()
}

// receiveReadRequest queues a received Read Request, and starts its response if it is the first.
func (s *Stream) receiveReadRequest(a *rxSegment, msg []byte) {
	p := s.enqueue(a)
	if p == nil { // more than the IRD: the stream has ended
		return
	}
	if _, err := p.read.Parse(msg); err != nil {
		panic("iwarp: a Read Request of the right length does not parse")
	}
	s.counters().ReadsReceived++
	if s.reads.Len() == 1 {
		s.beginResponse(atOnce)
	}
}

const atOnce, afterWaiting = false, true // values of waited

// beginResponse starts the response to the first request of the queue: it checks the memory of
// a read, and executes an atomic. waited is set if the request waited for the response to another.
func (s *Stream) beginResponse(waited bool) {
	p := s.reads.First()
	if p.atomic {
		s.executeAtomic(p)
		return
	}
	if s.policyState != nil {
		s.policyState.beginRead(&p.read, waited && s.policy().EmptyReadRepeats)
	}
	if p.read.Size > 0 {
		s.readSource(p, p.read.Size)
	}
}

// finishResponse removes the first request of the peer from the queue and starts the response to
// the next. A work request of this side, if there is one, is sent in between.
func (s *Stream) finishResponse() {
	s.inProgress, s.preferred = noSource, requester
	s.reads.Pop()
	if s.reads.Len() > 0 {
		s.beginResponse(afterWaiting)
	}
}

// sendResponse builds the next segment of the current response, of at most limit octets. It reports
// false if the memory is no longer valid; the stream has ended then.
func (s *Stream) sendResponse(limit int, g *Segment) bool {
	p := s.reads.First()
	if p.atomic {
		g.Header = s.untagged(g.Header, wire.OpAtomicResponse, wire.QueueAtomicResponse)
		g.Header = wire.AtomicResponse{RequestID: p.req.RequestID, Original: p.orig}.Append(g.Header)
		s.finishResponse()
		return true
	}
	n := min(uint32(limit-taggedHeader), p.read.Size)
	t := wire.Tagged{STag: p.read.SinkSTag, TO: p.read.SinkTO}
	g.Header = t.Append(s.control(wire.OpReadResponse, n == p.read.Size).Append(g.Header))
	if n > 0 && !s.appendReadSource(g, p, n) {
		return false
	}
	s.inProgress = responder
	p.read.SinkTO += uint64(n)
	p.read.SrcTO += uint64(n)
	if p.read.Size -= n; p.read.Size == 0 {
		s.finishResponse()
	}
	return true
}

// appendReadSource appends the next n octets that the read p asks for to g: a copy, or, if there
// are many, the memory itself, which the application may change (Volatile). It reports false if a
// failed check has ended the stream.
func (s *Stream) appendReadSource(g *Segment, p *peerRequest, n uint32) bool {
	mem, at, ok := s.readSource(p, n)
	if !ok {
		return false
	}
	if n > maxCopied {
		if piece := sliceInPlace(mem, at, uint64(n)); piece != nil {
			g.Payload, g.Volatile = append(g.Payload, piece), true
			return true
		}
	}
	end := len(g.Header)
	g.Header = slices.Grow(g.Header, int(n))[:end+int(n)]
	if mem.ReadAt(g.Header[end:], at) != nil {
		s.refuseRequest(wire.TermRDMAPLocal, p)
		return false
	}
	return true
}
