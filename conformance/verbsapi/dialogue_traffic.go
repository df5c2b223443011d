package verbsapi

import (
	"bytes"
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// trafficSession has two connections to the partner. The second receives from a shared
// receive queue. Sends complete on the first CQ, and receives on the second.
type trafficSession struct {
	cqSet
	mix     trafficMix
	pair    *rig.Pair
	kind    verbs.QPType
	links   [2]*trafficLink
	srq     *modelSRQ // nil if the device has none
	mem     *rig.Memory
	peerMem *rig.Memory
	lastID  uint64 // ID of the last request or receive of the device
	lastImm uint32 // last immediate data of the partner
	// recvs has the IDs of the receives whose buffers are in use, and 0 for free buffers.
	recvs [slots]uint64
}

// trafficLink is a connection, with the model of the device's queue pair.
type trafficLink struct {
	*qpPair
	*model.VerbsQP
}

type trafficStep = sessionStep[*trafficSession]

// trafficMix is a mix of steps.
type trafficMix int

const (
	messageMix trafficMix = iota // SENDs, and WRITEs with immediate data of the partner
	requestMix                   // all operations of the device
	errorMix                     // messages and failures
)

// trafficActions have a weight for each trafficMix.
var trafficActions = []sessionAction[*trafficSession]{
	{"post receives", []int{12, 6, 12}, func(s *trafficSession, step trafficStep) { s.postReceives(s.links[step.qp], 1+step.n%3) }},
	{"receive a message", []int{30, 10, 24}, func(s *trafficSession, step trafficStep) { s.receive(s.links[step.qp], step.n) }},
	{"post requests", []int{16, 40, 10}, func(s *trafficSession, step trafficStep) { s.post(s.links[step.qp], step.n) }},
	{"poll", []int{12, 12, 6}, func(s *trafficSession, step trafficStep) { s.poll(s.cqs[step.cq], 1+step.n%7) }},
	{"arm", []int{12, 6, 8}, func(s *trafficSession, step trafficStep) { s.arm(s.cqs[step.cq], step.n%3 > 0) }},
	{"resize", []int{3, 3, 1}, (*trafficSession).resizeCQ},
	{"set a limit", []int{8, 0, 8}, (*trafficSession).setLimit},
	{"go to ERR", []int{0, 0, 8}, (*trafficSession).moveToErr},
	{"receive a message that is too long", []int{0, 0, 8}, (*trafficSession).receiveTooLong},
}

// Offsets in the memory of the device.
const (
	readOffset  = 4 << 10 // results of READs and atomics
	writeOffset = 6 << 10 // targets of the partner's WRITEs
	slotLen     = 128     // length of the buffer of a receive
	slots       = 48      // number of these buffers
	maxPayload  = 64      // of a message
)

// newTrafficSession makes the CQs, the SRQ if the device has SRQs, and the connections.
func newTrafficSession(pair *rig.Pair, kind verbs.QPType, mix trafficMix) *trafficSession {
	r := pair.DUT
	s := &trafficSession{mix: mix, cqSet: cqSet{Rig: r}, pair: pair, kind: kind, lastID: firstID}
	s.polled = s.expectPayload
	s.mem = r.Memory(memLen, regionAccess(r, rig.RemoteAccess(r)))
	s.peerMem = pair.Partner.Memory(memLen, regionAccess(pair.Partner, rig.RemoteAccess(pair.Partner)))
	s.openCQs(64)
	s.srq = newModelSRQ(r, verbs.SRQInit{PD: r.PD, MaxWR: 4, MaxSGE: 1})
	for i := range s.links {
		s.connect(i)
	}
	return s
}

// connect makes connection i. On the first, all requests of the device are signaled; the second
// receives from the SRQ if there is one.
func (s *trafficSession) connect(i int) {
	init := verbs.QPInit{Type: s.kind, PD: s.PD, SendCQ: s.cqs[0].cq, RecvCQ: s.cqs[1].cq, Caps: smallCaps, SignalAll: i == 0}
	init.Caps.MaxInline = min(32, s.QueryDevice().MaxInline)
	var srq *model.VerbsSRQ
	if s.srq != nil && i == 1 {
		init.SRQ, srq = s.srq.srq, s.srq.VerbsSRQ
	}
	l := newLink(s.pair, init, s.mem, s.peerMem)
	caps := s.QueryQP(l.dut.qp).Caps
	s.links[i] = &trafficLink{qpPair: l, VerbsQP: model.NewVerbsQP(l.dut.qp.QPN(), model.VerbsQP{
		Type: s.kind, State: rts, SignalAll: init.SignalAll, SRQ: srq,
		Sends: model.VerbsQueue{Size: caps.MaxSendWR, CQ: s.cqs[0].VerbsCQ}, Recvs: model.VerbsQueue{Size: caps.MaxRecvWR, CQ: s.cqs[1].VerbsCQ},
	})}
}

// Close frees the objects of the session.
func (s *trafficSession) Close() {
	s.pollAll()
	for _, l := range s.links {
		l.close()
	}
	if s.srq != nil {
		s.Must("a shared receive queue that can be closed", s.srq.srq.Close())
	}
	s.closeCQs()
	s.Must("a region that can be closed", s.mem.Close())
	s.pair.Partner.Must("a region that can be closed", s.peerMem.Close())
}

func (s *trafficSession) Draw(random *rand.Rand) trafficStep {
	step := drawStep(random, trafficActions, int(s.mix))
	step.qp %= len(s.links)
	return step
}

// Play performs a step, and compares the events and the states with the model. It first polls CQs
// with many completions, so that they do not overrun.
func (s *trafficSession) Play(step trafficStep) {
	for _, cq := range s.cqs {
		if cq.Len() > 20 { // CQs have a depth of 48 or more, and a step adds few completions
			s.poll(cq, cq.Len())
		}
	}
	step.action.play(s, step)
	s.expectCompletionEvents()
	s.expectEvents(nil)
	for _, l := range s.links {
		s.ExpectState(l.dut.qp, rts)
	}
}

// expectEvents compares the asynchronous events with the model. failedQP, which is nil if none has
// failed, may also raise an error event.
func (s *trafficSession) expectEvents(failedQP verbs.QP) {
	for {
		// Only connection 1 has the SRQ, and so QP_LAST_WQE_REACHED.
		missing := s.srq != nil && s.srq.Events > 0 || s.links[1].LastWQE > 0
		timeout := s.ResponseTimeout()
		if !missing {
			timeout = 0
		}
		e, err := s.Device.WaitAsync(timeout)
		if errors.Is(err, verbs.ErrTimeout) {
			s.Check(!missing, "SRQ_LIMIT_REACHED, or QP_LAST_WQE_REACHED of the failed queue pair", "no event")
			return
		}
		s.Must("events", err)
		s.Note("event %v", e.Type)
		switch {
		case e.Type == verbs.EventCommEst:
		case e.Type == verbs.EventSRQLimitReached && s.srq != nil && s.srq.Events > 0 && e.SRQ == s.srq.srq:
			s.srq.Events--
		case e.Type == verbs.EventQPLastWQEReached && s.links[1].LastWQE > 0 && e.QP == s.links[1].dut.qp:
			s.links[1].LastWQE--
		case failedQP != nil && e.QP == failedQP && (e.Type == verbs.EventQPAccessErr || e.Type == verbs.EventQPReqErr || e.Type == verbs.EventQPFatal):
		default:
			s.Fail("no such event of this object", "%v", e.Type)
		}
	}
}

// trafficDialogue returns the body of a case that runs dialogues, random sequences of steps whose
// results a model predicts, on a pair of queue pairs. mix has the shares of the kinds of steps. If kind
// is 0, the queue pairs have the default type.
func trafficDialogue(kind verbs.QPType, mix trafficMix) func(*conformance.Bench) error {
	return pairDialogue(func(pair *rig.Pair) rig.DialogueSession[trafficStep] {
		return newTrafficSession(pair, cmp.Or(kind, rig.DefaultQPType(pair.DUT)), mix)
	})
}

// trafficDialogueCases compare completions and events of messages with the model.
var trafficDialogueCases = slices.Concat(messageDialogueCases, alsoOverRD(requestDialogueCases))

var messageDialogueCases = []conformance.Case{{
	ID: "dialogue/verbs-traffic/messages",
	Cite: cite("ibv_poll_cq(3)", "verbs/wc/2", "verbs/wc/3", "verbs/wc/4", "verbs/signal/1", "verbs/signal/2", "verbs/cq/6",
		"verbs/channel/1", "verbs/channel/6", "verbs/channel/8", "verbs/srq/3", "verbs/srq/6"),
	Title:   "Messages complete on their CQs in order, with all fields and events, in any order of posts, polls and arms",
	Sends:   "random messages in both directions, signaled or not, solicited or not, over a queue pair with a receive queue and one with a shared receive queue",
	Expects: "the completions, payloads, completion events and asynchronous events of a model",
	Defects: []string{"SignalAllIgnored", "SolicitedIsAny", "WCLengthZero", "CQsSwapped", "SRQLimitRepeats", "AsyncEventsLost"},
	Run:     trafficDialogue(0, messageMix),
}, {
	ID: "dialogue/verbs-traffic/datagrams", Needs: verbs.CapUD, Labels: []string{"service:ud"},
	Cite:    cite("ibv_poll_cq(3)", "verbs/wc/2", "verbs/wc/3", "verbs/wc/5", "verbs/channel/6", "verbs/srq/3", "verbs/srq/6"),
	Title:   "Datagrams complete on their CQs in order, with all fields and events, in any order of posts, polls and arms",
	Sends:   "random datagrams in both directions",
	Expects: "the completions with their senders, payloads after the header area, completion events and asynchronous events of a model",
	Defects: []string{"SrcQPLost", "WCFlagsLost", "WCLengthZero"},
	Run:     trafficDialogue(verbs.QPTypeUD, messageMix),
}}

var requestDialogueCases = []conformance.Case{{
	ID:      "dialogue/verbs-traffic/requests",
	Cite:    cite("ibv_post_send(3)", "verbs/wc/1", "verbs/post/8", "verbs/post/10", "verbs/signal/1", "verbs/signal/2", "verbs/inline/1", "verbs/atomic/1"),
	Title:   "Requests of all operations are executed and complete in order, signaled or not, fenced or not",
	Sends:   "random lists of SENDs, WRITEs, READs and atomics, inline or from one or two list entries",
	Expects: "the completions of a model, and the memory of both devices",
	Defects: []string{"SignalsAll", "SignalAllIgnored", "WCOpcodeZero", "SGEsReversed"},
	Run:     trafficDialogue(0, requestMix),
}, {
	ID:      "dialogue/verbs-traffic/failures",
	Cite:    cite("ibv_modify_qp(3)", "verbs/flush/1", "verbs/flush/4", "verbs/srq/6", "verbs/srq/10", "verbs/channel/7", "verbs/wc/2"),
	Title:   "A connection that fails flushes its receives and leaves those of a shared receive queue, with the events of a model",
	Sends:   "random messages, ERR, and messages that are too long for their receives",
	Expects: "LOC_LEN_ERR and flushed receives in order, QP_LAST_WQE_REACHED, and completion events",
	Defects: []string{"FlushesLost", "LengthErrorsHidden", "AsyncEventsLost"},
	Run:     trafficDialogue(0, errorMix),
}}

// newSlot returns the offset of a free buffer, which receive id uses from now on.
func (s *trafficSession) newSlot(id uint64) int {
	i := slices.Index(s.recvs[:], 0)
	s.recvs[i] = id
	return recvOffset + i*slotLen
}

// freeSlot returns the offset of the buffer of a receive, and frees it.
func (s *trafficSession) freeSlot(id uint64) int {
	i := slices.Index(s.recvs[:], id)
	s.recvs[i] = 0
	return recvOffset + i*slotLen
}

// recvFiller is the content of the buffer of a receive when it is posted.
var recvFiller = bytes.Repeat([]byte{0xee}, slotLen)

// postReceives posts up to k receives to the queue pair of a connection or to its SRQ, as long as
// there is room. A full SRQ must refuse a receive.
func (s *trafficSession) postReceives(l *trafficLink, k int) {
	least, _ := l.Recvs.Room()
	var queue rig.RecvQueue = l.dut.qp
	if l.SRQ != nil {
		s.poll(s.cqs[1], s.cqs[1].Len()) // after that, the number of receives in the SRQ is known
		least, queue = s.srq.attr.MaxWR-s.srq.Left, s.srq.srq
	}
	if l.SRQ != nil && least == 0 {
		_, err := queue.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: s.mem.SGL(0, maxPayload)}})
		s.MustFail("a receive for a full shared receive queue", err, verbs.ErrNoMemory)
	}
	for range min(k, least) {
		s.lastID++
		off := s.newSlot(s.lastID)
		copy(s.mem.Buf[off:], recvFiller)
		s.PostRecv(queue, s.lastID, s.mem.SGE(off, l.dut.grhLen()+maxPayload))
		if l.SRQ != nil {
			l.SRQ.Post(s.lastID)
		} else {
			l.PostRecv(s.lastID)
		}
	}
}

// receivesLeft returns the number of posted receives that messages of the connection can use.
func (l *trafficLink) receivesLeft() int {
	if l.SRQ != nil {
		return l.SRQ.Left
	}
	return len(l.Recvs.Pending())
}

// receive has the partner send a message, which the device must receive: a SEND, with or without
// immediate data, or a WRITE with immediate data. n selects its kind and length.
func (s *trafficSession) receive(l *trafficLink, n int) {
	if l.receivesLeft() == 0 {
		s.pollAll()
		s.postReceives(l, 1)
	}
	size := []int{0, 1, 8, 63, maxPayload}[n%5]
	data := rig.Pattern(size, byte(n))
	copy(s.peerMem.Buf[sendOffset:], data)
	s.lastImm++
	wr := l.partner.sendWR(1, sendOffset, size)
	wc := verbs.WC{Opcode: verbs.WCOpRecv, ByteLen: uint32(l.dut.grhLen() + size)}
	if s.kind == verbs.QPTypeUD {
		wc.Flags, wc.SrcQP = verbs.WCWithGRH, l.partner.qp.QPN()
	}
	switch kind := n / 5 % 4; {
	case kind == 0 && isIB(s.Rig):
		wr.Opcode = verbs.OpSendImm
	case kind == 1 && isIB(s.Rig) && s.kind == verbs.QPTypeRC:
		wr.Opcode, wr.Remote = verbs.OpRDMAWriteImm, s.mem.Remote(s.writeSlot(s.lastImm))
		wc.Opcode = verbs.WCOpRecvRDMAWithImm
	}
	if wr.Opcode != verbs.OpSend {
		wr.Imm, wc.Imm, wc.Flags = s.lastImm, s.lastImm, wc.Flags|verbs.WCWithImm
	}
	solicited := n/20%2 == 0
	if solicited {
		wr.Flags |= verbs.SendSolicited
	}
	s.Note("the partner posts %v of %d bytes, solicited %v", wr.Opcode, size, solicited)
	l.partner.execute(wr)
	l.VerbsQP.Receive(wc, solicited, data)
}

// writeSlot returns the offset of the target of a WRITE with immediate data.
func (s *trafficSession) writeSlot(imm uint32) int { return writeOffset + int(imm%24)*maxPayload }

// expectPayload checks the memory of a polled receive: it must have the message, and be unchanged
// after it. It frees the buffer.
func (s *trafficSession) expectPayload(wc *verbs.WC, want *model.VerbsCompletion) {
	if !slices.Contains(s.recvs[:], wc.WRID) {
		return // the completion of a send request
	}
	off := s.freeSlot(wc.WRID)
	if wc.Status != verbs.WCSuccess {
		return
	}
	if want.Opcode == verbs.WCOpRecvRDMAWithImm {
		s.ExpectBytes(s.mem, s.writeSlot(wc.Imm), want.Payload)
		s.ExpectBytes(s.mem, off, recvFiller[:maxPayload])
		return
	}
	if s.kind == verbs.QPTypeUD {
		off += verbs.GRHLen
	}
	s.ExpectBytes(s.mem, off, want.Payload)
	s.ExpectBytes(s.mem, off+len(want.Payload), recvFiller[:maxPayload-len(want.Payload)])
}
