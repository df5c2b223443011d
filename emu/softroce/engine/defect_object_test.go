package engine

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// objectDefects are about queues and windows, and the states of a QP.
var objectDefects = map[string]defectCase{
	"BoundQPBusy": {
		talk: func(c *talk) {
			c.bindWindow(256)
			c.tried(c.h.nic.DestroyQP(c.q))
		},
		sound:     "taken",
		defective: "refused",
	},
	"MW2Refused": {
		talk: func(c *talk) {
			c.bind(c.window(verbs.MWType2), targetAt, 256, verbs.AccessRemoteRead)
			c.done()
		},
		sound:     "no completion",
		defective: "1 MW_BIND_ERR",
	},
	"BindDefects": {
		talk: func(c *talk) {
			w := c.window(verbs.MWType1)
			c.bind(w, targetAt, 8, verbs.AccessRemoteRead)
			c.bind(w, 0, 0, verbs.AccessRemoteRead)
			c.readFrom(w.Key, 256, 8)
			c.q = c.another(nil)
			c.bind(c.window(verbs.MWType1), targetAt, 8, verbs.AccessRemoteRead|verbs.AccessZeroBased)
			c.bind(c.window(verbs.MWType2), targetAt, 0, verbs.AccessRemoteRead)
			c.done()
		},
		sound:     "NAK 0 access msn 0; 1 MW_BIND_ERR; 1 WR_FLUSH_ERR",
		defective: "RR_ONLY 0 8B msn 1; no completion",
	},
	"RightsIgnored": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.Access = 0 }},
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, c.at(0, 8), rkey(c.region(0)), data(8), ackReq)
			c.hear()
		},
		sound:     "NAK 0 invalid msn 0",
		defective: "ACK 0 msn 1",
	},
	"RangeSlack": {
		talk:      func(c *talk) { c.readFrom(c.h.mr.Key, memSize-targetAt, 8) },
		sound:     "NAK 0 access msn 0",
		defective: "RR_ONLY 0 8B msn 1",
	},
	"SRQDoubleUse": {
		talk: func(c *talk) {
			srq := c.sharing(4)
			for id := range uint64(2) {
				c.must(srq.PostRecv(&verbs.RecvWR{WRID: id, SGL: []verbs.SGE{c.h.sge(recvAt, 8)}}))
			}
			for k := range 3 {
				c.send(wire.OpSendOnly, k, data(8))
			}
			c.done()
		},
		sound:     "0 SUCCESS RECV 8B; 1 SUCCESS RECV 8B",
		defective: "0 SUCCESS RECV 8B; 0 SUCCESS RECV 8B; 1 SUCCESS RECV 8B",
	},
	"SRQLimitRepeats": {
		talk: func(c *talk) {
			srq := c.sharing(4)
			for id := range uint64(3) {
				c.must(srq.PostRecv(&verbs.RecvWR{WRID: id, SGL: []verbs.SGE{c.h.sge(recvAt, 8)}}))
			}
			c.must(srq.Modify(verbs.SRQAttr{Limit: 3}, verbs.SRQLimit))
			c.send(wire.OpSendOnly, 0, data(8))
			c.send(wire.OpSendOnly, 1, data(8))
			c.happened()
		},
		sound:     "SRQ_LIMIT_REACHED",
		defective: "SRQ_LIMIT_REACHED; SRQ_LIMIT_REACHED",
	},
	"SRQFlushed": {
		talk: func(c *talk) {
			srq := c.sharing(4)
			for id := range uint64(2) {
				c.must(srq.PostRecv(&verbs.RecvWR{WRID: id}))
			}
			c.must(c.move(verbs.QPStateErr, 0))
			c.done()
		},
		sound:     "no completion",
		defective: "0 WR_FLUSH_ERR; 1 WR_FLUSH_ERR",
	},
	"ArmLost": {
		talk: func(c *talk) {
			c.h.cq.ReqNotify(true)
			c.h.cq.ReqNotify(false)
			c.fired()
		},
		sound:     "1 events",
		defective: "0 events",
	},
	"ArmStays": {
		talk: func(c *talk) {
			c.h.cq.ReqNotify(false)
			c.fired()
			c.fired()
		},
		sound:     "1 events; 0 events",
		defective: "1 events; 1 events",
	},
	"InUseDestroyed": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			c.must(c.h.nic.Attach(c.q, netip.MustParseAddr("239.1.1.1")))
			c.tried(c.h.nic.DestroyQP(c.q))
			c.note("%d groups", len(c.h.nic.mcast))
			c.tried(c.h.nic.DestroyCQ(c.h.cq))
		},
		sound:     "refused; 1 groups; refused",
		defective: "taken; 0 groups; taken",
	},
	"ModifyUnchecked": {
		talk: func(c *talk) {
			c.tried(c.move(verbs.QPStateInit, 0)) // from RTS
			c.must(c.move(verbs.QPStateReset, 0))
			c.tried(c.move(verbs.QPStateRTS, verbs.QPAttrQKey))
			c.standing()
			if c.q.State() == verbs.QPStateRTS {
				c.post(1, verbs.OpSend, 8)
				c.skip()
				c.note("sent to %v", c.heard[0].Dst.Addr())
			}
		},
		sound:     "refused; refused; RESET",
		defective: "taken; taken; RTS; sent to 0.0.0.0",
	},
	"ValuesUnchecked": {
		talk: func(c *talk) {
			c.back()
			for _, wrong := range []func(*verbs.QPAttr){
				func(a *verbs.QPAttr) { a.PathMTU = 6 }, // this one rxe does look at
				func(a *verbs.QPAttr) { a.PathMTU, a.MaxDestRdAtomic, a.MinRNRTimer = 0, 255, 32 },
			} {
				a := c.attr()
				a.State = verbs.QPStateRTR
				wrong(&a)
				c.tried(c.q.Modify(c.now, a, rcRTR))
				c.standing()
			}
		},
		sound:     "refused; INIT; refused; INIT",
		defective: "refused; INIT; taken; RTR",
	},
	"PathMTUUnchecked": {
		setup: setup{nic: func(c *Config) { c.LinkMTU = 1500 }},
		talk: func(c *talk) {
			c.back()
			a := c.attr()
			a.State, a.PathMTU = verbs.QPStateRTR, verbs.MTU4096
			c.tried(c.q.Modify(c.now, a, rcRTR))
		},
		sound:     "refused",
		defective: "taken",
	},
	"RecvStateWrong": {
		talk: func(c *talk) {
			c.must(c.move(verbs.QPStateReset, 0))
			c.tried(c.q.PostRecv(&verbs.RecvWR{WRID: 1}))
			c.must(c.move(verbs.QPStateInit, initRC))
			c.tried(c.q.PostRecv(&verbs.RecvWR{WRID: 2}))
			c.must(c.move(verbs.QPStateRTR, rcRTR))
			c.send(wire.OpSendOnly, 0)
			c.done()
		},
		sound:     "refused; taken; 2 SUCCESS RECV",
		defective: "taken; refused; 1 SUCCESS RECV",
	},
	"RTSOnly": {
		talk: func(c *talk) {
			c.must(c.move(verbs.QPStateSQD, 0))
			c.deliver(c.write(0))
			c.hear()
			c.back()
			c.must(c.move(verbs.QPStateRTR, rcRTR))
			c.deliver(c.write(0))
			c.hear()
		},
		sound:     "ACK 0 msn 1; ACK 0 msn 1",
		defective: "silence; silence",
	},
	"ResetKeepsQueues": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.post(2, verbs.OpSend, 8)
			c.skip()
			c.back()
			c.must(c.move(verbs.QPStateRTR, rcRTR))
			c.must(c.move(verbs.QPStateRTS, rcRTS))
			c.hear()
			c.send(wire.OpSendOnly, 0, data(8))
			c.ack(0)
			c.done()
		},
		sound:     "silence; no completion",
		defective: "SEND_ONLY 0 8B ackreq; 1 SUCCESS RECV 8B; 2 SUCCESS SEND",
	},
	"SQDIgnored": {
		talk: func(c *talk) {
			c.must(c.move(verbs.QPStateSQD, 0))
			c.post(1, verbs.OpSend, 8)
			c.hear()
			c.must(c.move(verbs.QPStateReset, 0))
			c.h.ready(c.q, c.addr, peerQPN, func(a *verbs.QPAttr) { *a = c.attr() })
			c.post(2, verbs.OpSend, 8)
			c.skip()
			c.must(c.move(verbs.QPStateSQD, 0))
			c.tried(c.move(verbs.QPStateRTS, 0))
		},
		sound:     "silence; refused",
		defective: "SEND_ONLY 0 8B ackreq; taken",
	},
}

// fired notes how many events a completion raises.
func (c *talk) fired() {
	c.h.cq.Push(&verbs.WC{}, false)
	c.note("%d events", c.h.nic.CompletionEvents())
	c.h.nic.NextCompletionEvent()
}

// lateDefects are about what happens later than it should.
var lateDefects = map[string]defectCase{
	"LatePlacement": {
		talk: func(c *talk) {
			here := func() {
				c.note("%v %v %v", string(c.recvBuf(1, 4)) == "sent", string(c.target(0, 4)) == "writ", string(c.h.mem[sinkAt:][:4]) == "read")
			}
			c.recv(1, 8)
			c.post(2, verbs.OpRDMARead, 4)
			c.skip()
			c.send(wire.OpSendOnly, 0, payload([]byte("sent")))
			c.send(wire.OpWriteOnly, 1, c.at(0, 4), payload([]byte("writ")), ackReq)
			c.send(wire.OpReadResponseOnly, 0, payload([]byte("read")))
			c.hear()
			c.done()
			here()
			c.listen(placementDelay)
			here()
		},
		sound:     "ACK 1 msn 2; 1 SUCCESS RECV 4B; 2 SUCCESS RDMA_READ 4B; true true true; silence; true true true",
		defective: "ACK 1 msn 2; 1 SUCCESS RECV 4B; 2 SUCCESS RDMA_READ 4B; false false false; silence; true true true",
	},
	"ReceivesSwapped": {
		talk: func(c *talk) {
			for k := range 3 {
				c.recv(uint64(k), 8)
				c.send(wire.OpSendOnly, k, data(8))
			}
			c.done()
			c.listen(time.Millisecond)
			c.done()
		},
		sound:     "0 SUCCESS RECV 8B; 1 SUCCESS RECV 8B; 2 SUCCESS RECV 8B; silence; no completion",
		defective: "1 SUCCESS RECV 8B; 0 SUCCESS RECV 8B; silence; 2 SUCCESS RECV 8B",
	},
}
