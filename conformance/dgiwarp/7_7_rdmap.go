package dgiwarp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxOutstandingReads is the limit of outstanding reads and atomics per peer.
const maxOutstandingReads = 16

// expectResponse sends a request, and acknowledges the next data packet, which must contain want.
func (p *peer) expectResponse(request, want iwarp.Segment) {
	p.send(p.nextDataPacket(request).AckNow())
	a := p.expectData(p.fromDeviceFlow.next)
	p.checkPacket(iwarp.AnyPacket().With(want), a)
	p.ackAll()
}

// expectRequest posts a request, and expects that the device's next data packet matches want.
func (p *peer) expectRequest(wr verbs.SendWR, want iwarp.Segment) arrival {
	p.PostSend(p.qp, wr)
	a := p.expectData(p.fromDeviceFlow.next)
	p.checkPacket(iwarp.AnyPacket().With(want), a)
	return a
}

// establishedPeer returns the peer of a new queue pair, with flows in both directions.
func (h *host) establishedPeer() *peer {
	p := h.newQP(setup{receives: 2}).peer(0)
	p.openFlow(zeroLengthWrite())
	p.establishDeviceFlow()
	return p
}

// expectSegmentError sends segments in RD packets, the last of them invalid, and expects a
// Terminate with one of the causes, a queue pair in the error state, and no successful completion.
func (p *peer) expectSegmentError(causes []iwarp.Cause, segments ...iwarp.Segment) {
	for _, s := range segments {
		p.send(p.nextDataPacket(s))
	}
	a, wrong := p.expectData(p.fromDeviceFlow.next), segments[len(segments)-1]
	p.Check(slices.ContainsFunc(causes, func(c iwarp.Cause) bool {
		return iwarp.AnyPacket().With(iwarp.Terminate(c).Quoting(wrong).QN(2)).Matches(a.ReceivedPacket)
	}), fmt.Sprintf("a Terminate for %v about %v", causes, wrong), "%v", a.Packet)
	p.ackAll()
	p.drainArrived() // retransmissions that crossed with the Ack
	p.expectErrorState()
	p.ExpectNoSuccess()
}

// expectSecondSegmentRefused sends a Send of two segments, the second of them changed, and fails
// the case unless the device reports the second with one of the causes and does not place it.
func (h *host) expectSecondSegmentRefused(causes []iwarp.Cause, change func(second iwarp.Segment) iwarp.Segment) {
	const first = 16
	p := h.establishedPeer()
	parts := sendSegmentsOf(1, data(2*first), first)
	p.expectSegmentError(causes, parts[0], change(parts[1]))
	p.ExpectUnchangedOutside(p.localMem, 0, grhAreaLen+first)
}

// expectResponseRefused answers a read with a changed Read Response, and fails the case unless the
// device reports it with one of the causes and does not place it.
func (h *host) expectResponseRefused(change func(iwarp.Segment) iwarp.Segment, causes ...iwarp.Cause) {
	p := h.establishedPeer()
	request := p.expectRequest(p.wr(9, verbs.OpRDMARead, 1024, 16), iwarp.Op(iwarp.OpReadRequest))
	p.ackAll()
	p.expectSegmentError(causes, change(iwarp.ReadResponseTo(*request.Segment, data(16))))
	p.ExpectUntouched(p.localMem)
}

var rdmapCases = overRD.Cases([]conformance.Case{{
	ID: "dg/rdmap/numbers-begin-with-the-flow", Cite: cite("7.7", "dg/rdmap/1"),
	Title:   "MSNs begin at 1 with each flow",
	Sends:   "Acks, a Refusal, and Acks for the flow that follows; two flows of the peer, each with Sends from MSN 1 on",
	Expects: "Sends with MSNs 1, 2 and again 1, 2; receives of all of the peer's",
	Defects: []string{"NumbersGoOn"}, Run: onPeer(func(p *peer) {
		number := func(msn uint32, a arrival) { p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpSend).MSN(msn)), a) }
		for range 2 {
			number(1, p.acceptFlowOf(p.sendWR(1, 0, 8)))
			p.ackAndComplete(1)
			p.PostSend(p.qp, p.sendWR(2, 0, 8))
			number(2, p.expectData(1))
			p.refuseFlow(2)
		}
		for i := range 2 {
			p.openFlowTo(uint64(2*i+1), iwarp.Send(1, data(8)))
			p.expectDeliveredTo(uint64(2*i+2), iwarp.Send(2, data(16)))
		}
	}),
}, {
	ID: "dg/rdmap/every-operation", Cite: cite("7.7", "dg/rdmap/2"),
	Title:   "All operations of RDMAP and its extensions are executed for a peer",
	Sends:   "a Send, one with a solicited event, a Write, a Read, both atomics, and immediate data, with and without a solicited event",
	Expects: "receives, written memory, and responses",
	Defects: []string{"RDWithoutExtensions"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		p.establishDeviceFlow()
		p.expectDeliveredTo(1, iwarp.Send(1, data(8)))
		p.expectDeliveredTo(2, iwarp.SendSE(2, data(16)))
		p.expectDelivered(p.writeToTarget(0, data(64)))
		p.ExpectBytes(p.targetMem, 0, data(64))
		sink := iwarp.At(peerSTag, peerTO)
		p.expectResponse(iwarp.ReadRequest(1, sink, 64, p.targetAddr(0)), iwarp.ReadResponse(peerSTag, peerTO, data(64)))
		before := binary.NativeEndian.Uint64(data(8)) // in the byte order of the device's memory
		p.expectResponse(iwarp.FetchAdd(2, 77, p.targetAddr(0), 5), iwarp.AtomicResponse(1, 77, before))
		p.expectResponse(iwarp.CompareSwap(3, 78, p.targetAddr(0), before+5, 9), iwarp.AtomicResponse(2, 78, before+5))
		p.expectResponse(iwarp.CompareSwap(4, 79, p.targetAddr(0), 0, 1), iwarp.AtomicResponse(3, 79, 9))
		for i, s := range []iwarp.Segment{iwarp.Immediate(3, immediateData), iwarp.ImmediateSE(4, immediateData)} {
			p.expectDelivered(s)
			wc := p.ExpectCompletion(uint64(i+3), verbs.WCSuccess)
			p.Check(wc.Flags&verbs.WCWithImm != 0, "a completion with immediate data", "%s", rig.Describe(&wc))
		}
	}),
}, {
	ID: "dg/rdmap/solicited-raises-an-event", Cite: cite("7.7", "dg/rdmap/2"), Level: conformance.May,
	Title:   "A message raises an event only with solicited event, for an application that waits for solicited events",
	Sends:   "Sends of one segment and of two, immediate data, and Sends with Invalidate, with and without solicited event",
	Expects: "receives of all, and events for those with solicited event",
	Defects: []string{"FlowsUnsolicited"}, Run: onHost(func(h *host) { h.checkSolicited(true) }),
}, {
	ID: "dg/rdmap/every-request", Cite: cite("7.7", "dg/rdmap/2"), Needs: verbs.CapAtomics | verbs.CapSendInv,
	Title:   "All operations of RDMAP and its extensions can be requested",
	Sends:   "responses to the requests of the application",
	Expects: "a Send of each of four kinds, a Write, one with immediate data after it, a Read Request and Atomic Requests, and completions",
	Defects: []string{"RecordIsWrite"}, Run: onFlow(setup{}, func(p *peer) {
		p.establishDeviceFlow()
		inv, se, seInv := p.wr(2, verbs.OpSendInv, 0, 8), p.sendWR(3, 0, 8), p.wr(4, verbs.OpSendInv, 0, 8)
		inv.InvalidateRKey, seInv.InvalidateRKey = peerSTag, peerSTag
		se.Flags |= verbs.SendSolicited
		seInv.Flags |= verbs.SendSolicited
		for _, t := range []struct {
			wr   verbs.SendWR
			want iwarp.Segment
		}{
			{p.sendWR(1, 0, 8), iwarp.Send(2, p.localMem.Buf[:8])},
			{inv, iwarp.SendInvalidate(3, peerSTag, p.localMem.Buf[:8])},
			{se, iwarp.SendSE(4, p.localMem.Buf[:8])},
			{seInv, iwarp.SendSEInvalidate(5, peerSTag, p.localMem.Buf[:8])},
			{p.wr(5, verbs.OpRDMAWrite, 0, 8), iwarp.Write(peerSTag, peerTO, p.localMem.Buf[:8])},
		} {
			p.expectRequest(t.wr, t.want)
			p.ackAndComplete(t.wr.WRID)
		}
		p.expectRequest(p.writeRecordWR(9, 8), iwarp.Write(peerSTag, peerTO, p.localMem.Buf[:8]))
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpImmediate).MSN(6)), p.expectData(p.fromDeviceFlow.next))
		p.ackAndComplete(9)
		request := p.expectRequest(p.wr(6, verbs.OpRDMARead, 0, 8), iwarp.Op(iwarp.OpReadRequest).MSN(1))
		p.ackAll()
		p.expectDelivered(iwarp.ReadResponseTo(*request.Segment, data(8)))
		p.ExpectCompletion(6, verbs.WCSuccess)
		p.ExpectBytes(p.localMem, 0, data(8))
		add, swap := p.wr(7, verbs.OpAtomicFetchAdd, 0, 8), p.wr(8, verbs.OpAtomicCmpAndSwp, 8, 8)
		add.Atomic.CompareAdd = 3
		swap.Atomic = verbs.Atomic{CompareAdd: 1, Swap: 2}
		for i, wr := range []verbs.SendWR{add, swap} {
			request := p.expectRequest(wr, iwarp.Op(iwarp.OpAtomicRequest).MSN(uint32(i+2)))
			p.ackAll()
			p.expectDelivered(iwarp.AtomicResponse(uint32(i+1), *request.Segment.AtomicRequest.ID, 0x1122334455667788))
			p.ExpectCompletion(wr.WRID, verbs.WCSuccess)
		}
	}),
}, {
	ID: "dg/rdmap/sources-are-kept-apart", Cite: cite("7.7", "dg/rdmap/3"),
	Title:   "Messages of different sources are reassembled independently",
	Sends:   "Sends of two segments from three peers, alternately",
	Expects: "a receive of each, as it was sent",
	Defects: []string{"SourcesMixed"}, Run: onSetup(setup{receives: 3, recvLen: 80}, func(p *peer) {
		peers := []*peer{p, p.peer(1), p.peer(4)}
		message := func(i int) []byte { return rig.Pattern(80, byte(50*i)) }
		for _, x := range peers {
			x.openFlow(zeroLengthWrite())
		}
		for half := range 2 {
			for i, x := range peers {
				x.expectDelivered(sendSegmentsOf(1, message(i), 40)[half])
			}
		}
		for i := range peers {
			p.expectRecv(uint64(i+1), message(i))
		}
	}),
}, {
	ID: "dg/rdmap/first-segment-takes-the-receive", Cite: cite("7.7", "dg/rdmap/3"),
	Title:   "A Send consumes its receive when its first segment arrives",
	Sends:   "half a Send, a complete one of another peer, and the other half",
	Expects: "the second receive completes first, with the complete one, then the first",
	Defects: []string{"ReceiveTakenWrong"}, Run: onSetup(setup{receives: 2, recvLen: 80}, func(p *peer) {
		other := p.peer(1)
		p.openFlow(zeroLengthWrite())
		other.openFlow(zeroLengthWrite())
		p.expectDelivered(sendSegmentsOf(1, data(80), 40)[0])
		other.expectDelivered(iwarp.Send(1, data(16)))
		p.expectRecv(2, data(16))
		p.expectDelivered(sendSegmentsOf(1, data(80), 40)[1])
		p.expectRecv(1, data(80))
	}),
}, {
	ID: "dg/rdmap/half-a-send-fails-its-receive", Cite: cite("7.7", "dg/rdmap/4"), Labels: []string{conformance.Slow},
	Title:   "The receive of a Send that is never completed completes in error",
	Sends:   "half a Send and a new flow; half a Send of another peer, which is then silent",
	Expects: "both receives complete in error, the second after 45 s at the latest",
	Defects: []string{"HalfSendLosesReceive"}, Run: onSetup(setup{receives: 3, recvLen: 80}, func(p *peer) {
		p.openFlow(sendSegmentsOf(1, data(80), 40)[0])
		p.openFlow(zeroLengthWrite())
		p.expectFailure(1)
		silent := p.peer(1)
		silent.openFlow(sendSegmentsOf(1, data(80), 40)[0])
		p.Sleep(flowMemory - time.Second)
		wc, ok := p.PollCompletion(16 * time.Second)
		p.Check(ok && wc.WRID == 2 && wc.Status != verbs.WCSuccess, "receive 2 to fail", "%s", rig.Describe(&wc))
		p.ExpectState(p.qp, verbs.QPStateRTS)
	}),
}, {
	ID: "dg/rdmap/sixteen-reads-under-way", Cite: cite("7.7", "dg/rdmap/5"),
	Title:   "At most 16 reads and atomics to one peer are outstanding",
	Sends:   "Acks for Read and Atomic Requests, of which the application posts 20; then responses one after the other",
	Expects: "16 requests, and one more for each response",
	Defects: []string{"ReadsUnlimited", "AlwaysFenced"}, Run: onFlow(setup{}, func(p *peer) {
		p.establishDeviceFlow()
		var wrs []verbs.SendWR
		for i := range 20 {
			op := verbs.OpRDMARead
			if i%2 == 1 && p.Caps.Has(verbs.CapAtomics) {
				op = verbs.OpAtomicFetchAdd
			}
			wrs = append(wrs, p.wr(uint64(i), op, 8*i, 8))
		}
		p.PostSend(p.qp, wrs...)
		var requests []arrival
		take := func(n int) {
			for range n {
				a := p.expectData(p.fromDeviceFlow.next)
				p.Check(a.Segment.Read != nil || a.Segment.AtomicRequest != nil, "a Read or Atomic Request", "%v", a.Packet)
				requests = append(requests, a)
			}
			p.ackAll()
			for _, a := range p.drain(silencePeriod) {
				p.Check(a.Data == nil || int32(*a.Data.Seq-p.fromDeviceFlow.next) < 0, fmt.Sprintf("at most %d outstanding reads", maxOutstandingReads), "%v", a.Packet)
			}
		}
		take(maxOutstandingReads)
		for i := range 4 {
			request := *requests[i].Segment
			if request.AtomicRequest != nil {
				p.send(p.nextDataPacket(iwarp.AtomicResponse(uint32(i/2+1), *request.AtomicRequest.ID, 7)))
			} else {
				p.send(p.nextDataPacket(iwarp.ReadResponseTo(request, data(8))))
			}
			p.ExpectCompletion(uint64(i), verbs.WCSuccess)
			take(1)
		}
	}),
}, {
	ID: "dg/rdmap/sixteen-reads-are-taken", Cite: cite("7.7", "dg/rdmap/5"), Setup: setupNarrowRD,
	Title:   "16 outstanding reads of one peer are accepted, and one more is an error",
	Sends:   "16 Read Requests for more than a window, and no Ack for the responses; then another one",
	Expects: "Acks and responses; after the last an event, and the error state",
	Defects: []string{"ReadsUnlimited"}, Run: onFlow(setup{receives: 1, memLen: 1 << 20}, func(p *peer) {
		p.establishDeviceFlow()
		ask := func(msn int) {
			p.send(p.nextDataPacket(iwarp.ReadRequest(uint32(msn), iwarp.At(peerSTag, peerTO), 1<<20, p.targetAddr(0))).AckNow())
		}
		for i := range maxOutstandingReads {
			ask(i + 1)
		}
		p.syncDevice()
		p.ExpectNoEvent()
		p.ExpectState(p.qp, verbs.QPStateRTS)
		p.pending = nil
		ask(maxOutstandingReads + 1)
		p.expectErrorState()
	}),
}, {
	ID: "dg/rdmap/read-requests-in-segments", Cite: cite("7.7", "dg/rdmap/2"), Level: conformance.May,
	Title:   "A Read Request in two segments is answered, and so are those after it",
	Sends:   "Read Requests in two segments each, one after the other, and one in one segment",
	Expects: "a Read Response to each; instead of the first an error message is accepted",
	Defects: []string{"SecondSplitReadRefused"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		const first = 12
		p.establishDeviceFlow()
		for msn := uint32(1); msn <= 3; msn++ {
			request := iwarp.ReadRequest(msn, iwarp.At(peerSTag, peerTO), 16, p.targetAddr(16*int(msn)))
			if octets := request.Append(nil)[untaggedLen:]; msn < 3 {
				part := request
				part.Read = nil
				p.send(p.nextDataPacket(part.WithPayload(octets[:first]).Last(false)), p.nextDataPacket(part.WithPayload(octets[first:]).MO(first)))
			} else {
				p.send(p.nextDataPacket(request))
			}
			a := p.expectData(msn)
			if msn == 1 && iwarp.AnyPacket().With(iwarp.Op(iwarp.OpTerminate)).Matches(a.ReceivedPacket) {
				p.expectErrorState()
				return
			}
			p.checkPacket(iwarp.AnyPacket().With(iwarp.ReadResponseTo(request, p.targetMem.Buf[16*msn:][:16])), a)
			p.ackAll()
		}
	}),
}, {
	ID: "dg/rdmap/lost-responses-fail-the-requests", Cite: cite("7.7", "dg/rdmap/6"),
	Title:   "If the flow with the responses fails, the flow of their requests is refused",
	Sends:   "a Read Request, a Refusal of the flow with its response, and another Read Request; an atomic in the place of the read; then another flow",
	Expects: "a Refusal of the peer's flow as unknown; the other flow works",
	Defects: []string{"LostResponsesUnrefused"}, Run: onFlow(setup{}, func(p *peer) {
		requests := []iwarp.Segment{iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.targetAddr(0))}
		if p.Caps.Has(verbs.CapAtomics) {
			requests = append(requests, iwarp.FetchAdd(1, 1, p.targetAddr(p.targetMem.WordOffset(0)), 1))
		}
		for _, request := range requests {
			p.establishDeviceFlow()
			p.send(p.nextDataPacket(request).AckNow())
			p.expectData(1)
			p.send(iwarp.Refusal(p.fromDeviceFlow.epoch, iwarp.ReasonUnknownFlow))
			p.syncDevice()
			p.drainArrived() // Acks and retransmissions that were sent before
			p.send(p.nextDataPacket(request.MSN(2)).AckNow())
			p.expectRefusal(iwarp.ReasonUnknownFlow)
			p.openFlow(zeroLengthWrite())
		}
		p.expectDelivered(zeroLengthWrite())
	}),
}, {
	ID: "dg/rdmap/lost-responses-end", Cite: cite("7.7", "dg/rdmap/6"),
	Title:   "If the flow with a response fails, nothing more of the response is sent",
	Sends:   "a Read Request of 4 MiB, of which most waits to be sent, and a Refusal of the flow with its response",
	Expects: "no data after the Refusal",
	Defects: []string{"LostResponsesContinue"}, Run: onFlow(setup{memLen: 4 << 20}, func(p *peer) {
		p.establishDeviceFlow()
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 4<<20, p.targetAddr(0))).AckNow())
		p.expectData(1)
		p.send(iwarp.Refusal(p.fromDeviceFlow.epoch, iwarp.ReasonUnknownFlow))
		p.syncDevice()
		p.drainArrived() // packets that were sent before
		a, more := p.nextData(2 * firstTimeout)
		p.Check(!more, "nothing more of the response", "%v", a.Packet)
	}),
}, {
	ID: "dg/rdmap/response-behind-an-error-message", Cite: cite("7.7", "dg/rdmap/2", "dg/rdmap/6", "dg/err/7"),
	Title:   "After an error message about a request, responses of its flow still arrive before another flow begins; or the flow of their requests is refused",
	Sends:   "no Ack for a Read Response; an error message about a Send before it, and an Ack for that Send, after which the application posts another",
	Expects: "the Read Response again, and after its Ack another flow with the other Send; or another flow, and a Refusal",
	Defects: []string{"ErrorDropsResponses"}, Run: onFlow(setup{}, func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8))
		failing := p.expectData(1)
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.targetAddr(0))).AckNow())
		response := p.expectData(2)
		p.send(p.nextDataPacket(iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(*failing.Segment)).AckNow())
		p.expectFailure(1)
		p.send(p.ack(2))
		p.PostSend(p.qp, p.sendWR(2, 0, 8))
		again := p.mustNextData("the Read Response again, or another flow")
		for *again.Data.Epoch == *response.Data.Epoch && *again.Data.Seq < 2 { // they crossed with the Ack
			again = p.mustNextData("the Read Response again, or another flow")
		}
		if *again.Data.Epoch != *response.Data.Epoch {
			p.send(p.nextDataPacket(zeroLengthWrite()).AckNow())
			p.expectRefusal(iwarp.ReasonUnknownFlow)
			return
		}
		p.checkPacket(iwarp.AnyPacket().With(*response.Segment), again)
		p.ackAll()
		start := p.mustNextData("another flow")
		for *start.Data.Epoch == *response.Data.Epoch { // it crossed with the Ack
			start = p.mustNextData("another flow")
		}
		p.fromDeviceFlow = flow{epoch: *start.Data.Epoch}
		p.trackData(start)
		if start.Data.Start != nil && *start.Data.Start.Proof == noProof {
			p.challenge(peerCookie)
		}
		p.ackAndComplete(2)
	}),
}, {
	// A flow is delivered in order, like a TCP stream: missing octets cannot arrive later.
	ID: "dg/rdmap/offset-of-a-later-segment", Cite: cite("7.7", "dg/err/1", "dg/rdmap/2"),
	Title:   "A second segment of a Send that does not follow the first is an error",
	Sends:   "Sends of two segments of 16 octets, the second with MOs 0, 12 and 20",
	Expects: "an error message: invalid MO; an event, the error state, and no receive",
	Defects: []string{"SecondSegmentOffset"}, Run: onHost(func(h *host) {
		for _, mo := range []uint32{0, 12, 20} {
			h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidMO}, func(s iwarp.Segment) iwarp.Segment { return s.MO(mo) })
		}
	}),
}, {
	ID: "dg/rdmap/number-of-a-later-segment", Cite: cite("7.7", "dg/rdmap/1", "dg/err/1"),
	Title:   "A second segment of a Send with another MSN than the first is an error",
	Sends:   "Sends of two segments, the second with the previous MSN, and with the next",
	Expects: "an error message: MSN out of range; for the next MSN also invalid MO, since that message begins at 16",
	Defects: []string{"SecondSegmentNumber"}, Run: onHost(func(h *host) {
		causes := []iwarp.Cause{iwarp.DDPUntaggedMSNRange, iwarp.DDPUntaggedInvalidMO}
		h.expectSecondSegmentRefused(causes[:1], func(s iwarp.Segment) iwarp.Segment { return s.MSN(0) })
		h.expectSecondSegmentRefused(causes, func(s iwarp.Segment) iwarp.Segment { return s.MSN(2) })
	}),
}, {
	ID: "dg/rdmap/number-of-an-atomic-response", Cite: cite("7.7", "dg/rdmap/1", "dg/err/1"), Needs: verbs.CapAtomics,
	Title:   "An Atomic Response with another MSN than the next is an error",
	Sends:   "first Atomic Responses of a flow with MSNs 0 and 2",
	Expects: "an error message: MSN out of range; the atomic fails, and nothing is placed",
	Defects: []string{"AnswerNumberUnchecked"}, Run: onHost(func(h *host) {
		for _, number := range []uint32{0, 2} {
			p := h.establishedPeer()
			request := p.expectRequest(p.wr(9, verbs.OpAtomicFetchAdd, 1024, 8), iwarp.Op(iwarp.OpAtomicRequest))
			p.ackAll()
			p.expectSegmentError([]iwarp.Cause{iwarp.DDPUntaggedMSNRange}, iwarp.AtomicResponse(number, *request.Segment.AtomicRequest.ID, 7))
			p.ExpectUntouched(p.localMem)
		}
	}),
}, {
	ID: "dg/rdmap/number-of-immediate-data", Cite: cite("7.7", "dg/rdmap/1", "dg/err/1"),
	Title:   "Immediate data with another MSN than the next is an error",
	Sends:   "immediate data as the first message of a flow to queue 0, with MSNs 0 and 2",
	Expects: "an error message: MSN out of range, and no receive",
	Defects: []string{"AnswerNumberUnchecked"}, Run: onHost(func(h *host) {
		for _, number := range []uint32{0, 2} {
			h.establishedPeer().expectSegmentError([]iwarp.Cause{iwarp.DDPUntaggedMSNRange}, iwarp.Immediate(number, immediateData))
		}
	}),
}, {
	ID: "dg/rdmap/version-of-tagged-messages", Cite: cite("7.7", "dg/err/1", "dg/rdmap/2"),
	Title:   "A Write or a Read Response with another RDMAP version is an error",
	Sends:   "Writes, and responses to reads of the device, with RDMAP versions 0 and 2",
	Expects: "an error message: invalid version; nothing is placed, and the reads fail",
	Defects: []string{"TaggedVersionUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2} {
			p := h.establishedPeer()
			p.expectSegmentError([]iwarp.Cause{iwarp.RDMAPInvalidVersion}, p.writeToTarget(0, data(16)).RV(v))
			p.ExpectUntouched(p.targetMem)
			h.expectResponseRefused(func(s iwarp.Segment) iwarp.Segment { return s.RV(v) }, iwarp.RDMAPInvalidVersion)
		}
	}),
}, {
	ID: "dg/rdmap/ddp-version-of-a-read-response", Cite: cite("7.7", "dg/err/1", "dg/rdmap/2"),
	Title:   "A Read Response with another DDP version is an error",
	Sends:   "responses to reads of the device with DDP versions 0 and 2",
	Expects: "an error message: invalid version of a tagged segment; nothing is placed, and the reads fail",
	Defects: []string{"ReadResponseDDPVersion"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2} {
			h.expectResponseRefused(func(s iwarp.Segment) iwarp.Segment { return s.DV(v) }, iwarp.DDPTaggedInvalidVersion)
		}
	}),
}, {
	ID: "dg/rdmap/response-to-another-place", Cite: cite("7.7", "dg/err/1", "dg/rdmap/2"), Level: conformance.May,
	Title:   "A Read Response to another sink than requested is an error",
	Sends:   "responses to reads of the device with an unknown key, to a TO one octet, 64 octets and 4 GiB away, and of one octet more",
	Expects: "an error message: STag or bounds; nothing is placed, and the reads fail",
	Defects: []string{"ResponseOffset32"}, Run: onHost(func(h *host) {
		causes := []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.DDPTaggedBounds}
		h.expectResponseRefused(func(s iwarp.Segment) iwarp.Segment { return s.STag(unknownSTag) }, causes...)
		h.expectResponseRefused(func(s iwarp.Segment) iwarp.Segment { return s.WithPayload(data(17)) }, causes...)
		for _, away := range []uint64{1, 64, 1 << 32} {
			h.expectResponseRefused(func(s iwarp.Segment) iwarp.Segment { return s.TO(*s.DDP.TO + away) }, causes...)
		}
	}),
}, {
	ID: "dg/rdmap/offsets-of-long-messages", Cite: cite("7.7", "dg/rdmap/2"), Setup: setupNarrowRD,
	Title:   "MO and TO of a segment are those of the message plus its offset in the message",
	Sends:   "Acks for a Send of more than 64 KiB and for a Write across a multiple of 4 GiB; a Read Request with such a sink",
	Expects: "segments with all bits of their offsets",
	Defects: []string{"OffsetOf16Bits", "ResponseCarryLost"}, Run: onFlow(setup{memLen: 128 << 10}, func(p *peer) {
		const n = 100 << 10
		p.establishDeviceFlow()
		expectSegments := func(length int, want func(at int) iwarp.Segment) {
			for at := 0; at < length; p.ackAll() {
				a := p.expectData(p.fromDeviceFlow.next)
				p.checkPacket(iwarp.AnyPacket().With(want(at)), a)
				at += len(a.Segment.Payload)
			}
		}
		p.PostSend(p.qp, p.sendWR(1, 0, n))
		expectSegments(n, func(at int) iwarp.Segment { return iwarp.Op(iwarp.OpSend).MO(uint32(at)) })
		p.ExpectCompletion(1, verbs.WCSuccess)
		const to, short = 5<<32 - 1000, 5000
		wr := p.wr(2, verbs.OpRDMAWrite, 0, short)
		wr.Remote.Addr = to
		p.PostSend(p.qp, wr)
		expectSegments(short, func(at int) iwarp.Segment { return iwarp.Op(iwarp.OpWrite).TO(to + uint64(at)) })
		p.ExpectCompletion(2, verbs.WCSuccess)
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, to), short, p.targetAddr(0))))
		expectSegments(short, func(at int) iwarp.Segment { return iwarp.Op(iwarp.OpReadResponse).TO(to + uint64(at)) })
	}),
}, {
	ID: "dg/rdmap/every-segment-of-a-write-is-checked", Cite: cite("7.7", "dg/tag/8", "dg/err/1"),
	Title:   "Every segment of a Write in a flow is checked",
	Sends:   "Writes whose first segment is valid, and whose second has an unknown key, that of memory without remote write access, or ends out of bounds",
	Expects: "an error message about the second; the first is placed, and nothing of the second",
	Defects: []string{"SecondSegmentRights"}, Run: onHost(func(h *host) {
		locked := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		for _, t := range []struct {
			second func(*peer) iwarp.Segment
			causes []iwarp.Cause
		}{
			{func(*peer) iwarp.Segment { return writeTo(addrOf(locked, 0), data(16)) }, []iwarp.Cause{iwarp.RDMAPAccess, iwarp.DDPTaggedInvalidSTag}},
			{func(p *peer) iwarp.Segment { return p.writeToTarget(80, data(16)).STag(unknownSTag) }, []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag}},
			{func(p *peer) iwarp.Segment { return p.writeToTarget(len(p.targetMem.Buf)-8, data(16)) }, []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.RDMAPBounds}},
		} {
			p := h.establishedPeer()
			p.expectSegmentError(t.causes, p.writeToTarget(64, data(16)).Last(false), t.second(p))
			p.ExpectBytes(p.targetMem, 64, data(16))
			p.ExpectUnchangedOutside(p.targetMem, 64, 16)
		}
		h.ExpectUntouched(locked)
	}),
}, {
	ID: "dg/rdmap/foreign-keys", Cite: cite("7.7", "dg/tag/8", "dg/err/3"),
	Title:   "A Write or a Read Request with the key of another domain, or of a window of another queue pair, is an error with that cause",
	Sends:   "both with both kinds of keys, each in a flow to another queue pair",
	Expects: "error messages with the code for such keys",
	Defects: []string{"OwnerIsInvalidSTag", "DomainIsInvalidSTag"}, Run: onHost(func(h *host) {
		for _, at := range h.foreignAddrs() {
			h.establishedPeer().expectSegmentError([]iwarp.Cause{iwarp.DDPTaggedSTagNotAssociated}, writeTo(at, data(16)))
			h.establishedPeer().expectSegmentError([]iwarp.Cause{iwarp.RDMAPSTagNotAssociated},
				iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 16, at))
		}
	}),
}, {
	ID: "dg/rdmap/empty-send-invalidates", Cite: cite("7.7", "dg/rdmap/2", "dg/tag/8"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A zero-length Send with Invalidate invalidates its key",
	Sends:   "a Write to a window, a zero-length Send that invalidates it, and another Write",
	Expects: "a zero-length receive with the invalidated key; the second Write is an error, and changes nothing",
	Defects: []string{"EmptySendKeepsKey"}, Run: onHost(func(h *host) {
		p, m := h.establishedPeer(), h.Memory(64, verbs.AccessLocalWrite|verbs.AccessMWBind)
		key := p.BindWindow(p.qp, m, 0, 64, verbs.AccessRemoteWrite)
		at := iwarp.At(uint32(key), m.Addr())
		p.expectDelivered(writeTo(at, data(16)))
		p.ExpectBytes(m, 0, data(16))
		m.Snapshot()
		p.expectDelivered(iwarp.SendInvalidate(1, at.STag, nil))
		wc := p.expectRecv(1, nil)
		p.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == key, "a receive with the invalidated key", "%s", rig.Describe(&wc))
		p.expectSegmentError([]iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPInvalidSTag}, writeTo(at, data(32)))
		p.ExpectUntouched(m)
	}),
}})
