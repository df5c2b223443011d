package iwarp

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// receiveWrite places a segment of an RDMA Write. Every segment is checked separately, since a
// sender need not send them in the order of their offsets; WritesInOrder is a defect. Immediate
// data that follows belongs to the Write (afterWrite), unless that is the empty Write of a peer's
// RTR message (RFC 6581).
func (s *Stream) receiveWrite(a *rxSegment) {
	t, last := &a.hdr.Tagged, a.hdr.Control.Last
	if n := uint64(len(a.body)); n > 0 {
		if s.policy().WritesInOrder && !s.policyState.inOrder(s.inWrite, t, n) {
			s.refuse(wire.TermTaggedBounds, a)
			return
		}
		mem, at, err := s.resolveRemote(t.STag, t.TO, n, verbs.AccessRemoteWrite)
		if err != nil {
			s.refuse(s.writeTermError(err, t.TO, n), a)
			return
		}
		if mem.WriteAt(a.body, at) != nil {
			s.refuse(wire.TermDDPLocal, a)
			return
		}
	}
	if !s.inWrite {
		s.writeLen = 0
	}
	s.writeLen += uint32(len(a.body))
	s.inWrite, s.afterWrite = !last, last && !(s.expectRTR && s.writeLen == 0)
	if last {
		s.counters().WritesReceived++
	}
}

// resolveRemote checks n octets at the tagged offset to of the memory that the peer names by STag,
// and returns the memory and the offset of the octets in it. Callers skip it if n is 0: STag and
// offset of no octets are not checked.
func (s *Stream) resolveRemote(stag wire.STag, to, n uint64, need verbs.Access) (nic.Memory, uint64, error) {
	ep := s.ep
	mem, at, err := ep.Layer.NIC.Mem.Remote(uint32(stag), nic.TargetQP{PD: ep.PD, QPN: ep.QPN}, to, n, need)
	if err == nil && ep.Access&need != need {
		return nil, 0, nic.ErrRights
	}
	return mem, at, err
}

// readSource resolves the next n octets that the read p asks for. If the check fails, it ends the
// stream with a Terminate and reports false. The policy ReadWithoutRight skips the access check,
// and WrapIsLocal sends no Terminate for a tagged offset that wraps.
func (s *Stream) readSource(p *peerRequest, n uint32) (nic.Memory, uint64, bool) {
	need, policy := verbs.AccessRemoteRead, s.policy()
	if policy.ReadWithoutRight {
		need = 0
	}
	to, size := p.read.SrcTO, uint64(n)
	mem, at, err := s.resolveRemote(p.read.SrcSTag, to, size, need)
	if err == nil {
		return mem, at, true
	}
	e := readTermError(err, to, size)
	if e == wire.TermProtWrap && policy.Terminate.WrapIsLocal {
		s.endSilently(ByPeer, e)
	} else {
		s.refuseRequest(e, p)
	}
	return nil, 0, false
}

// wraps reports whether n octets at to, at least one, exceed the 64-bit offset space.
func wraps(to, n uint64) bool { return to+n-1 < to }

// readTermError converts a failed memory check of a read or an atomic to a Terminate error.
func readTermError(err error, to, n uint64) wire.TermError {
	switch {
	case errors.Is(err, nic.ErrKey):
		return wire.TermProtInvalidSTag
	case errors.Is(err, nic.ErrPD), errors.Is(err, nic.ErrOwner):
		return wire.TermProtStream
	case errors.Is(err, nic.ErrRights):
		return wire.TermProtAccess
	case wraps(to, n):
		return wire.TermProtWrap
	case errors.Is(err, nic.ErrBounds):
		return wire.TermProtBounds
	}
	return wire.TermProtUnspecified
}

// writeTermError converts a failed memory check of a Write to a Terminate error: a tagged buffer
// error of DDP, but one of RDMAP for missing access rights, for which DDP defines none. With the
// policy WrapIsLocal, an offset that wraps is a local catastrophic error of DDP.
func (s *Stream) writeTermError(err error, to, n uint64) wire.TermError {
	switch e := readTermError(err, to, n); e {
	case wire.TermProtInvalidSTag:
		return wire.TermTaggedSTag
	case wire.TermProtStream:
		return wire.TermTaggedStream
	case wire.TermProtWrap:
		if s.policy().Terminate.WrapIsLocal {
			return wire.TermDDPLocal
		}
		return wire.TermTaggedWrap
	case wire.TermProtBounds:
		return wire.TermTaggedBounds
	default:
		return e
	}
}
