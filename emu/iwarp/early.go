package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// PlaceEarly places the payload of a Write before the segment is complete, as some devices do. part
// is the beginning of the segment, which Input handles later, with its errors.
func (s *Stream) PlaceEarly(part []byte) {
	var h wire.Header
	body, err := h.Parse(part)
	if err != nil || s.state != open || h.Control.Opcode != wire.OpWrite || !h.Control.Tagged || len(body) == 0 {
		return
	}
	if mem, at, err := s.resolveRemote(h.Tagged.STag, h.Tagged.TO, uint64(len(body)), verbs.AccessRemoteWrite); err == nil {
		_ = mem.WriteAt(body, at) // Input reports the error
	}
}

// PlaceUnchecked places the payload of a segment whose CRC is wrong, as devices do that place
// before they check. A Read Response goes to the memory of the oldest read, a Send to the current
// receive, a Write to the memory that it names. The caller must fail the stream afterwards.
func (s *Stream) PlaceUnchecked(segment []byte) {
	a := rxSegment{raw: segment}
	var err error
	if a.body, err = a.hdr.Parse(segment); err != nil || s.state != open || !a.hdr.Control.Consistent() {
		return
	}
	nic := s.ep.Layer.NIC
	switch info, _ := a.hdr.Control.Opcode.Info(); {
	case a.hdr.Control.Opcode == wire.OpReadResponse && s.oldestOutstanding != nil && s.oldestOutstanding.Op == verbs.OpRDMARead:
		if off, _, ok := s.sinkOffset(s.oldestOutstanding, &a); ok && uint32(len(a.body)) <= s.oldestOutstanding.Length-off {
			_ = nic.Scatter(s.oldestOutstanding.SGL, s.ep.PD, off, a.body) // the stream fails in any case
		}
	case info.Class.Has(wire.HasPayload|wire.ConsumesRecv) && a.hdr.Untagged.MO == s.recvLen:
		if s.recv == nil {
			s.recv = s.owner.NextReceive()
		}
		if s.recv != nil && uint32(len(a.body)) <= s.recv.Length-s.recvLen {
			_ = nic.Scatter(s.recv.SGL, s.recv.PD, s.recvLen, a.body)
		}
	default:
		s.PlaceEarly(segment)
	}
}
