package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const bogusKey = 0xdead00

// responderDefects are about SENDs and WRITEs that a NIC receives.
var responderDefects = map[string]defectCase{
	"DupAckTakesReadPSN": {
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, c.at(0, 4), data(4), ackReq)
			c.send(wire.OpReadRequest, 1, c.at(0, 8))
			c.skip()
			c.send(wire.OpWriteOnly, 0, c.at(0, 4), data(4), ackReq)
			c.hear()
		},
		sound:     "ACK 0 msn 2",
		defective: "ACK 1 msn 2",
	},
	"AckReqOnResponses": {
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, c.at(0, 4), data(4), ackReq)
			c.hear()
			c.send(wire.OpReadRequest, 1, c.at(0, 8))
			clear(c.target(128, 8))
			c.send(wire.OpFetchAdd, 2, c.word(128, 5, 0))
			c.send(wire.OpAtomicWrite, 3, c.at(256, 8), data(8))
			c.hear()
		},
		sound:     "ACK 0 msn 1; RR_ONLY 1 8B msn 2; ATOMIC_ACKNOWLEDGE 2 was 0 msn 3; RR_ONLY 3 msn 4",
		defective: "ACK 0 msn 1 ackreq; RR_ONLY 1 8B msn 2 ackreq; ATOMIC_ACKNOWLEDGE 2 was 0 msn 3 ackreq; RR_ONLY 3 msn 4 ackreq",
	},
	"InvalidateAcked": {
		talk:      failedInvalidate,
		sound:     "silence; 1 MW_BIND_ERR; ERR",
		defective: "ACK 0 msn 0; 1 MW_BIND_ERR; ERR",
	},
	"InvalidateNAKed": {
		talk:      failedInvalidate,
		sound:     "silence; 1 MW_BIND_ERR; ERR",
		defective: "NAK 0 access msn 0; 1 MW_BIND_ERR; ERR",
	},
	"InvalidatePanics": {
		talk: func(c *talk) {
			w, err := c.h.nic.AllocMW(c.h.pd, verbs.MWType2)
			c.must(err)
			bystander := c.another(nil)
			c.recv(1, 8)
			c.send(wire.OpSendOnlyInv, 0, inv(w.Key), data(8), ackReq)
			c.hear()
			c.happened()
			c.send(wire.OpReadRequest, 0, c.at(0, 8), toQP(bystander))
			c.hear()
		},
		sound:     "silence; no event; RR_ONLY 0 8B msn 1",
		defective: "silence; DEVICE_FATAL; silence",
	},
	"SeqNAKAfterRNR": {
		talk: func(c *talk) {
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.hear()
			c.send(wire.OpSendOnly, 1, data(8), ackReq)
			c.send(wire.OpSendOnly, 2, data(8), ackReq)
			c.hear()
		},
		sound:     "RNR 0 code 12 msn 0; silence",
		defective: "RNR 0 code 12 msn 0; NAK 0 sequence msn 0",
	},
	"LongSendIsOpError": {
		talk: func(c *talk) {
			c.recv(1, 4)
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.hear()
			c.done()
		},
		sound:     "NAK 0 invalid msn 0; 1 LOC_LEN_ERR",
		defective: "NAK 0 operational msn 0; 1 LOC_QP_OP_ERR",
	},
	"FailedImmConsumes": {
		talk: func(c *talk) {
			c.recv(1, 4)
			c.send(wire.OpWriteOnlyImm, 0, c.at(0, 8), rkey(bogusKey), data(8), ackReq)
			c.hear()
			c.done()
		},
		sound:     "NAK 0 access msn 0; 1 WR_FLUSH_ERR",
		defective: "NAK 0 access msn 0; 1 REM_ACCESS_ERR",
	},
	"NoLengthChecks": {
		talk: func(c *talk) {
			c.recv(1, 2048)
			c.send(wire.OpSendOnly, 0, data(1028), ackReq)
			c.hear()
			c.done()
			c.q = c.another(nil)
			c.send(wire.OpWriteOnly, 0, c.at(0, 8), data(4), ackReq) // a WRITE says how long it is
			c.hear()
		},
		sound:     "NAK 0 invalid msn 0; 1 WR_FLUSH_ERR; NAK 0 invalid msn 0",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV 1028B; NAK 0 invalid msn 0",
	},
	"ReservedOpSilent": {
		talk: func(c *talk) {
			c.send(0x18, 0)
			c.hear()
			c.standing()
		},
		sound:     "NAK 0 invalid msn 0; ERR",
		defective: "silence; RTS",
	},
	"UnknownOpFatal": {
		talk: func(c *talk) { // it strikes before anyone looks at the PSN
			c.send(0x15, 5)
			c.hear()
			c.standing()
		},
		sound:     "NAK 0 sequence msn 0; RTS",
		defective: "silence; ERR",
	},
	"PadUnderflow": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.altered(c.build(wire.OpSendOnly, 0, ackReq), func(d *link.Datagram) { d.Payload[1] |= 3 << 4 })
			c.hear()
			c.done()
		},
		sound:     "silence; no completion",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV",
	},
	"RaggedAccepted": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.altered(c.build(wire.OpSendOnly, 0, data(8), ackReq), func(d *link.Datagram) {
				d.Payload = d.Payload[:len(d.Payload)-3]
			})
			c.hear()
			c.done()
		},
		sound:     "silence; no completion",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV 5B",
	},
	"ErrCompletesRecvs": {
		talk: func(c *talk) {
			c.recv(1, 2048)
			c.recv(2, 8)
			c.recv(3, 8)
			c.send(wire.OpSendFirst, 0, data(1024))
			c.must(c.move(verbs.QPStateErr, 0))
			c.done()
		},
		sound:     "1 WR_FLUSH_ERR; 2 WR_FLUSH_ERR; 3 WR_FLUSH_ERR",
		defective: "1 WR_FLUSH_ERR; 2 SUCCESS RECV; 3 SUCCESS RECV",
	},
	"GRHFlagOnConnected": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.send(wire.OpSendOnly, 0, data(8))
			c.note("header area: %v", c.h.poll()[0].Flags&verbs.WCWithGRH != 0)
		},
		sound:     "header area: false",
		defective: "header area: true",
	},
	"ResetKeepsState": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.skip()
			c.must(c.move(verbs.QPStateReset, 0))
			c.h.ready(c.q, c.addr, peerQPN, func(a *verbs.QPAttr) { a.RQPSN = uint32(c.rq) + 900 })
			c.send(wire.OpReadRequest, 900, c.at(0, 8))
			c.hear()
		},
		sound:     "RR_ONLY 900 8B msn 1",
		defective: "NAK 1 sequence msn 1",
	},
	"ZeroLengthChecksKey": {
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, c.at(0, 0), rkey(bogusKey), ackReq)
			c.hear()
		},
		sound:     "ACK 0 msn 1",
		defective: "NAK 0 access msn 0",
	},
	"BuffersBeforeRTR": {
		talk: func(c *talk) {
			c.back()
			c.recv(1, 8)
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.must(c.move(verbs.QPStateRTR, rcRTR))
			c.hear()
			c.done()
		},
		sound:     "silence; no completion",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV 8B",
	},
}

// failedInvalidate asks for a key that does not exist to be invalidated.
func failedInvalidate(c *talk) {
	c.recv(1, 8)
	c.send(wire.OpSendOnlyInv, 0, inv(bogusKey), data(8), ackReq)
	c.hear()
	c.done()
	c.standing()
}
