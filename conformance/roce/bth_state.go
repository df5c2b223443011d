package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var bthStateCases = mostlyRC.Cases([]conformance.Case{{
	ID: "bth/state/request-before-rtr-dropped", Cite: ibta("", "roce/bth/state/1"),
	Run: onConn(Setup{Receives: 1, state: verbs.QPStateInit}, func(c *Conn) {
		fresh := c.freshQP()
		for _, qpn := range []verbs.QPN{fresh.QPN(), c.QP.QPN()} {
			c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq().To(uint32(qpn)))
			c.expectDropped(ib.WriteOnly(c.PeerPSN(1), c.RETH(0, 16), Data(16)).AckReq().To(uint32(qpn)))
		}
		c.ToRTR(c.QP, c.Attr)
		c.expectSilence(silencePeriod)
		c.ExpectNoCompletion()
		c.expectAccepted(0)
	}),
}, {
	ID:   "bth/state/datagram-before-rtr-dropped",
	Cite: ibta("", "roce/bth/state/1"), Needs: verbs.CapUD, Labels: labelUD,
	Run: OnPort(func(p *Port) {
		d := p.newUDPort(0, nil)
		d.ToState(d.QP, verbs.QPStateReset)
		d.ToInit(d.QP, 0, udQKey)
		d.PostRecv(d.QP, 1, d.LocalMem.SGE(0, 128))
		d.expectDropped(d.datagram(Data(32)))
		d.ToRTR(d.QP, verbs.QPAttr{})
		d.expectNoCompletion()
		d.expectAccepted(0)
	}),
}, {
	ID: "bth/state/answers-before-rts-dropped", Cite: ibta("", "roce/bth/state/2"),
	Run: onConn(Setup{Receives: 1, state: verbs.QPStateRTR}, func(c *Conn) {
		c.expectDropped(ib.Ack(c.DevicePSN(1), 2))
		c.expectDropped(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8)))
		c.expectDropped(ib.AtomicAck(c.DevicePSN(0), 1, 5))
		c.ToRTS(c.QP, c.Attr)
		c.PostSend(c.QP, c.SendWR(100, 8))
		c.expect(ib.SendOnly(c.DevicePSN(0), nil))
		c.expectSilence(silencePeriod)
		c.ExpectNoCompletion()
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 100)
	}),
}, {
	ID: "bth/state/failed-qp-is-dead", Cite: ibta("", "roce/bth/state/3"),
	Run: OnPort(func(p *Port) {
		refused := p.connect(Setup{})
		refused.Send(ib.WriteOnly(refused.PeerPSN(0), refused.RETH(0, 8), Data(8)).AckReq())
		refused.expect(ib.Ack(refused.PeerPSN(0), 1))
		refused.TargetMem.Snapshot()
		refused.Send(ib.WriteOnly(refused.PeerPSN(1), refused.RETH(0, 4).Skip(-1<<40), Data(4)).AckReq())
		refused.expect(ib.Op(ib.OpAcknowledge).WithPSN(refused.PeerPSN(1)))
		put := p.connect(Setup{})
		put.ToState(put.QP, verbs.QPStateErr)
		for _, c := range []*Conn{refused, put} {
			c.AwaitState(c.QP, verbs.QPStateErr)
			for _, n := range []int{1, 0, 2, 5} {
				c.expectDropped(ib.SendOnly(c.PeerPSN(n), Data(16)).AckReq())
				c.expectDropped(ib.WriteOnly(c.PeerPSN(n), c.RETH(0, 16), Data(16)).AckReq())
				c.expectDropped(ib.ReadRequest(c.PeerPSN(n), c.RETH(0, 16)))
			}
		}
	}),
}})
