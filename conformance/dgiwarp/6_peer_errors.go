package dgiwarp

import (
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// peerError is an invalid segment with its valid causes: DDP and RDMAP have several for some
// errors.
type peerError struct {
	name    string
	segment func(*deviceQP) iwarp.Segment
	causes  []iwarp.Cause
	// consumesReceive tells that the error is detected only with a posted receive.
	consumesReceive bool
}

// peerErrors are at most errorBurst, so that each gets an error message.
var peerErrors = []peerError{
	{
		name: "an unknown key", segment: func(*deviceQP) iwarp.Segment { return unknownKeyWrite() },
		causes: []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag},
	},
	{
		name: "memory out of bounds", segment: func(q *deviceQP) iwarp.Segment { return q.writeToTarget(len(q.targetMem.Buf)-4, data(8)) },
		causes: []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.RDMAPBounds},
	},
	{
		name: "memory without remote write access", segment: func(q *deviceQP) iwarp.Segment {
			return writeTo(addrOf(q.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead), 0), data(8))
		},
		causes: []iwarp.Cause{iwarp.RDMAPAccess, iwarp.DDPTaggedInvalidSTag},
	},
	{
		name: "an unassigned opcode", segment: func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).Opcode(12) },
		causes: []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode},
	},
	{
		name: "an unsolicited Read Response", segment: func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(8)).Opcode(iwarp.OpReadResponse) },
		causes: []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode, iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPAccess},
	},
	{
		name: "an unknown queue", segment: func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).QN(9) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidQN},
	},
	{
		name: "the queue of Read Requests", segment: func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).QN(1) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidQN, iwarp.RDMAPUnexpectedOpcode},
	},
	{
		name: "an MO beyond the maximum message", segment: func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).MO(maxSend) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong},
	},
	{
		name: "another version of DDP", segment: func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).DV(2) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidVersion},
	},
	{
		name: "another version of DDP in a Write", segment: func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(8)).DV(2) },
		causes: []iwarp.Cause{iwarp.DDPTaggedInvalidVersion},
	},
	{
		name: "another version of RDMAP", segment: func(*deviceQP) iwarp.Segment { return iwarp.Send(1, data(8)).RV(2) },
		causes: []iwarp.Cause{iwarp.RDMAPInvalidVersion},
	},
	{
		name: "another version of RDMAP in a Write", segment: func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(8)).RV(2) },
		causes: []iwarp.Cause{iwarp.RDMAPInvalidVersion},
	},
	{
		name: "a message longer than the receive", segment: func(q *deviceQP) iwarp.Segment { return iwarp.Send(1, data(q.recvLen-areaLen+1)) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedTooLong}, consumesReceive: true,
	},
}
