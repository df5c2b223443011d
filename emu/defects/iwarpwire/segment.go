package iwarpwire

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// segment is a DDP segment on its way through an Edge.
type segment struct {
	octets []byte
	first  bool // it begins its message
	rtr    bool // it is the first of all, and says that its sender is ready
}

const (
	taggedBit = 0x80 // in octet 0
	lastBit   = 0x40

	ddpReserved   = 0x3c // in octet 0
	rdmapReserved = 0x30 // in octet 1
	opcodeBits    = 0x0f

	invalidateAt = 2 // of untagged segments
	queueAt      = 6
	numberAt     = 10
	offsetAt     = 14

	stagAt = 2 // of tagged segments
	toAt   = 6
)

func (s *segment) tagged() bool        { return s.octets[0]&taggedBit != 0 }
func (s *segment) last() bool          { return s.octets[0]&lastBit != 0 }
func (s *segment) opcode() wire.Opcode { return wire.Opcode(s.octets[1] & opcodeBits) }

func (s *segment) setOpcode(o wire.Opcode) {
	s.octets[1] = s.octets[1]&^opcodeBits | uint8(o)
}

// headerLen is the length of the DDP header.
func (s *segment) headerLen() int {
	if s.tagged() {
		return wire.ControlLen + wire.TaggedLen
	}
	return wire.ControlLen + wire.UntaggedLen
}

// whole reports whether all of the DDP header is there.
func (s *segment) whole() bool {
	return len(s.octets) >= wire.ControlLen && len(s.octets) >= s.headerLen()
}

// body is what follows the DDP header, header what precedes it.
func (s *segment) body() []byte   { return s.octets[s.headerLen():] }
func (s *segment) header() []byte { return s.octets[:s.headerLen()] }

// is reports whether the segment is one of such a message, with the header that
// belongs to it.
func (s *segment) is(ops ...wire.Opcode) bool {
	return slices.Contains(ops, s.opcode()) && s.opcode().Tagged() == s.tagged()
}

// sends reports whether it is one of a Send, of whatever kind.
func (s *segment) sends() bool {
	return s.is(wire.OpSend, wire.OpSendInv, wire.OpSendSE, wire.OpSendSEInv)
}

// queue is the one that the opcode belongs to; false if the segment is tagged, or
// belongs to nothing.
func (s *segment) queue() (wire.QN, bool) {
	info, ok := s.opcode().Info()
	return info.Queue, ok && !s.tagged() && !info.Tagged
}

func (s *segment) word(at int) uint32       { return binary.BigEndian.Uint32(s.octets[at:]) }
func (s *segment) setWord(at int, v uint32) { binary.BigEndian.PutUint32(s.octets[at:], v) }
func (s *segment) offset() uint64           { return binary.BigEndian.Uint64(s.octets[toAt:]) }
func (s *segment) setOffset(v uint64)       { binary.BigEndian.PutUint64(s.octets[toAt:], v) }

// terminate returns a Terminate that shows nothing.
func terminate(e wire.TermError) *segment {
	h := wire.Header{Control: wire.NewControl(wire.OpTerminate, true), Untagged: wire.Untagged{QN: wire.QueueTerminate, MSN: wire.FirstMSN}}
	t := wire.Terminate{Error: e}
	return &segment{octets: t.Append(h.Append(nil)), first: true}
}

// receive takes a segment through the defects of what comes.
func (c *Conn) receive(s *segment) {
	s.first, s.rtr = c.last, !c.begun && !c.initiator
	came := slices.Clone(s.octets)
	if s.whole() {
		c.begun, c.last = true, s.last()
		for _, do := range c.edge.in {
			if !do(c, s) || c.phase != full {
				return
			}
		}
	}
	c.hand(s, came)
}

// hand gives the sound side a segment, which came in other words perhaps.
func (c *Conn) hand(s *segment, came []byte) {
	if !slices.Equal(s.octets, came) && s.whole() {
		if n := len(s.header()); n <= len(came) {
			c.altered = append(c.altered, alteration{came[:n], slices.Clone(s.header())})
			c.altered = c.altered[max(0, len(c.altered)-8):]
		}
	}
	c.before, c.given = c.given, came
	c.sound.Input(c.edge.now, c.reframe.Append(nil, s.octets))
	if c.q.TermHeaderStale {
		c.pull() // what it causes is about this one
	}
}

// send takes a segment of the sound side through the defects of what is sent.
func (c *Conn) send(s *segment) {
	s.first, s.rtr = !c.midst, !c.opened && c.initiator && c.peerToPeer()
	c.opened, c.midst = true, !s.last()
	c.unalter(s)
	for _, do := range c.edge.out {
		if !do(c, s) {
			return
		}
	}
	c.emit(s)
	for _, s := range c.after {
		c.emit(s)
	}
	c.after = nil
}

// peerToPeer reports whether the first message of the initiator is an RTR.
func (c *Conn) peerToPeer() bool {
	return c.own.sound.data.PeerToPeer && c.peer.sound.data.PeerToPeer
}

// emit frames and queues a segment. TwoPerFPDU waits for another, if both fit.
func (c *Conn) emit(s *segment) {
	switch {
	case !c.q.TwoPerFPDU:
		c.writeFPDU(s.octets)
	case c.pair != nil && len(c.pair)+len(s.octets) <= wire.MULPDU(c.mss, c.framing.wireOut.Markers):
		b := append(c.pair, s.octets...)
		c.pair = nil
		c.writeFPDU(b)
	default:
		c.unpair()
		c.pair = s.octets
	}
}

// unpair sends what has waited for a second segment.
func (c *Conn) unpair() {
	if b := c.pair; b != nil {
		c.pair = nil
		c.writeFPDU(b)
	}
}

// writeFPDU queues the FPDU of a ULPDU, by SegmentsUnaligned in two writes.
func (c *Conn) writeFPDU(ulpdu []byte) {
	b := c.frame(ulpdu)
	if n := wire.ULPDULengthLen + (&segment{octets: ulpdu}).headerLen(); c.q.SegmentsUnaligned && len(b) > n {
		c.write(b[:n:n])
		b = b[n:]
	}
	c.write(b)
}
