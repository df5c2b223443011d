package iwarp

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// dialogueConn are the settings of the connection of a dialogue.
type dialogueConn struct {
	// active: the device connects. markers: the peer requests markers. crc: it requests CRCs.
	active, markers, crc bool
	rtr                  iwarp.RTR
	// depth is the peer's IRD, which limits the outstanding reads of the device.
	depth uint16
}

// String describes the connection and the settings of the scripted peer, for the record of a
// dialogue.
func (d dialogueConn) String() string {
	role, rtr := "the peer connects", map[iwarp.RTR]string{iwarp.RTRSend: "Send", iwarp.RTRWrite: "Write", iwarp.RTRRead: "Read"}[d.rtr]
	if d.active {
		role = "the device connects"
	}
	return fmt.Sprintf("%s; of the peer: markers %t, CRC %t, IRD %d, RTR %s", role, d.markers, d.crc, d.depth, rtr)
}

// drawDialogueConn returns random settings of the connection of a dialogue, a random exchange that is
// compared with a model. If the mix of steps is plain (see dialogueMix), the start-up has an RTR by
// Write and no CRC.
func drawDialogueConn(random *rand.Rand, mix *dialogueMix) dialogueConn {
	d := dialogueConn{
		active: random.IntN(2) == 0, markers: random.IntN(3) == 0 && !mix.noMarkers, crc: random.IntN(2) == 0,
		rtr: rig.Pick(random, iwarp.RTRWrite, iwarp.RTRWrite, iwarp.RTRRead, iwarp.RTRSend), depth: rig.Pick[uint16](random, 1, 2, 4, 16),
	}
	if mix.plain {
		d.rtr, d.crc = iwarp.RTRWrite, false
	}
	return d
}

// drawConnection returns the first step of a dialogue.
func drawConnection(random *rand.Rand, mix *dialogueMix) dialogueStep {
	d := drawDialogueConn(random, mix)
	return dialogueStep{text: d.String(), connects: true, play: func(s *dialogueSession) {
		if s.c == nil {
			s.connectDialogue(d)
		}
	}}
}

// connectDialogue makes the connection, and the model of its queue pair.
func (s *dialogueSession) connectDialogue(d dialogueConn) {
	peer := setup{active: d.active, reuse: s.c, memLen: dialogueMemLen, caps: verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: dialogueMaxInline}}
	if d.rtr == iwarp.RTRSend && !d.active {
		peer.receives = 1 // for the RTR
	}
	edit := func(f startupFrame) startupFrame {
		return f.Markers(d.markers).CRC(d.crc).EditEnhanced(func(e *iwarp.Enhanced) { e.IRD = &d.depth })
	}
	peer.frame = func(f startupFrame) startupFrame { return edit(f).PeerToPeer(d.rtr) }
	hs := s.startHandshake(peer)
	if d.active {
		offered := hs.recvEnhancedRequest()
		hs.setup.frame = edit
		if iwarp.Val(offered.PeerToPeer) && offered.Flags().RTRs()&d.rtr != 0 {
			hs.setup.frame = peer.frame
		}
		hs.sendReply(hs.setup.frame)
	} else {
		hs.exchangeFrames()
	}
	s.c = hs.establish()
	s.c.allowBadPad = s.mix.anyPad
	s.modelConnection(d, peer.receives)
	s.drainEvents(func(e verbs.AsyncEvent) bool { return e.Type == verbs.EventCommEst })
}

// modelConnection makes the model of the connection after its start-up.
func (s *dialogueSession) modelConnection(d dialogueConn, receives int) {
	require(s.c.deviceFrame.Enhanced != nil, "the device's start-up frame is not enhanced")
	ord := *s.c.deviceFrame.Enhanced.ORD
	if d.active {
		ord = min(ord, d.depth)
	}
	s.Check(ord <= d.depth, fmt.Sprintf("an ORD of at most %d, the peer's IRD", d.depth), "%d", ord)
	s.m = model.NewIWARP(s.Caps.Has(verbs.CapAtomics), int(ord))
	s.local = s.addMemory(s.c.localMem, 0)
	s.target = s.addMemory(s.c.targetMem, allAccess)
	if s.c.requestMSN > 0 {
		s.m.SkipPeerMSN(1)
	}
	if s.c.sendMSN > 0 {
		s.m.SkipPeerMSN(0)
		s.channel.completed(false) // the receive of the RTR
		s.channel.check(s)
	} else if receives > 0 {
		s.m.PostRecv(model.IWARPRecv{ID: rtrRecvID, Pieces: s.local.pieces(0, s.c.recvLen)})
	}
	// The device's RTR has used an MSN if it is a Send or a Read; a Write has none.
	if e := s.c.peerFrame.Enhanced; d.active && iwarp.Val(e.PeerToPeer) && !iwarp.Val(e.WriteRTR) {
		queue := uint32(0)
		if iwarp.Val(e.ReadRTR) {
			queue = 1
		}
		s.m.SkipDeviceMSN(queue)
	}
}

// drawReconnect returns a step in which the application resets its queue pair, whether or not the
// connection has ended, and connects it again. The step has no effect after a stall.
func drawReconnect(random *rand.Rand, mix *dialogueMix) dialogueStep {
	d := drawDialogueConn(random, mix)
	return dialogueStep{text: "the application resets the queue pair; " + d.String(), connects: true, play: func(s *dialogueSession) {
		if s.m == nil || s.over && !s.m.Ended() {
			return // not connected, or the device has stalled
		}
		if s.over { // after an orderly close, receives may have failed
			s.Sleep(s.syncUnlessVirtual(dialogueQuiet))
			for range s.Completions() {
				s.channel.completed(true)
			}
			s.channel.check(s)
		}
		err := s.c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState)
		s.Note("reset the queue pair: %s", errorOr(err, "done"))
		if s.over = err != nil; s.over {
			return
		}
		if !s.m.Ended() {
			s.c.expectAbort()
		}
		s.c.reset()
		s.drainEvents(anyEvent)
		s.ExpectNoCompletion()
		s.freeRegions()
		s.wire, s.peerMSN = dialogueWire{}, [2]uint32{}
		s.connectDialogue(d)
	}}
}

const (
	// rtrRecvID is the work request ID of a receive for a Send as RTR.
	rtrRecvID = 1
	// firstSendID is the first work request ID of send requests.
	firstSendID = rtrRecvID + 1
)

// addMemory adds memory to the model, with an STag that has the rights of the peer.
func (s *dialogueSession) addMemory(m *rig.Memory, access verbs.Access) *dialogueMemory {
	d := &dialogueMemory{Memory: m, model: s.m.AddMemory(m.Addr(), m.Buf)}
	s.m.SetKey(uint32(m.RKey()), model.IWARPKey{Mem: d.model, Len: len(m.Buf), Access: access})
	return d
}

// pieces returns n bytes of the memory from off on.
func (m *dialogueMemory) pieces(off, n int) []model.IWARPPiece {
	return []model.IWARPPiece{{Mem: m.model, Off: off, Len: n}}
}

// dialogueWire is the peer's direction of the stream.
type dialogueWire struct {
	unsent []byte      // octets that were not sent yet
	frames []peerFrame // frames of which some octets were not sent
	begin  uint64      // where the first of them begins
	words  []uint64    // addresses of atomics that the device may not have executed yet
}

// inFrame reports whether a part of a frame was sent. position is the offset after all frames.
func (w *dialogueWire) inFrame(position uint64) bool {
	return len(w.frames) > 0 && position-uint64(len(w.unsent)) > w.begin
}

// ordered returns frame f. If it is a Write that overlaps the word of an earlier atomic, ordered
// removes its payload, because the RFCs do not order an atomic and a later Write.
func (w *dialogueWire) ordered(f peerFrame) peerFrame {
	s := f.Segment
	if s.AtomicRequest != nil {
		w.words = append(w.words, *s.AtomicRequest.TO)
	}
	if s.Op() != iwarp.OpWrite || !s.IsTagged() {
		return f
	}
	for _, word := range w.words {
		if *s.DDP.TO < word+8 && word < *s.DDP.TO+uint64(len(s.Payload)) {
			f.Segment = s.WithPayload(nil)
			f.MPA.Pad = nil
		}
	}
	return f
}

// peerFrame is a frame of the peer.
type peerFrame struct {
	iwarp.Segment
	// end is the offset of the stream after it.
	end uint64
	// wrongMarkers counts the markers that were changed to point to another FPDU.
	wrongMarkers *int
}

// dialogueCut is how a step cuts its octets into TCP segments: after every piece octets, or after
// every frame if piece is zero. The last heldBack octets are sent with the peer's next step.
type dialogueCut struct{ piece, heldBack int }

// uncut is a piece that is longer than all octets of a step.
const uncut = 1 << 20

// drawCut returns a random cut: after every frame, none, or into small or larger pieces.
func drawCut(random *rand.Rand) (cut dialogueCut) {
	cut.piece = rig.Pick(random, 0, 0, 0, uncut, uncut, uncut, 1+random.IntN(40), 100+random.IntN(1000))
	if random.IntN(5) == 0 {
		cut.heldBack = rig.Pick(random, 1, 3, 4, 5, 8, 20, 1+random.IntN(600))
	}
	return cut
}

// String describes how the octets are cut into TCP segments, for the record of a dialogue.
func (cut dialogueCut) String() string {
	text := ""
	switch {
	case cut.piece == uncut:
		text = " in one TCP segment"
	case cut.piece > 0:
		text = fmt.Sprintf(" in TCP segments of %d octets", cut.piece)
	}
	if cut.heldBack > 0 {
		text += fmt.Sprintf(", the last %d octets later", cut.heldBack)
	}
	return text
}

// sendFrames sends frames of the peer, cut into TCP segments, and compares the device with the
// model, which gets the frames that have arrived completely.
func (s *dialogueSession) sendFrames(cut dialogueCut, frames []peerFrame) {
	if s.m.Ended() {
		return // the device has closed the stream
	}
	w := &s.wire
	if len(w.frames) == 0 {
		w.words, w.begin = nil, s.c.framer.Position
	}
	var ends []int
	for _, f := range frames {
		f = w.ordered(f)
		w.unsent = append(w.unsent, s.c.encode(f.Segment)...)
		f.end = s.c.framer.Position
		w.frames = append(w.frames, f)
		ends = append(ends, len(w.unsent))
	}
	b := w.unsent[:max(0, len(w.unsent)-cut.heldBack)]
	s.writeCut(b, cut, ends)
	w.unsent = append([]byte{}, w.unsent[len(b):]...)
	arrived := s.c.framer.Position - uint64(len(w.unsent))
	var r model.IWARPReaction
	for len(w.frames) > 0 && w.frames[0].end <= arrived {
		r.Add(s.modelFrame(w.frames[0]))
		r.NoteLaterWrites()
		w.begin = w.frames[0].end
		w.frames = w.frames[1:]
	}
	s.expectReaction(r)
}

// writeCut sends octets in TCP segments of cut.piece octets, or one for each frame if that is zero.
// ends are the offsets after each frame.
func (s *dialogueSession) writeCut(b []byte, cut dialogueCut, ends []int) {
	for at := 0; at < len(b); {
		end := at + cut.piece
		switch {
		case cut.piece == 0 && len(ends) == 0:
			end = len(b)
		case cut.piece == 0:
			end = ends[0]
			ends = ends[1:]
		}
		end = min(end, len(b))
		if end > at {
			s.c.write(b[at:end])
		}
		at = end
	}
}

// modelFrame gives a frame to the model.
func (s *dialogueSession) modelFrame(f peerFrame) model.IWARPReaction {
	switch {
	case f.wrongMarkers != nil && *f.wrongMarkers > 0:
		return s.m.RefuseFrame(iwarp.MPAMarker)
	case f.MPA.CRCStatus != nil && *f.MPA.CRCStatus == iwarp.CRCWrong && s.c.framer.CRC:
		return s.m.RefuseFrame(iwarp.MPACRC)
	}
	return s.m.Receive(iwarp.ParseSegment(f.Append(nil)))
}

// peerMessage is a message of a step: its description, and a function that makes its segments.
type peerMessage struct {
	text string
	make func(*dialogueSession) []iwarp.Segment
}

// peerStep returns a step in which the peer sends messages; in a plain mix, only the first of them.
func peerStep(cut dialogueCut, messages ...peerMessage) dialogueStep {
	texts := make([]string, len(messages))
	for i, m := range messages {
		texts[i] = m.text
	}
	return dialogueStep{text: "the peer sends " + strings.Join(texts, " and ") + cut.String(), play: func(s *dialogueSession) {
		if s.mix.plain {
			s.sendFrames(dialogueCut{}, s.makeFrames(messages[:1], nil))
			return
		}
		s.sendFrames(cut, s.makeFrames(messages, nil))
	}}
}

// makeFrames makes the frames of messages. edit, unless nil, changes those of the last message.
func (s *dialogueSession) makeFrames(messages []peerMessage, edit func([]iwarp.Segment) []peerFrame) (frames []peerFrame) {
	if s.m.Ended() {
		return nil
	}
	if len(s.wire.frames) == 0 {
		s.peerMSN = [2]uint32{s.m.PeerMSN(0), s.m.PeerMSN(1)}
		for _, w := range s.windows {
			w.accessed = false
		}
	}
	for i, message := range messages {
		segments := message.make(s)
		if edit != nil && i == len(messages)-1 {
			return append(frames, edit(segments)...)
		}
		for _, segment := range segments {
			frames = append(frames, peerFrame{Segment: segment})
		}
	}
	return frames
}
