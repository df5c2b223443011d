package engine

import (
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// ackDefects are about what a requester takes an ACK or a NAK for.
var ackDefects = map[string]defectCase{
	"OldAnswerCompletes": {
		talk: func(c *talk) {
			c.post(1, verbs.OpAtomicFetchAdd, 8)
			c.post(2, verbs.OpSend, 8)
			c.skip()
			c.send(wire.OpAtomicAcknowledge, -3)
			c.ack(-2)
			c.done()
		},
		sound:     "no completion",
		defective: "1 SUCCESS FETCH_ADD 8B; 2 SUCCESS SEND",
	},
	"OldNAKFatal": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.nak(-2, wire.NakInvalidRequest)
			c.done()
		},
		sound:     "no completion",
		defective: "1 REM_INV_REQ_ERR",
	},
	"StaleNAKRepeats": {
		talk: func(c *talk) {
			firstAcknowledged(c)
			c.nak(0, wire.NakPSNSequence)
			c.hear()
		},
		sound:     "silence",
		defective: "SEND_ONLY 1 8B ackreq; SEND_ONLY 2 8B ackreq",
	},
	"StaleRNRWaits": {
		talk: func(c *talk) {
			firstAcknowledged(c)
			c.ack(2)
			c.rnr(0, 1)
			c.post(3, verbs.OpSend, 8)
			c.hear()
			c.listen(10 * time.Microsecond)
		},
		sound:     "SEND_ONLY 3 8B ackreq; silence",
		defective: "silence; after 10µs: SEND_ONLY 3 8B ackreq",
	},
	"RNRInsideRestarts": {
		talk: func(c *talk) {
			c.post(0, verbs.OpSend, 8)
			c.post(1, verbs.OpSend, 2048+8)
			c.skip()
			c.ack(1) // the first packet of the second message
			c.rnr(2, 1)
			c.listen(10 * time.Microsecond)
			c.ack(3)
			c.done()
		},
		sound: "after 10µs: SEND_MIDDLE 2 1024B; after 10µs: SEND_LAST 3 8B ackreq; 0 SUCCESS SEND; 1 SUCCESS SEND",
		defective: "after 10µs: SEND_FIRST 1 1024B; after 10µs: SEND_MIDDLE 2 1024B; after 10µs: SEND_LAST 3 8B ackreq; " +
			"0 SUCCESS SEND; 1 SUCCESS SEND",
	},
	"PSNWindowUnlimited": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }},
		talk: func(c *talk) {
			mr, err := c.h.nic.RegMR(c.h.pd, endless(maxMessage), 0, allAccess)
			c.must(err)
			for id := range uint64(2) {
				c.post(id, verbs.OpRDMARead, 0, func(wr *verbs.SendWR) {
					wr.SGL[0] = verbs.SGE{Addr: mr.Addr, Length: maxMessage, LKey: verbs.LKey(mr.Key)}
				})
			}
			c.skip()
			c.note("%d READs", len(c.got))
		},
		sound:     "1 READs",
		defective: "2 READs",
	},
	"AckCoversOne": {
		talk: func(c *talk) {
			for id := range uint64(3) {
				c.post(id, verbs.OpSend, 8)
			}
			c.skip()
			c.ack(1)
			c.done()
			c.ack(0)
			c.done()
		},
		sound:     "0 SUCCESS SEND; 1 SUCCESS SEND; no completion",
		defective: "no completion; 0 SUCCESS SEND; 1 SUCCESS SEND",
	},
	"AckInsideCompletes": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 2048+8)
			c.skip()
			c.ack(1)
			c.done()
		},
		sound:     "no completion",
		defective: "1 SUCCESS SEND",
	},
	"NAKFlushesAll": {
		talk:      refusedSecond,
		sound:     "0 SUCCESS SEND; 1 REM_INV_REQ_ERR; 2 WR_FLUSH_ERR; ERR",
		defective: "0 WR_FLUSH_ERR; 1 WR_FLUSH_ERR; 2 WR_FLUSH_ERR; ERR",
	},
	"NAKKeepsRTS": {
		talk: func(c *talk) {
			refusedSecond(c)
			c.ack(2)
			c.done()
		},
		sound:     "0 SUCCESS SEND; 1 REM_INV_REQ_ERR; 2 WR_FLUSH_ERR; ERR; no completion",
		defective: "0 SUCCESS SEND; 1 REM_INV_REQ_ERR; RTS; 2 SUCCESS SEND",
	},
	"NAKAcksNothing": {
		talk: func(c *talk) {
			for id := range uint64(2) {
				c.post(id, verbs.OpSend, 8)
			}
			c.skip()
			c.nak(1, wire.NakPSNSequence)
			c.hear()
			c.done()
			c.rnr(1, 1)
			c.listen(time.Millisecond)
			c.done()
		},
		sound: "SEND_ONLY 1 8B ackreq; 0 SUCCESS SEND; after 10µs: SEND_ONLY 1 8B ackreq; no completion",
		defective: "SEND_ONLY 0 8B ackreq; SEND_ONLY 1 8B ackreq; no completion; " +
			"after 10µs: SEND_ONLY 0 8B ackreq; after 10µs: SEND_ONLY 1 8B ackreq; no completion",
	},
	"CreditsBlockAll": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			credits := func(n uint32) edit {
				return func(k *wire.Packet) { k.AETH = wire.AETH{Syndrome: wire.Ack(wire.CreditCode(n)), MSN: 1} }
			}
			c.send(wire.OpAcknowledge, 0, credits(0))
			c.post(2, verbs.OpRDMAWrite, 8)
			c.post(3, verbs.OpSend, 8)
			c.hear()
			c.send(wire.OpAcknowledge, 0, credits(2))
			c.hear()
		},
		sound:     "WRITE_ONLY 1 8B va+0 len 8 ackreq; SEND_ONLY 2 8B ackreq",
		defective: "silence; WRITE_ONLY 1 8B va+0 len 8 ackreq; SEND_ONLY 2 8B ackreq",
	},
	"CompletionsOvertake": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 8)
			c.post(2, verbs.OpRDMAWrite, 8)
			c.skip()
			c.ack(1)
			c.done()
			c.send(wire.OpReadResponseOnly, 0, data(8))
			c.ack(1)
			c.done()
		},
		sound:     "no completion; 1 SUCCESS RDMA_READ 8B; 2 SUCCESS RDMA_WRITE",
		defective: "2 SUCCESS RDMA_WRITE; 1 SUCCESS RDMA_READ 8B",
	},
}

// refusedSecond has the second of three SENDs refused.
func refusedSecond(c *talk) {
	for id := range uint64(3) {
		c.post(id, verbs.OpSend, 8)
	}
	c.skip()
	c.nak(1, wire.NakInvalidRequest)
	c.done()
	c.standing()
}

// sinkDefects are about the answers to READs, and what is posted.
var sinkDefects = map[string]defectCase{
	"LastCompletesRead": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 2500)
			c.skip()
			c.send(wire.OpReadResponseFirst, 0, data(1024))
			c.send(wire.OpReadResponseLast, 2, data(2500-2048))
			c.done()
		},
		sound:     "no completion",
		defective: "1 SUCCESS RDMA_READ 2500B",
	},
	"LongReadOverflows": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 8)
			c.skip()
			c.send(wire.OpReadResponseOnly, 0, payload([]byte("as asked and more")))
			c.done()
			c.note("%q", strings.TrimRight(string(c.h.mem[sinkAt:][:32]), "\x00"))
		},
		sound:     `1 BAD_RESP_ERR; ""`,
		defective: `1 SUCCESS RDMA_READ 8B; "as asked and more"`,
	},
	"SinkUnchecked": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 8, func(wr *verbs.SendWR) { wr.SGL[0].LKey = verbs.LKey(c.region(verbs.AccessRemoteRead)) })
			c.hear()
			c.send(wire.OpReadResponseOnly, 0, payload([]byte("unwanted")))
			c.done()
			c.note("written: %v", string(c.h.mem[sinkAt:][:8]) == "unwanted")
		},
		sound:     "silence; 1 LOC_PROT_ERR; written: false",
		defective: "READ_REQUEST 0 va+0 len 8 ackreq; 1 SUCCESS RDMA_READ 8B; written: true",
	},
	"NAKInReadSucceeds": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 2500)
			c.skip()
			c.send(wire.OpReadResponseFirst, 0, data(1024))
			c.nak(1, wire.NakRemoteAccess)
			c.done()
			c.standing()
		},
		sound:     "1 REM_ACCESS_ERR; ERR",
		defective: "1 SUCCESS RDMA_READ 2500B; ERR",
	},
	"LongMessagesTaken": {
		talk: func(c *talk) {
			c.try(1, verbs.OpSend, c.h.sge(0, 8))
			c.try(2, verbs.OpRDMAWrite, verbs.SGE{Addr: c.h.mr.Addr, Length: maxMessage + 1, LKey: verbs.LKey(c.h.mr.Key)})
			c.try(3, verbs.OpSend, c.h.sge(0, 8))
			c.hear()
			c.ack(1)
			c.done()
		},
		sound:     "taken; refused; taken; SEND_ONLY 0 8B ackreq; SEND_ONLY 1 8B ackreq; 1 SUCCESS SEND; 3 SUCCESS SEND",
		defective: "taken; taken; taken; SEND_ONLY 0 8B ackreq; SEND_ONLY 1 8B ackreq; 1 SUCCESS SEND; 2 SUCCESS RDMA_WRITE; 3 SUCCESS SEND",
	},
	"LocalInvEarly": {
		talk: func(c *talk) {
			key := c.bindWindow(256)
			c.post(1, verbs.OpSend, 8)
			c.post(2, verbs.OpLocalInv, 0, func(wr *verbs.SendWR) { wr.SGL, wr.InvalidateRKey = nil, verbs.RKey(key) })
			c.skip()
			c.note("bound: %v", !c.h.nic.Mem.Unbound(key))
			c.ack(0)
			c.skip()
			c.done()
			c.note("bound: %v", !c.h.nic.Mem.Unbound(key))
		},
		sound:     "bound: true; 1 SUCCESS SEND; 2 SUCCESS LOCAL_INV; bound: false",
		defective: "bound: false; 1 SUCCESS SEND; 2 SUCCESS LOCAL_INV; bound: false",
	},
	"UnsignaledErrorSilent": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8, func(wr *verbs.SendWR) { wr.Flags, wr.SGL[0].LKey = 0, bogusKey })
			c.post(2, verbs.OpSend, 8)
			c.skip()
			c.done()
			c.standing()
		},
		sound:     "1 LOC_PROT_ERR; 2 WR_FLUSH_ERR; ERR",
		defective: "2 WR_FLUSH_ERR; ERR",
	},
}

// firstAcknowledged posts three SENDs and acknowledges one.
func firstAcknowledged(c *talk) {
	for id := range uint64(3) {
		c.post(id, verbs.OpSend, 8)
	}
	c.skip()
	c.ack(0)
}
