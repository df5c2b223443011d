package iwarp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// dialogueSize is a length relative to full segments of the device, or to the room of a receive.
type dialogueSize struct{ units, more int }

// drawSize returns a random size, in most cases near a boundary of padding, markers or segments.
func drawSize(random *rand.Rand) dialogueSize {
	switch random.IntN(4) {
	case 0:
		return dialogueSize{more: random.IntN(9)}
	case 1:
		return dialogueSize{more: 1 + random.IntN(700)}
	case 2:
		return dialogueSize{units: 1 + random.IntN(3), more: random.IntN(5) - 2}
	default:
		return dialogueSize{more: rig.Pick(random, 16, 31, 32, 33, 63, 64, 65, 480, 484, 488, 496, 512, 1024)}
	}
}

// String describes the size, for the record of a dialogue.
func (n dialogueSize) String() string {
	if n.units == 0 {
		return fmt.Sprintf("%d octets", n.more)
	}
	return fmt.Sprintf("%d full segments %+d octets", n.units, n.more)
}

// in returns the length in octets for full segments of fullLen octets, at most limit.
func (n dialogueSize) in(fullLen, limit int) int { return max(0, min(n.units*fullLen+n.more, limit)) }

// fullSegment returns the most payload of a segment of the device with a header.
func (s *dialogueSession) fullSegment(header int) int {
	return iwarp.MULPDU(s.c.tcp.MSS(), s.c.deframer.Markers) - header
}

// dialogueSplit is the payload length of the segments into which the peer splits a message; 0: the
// peer does not split it.
type dialogueSplit int

func drawSplit(random *rand.Rand) dialogueSplit {
	return dialogueSplit(rig.Pick(random, 0, 0, 0, 1+random.IntN(8), 16+random.IntN(50), 400+random.IntN(800)))
}

// String describes the split, for the record of a dialogue; empty if the message is not split.
func (d dialogueSplit) String() string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(" in segments of %d", int(d))
}

// segments splits a message into segments of d octets of payload, or larger ones if there would be
// more than 40 of them.
func (d dialogueSplit) segments(s iwarp.Segment) []iwarp.Segment {
	const maxSegments = 40
	if d == 0 {
		return []iwarp.Segment{s}
	}
	header := ddpUntaggedLen
	if s.IsTagged() {
		header = ddpTaggedLen
	}
	return s.Segments(header + max(int(d), len(s.Payload)/maxSegments+1))
}

// ignoredFields are the values of fields that a receiver must ignore.
type ignoredFields struct {
	ddpReserved, rdmapReserved uint8
	pad                        byte
	invalidate                 uint32
}

// drawIgnoredFields returns random values of the fields in one of four cases, else zeros.
func drawIgnoredFields(random *rand.Rand) (d ignoredFields) {
	if random.IntN(4) == 0 {
		d = ignoredFields{ddpReserved: uint8(random.IntN(16)), rdmapReserved: uint8(random.IntN(4)), pad: byte(random.Uint32()), invalidate: random.Uint32()}
	}
	return d
}

// String says, for the record of a dialogue, that fields are set which the device must ignore.
func (d ignoredFields) String() string {
	if d == (ignoredFields{}) {
		return ""
	}
	return " with reserved bits and pad set"
}

// apply sets the fields in the segments, and returns these.
func (d ignoredFields) apply(segments []iwarp.Segment) []iwarp.Segment {
	if d == (ignoredFields{}) {
		return segments
	}
	for i, s := range segments {
		if op := s.Op(); op == iwarp.OpSend || op == iwarp.OpSendSE {
			s = s.InvalidateSTag(d.invalidate)
		}
		pad := make([]byte, padLen(s.Len()))
		for k := range pad {
			pad[k] = d.pad
		}
		segments[i] = s.DDPReserved(d.ddpReserved).RDMAPReserved(d.rdmapReserved).Pad(pad...)
	}
	return segments
}

// drawMessage returns a valid message of the peer, of any kind.
func drawMessage(random *rand.Rand) peerMessage {
	return rig.Pick(random, drawSend, drawSend, drawWrite, drawWrite, drawRead, drawRead, drawImmediate, drawAtomic)(random)
}

// drawMessages returns a step in which the peer sends one to four messages.
func drawMessages(random *rand.Rand) dialogueStep {
	messages := make([]peerMessage, rig.Pick(random, 1, 1, 2, 3, 4))
	for i := range messages {
		messages[i] = drawMessage(random)
	}
	return peerStep(drawCut(random), messages...)
}

// drawSend returns a Send of one of the four kinds. It fits its receive.
func drawSend(random *rand.Rand) peerMessage {
	op := rig.Pick(random, iwarp.OpSend, iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate)
	size, split, ignored, first := drawSize(random), drawSplit(random), drawIgnoredFields(random), byte(random.Uint32())
	full := random.IntN(3) == 0
	text := fmt.Sprintf("a %v of %v%v%v", op, size, split, ignored)
	if full {
		text = fmt.Sprintf("a %v that fills its receive%v%v", op, split, ignored)
	}
	return peerMessage{text, func(s *dialogueSession) []iwarp.Segment {
		room := s.roomForSend(size)
		n := size.in(s.fullSegment(ddpUntaggedLen), room)
		if full {
			n = room
		}
		message := iwarp.Send(s.nextPeerMSN(0), rig.Pattern(n, first)).Opcode(op)
		if op == iwarp.OpSendInvalidate || op == iwarp.OpSendSEInvalidate {
			w := s.boundWindow()
			if w == nil {
				return ignored.apply(split.segments(message.Opcode(iwarp.OpSend)))
			}
			w.used = true
			message = message.InvalidateSTag(uint32(w.key))
		}
		return ignored.apply(split.segments(message))
	}}
}

// nextPeerMSN counts a message of the peer.
func (s *dialogueSession) nextPeerMSN(queue int) uint32 {
	s.peerMSN[queue]++
	return s.peerMSN[queue] - 1
}

// roomForSend returns the length of the receive for the peer's next Send. It posts receives, of the
// given size, if earlier messages of the step use all of them.
func (s *dialogueSession) roomForSend(size dialogueSize) int {
	const maxLen = sourceLen / 4 // several receives fit in local
	used := int(s.peerMSN[0] - s.m.PeerMSN(0))
	for s.m.Receives() <= used {
		s.postRecv(size.in(s.fullSegment(ddpUntaggedLen), maxLen), 1)
	}
	return s.m.Room(used)
}

// drawImmediate returns immediate data, or a Send if the device does not support it.
func drawImmediate(random *rand.Rand) peerMessage {
	half, op, ignored := random.Uint32(), rig.Pick(random, iwarp.OpImmediate, iwarp.OpImmediateSE), drawIgnoredFields(random)
	return peerMessage{fmt.Sprintf("%v %#x%v", op, half, ignored), func(s *dialogueSession) []iwarp.Segment {
		s.roomForSend(dialogueSize{more: 16})
		msn := s.nextPeerMSN(0)
		if !s.m.Extensions {
			return []iwarp.Segment{iwarp.Send(msn, nil)}
		}
		return ignored.apply([]iwarp.Segment{iwarp.Immediate(msn, doubled(half)).Opcode(op)})
	}}
}

// drawAddr returns a function that chooses n octets of the device's memory for which the peer has a
// right: in target, or at times in a window with that right.
func drawAddr(random *rand.Rand, right verbs.Access) func(s *dialogueSession, n, align int) iwarp.Addr {
	inWindow, part := random.IntN(4) == 0, random.IntN(1<<16)
	return func(s *dialogueSession, n, align int) iwarp.Addr {
		if w := s.windowWith(right, n+align); w != nil && inWindow {
			w.accessed = true
			return alignedAddr(iwarp.At(uint32(w.key), w.addr), w.length-n, part, align)
		}
		return alignedAddr(addrOf(s.target.Memory, 0), dialogueMemLen-n, part, align)
	}
}

// alignedAddr returns a multiple of align that is 0 to room octets after at; part/65536 of room
// selects which.
func alignedAddr(at iwarp.Addr, room, part, align int) iwarp.Addr {
	limit := at.TO + uint64(room)
	at.TO += uint64(part * room >> 16)
	at.TO = (at.TO + uint64(align) - 1) / uint64(align) * uint64(align)
	if at.TO > limit {
		at.TO -= uint64(align)
	}
	return at
}

// drawWrite returns a Write.
func drawWrite(random *rand.Rand) peerMessage {
	size, split, ignored, first := drawSize(random), drawSplit(random), drawIgnoredFields(random), byte(random.Uint32())
	addr, anyKey := drawAddr(random, verbs.AccessRemoteWrite), random.Uint32()
	return peerMessage{fmt.Sprintf("a WRITE of %v%v%v", size, split, ignored), func(s *dialogueSession) []iwarp.Segment {
		n := size.in(s.fullSegment(ddpTaggedLen), dialogueMemLen/2)
		at := addr(s, n, 1)
		if n == 0 {
			at.STag ^= anyKey // a zero-length Write needs no key
		}
		return ignored.apply(split.segments(writeTo(at, rig.Pattern(n, first))))
	}}
}

// drawRead returns a Read Request.
func drawRead(random *rand.Rand) peerMessage {
	size, ignored, anyKey := drawSize(random), drawIgnoredFields(random), random.Uint32()
	addr, sink := drawAddr(random, verbs.AccessRemoteRead), iwarp.At(random.Uint32(), random.Uint64()>>1)
	ignored.pad = 0 // the header ends at a multiple of four
	return peerMessage{fmt.Sprintf("a READ REQUEST for %v%v", size, ignored), func(s *dialogueSession) []iwarp.Segment {
		n := size.in(s.fullSegment(ddpTaggedLen), dialogueMemLen/2)
		at := addr(s, n, 1)
		if n == 0 {
			at.STag ^= anyKey // a zero-length Read Request needs no key
		}
		return ignored.apply([]iwarp.Segment{iwarp.ReadRequest(s.nextPeerMSN(1), sink, uint32(n), at)})
	}}
}

// drawAtomic returns an Atomic Request, or a Read Request if the device does not support it.
func drawAtomic(random *rand.Rand) peerMessage {
	ignored, id, addr := drawIgnoredFields(random), random.Uint32(), drawAddr(random, verbs.AccessRemoteAtomic)
	operand, swap, matching := random.Uint64(), random.IntN(2) == 0, random.IntN(2) == 0
	mask, compareMask := drawMask(random), drawMask(random)
	read := drawRead(random)
	text := fmt.Sprintf("a FetchAdd of %#x with mask %#x", operand, mask)
	if swap {
		text = fmt.Sprintf("a CmpSwap to %#x with masks %#x, %#x, matching %t", operand, compareMask, mask, matching)
	}
	return peerMessage{text + ignored.String(), func(s *dialogueSession) []iwarp.Segment {
		if !s.m.Extensions {
			return read.make(s)
		}
		at := addr(s, 8, 8)
		message := iwarp.FetchAdd(s.nextPeerMSN(1), id, at, operand)
		if swap {
			compare := s.wordAt(at)
			if !matching {
				compare ^= operand | 1
			}
			message = message.EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.Operation, h.Compare = new(iwarp.AtomicCompareSwap), &compare })
		}
		message = message.EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.Mask, h.CompareMask = &mask, &compareMask })
		return ignored.apply([]iwarp.Segment{message})
	}}
}

// drawMask returns a mask of an atomic: no bits, all bits, fields, or any.
func drawMask(random *rand.Rand) uint64 {
	return rig.Pick(random, 0, ^uint64(0), 0x80000000_80000000, 0x80808080_80808080, 0xffff, random.Uint64(), random.Uint64()&random.Uint64()&random.Uint64())
}

// wordAt returns the word at an address, in target or the memory of windows.
func (s *dialogueSession) wordAt(at iwarp.Addr) uint64 {
	m := s.target
	if at.STag != uint32(m.RKey()) {
		m = s.regions[bindable]
	}
	return binary.NativeEndian.Uint64(m.model.Data[at.TO-m.model.Addr:])
}

// postRecv posts a receive of n bytes in the given number of pieces.
func (s *dialogueSession) postRecv(n, pieces int) {
	s.lastID++
	id := recvIDs + s.lastID
	sgl, modelled := s.sinkPieces(n, pieces)
	posted, err := s.c.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGL: sgl}})
	if s.m.Ended() && posted == 0 {
		s.Note("post receive %d: %v", id, err)
		return
	}
	s.Must("a receive that the device accepts", err)
	s.Note("post receive %d of %d bytes", id, n)
	r := s.m.PostRecv(model.IWARPRecv{ID: id, Pieces: modelled})
	s.expectCompletions(r.Completed())
}

// sinkPieces reserves n bytes of local for incoming data, in one piece or in two, of which the first
// is at the higher address.
func (s *dialogueSession) sinkPieces(n, pieces int) (sgl []verbs.SGE, modelled []model.IWARPPiece) {
	const gap = 5
	if s.ring+n+gap > dialogueMemLen-sourceLen {
		s.ring = 0
	}
	off := sourceLen + s.ring
	s.ring += n + gap
	if pieces > 1 {
		first := n / 3
		modelled = append(modelled, model.IWARPPiece{Mem: s.local.model, Off: off + n - first + gap, Len: first})
		modelled = append(modelled, model.IWARPPiece{Mem: s.local.model, Off: off, Len: n - first})
	} else {
		modelled = s.local.pieces(off, n)
	}
	for _, p := range modelled {
		sgl = append(sgl, s.local.SGE(p.Off, p.Len))
	}
	return sgl, modelled
}

// drawReceives returns a step in which the application posts receives.
func drawReceives(random *rand.Rand) dialogueStep {
	n, count, pieces := rig.Pick(random, 0, 1, 16, 64, 200, 1000, 3000), 1+random.IntN(3), 1+random.IntN(2)
	const maxPosted = 12
	return dialogueStep{text: fmt.Sprintf("the application posts %d receives of %d bytes in %d pieces", count, n, pieces), play: func(s *dialogueSession) {
		for range count {
			if s.m.Receives() < maxPosted {
				s.postRecv(n, pieces)
			}
		}
		s.expectMemory()
	}}
}

// drawMemoryChange returns a step in which the application changes its memory: target, and the part
// of local from which it sends.
func drawMemoryChange(random *rand.Rand) dialogueStep {
	off, n, first := random.IntN(dialogueMemLen), 1+random.IntN(2000), byte(random.Uint32())
	return dialogueStep{text: fmt.Sprintf("the application changes %d bytes from %d on", n, off), play: func(s *dialogueSession) {
		for _, m := range []*dialogueMemory{s.target, s.local} {
			end := len(m.Buf)
			if m == s.local {
				end = sourceLen
			}
			b := rig.Pattern(min(n, max(0, end-off)), first)
			s.QueryPort() // a verb before and after orders the change with the device's accesses
			copy(m.Buf[min(off, end):], b)
			m.model.Set(min(off, end), b)
			s.QueryPort()
		}
	}}
}

// drawArm returns a step in which the application requests a completion event.
func drawArm(random *rand.Rand) dialogueStep {
	solicitedOnly := random.IntN(3) > 0
	return dialogueStep{text: fmt.Sprintf("the application requests an event (solicited only: %t)", solicitedOnly), play: func(s *dialogueSession) {
		s.channel.arm(s, solicitedOnly)
	}}
}
