package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// queueDefects are about what may be made and posted, and what completes.
var queueDefects = map[string]defectCase{
	"OverflowSendQueue": {
		setup: setup{qp: func(q *QPConfig) { q.Caps.MaxSendWR = 1 }},
		talk: func(c *talk) {
			c.try(1, verbs.OpSend, c.h.sge(0, 8))
			c.try(2, verbs.OpSend, c.h.sge(0, 8))
			c.hear()
		},
		sound:     "taken; refused; SEND_ONLY 0 8B ackreq",
		defective: "taken; taken; SEND_ONLY 0 8B ackreq",
	},
	"OverflowSRQ": {
		talk: func(c *talk) {
			srq := c.sharing(2)
			for id := range uint64(3) {
				c.tried(srq.PostRecv(&verbs.RecvWR{WRID: id, SGL: []verbs.SGE{c.h.sge(recvAt, 8)}}))
			}
			c.send(wire.OpSendOnly, 0, data(8))
			c.send(wire.OpSendOnly, 1, data(8))
			c.done()
		},
		sound:     "taken; taken; refused; 0 SUCCESS RECV 8B; 1 SUCCESS RECV 8B",
		defective: "taken; taken; taken; 0 SUCCESS RECV 8B; 2 SUCCESS RECV 8B",
	},
	"SRQReceiveAnyPD": {
		talk: func(c *talk) {
			srq := c.sharing(2)
			key := c.foreignRegion().Key
			sge := verbs.SGE{Addr: c.h.mr.Addr + recvAt, Length: 64, LKey: verbs.LKey(key)}
			c.must(srq.PostRecv(&verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{sge}}))
			c.must(srq.PostRecv(&verbs.RecvWR{WRID: 2, SGL: []verbs.SGE{sge}}))
			ud := c.datagramQP(func(q *QPConfig) { q.SRQ = srq })
			c.deliver(c.datagram(ud, 8))
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.hear()
			c.done()
		},
		sound:     "NAK 0 operational msn 0; 1 LOC_PROT_ERR; 2 LOC_PROT_ERR",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV 48B; 2 SUCCESS RECV 8B",
	},
	"QPNReusedAtOnce": {
		talk: func(c *talk) {
			old := c.q.num
			c.must(c.h.nic.DestroyQP(c.q))
			c.note("same number: %v", c.h.qp(verbs.QPTypeRC, nil).num == old)
		},
		sound:     "same number: false",
		defective: "same number: true",
	},
	"AnyQPType": {
		talk: func(c *talk) {
			q, err := c.h.nic.CreateQP(QPConfig{Type: 200, PD: c.h.pd, SendCQ: c.h.cq, RecvCQ: c.h.cq})
			c.tried(err)
			if err == nil {
				c.note("%v", q.Type())
			}
		},
		sound:     "refused",
		defective: "taken; IBV_QPT_RC",
	},
	"CapsUnchecked": {
		setup: setup{nic: func(c *Config) { c.Limits.QPWR, c.Limits.SRQWR = 128, 128 }},
		talk: func(c *talk) {
			_, err := c.h.nic.CreateQP(QPConfig{
				Type: verbs.QPTypeRC, PD: c.h.pd, SendCQ: c.h.cq, RecvCQ: c.h.cq,
				Caps: verbs.QPCaps{MaxSendWR: 129, MaxSendSGE: 1},
			})
			c.tried(err)
			_, err = c.h.nic.CreateSRQ(nic.SRQConfig{PD: c.h.pd, MaxWR: 129, MaxSGE: 1})
			c.tried(err)
		},
		sound:     "refused; refused",
		defective: "taken; taken",
	},
	"AtomicAnySize": {
		talk:      func(c *talk) { c.try(1, verbs.OpAtomicFetchAdd, c.h.sge(sinkAt, 4)) },
		sound:     "refused",
		defective: "taken",
	},
	"AtomicOneSGE": {
		talk:      func(c *talk) { c.try(1, verbs.OpAtomicFetchAdd, c.h.sge(sinkAt, 4), c.h.sge(sinkAt+8, 4)) },
		sound:     "taken",
		defective: "refused",
	},
	"NoEmptyMR": {
		talk: func(c *talk) {
			_, err := c.h.nic.RegMR(c.h.pd, nic.Bytes(nil), 0, allAccess)
			c.tried(err)
		},
		sound:     "taken",
		defective: "refused",
	},
	"AHsUncounted": {
		talk: func(c *talk) {
			pd, err := c.h.nic.AllocPD()
			c.must(err)
			_, err = c.h.nic.CreateAH(pd, connAttr(c.addr, 0).AH)
			c.must(err)
			c.tried(c.h.nic.DeallocPD(pd))
		},
		sound:     "refused",
		defective: "taken",
	},
	"CQErrRepeats": {
		talk: func(c *talk) {
			c.shallow()
			for id := range uint64(3) {
				c.recv(id, 8)
			}
			c.must(c.move(verbs.QPStateErr, 0))
			c.happened()
		},
		sound:     "CQ_ERR",
		defective: "CQ_ERR; CQ_ERR",
	},
	"CQOverrunSilent": {
		talk: func(c *talk) {
			c.shallow()
			c.recv(1, 8)
			c.recv(2, 8)
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.hear()
			c.send(wire.OpSendOnly, 1, data(8), ackReq)
			c.hear()
			c.happened()
			c.standing()
		},
		sound:     "ACK 0 msn 1; silence; CQ_ERR; ERR",
		defective: "ACK 0 msn 1; ACK 1 msn 2; no event; RTS",
	},
}

// foreignRegion registers the host's memory in another protection domain.
func (c *talk) foreignRegion() *nic.Region {
	c.Helper()
	pd, err := c.h.nic.AllocPD()
	c.must(err)
	mr, err := c.h.nic.RegMR(pd, nic.Bytes(c.h.mem), c.h.mr.Addr, allAccess)
	c.must(err)
	return mr
}
