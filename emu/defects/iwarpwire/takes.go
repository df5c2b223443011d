package iwarpwire

import (
	"math"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Defects of segments that come in.

// unassigned is an opcode that means nothing.
const unassigned wire.Opcode = 12

// maskOpcode is Defects.OpcodeMasked.
func maskOpcode(_ *Conn, s *segment) bool {
	if s.opcode() >= unassigned {
		s.setOpcode(s.opcode() & 7)
	}
	return true
}

// noReservedBits is Defects.ReservedBitsChecked: what has one set is nothing that
// could be understood.
func noReservedBits(_ *Conn, s *segment) bool {
	a, atomic := s.atomic()
	if s.octets[0]&ddpReserved != 0 || s.octets[1]&rdmapReserved != 0 || atomic && a.Reserved != 0 {
		s.setOpcode(unassigned)
	}
	return true
}

// rightVersions is Defects.VersionsUnchecked.
func rightVersions(_ *Conn, s *segment) bool {
	s.octets[0] = s.octets[0]&^3 | wire.DDPVersion
	s.octets[1] = s.octets[1]&^0xc0 | wire.RDMAPVersion<<6
	return true
}

// inPlace is Defects.UntaggedUnchecked: every segment is what would follow.
func inPlace(c *Conn, s *segment) bool {
	q, ok := s.queue()
	if !ok || q == wire.QueueTerminate {
		return true
	}
	n := &c.next
	s.setWord(queueAt, uint32(q))
	s.setWord(numberAt, n.messages[q]+1)
	s.setWord(offsetAt, n.octets[q])
	n.octets[q] += uint32(len(s.body()))
	if s.last() {
		n.messages[q]++
		n.octets[q] = 0
	}
	return true
}

// farAway is beyond the end of any memory.
const farAway = 1 << 62

// evenOffset is Defects.OddOffsetRefused.
func evenOffset(_ *Conn, s *segment) bool {
	if s.tagged() && s.offset()&3 != 0 && len(s.body()) > 0 {
		s.setOffset(s.offset() | farAway)
	}
	return true
}

// solicit is Defects.EverySendSolicited.
func solicit(_ *Conn, s *segment) bool {
	if s.is(wire.OpSend, wire.OpSendInv) {
		s.setOpcode(s.opcode() + wire.OpSendSE - wire.OpSend)
	}
	return true
}

// fitImmediate is Defects.ImmediateAnyLength.
func fitImmediate(_ *Conn, s *segment) bool {
	if s.is(wire.OpImmediate, wire.OpImmediateSE) {
		s.octets = append(s.octets, make([]byte, wire.ImmediateLen)...)[:s.headerLen()+wire.ImmediateLen]
	}
	return true
}

// atomic returns the header of an Atomic Request, if the segment has one.
func (s *segment) atomic() (a wire.AtomicRequest, ok bool) {
	if !s.is(wire.OpAtomicRequest) {
		return a, false
	}
	_, err := a.Parse(s.body())
	return a, err == nil
}

func (s *segment) setAtomic(a *wire.AtomicRequest) { copy(s.body(), a.Append(nil)) }

// unknownAdds is Defects.AnyAtomicAdds.
func unknownAdds(_ *Conn, s *segment) bool {
	if a, ok := s.atomic(); ok && a.Op != wire.AtomicCompareSwap {
		a.Op = wire.AtomicFetchAdd
		s.setAtomic(&a)
	}
	return true
}

// maskOperand is Defects.AddMaskIsAnd.
func maskOperand(_ *Conn, s *segment) bool {
	if a, ok := s.atomic(); ok && a.Op == wire.AtomicFetchAdd && a.AddSwapMask != 0 {
		a.AddSwap, a.AddSwapMask = a.AddSwap&a.AddSwapMask, 0
		s.setAtomic(&a)
	}
	return true
}

// swapMasks is Defects.MasksSwapped.
func swapMasks(_ *Conn, s *segment) bool {
	if a, ok := s.atomic(); ok && a.Op == wire.AtomicCompareSwap {
		a.AddSwapMask, a.CompareMask = a.CompareMask, a.AddSwapMask
		s.setAtomic(&a)
	}
	return true
}

// compareNothing is Defects.SwapsAlways.
func compareNothing(_ *Conn, s *segment) bool {
	if a, ok := s.atomic(); ok && a.Op == wire.AtomicCompareSwap {
		a.Compare, a.CompareMask = math.MaxUint64, 0
		s.setAtomic(&a)
	}
	return true
}

// keptLimit is how many segments of a Write are kept back.
const keptLimit = 64

// keepWrite is Defects.WritesPlacedLate: a Write waits until another comes, or for a
// while, in which what is behind it is carried out. One that carries nothing has
// nothing to place.
func keepWrite(c *Conn, s *segment) bool {
	if !s.is(wire.OpWrite) || len(s.body()) == 0 {
		return true
	}
	if s.first || len(c.kept) == keptLimit {
		c.placeLate()
	}
	if len(c.kept) == 0 {
		c.lateAt = c.edge.now.Add(placementDelay)
		c.edge.late = append(c.edge.late, c)
	}
	c.kept = append(c.kept, s)
	return false
}

// placeLate hands on what was kept back.
func (c *Conn) placeLate() {
	kept := c.kept
	c.kept = nil
	for i, x := range c.edge.late {
		if x == c {
			c.edge.late = append(c.edge.late[:i:i], c.edge.late[i+1:]...)
			break
		}
	}
	for _, s := range kept {
		if c.phase == full {
			c.hand(s, s.octets)
		}
	}
}
