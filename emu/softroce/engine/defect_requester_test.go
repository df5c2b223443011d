package engine

import (
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// requesterDefects are about the requests that a NIC sends.
var requesterDefects = map[string]defectCase{
	"ReadRetryFromStart": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 2500)
			c.skip()
			c.send(wire.OpReadResponseFirst, 0, data(1024))
			c.listen(wire.AckTimeout(14))
		},
		sound:     "after 67.108864ms: READ_REQUEST 1 va+1024 len 1476 ackreq",
		defective: "after 67.108864ms: READ_REQUEST 1 va+0 len 2500 ackreq",
	},
	"MigReqZero": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.note("MigReq %v", c.got[0].BTH.MigReq)
		},
		sound:     "MigReq true",
		defective: "MigReq false",
	},
	"DropMigReqZero": {
		talk: func(c *talk) {
			migReq := func(k *wire.Packet) { k.BTH.MigReq = true }
			c.send(wire.OpWriteOnly, 0, c.at(0, 4), data(4), ackReq, migReq)
			c.hear()
			c.send(wire.OpWriteOnly, 1, c.at(0, 4), data(4), ackReq)
			c.hear()
		},
		sound:     "ACK 0 msn 1; ACK 1 msn 2",
		defective: "ACK 0 msn 1; silence",
	},
	"LocalErrFlushesAll": {
		talk: func(c *talk) {
			badBehindGood(c)
			c.q = c.another(nil)
			c.post(4, verbs.OpRDMARead, 8, badKey) // which nobody notices before there is an answer
			c.skip()
			c.done()
		},
		sound:     "SEND_ONLY 0 8B ackreq; 1 SUCCESS SEND; 2 LOC_PROT_ERR; 3 WR_FLUSH_ERR; 4 LOC_PROT_ERR",
		defective: "SEND_ONLY 0 8B ackreq; 1 WR_FLUSH_ERR; 2 WR_FLUSH_ERR; 3 WR_FLUSH_ERR; 4 LOC_PROT_ERR",
	},
	"LocalErrIsQPOp": {
		talk: func(c *talk) {
			badBehindGood(c)
			c.standing()
			c.q = c.another(nil)
			c.post(4, verbs.OpSend, 8, badKey)
			c.post(5, verbs.OpSend, 8)
			c.skip()
			c.done()
			c.standing()
		},
		sound:     "SEND_ONLY 0 8B ackreq; 1 SUCCESS SEND; 2 LOC_PROT_ERR; 3 WR_FLUSH_ERR; ERR; 4 LOC_PROT_ERR; 5 WR_FLUSH_ERR; ERR",
		defective: "SEND_ONLY 0 8B ackreq; no completion; RTS; 4 LOC_QP_OP_ERR; 5 WR_FLUSH_ERR; ERR",
	},
	"RdAtomicRoundsUp": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.MaxRdAtomic = 3 }},
		talk: func(c *talk) {
			for id := range uint64(6) {
				c.post(id, verbs.OpRDMARead, 8)
			}
			c.skip()
			c.note("%d READs at a time", len(c.heard))
		},
		sound:     "3 READs at a time",
		defective: "4 READs at a time",
	},
	"FetchAddLeaks": {
		talk: func(c *talk) {
			c.post(1, verbs.OpAtomicFetchAdd, 8, func(wr *verbs.SendWR) { wr.Atomic.CompareAdd = 5 })
			c.hear()
		},
		sound:     "FETCH_ADD 0 va+0 5 0 ackreq",
		defective: "FETCH_ADD 0 va+0 5 24569710583 ackreq",
	},
	"ZeroReadFails": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 0)
			c.hear()
			c.done()
		},
		sound:     "READ_REQUEST 0 va+0 len 0 ackreq; no completion",
		defective: "silence; 1 LOC_QP_OP_ERR",
	},
	"AtomicSinkUnchecked": {
		talk: func(c *talk) {
			c.post(1, verbs.OpAtomicFetchAdd, 8, func(wr *verbs.SendWR) { wr.SGL[0].LKey = bogusKey })
			c.hear()
			c.send(wire.OpAtomicAcknowledge, 0)
			c.done()
		},
		sound:     "silence; 1 LOC_PROT_ERR",
		defective: "FETCH_ADD 0 va+0 0 0 ackreq; 1 LOC_PROT_ERR",
	},
	"NoCreditHeeding": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.send(wire.OpAcknowledge, 0, func(k *wire.Packet) {
				k.AETH = wire.AETH{Syndrome: wire.Ack(wire.CreditCode(0)), MSN: 1}
			})
			c.post(2, verbs.OpSend, 8)
			c.post(3, verbs.OpSend, 8)
			c.hear()
		},
		sound:     "SEND_ONLY 1 8B ackreq",
		defective: "SEND_ONLY 1 8B ackreq; SEND_ONLY 2 8B ackreq",
	},
}

// badBehindGood posts three SENDs, the second of which cannot be sent, and answers the
// first.
func badBehindGood(c *talk) {
	c.post(1, verbs.OpSend, 8)
	c.post(2, verbs.OpSend, 8, badKey)
	c.post(3, verbs.OpSend, 8)
	c.hear()
	c.ack(0)
	c.done()
}
