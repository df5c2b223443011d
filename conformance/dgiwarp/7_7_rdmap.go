package dgiwarp

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxOutstandingReads is the limit of outstanding reads and atomics per peer.
const maxOutstandingReads = 16

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
		p.expectRequest(p.writeRecordWR(9, 0, 8), iwarp.Write(peerSTag, peerTO, p.localMem.Buf[:8]))
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
	Sends:   "Acks for Read Requests, of which the application posts 20; then responses one after the other",
	Expects: "16 requests, and one more for each response",
	Defects: []string{"ReadsUnlimited", "AlwaysFenced"}, Run: onFlow(setup{}, func(p *peer) {
		p.establishDeviceFlow()
		var wrs []verbs.SendWR
		for i := range 20 {
			wrs = append(wrs, p.wr(uint64(i), verbs.OpRDMARead, 8*i, 8))
		}
		p.PostSend(p.qp, wrs...)
		var requests []arrival
		take := func(n int) {
			for range n {
				a := p.expectData(p.fromDeviceFlow.next)
				p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpReadRequest)), a)
				requests = append(requests, a)
			}
			p.ackAll()
			for _, a := range p.drain(silencePeriod) {
				p.Check(a.Data == nil || int32(*a.Data.Seq-p.fromDeviceFlow.next) < 0, fmt.Sprintf("at most %d outstanding reads", maxOutstandingReads), "%v", a.Packet)
			}
		}
		take(maxOutstandingReads)
		for i := range 4 {
			p.send(p.nextDataPacket(iwarp.ReadResponseTo(*requests[i].Segment, data(8))))
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
}})

// expectResponse fails the case unless a request of the peer is answered in the device's flow.
func (p *peer) expectResponse(request, want iwarp.Segment) {
	p.send(p.nextDataPacket(request).AckNow())
	a := p.expectData(p.fromDeviceFlow.next)
	p.checkPacket(iwarp.AnyPacket().With(want), a)
	p.ackAll()
}

// expectRequest posts a request, and fails the case unless the device's next data packet matches
// want.
func (p *peer) expectRequest(wr verbs.SendWR, want iwarp.Segment) arrival {
	p.PostSend(p.qp, wr)
	a := p.expectData(p.fromDeviceFlow.next)
	p.checkPacket(iwarp.AnyPacket().With(want), a)
	return a
}
