package engine

import (
	"bytes"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// completerDefects are about the answers that a NIC gets to its requests.
var completerDefects = map[string]defectCase{
	"AckSkipsRead": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMAWrite, 8)
			c.post(2, verbs.OpRDMARead, 8)
			c.post(3, verbs.OpRDMAWrite, 8)
			c.post(4, verbs.OpSend, 8)
			c.skip()
			c.ack(3)
			c.hear()
			c.done()
		},
		sound: "READ_REQUEST 1 va+0 len 8 ackreq; WRITE_ONLY 2 8B va+0 len 8 ackreq; SEND_ONLY 3 8B ackreq; " +
			"1 SUCCESS RDMA_WRITE",
		defective: "silence; 1 SUCCESS RDMA_WRITE; 2 SUCCESS RDMA_READ 8B; 3 SUCCESS RDMA_WRITE; 4 SUCCESS SEND",
	},
	"PSNUnsigned": {
		wraps: true,
		talk: func(c *talk) {
			for k := range 3 {
				c.send(wire.OpWriteOnly, k, c.at(0, 4), data(4))
			}
			c.send(wire.OpWriteOnly, 1, c.at(0, 4), data(4))
			c.hear()
			c.post(1, verbs.OpSend, 8)
			c.post(2, verbs.OpSend, 8)
			c.skip()
			c.ack(1)
			c.done()
		},
		sound:     "ACK 2 msn 3; 1 SUCCESS SEND; 2 SUCCESS SEND",
		defective: "NAK 3 sequence msn 3; no completion",
	},
	"StaleAckBreaksRead": {
		talk: func(c *talk) {
			read := pattern(2500, 9)
			c.post(1, verbs.OpRDMAWrite, 4)
			c.post(2, verbs.OpRDMARead, 2500)
			c.skip()
			c.ack(0)
			c.send(wire.OpReadResponseFirst, 1, payload(read[:1024]))
			c.ack(0)
			c.send(wire.OpReadResponseMiddle, 2, payload(read[1024:2048]))
			c.send(wire.OpReadResponseLast, 3, payload(read[2048:]))
			c.done()
			c.note("data complete: %v", bytes.Equal(c.h.mem[sinkAt:][:2500], read))
			c.standing()
		},
		sound:     "1 SUCCESS RDMA_WRITE; 2 SUCCESS RDMA_READ 2500B; data complete: true; RTS",
		defective: "1 SUCCESS RDMA_WRITE; 2 SUCCESS RDMA_READ 2500B; data complete: false; ERR",
	},
	"AckCompletesRead": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 8)
			c.skip()
			c.ack(0)
			c.hear()
			c.done()
			c.standing()
			// An answer to the next READ is no ACK, whatever it says of what was before it.
			c.q = c.another(nil)
			c.post(2, verbs.OpRDMARead, 8)
			c.post(3, verbs.OpRDMARead, 8)
			c.skip()
			c.send(wire.OpReadResponseOnly, 1, data(8))
			c.hear()
			c.done()
		},
		sound:     "READ_REQUEST 0 va+0 len 8 ackreq; no completion; RTS; READ_REQUEST 0 va+0 len 8 ackreq; READ_REQUEST 1 va+0 len 8 ackreq; no completion",
		defective: "silence; 1 SUCCESS RDMA_READ 8B; RTS; READ_REQUEST 0 va+0 len 8 ackreq; READ_REQUEST 1 va+0 len 8 ackreq; no completion",
	},
	"BadRespSucceeds": {
		talk: func(c *talk) {
			c.badAnswer(wire.OpAtomicAcknowledge)
			c.badAnswer(wire.OpReadResponseMiddle, data(8))
			c.badAnswer(wire.OpReadResponseFirst, data(8), syndrome(0x62))
			c.badAnswer(wire.OpReadResponseOnly, data(16)) // too much has no place to go
			c.q = c.another(nil)
			for id := range uint64(3) {
				c.post(id, verbs.OpSend, 8)
			}
			c.skip()
			c.send(wire.OpAcknowledge, 1, syndrome(0x40))
			c.done()
			c.standing()
		},
		sound: "1 BAD_RESP_ERR; ERR; 1 BAD_RESP_ERR; ERR; 1 BAD_RESP_ERR; ERR; 1 BAD_RESP_ERR; ERR; " +
			"0 BAD_RESP_ERR; 1 WR_FLUSH_ERR; 2 WR_FLUSH_ERR; ERR",
		defective: "1 SUCCESS RDMA_READ 8B; ERR; 1 SUCCESS RDMA_READ 8B; ERR; 1 SUCCESS RDMA_READ 8B; ERR; 1 LOC_PROT_ERR; ERR; " +
			"0 SUCCESS SEND; 1 SUCCESS SEND; 2 WR_FLUSH_ERR; ERR",
	},
	"ShortReadHangs": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 8)
			c.skip()
			c.send(wire.OpReadResponseOnly, 0, data(4))
			c.listen(1e10)
			c.done()
			c.standing()
		},
		sound:     "silence; 1 BAD_RESP_ERR; ERR",
		defective: "silence; no completion; RTS",
	},
	"IgnoreSecondNAK": {
		talk: func(c *talk) {
			for id := range uint64(5) {
				c.post(id, verbs.OpSend, 8)
			}
			c.skip()
			c.nak(1, wire.NakPSNSequence)
			c.skip()
			c.nak(3, wire.NakPSNSequence)
			c.hear()
			c.listen(wire.AckTimeout(14) - 1)
		},
		sound:     "SEND_ONLY 3 8B ackreq; SEND_ONLY 4 8B ackreq; silence",
		defective: "silence; silence",
	},
	"GhostAckCompletes": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.nak(100, wire.NakInvalidRequest)
			c.done()
		},
		sound:     "no completion",
		defective: "1 SUCCESS SEND",
	},
	"DuplicateNAKsResend": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			for range 2 {
				c.nak(0, wire.NakPSNSequence)
				c.hear()
			}
		},
		sound:     "SEND_ONLY 0 8B ackreq; silence",
		defective: "SEND_ONLY 0 8B ackreq; SEND_ONLY 0 8B ackreq",
	},
	"ReadAckIgnored": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMAWrite, 8)
			c.post(2, verbs.OpRDMARead, 8)
			c.skip()
			c.send(wire.OpReadResponseOnly, 1, data(8))
			c.done()
			c.listen(wire.AckTimeout(14))
		},
		sound: "1 SUCCESS RDMA_WRITE; 2 SUCCESS RDMA_READ 8B; silence",
		defective: "no completion; after 67.108864ms: WRITE_ONLY 0 8B va+0 len 8 ackreq; " +
			"after 67.108864ms: READ_REQUEST 1 va+0 len 8 ackreq",
	},
	"ImpliedNAKCounterStuck": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 8)
			c.skip()
			c.ack(0)
			c.note("implied NAKs: %d", c.h.nic.Count.ImpliedNAKs)
		},
		sound:     "implied NAKs: 1",
		defective: "implied NAKs: 0",
	},
}

// badAnswer answers a READ of eight bytes, on a QP of its own, with something
// that no READ of eight bytes calls for.
func (c *talk) badAnswer(op wire.Operation, edits ...edit) {
	c.Helper()
	c.q = c.another(nil)
	c.post(1, verbs.OpRDMARead, 8)
	c.skip()
	c.send(op, 0, edits...)
	c.done()
	c.standing()
}
