package dgiwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

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
	ID: "dg/error/is-the-last-of-its-flow", Cite: cite("6", "dg/err/3", "dg/err/1"),
	Title:   "On RD an error message is the last segment of the flow, and has the DDP header of the invalid segment",
	Sends:   "a Write with an unknown key, in a flow; Acks",
	Expects: "a Terminate on queue 2 in the device's flow that quotes the Write, and nothing more; an event, and the error state",
	Defects: []string{"ErrorWithoutHeader"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.establishDeviceFlow()
		wrong := unknownKeyWrite()
		p.send(p.nextDataPacket(wrong).AckNow())
		a := p.expectData(1)
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag).Quoting(wrong).QN(2)), a)
		p.ackAll()
		p.expectErrorState()
		for _, a := range p.drain(silencePeriod) {
			p.Check(a.Data == nil || *a.Data.Seq == 1, "nothing after the error message", "%v", a.Packet)
		}
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
		a, ok := p.nextData(p.ResponseTimeout())
		p.Check(ok, "an error message", "nothing in %v", p.ResponseTimeout())
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpTerminate)), a)
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
		other.toDevice.epoch = p.toDevice.epoch + 1
		other.send(other.withStart(0, other.dataPacket(0, p.writeToTarget(8, data(8)))))
		other.expectRefusal(iwarp.ReasonNotReady)
		p.expectSilence(silencePeriod)
		p.ExpectUnchanged(p.targetMem, 0, 0)
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
		p.drain(0)
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.targetAddr(0))).AckNow())
		p.expectRefusal(iwarp.ReasonNotReady)
	}),
}})

// makeSegment returns a segment that a peer sends to a queue pair.
type makeSegment = func(*deviceQP) iwarp.Segment

// peerError is an invalid segment with its valid causes: DDP and RDMAP have several for some
// errors.
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

// peerErrors are at most errorBurst, so that each gets an error message.
var peerErrors = []peerError{
	newPeerError("an unknown key", func(*deviceQP) iwarp.Segment { return unknownKeyWrite() },
		iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag),
	newPeerError("memory out of bounds", func(q *deviceQP) iwarp.Segment { return q.writeToTarget(len(q.targetMem.Buf)-4, data(8)) },
		iwarp.DDPTaggedBounds, iwarp.RDMAPBounds),
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
	{
		name: "a message longer than the receive", causes: []iwarp.Cause{iwarp.DDPUntaggedTooLong}, consumesReceive: true,
		segment: func(q *deviceQP) iwarp.Segment { return iwarp.Send(1, data(q.recvLen-areaLen+1)) },
	},
}
