package dgiwarp

import (
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// mistake is a segment that is wrong, and what may be said of it: DDP and RDMAP have
// several names for some errors.
type mistake struct {
	name   string
	make   func(*queue) iwarp.Segment
	causes []iwarp.Cause
	// takesReceive is of a mistake that only a receive brings to light.
	takesReceive bool
}

// mistakes are no more than error messages that may leave at once, so that each has one.
var mistakes = []mistake{
	{
		name: "a key that opens nothing", make: func(*queue) iwarp.Segment { return badWrite() },
		causes: []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag},
	},
	{
		name: "memory out of bounds", make: func(q *queue) iwarp.Segment { return q.writes(len(q.mem.Buf)-4, data(8)) },
		causes: []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.RDMAPBounds},
	},
	{
		name: "memory without the right", make: func(q *queue) iwarp.Segment {
			return writeTo(place(q.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead), 0), data(8))
		},
		causes: []iwarp.Cause{iwarp.RDMAPAccess, iwarp.DDPTaggedInvalidSTag},
	},
	{
		name: "an opcode that is not assigned", make: func(*queue) iwarp.Segment { return iwarp.Send(1, data(8)).Opcode(12) },
		causes: []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode},
	},
	{
		name: "a Read Response to nothing", make: func(q *queue) iwarp.Segment { return q.writes(0, data(8)).Opcode(iwarp.OpReadResponse) },
		causes: []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode, iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPAccess},
	},
	{
		name: "a queue that there is not", make: func(*queue) iwarp.Segment { return iwarp.Send(1, data(8)).QN(9) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidQN},
	},
	{
		name: "the queue of something else", make: func(*queue) iwarp.Segment { return iwarp.Send(1, data(8)).QN(1) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidQN, iwarp.RDMAPUnexpectedOpcode},
	},
	{
		name: "an offset beyond any message", make: func(*queue) iwarp.Segment { return iwarp.Send(1, data(8)).MO(maxSend) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong},
	},
	{
		name: "another version of DDP", make: func(*queue) iwarp.Segment { return iwarp.Send(1, data(8)).DV(2) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedInvalidVersion},
	},
	{
		name: "another version of DDP in a Write", make: func(q *queue) iwarp.Segment { return q.writes(0, data(8)).DV(2) },
		causes: []iwarp.Cause{iwarp.DDPTaggedInvalidVersion},
	},
	{
		name: "another version of RDMAP", make: func(*queue) iwarp.Segment { return iwarp.Send(1, data(8)).RV(2) },
		causes: []iwarp.Cause{iwarp.RDMAPInvalidVersion},
	},
	{
		name: "another version of RDMAP in a Write", make: func(q *queue) iwarp.Segment { return q.writes(0, data(8)).RV(2) },
		causes: []iwarp.Cause{iwarp.RDMAPInvalidVersion},
	},
	{
		name: "a message longer than the receive", make: func(q *queue) iwarp.Segment { return iwarp.Send(1, data(q.recvLen-areaLen+1)) },
		causes: []iwarp.Cause{iwarp.DDPUntaggedTooLong}, takesReceive: true,
	},
}
