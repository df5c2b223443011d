package iwarpwire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Defects of Terminates.

// Where things are in a Terminate, behind the DDP header: layer and type, code,
// and the flags M, D and R.
const (
	termAt    = wire.ControlLen + wire.UntaggedLen
	codeAt    = termAt + 1
	termFlags = termAt + 2
	termShows = termAt + wire.TerminateLen // the length, if there is one

	termHasLength, termHasDDP, termHasRDMAP = 0x80, 0x40, 0x20

	lengthLen = 2
)

// parsed returns what a Terminate says; false if the segment is none.
func (s *segment) parsed() (t wire.Terminate, ok bool) {
	if !s.is(wire.OpTerminate) {
		return t, false
	}
	_, err := t.ParseOrder(s.body(), wire.OrderRFC)
	return t, err == nil
}

// unalter restores the DDP header that a Terminate quotes to the one that the peer sent, if
// a defect changed the segment before the device got it.
func (c *Conn) unalter(s *segment) {
	if t, ok := s.parsed(); !ok || !t.HasDDP {
		return
	}
	at := termShows + lengthLen
	for _, a := range c.altered {
		if bytes.HasPrefix(s.octets[at:], a.passed) && len(a.received) == len(a.passed) {
			copy(s.octets[at:], a.received)
			return
		}
	}
}

// resetInstead is Defects.ErrorResets.
func resetInstead(c *Conn, s *segment) bool {
	if s.is(wire.OpTerminate) {
		c.reset()
		return false
	}
	return true
}

// hideLocal is Defects.LocalErrorSilent.
func hideLocal(_ *Conn, s *segment) bool {
	t, ok := s.parsed()
	return !ok || t.Error.Layer != wire.LayerRDMAP || t.Error.Type != wire.RDMAPLocal
}

// staleHeaders is Defects.TermHeaderStale.
func staleHeaders(c *Conn, s *segment) bool {
	t, ok := s.parsed()
	if !ok || !t.HasDDP {
		return true
	}
	n := len(s.octets) - termShows - lengthLen
	stale := append(slices.Clone(c.before), make([]byte, n)...) // zeros, if there was none
	copy(s.octets[termShows+lengthLen:], stale[:n])
	return true
}

// allHeaders is Defects.TermAllHeaders.
func allHeaders(_ *Conn, s *segment) bool {
	t, ok := s.parsed()
	if !ok {
		return true
	}
	b := s.octets[:termShows:termShows]
	b[termFlags] |= termHasLength | termHasDDP | termHasRDMAP
	b = binary.BigEndian.AppendUint16(b, t.SegmentLength)
	if t.HasDDP {
		b = t.DDP.Append(b)
	} else {
		b = append(b, make([]byte, wire.ControlLen+wire.UntaggedLen)...)
	}
	s.octets = t.Read.Append(b)
	return true
}

// shiftCode is Defects.CodesShifted.
func shiftCode(_ *Conn, s *segment) bool {
	if t, ok := s.parsed(); ok && t.Error.Layer <= wire.LayerDDP {
		s.octets[codeAt]++
	}
	return true
}

// typeOne (MPAErrorType) increments the error type in Terminate messages about MPA.
func typeOne(_ *Conn, s *segment) bool {
	if t, ok := s.parsed(); ok && t.Error.Layer == wire.LayerMPA {
		s.octets[termAt]++
	}
	return true
}

// queueZero is Defects.TermOtherQueue.
func queueZero(c *Conn, s *segment) bool {
	if s.is(wire.OpTerminate) {
		s.setWord(queueAt, uint32(wire.QueueSend))
		s.setWord(numberAt, c.sent.messages[wire.QueueSend]+1)
	} else if q, ok := s.queue(); ok && s.last() {
		c.sent.messages[q]++
	}
	return true
}

// answerTerminate is Defects.TerminateAnswered.
func answerTerminate(c *Conn, s *segment) bool {
	if s.is(wire.OpTerminate) {
		c.emit(terminate(wire.TermOpUnspecified))
	}
	return true
}

// plainTerminate is Defects.StrangeTerminateIgnored. Of a local catastrophe the code
// says nothing: whoever goes by a list has only 0 there.
func plainTerminate(_ *Conn, s *segment) bool {
	t, ok := s.parsed()
	if !ok {
		return true
	}
	e := t.Error
	listed := !strings.Contains(e.String(), "unassigned") && (e.Layer == wire.LayerMPA || e.Type != wire.RDMAPLocal || e.Code == 0)
	return listed && t.Reserved == 0 && s.word(queueAt) == uint32(wire.QueueTerminate) &&
		s.octets[0]&ddpReserved == 0 && s.octets[1]&rdmapReserved == 0
}
