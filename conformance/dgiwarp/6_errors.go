package dgiwarp

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// setupIsolated makes queue pairs of the device survive errors of a peer.
var setupIsolated = conformance.Setup{Isolate: true}

// Limits of error messages.
const (
	errorBurst     = 16
	errorRate      = 100
	maxErrorGrowth = 30 // octets
)

var errorCases = []conformance.Case{{
	ID: "dg/error/stops-the-queue-pair-and-is-told", Cite: cite("6", "dg/err/1"),
	Title:   "An invalid segment raises an event, and moves the queue pair to the error state",
	Sends:   "a Write with an unknown key, to one of two queue pairs",
	Expects: "an event, the error state, and flushed receives; the other queue pair still works",
	Defects: []string{"ErrorsSilent"}, Run: onHost(func(h *host) {
		q, other := h.newQP(setup{receives: 2}), h.newQP(setup{receives: 2})
		q.peer(0).sendSegments(unknownKeyWrite())
		q.expectErrorState()
		q.ExpectCompletions(verbs.WCWRFlushErr, 1, 2)
		other.peer(0).sendSegments(iwarp.Send(1, data(8)))
		other.expectRecv(1, data(8))
	}),
}, {
	ID: "dg/error/every-kind-is-an-error", Cite: cite("6", "dg/err/1", "dg/addr/2", "dg/err/3"),
	Title:   "Every error of DDP and RDMAP is detected, and reported to the peer with its code",
	Sends:   "segments with each kind of error, each to a separate queue pair",
	Expects: "an error message with the cause, an event, the error state, and nothing delivered",
	Defects: []string{"QueueNumberIgnored", "ErrorsSilent", "LongImmediateTaken", "WrapAtTheEnd"}, Run: onHost(func(h *host) {
		for _, m := range peerErrors {
			h.Note("%s", m.name)
			q := h.newQP(setup{receives: 1})
			p := q.peer(0)
			wrong := m.segment(q)
			p.sendSegments(wrong)
			p.expectErrorMessage(wrong, m.causes...)
			p.expectErrorState()
			p.expectFailure(1)
			p.ExpectUntouched(q.targetMem)
		}
	}),
}, {
	ID: "dg/error/can-be-isolated", Cite: cite("6", "dg/err/2"), Level: conformance.Should, Setup: setupIsolated,
	Title:   "A queue pair can be configured so that an error affects its message only",
	Sends:   "each kind of error to one queue pair, and a Send after each",
	Expects: "an error message for each, and a receive of every Send",
	Defects: []string{"IsolationIgnored"}, Run: onSetup(setup{receives: 16}, func(p *peer) {
		id := uint64(1)
		for _, m := range peerErrors {
			if m.consumesReceive {
				continue // the document does not specify whether this error consumes a receive
			}
			wrong := m.segment(p.deviceQP)
			p.sendSegments(wrong)
			p.expectErrorMessage(wrong, m.causes...)
			p.expectReceived(id, iwarp.Send(uint32(id+1), data(8)))
			id++
		}
		p.ExpectState(p.qp, verbs.QPStateRTS)
		p.PostSend(p.qp, p.sendWR(99, 0, 8))
		p.expect(iwarp.UD(iwarp.Send(1, p.localMem.Buf[:8])))
	}),
}, {
	ID: "dg/error/message-names-the-offender", Cite: cite("6", "dg/err/3"),
	Title:   "An error message is a Terminate on queue 2 with the DDP header of the invalid segment, in a UD packet",
	Sends:   "a Send with MSN 77 that is longer than the receive, and a Write with an unknown key",
	Expects: "a Terminate with length and DDP header of the segment",
	Defects: []string{"ErrorWithoutHeader"}, Run: onHost(func(h *host) {
		reported := func(wrong iwarp.Segment, cause iwarp.Cause) {
			p := h.newQP(setup{receives: 1}).peer(0)
			p.sendSegments(wrong)
			p.expect(iwarp.UD(iwarp.Terminate(cause).About(wrong).QN(2).MO(0).Last(true)))
		}
		reported(iwarp.Send(77, data(65)), iwarp.DDPUntaggedTooLong)
		reported(unknownKeyWrite(), iwarp.DDPTaggedInvalidSTag)
	}),
}, {
	ID: "dg/error/message-is-sent-once", Cite: cite("6", "dg/err/4"),
	Title:   "An error message on UD is sent once",
	Sends:   "a Write with an unknown key, and nothing for a minute",
	Expects: "one error message",
	Defects: []string{"ErrorsFlood"}, Run: onPeer(func(p *peer) {
		p.expectErrorFor(unknownKeyWrite())
		p.expectSilence(time.Minute)
	}),
}, {
	ID: "dg/error/messages-are-limited", Cite: cite("6", "dg/err/5"),
	Title:   "At most 16 error messages are sent at once, and 100 per second",
	Sends:   "an invalid segment to each of 200 queue pairs: 50 at once, the others over a second",
	Expects: "some error messages: 16 at most at first, and 116 in all",
	Defects: []string{"ErrorsFlood"}, Run: onHost(func(h *host) {
		const all, first = 200, 50
		var peers []*peer
		for range all {
			peers = append(peers, h.newQP(setup{memLen: 64}).peer(0))
		}
		h.syncDevice()
		begun := h.Now()
		for _, p := range peers[:first] {
			p.sendSegments(unknownKeyWrite())
		}
		sent := len(h.drainArrived())
		may := errorBurst + int((h.Now()-begun)*errorRate/time.Second) + 1
		h.Check(sent > 0 && sent <= may, fmt.Sprintf("1 to %d error messages", may), "%d", sent)
		for _, p := range peers[first:] {
			p.sendSegments(unknownKeyWrite())
			h.Sleep(time.Second / (all - first))
		}
		sent += len(h.drainArrived())
		may = errorBurst + int((h.Now()-begun)*errorRate/time.Second) + 1
		h.Check(sent <= may, fmt.Sprintf("at most %d error messages in %v", may, h.Now()-begun), "%d", sent)
	}),
}, {
	ID: "dg/error/message-is-no-amplifier", Cite: cite("6", "dg/err/5"),
	Title:   "An error message is at most 30 octets longer than the packet it reports",
	Sends:   "segments with each kind of error, of minimum length",
	Expects: "error messages that are at most 30 octets longer",
	Defects: []string{"ErrorsFlood"}, Run: onHost(func(h *host) {
		for _, wrong := range []iwarp.Segment{
			iwarp.Write(unknownSTag, 0, data(1)),
			iwarp.Send(1, nil).QN(9),
			iwarp.Send(1, nil).DV(2),
			iwarp.Op(iwarp.OpReadRequest),
			iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, iwarp.At(unknownSTag, 0)),
		} {
			p := h.newQP(setup{receives: 1}).peer(0)
			octets := len(iwarp.UD(wrong).Append(nil))
			p.sendSegments(wrong)
			a := p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)))
			p.Check(len(a.Raw) <= octets+maxErrorGrowth, fmt.Sprintf("at most %d octets in response to %d", octets+maxErrorGrowth, octets), "%d", len(a.Raw))
		}
	}),
}, {
	ID: "dg/error/message-is-not-answered", Cite: cite("6", "dg/err/5", "dg/err/6"),
	Title:   "Invalid error messages are not answered with error messages",
	Sends:   "error messages, one without a header, of other versions, with an offset, with octets after, cut short",
	Expects: "no packet",
	Defects: []string{"ErrorsFlood"}, Run: onHost(func(h *host) {
		good := iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(iwarp.Send(1, data(8)))
		for _, s := range []iwarp.Segment{
			good, iwarp.Terminate(iwarp.RDMAPInvalidSTag), good.DV(2), good.RV(2), good.MO(8),
			good.WithPayload(data(8)), iwarp.Op(iwarp.OpTerminate),
		} {
			h.newQP(setup{receives: 1}).peer(0).sendSegments(s)
			h.expectSilence(silencePeriod)
		}
	}),
}, {
	ID: "dg/error/message-changes-no-state", Cite: cite("6", "dg/err/6"),
	Title:   "A received UD error message raises an event, and changes no state",
	Sends:   "error messages about segments of the device, and a Send",
	Expects: "an event for each, the queue pair still works, a receive, and no error completion",
	Defects: []string{"ErrorMessageStops"}, Run: onPeer(func(p *peer) {
		sent := p.expectSent(p.sendWR(9, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
		for range 3 {
			p.sendSegments(iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(*sent.Segment))
			p.expectQPEvent()
			p.ExpectState(p.qp, verbs.QPStateRTS)
		}
		p.expectReceived(1, iwarp.Send(1, data(8)))
		p.expectSent(p.sendWR(10, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
	}),
}, {
	ID: "dg/error/failed-queue-pair-sends-nothing", Cite: cite("6", "dg/err/8"),
	Title:   "A queue pair in the error state receives and sends nothing",
	Sends:   "an invalid segment; then a Send and a Write, and the application posts a Send",
	Expects: "an error message, then nothing: memory unchanged, no packet, the Send flushed",
	Defects: []string{"ErrorQPGoesOn"}, Run: onSetup(setup{receives: 2}, func(p *peer) {
		p.expectErrorFor(unknownKeyWrite())
		p.expectErrorState()
		p.ExpectCompletions(verbs.WCWRFlushErr, 1, 2)
		if n, err := p.qp.PostSend([]verbs.SendWR{p.sendWR(3, 0, 8)}); err == nil && n == 1 {
			p.ExpectCompletion(3, verbs.WCWRFlushErr)
		}
		p.sendSegments(iwarp.Send(1, data(8)), p.writeToTarget(0, data(8)))
		p.expectNothingElse()
		p.ExpectUntouched(p.targetMem)
		p.ExpectUntouched(p.localMem)
	}),
}, {
	ID: "dg/error/failed-queue-pair-flushes-what-waits", Cite: cite("6", "dg/err/8"),
	Title:   "The error state flushes requests that wait in SQD",
	Sends:   "nothing; the application posts two Sends in SQD",
	Expects: "no packet; both flushed when the queue pair enters the error state",
	Defects: []string{"WaitingRequestsLost"}, Run: onSetup(setup{}, func(p *peer) {
		p.beginDrain()
		p.expectDrained()
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8))
		p.expectIdle()
		p.ToState(p.qp, verbs.QPStateErr)
		p.ExpectCompletions(verbs.WCWRFlushErr, 1, 2)
	}),
}}

// expectErrorMessage expects a UD packet with a Terminate that quotes the invalid segment and has
// one of the causes.
func (p *peer) expectErrorMessage(invalid iwarp.Segment, causes ...iwarp.Cause) {
	a := p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)))
	p.Check(slices.ContainsFunc(causes, func(c iwarp.Cause) bool {
		return iwarp.UD(iwarp.Terminate(c).Quoting(invalid)).Matches(a.ReceivedPacket)
	}), fmt.Sprintf("a Terminate for %v about %v", causes, invalid), "%v", a.Packet)
}

var errorRDCases = overRD.Cases([]conformance.Case{{
	ID: "dg/error/of-a-flow-names-the-request", Cite: cite("6", "dg/err/7"),
	Title:   "An RD error message fails the quoted request with its status, and flushes those after it",
	Sends:   "an Ack for the first of four Sends, and an error message about the second",
	Expects: "a success, a failure that is no flush, and two flushes",
	Defects: []string{"ErrorFailsAll"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.acceptFlowOf(p.sendWR(1, 0, 8), p.sendWR(2, 8, 8), p.sendWR(3, 16, 8), p.sendWR(4, 24, 8))
		second := p.expectData(1)
		p.expectDataRange(2, 2)
		p.send(p.ack(1))
		p.ExpectCompletion(1, verbs.WCSuccess)
		p.send(p.nextDataPacket(iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(*second.Segment)).AckNow())
		status := p.expectFailure(2)
		p.Check(status != verbs.WCWRFlushErr, "a status other than a flush", "%v", status)
		p.ExpectCompletions(verbs.WCWRFlushErr, 3, 4)
	}),
}, {
	ID: "dg/error/of-a-flow-names-a-later-request", Cite: cite("6", "dg/err/7"),
	Title:   "An RD error message about a request that is not the oldest fails that request with its status",
	Sends:   "an error message about the third of four Sends, none of which was acknowledged",
	Expects: "no remote error for the first two, one for the third, and a flush of the last",
	Defects: []string{"TermFailsOldest"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.acceptFlowOf(p.sendWR(1, 0, 8), p.sendWR(2, 8, 8), p.sendWR(3, 16, 8), p.sendWR(4, 24, 8))
		p.expectDataRange(1, 1)
		third := p.expectData(2)
		p.expectData(3)
		p.send(p.nextDataPacket(iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(*third.Segment)).AckNow())
		remote := []verbs.WCStatus{verbs.WCRemInvReqErr, verbs.WCRemOpErr}
		for id := uint64(1); id <= 3; id++ {
			wc := p.NextCompletion()
			p.Check(wc.WRID == id, fmt.Sprintf("the completion of request %d", id), "%s", rig.Describe(&wc))
			if id < 3 {
				p.Check(!slices.Contains(remote, wc.Status), "no remote error of a request before the named one", "%s", rig.Describe(&wc))
			} else {
				p.Check(slices.Contains(remote, wc.Status), fmt.Sprintf("%v of the named request", remote), "%s", rig.Describe(&wc))
			}
		}
		p.ExpectCompletion(4, verbs.WCWRFlushErr)
	}),
}, {
	ID: "dg/error/of-a-flow-has-the-reason", Cite: cite("6", "dg/err/7"), Setup: setupNarrowRD,
	Title:   "The status of a request that an error message names follows from the error, and the queue pair stays usable",
	Sends:   "error messages with different causes about a Send, a Write or a read, and about a later segment of a long Send or Write, in flows of several peers",
	Expects: "a remote access error for errors of memory, a remote invalid request or operation error for others; then another flow",
	Defects: []string{"ErrorFailsAll", "TermMatchesFirstSegment"}, Run: onPeer(func(p *peer) {
		const long, segments = 5000, 4 // over a path MTU of 1500
		access, invalid := []verbs.WCStatus{verbs.WCRemAccessErr}, []verbs.WCStatus{verbs.WCRemInvReqErr, verbs.WCRemOpErr}
		for i, t := range []struct {
			op     verbs.WROpcode
			n      int
			cause  iwarp.Cause
			status []verbs.WCStatus
		}{
			{verbs.OpRDMAWrite, 8, iwarp.DDPTaggedInvalidSTag, access},
			{verbs.OpRDMAWrite, 8, iwarp.RDMAPAccess, access},
			{verbs.OpRDMAWrite, 8, iwarp.DDPTaggedBounds, access},
			{verbs.OpRDMAWrite, long, iwarp.DDPTaggedBounds, access},
			{verbs.OpSend, 8, iwarp.DDPUntaggedTooLong, invalid},
			{verbs.OpSend, 8, iwarp.RDMAPUnexpectedOpcode, invalid},
			{verbs.OpSend, 8, iwarp.RDMAPStreamCatastrophic, invalid},
			{verbs.OpSend, long, iwarp.DDPUntaggedTooLong, invalid},
			{verbs.OpRDMARead, 8, iwarp.RDMAPAccess, access},
			{verbs.OpRDMARead, 8, iwarp.RDMAPBounds, access},
		} {
			from := p.peer(i)
			from.openFlow(zeroLengthWrite())
			from.establishDeviceFlow()
			from.PostSend(p.qp, from.wr(1, t.op, 0, t.n))
			a := from.expectData(1)
			if t.n == long {
				from.expectDataRange(2, segments-2)
				a = from.expectData(segments)
			}
			from.send(from.nextDataPacket(iwarp.Terminate(t.cause).About(*a.Segment)).AckNow())
			from.expectAck(2)
			status := from.expectFailure(1)
			p.Check(slices.Contains(t.status, status), fmt.Sprintf("%v for %v", t.status, t.cause), "%v", status)
			p.expectQPEvent()
			p.ExpectState(p.qp, verbs.QPStateRTS)
			from.ackAll()
			from.establishDeviceFlow()
		}
	}),
}, {
	ID: "dg/error/is-the-last-of-its-flow", Cite: cite("6", "dg/err/3", "dg/err/1"),
	Title:   "On RD an error message is the last segment of the flow, and has the DDP header of the invalid segment",
	Sends:   "a Write with an unknown key, in a flow; Acks",
	Expects: "a Terminate on queue 2 in the device's flow that quotes the Write, until it is acknowledged, and nothing more; an event, and the error state",
	Defects: []string{"ErrorWithoutHeader", "ErrorQPTakesNoAcks"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.establishDeviceFlow()
		wrong := unknownKeyWrite()
		p.send(p.nextDataPacket(wrong).AckNow())
		a := p.expectData(1)
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag).Quoting(wrong).QN(2)), a)
		p.expectErrorState()
		again := p.expectData(1) // the error message is retransmitted until it is acknowledged
		p.Check(slices.Equal(again.Segment.Append(nil), a.Segment.Append(nil)), "the error message again", "%v", again.Packet)
		p.ackAll()
		for _, a := range p.drainArrived() {
			p.Check(a.Data == nil || *a.Data.Seq == 1, "nothing after the error message", "%v", a.Packet)
		}
		p.expectSilence(silencePeriod) // the Ack has arrived
	}),
}, {
	ID: "dg/error/of-a-flow-can-be-isolated", Cite: cite("6", "dg/err/2"), Level: conformance.Should,
	Setup:   conformance.Setup{Reliable: true, Isolate: true},
	Title:   "A queue pair can be configured so that an error affects its flow only",
	Sends:   "a Write with an unknown key in one of two flows, then Sends in the other",
	Expects: "an error message; the other flow and the queue pair still work",
	Defects: []string{"IsolationIgnored"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		other := p.peer(1)
		other.openFlowTo(1, iwarp.Send(1, data(8)))
		wrong := unknownKeyWrite()
		p.send(p.nextDataPacket(wrong).AckNow())
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpTerminate)), p.mustNextData("an error message"))
		other.send(other.nextDataPacket(iwarp.Send(2, data(16))))
		p.expectRecv(2, data(16))
		p.ExpectState(p.qp, verbs.QPStateRTS)
		p.PostSend(p.qp, other.sendWR(9, 0, 8))
		other.nextData(p.ResponseTimeout())
	}),
}, {
	ID: "dg/error/failed-queue-pair-refuses", Cite: cite("6", "dg/err/8"),
	Title:   "A queue pair in the error state refuses RD packets as not ready",
	Sends:   "data of an established flow, and the start of another, when the queue pair is in the error state",
	Expects: "a Refusal with reason 3 of each, and memory unchanged",
	Defects: []string{"ErrorQPGoesOn"}, Run: onFlow(setup{receives: 2}, func(p *peer) {
		p.ToState(p.qp, verbs.QPStateErr)
		p.send(p.nextDataPacket(p.writeToTarget(0, data(8))).AckNow())
		p.expectRefusal(iwarp.ReasonNotReady)
		other := p.peer(1)
		other.toDeviceFlow.epoch = p.toDeviceFlow.epoch + 1
		other.send(other.withStart(noProof, other.dataPacket(0, p.writeToTarget(8, data(8)))))
		other.expectRefusal(iwarp.ReasonNotReady)
		p.expectSilence(silencePeriod)
		p.ExpectUntouched(p.targetMem)
	}),
}, {
	ID: "dg/error/refuses-behind-its-own-error", Cite: cite("6", "dg/err/8"),
	Title:   "A queue pair that failed by an error of a flow refuses later packets of the flow",
	Sends:   "a Write with an unknown key, an Ack for the error message, and a Read Request",
	Expects: "an error message, and a Refusal with reason 3 of the Read Request",
	Defects: []string{"ErrorQPGoesOn"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.establishDeviceFlow()
		p.send(p.nextDataPacket(unknownKeyWrite()).AckNow())
		p.expectData(1)
		p.ackAll()
		p.expectErrorState()
		p.drainArrived()
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.targetAddr(0))).AckNow())
		p.expectRefusal(iwarp.ReasonNotReady)
	}),
}, {
	ID: "dg/error/failed-queue-pair-flushes-its-flows", Cite: cite("6", "dg/err/8"),
	Title:   "The error state flushes requests that are under way, and those that wait for the end of a flow",
	Sends:   "nothing that acknowledges a Send of one queue pair; an error message about one of another queue pair, which then posts two more",
	Expects: "no completion before the queue pairs enter the error state, and then flushes",
	Defects: []string{"WaitingRequestsLost", "OutstandingRequestsLost"}, Run: onHost(func(h *host) {
		p := h.newQP(setup{}).peer(0)
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8))
		p.expectData(1)
		p.ToState(p.qp, verbs.QPStateErr)
		p.ExpectCompletions(verbs.WCWRFlushErr, 1)
		p.ackAll()

		p = h.newQP(setup{}).peer(0)
		p.openFlow(zeroLengthWrite())
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8))
		a := p.expectData(1)
		p.send(p.nextDataPacket(iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(*a.Segment)).AckNow())
		p.expectFailure(1)
		p.PostSend(p.qp, p.sendWR(2, 0, 8), p.sendWR(3, 0, 8)) // the Send is not acknowledged
		p.expectNoCompletionYet()
		p.ToState(p.qp, verbs.QPStateErr)
		p.ExpectCompletions(verbs.WCWRFlushErr, 2, 3)
	}),
}})

// makeSegment returns a segment that a peer sends to a queue pair.
type makeSegment = func(*deviceQP) iwarp.Segment

// peerError is an invalid segment with its valid causes, of which DDP and RDMAP have several.
type peerError struct {
	name    string
	causes  []iwarp.Cause
	segment makeSegment
	// consumesReceive tells that the error is detected only with a posted receive.
	consumesReceive bool
}

// newPeerError returns a peerError that needs no posted receive.
func newPeerError(name string, segment makeSegment, causes ...iwarp.Cause) peerError {
	return peerError{name: name, segment: segment, causes: causes}
}

// immediateCauses are for Immediate Data of another length than 8, for which RDMAP has no code.
var immediateCauses = []iwarp.Cause{iwarp.RDMAPRemoteUnspecified, iwarp.DDPUntaggedTooLong, iwarp.RDMAPStreamCatastrophic}

// peerErrors are at most errorBurst, so that each gets an error message.
var peerErrors = []peerError{
	newPeerError("an unknown key", func(*deviceQP) iwarp.Segment { return unknownKeyWrite() },
		iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag),
	newPeerError("memory out of bounds", func(q *deviceQP) iwarp.Segment { return q.writeToTarget(len(q.targetMem.Buf)-4, data(8)) },
		iwarp.DDPTaggedBounds, iwarp.RDMAPBounds),
	newPeerError("the end of the offset space", func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(8)).TO(1<<64 - 8) },
		iwarp.DDPTaggedBounds, iwarp.RDMAPBounds), // 2^64 is not exceeded
	newPeerError("memory without remote write access", func(q *deviceQP) iwarp.Segment {
		return writeTo(addrOf(q.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead), 0), data(8))
	},
		iwarp.RDMAPAccess, iwarp.DDPTaggedInvalidSTag),
	newPeerError("an unassigned opcode", func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).Opcode(12) },
		iwarp.RDMAPUnexpectedOpcode),
	newPeerError("an unsolicited Read Response", func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(8)).Opcode(iwarp.OpReadResponse) },
		iwarp.RDMAPUnexpectedOpcode, iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPAccess),
	newPeerError("an unknown queue", func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).QN(9) },
		iwarp.DDPUntaggedInvalidQN),
	newPeerError("the queue of Read Requests", func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).QN(1) },
		iwarp.DDPUntaggedInvalidQN, iwarp.RDMAPUnexpectedOpcode),
	newPeerError("an MO beyond the maximum message", func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).MO(maxSend) },
		iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong),
	newPeerError("another version of DDP", func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).DV(2) },
		iwarp.DDPUntaggedInvalidVersion),
	newPeerError("another version of DDP in a Write", func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(8)).DV(2) },
		iwarp.DDPTaggedInvalidVersion),
	newPeerError("another version of RDMAP", func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).RV(2) },
		iwarp.RDMAPInvalidVersion),
	newPeerError("another version of RDMAP in a Write", func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(8)).RV(2) },
		iwarp.RDMAPInvalidVersion),
	newPeerError("Immediate Data of four octets", func(*deviceQP) iwarp.Segment { return iwarp.Op(iwarp.OpImmediate).MSN(1).WithPayload(data(4)) },
		immediateCauses...),
	newPeerError("Immediate Data of twelve octets", func(*deviceQP) iwarp.Segment { return iwarp.Op(iwarp.OpImmediateSE).MSN(1).WithPayload(data(12)) },
		immediateCauses...),
	{
		name: "a message longer than the receive", causes: []iwarp.Cause{iwarp.DDPUntaggedTooLong}, consumesReceive: true,
		segment: func(q *deviceQP) iwarp.Segment { return iwarp.Send(1, data(q.recvLen-grhAreaLen+1)) },
	},
}
