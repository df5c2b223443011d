package iwarpwire

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Defects of the message that says that an initiator is ready to receive.

// Where things are in a Read Request, behind the DDP header.
const (
	readSinkSTag = termAt
	readSinkTO   = readSinkSTag + 4
	readSize     = readSinkTO + 8
	readSrcSTag  = readSize + 4
	readSrcTO    = readSrcSTag + 4
	readEnd      = readSrcTO + 8
)

// empty reports whether a segment is all of a message that could be an RTR.
func (s *segment) empty() bool {
	switch {
	case s.is(wire.OpReadRequest) && len(s.octets) >= readEnd:
		return s.word(readSize) == 0
	case s.is(wire.OpWrite) || s.sends():
		return s.last() && len(s.body()) == 0
	}
	return false
}

// holdRTR is Defects.RTRLate: the RTR waits until a message of the program has gone
// by.
func holdRTR(c *Conn, s *segment) bool {
	if s.rtr {
		c.rtr = s
		return false
	}
	if c.rtr != nil && s.last() {
		c.after, c.rtr = append(c.after, c.rtr), nil
	}
	return true
}

// uncountRTR is Defects.RTRUncounted of an initiator: what follows an RTR on its
// queue has its number.
func uncountRTR(c *Conn, s *segment) bool {
	if q, ok := s.queue(); ok {
		c.renumber(s, q)
		if s.rtr {
			c.sent.skipped[q]++
		}
	}
	return true
}

// renumber makes up for messages that were not counted.
func (c *Conn) renumber(s *segment, q wire.QN) {
	if q != wire.QueueTerminate {
		s.setWord(numberAt, s.word(numberAt)-c.sent.skipped[q])
	}
}

// countWithoutRTR is Defects.RTRUncounted of a responder. An RTR that takes no
// receive could as well be a Write.
func countWithoutRTR(c *Conn, s *segment) bool {
	switch q, ok := s.queue(); {
	case s.rtr && c.peerToPeer() && s.sends() && s.empty():
		h := wire.Header{Control: wire.NewControl(wire.OpWrite, true)}
		s.octets = h.Append(nil)
	case s.rtr && c.peerToPeer() && s.empty() && ok:
		c.next.skipped[q]++
	case ok && q != wire.QueueTerminate:
		s.setWord(numberAt, s.word(numberAt)+c.next.skipped[q])
	}
	return true
}

// firstIsRTR is Defects.RTRAlwaysExpected.
func firstIsRTR(c *Conn, s *segment) bool {
	asked := &c.peer.wire.data
	if s.rtr && !asked.PeerToPeer && (asked.RTRSend || asked.RTRWrite || asked.RTRRead) && !s.empty() {
		c.refuse(wire.TermMPANoRTR)
		return false
	}
	return true
}

// shortenRead is Defects.ReadSize16.
func shortenRead(_ *Conn, s *segment) bool {
	if s.is(wire.OpReadRequest) && len(s.octets) >= readEnd {
		binary.BigEndian.PutUint16(s.octets[readSize:], 0)
	}
	return true
}
