package roce

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var srqDialogueCases = conformance.Group{Needs: verbs.CapRC | verbs.CapSRQ, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "dialogue/srq/shared", Cite: ibta("", "srq/1", "srq/4", "srq/6", "rc/credit/1", "ud/6", "uc/2", "uc/3"),
	Title:   "Queue pairs of all services share the receives of SRQs like the reference model",
	Sends:   "messages of one and of several packets to queue pairs on two SRQs, packet by packet in turn; the SRQs are empty at times",
	Expects: "after each step the packets, completions and memory of the model",
	Defects: []string{"SRQDoubleUse", "RNRSilent"}, Run: srqMix{
		{3, drawSRQReceives}, {12, drawSRQPackets}, {1, drawSRQResize}, {1, drawSRQLongDatagram}, {2, drawSRQLoss},
	}.body(8, 30, openSRQs),
}, {
	ID: "dialogue/srq/limits", Cite: ibta("", "srq/2"),
	Title:   "Limits of SRQs raise the events of the reference model",
	Sends:   "messages to queue pairs on two SRQs whose limits the application sets",
	Expects: "one event when the receives fall below the limit, and none at other times; the limit in a query",
	Defects: []string{"SRQLimitRepeats"}, Run: srqMix{
		{3, drawSRQReceives}, {6, drawSRQPackets}, {4, drawSRQLimit},
	}.body(8, 30, openSRQs),
}, {
	ID: "dialogue/srq/errors", Cite: ibta("", "srq/5", "qp/7", "rc/send/1"),
	Title:   "Queue pairs on SRQs fail like the reference model, and leave the receives to the others",
	Sends:   "messages to queue pairs on two SRQs, which the application moves to ERR, connects again, or destroys and replaces",
	Expects: "after each step the packets, completions, memory and events of the model: the receive of an open message is flushed, and no other",
	Defects: []string{"SRQFlushed", "NoLastWQEEvent", "AnswersInError"}, Run: srqMix{
		{3, drawSRQReceives}, {9, drawSRQPackets}, {1, drawSRQFail}, {1, drawSRQConnect},
	}.body(8, 36, openSRQs),
}, {
	ID: "dialogue/srq/too-long", Cite: ibta("C10-87", "rc/send/1", "srq/5"),
	Title:   "An RC message that is too long for a receive of its SRQ fails its queue pair like the reference model",
	Sends:   "messages to queue pairs on two SRQs, some too long for a receive",
	Expects: "after each step the packets, completions, memory and events of the model",
	Defects: []string{"LongSendIsOpError", "LengthErrorsHidden"}, Run: srqMix{
		{3, drawSRQReceives}, {6, drawSRQPackets}, {2, drawSRQTooLong}, {1, drawSRQConnect},
	}.body(4, 24, openSRQs),
}})

var xrcDialogueCases = conformance.Group{Needs: verbs.CapRC | verbs.CapXRC, Labels: []string{"service:xrc"}}.Cases([]conformance.Case{{
	ID: "dialogue/xrc/targets", Cite: ibta("", "xrc/1", "xrc/2", "xrc/3", "srq/2", "srq/6"),
	Title:   "XRC targets of two domains use the SRQs that messages name like the reference model",
	Sends:   "messages to three targets for four SRQs of two domains, packet by packet in turn; some packets for SRQs of the other domain or of none",
	Expects: "after each step the packets, completions, memory and events of the model",
	Defects: []string{"XRCAnySRQ", "XRCETHMisplaced", "XRCSRQUncheckedLater"}, Run: srqMix{
		{3, drawSRQReceives}, {12, drawSRQPackets}, {2, drawXRCWrongQueue}, {1, drawXRCOtherQueue}, {1, drawSRQLimit}, {1, drawSRQFail}, {1, drawSRQConnect},
	}.body(10, 36, openXRC),
}})

type (
	srqMix  = dialogueMix[*srqDialogue]
	srqStep = dialogueStep[*srqDialogue]
)

// srqDialogue is a dialogue with queue pairs on shared receive queues.
type srqDialogue struct {
	port    *Port
	pd      verbs.PD         // of the SRQs and their receives
	mem     *rig.Memory      // buffers of receives
	want    []byte           // the expected content of mem
	free    []int            // offsets of buffers that no receive uses
	used    map[uint64]int   // offsets of the buffers of receives, by ID
	queues  []*model.SRQueue // models of srqs
	srqs    []verbs.SRQ
	cqs     []verbs.CQ  // for receives of srqs
	target  *rig.Memory // target of WRITEs
	pairs   []*srqPair
	domains []verbs.XRCD
	ids     uint64 // ID of the next receive
}

// srqPair is a queue pair of the dialogue.
type srqPair struct {
	*model.SRQPair
	conn *Conn
	init verbs.QPInit
	rest []ib.Packet // packets of the peer's current message that are not sent yet
}

const (
	srqBuffers   = 20          // number of buffers for receives
	srqBufferLen = 3*ucMTU + 7 // length of each receive
	srqSplit     = 100         // length of the first of the two SGEs of a receive
	srqTargetLen = ucMTU
)

// srqServices are the services of the queue pairs of a dialogue, which use the two SRQs by turns.
var srqServices = []struct {
	kind    verbs.QPType
	service ib.Transport
	needs   verbs.Caps
}{
	{verbs.QPTypeRC, ib.RC, verbs.CapRC},
	{verbs.QPTypeRC, ib.RC, verbs.CapRC},
	{verbs.QPTypeRC, ib.RC, verbs.CapRC},
	{verbs.QPTypeUC, ib.UC, verbs.CapUC},
	{verbs.QPTypeUD, ib.UD, verbs.CapUD},
	{verbs.QPTypeUD, ib.UD, verbs.CapUD},
}

// newSRQDialogue returns a dialogue without SRQs and queue pairs.
func newSRQDialogue(p *Port) *srqDialogue {
	s := &srqDialogue{port: p, pd: p.otherPD(), used: make(map[uint64]int), ids: 1}
	s.mem = p.MemoryIn(s.pd, srqBuffers*srqBufferLen, verbs.AccessLocalWrite)
	s.want = slices.Clone(s.mem.Buf)
	for i := range srqBuffers {
		s.free = append(s.free, i*srqBufferLen)
	}
	return s
}

// openSRQs makes two SRQs, and a queue pair for each of srqServices that the device has.
func openSRQs(p *Port) *srqDialogue {
	s := newSRQDialogue(p)
	s.target = p.Memory(srqTargetLen, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	for range 2 {
		s.addQueue(verbs.SRQInit{}, 0)
	}
	for i, k := range srqServices {
		if p.Caps.Has(k.needs) {
			s.addPair(verbs.QPInit{Type: k.kind, PD: p.PD, SRQ: s.srqs[i%2]}, &model.SRQPair{Service: k.service, Queue: s.queues[i%2]})
		}
	}
	return s
}

// openXRC makes two XRC domains with two SRQs each, two XRC targets in the first domain and one in
// the second, and an SRQ without a domain if the device has such.
func openXRC(p *Port) *srqDialogue {
	s := newSRQDialogue(p)
	s.target = p.MemoryIn(s.pd, srqTargetLen, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	for range 2 {
		s.domains = append(s.domains, rig.Result(p.Device.OpenXRCD())(p, "an XRC domain"))
	}
	for i := range 4 {
		cq := p.CQ
		if i%2 == 1 {
			cq = p.CreateCQ(verbs.CQInit{Depth: srqBuffers})
		}
		s.addQueue(verbs.SRQInit{Type: verbs.SRQXRC, XRCD: s.domains[i/2], CQ: cq}, i/2+1)
	}
	for i := range 3 {
		s.addPair(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: s.domains[i/2]}, &model.SRQPair{Service: ib.XRC, Domain: i/2 + 1})
	}
	if p.Caps.Has(verbs.CapSRQ) {
		s.addQueue(verbs.SRQInit{}, 0)
	}
	return s
}

// addQueue makes an SRQ and its model. domain is the number of its XRC domain, from 1 on; 0 for
// none.
func (s *srqDialogue) addQueue(init verbs.SRQInit, domain int) {
	init.PD, init.MaxWR, init.MaxSGE = s.pd, srqBuffers, 2
	srq := s.port.CreateSRQ(init)
	s.srqs, s.cqs = append(s.srqs, srq), append(s.cqs, init.CQ)
	if init.CQ == nil {
		s.cqs[len(s.cqs)-1] = s.port.CQ
	}
	q := &model.SRQueue{Domain: domain, Len: srqBufferLen}
	if domain != 0 {
		q.Number = srq.Number()
	}
	s.queues = append(s.queues, q)
}

// addPair makes a queue pair and connects it.
func (s *srqDialogue) addPair(init verbs.QPInit, m *model.SRQPair) {
	if init.Type != verbs.QPTypeXRCRecv {
		init.SendCQ, init.RecvCQ, init.Caps = s.port.CQ, s.port.CQ, minQPCaps
	}
	p := &srqPair{SRQPair: m, conn: &Conn{Port: s.port, QP: s.port.CreateQP(init)}, init: init}
	m.QPN = p.conn.QP.QPN()
	a := s.port.peerAttr(s.port.Peer)
	a.DestQPN, a.RQPSN, a.SQPSN, a.PathMTU = verbs.QPN(0x0a0000+len(s.pairs)), 0xfffff8, firstDevicePSN, verbs.MTU256
	p.conn.Attr, m.Timer = a, a.MinRNRTimer
	s.pairs = append(s.pairs, p)
	s.connect(p)
}

// connect moves a queue pair in RESET to RTS, an XRC target to RTR.
func (s *srqDialogue) connect(p *srqPair) {
	qp := p.conn.QP
	s.port.ToInit(qp, verbs.AccessRemoteWrite, udQKey)
	s.port.ToRTR(qp, p.conn.Attr)
	p.State, p.PSN, p.MSN = verbs.QPStateRTR, ib.PSN(p.conn.Attr.RQPSN), 0
	if p.Service != ib.XRC {
		s.port.ToRTS(qp, p.conn.Attr)
		p.State = verbs.QPStateRTS
	}
}

// Close frees the objects of the dialogue, each before those that it was made with.
func (s *srqDialogue) Close() {
	for _, p := range s.pairs {
		s.port.Must("a queue pair that can be destroyed", p.conn.QP.Close())
	}
	for _, srq := range s.srqs {
		s.port.Must("an SRQ that can be destroyed", srq.Close())
	}
	for _, cq := range s.cqs {
		if cq != s.port.CQ {
			s.port.Must("a CQ that can be destroyed", cq.Close())
		}
	}
	for _, d := range s.domains {
		s.port.Must("an XRC domain that can be closed", d.Close())
	}
	s.port.Must("memory that can be deregistered", s.mem.Close())
	s.port.Must("memory that can be deregistered", s.target.Close())
	s.port.Must("a protection domain that can be freed", s.pd.Close())
}

// drawSRQReceives draws one to five receives for an SRQ.
func drawSRQReceives(s *srqDialogue, r *rand.Rand) srqStep {
	i, n := r.IntN(len(s.queues)), 1+r.IntN(5)
	return step(func(s *srqDialogue) {
		for range n {
			s.postReceive(i)
		}
		s.compare(nil, model.SRQEffect{})
	}, "%d receives for SRQ %d", n, i)
}

// postReceive posts a receive with two SGEs to the i-th SRQ, if a buffer is free.
func (s *srqDialogue) postReceive(i int) {
	if len(s.free) == 0 {
		return
	}
	at, id := s.free[0], s.ids
	s.free, s.used[id] = s.free[1:], at
	s.ids++
	s.port.PostRecv(s.srqs[i], id, s.mem.SGE(at, srqSplit), s.mem.SGE(at+srqSplit, srqBufferLen-srqSplit))
	s.queues[i].Posted = append(s.queues[i].Posted, id)
}

// drawnMessage is a message of the peer.
type drawnMessage struct {
	n         int    // length
	imm, se   bool   // with immediate data, with SE
	first     byte   // first byte of the payload
	immediate uint32 // the immediate data
	queue     int    // index of the SRQ of an XRC message, counted in the domain of the target
	write     bool   // a WRITE with immediate data, in one packet
}

// drawMessage returns a random message of up to the length of a receive.
func drawMessage(r *rand.Rand) drawnMessage {
	n := rig.Pick(r, 0, 1, 3, 99, 100, 101, ucMTU-1, ucMTU, ucMTU+1, 2*ucMTU, 2*ucMTU+1, 3*ucMTU, srqBufferLen)
	return drawnMessage{n, chance(r, 2), chance(r, 2), byte(r.Uint32()), r.Uint32(), r.IntN(2), chance(r, 5)}
}

// packets returns the packets of a message to a queue pair.
func (d drawnMessage) packets(s *srqDialogue, p *srqPair) []ib.Packet {
	n := d.n
	if p.Service == ib.UD {
		n = min(n, srqBufferLen-ib.GRHLen)
		pkt := ib.Datagram(p.PSN, udQKey, udPeerQPN, rig.Pattern(n, d.first))
		if d.imm {
			pkt = pkt.WithOpcode(ib.OpUDSendOnlyImm).WithImm(d.immediate)
		}
		return []ib.Packet{pkt}
	}
	all := ib.Send(p.PSN, rig.Pattern(n, d.first), ucMTU)
	last := &all[len(all)-1]
	switch {
	case d.write:
		n = min(n, srqTargetLen)
		all = all[:1]
		last = &all[0]
		*last = ib.WriteOnlyImm(p.PSN, rethFor(s.target, 0, n), d.immediate, rig.Pattern(n, d.first))
	case d.imm:
		*last = last.WithOpcode(last.Opcode() + 1).WithImm(d.immediate) // to SEND_LAST_IMM or SEND_ONLY_IMM
	}
	last.BTH.SE = &d.se
	for i := range all {
		switch p.Service {
		case ib.XRC:
			all[i] = all[i].AckReq().OnXRC(s.queues[2*(p.Domain-1)+d.queue].Number)
		case ib.UC:
			all[i] = all[i].NoAckReq().On(ib.UC)
		default:
			all[i] = all[i].AckReq()
		}
	}
	return all
}

// drawSRQPackets draws one to three packets to a queue pair: the next of the message in progress,
// if there is one, else those of a new message.
func drawSRQPackets(s *srqDialogue, r *rand.Rand) srqStep {
	i, n, m := r.IntN(len(s.pairs)), 1+r.IntN(3), drawMessage(r)
	return step(func(s *srqDialogue) {
		for range n {
			s.next(s.pairs[i], m)
		}
	}, "%d packets to queue pair %d, of a message of %d bytes if none is in progress, WRITE %v", n, i, m.n, m.write)
}

// next sends the next packet of the message in progress to a queue pair, or the first of m, and
// compares its effect with the model. After a NAK it leaves out the rest of the message.
func (s *srqDialogue) next(p *srqPair, m drawnMessage) {
	if len(p.rest) == 0 {
		p.rest = m.packets(s, p)
	}
	pkt := p.rest[0]
	p.rest = p.rest[1:]
	effect := p.Receive(pkt, s.queues)
	p.conn.Send(pkt)
	if effect.Response != nil {
		p.conn.expect(*effect.Response)
		if !effect.Response.IsAck(ib.AckPositive) {
			p.rest = nil
		}
	}
	s.compare(p, effect)
}

// compare fails the case unless the completion, events and state of a step on a queue pair are
// those of effect, and there are no others. p is nil for a step on no queue pair.
func (s *srqDialogue) compare(p *srqPair, effect model.SRQEffect) {
	if effect.Completed != nil {
		s.expectReceive(effect.Completed)
	}
	s.port.Sync()
	s.port.expectNoPackets()
	for _, cq := range s.cqs {
		wc, ok := s.port.PollCQ(cq, 0)
		s.port.Check(!ok, "no completion", "%s", rig.Describe(&wc))
	}
	var undefined []model.UDSpan // a message in progress may use any receive of its SRQ
	for _, q := range s.queues {
		for _, id := range q.Posted {
			if q.Taken > 0 {
				undefined = append(undefined, model.UDSpan{Off: s.used[id], Len: srqBufferLen})
			}
		}
	}
	s.port.compareMemory(s.mem, s.want, undefined)
	s.compareEvents(p, effect)
	if p != nil {
		s.port.ExpectState(p.conn.QP, p.State)
	}
}

// expectReceive fails the case unless a receive of the right SRQ completes with message m. It
// updates the expected memory.
func (s *srqDialogue) expectReceive(m *model.SRQMessage) {
	cq := s.cqs[slices.Index(s.queues, m.Queue)]
	got, ok := s.port.PollCQ(cq, s.port.ResponseTimeout())
	s.port.Check(ok, "a completion in the CQ of the receive", "none in %v", s.port.ResponseTimeout())
	want := m.WC
	s.port.Check(m.Queue.Complete(got.WRID), "a receive of the SRQ", "%s", rig.Describe(&got))
	want.WRID = got.WRID
	if m.Failed && got.Status != verbs.WCSuccess {
		want.Status = got.Status
	}
	if m.Queue.Domain != 0 {
		want.QPN = got.QPN // the QPN is not defined for XRC
	}
	s.port.compareCompletion(want, got)
	at := s.release(got.WRID)
	if want.Status != verbs.WCSuccess {
		copy(s.want[at:][:srqBufferLen], s.mem.Buf[at:]) // may have a part of the message
		return
	}
	if m.Write {
		s.port.ExpectBytes(s.target, 0, m.Data)
		s.port.ExpectUnchangedOutside(s.target, 0, len(m.Data))
		s.target.Snapshot()
		return
	}
	if want.Flags&verbs.WCWithGRH != 0 { // other cases check the header area
		copy(m.Data[:ib.GRHLen], s.mem.Buf[at:])
	}
	copy(s.want[at:], m.Data)
}

// compareEvents fails the case unless SRQ_LIMIT_REACHED is raised for each SRQ that has reached its
// limit, and QP_LAST_WQE_REACHED if queue pair p has failed. A failed queue pair may raise others.
func (s *srqDialogue) compareEvents(p *srqPair, effect model.SRQEffect) {
	lastWQE := p != nil && effect.Failed && p.Service != ib.XRC
	missing := func() bool {
		return lastWQE || slices.ContainsFunc(s.queues, func(q *model.SRQueue) bool { return q.Reached && q.Taken == 0 })
	}
	nextEvent := func() (verbs.AsyncEvent, error) {
		if missing() {
			return s.port.Device.WaitAsync(s.port.ResponseTimeout())
		}
		return s.port.Device.WaitAsync(0)
	}
	for e, err := nextEvent(); ; e, err = nextEvent() {
		if err != nil {
			s.port.Check(!missing(), "the event of a limit, or of the last receive of a queue pair", "none")
			return
		}
		s.port.Note("event %v", e.Type)
		switch {
		case e.Type == verbs.EventSRQLimitReached:
			s.takeLimitEvent(e)
		case e.Type == verbs.EventQPLastWQEReached && lastWQE && e.QP == p.conn.QP:
			lastWQE = false
		default:
			ofFailure := p != nil && effect.Failed && e.Type != verbs.EventQPLastWQEReached
			s.port.Check(ofFailure || s.port.isSyncEvent(e) || e.Type == verbs.EventCommEst, "no event", "%v", e.Type)
		}
	}
}

// takeLimitEvent fails the case if the SRQ of a limit event has not reached its limit, and cannot
// have.
func (s *srqDialogue) takeLimitEvent(e verbs.AsyncEvent) {
	i := slices.Index(s.srqs, e.SRQ)
	s.port.Check(i >= 0, "the SRQ in its event", "%v", e.SRQ)
	q := s.queues[i]
	s.port.Check(q.Reached || q.State == model.SRQLimitUnsure, fmt.Sprintf("no event of SRQ %d", i), "%v with %d receives and the limit %d", e.Type, q.Free(), q.Limit)
	q.Reached = false
	if q.State == model.SRQLimitUnsure {
		q.State = model.SRQLimitOff
	}
}

// drawSRQLimit draws a limit: 0, which disarms it, or one near the number of free receives.
func drawSRQLimit(s *srqDialogue, r *rand.Rand) srqStep {
	i, off, below := r.IntN(len(s.queues)), chance(r, 6), rig.Pick(r, 0, 0, 0, 1, 1, 2, -1)
	return step(func(s *srqDialogue) {
		q := s.queues[i]
		limit := min(max(1, q.Free()-below), srqBuffers)
		if off {
			limit = 0
		}
		s.port.Must("an SRQ with a limit", s.srqs[i].Modify(verbs.SRQAttr{Limit: limit}, verbs.SRQLimit))
		q.SetLimit(limit)
		if q.State == model.SRQLimitArmed {
			got := s.port.srqAttr(s.srqs[i]).Limit
			s.port.Check(got == limit, fmt.Sprintf("limit %d in a query", limit), "%d", got)
		}
		s.compare(nil, model.SRQEffect{})
	}, "limit of SRQ %d: %d below the free receives, off: %v", i, below, off)
}

// drawSRQTooLong draws an RC message that exceeds the receive by one byte, two bytes or a packet.
func drawSRQTooLong(_ *srqDialogue, r *rand.Rand) srqStep {
	i, m := r.IntN(3), drawMessage(r)
	m.n, m.write = srqBufferLen+rig.Pick(r, 1, 2, ucMTU), false
	return step(func(s *srqDialogue) {
		p := s.pairs[i]
		if p.State == verbs.QPStateErr || p.Open != nil {
			return
		}
		for p.rest = m.packets(s, p); len(p.rest) > 0; {
			s.next(p, m)
		}
	}, "a message of %d bytes to queue pair %d, too long for a receive", m.n, i)
}

// drawSRQFail draws a queue pair that the application moves to ERR.
func drawSRQFail(s *srqDialogue, r *rand.Rand) srqStep {
	i := r.IntN(len(s.pairs))
	return step(func(s *srqDialogue) {
		p := s.pairs[i]
		if p.State == verbs.QPStateErr {
			return
		}
		s.port.ToState(p.conn.QP, verbs.QPStateErr)
		s.compare(p, p.Fail())
	}, "queue pair %d to ERR", i)
}

// drawSRQConnect draws a step that connects all failed queue pairs again, after RESET, or replaces
// them by new ones.
func drawSRQConnect(_ *srqDialogue, r *rand.Rand) srqStep {
	replace := chance(r, 2)
	return step(func(s *srqDialogue) {
		for _, p := range s.pairs {
			if p.State != verbs.QPStateErr {
				continue
			}
			p.rest = nil
			if replace {
				s.port.Must("a queue pair that can be destroyed", p.conn.QP.Close())
				p.conn.QP = s.port.CreateQP(p.init)
				p.QPN = p.conn.QP.QPN()
			} else {
				s.port.ToState(p.conn.QP, verbs.QPStateReset)
			}
			s.connect(p)
		}
		s.compare(nil, model.SRQEffect{})
	}, "queue pairs in ERR are connected again, with new ones in their place: %v", replace)
}

// drawSRQResize draws another size of an SRQ, which the device may refuse. The receives must stay
// posted.
func drawSRQResize(s *srqDialogue, r *rand.Rand) srqStep {
	i, more := r.IntN(len(s.queues)), r.IntN(6)
	return step(func(s *srqDialogue) {
		q := s.queues[i]
		if q.Taken > 0 { // the specification leaves open whether receives in use count
			return
		}
		size := max(srqBuffers, len(q.Posted)) + more
		if err := s.srqs[i].Modify(verbs.SRQAttr{MaxWR: size}, verbs.SRQMaxWR); err == nil {
			got := s.port.srqAttr(s.srqs[i]).MaxWR
			s.port.Check(got >= size, fmt.Sprintf("an SRQ with room for %d receives", size), "%d", got)
		}
		s.compare(nil, model.SRQEffect{})
	}, "SRQ %d is resized", i)
}

// drawXRCWrongQueue draws a message for an SRQ that does not exist, or is not in the domain of the
// target. In half of the steps the second packet names it, else the first.
func drawXRCWrongQueue(s *srqDialogue, r *rand.Rand) srqStep {
	i, m, kind, later := r.IntN(len(s.pairs)), drawMessage(r), r.IntN(4), chance(r, 2)
	if later {
		m.n, m.write = ucMTU+1+r.IntN(ucMTU), false
	}
	return step(func(s *srqDialogue) {
		p := s.pairs[i]
		if len(p.rest) > 0 {
			return
		}
		if later {
			s.postReceive(2*(p.Domain-1) + m.queue)
			if s.next(p, m); p.Open == nil {
				p.rest = nil
				return
			}
		} else {
			p.rest = m.packets(s, p)
		}
		other := s.queues[2*(2-p.Domain)+m.queue].Number
		number := []uint32{0xfffff0, other, other ^ 1<<23, 0}[kind]
		p.rest = p.rest[:1]
		p.rest[0] = p.rest[0].OnXRC(number)
		s.next(p, m)
		p.rest = nil
	}, "a message to target %d for an SRQ that it must not use (%d), in the second packet: %v", i, kind, later)
}

// drawXRCOtherQueue draws a message whose last packet names another SRQ of the domain. The device
// may refuse the packet, or deliver the message to the SRQ that the first packet names.
func drawXRCOtherQueue(s *srqDialogue, r *rand.Rand) srqStep {
	i, m := r.IntN(len(s.pairs)), drawMessage(r)
	m.n, m.write = ucMTU+1+r.IntN(ucMTU), false
	return step(func(s *srqDialogue) {
		p := s.pairs[i]
		if len(p.rest) > 0 {
			return
		}
		if s.next(p, m); p.Open == nil {
			p.rest = nil
			return
		}
		pkt := p.rest[0]
		p.rest = nil
		p.conn.Send(pkt.OnXRC(s.queues[2*(p.Domain-1)+1-m.queue].Number))
		effect, got := model.SRQEffect{}, s.port.expectAnyPacket("a response")
		if got.IsNak(ib.NakInvalidRequest) {
			effect = p.RefuseOpen(pkt)
		} else {
			effect = p.Receive(pkt, s.queues)
		}
		s.port.checkPacket(p.conn.fromDevice(*effect.Response), got)
		s.compare(p, effect)
	}, "a message to target %d whose last packet names another SRQ", i)
}

// drawSRQLongDatagram draws a datagram that is too long for a receive. The device must drop it, and
// may complete the receive with an error.
func drawSRQLongDatagram(s *srqDialogue, r *rand.Rand) srqStep {
	i, more := len(s.pairs)-1-r.IntN(2), rig.Pick(r, 1, 4, 40) // the last two are of UD
	return step(func(s *srqDialogue) {
		p := s.pairs[i]
		if p.Service != ib.UD || p.State == verbs.QPStateErr || p.Queue.Free() == 0 {
			return
		}
		p.conn.Send(ib.Datagram(p.PSN, udQKey, udPeerQPN, Data(srqBufferLen-ib.GRHLen+more)))
		s.port.Sync()
		for _, id := range p.Queue.Posted {
			copy(s.want[s.used[id]:][:srqBufferLen], s.mem.Buf[s.used[id]:]) // may have a part of the datagram
		}
		if wc, ok := s.port.PollCompletion(0); ok {
			s.port.Check(wc.Status == verbs.WCLocLenErr && wc.QPN == p.QPN && p.Queue.CompleteUnused(wc.WRID), "nothing, or a receive that completes with LOC_LEN_ERR", "%s", rig.Describe(&wc))
			s.release(wc.WRID)
		}
		s.compare(p, model.SRQEffect{})
	}, "a datagram of %d bytes too many to queue pair %d", more, i)
}

// release makes the buffer of a receive usable again, and returns its offset.
func (s *srqDialogue) release(id uint64) int {
	at := s.used[id]
	delete(s.used, id)
	s.free = append(s.free, at)
	return at
}

// drawSRQLoss draws a UC message without its second packet, and a SEND after it. The receive of the
// message must complete with an error, or receive the SEND.
func drawSRQLoss(s *srqDialogue, r *rand.Rand) srqStep {
	i, m := slices.IndexFunc(s.pairs, func(p *srqPair) bool { return p.Service == ib.UC }), drawMessage(r)
	m.n, m.write = 2*ucMTU+1+r.IntN(ucMTU), false
	return step(func(s *srqDialogue) {
		if i < 0 || len(s.pairs[i].rest) > 0 || s.pairs[i].Queue.Free() < 2 {
			return
		}
		p := s.pairs[i]
		s.next(p, m)
		p.conn.Send(p.rest[1:]...)
		p.PSN, p.rest = p.PSN.Add(len(p.rest)), nil
		s.port.Sync()
		if wc, ok := s.port.PollCompletion(0); ok {
			s.port.Check(wc.Status != verbs.WCSuccess && wc.QPN == p.QPN && p.Queue.Complete(wc.WRID), "no message that lost a packet", "%s", rig.Describe(&wc))
			at := s.release(wc.WRID)
			copy(s.want[at:][:srqBufferLen], s.mem.Buf[at:]) // may have a part of the message
		} else {
			p.Queue.Taken--
		}
		p.Open = nil
		m.n = 17
		s.next(p, m)
	}, "a message of UC that loses a packet, and another one")
}
