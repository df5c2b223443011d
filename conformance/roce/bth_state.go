package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var bthStateCases = conformance.Group{Needs: verbs.CapRC}.Cases([]conformance.Case{{
	ID:    "bth/state/request-before-rtr-dropped",
	Title: "A request for a queue pair in RESET or INIT is dropped, and not executed later",
	Cite:  ibta("", "roce/bth/state/1"), Labels: []string{"service:rc"}, Defects: []string{"BuffersBeforeRTR"},
	Sends:   "a SEND and a WRITE to a queue pair in RESET, then in INIT with a receive posted; nothing more when it is in RTR",
	Expects: "nothing before, nothing after, and the expected PSN unchanged",
	Run: onConn(setup{receives: 1, state: verbs.QPStateInit}, func(c *conn) {
		fresh, err := c.Device.CreateQP(verbs.QPInit{
			Type: verbs.QPTypeRC, PD: c.PD, SendCQ: c.CQ, RecvCQ: c.CQ,
			Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		c.Must("another queue pair", err)
		for _, qpn := range []verbs.QPN{fresh.QPN(), c.qp.QPN()} {
			c.expectDropped(ib.SendOnly(c.peerPSN(0), data(16)).AckReq().To(uint32(qpn)))
			c.expectDropped(ib.WriteOnly(c.peerPSN(1), c.reth(0, 16), data(16)).AckReq().To(uint32(qpn)))
		}
		c.toRTR(c.qp, c.attr)
		c.expectSilence(silencePeriod)
		c.ExpectNoCompletion()
		c.expectAccepted(0)
	}),
}, {
	ID:    "bth/state/datagram-before-rtr-dropped",
	Title: "A datagram for a queue pair in INIT is dropped, and not delivered later",
	Cite:  ibta("", "roce/bth/state/1"), Needs: verbs.CapUD, Labels: []string{"service:ud"},
	Defects: []string{"BuffersBeforeRTR"},
	Sends:   "a datagram to a queue pair in INIT with a receive posted; nothing more when it is in RTR",
	Expects: "no completion before or after, and the receive is used for the next",
	Run: onPort(func(p *port) {
		d := p.newUDConn(0)
		d.Must("a queue pair in RESET", d.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		d.Must("a queue pair in INIT", d.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: bthQKey},
			verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey))
		d.PostRecv(d.qp, 1, d.localMem.SGE(0, 128))
		d.expectDropped(d.datagram(data(32)))
		d.Must("a queue pair in RTR", d.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState))
		d.Sync()
		d.ExpectNoCompletion()
		d.expectAccepted(0)
	}),
}, {
	ID:    "bth/state/answers-before-rts-dropped",
	Title: "A response that arrives before RTS does not complete later requests",
	Cite:  ibta("", "roce/bth/state/2"), Labels: []string{"service:rc"}, Defects: []string{"EarlyAckCounts"},
	Sends:   "an ACK, a READ response and an atomic acknowledgement to a queue pair in RTR, with the PSNs that it will use; later an ACK that is due",
	Expects: "nothing; then requests that complete with their ACK, and not before",
	Run: onConn(setup{receives: 1, state: verbs.QPStateRTR}, func(c *conn) {
		c.expectDropped(ib.Ack(c.devicePSN(1), 2))
		c.expectDropped(ib.ReadResponseOnly(c.devicePSN(0), 1, data(8)))
		c.expectDropped(ib.AtomicAck(c.devicePSN(0), 1, 5))
		c.toRTS(c.qp, c.attr)
		c.PostSend(c.qp, verbs.SendWR{WRID: 100, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(0, 8)})
		c.expect(ib.SendOnly(c.devicePSN(0), nil))
		c.expectSilence(silencePeriod)
		c.ExpectNoCompletion()
		c.send(ib.Ack(c.devicePSN(0), 1))
		c.ExpectCompletion(100, verbs.WCSuccess)
	}),
}, {
	ID:    "bth/state/failed-qp-is-dead",
	Title: "A queue pair in the error state neither executes nor answers requests",
	Cite:  ibta("", "roce/bth/state/3"), Labels: []string{"service:rc"}, Defects: []string{"AnswersInError"},
	Sends:   "a WRITE that is refused; then a SEND, WRITEs and READs with the expected PSN, an earlier one and later ones. The same after the application has put a queue pair into that state",
	Expects: "nothing after the NAK: no answer, and no byte in memory",
	Run: onPort(func(p *port) {
		refused := p.connect(setup{})
		refused.send(ib.WriteOnly(refused.peerPSN(0), refused.reth(0, 8), data(8)).AckReq())
		refused.expect(ib.Ack(refused.peerPSN(0), 1))
		refused.targetMem.Snapshot()
		refused.send(ib.WriteOnly(refused.peerPSN(1), refused.reth(0, 4).Skip(-1<<40), data(4)).AckReq())
		refused.expect(ib.Op(ib.OpAcknowledge).WithPSN(refused.peerPSN(1)))
		put := p.connect(setup{})
		put.toError(put.qp)
		for _, c := range []*conn{refused, put} {
			c.AwaitState(c.qp, verbs.QPStateErr)
			for _, n := range []int{1, 0, 2, 5} {
				c.expectDropped(ib.SendOnly(c.peerPSN(n), data(16)).AckReq())
				c.expectDropped(ib.WriteOnly(c.peerPSN(n), c.reth(0, 16), data(16)).AckReq())
				c.expectDropped(ib.ReadRequest(c.peerPSN(n), c.reth(0, 16)))
			}
		}
	}),
}})
