package iwarp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// dialogueStep is a step of a dialogue. play reads the state of the session only when it is
// called, so that the step makes sense after others were removed.
type dialogueStep struct {
	text string
	play func(*dialogueSession)
	// connects: the step makes the connection.
	connects bool
}

func (s dialogueStep) String() string { return s.text }

// dialogueMix selects the steps of the dialogues of a case.
type dialogueMix struct {
	// steps are the kinds of steps.
	steps []weightedStep
	// exactReports: a Terminate must quote all that RFC 5040 figure 10 lists, and nothing else.
	exactReports bool
	// anyPad: the pad of FPDUs is not checked.
	anyPad bool
	// noMarkers: the peer does not request markers.
	noMarkers bool
	// plain: each step of the peer is one message, in TCP segments that are whole FPDUs; the peer
	// does not request CRCs, and the state of the queue pair is not checked.
	plain bool
}

// weightedStep is a kind of step, which is drawn weight times as often as one of weight 1.
type weightedStep struct {
	weight int
	draw   func(*rand.Rand) dialogueStep
}

// dialogueSession is a connection of the device with its model.
type dialogueSession struct {
	*host
	mix *dialogueMix
	c   *conn // nil before the first step
	m   *model.IWARP

	// local is for the application, target for the peer; others are regions by their names.
	local, target *dialogueMemory
	regions       map[string]*dialogueMemory
	windows       []*dialogueWindow
	wire          dialogueWire
	// peerMSN are the MSNs of the peer's next messages to queues 0 and 1.
	peerMSN [2]uint32

	drawn   int
	lastID  uint64
	ring    int // the offset in local of the next receive or sink
	channel dialogueChannel
	// reported: an event or a completion has reported that the stream has failed.
	reported bool
	// over: what the device does next is not specified, and steps have no effect.
	over bool
}

// dialogueMemory is registered memory with its model.
type dialogueMemory struct {
	*rig.Memory
	model *model.IWARPMemory
	stag  uint32
}

// dialogueQuiet is how long a silent device is observed after each step, in virtual time.
const dialogueQuiet = 20 * time.Millisecond

const (
	dialogueMemLen = 32 << 10
	// sourceLen is the part of local for outgoing data; the rest is for incoming data.
	sourceLen = dialogueMemLen / 2
	// dialogueMaxInline is the longest inline data of the queue pair.
	dialogueMaxInline = 64
	// recvIDs is the first work request ID of receives.
	recvIDs = 1 << 20
)

// openDialogue returns a function that opens a session, which draws and plays the steps of a mix.
func openDialogue(mix *dialogueMix) func(*rig.Rig) rig.DialogueSession[dialogueStep] {
	return func(r *rig.Rig) rig.DialogueSession[dialogueStep] {
		sessionRig := *r // a copy: channel.open sets its completion queue
		s := &dialogueSession{host: &host{Rig: &sessionRig}, mix: mix, regions: make(map[string]*dialogueMemory)}
		s.channel.open(s)
		return s
	}
}

// Draw returns a random step. The first makes the connection. After the end of a connection, the
// application connects again, or posts receives or requests, which fail.
func (s *dialogueSession) Draw(random *rand.Rand) dialogueStep {
	s.drawn++
	if s.drawn == 1 {
		return drawConnection(random, s.mix)
	}
	ended := s.m != nil && s.m.Ended()
	if !s.mix.plain && (ended && random.IntN(2) == 0 || random.IntN(60) == 0) {
		return drawReconnect(random, s.mix)
	}
	if ended {
		return rig.Pick(random, drawReceives, drawRequests)(random)
	}
	total := 0
	for _, w := range s.mix.steps {
		total += w.weight
	}
	n := random.IntN(total)
	for _, w := range s.mix.steps {
		if n -= w.weight; n < 0 {
			return w.draw(random)
		}
	}
	panic("unreachable")
}

// Play plays a step on a connection, which it makes with default settings if there is none. After
// an event that leaves the device's behaviour open (s.over), only a step that connects has an
// effect.
func (s *dialogueSession) Play(step dialogueStep) {
	if s.over && !step.connects {
		return
	}
	if s.c == nil && !step.connects {
		s.connectDialogue(dialogueConn{rtr: iwarp.RTRWrite, depth: defaultOrd})
	}
	step.play(s)
}

// Close frees the objects of the device. A connection that is up ends with its queue pair.
func (s *dialogueSession) Close() {
	if c := s.c; c != nil && s.m != nil && !s.m.Ended() && !s.over {
		s.Must("a queue pair that can be closed", c.qp.Close())
		c.expectAbort()
		s.c.qp = nil
	}
	for _, c := range []*conn{s.c, s.syncConn} {
		if c != nil {
			c.reset()
		}
		if c != nil && c.qp != nil {
			s.Must("a queue pair that can be closed", c.qp.Close())
		}
	}
	s.freeRegions()
	if s.c != nil {
		s.closeRegion(s.local)
		s.closeRegion(s.target)
	}
	for _, hs := range s.accepts {
		s.Must("a listener that can be closed", hs.listener.Close())
	}
	s.drainEvents(anyEvent)
	s.channel.close(s)
}

// freeRegions frees the windows, and the regions besides local and target.
func (s *dialogueSession) freeRegions() {
	for _, w := range s.windows {
		s.Must("a window that can be freed", w.mw.Close())
	}
	for _, m := range s.regions {
		s.closeRegion(m)
	}
	s.windows, s.regions = nil, make(map[string]*dialogueMemory)
}

// memories returns all memory of the session.
func (s *dialogueSession) memories() (all []*dialogueMemory) {
	if s.c == nil {
		return nil
	}
	all = []*dialogueMemory{s.local, s.target}
	for _, name := range regionNames {
		if m := s.regions[name]; m != nil {
			all = append(all, m)
		}
	}
	return all
}

// closeRegion deregisters memory, unless a step has done so.
func (s *dialogueSession) closeRegion(m *dialogueMemory) {
	s.ExpectUnchangedOutside(m.Memory, 0, len(m.Buf)) // the guard bytes
	if m.MR != nil {
		s.Must("a region that can be deregistered", m.MR.Close())
		m.MR = nil
	}
}

// expectReaction compares the device with a reaction of the model: messages, completions, memory,
// events.
func (s *dialogueSession) expectReaction(r model.IWARPReaction) {
	switch {
	case r.Refusal != nil:
		s.expectRefused(r)
	case r.Terminated:
		s.expectMessages(&r, true)
		s.expectStreamEnd()
	case r.Stalled:
		s.expectMessages(&r, false)
		s.expectCompletions(r.Completed())
		s.c.expectNoResponse()
		s.over = true
		return
	default:
		s.expectMessages(&r, false)
		s.m.ResponsesSeen()
	}
	s.expectCompletions(r.Completed())
	if s.m.Ended() {
		if r.Refusal != nil && !r.Refusal.Local {
			s.reported = false // an event must report an error of the peer; a completion does not
		}
		s.expectErrorState(r.Refusal != nil || r.Terminated)
	} else {
		s.expectNothingMore()
	}
	s.expectMemory()
}

// expectNothingMore fails the case if the device sends or completes anything else.
func (s *dialogueSession) expectNothingMore() {
	s.c.expectSilence(dialogueQuiet)
	s.ExpectNoCompletion()
	s.drainEvents(func(verbs.AsyncEvent) bool { return false })
	if !s.mix.plain {
		s.ExpectState(s.c.qp, verbs.QPStateRTS)
	}
}

// expectMessages reads the messages of the reaction. If untilEnd is set, it reads up to a Terminate,
// which it returns, or up to the end of the stream, and the device need not send all messages.
func (s *dialogueSession) expectMessages(r *model.IWARPReaction, untilEnd bool) (t iwarp.ReceivedFPDU, terminated bool) {
	responses, requests := messageReader{session: s, messages: r.Responses}, messageReader{session: s, messages: r.Requests}
	for untilEnd || !responses.done() || !requests.done() {
		g, ok := s.c.nextFPDU(s.ResponseTimeout())
		switch {
		case !ok && untilEnd && s.c.endErr != nil && len(s.c.deframer.Pending()) == 0:
			return g, false
		case !ok:
			s.Fail(requests.next(responses.next(describeAfter(r))), "%s", s.c.describeMissing())
		case untilEnd && g.Op() == iwarp.OpTerminate:
			return g, true
		case g.Op() == iwarp.OpReadResponse || g.Op() == iwarp.OpAtomicResponse:
			responses.take(g)
		default:
			requests.take(g)
		}
	}
	return t, false
}

// describeAfter describes what must come after the messages of a reaction.
func describeAfter(r *model.IWARPReaction) string {
	if r.Refusal != nil {
		return formatTerminate(r.Refusal.Causes)
	}
	return "the end of the stream"
}

// messageReader compares segments with messages of the model, in order.
type messageReader struct {
	session  *dialogueSession
	messages []model.IWARPMessage
	at       int // octets of the first message that have arrived
}

func (r *messageReader) done() bool { return len(r.messages) == 0 }

// next describes the message that must come next, or returns other if there is none.
func (r *messageReader) next(other string) string {
	if r.done() {
		return other
	}
	return r.messages[0].Segment.String()
}

// take compares a segment with the next part of the first message.
func (r *messageReader) take(g iwarp.ReceivedFPDU) {
	s := r.session
	if r.done() {
		s.Fail("no message", "%v", g)
	}
	message, n := r.messages[0], len(g.Payload)
	s.c.checkFPDU(iwarp.Op(message.Segment.Op()), g)
	left := len(message.Segment.Payload) - r.at
	s.Check(n <= left && (n > 0 || left == 0), fmt.Sprintf("%v with at least one octet of payload, and at most %d, if any are left", message.Segment, left), "%v", g)
	want := message.Segment.WithPayload(message.Permitted(r.at, g.Payload)).Last(n == left)
	if want.IsTagged() {
		want = want.TO(*want.DDP.TO + uint64(r.at))
	} else {
		want = want.MO(uint32(r.at))
	}
	s.c.checkFPDU(want, g)
	s.checkDialogueFPDU(message, g)
	if r.at += n; n == left {
		r.messages, r.at = r.messages[1:], 0
	}
	s.m.Observe(g.Segment)
}

// checkDialogueFPDU checks the length of a segment, its header, and immediate data.
func (s *dialogueSession) checkDialogueFPDU(message model.IWARPMessage, g iwarp.ReceivedFPDU) {
	limit := iwarp.MULPDU(s.c.tcp.MSS(), s.c.deframer.Markers)
	s.Check(len(g.ULPDU) <= limit, fmt.Sprintf("a segment of at most %d octets", limit), "%d in %v", len(g.ULPDU), g)
	want := message.Segment
	complete := (want.Read != nil) == (g.Read != nil) && (want.AtomicRequest != nil) == (g.AtomicRequest != nil) &&
		(want.AtomicResponse != nil) == (g.AtomicResponse != nil) && (message.Imm != nil) == (g.Immediate != nil)
	s.Check(complete, fmt.Sprintf("%v with its header", want), "%v", g)
	if message.Imm != nil {
		v := *g.Immediate.Value
		s.Check(uint32(v) == *message.Imm || uint32(v>>32) == *message.Imm, fmt.Sprintf("%#x in one half of the immediate data", *message.Imm), "%#x", v)
	}
}

// expectRefused expects the Terminate of a refusal, after messages that the device may send before
// it, and the end of the stream. A refusal without causes permits an end without a Terminate.
func (s *dialogueSession) expectRefused(r model.IWARPReaction) {
	t, terminated := s.expectMessages(&r, true)
	if terminated {
		s.checkTerminate(t, r.Refusal)
	} else {
		s.Check(r.Refusal.Causes == nil, formatTerminate(r.Refusal.Causes), "%s", describeEnd(s.c.endErr))
	}
	s.expectStreamEnd()
}

// checkTerminate checks the fields of a Terminate; those that quote the refused segment need not be
// complete unless mix.exactReports is set.
func (s *dialogueSession) checkTerminate(g iwarp.ReceivedFPDU, refusal *model.IWARPRefusal) {
	s.c.checkFPDU(iwarp.Op(iwarp.OpTerminate).Tagged(false).Last(true).DV(1).RV(1).QN(2).MSN(1).MO(0), g)
	t := g.Segment
	if !s.mix.exactReports {
		t = s.c.parseTerminate(g)
	}
	s.Check(t.Terminate != nil, formatTerminate(refusal.Causes), "%v", g)
	cause := iwarp.Val(t.Terminate.Cause)
	switch {
	case refusal.Local:
		isLocal := cause.Layer() == 0 && cause.Type() == 0
		s.Check(isLocal, "TERMINATE rdmap/local", "%v", g)
	case refusal.Causes != nil:
		s.Check(slices.Contains(refusal.Causes, cause), formatTerminate(refusal.Causes), "%v", g)
	default:
		s.Check(cause.Listed(), formatTerminate(nil), "%v", g)
	}
	if s.mix.exactReports && (refusal.Causes != nil || refusal.Local) {
		s.checkTerminateQuotes(t, refusal)
	}
	if quoted := t.Terminate.DDPHeader; quoted != nil && refusal.Wrong != nil {
		s.c.expectQuotedDDPHeader(t, *refusal.Wrong)
		n, length := len(refusal.Wrong.Append(nil)), t.Terminate.SegmentLength
		s.Check(!s.mix.exactReports || length == nil || int(*length) == n, fmt.Sprintf("a Terminate with a segment length of %d", n), "%v", t)
	}
}

// checkTerminateQuotes checks that a Terminate quotes what RFC 5040 figure 10 lists for its cause:
// nothing without a refused segment, an RDMAP header only for RDMAP remote protection errors.
func (s *dialogueSession) checkTerminateQuotes(t iwarp.Segment, refusal *model.IWARPRefusal) {
	want := iwarp.Terminate(*t.Terminate.Cause)
	if refusal.Wrong == nil {
		want = want.QuotingNothing()
	} else {
		want = want.About(*refusal.Wrong).WithPayload(nil)
		cause := *t.Terminate.Cause
		if isRDMAPProtection := cause.Layer() == 0 && cause.Type() == 1; !isRDMAPProtection {
			want = want.EditTerminate(func(h *iwarp.TerminateHeader) { h.HasRDMAP, h.RDMAPHeader = new(false), nil })
		}
	}
	want = want.EditTerminate(func(h *iwarp.TerminateHeader) { h.Reserved = new(uint16(0)) })
	s.c.checkFPDU(want, iwarp.ReceivedFPDU{Segment: t})
}

// expectStreamEnd expects the end of the device's direction, and closes the peer's.
func (s *dialogueSession) expectStreamEnd() {
	s.c.expectEnd()
	s.c.expectDisconnect()
}

// expectErrorState expects a queue pair in the error state, and no events but those of its error. If
// the stream has failed, an event or a completion must report that.
func (s *dialogueSession) expectErrorState(failed bool) {
	s.AwaitState(s.c.qp, verbs.QPStateErr)
	s.Sleep(s.syncUnlessVirtual(dialogueQuiet))
	s.ExpectNoCompletion()
	s.drainEvents(func(e verbs.AsyncEvent) bool {
		isError := e.Type == verbs.EventQPFatal || e.Type == verbs.EventQPReqErr || e.Type == verbs.EventQPAccessErr
		s.reported = s.reported || isError
		return (isError || e.Type == verbs.EventQPLastWQEReached) && e.QP == s.c.qp
	})
	s.Check(s.reported || !failed, "an event of the queue pair, or a completion with its error", "neither")
	s.reported = false
}

// drainEvents takes all pending asynchronous events, and fails the case if one is not permitted.
func (s *dialogueSession) drainEvents(permitted func(verbs.AsyncEvent) bool) {
	for {
		e, err := s.Device.WaitAsync(0)
		if errors.Is(err, verbs.ErrTimeout) {
			return
		}
		s.Must("events", err)
		s.Check(permitted(e), "no event", "%v", e.Type)
	}
}

// anyEvent permits all events.
func anyEvent(verbs.AsyncEvent) bool { return true }

// expectMemory compares all memory with the model.
func (s *dialogueSession) expectMemory() {
	s.QueryPort() // a verb orders the device's writes before the comparison
	for _, m := range s.memories() {
		if bytes.Equal(m.Buf, m.model.Data) {
			continue
		}
		if i, differs := m.model.Differs(m.Buf); differs {
			s.Fail(fmt.Sprintf("%#02x at byte %d of the memory at %#x", m.model.Data[i], i, m.model.Addr), "%#02x", m.Buf[i])
		}
	}
}

// expectCompletions expects completions: those of requests in order, and those of receives.
func (s *dialogueSession) expectCompletions(all []model.IWARPCompletion) {
	var requests, receives []model.IWARPCompletion
	for _, wc := range all {
		if wc.Recv {
			receives = append(receives, wc)
		} else {
			requests = append(requests, wc)
		}
	}
	required := func(wc model.IWARPCompletion) bool { return !wc.Optional }
	for slices.ContainsFunc(requests, required) || slices.ContainsFunc(receives, required) {
		wc := s.NextCompletion()
		queue := &requests
		if wc.WRID >= recvIDs || wc.WRID == rtrRecvID {
			queue = &receives
		}
		for len(*queue) > 0 && (*queue)[0].Optional && (*queue)[0].ID != wc.WRID {
			*queue = (*queue)[1:]
		}
		s.Check(len(*queue) > 0, "no completion of that queue", "%s", rig.Describe(&wc))
		s.checkCompletion((*queue)[0], wc)
		*queue = (*queue)[1:]
	}
	if s.m.Ended() {
		s.expectOptional(append(requests, receives...))
	}
	s.channel.check(s)
}

// expectOptional fails the case if a completion arrives that is not one of those given, in their
// order. Any of them may be absent.
func (s *dialogueSession) expectOptional(all []model.IWARPCompletion) {
	if len(all) == 0 {
		return
	}
	s.Sleep(s.syncUnlessVirtual(dialogueQuiet))
	for _, wc := range s.Completions() {
		i := slices.IndexFunc(all, func(want model.IWARPCompletion) bool { return want.ID == wc.WRID })
		s.Check(i >= 0, "no completion", "%s", rig.Describe(&wc))
		s.checkCompletion(all[i], wc)
		all = all[i+1:]
	}
}

// checkCompletion compares a completion with that of the model.
func (s *dialogueSession) checkCompletion(want model.IWARPCompletion, got verbs.WC) {
	text := rig.Describe(&got)
	success := got.Status == verbs.WCSuccess
	s.Check(want.ID == got.WRID, fmt.Sprintf("the completion of %d", want.ID), "%s", text)
	s.Check(want.Status == nil && !success || slices.Contains(want.Status, got.Status),
		fmt.Sprintf("completion %d with %s", want.ID, formatStatuses(want.Status)), "%s", text)
	s.Check(got.QPN == s.c.qp.QPN(), fmt.Sprintf("a completion of queue pair %d", s.c.qp.QPN()), "queue pair %d", got.QPN)
	s.channel.completed(want.Solicited || !success)
	if !success {
		s.reported = s.reported || got.Status != verbs.WCWRFlushErr
		return
	}
	s.Check(slices.Contains(want.Opcodes, got.Opcode), fmt.Sprintf("a completion of %v", want.Opcodes), "%s", text)
	s.Check(want.Len == nil || *want.Len == got.ByteLen, fmt.Sprintf("a completion with %d bytes", iwarp.Val(want.Len)), "%s", text)
	hasImm, hasInv := got.Flags&verbs.WCWithImm != 0, got.Flags&verbs.WCWithInv != 0
	s.Check(hasImm == (want.Imm != nil) && (!hasImm || got.Imm == *want.Imm), fmt.Sprintf("immediate data %s", formatOptional(want.Imm)), "%s", text)
	s.Check(hasInv == (want.Invalidated != nil) && (!hasInv || uint32(got.InvalidatedRKey) == *want.Invalidated),
		fmt.Sprintf("invalidated key %s", formatOptional(want.Invalidated)), "%s", text)
}

// formatStatuses formats the permitted statuses of a completion.
func formatStatuses(all []verbs.WCStatus) string {
	if all == nil {
		return "an error"
	}
	return fmt.Sprint(all)
}

// formatOptional formats a field that may be absent.
func formatOptional(v *uint32) string {
	if v == nil {
		return "absent"
	}
	return fmt.Sprintf("%#x", *v)
}

// dialogueChannel is the completion channel of a session, and which event the application awaits.
type dialogueChannel struct {
	verbs.CompChannel
	armed, solicitedOnly bool
	due                  bool // a completion has occurred for which an event is due
}

// open makes the completion queue of the session, with a channel.
func (ch *dialogueChannel) open(s *dialogueSession) {
	var err error
	ch.CompChannel, err = s.Device.CreateCompChannel()
	s.Must("a completion channel", err)
	s.CQ = s.CreateCQ(verbs.CQInit{Depth: 512, Channel: ch.CompChannel})
}

// arm requests an event for the next completion.
func (ch *dialogueChannel) arm(s *dialogueSession, solicitedOnly bool) {
	s.Must("a completion queue that can be armed", s.CQ.ReqNotify(solicitedOnly))
	if ch.armed && !ch.solicitedOnly {
		return // a request for any completion stays
	}
	ch.armed, ch.solicitedOnly = true, solicitedOnly
}

// completed notes a completion. If an event was requested for it, check then expects that event.
func (ch *dialogueChannel) completed(solicited bool) {
	if ch.armed && (solicited || !ch.solicitedOnly) {
		ch.armed, ch.due = false, true
	}
}

// check expects an event if one is due, and none otherwise.
func (ch *dialogueChannel) check(s *dialogueSession) {
	if ch.due {
		ch.due = false
		s.expectCQEvent(ch.CompChannel)
		return
	}
	s.expectNoCQEvent(ch.CompChannel)
}

func (ch *dialogueChannel) close(s *dialogueSession) {
	s.Must("a completion queue that can be closed", s.CQ.Close())
	s.Must("a completion channel that can be closed", ch.CompChannel.Close())
}
