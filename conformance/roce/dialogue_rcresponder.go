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

var rcResponderDialogueCases = overRC.Cases([]conformance.Case{{
	ID: "dialogue/rc-responder/requests", Cite: ibta("CA17-25", "rc/psn/1", "rc/ack/1", "rc/ack/11", "rc/msn/4", "rc/wr/2", "rc/wr/5", "rc/send/3", "rc/read/1"),
	Title:   "A responder executes random sequences of valid requests like the reference model",
	Sends:   "SENDs, WRITEs, READs and atomics of all sizes, with and without immediate data, SE and AckReq; receives are sometimes missing",
	Expects: "after each step the packets, completions and memory of the model",
	Defects: []string{"MSNCountsPackets", "SparseCompletions", "ZeroLengthChecksKey"}, Run: rcResponderMix{
		{10, drawRCRequest}, {3, drawRCPipeline}, {3, drawRCReceive}, {1, drawRCStore}, {1, drawRCConnect},
	}.body(ib.RC, 24),
}, {
	ID: "dialogue/rc-responder/duplicates-and-gaps", Cite: ibta("", "rc/psn/4", "rc/psn/6", "rc/psn/9", "rc/psn/10", "rc/read/9", "rc/atm/4", "rc/seq/6"),
	Title:   "A responder treats duplicates and gaps in random sequences of requests like the reference model",
	Sends:   "valid requests, any of their packets again, packets after a gap, and damaged packets",
	Expects: "after each step the packets, completions and memory of the model",
	Defects: []string{"DuplicatesExecuted", "NAKStorm", "DuplicateEndsGap"}, Run: rcResponderMix{
		{6, drawRCRequest},
		{2, drawRCRead},
		{1, drawRCLong},
		{1, drawRCAtomic},
		{1, drawRCPipeline},
		{2, drawRCReceive},
		{6, drawRCDuplicate},
		{3, drawRCEarly},
		{2, drawRCDropped},
		{1, drawRCStore},
		{1, drawRCConnect},
	}.body(ib.RC, 30),
}, {
	ID: "dialogue/rc-responder/partial-reads", Cite: ibta("9.4.4", "rc/read/6"),
	Title:   "A responder answers duplicates of parts of READs like the reference model",
	Sends:   "READs and other requests, and parts of the last READs again, in any order, between changes of memory",
	Expects: "after each step the packets, completions and memory of the model",
	Defects: []string{"SubReadWhole", "SubReadContinues"}, Run: rcResponderMix{
		{3, drawRCRead}, {1, drawRCRequest}, {2, drawRCLong}, {5, drawRCTail}, {1, drawRCDuplicate}, {1, drawRCReceive}, {1, drawRCStore}, {1, drawRCConnect},
	}.body(ib.RC, 10),
}, {
	ID: "dialogue/rc-responder/refusals", Cite: ibta("", "rc/seq/1", "rc/seq/9", "rc/len/5", "acc/1", "acc/2", "acc/3", "acc/5", "qp/7", "qp/8"),
	Title:   "A responder refuses invalid requests in random sequences of requests like the reference model",
	Sends:   "valid requests, and some with wrong opcodes, keys, ranges and rights, alone or directly after valid ones; more requests after a refusal",
	Expects: "after each step the packets, completions and memory of the model, and the state of the queue pair",
	Defects: []string{"RangeSlack", "OpcodeOrderIgnored"}, Run: rcResponderMix{
		{6, drawRCRequest}, {3, drawRCReceive}, {3, drawRCRefusal}, {2, drawRCPipelinedFault}, {1, drawRCDuplicate}, {1, drawRCConnect},
	}.body(ib.RC, 36),
}, {
	ID: "dialogue/rc-responder/lengths", Cite: ibta("C9-92, C9-94", "rc/len/1", "rc/len/2", "rc/len/3", "rc/len/4"),
	Title:   "A responder refuses packets of invalid lengths in random sequences of requests like the reference model",
	Sends:   "valid requests, and packets that are longer or shorter than their opcode permits",
	Expects: "after each step the packets, completions and memory of the model, and the state of the queue pair",
	Defects: []string{"NoLengthChecks", "HugeLengthIsAccess"}, Run: rcResponderMix{
		{4, drawRCRequest}, {2, drawRCLong}, {2, drawRCReceive}, {3, drawRCLength}, {1, drawRCConnect},
	}.body(ib.RC, 12),
}, {
	ID: "dialogue/rc-responder/receive-errors", Cite: ibta("C10-87, error class A", "rc/send/1", "rc/send/2"),
	Title:   "A responder fails SENDs that are too long or that it may not place like the reference model",
	Sends:   "valid requests, some into receives that are too short, or whose memory the device may not write",
	Expects: "after each step the packets, completions and memory of the model, and the state of the queue pair",
	Defects: []string{"LongSendIsOpError", "RecvErrorIsQPOp"}, Run: rcResponderMix{
		{8, drawRCRequest}, {3, drawRCBadReceive}, {1, drawRCReceive}, {1, drawRCConnect},
	}.body(ib.RC, 20),
}, {
	ID: "dialogue/rc-responder/windows-and-state", Cite: ibta("", "mw/5", "mw/6", "acc/6", "rc/wr/4", "rc/inv/3"),
	Title:   "A responder follows changes of keys, windows and attributes between random requests like the reference model",
	Sends:   "valid requests and duplicates, between which the application binds and invalidates windows, registers memory again and modifies the queue pair",
	Expects: "after each step the packets, completions and memory of the model, and the state of the queue pair",
	Defects: []string{"WindowBounds", "InvalidateLate", "StaleKeys", "FailedImmConsumes"}, Run: rcResponderMix{
		{4, drawRCRequest},
		{2, drawRCReceive},
		{6, drawRCBind},
		{2, drawRCInvalidate},
		{1, drawRCRegister},
		{1, drawRCModify},
		{1, drawRCDuplicate},
		{3, drawRCAccess},
		{1, drawRCConnect},
	}.body(ib.RC, 40),
}, {
	ID: "dialogue/rc-responder/events", Cite: ibta("C9-222.1.1", "async/1", "async/2", "acc/7"),
	Title:   "A responder raises the events of the reference model in random sequences of requests",
	Sends:   "valid requests and invalid ones, to queue pairs in RTR or RTS, some with an SRQ",
	Expects: "COMM_EST, QP_REQ_ERR, QP_ACCESS_ERR and QP_LAST_WQE_REACHED when the model raises them, and at no other time",
	Defects: []string{"NoQPEvents", "NoLastWQEEvent"}, Run: rcResponderMix{
		{3, drawRCRequest}, {1, drawRCReceive}, {2, drawRCInvalid}, {2, drawRCConnect}, {0, requireRCEvents},
	}.body(ib.RC, 8),
}, {
	ID: "dialogue/rc-responder/flush", Needs: verbs.CapFlush, Cite: annexA17("CA17-22", "icrc/1"),
	Title:   "A responder executes FLUSH between random requests like the reference model",
	Sends:   "valid requests, FLUSH, and duplicates of both; FLUSHes with wrong keys, ranges and rights",
	Expects: "after each step the packets, completions and memory of the model; an empty READ response to each valid FLUSH",
	Defects: []string{"FlushICRCDoubled"}, Run: rcResponderMix{
		{4, drawRCRequest}, {4, drawRCFlush}, {2, drawRCDuplicate}, {1, drawRCFlushRefusal}, {1, drawRCReceive}, {1, drawRCConnect},
	}.body(ib.RC, 8),
}})

var ucReceiverDialogueCases = overUC.Cases([]conformance.Case{{
	ID: "dialogue/uc-receiver/messages-and-losses", Needs: verbs.CapRC, // for Sync
	Cite:    ibta("9.9.3.1.5, error class D1", "uc/2", "uc/3", "uc/5", "uc/6"),
	Title:   "A UC queue pair receives random sequences of messages, of which packets are lost, like the reference model",
	Sends:   "SENDs and WRITEs of all sizes, some of which lack packets, have faults or find no receive",
	Expects: "after each step the completions and memory of the model, and no packet",
	Defects: []string{"UCPartialDelivered", "UCDropsFatal"}, Run: rcResponderMix{
		{6, drawRCRequest}, {3, drawRCLong}, {3, drawRCReceive}, {2, drawRCLoss}, {1, drawRCEarly}, {1, drawRCInvalid}, {1, drawRCPipeline}, {1, drawRCConnect},
	}.body(ib.UC, 20),
}})

var xrcResponderDialogueCases = conformance.Group{Needs: verbs.CapRC | verbs.CapXRC, Labels: []string{"service:xrc"}}.Cases([]conformance.Case{{
	ID: "dialogue/xrc-responder/requests", Cite: ibta("", "xrc/1", "xrc/2", "xrc/3", "rc/psn/9"),
	Title:   "An XRC target executes random sequences of requests for two SRQs like the reference model",
	Sends:   "requests of all kinds for either SRQ, duplicates, packets after a gap, and invalid requests",
	Expects: "after each step the packets, completions, events and memory of the model",
	Defects: []string{"XRCAnySRQ", "XRCRefusalsHidden"}, Run: rcResponderMix{
		{8, drawRCRequest}, {3, drawRCReceive}, {2, drawRCDuplicate}, {1, drawRCEarly}, {1, drawRCInvalid}, {1, drawRCPipeline}, {1, drawRCConnect}, {0, requireRCEvents},
	}.body(ib.XRC, 16),
}})

// rcStep is a step of a dialogue with the responder of a connection.
type rcStep interface {
	fmt.Stringer
	play(*rcResponder)
}

// rcResponderMix are kinds of steps with their weights: a step is of a kind in proportion to its
// weight.
type rcResponderMix []struct {
	weight int
	draw   func(*rcResponder, *rand.Rand) rcStep
}

const rcStepsPerDialogue = 30

// body makes the body of a case from the service of the queue pairs and the number of dialogues.
// All dialogues use the same port.
func (mix rcResponderMix) body(service ib.Transport, dialogues int) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		var p *Port
		return rig.Dialogue[rcStep]{Dialogues: dialogues, Steps: rcStepsPerDialogue, Open: func(r *rig.Rig) rig.DialogueSession[rcStep] {
			if p == nil {
				p = newPort(r)
			}
			return openRCResponder(p, mix, service)
		}}.Body()(b)
	}
}

// rcResponder is a dialogue with the responder of a connection of the device.
type rcResponder struct {
	conn          *Conn
	mix           rcResponderMix
	service       ib.Transport
	m             *model.RCResponder
	target, local *model.RCMemory // expected content of TargetMem and LocalMem
	regions       []*rcRegion     // rcFixedRegions, followed by windows
	past          []*rcRegion     // regions and windows whose keys are no longer valid
	foreign       verbs.MR        // region of otherDomain, at the addresses of TargetMem
	otherDomain   verbs.PD
	queues        rcQueues
	log           []ib.Packet // executed request packets
	rest          []ib.Packet // packets of the current message that are not sent yet
	ids           uint64      // ID of the last receive or request
	steps         int         // number of steps so far
}

// rcQueues are the shared receive queues of a connection, if it has any.
type rcQueues struct {
	srq    verbs.SRQ   // of an RC queue pair
	domain verbs.XRCD  // of an XRC target
	xrc    []verbs.SRQ // of domain
}

// rcRegion is a region or window that grants the peer access to a part of TargetMem.
type rcRegion struct {
	name string
	mr   verbs.MR
	mw   verbs.MW
	rkey uint32
	key  model.RCKey
}

const (
	rcMemLen    = 6 << 10    // length of TargetMem
	rcMargin    = 128        // bytes at either end of TargetMem to which no key grants access
	rcLocalLen  = 12 << 10   // length of LocalMem
	rcFirstID   = 0x5a << 40 // IDs are larger than this
	rcMaxPacket = 5          // packets of the longest message
)

// rcFixedRegions are the regions that exist during a whole dialogue: n bytes of TargetMem from off
// on.
var rcFixedRegions = []struct {
	name   string
	off, n int
	access verbs.Access
}{
	{"the region", rcMargin, rcMemLen - 2*rcMargin, allAccess | verbs.AccessMWBind},
	{"a region inside it", 1001, 2500, allAccess},
	{"a region with remote read", rcMargin, rcMemLen - 2*rcMargin, verbs.AccessRemoteRead},
	{"a region with remote write", rcMargin, rcMemLen - 2*rcMargin, verbs.AccessLocalWrite | verbs.AccessRemoteWrite},
	{"a region with remote atomic", rcMargin, rcMemLen - 2*rcMargin, verbs.AccessLocalWrite | verbs.AccessRemoteAtomic},
}

// openRCResponder makes the memory and the connection of a dialogue.
func openRCResponder(p *Port, mix rcResponderMix, service ib.Transport) *rcResponder {
	p.Sync()
	p.skipped = nil
	p.Completions()
	p.pendingEvents()
	s := &rcResponder{conn: &Conn{Port: p}, mix: mix, service: service, ids: rcFirstID}
	s.conn.TargetMem, s.conn.LocalMem = p.Memory(rcMemLen, verbs.AccessLocalWrite), p.Memory(rcLocalLen, verbs.AccessLocalWrite)
	s.target, s.local = &model.RCMemory{Bytes: slices.Clone(s.conn.TargetMem.Buf)}, &model.RCMemory{Bytes: slices.Clone(s.conn.LocalMem.Buf)}
	for _, f := range rcFixedRegions {
		s.regions = append(s.regions, s.register(f.name, f.off, f.n, s.granted(f.access)))
	}
	s.otherDomain = s.conn.otherPD()
	s.foreign = rig.Result(s.otherDomain.RegMR(verbs.MRInit{Buf: s.conn.TargetMem.Buf, Addr: s.conn.TargetMem.Addr(), Access: s.granted(allAccess)}))(s.conn, "a region of another PD")
	s.connect(rcConnect{psn: firstPeerPSN, mtu: verbs.MTU256, resources: 4, timer: 12})
	return s
}

// granted returns the rights without those that the device does not support. On a device with
// FLUSH, the remote write right includes that of global FLUSHes.
func (s *rcResponder) granted(a verbs.Access) verbs.Access {
	if !s.conn.Caps.Has(verbs.CapAtomics) {
		a &^= verbs.AccessRemoteAtomic
	}
	if !s.conn.Caps.Has(verbs.CapMWType2) && !s.conn.Caps.Has(verbs.CapMWType1) {
		a &^= verbs.AccessMWBind
	}
	if s.conn.Caps.Has(verbs.CapFlush) && a&verbs.AccessRemoteWrite != 0 {
		a |= verbs.AccessFlushGlobal
	}
	return a
}

// register registers a part of TargetMem.
func (s *rcResponder) register(name string, off, n int, access verbs.Access) *rcRegion {
	addr := s.conn.TargetMem.Addr() + uint64(off)
	mr := rig.Result(s.conn.PD.RegMR(verbs.MRInit{Buf: s.conn.TargetMem.Buf[off:][:n:n], Addr: addr, Access: access}))(s.conn, "a memory region")
	return &rcRegion{name: name, mr: mr, rkey: uint32(mr.RKey()), key: model.RCKey{Mem: s.target, Off: off, Len: n, Addr: addr, Access: access}}
}

// connect makes a new connection. It uses the old queue pair again, after RESET, unless a asks for
// a new one or for another kind of receive queue.
func (s *rcResponder) connect(a rcConnect) {
	s.freeWindows()
	if s.conn.QP != nil && !a.newQP && a.shared == (s.queues.srq != nil) {
		s.conn.ToState(s.conn.QP, verbs.QPStateReset)
	} else {
		s.freeQP()
		s.createQP(a.shared)
	}
	s.compareResponses(nil)
	s.conn.ExpectNoCompletion()
	s.conn.pendingEvents()
	s.setAttr(a)
}

// createQP creates a queue pair and, if it is shared, its SRQ. An XRC target has two SRQs.
func (s *rcResponder) createQP(shared bool) {
	kind := verbs.QPTypeRC
	switch {
	case s.service == ib.XRC:
		s.queues.domain = rig.Result(s.conn.Device.OpenXRCD())(s.conn, "an XRC domain")
		for range 2 {
			s.queues.xrc = append(s.queues.xrc, s.conn.CreateSRQ(verbs.SRQInit{
				PD: s.conn.PD, Type: verbs.SRQXRC, MaxWR: rcMaxReceives, MaxSGE: 2, XRCD: s.queues.domain, CQ: s.conn.CQ,
			}))
		}
		s.conn.QP = s.conn.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: s.queues.domain})
		return
	case s.service == ib.UC:
		kind = verbs.QPTypeUC
	case shared:
		s.queues.srq = s.conn.CreateSRQ(verbs.SRQInit{PD: s.conn.PD, MaxWR: rcMaxReceives, MaxSGE: 2})
	}
	s.conn.QP = s.conn.CreateQP(verbs.QPInit{
		Type: kind, PD: s.conn.PD, SendCQ: s.conn.CQ, RecvCQ: s.conn.CQ, SRQ: s.queues.srq,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: rcMaxReceives, MaxSendSGE: 1, MaxRecvSGE: 2},
	})
}

// receiveQueue returns the receive queue of the connection, and its number in the model. Of the two
// SRQs of an XRC target, which selects one.
func (s *rcResponder) receiveQueue(which int) (q rig.RecvQueue, number uint32) {
	switch {
	case s.service == ib.XRC:
		srq := s.queues.xrc[which%len(s.queues.xrc)]
		return srq, srq.Number()
	case s.queues.srq != nil:
		return s.queues.srq, 0
	}
	return s.conn.QP, 0
}

// on converts a request of RC to the service of the dialogue. An XRC request gets the number of an
// SRQ; the argument which selects the SRQ.
func (s *rcResponder) on(p ib.Packet, which int) ib.Packet {
	switch {
	case p.Opcode().Transport() != ib.RC:
	case s.service == ib.UC:
		return p.On(ib.UC)
	case s.service == ib.XRC:
		_, number := s.receiveQueue(which)
		return p.OnXRC(number)
	}
	return p
}

// setAttr moves the queue pair from RESET to RTR or RTS, and starts a new model.
func (s *rcResponder) setAttr(a rcConnect) {
	access := s.granted(allAccess) &^ verbs.AccessLocalWrite &^ verbs.AccessMWBind
	s.conn.ToInit(s.conn.QP, access, 0)
	s.conn.Attr = s.conn.peerAttr(s.conn.Peer)
	s.conn.Attr.DestQPN, s.conn.Attr.RQPSN, s.conn.Attr.SQPSN = peerQPN, uint32(a.psn), firstDevicePSN
	s.conn.Attr.PathMTU, s.conn.Attr.MaxDestRdAtomic, s.conn.Attr.MinRNRTimer = a.mtu, a.resources, a.timer
	s.conn.Attr.AH.GRH.TrafficClass = a.tclass
	s.conn.ToRTR(s.conn.QP, s.conn.Attr)
	if !a.onlyRTR {
		s.conn.ToRTS(s.conn.QP, s.conn.Attr)
	}
	old := s.m
	s.m = model.NewRCResponder(model.RCResponderAttr{
		Transport: s.service, FirstPSN: a.psn, MTU: a.mtu.Bytes(), MaxDestRdAtomic: int(a.resources), MinRNRTimer: a.timer, Access: access,
		HasSRQ: a.shared || s.service == ib.XRC, InRTR: a.onlyRTR,
	})
	for _, srq := range s.queues.xrc {
		s.m.Receives[srq.Number()] = nil
	}
	if old != nil && old.HasSRQ {
		s.m.Receives = old.Receives // an SRQ keeps its receives
	}
	for _, g := range s.regions {
		s.m.Keys[g.rkey] = &g.key
	}
	s.log, s.rest = nil, nil
	s.local.Settle(s.conn.LocalMem.Buf)
	s.target.Settle(s.conn.TargetMem.Buf)
}

// freeWindows closes the memory windows. They follow the fixed memory regions in s.regions.
func (s *rcResponder) freeWindows() {
	for _, g := range s.regions[len(rcFixedRegions):] {
		s.conn.Must("a window that can be freed", g.mw.Close())
	}
	s.regions, s.past = s.regions[:len(rcFixedRegions)], nil
}

// freeQP destroys the queue pair with its SRQs and XRC domain, if it has any.
func (s *rcResponder) freeQP() {
	if s.conn.QP == nil {
		return
	}
	s.conn.Must("a queue pair that can be destroyed", s.conn.QP.Close())
	if s.queues.srq != nil {
		s.conn.Must("an SRQ that can be destroyed", s.queues.srq.Close())
	}
	for _, srq := range s.queues.xrc {
		s.conn.Must("an SRQ that can be destroyed", srq.Close())
	}
	if s.queues.domain != nil {
		s.conn.Must("an XRC domain that can be closed", s.queues.domain.Close())
	}
	s.conn.QP, s.m, s.queues = nil, nil, rcQueues{}
}

// Close frees the objects of the dialogue.
func (s *rcResponder) Close() {
	s.freeWindows()
	s.freeQP()
	for _, g := range s.regions {
		s.conn.Must("a region that can be deregistered", g.mr.Close())
	}
	for _, mr := range []verbs.MR{s.foreign, s.conn.TargetMem, s.conn.LocalMem} {
		s.conn.Must("a region that can be deregistered", mr.Close())
	}
	s.conn.Must("a PD that can be freed", s.otherDomain.Close())
}

// Draw returns a random step of the mix, or one that the state suggests: a connection at the start
// or after a failure, the rest of a message, or a receive if none is posted.
func (s *rcResponder) Draw(random *rand.Rand) rcStep {
	s.steps++
	switch {
	case s.steps == 1, s.m.HasFailed() && random.IntN(3) == 0:
		return drawRCConnect(s, random)
	case len(s.rest) > 0 && s.service == ib.UC && random.IntN(3) == 0:
		return drawRCLoss(s, random)
	case len(s.rest) > 0 && random.IntN(3) > 0:
		return rcContinue{1 + random.IntN(2), random.IntN(2) == 0}
	}
	if _, number := s.receiveQueue(0); len(s.m.Receives[number]) == 0 && random.IntN(3) == 0 {
		return drawRCReceive(s, random)
	}
	total := 0
	for _, k := range s.mix {
		total += k.weight
	}
	at := random.IntN(total)
	for _, k := range s.mix {
		if at -= k.weight; at < 0 {
			return k.draw(s, random)
		}
	}
	return nil
}

// Play performs a step and compares the device with the model.
func (s *rcResponder) Play(step rcStep) {
	step.play(s)
	s.compare()
}

// send sends packets, and compares the device with the model after each but the last, unless they
// are sent together. It stops before a packet to which the specification does not define the
// reaction.
func (s *rcResponder) send(together bool, packets ...ib.Packet) {
	for i, p := range packets {
		if i > 0 && !together {
			s.compare()
		}
		before := s.m.ExpectedPSN()
		if !s.m.Receive(p) {
			s.conn.Note("not sent, since its effect is not defined: %v", p)
			return
		}
		if executed := p.PSN() == before && s.m.ExpectedPSN() != before; executed {
			s.log = append(s.log, p)
		}
		s.conn.Send(p)
	}
}

// compare waits until the device has processed all packets, and compares its reaction with the
// model.
func (s *rcResponder) compare() {
	want := s.m.Take()
	s.compareResponses(want.Responses)
	s.compareCompletions(want.Completions)
	s.compareEvents(want)
	s.compareMemory("the target memory", s.conn.TargetMem, s.target)
	s.compareMemory("the memory of receives", s.conn.LocalMem, s.local)
	if want.Failed {
		s.conn.AwaitState(s.conn.QP, verbs.QPStateErr)
		s.rest = nil
	}
	if want.Failed || want.Dropped {
		s.target.Settle(s.conn.TargetMem.Buf)
		s.local.Settle(s.conn.LocalMem.Buf)
	}
}

// compareResponses fails the case unless the device sends the responses of the model. CNPs, which
// some devices send with a sequence NAK, are ignored.
func (s *rcResponder) compareResponses(want []model.RCResponse) {
	var got []ib.Packet
	quiet := byClock(s.conn.Port, sentSoFar, reorderLimit)
	for {
		for _, a := range s.conn.Drain(quiet) {
			if !isCNP(&a) {
				got = append(got, a.Packet)
			}
		}
		missing, bad := model.MatchRCResponses(want, got)
		switch {
		case bad >= 0 && missing == nil:
			s.conn.Fail("no more responses", "%v", got[bad])
		case bad >= 0:
			wanted, found := missing.Faults(got[bad])
			s.conn.Fail(fmt.Sprintf("%v with %s", missing.Packet, wanted), "%v with %s", got[bad], found)
		case missing == nil:
			s.checkPaths(got)
			return
		}
		// Some devices send responses later than the ACK of Sync.
		a, ok := s.conn.NextPacket(s.conn.ResponseTimeout())
		s.conn.Check(ok, missing.Packet.String(), "nothing in %v", s.conn.ResponseTimeout())
		s.conn.unread(a)
		quiet = max(quiet, shortWait)
	}
}

// checkPaths checks the addresses, the DSCP and the destination of responses.
func (s *rcResponder) checkPaths(got []ib.Packet) {
	for _, p := range got {
		s.conn.checkPacket(s.conn.fromDevice(ib.Packet{}), Arrival{Packet: p})
		s.conn.Check(*p.IP.TClass>>2 == s.conn.Attr.AH.GRH.TrafficClass>>2, fmt.Sprintf("traffic class %#02x but for ECN", s.conn.Attr.AH.GRH.TrafficClass), "%v with %#02x", p, *p.IP.TClass)
	}
}

// compareCompletions fails the case unless the device has the completions of the model, in order.
// Fields without a defined value are not compared.
func (s *rcResponder) compareCompletions(want []model.RCCompletion) {
	for _, w := range want {
		got := s.conn.NextCompletion()
		w.WC.QPN = s.conn.QP.QPN()
		if s.service == ib.XRC {
			w.WC.QPN = got.QPN // not specified
		}
		if len(w.Errors) > 0 {
			s.conn.Check(got.WRID == w.WC.WRID && got.QPN == w.WC.QPN && slices.Contains(w.Errors, got.Status),
				fmt.Sprintf("receive %d of QP %#x to complete with one of %v", w.WC.WRID, w.WC.QPN, w.Errors), "%s, QP %#x", rig.Describe(&got), got.QPN)
			continue
		}
		got.Flags &^= verbs.WCWithGRH // has no defined value here, as these have none:
		w.WC.SrcQP, w.WC.VendorErr, w.WC.PKeyIndex, w.WC.SL = got.SrcQP, got.VendorErr, got.PKeyIndex, got.SL
		if w.WC.Flags&verbs.WCWithImm == 0 {
			w.WC.Imm = got.Imm
		}
		if w.WC.Flags&verbs.WCWithInv == 0 {
			w.WC.InvalidatedRKey = got.InvalidatedRKey
		}
		s.conn.Check(got == w.WC, rig.Describe(&w.WC), "%s, %+v", rig.Describe(&got), got)
	}
	s.conn.ExpectNoCompletion()
}

// requireRCEvents, as the last row of a mix and with weight 0, makes missing events fail the case.
func requireRCEvents(*rcResponder, *rand.Rand) rcStep { return nil }

// requiresEvents reports whether the last row of the mix is requireRCEvents.
func (mix rcResponderMix) requiresEvents() bool { return mix[len(mix)-1].weight == 0 }

// compareEvents fails the case if the device raises other events than the model or, if the mix
// requires events, does not raise all of them.
func (s *rcResponder) compareEvents(want model.RCReaction) {
	required := slices.Clone(want.Events)
	if !s.mix.requiresEvents() {
		want.MayRaise, required = append(want.MayRaise, required...), nil
	}
	check := func(e verbs.AsyncEvent) {
		if s.conn.isSyncEvent(e) {
			return
		}
		s.conn.Note("event %v", e.Type)
		if e.Type == verbs.EventCommEst {
			s.m.CommEstRaised()
		}
		i := slices.Index(required, e.Type)
		s.conn.Check((i >= 0 || slices.Contains(want.MayRaise, e.Type)) && e.QP == s.conn.QP,
			fmt.Sprintf("the events %v of QP %#x", want.Events, s.conn.QP.QPN()), "%v of %v", e.Type, e.QP)
		if i >= 0 {
			required = slices.Delete(required, i, i+1)
		}
	}
	for _, e := range s.conn.pendingEvents() {
		check(e)
	}
	for len(required) > 0 {
		check(s.conn.nextEvent(required[0]))
	}
}

// compareMemory fails the case unless memory has the content of the model.
func (s *rcResponder) compareMemory(name string, m *rig.Memory, want *model.RCMemory) {
	s.conn.QueryPort() // verb calls before and after order the accesses with the device's
	if i := want.Diff(m.Buf); i >= 0 {
		n := min(8, len(m.Buf)-i)
		s.conn.Fail(fmt.Sprintf("% x at byte %d of %s", want.Bytes[i:][:n], i, name), "% x", m.Buf[i:][:n])
	}
	s.conn.QueryPort()
}
