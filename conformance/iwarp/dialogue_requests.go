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

// drawnRequest is a send request of a step.
type drawnRequest struct {
	op     verbs.WROpcode
	flags  verbs.SendFlags
	size   dialogueSize
	pieces int
	// off is the offset of the data in the source part of local.
	off    int
	remote verbs.Remote
	value  uint64
}

// String describes the work request and its flags, for the record of a dialogue.
func (d drawnRequest) String() string {
	text := fmt.Sprintf("%v of %v", d.op, d.size)
	for _, f := range []struct {
		flag verbs.SendFlags
		name string
	}{{verbs.SendFence, "fenced"}, {verbs.SendSolicited, "solicited"}, {verbs.SendInline, "inline"}} {
		if d.flags&f.flag != 0 {
			text += " " + f.name
		}
	}
	if d.flags&verbs.SendSignaled == 0 {
		text += " unsignaled"
	}
	return text
}

// drawRequest returns a random send request. Sends, Writes and Reads are drawn twice as often as
// other operations. Some remote addresses let the access cross 2^32 or are close to the end.
func drawRequest(random *rand.Rand) drawnRequest {
	d := drawnRequest{
		op: rig.Pick(random, verbs.OpSend, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpRDMARead,
			verbs.OpSendInv, verbs.OpRDMAWriteImm, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp),
		size: drawSize(random), pieces: 1 + random.IntN(2), off: random.IntN(sourceLen / 4), value: random.Uint64(),
		remote: verbs.Remote{
			Addr: rig.Pick(random, 0, peerTO, 0xffffff80, 0xffffffff_fffe0000, random.Uint64()>>1) &^ 7, RKey: verbs.RKey(random.Uint32()),
		},
	}
	for _, f := range []struct {
		flag  verbs.SendFlags
		oneIn int
	}{{verbs.SendFence, 6}, {verbs.SendSolicited, 3}, {verbs.SendInline, 6}} {
		if random.IntN(f.oneIn) == 0 {
			d.flags |= f.flag
		}
	}
	if random.IntN(4) > 0 {
		d.flags |= verbs.SendSignaled
	}
	return d
}

// drawRequests returns a step in which the application posts one to four requests at once.
func drawRequests(random *rand.Rand) dialogueStep {
	drawn := make([]drawnRequest, rig.Pick(random, 1, 1, 2, 3, 4))
	texts := make([]string, len(drawn))
	for i := range drawn {
		drawn[i] = drawRequest(random)
		texts[i] = drawn[i].String()
	}
	return dialogueStep{text: "the application posts " + strings.Join(texts, " and "), play: func(s *dialogueSession) {
		requests := make([]*model.IWARPRequest, len(drawn))
		for i, d := range drawn {
			requests[i] = s.makeRequest(d)
		}
		s.postRequests(requests)
	}}
}

// maxOutstanding limits the requests that wait for responses.
const maxOutstanding = 40

// postRequests posts requests, and compares the device with the model.
func (s *dialogueSession) postRequests(requests []*model.IWARPRequest) {
	if s.m.Queued() > maxOutstanding {
		return
	}
	wrs := make([]verbs.SendWR, len(requests))
	for i, q := range requests {
		wrs[i] = q.WR
		s.Note("post %v %d", q.WR.Opcode, q.WR.WRID)
	}
	posted, err := s.c.qp.PostSend(wrs)
	if s.m.Ended() {
		s.Note("post: %d accepted, %v", posted, err)
		r := s.m.PostSend(requests[:posted]...)
		s.expectCompletions(r.Completed())
		return
	}
	s.Must("send requests that the device accepts", err)
	s.expectReaction(s.m.PostSend(requests...))
}

// supported returns the opcode, or a similar one if the device does not support it.
func (s *dialogueSession) supported(op verbs.WROpcode) verbs.WROpcode {
	switch {
	case op == verbs.OpSendInv && !s.Caps.Has(verbs.CapSendInv):
		return verbs.OpSend
	case op == verbs.OpRDMAWriteImm && !s.m.Extensions:
		return verbs.OpRDMAWrite
	case (op == verbs.OpAtomicFetchAdd || op == verbs.OpAtomicCmpAndSwp) && !s.m.Extensions:
		return verbs.OpRDMARead
	}
	return op
}

// makeRequest returns a request with its data in local.
func (s *dialogueSession) makeRequest(d drawnRequest) *model.IWARPRequest {
	s.lastID++
	q := &model.IWARPRequest{WR: verbs.SendWR{WRID: firstSendID - 1 + s.lastID, Opcode: s.supported(d.op), Flags: d.flags &^ verbs.SendInline, Remote: d.remote}}
	wr := &q.WR
	switch wr.Opcode {
	case verbs.OpRDMARead:
		wr.SGL, q.Pieces = s.sinkPieces(d.size.in(s.fullSegment(ddpTaggedLen), sourceLen/4), 1)
		return q
	case verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp:
		wr.SGL, q.Pieces = s.sinkPieces(8, 1)
		wr.Atomic = verbs.Atomic{CompareAdd: d.value, Swap: ^d.value}
		return q
	case verbs.OpRDMAWrite:
		wr.Flags &^= verbs.SendSolicited
	}
	wr.Imm, wr.InvalidateRKey = uint32(d.value), verbs.RKey(d.value>>32)
	s.addSource(q, d)
	return q
}

// addSource adds the data of a Send or Write: inline, or in one or two pieces.
func (s *dialogueSession) addSource(q *model.IWARPRequest, d drawnRequest) {
	header := ddpUntaggedLen
	if q.WR.Opcode == verbs.OpRDMAWrite || q.WR.Opcode == verbs.OpRDMAWriteImm {
		header = ddpTaggedLen
	}
	n := d.size.in(s.fullSegment(header), sourceLen*3/4)
	if d.flags&verbs.SendInline != 0 && n <= dialogueMaxInline {
		q.WR.Flags |= verbs.SendInline
		q.WR.Inline = rig.Pattern(n, byte(d.value))
		return
	}
	rest := n
	if d.pieces > 1 {
		first := n / 2 // at the higher address
		rest = n - first
		q.Pieces = append(q.Pieces, model.IWARPPiece{Mem: s.local.model, Off: d.off + rest, Len: first})
	}
	q.Pieces = append(q.Pieces, model.IWARPPiece{Mem: s.local.model, Off: d.off, Len: rest})
	for _, p := range q.Pieces {
		q.WR.SGL = append(q.WR.SGL, s.local.SGE(p.Off, p.Len))
	}
}

// drawAnswers returns a step in which the peer answers requests of the device, in order.
func drawAnswers(random *rand.Rand) dialogueStep {
	return peerStep(drawCut(random), drawAnswer(random))
}

// drawAnswer returns the responses to one or several requests of the device.
func drawAnswer(random *rand.Rand) peerMessage {
	count, split, ignored, first := rig.Pick(random, 1, 1, 2, 3, 16), drawSplit(random), drawIgnoredFields(random), byte(random.Uint32())
	return peerMessage{fmt.Sprintf("responses to %d requests%v%v", count, split, ignored), func(s *dialogueSession) (all []iwarp.Segment) {
		if len(s.wire.frames) > 0 {
			return nil // the rest of a message comes first
		}
		for k := range count {
			response, ok := s.m.Response(k, func(n int) []byte { return rig.Pattern(n, first+byte(7*k)) })
			if !ok {
				break
			}
			all = append(all, ignored.apply(split.segments(response))...)
		}
		return all
	}}
}

// dialogueWindow is a memory window of type 2.
type dialogueWindow struct {
	mw     verbs.MW
	key    verbs.RKey // the current key
	addr   uint64
	length int
	access verbs.Access
	// used and accessed: a frame that may not be processed yet invalidates it, or accesses it.
	used, accessed bool
}

// bound reports whether the peer can use a window.
func (s *dialogueSession) bound(w *dialogueWindow) bool {
	return w.length > 0 && !w.used && s.m.CanInvalidate(uint32(w.key))
}

// boundWindow returns a window that the peer can invalidate; nil if there is none. It returns none
// that earlier frames access, since a read is not ordered before a later Send that invalidates.
func (s *dialogueSession) boundWindow() *dialogueWindow {
	const anyRight = ^verbs.Access(0)
	if w := s.windowWith(anyRight, 0); w != nil && !w.accessed {
		return w
	}
	return nil
}

// windowWith returns a bound window with at least one of the rights and at least n octets; nil if
// there is none.
func (s *dialogueSession) windowWith(rights verbs.Access, n int) *dialogueWindow {
	for _, w := range s.windows {
		if s.bound(w) && w.access&rights != 0 && w.length >= n {
			return w
		}
	}
	return nil
}

// drawWindow returns a step that binds a window, or invalidates it if it is bound.
func drawWindow(random *rand.Rand) dialogueStep {
	k, off, n := random.IntN(2), random.IntN(100), 1+random.IntN(400)
	access := rig.Pick(random, verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic,
		verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	return dialogueStep{text: fmt.Sprintf("the application binds window %d to %d bytes from %d on with rights %#x, or invalidates it", k, n, off, uint32(access)), play: func(s *dialogueSession) {
		if !s.Caps.Has(verbs.CapMWType2) || !s.m.Idle() || len(s.wire.frames) > 0 {
			return // a bind while other work is under way takes effect at an unspecified time
		}
		w := s.window(k)
		s.lastID++
		q := &model.IWARPRequest{WR: verbs.SendWR{WRID: firstSendID - 1 + s.lastID, Flags: verbs.SendSignaled}}
		if s.bound(w) {
			q.WR.Opcode, q.WR.InvalidateRKey = verbs.OpLocalInv, w.key
			s.postRequests([]*model.IWARPRequest{q})
			return
		}
		m := s.region(bindable)
		*w = dialogueWindow{mw: w.mw, key: verbs.NextRKey(w.key), addr: m.Addr() + uint64(off), length: n, access: access}
		q.WR.Opcode = verbs.OpBindMW
		q.WR.Bind = verbs.Bind{MW: w.mw, RKey: w.key, Info: verbs.BindInfo{MR: m.MR, Addr: w.addr, Length: uint64(n), Access: access}}
		q.Key = model.IWARPKey{Mem: m.model, Off: off, Len: n, Access: access, Window: true}
		s.postRequests([]*model.IWARPRequest{q})
	}}
}

// window returns the k-th window, and allocates those up to it.
func (s *dialogueSession) window(k int) *dialogueWindow {
	for len(s.windows) <= k {
		mw, err := s.PD.AllocMW(verbs.MWType2)
		s.Must("a window", err)
		s.windows = append(s.windows, &dialogueWindow{mw: mw, key: mw.RKey()})
	}
	return s.windows[k]
}

// The regions of a session besides local and target.
const (
	bindable     = "memory for windows"
	readOnly     = "memory that the peer may only read"
	writeOnly    = "memory that the peer may only write"
	otherDomain  = "memory of another domain"
	deregistered = "deregistered memory"
	shortMemory  = "short memory"
)

// shortMemoryLen is the length of shortMemory: its end is not aligned.
const shortMemoryLen = 61

var regionNames = []string{bindable, readOnly, writeOnly, otherDomain, deregistered, shortMemory}

// region returns a region by its name, and registers it at the first call.
func (s *dialogueSession) region(name string) *dialogueMemory {
	if m := s.regions[name]; m != nil {
		return m
	}
	access := map[string]verbs.Access{
		bindable: verbs.AccessMWBind, readOnly: verbs.AccessRemoteRead, writeOnly: verbs.AccessRemoteWrite,
		otherDomain: allAccess, deregistered: allAccess, shortMemory: allAccess,
	}[name]
	const length = 512
	var m *rig.Memory
	switch name {
	case otherDomain:
		m = s.otherPDMemory(access)
	case shortMemory:
		m = s.Memory(shortMemoryLen, access|verbs.AccessLocalWrite)
	default:
		m = s.Memory(length, access|verbs.AccessLocalWrite)
	}
	peerAccess := access &^ verbs.AccessMWBind
	d := s.addMemory(m, peerAccess)
	s.regions[name] = d
	// This key, with what is special about the region, replaces the one that addMemory has set.
	key := model.IWARPKey{Mem: d.model, Len: len(m.Buf), Access: peerAccess, Foreign: name == otherDomain, Revoked: name == deregistered}
	s.m.SetKey(uint32(m.RKey()), key)
	d.stag = uint32(m.RKey())
	if name == deregistered {
		s.closeRegion(d)
	}
	return d
}
