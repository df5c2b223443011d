package roce

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var ucSenderDialogueCases = conformance.Group{Needs: verbs.CapUC | verbs.CapRC, Labels: labelUC}.Cases([]conformance.Case{{
	ID: "dialogue/uc-sender/requests", Cite: ibta("", "uc/7", "uc/8", "bth/se/1", "cq/1", "cq/5"),
	Title:   "A UC queue pair sends random requests like the reference model",
	Sends:   "packets that are no responses of UC: ACKs, NAKs, READ responses and CNPs",
	Expects: "the packets of the model with all their fields, and a completion when the last packet of a request was sent",
	Defects: []string{"UCLikeRC", "UnreliableAckReq"}, Run: senderMix{
		{6, drawSenderPosts}, {2, drawSenderNoise}, {1, drawSenderReceive},
	}.body(8, 30, openUCSender),
}, {
	ID: "dialogue/uc-sender/states", Cite: ibta("", "uc/9", "err/1", "err/2", "sqd/1", "sqd/4"),
	Title:   "Requests of a UC queue pair fail, and wait in SQD, like the reference model",
	Sends:   "SENDs to the queue pair, in RTS, SQD and SQE",
	Expects: "the packets, completions and states of the model",
	Defects: []string{"UCErrorIsFatal"}, Run: senderMix{
		{4, drawSenderPosts}, {2, drawSenderFailure}, {1, drawSenderNoise}, {1, drawSenderDrain}, {2, drawSenderReceive},
	}.body(6, 24, openUCSender),
}})

var xrcSenderDialogueCases = conformance.Group{Needs: verbs.CapXRC | verbs.CapRC, Labels: []string{"service:xrc"}}.Cases([]conformance.Case{{
	ID: "dialogue/xrc/initiator", Cite: ibta("", "xrc/1", "xrc/3", "cq/1"),
	Title:   "An XRC initiator sends random requests for many SRQs like the reference model",
	Sends:   "responses to requests of all kinds, one for each or one for several",
	Expects: "the packets of the model, with the number of the SRQ that each request names, and its completions",
	Defects: []string{"XRCETHMisplaced"}, Run: senderMix{
		{6, drawSenderPosts}, {1, drawSenderDrain},
	}.body(6, 24, openXRCSender),
}, {
	ID: "dialogue/xrc/initiator-recovery", Cite: ibta("", "xrc/1", "rc/tmo/7", "rc/tmo/4", "rc/rnr/5", "rc/rnr/6", "rc/ack/15", "rc/read/16"),
	Title:   "In random dialogues with losses and errors an XRC initiator retransmits, waits and fails like the model of an RC requester",
	Sends:   "posts of all opcodes, valid responses, sequence, RNR and fatal NAKs, READ responses after a gap, or no responses; connections after a RESET",
	Expects: "the packets, completions and states of the model, with the number of the SRQ in each packet",
	Defects: []string{"XRCNoRNRWait", "XRCFatalNAKStatus", "XRCReadsUnlimited", "XRCFenceIgnored", "XRCNoTimer"},
	Run: onRequester(16, rcRequesterMix{
		xrc: true, timeouts: []uint8{0, 13}, retries: []uint8{1, 2, 7}, rnrRetries: []uint8{1, 2, 7}, rnrTimers: someRNRTimers,
		abnormal: []*requesterStepKind{stepNak, stepGap, stepRNR, stepRefuse, stepWait, stepStale, stepGiveUp, stepFatal, stepReset}, every: 3,
	}),
}})

type (
	senderMix  = dialogueMix[*senderDialogue]
	senderStep = dialogueStep[*senderDialogue]
)

// senderDialogue is a dialogue with a queue pair that sends requests.
type senderDialogue struct {
	conn       *Conn
	m          *model.UCSender
	ops        []verbs.WROpcode // opcodes of the requests
	ids        uint64           // ID of the next request or receive
	psnUnknown bool             // a request has failed: it may have used PSNs
	received   int              // number of SENDs of the peer
	completed  uint32           // number of completed requests: the MSN
	sink       []byte           // expected content of LocalMem from SinkOffset on; nil before the first result
}

const senderMaxLen = 5 * ucMTU

// openSender makes a queue pair with this first PSN.
func openSender(p *Port, kind verbs.QPType, service ib.Transport, psn uint32) *senderDialogue {
	c := p.connect(Setup{qpType: kind, caps: verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 8, MaxSendSGE: 3, MaxRecvSGE: 1}, Modify: func(a *verbs.QPAttr) {
		a.PathMTU, a.SQPSN = verbs.MTU256, psn
	}})
	return &senderDialogue{conn: c, ids: 1, m: &model.UCSender{Service: service, Peer: peerQPN, MTU: ucMTU, PSN: ib.PSN(psn), PKey: p.pkey(0)}}
}

func openUCSender(p *Port) *senderDialogue {
	s := openSender(p, verbs.QPTypeUC, ib.UC, 0xffffe8)
	s.ops = []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm}
	return s
}

// openXRCSender starts a dialogue with an XRC send queue pair of the device, which can post all
// operations but FLUSH, ATOMIC WRITE and SENDs with invalidate.
func openXRCSender(p *Port) *senderDialogue {
	s := openSender(p, verbs.QPTypeXRCSend, ib.XRC, 0xffffe8)
	s.ops = []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead}
	if p.Caps.Has(verbs.CapAtomics) {
		s.ops = append(s.ops, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp)
	}
	return s
}

// Close frees the objects of the dialogue.
func (s *senderDialogue) Close() { s.conn.closeConn(s.conn) }

// senderPost is a request, before it has an ID.
type senderPost struct {
	op     verbs.WROpcode
	flags  verbs.SendFlags
	off, n int
	split  int // length of the first two of three SGEs; 0 for one SGE
	imm    uint32
	srqn   uint32
	remote verbs.Remote
}

// String describes the work request to post, for the record of a dialogue.
func (p senderPost) String() string {
	text := fmt.Sprintf("%v of %d bytes, flags %d", p.op, p.n, p.flags)
	if p.srqn != 0 {
		text += fmt.Sprintf(", SRQ %#x", p.srqn)
	}
	return text
}

// drawPosts draws up to four requests. The last is signaled.
func (s *senderDialogue) drawPosts(r *rand.Rand) []senderPost {
	all := make([]senderPost, 1+r.IntN(4))
	for i := range all {
		p := senderPost{
			op: rig.Pick(r, s.ops...), flags: rig.Pick(r, 0, verbs.SendSignaled, verbs.SendSignaled|verbs.SendSolicited, verbs.SendSolicited),
			n: rig.Pick(r, 0, 1, 2, 3, 4, 5, ucMTU-1, ucMTU, ucMTU+1, 2*ucMTU, 2*ucMTU+1, senderMaxLen-1, senderMaxLen), off: r.IntN(64),
			split: rig.Pick(r, 0, 0, 1, 7, 100, ucMTU), imm: r.Uint32(),
			remote: verbs.Remote{Addr: rig.Pick(r, PeerMemory.Addr, r.Uint64()&^7), RKey: verbs.RKey(r.Uint32())},
		}
		if s.m.Service == ib.XRC {
			p.srqn = rig.Pick(r, 0xabc123, 1, 0xffffff, r.Uint32()&0xffffff)
		}
		if p.op == verbs.OpAtomicFetchAdd || p.op == verbs.OpAtomicCmpAndSwp {
			p.n, p.split = 8, 0
		}
		all[i] = p
	}
	all[len(all)-1].flags |= verbs.SendSignaled
	return all
}

// request makes a work request of UC or XRC with the next ID. READs and atomics, which only XRC
// has, place their results from SinkOffset on in LocalMem.
func (s *senderDialogue) request(p senderPost) model.UCRequest {
	off := p.off
	r := model.UCRequest{WR: verbs.SendWR{
		WRID: s.ids | sendIDs, Opcode: p.op, Flags: p.flags, Imm: p.imm, Remote: p.remote, XRC: verbs.XRC{SRQN: p.srqn},
		// The operands differ, and use both halves of 64 bits.
		Atomic: verbs.Atomic{CompareAdd: uint64(p.imm) << 17, Swap: uint64(p.imm)<<33 | 5},
	}}
	s.ids++
	if r.HasResponse() {
		off += SinkOffset
	}
	r.Payload = s.conn.LocalMem.Buf[off:][:p.n]
	for _, n := range []int{p.split, p.split, p.n} { // up to three SGEs; the last has the rest
		if n = min(n, p.n); n > 0 {
			r.WR.SGL = append(r.WR.SGL, s.conn.LocalMem.SGE(off, n))
			off, p.n = off+n, p.n-n
		}
	}
	return r
}

// senderCompletions are the opcodes of the completions of requests.
var senderCompletions = map[verbs.WROpcode]verbs.WCOpcode{
	verbs.OpSend: verbs.WCOpSend, verbs.OpSendImm: verbs.WCOpSend, verbs.OpRDMAWrite: verbs.WCOpRDMAWrite, verbs.OpRDMAWriteImm: verbs.WCOpRDMAWrite,
	verbs.OpRDMARead: verbs.WCOpRDMARead, verbs.OpAtomicFetchAdd: verbs.WCOpFetchAdd, verbs.OpAtomicCmpAndSwp: verbs.WCOpCompSwap,
}

// completion returns the completion of a request with this status; none if the request succeeds and
// is not signaled.
func (s *senderDialogue) completion(r model.UCRequest, status verbs.WCStatus) []verbs.WC {
	if status == verbs.WCSuccess && r.WR.Flags&verbs.SendSignaled == 0 {
		return nil
	}
	return []verbs.WC{{WRID: r.WR.WRID, Status: status, QPN: s.conn.QP.QPN(), Opcode: senderCompletions[r.WR.Opcode]}}
}

// post posts requests with one call.
func (s *senderDialogue) post(all []model.UCRequest) {
	var wrs []verbs.SendWR
	for _, r := range all {
		wrs = append(wrs, r.WR)
	}
	s.conn.PostSend(s.conn.QP, wrs...)
}

// expectSent fails the case unless the next packets are those of a request. After a failed request,
// the first packet may have any PSN: expectSent reads that PSN, and then expects the packet again.
func (s *senderDialogue) expectSent(r model.UCRequest) {
	if s.psnUnknown {
		a := s.conn.expectAnyPacket("a packet of a request")
		s.conn.unread(a)
		s.m.PSN, s.psnUnknown = a.PSN(), false
	}
	for _, want := range s.m.Send(r) {
		s.conn.expect(want)
	}
}

// drawSenderPosts draws requests that the device sends.
func drawSenderPosts(s *senderDialogue, r *rand.Rand) senderStep {
	all, together := s.drawPosts(r), chance(r, 2)
	return step(func(s *senderDialogue) {
		var requests []model.UCRequest
		for _, p := range all {
			requests = append(requests, s.request(p))
		}
		s.post(requests)
		s.finish(requests, together)
	}, "the application posts %v, responses together: %v", all, together)
}

// finish expects the packets of requests, responds to those of XRC, and compares completions and
// memory. If together, SENDs and WRITEs are acknowledged by one ACK at the end.
func (s *senderDialogue) finish(all []model.UCRequest, together bool) {
	var want []verbs.WC
	var responses []ib.Packet
	for _, r := range all {
		first := s.m.PSN
		s.expectSent(r)
		s.completed++
		want = append(want, s.completion(r, verbs.WCSuccess)...)
		if response, hasData := s.response(r, first); hasData || !together {
			responses = append(responses, response...)
		}
	}
	if s.m.Service == ib.XRC {
		responses = append(responses, ib.Ack(s.m.PSN.Add(-1), s.completed))
		for _, p := range responses {
			s.conn.Send(p.On(ib.XRC))
		}
	}
	s.compare(want)
}

// response returns the response to a request with this first PSN, and whether it has data: that of
// a READ or atomic has, and differs from the content of memory.
func (s *senderDialogue) response(r model.UCRequest, first ib.PSN) (packets []ib.Packet, hasData bool) {
	switch r.WR.Opcode {
	case verbs.OpRDMARead:
		data := slices.Clone(r.Payload)
		for i := range data {
			data[i] ^= byte(s.ids) | 1
		}
		s.expectInSink(r, data)
		return ib.ReadResponses(first, s.completed, data, ucMTU), true
	case verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp:
		value := s.ids * 0x0102030405060708
		s.expectInSink(r, binary.NativeEndian.AppendUint64(nil, value))
		return []ib.Packet{ib.AtomicAck(first, s.completed, value)}, true
	}
	return []ib.Packet{ib.Ack(s.m.PSN.Add(-1), s.completed)}, false
}

// expectInSink adds the data of a response to the expected content of memory.
func (s *senderDialogue) expectInSink(r model.UCRequest, data []byte) {
	if s.sink == nil {
		s.sink = slices.Clone(s.conn.LocalMem.Buf[SinkOffset:])
	}
	if len(data) > 0 {
		copy(s.sink[r.WR.SGL[0].Addr-s.conn.LocalMem.Addr()-SinkOffset:], data)
	}
}

// compare fails the case unless the device has these completions, the expected memory, and has sent
// nothing else.
func (s *senderDialogue) compare(want []verbs.WC) {
	s.conn.compareCompletions(want)
	s.conn.expectNoPackets()
	if s.sink != nil {
		s.conn.ExpectBytes(s.conn.LocalMem, SinkOffset, s.sink)
	}
	s.conn.ExpectUnchangedOutside(s.conn.LocalMem, SinkOffset, len(s.sink))
	s.conn.ExpectUntouched(s.conn.TargetMem)
	s.conn.expectEvents()
}

// drawSenderNoise draws a response or CNP, which must have no effect on a UC queue pair.
func drawSenderNoise(_ *senderDialogue, r *rand.Rand) senderStep {
	kinds := []func(psn ib.PSN) ib.Packet{
		func(psn ib.PSN) ib.Packet { return ib.Ack(psn, 1) },
		func(psn ib.PSN) ib.Packet { return ib.Ack(psn, 1).On(ib.UC) },
		func(psn ib.PSN) ib.Packet { return ib.Nak(psn, ib.NakSequence, 0) },
		func(psn ib.PSN) ib.Packet { return ib.Nak(psn, ib.NakRemoteAccess, 0).On(ib.UC) },
		func(psn ib.PSN) ib.Packet { return ib.RNR(psn, 1, 0).On(ib.UC) },
		func(psn ib.PSN) ib.Packet { return ib.ReadResponseOnly(psn, 1, Data(8)).On(ib.UC) },
		func(ib.PSN) ib.Packet { return ib.CNP() },
	}
	i, delta := r.IntN(len(kinds)), rig.Pick(r, -1, 0, 1)
	return step(func(s *senderDialogue) {
		pkt := kinds[i](s.m.PSN.Add(delta))
		s.conn.Send(pkt)
		s.compare(nil)
		s.conn.ExpectState(s.conn.QP, verbs.QPStateRTS)
	}, "%v with the next PSN %+d", kinds[i](0).Opcode(), delta)
}

// drawSenderDrain draws requests that are posted in SQD. They must be sent when the queue pair is
// in RTS again, and not before.
func drawSenderDrain(s *senderDialogue, r *rand.Rand) senderStep {
	all := s.drawPosts(r)
	return step(func(s *senderDialogue) {
		s.conn.ToState(s.conn.QP, verbs.QPStateSQD)
		var requests []model.UCRequest
		for _, p := range all {
			requests = append(requests, s.request(p))
		}
		s.post(requests)
		s.compare(nil)
		s.conn.ToState(s.conn.QP, verbs.QPStateRTS)
		s.finish(requests, false)
	}, "the application posts %v in SQD, and moves the queue pair to RTS", all)
}

// drawSenderFailure draws requests, one of which has a wrong L_Key and moves the queue pair to SQE.
// The requests after it, and one that is posted in SQE, must be flushed. In half of the steps the
// queue pair receives a SEND in SQE.
func drawSenderFailure(s *senderDialogue, r *rand.Rand) senderStep {
	all, bad, message := s.drawPosts(r), senderPost{op: rig.Pick(r, s.ops...), n: 9}, chance(r, 2)
	at := r.IntN(len(all))
	return step(func(s *senderDialogue) {
		var requests []model.UCRequest
		var want []verbs.WC
		status := verbs.WCSuccess
		for i, p := range all {
			if i == at {
				p = bad
			}
			r := s.request(p)
			if i == at {
				sge := &r.WR.SGL[0]
				sge.LKey = verbs.LKey(unknownKey(verbs.RKey(sge.LKey)))
				want, status = append(want, s.completion(r, verbs.WCLocProtErr)...), verbs.WCWRFlushErr
			} else {
				want = append(want, s.completion(r, status)...)
			}
			requests = append(requests, r)
		}
		s.post(requests)
		for _, r := range requests[:at] {
			s.expectSent(r)
		}
		s.psnUnknown = true
		s.compare(want)
		s.conn.AwaitState(s.conn.QP, verbs.QPStateSQE)
		last := s.request(bad)
		s.post([]model.UCRequest{last})
		s.compare(s.completion(last, verbs.WCWRFlushErr))
		if message {
			s.receive(16)
		}
		s.conn.ToState(s.conn.QP, verbs.QPStateRTS)
		s.compare(nil)
	}, "the application posts %v, of which request %d has a wrong L_Key", all, at)
}

// drawSenderReceive draws a SEND of the peer.
func drawSenderReceive(_ *senderDialogue, r *rand.Rand) senderStep {
	n := r.IntN(200)
	return step(func(s *senderDialogue) { s.receive(n) }, "a SEND of %d bytes to the device", n)
}

// receive sends a SEND of n bytes to the device, which must receive it in TargetMem.
func (s *senderDialogue) receive(n int) {
	id := s.ids
	s.ids++
	s.conn.PostRecv(s.conn.QP, id, s.conn.TargetMem.SGE(0, 256))
	s.conn.Send(ucSendOnly(s.conn.PeerPSN(s.received), n))
	s.received++
	s.conn.ExpectRecv(id, n)
	s.conn.ExpectBytes(s.conn.TargetMem, 0, Data(n))
	s.conn.TargetMem.Snapshot()
	s.compare(nil)
}
