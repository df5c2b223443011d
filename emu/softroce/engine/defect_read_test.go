package engine

import (
	"bytes"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// readDefects are about READs and atomics that a NIC answers, and answers again.
var readDefects = map[string]defectCase{
	"DupReadResetsMessage": {
		talk: func(c *talk) {
			c.send(wire.OpReadRequest, 0, c.at(0, 2500))
			c.send(wire.OpWriteFirst, 3, c.at(0, 2500), data(1024))
			c.send(wire.OpReadRequest, 0, c.at(0, 2500))
			c.skip()
			c.send(wire.OpWriteFirst, 3, c.at(0, 2500), data(1024))
			c.hear()
			c.send(wire.OpWriteMiddle, 4, data(1024))
			c.send(wire.OpWriteLast, 5, data(452), ackReq)
			c.hear()
		},
		sound:     "ACK 3 msn 1; ACK 5 msn 2",
		defective: "ACK 3 msn 1; NAK 4 invalid msn 1",
	},
	"NoRdAtomicLimit": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 1 }},
		talk: func(c *talk) {
			clear(c.target(0, 8))
			c.send(wire.OpFetchAdd, 0, c.word(0, 5, 0))
			c.send(wire.OpFetchAdd, 1, c.word(0, 7, 0))
			c.hear()
			c.note("word is %d", c.wordValue(c.target(0, 8)))
			c.send(wire.OpFetchAdd, 0, c.word(0, 5, 0))
			c.hear()
			// To who has no resources at all, none are added.
			c.q = c.h.qp(verbs.QPTypeRC, nil)
			c.h.ready(c.q, c.addr, peerQPN, func(a *verbs.QPAttr) { *a, a.MaxDestRdAtomic = c.attr(), 0 })
			c.readFrom(c.h.mr.Key, 0, 8)
		},
		sound:     "ATOMIC_ACKNOWLEDGE 0 was 0 msn 1; NAK 1 invalid msn 1; word is 5; silence; NAK 0 invalid msn 0",
		defective: "ATOMIC_ACKNOWLEDGE 1 was 5 msn 2; word is 12; silence; NAK 0 invalid msn 0",
	},
	"SubReadContinues": {
		talk: func(c *talk) {
			c.send(wire.OpReadRequest, 0, c.at(0, 2500))
			c.skip()
			c.send(wire.OpReadRequest, 1, c.at(1024, 1476))
			c.hear()
			c.send(wire.OpReadRequest, 0, c.at(0, 2500))
			c.hear()
		},
		sound:     "RR_FIRST 1 1024B msn 1; RR_LAST 2 452B msn 1; RR_FIRST 0 1024B msn 1; RR_MIDDLE 1 1024B; RR_LAST 2 452B msn 1",
		defective: "RR_MIDDLE 1 1024B; RR_LAST 2 452B msn 1; silence",
	},
	"DupReadWaits": {
		talk: func(c *talk) {
			c.send(wire.OpReadRequest, 0, c.at(0, 8))
			c.skip()
			c.send(wire.OpReadRequest, 1, c.at(0, 2500))
			c.send(wire.OpReadRequest, 0, c.at(0, 8))
			c.hear()
		},
		sound:     "RR_ONLY 0 8B msn 1; RR_FIRST 1 1024B msn 2; RR_MIDDLE 2 1024B; RR_LAST 3 452B msn 2",
		defective: "RR_FIRST 1 1024B msn 2; RR_MIDDLE 2 1024B; RR_LAST 3 452B msn 2; RR_ONLY 0 8B msn 1",
	},
	"ShortAtomicWrite": {
		talk: func(c *talk) {
			c.send(wire.OpAtomicWrite, 0, c.at(0, 8), data(4), ackReq)
			c.hear()
			c.note("memory kept: %v", bytes.Equal(c.target(0, 8), targetData[:8]))
		},
		sound:     "NAK 0 invalid msn 0; memory kept: true",
		defective: "RR_ONLY 0 msn 1; memory kept: false",
	},
	"ModifyForgetsReplay": {
		talk: func(c *talk) {
			clear(c.target(0, 8))
			c.send(wire.OpFetchAdd, 0, c.word(0, 5, 0))
			c.skip()
			c.must(c.move(verbs.QPStateSQD, 0))
			c.must(c.move(verbs.QPStateSQD, verbs.QPAttrMaxDestRdAtomic))
			c.send(wire.OpFetchAdd, 0, c.word(0, 5, 0))
			c.hear()
		},
		sound:     "ATOMIC_ACKNOWLEDGE 0 was 0 msn 1",
		defective: "silence",
	},
}
