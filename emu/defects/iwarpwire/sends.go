package iwarpwire

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Defects of segments that go out.

// skipEmpty is Defects.ZeroLengthSkipped. What follows is numbered as if they had
// never been.
func skipEmpty(c *Conn, s *segment) bool {
	q, untagged := s.queue()
	if untagged {
		c.renumber(s, q)
	}
	skips := !s.rtr && s.first && s.last() && len(s.body()) == 0 && (s.sends() || s.is(wire.OpWrite, wire.OpReadResponse))
	if skips && untagged {
		c.sent.skipped[q]++
	}
	return !skips
}

// tailLimit is how much of a message TailFirst keeps.
const tailLimit = 1 << 20

// holdMessage is Defects.TailFirst.
func holdMessage(c *Conn, s *segment) bool {
	if s.first && s.last() {
		return true
	}
	c.tail, c.tailLen = append(c.tail, s), c.tailLen+len(s.octets)
	if s.last() {
		slices.Reverse(c.tail)
		c.releaseTail()
	} else if c.tailLen > tailLimit {
		c.releaseTail()
	}
	return false
}

// releaseTail sends what is held of a message.
func (c *Conn) releaseTail() {
	for _, s := range c.tail {
		c.emit(s)
	}
	c.tail, c.tailLen = nil, 0
}

// shiftPayload is Defects.SegmentEdgeLost: a segment waits for the one behind it,
// whose first octet it ends with.
func shiftPayload(c *Conn, s *segment) bool {
	if !s.is(wire.OpReadResponse) || s.first || len(s.body()) == 0 {
		return true
	}
	b := s.body()
	if len(c.tail) > 0 {
		before := c.tail[0].body()
		before[len(before)-1] = b[0]
		c.releaseTail()
	}
	copy(b, b[1:])
	b[len(b)-1] = 0
	if !s.last() {
		c.tail = append(c.tail, s)
		return false
	}
	return true
}

// countSegments is Defects.SegmentsCounted.
func countSegments(c *Conn, s *segment) bool {
	q, ok := s.queue()
	if !ok || q == wire.QueueTerminate {
		return true
	}
	c.sent.messages[q]++
	s.setWord(numberAt, c.sent.messages[q])
	s.setWord(offsetAt, c.sent.octets[q])
	c.sent.octets[q] += uint32(len(s.body()))
	return true
}

// firstOffset is Defects.OffsetsStandStill.
func firstOffset(c *Conn, s *segment) bool {
	switch {
	case !s.tagged():
		s.setWord(offsetAt, 0)
	case s.first:
		c.sent.first = s.offset()
	default:
		s.setOffset(c.sent.first)
	}
	return true
}

// oneCounter is Defects.MSNShared.
func oneCounter(c *Conn, s *segment) bool {
	if !s.tagged() {
		s.setWord(numberAt, c.sent.all)
		if s.last() {
			c.sent.all++
		}
	}
	return true
}

// otherQueues is Defects.QueuesMixed.
func otherQueues(_ *Conn, s *segment) bool {
	switch {
	case s.is(wire.OpReadRequest, wire.OpAtomicRequest):
		s.setWord(queueAt, uint32(wire.QueueSend))
	case s.is(wire.OpSendSE, wire.OpSendSEInv, wire.OpAtomicResponse):
		s.setWord(queueAt, uint32(wire.QueueReadRequest))
	}
	return true
}

// claimLast is Defects.LastOnEvery.
func claimLast(_ *Conn, s *segment) bool {
	s.octets[0] |= lastBit
	return true
}

// emptyControl is Defects.ControlFirstOnly.
func emptyControl(_ *Conn, s *segment) bool {
	if !s.first {
		s.octets[0] &= taggedBit | lastBit
		s.octets[1] = 0
	}
	return true
}

// halveImmediate is Defects.ImmediateOfFour.
func halveImmediate(_ *Conn, s *segment) bool {
	if s.is(wire.OpImmediate, wire.OpImmediateSE) {
		s.octets = s.octets[:len(s.octets)-wire.ImmediateLen/2]
	}
	return true
}

// version0 is Defects.RDMAPVersion0.
func version0(_ *Conn, s *segment) bool {
	s.octets[1] &^= 0xc0
	return true
}

// stale is what memory held.
const stale = 0x5a5a_5a5a

// fillUnused is Defects.UnusedFieldsStale.
func fillUnused(_ *Conn, s *segment) bool {
	s.octets[0] |= ddpReserved
	s.octets[1] |= rdmapReserved
	if !s.tagged() && !s.is(wire.OpSendInv, wire.OpSendSEInv) {
		s.setWord(invalidateAt, stale)
	}
	if a, ok := s.atomic(); ok && a.Op == wire.AtomicFetchAdd {
		a.Compare, a.CompareMask = stale<<32|stale, 0
		s.setAtomic(&a)
	}
	return true
}

// swapFields is Defects.FieldsSwapped.
func swapFields(_ *Conn, s *segment) bool {
	if s.tagged() {
		rotate(s.octets[stagAt:s.headerLen()], 4)
		return true
	}
	rotate(s.octets[numberAt:s.headerLen()], 4)
	if s.is(wire.OpReadRequest) {
		b := s.octets[readSinkSTag:readEnd]
		rotate(b, readSrcSTag-readSinkSTag) // source, sink, size
		rotate(b[12:], 12)                  // source, size, sink
	}
	if a, ok := s.atomic(); ok {
		a.AddSwap, a.AddSwapMask, a.Compare, a.CompareMask = a.AddSwapMask, a.AddSwap, a.CompareMask, a.Compare
		s.setAtomic(&a)
	}
	return true
}

// rotate moves the first n octets of b to its end.
func rotate(b []byte, n int) { copy(b, append(slices.Clone(b[n:]), b[:n]...)) }

// invertTagged is Defects.TaggedFlagInverted.
func invertTagged(_ *Conn, s *segment) bool {
	if !s.is(wire.OpTerminate) {
		s.octets[0] ^= taggedBit
	}
	return true
}
