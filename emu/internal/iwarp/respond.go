package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// pending is a read or an atomic of the peer, from its arrival until the answer
// has left.
type peerRequest struct {
	control    [wire.ControlLen]byte // of its segment, as it came
	atomic     bool
	invalidate wire.STag
	msn        wire.MSN
	// read goes on with every segment of the answer: what is left of it. Of an
	// atomic it is unused.
	read wire.ReadRequest
	req  wire.AtomicRequest
	orig uint64 // what an atomic found
}

// readQueue is the peer's reads and atomics, oldest first. The first is being
// answered.
type readQueue struct {
	ring  []peerRequest
	head  int
	count int
}

func (q *readQueue) front() *peerRequest { return &q.ring[q.head] }

func (q *readQueue) pop() {
	if q.head++; q.head == len(q.ring) {
		q.head = 0
	}
	q.count--
}

// inboundLimit is how many reads and atomics the peer may have under way.
func (s *Stream) inboundLimit() int {
	if s.defects().IRDRoundedUp && s.ird > 0 {
		return int(ceilPow2(s.ird)) + 1
	}
	return int(s.ird)
}

// enqueue finds a place for a read or an atomic, or nil if the peer has as many
// under way as it may.
func (s *Stream) enqueue(a *rxSegment) *peerRequest {
	limit := s.inboundLimit()
	if s.reads == nil && limit > 0 {
		s.reads = &readQueue{ring: make([]peerRequest, limit)}
	}
	if s.reads == nil || s.reads.count == limit {
		e := wire.TermUntaggedNoBuffer
		if s.defects().ReadOverflowsStream {
			e = wire.TermOpStream
		}
		s.refuse(e, a)
		return nil
	}
	q := s.reads
	p := &q.ring[(q.head+q.count)%len(q.ring)]
	q.count++
	*p = peerRequest{control: [2]byte(a.raw), invalidate: a.hdr.Untagged.Invalidate, msn: a.hdr.Untagged.MSN}
	return p
}

// readRequest takes a Read Request.
func (s *Stream) receiveReadRequest(a *rxSegment, msg []byte) {
	p := s.enqueue(a)
	if p == nil {
		return
	}
	if _, err := p.read.Parse(msg); err != nil {
		panic("iwarp: a Read Request of the right length does not parse")
	}
	s.counters().ReadsReceived++
	if s.reads.count == 1 {
		s.beginResponse(false)
	}
}

// begin starts to answer the first of the peer's requests: reads are checked,
// atomics carried out. behind says that it had to wait for another.
func (s *Stream) beginResponse(behind bool) {
	p := s.reads.front()
	if p.atomic {
		s.executeAtomic(p)
		return
	}
	if s.siw != nil {
		s.siw.beginRead(&p.read, behind && s.defects().ZeroReadRepeats)
	}
	if p.read.Size > 0 {
		s.readSource(p, p.read.Size)
	}
}

// finish ends the answer to the first of the peer's requests and turns to the
// next.
func (s *Stream) finishResponse() {
	s.inProgress, s.turn = noSource, requester
	s.reads.pop()
	if s.reads.count > 0 {
		s.beginResponse(true)
	}
}

// sendResponse makes the next segment of what answers the first of the peer's
// requests. It reports false if that can be answered no longer.
func (s *Stream) sendResponse(limit int, g *Segment) bool {
	p := s.reads.front()
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

// sourceInto adds n octets of what a read asks for to g.
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
		s.refuseRead(wire.TermRDMAPLocal, p)
		return false
	}
	return true
}
