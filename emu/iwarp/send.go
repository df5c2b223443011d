package iwarp

import (
	"encoding/binary"
	"math"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Segment is a DDP segment to be sent. Output reuses its slices.
type Segment struct {
	// Header is the DDP and RDMAP header, followed by payload that was copied: payload that is
	// short or not addressable.
	Header []byte
	// Payload is the rest, in registered memory. It must remain valid until Accepted.
	Payload [][]byte
	// Volatile is set in Read Responses: the application may change Payload at any time. A
	// sender that computes a checksum must copy it first.
	Volatile bool
}

// Len returns the length of the segment in octets.
func (g *Segment) Len() int {
	n := len(g.Header)
	for _, p := range g.Payload {
		n += len(p)
	}
	return n
}

func (g *Segment) reset() {
	g.Header, g.Payload, g.Volatile = g.Header[:0], g.Payload[:0], false
}

// Output builds the next segment, of at most limit octets, in g. It reports false if there is
// none. limit is at least wire.MinMULPDU and may change between segments.
func (s *Stream) Output(limit int, g *Segment) bool {
	g.reset()
	for s.state == open {
		switch s.nextSource() {
		case requester:
			if s.sendRequest(limit, g) {
				return s.countOutput(g)
			}
		case responder:
			if s.sendResponse(limit, g) {
				return s.countOutput(g)
			}
		case emptyWriter:
			s.buildEmptyWrite(g)
			return s.countOutput(g)
		default: // nothing to send, or nextSource has executed a local request that ended the stream
			if s.state == open {
				return false
			}
		}
		g.reset() // no segment was built: the stream has failed
	}
	if s.state == terminating {
		s.sendTerminate(g)
		return s.countOutput(g)
	}
	return false
}

// countOutput counts a segment that Output returns. It returns true, for Output to return.
func (s *Stream) countOutput(g *Segment) bool {
	c := s.counters()
	c.SegmentsSent++
	c.OctetsSent += uint64(g.Len())
	s.segmentsOutput++
	return true
}

// nextSource selects the source of the next segment. A message that is partly sent continues.
// Between messages, the Write of SendEmptyWrite comes first, and requests and responses alternate.
func (s *Stream) nextSource() source {
	if s.inProgress != noSource {
		return s.inProgress
	}
	if s.preferred == emptyWriter {
		return emptyWriter
	}
	responds := s.reads != nil && s.reads.Len() > 0
	if responds && s.preferred == responder {
		return responder
	}
	if s.requestReady() {
		return requester
	}
	if responds && s.state == open { // requestReady may have ended the stream
		return responder
	}
	return noSource
}

// requestReady reports whether the next request may be sent. It first executes the local requests
// before it, which send nothing.
func (s *Stream) requestReady() bool {
	for r := s.sending; r != nil; r = s.sending {
		if r.Flags&verbs.SendFence != 0 && s.outstanding > 0 {
			return false
		}
		switch {
		case r.Op == verbs.OpLocalInv || r.Op == verbs.OpBindMW:
			if !s.executeLocal(r) {
				return false
			}
		case hasResponse(r.Op):
			return s.outstanding < s.readLimit()
		default:
			return true
		}
	}
	return false
}

// readLimit returns the number of reads and atomics that may be outstanding. It is at least 1,
// so that with an ORD of 0 a read is tried at once and fails.
func (s *Stream) readLimit() uint16 {
	limit := max(s.ord, 1)
	if s.policy().RoundUpORD {
		limit = uint16(min(nic.CeilPow2(int(limit)), math.MaxUint16))
	}
	return limit
}

// executeLocal executes a Local Invalidate or Bind request, which sends nothing to the peer. It
// reports whether the stream is still open.
func (s *Stream) executeLocal(r *Request) bool {
	if status := s.ep.ExecuteLocal(&r.Work); status != verbs.WCSuccess {
		s.failRequest(r, status)
		return false
	}
	r.stage, s.sending = done, r.next
	s.complete()
	return s.state == open
}

// sendRequest builds the next segment of the current request, and reports false on a local failure.
func (s *Stream) sendRequest(limit int, g *Segment) bool {
	r := s.sending
	switch r.Op {
	case verbs.OpRDMARead:
		return s.sendRead(r, g)
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return s.sendAtomic(r, g)
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		if s.inProgress == requester && r.sent == r.Length {
			s.sendImmediate(r, g) // only a Write with immediate data is still in progress
			return true
		}
		return s.sendWrite(r, limit, g)
	case verbs.OpSendImm:
		s.sendImmediate(r, g)
		return true
	default:
		return s.sendSend(r, limit, g)
	}
}

// sendSend builds the next segment of a Send, and reports false if its memory is invalid.
func (s *Stream) sendSend(r *Request, limit int, g *Segment) bool {
	op := wire.OpSend
	switch inv, se := r.Op == verbs.OpSendInv, r.Flags&verbs.SendSolicited != 0; {
	case inv && se:
		op = wire.OpSendSEInv
	case inv:
		op = wire.OpSendInv
	case se:
		op = wire.OpSendSE
	}
	u := wire.Untagged{QN: wire.QueueSend, MSN: s.sendMSN[wire.QueueSend], MO: r.sent}
	if r.Op == verbs.OpSendInv {
		u.Invalidate = wire.STag(r.Invalidate)
	}
	n := min(limit-untaggedHeader, int(r.Length-r.sent))
	last := r.sent+uint32(n) == r.Length
	g.Header = u.Append(s.control(op, last).Append(g.Header))
	if !s.appendPayload(r, n, g) {
		return false
	}
	r.msn = u.MSN
	if last {
		s.sendMSN[wire.QueueSend] = u.MSN.Next()
		s.markSent(r)
	}
	return true
}

// sendWrite builds the next segment of an RDMA Write, and reports false if its memory is invalid.
// If immediate data follows, the last segment of the Write is not the last of the request.
func (s *Stream) sendWrite(r *Request, limit int, g *Segment) bool {
	n := min(limit-taggedHeader, int(r.Length-r.sent))
	last := r.sent+uint32(n) == r.Length
	t := wire.Tagged{STag: wire.STag(r.Remote.RKey), TO: r.Remote.Addr + uint64(r.sent)}
	g.Header = t.Append(s.control(wire.OpWrite, last).Append(g.Header))
	if !s.appendPayload(r, n, g) {
		return false
	}
	if last && r.Op == verbs.OpRDMAWrite {
		s.markSent(r)
	}
	return true
}

// sendImmediate builds an Immediate Data message (RFC 7306): the four octets that verbs have, then
// four zeros.
func (s *Stream) sendImmediate(r *Request, g *Segment) {
	op := wire.OpImmediate
	if r.Flags&verbs.SendSolicited != 0 {
		op = wire.OpImmediateSE
	}
	r.msn = s.sendMSN[wire.QueueSend]
	g.Header = binary.BigEndian.AppendUint64(s.untagged(g.Header, op, wire.QueueSend), uint64(r.Imm)<<32)
	s.markSent(r)
}

// appendPayload appends the next n octets of r to g, and reports false if the memory of r is invalid. If
// r has several segments, all of its memory is checked before the first.
func (s *Stream) appendPayload(r *Request, n int, g *Segment) bool {
	if r.Inline != nil {
		g.Header = append(g.Header, r.Inline[r.sent:r.sent+uint32(n)]...)
	} else {
		firstOfSeveral := r.sent == 0 && uint32(n) < r.Length
		if firstOfSeveral && !s.readable(r.SGL, r.Length) || !s.gather(g, r.SGL, r.sent, n) {
			s.failRequest(r, verbs.WCLocProtErr)
			return false
		}
	}
	r.sent += uint32(n)
	s.inProgress = requester
	return true
}

// markSent records that the current segment is the last of r.
func (s *Stream) markSent(r *Request) {
	r.lastSegment = s.segmentsOutput + 1
	r.stage = sent
	s.advanceRequest(r)
}

// advanceRequest makes the request after r the next to be sent, and lets a response go first.
func (s *Stream) advanceRequest(r *Request) {
	s.sending = r.next
	s.inProgress, s.preferred = noSource, responder
}

const (
	taggedHeader   = wire.ControlLen + wire.TaggedLen
	untaggedHeader = wire.ControlLen + wire.UntaggedLen
)

const lastSegment = true // argument of control

// control returns the control field of a segment.
func (s *Stream) control(op wire.Opcode, last bool) wire.Control {
	c := wire.NewControl(op, last)
	c.DDPVersion, c.RDMAPVersion = s.version, s.version
	return c
}

// untagged appends the header of a single-segment untagged message and advances its queue's MSN.
func (s *Stream) untagged(b []byte, op wire.Opcode, q wire.QN) []byte {
	u := wire.Untagged{QN: q, MSN: s.sendMSN[q]}
	s.sendMSN[q] = u.MSN.Next()
	return u.Append(s.control(op, lastSegment).Append(b))
}
