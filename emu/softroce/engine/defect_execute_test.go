package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// executeDefects are about how a responder carries out SENDs, WRITEs and READs.
var executeDefects = map[string]defectCase{
	"DupReadUnchecked": {
		talk: func(c *talk) {
			c.send(wire.OpReadRequest, 0, c.at(0, 8))
			c.skip()
			c.send(wire.OpReadRequest, 0, c.at(64, 16), rkey(c.region(allAccess)))
			c.hear()
		},
		sound:     "silence",
		defective: "RR_ONLY 0 16B msn 1",
	},
	"ZeroDepthIsOne": {
		setup:     setup{attr: func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 0 }},
		talk:      func(c *talk) { c.readFrom(c.h.mr.Key, 0, 8) },
		sound:     "NAK 0 invalid msn 0",
		defective: "RR_ONLY 0 8B msn 1",
	},
	"WriteConsumes": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.recv(2, 8)
			c.deliver(c.write(0))
			c.send(wire.OpSendOnly, 1, data(8))
			c.done()
		},
		sound:     "1 SUCCESS RECV 8B",
		defective: "2 SUCCESS RECV 8B",
	},
	"EmptyMessagesIgnored": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.recv(2, 8)
			c.send(wire.OpSendOnly, 0)
			c.send(wire.OpWriteOnlyImm, 1, c.at(0, 0), ackReq)
			c.hear()
			c.done()
		},
		sound:     "ACK 1 msn 2; 1 SUCCESS RECV; 2 SUCCESS RECV_RDMA_WITH_IMM imm 00000000",
		defective: "ACK 1 msn 2; no completion",
	},
	"InvalidateLate": {
		talk: func(c *talk) {
			key := c.bindWindow(256)
			c.invalidate(key)
			c.send(wire.OpReadRequest, 1, c.at(0, 8), rkey(key))
			c.hear()
		},
		sound:     "ACK 0 msn 1; 1 SUCCESS RECV inv 200; NAK 1 access msn 1",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV inv 200; RR_ONLY 1 8B msn 2",
	},
	"RecvErrorIsQPOp": {
		talk: func(c *talk) {
			c.h.recv(c.q, 1, verbs.SGE{Addr: c.h.mr.Addr, Length: 8, LKey: bogusKey})
			c.send(wire.OpSendOnly, 0, data(8))
			c.hear()
			c.done()
		},
		sound:     "NAK 0 operational msn 0; 1 LOC_PROT_ERR",
		defective: "NAK 0 operational msn 0; 1 LOC_QP_OP_ERR",
	},
	"WriteSumUnchecked": {
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, c.at(0, 4), payload([]byte("too long")), ackReq)
			c.hear()
			c.note("placed: %v, beyond: %v", string(c.target(0, 4)) == "too ", string(c.target(4, 4)) == "long")
		},
		sound:     "NAK 0 invalid msn 0; placed: false, beyond: false",
		defective: "ACK 0 msn 1; placed: true, beyond: false",
	},
	"PlacedBeforeCheck": {
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, c.at(0, 8), rkey(c.region(verbs.AccessRemoteRead)), payload([]byte("too soon")))
			c.hear()
			c.note("placed: %v", string(c.target(0, 8)) == "too soon")
		},
		sound:     "NAK 0 access msn 0; placed: false",
		defective: "NAK 0 access msn 0; placed: true",
	},
	"SRQDomainForWrites": {
		talk: func(c *talk) {
			other := c.foreignRegion()
			srq, err := c.h.nic.CreateSRQ(nic.SRQConfig{PD: other.PD, MaxWR: 1, MaxSGE: 1})
			c.must(err)
			c.q = c.another(func(q *QPConfig) { q.SRQ = srq })
			c.send(wire.OpWriteOnly, 0, c.at(0, 8), rkey(other.Key), data(8), ackReq)
			c.hear()
			c.q = c.another(func(q *QPConfig) { q.SRQ = srq })
			c.readFrom(other.Key, 0, 8)
		},
		sound:     "NAK 0 access msn 0; NAK 0 access msn 0",
		defective: "ACK 0 msn 1; RR_ONLY 0 8B msn 1",
	},
	"XRCAnySRQ": {
		talk: func(c *talk) {
			var first *nic.SRQ
			var x *nic.XRCD
			for range 2 { // the second is in another domain
				var err error
				x, err = c.h.nic.OpenXRCD()
				c.must(err)
				srq, err := c.h.nic.CreateSRQ(nic.SRQConfig{Type: verbs.SRQXRC, PD: c.h.pd, MaxWR: 2, MaxSGE: 1, XRCD: x, CQ: c.h.cq})
				c.must(err)
				if first == nil {
					first = srq
				}
			}
			c.must(first.PostRecv(&verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{c.h.sge(recvAt, 8)}}))
			q, err := c.h.nic.CreateQP(QPConfig{Type: verbs.QPTypeXRCRecv, XRCD: x})
			c.must(err)
			c.q = q
			c.h.ready(q, c.addr, peerQPN, func(a *verbs.QPAttr) { *a = c.attr() })
			c.send(wire.OpSendOnly, 0, as(wire.TransportXRC), data(8), func(k *wire.Packet) { k.XRCETH.SRQN = 99 })
			c.done()
		},
		sound:     "no completion",
		defective: "1 SUCCESS RECV 8B",
	},
	"OverrunAcked": {
		talk: func(c *talk) {
			c.shallow()
			c.recv(1, 8)
			c.recv(2, 8)
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.skip()
			c.send(wire.OpSendOnly, 1, data(8), ackReq)
			c.hear()
			c.happened()
			c.standing()
		},
		sound:     "silence; CQ_ERR; ERR",
		defective: "ACK 1 msn 1; CQ_ERR; ERR",
	},
}

// atomicDefects are about atomics.
var atomicDefects = map[string]defectCase{
	"AtomicsWrong": {
		talk: func(c *talk) {
			clear(c.target(0, 16))
			c.send(wire.OpCompareSwap, 0, c.word(0, 5, 1))
			c.send(wire.OpCompareSwap, 1, c.word(0, 7, 5))
			c.send(wire.OpFetchAdd, 2, c.word(8, ^uint64(0), 0))
			c.send(wire.OpFetchAdd, 3, c.word(8, 5, 0))
			c.skip()
			c.note("%d, %d", c.wordValue(c.target(0, 8)), int64(c.wordValue(c.target(8, 8))))
		},
		sound:     "0, 4",
		defective: "7, -1",
	},
	"AtomicMisaligned": {
		talk: func(c *talk) {
			clear(c.target(0, 16))
			c.send(wire.OpFetchAdd, 0, c.word(4, 5, 0))
			c.hear()
		},
		sound:     "NAK 0 invalid msn 0",
		defective: "ATOMIC_ACKNOWLEDGE 0 was 0 msn 1",
	},
	"AtomicsPerQP": {
		talk: func(c *talk) {
			clear(c.target(0, 8))
			one, other := c.q, c.another(nil)
			for k := range 2 {
				for _, q := range []*QP{one, other} {
					c.q = q
					c.send(wire.OpFetchAdd, k, c.word(0, 1, 0))
					c.hear()
				}
			}
		},
		sound: "ATOMIC_ACKNOWLEDGE 0 was 0 msn 1; ATOMIC_ACKNOWLEDGE 0 was 1 msn 1; " +
			"ATOMIC_ACKNOWLEDGE 1 was 2 msn 2; ATOMIC_ACKNOWLEDGE 1 was 3 msn 2",
		defective: "ATOMIC_ACKNOWLEDGE 0 was 0 msn 1; ATOMIC_ACKNOWLEDGE 0 was 1 msn 1; " +
			"ATOMIC_ACKNOWLEDGE 1 was 1 msn 2; ATOMIC_ACKNOWLEDGE 1 was 2 msn 2",
	},
}
