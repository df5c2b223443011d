package engine

import (
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// stateDefects are about what a QP does between its states, and beyond its end.
var stateDefects = map[string]defectCase{
	"SendAfterDestroy": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.must(c.h.nic.DestroyQP(c.q))
			c.listen(1e10)
			c.done()
		},
		sound:     "silence; no completion",
		defective: "after 67.108864ms: SEND_ONLY 0 8B ackreq; no completion",
	},
	"AnswerAfterReset": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.must(c.move(verbs.QPStateReset, 0))
			c.hear()
		},
		sound:     "silence",
		defective: "ACK 0 msn 0",
	},
	"RefusedWRStays": {
		talk:      earlySend,
		sound:     "refused; silence",
		defective: "refused; SEND_ONLY 0 8B ackreq",
	},
	"EarlySendSwallowed": {
		talk:      earlySend,
		sound:     "refused; silence",
		defective: "taken; silence",
	},
	"WrongOpKillsQP": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			ah := c.handle(c.h.pd)
			for id, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend} {
				wr := verbs.SendWR{WRID: uint64(id), Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{c.h.sge(0, 8)}}
				c.tried(c.q.PostSend(c.now, &wr, Refs{AH: ah}))
			}
			c.skip()
			c.note("%d sent", len(c.heard))
			c.done()
			c.standing()
		},
		sound:     "taken; refused; taken; 2 sent; 0 SUCCESS SEND; 2 SUCCESS SEND; RTS",
		defective: "taken; taken; taken; 1 sent; 0 SUCCESS SEND; 1 LOC_QP_OP_ERR; 2 WR_FLUSH_ERR; ERR",
	},
	"SQDNoResume": {
		talk: func(c *talk) {
			c.must(c.move(verbs.QPStateSQD, 0))
			c.post(1, verbs.OpSend, 8)
			c.hear()
			c.must(c.move(verbs.QPStateRTS, 0))
			c.hear()
			c.post(2, verbs.OpSend, 8)
			c.hear()
		},
		sound:     "silence; SEND_ONLY 0 8B ackreq; SEND_ONLY 1 8B ackreq",
		defective: "silence; silence; SEND_ONLY 0 8B ackreq; SEND_ONLY 1 8B ackreq",
	},
	"SQNeverDrains": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			a := verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: true}
			c.must(c.q.Modify(c.now, a, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
			c.happened()
			c.ack(0)
			c.happened()
			c.note("draining: %v", c.q.Query().SQDraining)
		},
		sound:     "no event; SQ_DRAINED; draining: false",
		defective: "no event; no event; draining: true",
	},
	"NoQPEvents": {
		talk: func(c *talk) {
			c.sharing(1)
			c.back()
			c.must(c.move(verbs.QPStateRTR, rcRTR))
			c.send(wire.OpWriteOnly, 0, c.at(0, 8), rkey(bogusKey), data(8))
			c.happened()
		},
		sound:     "COMM_EST; QP_ACCESS_ERR; QP_LAST_WQE_REACHED",
		defective: "QP_LAST_WQE_REACHED",
	},
	"ModifyHalfway": {
		talk: func(c *talk) {
			c.back()
			a := c.attr()
			a.State, a.AH.GRH.SGIDIndex = verbs.QPStateRTR, 9
			c.tried(c.q.Modify(c.now, a, rcRTR))
			c.standing()
		},
		sound:     "refused; INIT",
		defective: "refused; RTR",
	},
	"NoFlushInError": {
		talk: func(c *talk) {
			c.must(c.move(verbs.QPStateErr, 0))
			c.try(1, verbs.OpSend, c.h.sge(0, 8))
			c.done()
		},
		sound:     "taken; 1 WR_FLUSH_ERR",
		defective: "taken; no completion",
	},
	"UnsignaledBindSilent": {
		talk: func(c *talk) {
			c.bind(c.window(verbs.MWType2), 0, memSize+1, 0)
			c.done()
			c.standing()
		},
		sound:     "1 MW_BIND_ERR; ERR",
		defective: "no completion; ERR",
	},
}

// earlySend posts a request in INIT, then takes the QP to RTS.
func earlySend(c *talk) {
	c.back()
	c.try(1, verbs.OpSend, c.h.sge(0, 8))
	c.must(c.move(verbs.QPStateRTR, rcRTR))
	c.must(c.move(verbs.QPStateRTS, rcRTS))
	c.hear()
}
