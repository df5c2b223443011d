package iwarp

import (
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// segmentFault is a change of one segment of a valid message. The model decides whether the device
// must refuse the result.
type segmentFault struct {
	text string
	edit func(iwarp.Segment) iwarp.Segment
}

// drawFault returns a step with a message of the peer that is changed in one field.
func drawFault(random *rand.Rand) dialogueStep {
	draw := rig.Pick(random, drawSend, drawSend, drawSend, drawSend, drawWrite, drawRead, drawImmediate, drawAtomic)
	return faultStep(random, draw(random), drawSegmentFault(random))
}

// drawReceiveFault returns a step with a Send that is too long for its receive, or that has none.
func drawReceiveFault(random *rand.Rand) dialogueStep {
	more, split, missing := rig.Pick(random, 1, 2, 4, 100, 2000), drawSplit(random), random.IntN(3) == 0
	op := rig.Pick(random, iwarp.OpSend, iwarp.OpSendSE)
	if missing {
		immediate := random.IntN(2) == 0
		return faultStep(random, peerMessage{"one Send more than there are receives", func(s *dialogueSession) (all []iwarp.Segment) {
			usedReceives := int(s.peerMSN[0] - s.m.PeerMSN(0)) // by earlier messages of this step
			for range s.m.Receives() - usedReceives {
				all = append(all, iwarp.Send(s.nextPeerMSN(0), nil))
			}
			if immediate && s.m.Extensions {
				return append(all, iwarp.Immediate(s.nextPeerMSN(0), doubled(7)))
			}
			return append(all, iwarp.Send(s.nextPeerMSN(0), nil).Opcode(op))
		}}, unchanged)
	}
	return faultStep(random, peerMessage{fmt.Sprintf("a %v of %d octets more than its receive%v", op, more, split), func(s *dialogueSession) []iwarp.Segment {
		const newRecvLen = 40 // of a receive that roomForSend posts
		room := s.roomForSend(dialogueSize{more: newRecvLen})
		return split.segments(iwarp.Send(s.nextPeerMSN(0), data(room+more)).Opcode(op))
	}}, unchanged)
}

// unchanged is a fault that changes nothing: the message is wrong already.
var unchanged = segmentFault{edit: func(s iwarp.Segment) iwarp.Segment { return s }}

// drawAddressFault returns a step with a Write, Read Request or Atomic Request to a wrong address.
func drawAddressFault(random *rand.Rand) dialogueStep {
	draw := rig.Pick(random, drawWrite, drawRead, drawAtomic)
	fault := drawWrongAddr(random)
	message := draw(random)
	valid := message.make
	wrong := peerMessage{message.text, func(s *dialogueSession) []iwarp.Segment {
		segments := valid(s)
		at := len(segments) - 1
		segments[at] = fault.edit(s, segments[at])
		return segments
	}}
	// wrong already has the fault: the step only describes it.
	return faultStep(random, wrong, segmentFault{text: fault.text, edit: unchanged.edit})
}

// faultStep returns a step that may send a valid message, sends a changed one, and may send a valid
// one after it.
func faultStep(random *rand.Rand, wrong peerMessage, fault segmentFault) dialogueStep {
	before := make([]peerMessage, random.IntN(2))
	for i := range before {
		before[i] = drawMessage(random)
	}
	after, cut, pick := drawMessage(random), drawCut(random), random.IntN(1<<16)
	hasAfter := random.IntN(2) == 0
	cut.heldBack = 0 // the device must get the whole fault in this step
	text := "the peer sends "
	for _, m := range before {
		text += m.text + " and "
	}
	text += wrong.text
	if fault.text != "" {
		text += ", changed: " + fault.text
	}
	if hasAfter {
		text += ", and " + after.text
	}
	return dialogueStep{text: text + cut.String(), play: func(s *dialogueSession) {
		if s.m.Ended() {
			return
		}
		frames := s.makeFrames(append(before, wrong), func(segments []iwarp.Segment) (frames []peerFrame) {
			for i, segment := range segments {
				f := peerFrame{Segment: segment}
				if i == pick%len(segments) {
					f.Segment = fault.edit(pinQueue(segment))
					f.wrongMarkers = countMarkers(&f.Segment)
				}
				frames = append(frames, f)
			}
			return frames
		})
		// A device may find an error of a request only after it has delivered later messages.
		if op := frames[len(frames)-1].Op(); hasAfter && op != iwarp.OpReadRequest && op != iwarp.OpAtomicRequest {
			for _, segment := range after.make(s) {
				frames = append(frames, peerFrame{Segment: segment})
			}
		}
		s.sendFrames(cut, frames)
	}}
}

// pinQueue sets the queue of a segment, so that a change of the opcode does not change it.
func pinQueue(s iwarp.Segment) iwarp.Segment {
	if s.IsTagged() || s.DDP.QN != nil {
		return s
	}
	return s.QN(s.Op().Queue())
}

// countMarkers returns a counter of the markers that the fault of frame s changes when the frame is
// encoded; nil if the fault changes no markers.
func countMarkers(s *iwarp.Segment) *int {
	edit := s.MPA.EditMarker
	if edit == nil {
		return nil
	}
	n := new(int)
	s.MPA.EditMarker = func(m *iwarp.Marker) { edit(m); *n++ }
	return n
}

// untaggedOnly returns a change that edits untagged segments, and leaves tagged ones unchanged.
func untaggedOnly(edit func(iwarp.Segment) iwarp.Segment) func(iwarp.Segment) iwarp.Segment {
	return func(s iwarp.Segment) iwarp.Segment {
		if s.IsTagged() {
			return s
		}
		return edit(s)
	}
}

// drawSegmentFault returns a change of a header field or of the length of a segment.
func drawSegmentFault(random *rand.Rand) segmentFault {
	version, op, qn := rig.Pick[uint8](random, 0, 2, 3), iwarp.Opcode(random.IntN(16)), rig.Pick(random, 0, 1, 2, 3, 4, 5, 0x100, 0xffffffff, random.Uint32())
	// MSN and MO are outside of the posted buffers: RFC 5041 demands no error for a wrong one inside.
	msn, mo := rig.Pick(random, 0x100, 0x8000, 0xffffffff, 0x80000000, random.Uint32()|0x1000), rig.Pick[uint32](random, 0x10000, 0x20000, 0x80000, 0x1000000, 0x7fff0000, 0x80000000, 0x80010000)
	extra, cut := rig.Pick(random, 1, 3, 4, 8, 28), random.IntN(71)
	bit, inv := uint32(1)<<random.IntN(32), random.Uint32()
	faults := []segmentFault{
		{fmt.Sprintf("DV %d", version), func(s iwarp.Segment) iwarp.Segment { return s.DV(version) }},
		{fmt.Sprintf("RV %d", version), func(s iwarp.Segment) iwarp.Segment { return s.RV(version) }},
		{fmt.Sprintf("opcode %d", op), func(s iwarp.Segment) iwarp.Segment { return s.Opcode(op) }},
		{"T inverted", func(s iwarp.Segment) iwarp.Segment { return s.Tagged(!s.IsTagged()) }},
		{"L inverted", untaggedOnly(func(s iwarp.Segment) iwarp.Segment { return s.Last(!packet.Get(s.DDP.Last, true)) })},
		{fmt.Sprintf("QN %d", qn), untaggedOnly(func(s iwarp.Segment) iwarp.Segment { return s.QN(qn) })},
		{fmt.Sprintf("MSN plus %#x", msn), untaggedOnly(func(s iwarp.Segment) iwarp.Segment { return s.MSN(*s.DDP.MSN + msn) })},
		{fmt.Sprintf("MO plus %#x", mo), untaggedOnly(func(s iwarp.Segment) iwarp.Segment { return s.MO(iwarp.Val(s.DDP.MO) + mo) })},
		{fmt.Sprintf("%d more octets", extra), func(s iwarp.Segment) iwarp.Segment {
			return s.WithPayload(append(s.Payload[:len(s.Payload):len(s.Payload)], make([]byte, extra)...))
		}},
		{fmt.Sprintf("cut to %d octets", cut), func(s iwarp.Segment) iwarp.Segment {
			return s.Cut(cut).Pad(make([]byte, padLen(min(cut, s.Len())))...)
		}},
		{fmt.Sprintf("STag with another bit %#x", bit), func(s iwarp.Segment) iwarp.Segment { return changeSTag(s, bit) }},
		{fmt.Sprintf("Invalidate of %#x", inv), untaggedOnly(func(s iwarp.Segment) iwarp.Segment {
			return s.InvalidateSTag(inv)
		})},
	}
	const msnFault, moFault = 6, 7 // drawn more often: there are many wrong values
	i := rig.Pick(random, random.IntN(len(faults)), random.IntN(len(faults)), msnFault, moFault)
	f := faults[i]
	edit := f.edit
	f.edit = func(s iwarp.Segment) iwarp.Segment {
		if s.CutAt == nil {
			s.MPA.Pad = nil // the pad of the new length
		}
		return edit(s)
	}
	return f
}

// padLen returns the number of octets that pad an FPDU with a ULPDU of a length to a multiple of 4.
func padLen(ulpduLen int) int {
	const lengthField = 2
	return -(lengthField + ulpduLen) & 3
}

// changeSTag inverts a bit of the STag with which a segment accesses the device's memory.
func changeSTag(s iwarp.Segment, bit uint32) iwarp.Segment {
	switch {
	case s.IsTagged():
		return s.STag(iwarp.Val(s.DDP.STag) ^ bit)
	case s.Read != nil:
		return s.EditRead(func(h *iwarp.ReadRequestHeader) { h.SrcSTag = new(*h.SrcSTag ^ bit) })
	case s.AtomicRequest != nil:
		return s.EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.STag = new(*h.STag ^ bit) })
	}
	return s
}

// wrongAddr is a change of the address that a segment accesses.
type wrongAddr struct {
	text string
	edit func(*dialogueSession, iwarp.Segment) iwarp.Segment
}

// setAddr sets the address that a segment accesses.
func setAddr(s iwarp.Segment, at iwarp.Addr) iwarp.Segment {
	switch {
	case s.Read != nil:
		return s.EditRead(func(h *iwarp.ReadRequestHeader) { h.SrcSTag, h.SrcTO = &at.STag, &at.TO })
	case s.AtomicRequest != nil:
		return s.EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.STag, h.TO = &at.STag, &at.TO })
	}
	return s.STag(at.STag).TO(at.TO)
}

// accessLen returns the length that a segment accesses.
func accessLen(s iwarp.Segment) uint64 {
	switch {
	case s.Read != nil:
		return uint64(*s.Read.Size)
	case s.AtomicRequest != nil:
		return 8
	}
	return uint64(len(s.Payload))
}

// withAccessLen limits the length that a segment accesses to n; that of an atomic stays 8.
func withAccessLen(s iwarp.Segment, n int) iwarp.Segment {
	switch {
	case s.Read != nil:
		return s.EditRead(func(h *iwarp.ReadRequestHeader) { h.Size = new(min(*h.Size, uint32(n))) })
	case s.AtomicRequest != nil:
		return s
	}
	s.MPA.Pad = nil
	return s.WithPayload(s.Payload[:min(n, len(s.Payload))])
}

// drawWrongAddr returns a change of the address that a segment accesses, to one that is wrong in
// most cases: in memory for which the peer has no right, outside of a region, or misaligned.
func drawWrongAddr(random *rand.Rand) wrongAddr {
	region := rig.Pick(random, readOnly, writeOnly, otherDomain, deregistered, bindable, shortMemory)
	distance := rig.Pick(random, 1, 2, 7, 8, 16, 64, 4096, 1+random.IntN(1000))
	k, misaligned, wrap, bit := random.IntN(2), 1+random.IntN(7), uint64(1+random.IntN(8)), uint32(1)<<random.IntN(32)
	at := func(s *dialogueSession, name string, off int) iwarp.Addr {
		m := s.region(name)
		return iwarp.At(m.stag, m.model.Addr+uint64(off))
	}
	all := []wrongAddr{
		{"in " + region, func(s *dialogueSession, segment iwarp.Segment) iwarp.Segment {
			const maxLen = 32 // fits in each region
			firstWord := int(-s.region(region).model.Addr & 7)
			return setAddr(withAccessLen(segment, maxLen), at(s, region, firstWord))
		}},
		{fmt.Sprintf("%d octets before %s", distance, shortMemory), func(s *dialogueSession, segment iwarp.Segment) iwarp.Segment {
			return setAddr(segment, at(s, shortMemory, -distance))
		}},
		{fmt.Sprintf("%d octets over the end of %s", distance, shortMemory), func(s *dialogueSession, segment iwarp.Segment) iwarp.Segment {
			segment = withAccessLen(segment, shortMemoryLen)
			return setAddr(segment, at(s, shortMemory, shortMemoryLen-int(accessLen(segment))+distance))
		}},
		{fmt.Sprintf("over the end of the address space by %d octets", wrap), func(s *dialogueSession, segment iwarp.Segment) iwarp.Segment {
			return setAddr(segment, iwarp.At(uint32(s.target.RKey()), wrap-accessLen(segment)))
		}},
		{fmt.Sprintf("in window %d, bound or not", k), func(s *dialogueSession, segment iwarp.Segment) iwarp.Segment {
			if !s.Caps.Has(verbs.CapMWType2) {
				return segment
			}
			return setAddr(segment, s.addrInWindow(k))
		}},
		{fmt.Sprintf("STag with another bit %#x", bit), func(_ *dialogueSession, segment iwarp.Segment) iwarp.Segment {
			return changeSTag(segment, bit)
		}},
		{fmt.Sprintf("%d octets later", misaligned), func(s *dialogueSession, segment iwarp.Segment) iwarp.Segment {
			return setAddr(segment, iwarp.At(uint32(s.target.RKey()), s.target.Addr()+uint64(s.target.WordOffset(1)+misaligned)))
		}},
	}
	const inRegion = 0 // drawn more often: there are many regions
	return all[rig.Pick(random, inRegion, random.IntN(len(all)))]
}

// addrInWindow returns the first address in window k that is aligned for an atomic. The model does
// not know the key of a window that was never bound: addrInWindow adds it as revoked.
func (s *dialogueSession) addrInWindow(k int) iwarp.Addr {
	w := s.window(k)
	if neverBound := w.length == 0; neverBound {
		s.m.SetKey(uint32(w.key), model.IWARPKey{Window: true, Revoked: true})
	}
	return iwarp.At(uint32(w.key), (w.addr+7)&^7)
}

// drawFrameFault returns a step with an FPDU of the peer whose CRC or markers are wrong.
func drawFrameFault(random *rand.Rand) dialogueStep {
	distance := rig.Pick[uint16](random, 4, 8, 512, 0xfffc)
	fault := rig.Pick(random,
		segmentFault{"wrong CRC", iwarp.Segment.BadCRC},
		segmentFault{fmt.Sprintf("markers that point to %#x more", distance), func(s iwarp.Segment) iwarp.Segment {
			return s.EditMarkers(func(m *iwarp.Marker) { m.Ptr += distance })
		}})
	return faultStep(random, drawMessage(random), fault)
}

// drawWrongAnswer returns a step with a response to the device that is changed in one field.
func drawWrongAnswer(random *rand.Rand) dialogueStep {
	version, op, id := rig.Pick[uint8](random, 0, 2, 3), iwarp.Opcode(random.IntN(16)), random.Uint32()|1
	msn, qn := rig.Pick(random, 0x100, 0xffffffff, 0x80000000, random.Uint32()|0x1000), rig.Pick[uint32](random, 0, 1, 2, 4, 0xffffffff)
	fault := rig.Pick(random,
		segmentFault{fmt.Sprintf("DV %d", version), func(s iwarp.Segment) iwarp.Segment { return s.DV(version) }},
		segmentFault{fmt.Sprintf("RV %d", version), func(s iwarp.Segment) iwarp.Segment { return s.RV(version) }},
		segmentFault{fmt.Sprintf("opcode %d", op), func(s iwarp.Segment) iwarp.Segment { return s.Opcode(op) }},
		segmentFault{"T inverted", func(s iwarp.Segment) iwarp.Segment { return s.Tagged(!s.IsTagged()) }},
		segmentFault{"unknown STag", func(s iwarp.Segment) iwarp.Segment { return changeSTag(s, unknownSTag) }},
		segmentFault{"wrong CRC", iwarp.Segment.BadCRC},
		segmentFault{fmt.Sprintf("QN %d", qn), untaggedOnly(func(s iwarp.Segment) iwarp.Segment { return s.QN(qn) })},
		segmentFault{fmt.Sprintf("MSN plus %#x", msn), untaggedOnly(func(s iwarp.Segment) iwarp.Segment { return s.MSN(*s.DDP.MSN + msn) })},
		segmentFault{fmt.Sprintf("identifier plus %#x", id), func(s iwarp.Segment) iwarp.Segment {
			if h := s.AtomicResponse; h != nil {
				s.AtomicResponse = &iwarp.AtomicResponseHeader{ID: new(*h.ID + id), Original: h.Original}
			}
			return s
		}})
	answer, cut, pick := drawAnswer(random), drawCut(random), random.IntN(1<<16)
	cut.heldBack = 0 // the device must get the whole fault in this step
	return dialogueStep{text: fmt.Sprintf("the peer sends %s, one changed: %s%v", answer.text, fault.text, cut), play: func(s *dialogueSession) {
		segments := answer.make(s)
		if s.m.Ended() || len(segments) == 0 {
			return
		}
		i := pick % len(segments)
		s.sendFrames(cut, s.makeFrames([]peerMessage{{make: func(*dialogueSession) []iwarp.Segment { return segments }}}, func(all []iwarp.Segment) (frames []peerFrame) {
			for k, segment := range all {
				if k == i {
					segment = fault.edit(pinQueue(segment))
				}
				frames = append(frames, peerFrame{Segment: segment})
			}
			return frames
		}))
	}}
}

// drawUnsolicited returns a step with a response to no request of the device.
func drawUnsolicited(random *rand.Rand) dialogueStep {
	atomic, id := random.IntN(2) == 0, random.Uint32()
	return dialogueStep{text: fmt.Sprintf("the peer sends a response to no request (atomic: %t)", atomic), play: func(s *dialogueSession) {
		if s.m.Ended() || !s.m.Idle() || len(s.wire.frames) > 0 {
			return
		}
		response := iwarp.ReadResponse(uint32(s.target.RKey()), s.target.Addr(), data(16))
		if atomic && s.m.Extensions {
			response = iwarp.AtomicResponse(s.m.PeerMSN(iwarp.OpAtomicResponse.Queue()), id, 7)
		}
		s.sendFrames(dialogueCut{}, []peerFrame{{Segment: response}})
	}}
}

// drawTerminate returns a step in which the peer sends a Terminate.
func drawTerminate(random *rand.Rand) dialogueStep {
	cause := rig.Pick(random, iwarp.RDMAPCatastrophic, iwarp.RDMAPInvalidSTag, iwarp.RDMAPRemoteUnspecified, iwarp.DDPTaggedBounds, iwarp.DDPUntaggedNoBuffer, iwarp.MPACRC)
	reserved := uint16(random.IntN(0x2000))
	message := iwarp.Terminate(cause).EditTerminate(func(h *iwarp.TerminateHeader) { h.Reserved = &reserved })
	return peerStep(dialogueCut{}, peerMessage{fmt.Sprintf("a TERMINATE with %v", cause), func(*dialogueSession) []iwarp.Segment { return []iwarp.Segment{message} }})
}

// drawStreamEnd returns a step in which the peer closes or resets the stream. A close is an error
// inside an FPDU or a message, and orderly only if no request is outstanding either.
func drawStreamEnd(random *rand.Rand) dialogueStep {
	reset := random.IntN(2) == 0
	return dialogueStep{text: fmt.Sprintf("the peer ends the stream (reset: %t)", reset), play: func(s *dialogueSession) {
		if s.m.Ended() {
			return
		}
		failed := reset || s.wire.inFrame(s.c.framer.Position) || s.m.Receiving()
		orderly := !failed && s.m.Idle()
		r := s.m.End()
		if reset {
			s.c.reset()
			s.Must("a notification of the disconnect", s.c.deviceConn.WaitDisconnect(s.ResponseTimeout()))
		} else {
			s.c.closeWrite()
			s.c.expectAbort() // a Terminate says that TCP was closed
			s.c.expectDisconnect()
		}
		s.over = orderly // after an orderly close, receives may fail, or stay for the next connection
		if !s.over {
			s.expectCompletions(r.Completed())
			s.expectErrorState(failed)
		}
		s.expectMemory()
	}}
}

// drawDisconnect returns a step in which the application closes an idle connection.
func drawDisconnect(*rand.Rand) dialogueStep {
	return dialogueStep{text: "the application disconnects", play: func(s *dialogueSession) {
		if s.m.Ended() || !s.m.Idle() || s.m.Receiving() || len(s.wire.frames) > 0 {
			return
		}
		disconnecting := s.c.startDisconnect()
		s.c.expectClose()
		s.c.closeWrite()
		s.Must("a disconnect", disconnecting.Wait(s.ResponseTimeout()))
		s.c.expectDisconnect()
		s.m.End()
		s.over = true // receives may fail, or stay for the next connection
		s.expectMemory()
	}}
}

// drawErrorState returns a step in which the application moves its queue pair to ERR.
func drawErrorState(*rand.Rand) dialogueStep {
	return dialogueStep{text: "the application moves the queue pair to ERR", play: func(s *dialogueSession) {
		if s.m.Ended() {
			return
		}
		r := s.m.End()
		s.ToState(s.c.qp, verbs.QPStateErr)
		s.c.expectAbort()
		s.c.expectDisconnect()
		s.expectCompletions(r.Completed())
		s.expectErrorState(false)
		s.expectMemory()
	}}
}

// The kinds of memory that the application may not use.
const (
	inOtherPD = iota
	endsAfterRegion
	beginsBeforeRegion
	withDeregisteredKey
	badMemoryKinds
)

// badMemory returns a scatter/gather list of n bytes of memory that the application may not use.
func (s *dialogueSession) badMemory(kind, n int) []verbs.SGE {
	sgl := s.local.SGL(0, n)
	switch kind {
	case inOtherPD:
		return s.region(otherDomain).SGL(0, n)
	case endsAfterRegion:
		sgl[0].Addr += uint64(dialogueMemLen - n + 1)
	case beginsBeforeRegion:
		sgl[0].Addr--
	case withDeregisteredKey:
		sgl[0].LKey = verbs.LKey(s.region(deregistered).stag)
	}
	return sgl
}

// drawBadReceive returns a step in which the application posts a receive with a wrong list.
func drawBadReceive(random *rand.Rand) dialogueStep {
	// The first octet must be wrong: a short message does not reach the end of the receive.
	kind, n := rig.Pick(random, inOtherPD, beginsBeforeRegion, withDeregisteredKey), rig.Pick(random, 1, 16, 400)
	return dialogueStep{text: fmt.Sprintf("the application posts a receive of memory that it may not use (kind %d)", kind), play: func(s *dialogueSession) {
		if s.m.Ended() {
			return
		}
		s.lastID++
		recv := model.IWARPRecv{ID: recvIDs + s.lastID, Pieces: s.local.pieces(0, n), Bad: true}
		posted, err := s.c.qp.PostRecv([]verbs.RecvWR{{WRID: recv.ID, SGL: s.badMemory(kind, n)}})
		s.Note("post receive %d: %d accepted, %v", recv.ID, posted, err)
		if posted > 0 {
			s.m.PostRecv(recv)
		}
	}}
}

// drawLocalFault returns a step in which the application posts a request with a wrong list.
func drawLocalFault(random *rand.Rand) dialogueStep {
	d, kind, n := drawRequest(random), random.IntN(badMemoryKinds), rig.Pick(random, 8, 16, 300, 400)
	d.flags = d.flags&verbs.SendFence | verbs.SendSignaled // not inline, which uses no list
	return dialogueStep{text: fmt.Sprintf("the application posts %v of memory that it may not use (kind %d)", d.op, kind), play: func(s *dialogueSession) {
		if s.m.Ended() || s.m.Queued() > maxOutstanding {
			return
		}
		q, n := s.makeRequest(d), n
		q.Bad = true
		if q.WR.Opcode == verbs.OpAtomicFetchAdd || q.WR.Opcode == verbs.OpAtomicCmpAndSwp {
			n = 8
		}
		q.WR.SGL = s.badMemory(kind, n)
		posted, err := s.c.qp.PostSend([]verbs.SendWR{q.WR})
		s.Note("post: %d accepted, %v", posted, err)
		if posted > 0 {
			s.expectReaction(s.m.PostSend(q))
		}
	}}
}
