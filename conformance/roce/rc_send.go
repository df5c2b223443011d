package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var sendCases = overRC.Cases([]conformance.Case{{
	ID: "rc/send/too-long-for-the-receive-refused", Cite: ibta("C10-87", "roce/rc/send/1"),
	Run: OnPort(func(p *Port) {
		for _, t := range []struct{ room, length int }{{4, 8}, {1500, 2 * MTU}} {
			c := p.connect(Setup{Receives: 1, recvLen: t.room})
			packets := ib.Send(c.PeerPSN(0), Data(t.length), MTU)
			c.Send(packets...)
			c.expectNak(c.PeerPSN(len(packets)-1), ib.NakInvalidRequest)
			c.ExpectCompletion(1, verbs.WCLocLenErr)
			c.ExpectUnchanged(c.LocalMem, 0, t.room)
		}
	}),
}, {
	ID: "rc/send/bad-key-of-a-receive-is-an-operational-error", Cite: ibta("error class A", "roce/rc/send/2"),
	Run: OnPort(onEachConn(Setup{}, badReceives, func(c *Conn, r badBuffer) {
		c.sendInto(r)
		c.expectNak(c.PeerPSN(0), ib.NakRemoteOp)
	})),
}, {
	ID: "rc/send/bad-key-of-a-receive-is-a-protection-error-here", Cite: ibta("error class A", "roce/rc/send/2"),
	Run: OnPort(onEachConn(Setup{}, badReceives, func(c *Conn, r badBuffer) {
		c.sendInto(r)
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		c.ExpectUnchanged(c.LocalMem, 0, 0)
	})),
}, {
	ID:   "rc/send/srq-receive-of-another-domain-refused",
	Cite: ibta("error class A", "roce/rc/send/2"), Needs: verbs.CapSRQ,
	Run: OnPort(func(p *Port) {
		srq := p.newSRQ(p.PD)
		c := p.connect(Setup{srq: srq})
		foreign := c.otherPDMemory(verbs.AccessLocalWrite)
		c.PostRecv(srq, 1, foreign.SGE(0, 64))
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq())
		c.expectNak(c.PeerPSN(0), ib.NakRemoteOp)
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		c.ExpectUnchanged(foreign, 0, 0)
	}),
}, {
	ID: "rc/send/shorter-message-leaves-the-rest-alone", Cite: ibta("", "roce/rc/send/3"),
	Run: onConn(Setup{Receives: 5, recvLen: 1500}, func(c *Conn) {
		next := 0
		for i, n := range []int{1, 2, 3, 4, MTU + 5} {
			packets := ib.Send(c.PeerPSN(next), Data(n), MTU)
			next += len(packets)
			c.Send(packets...)
			c.ExpectRecv(uint64(i+1), n)
			c.ExpectBytes(c.LocalMem, 1500*i, Data(n))
			c.ExpectUnchanged(c.LocalMem, 1500*i, n)
			c.LocalMem.Snapshot()
		}
	}),
}, {
	ID: "rc/send/empty-message-completes-a-receive", Cite: ibta("", "roce/rc/send/4"),
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.PostRecv(c.QP, 2)
		for i := range 2 {
			c.Send(ib.SendOnly(c.PeerPSN(i), nil).AckReq())
			c.expectAck(c.PeerPSN(i))
			c.ExpectRecv(uint64(i+1), 0)
		}
		c.ExpectUnchanged(c.LocalMem, 0, 0)
	}),
}})

// badReceives are receive buffers that the device must not write to.
var badReceives = []badBuffer{
	{"a key that does not exist", func(c *Conn) verbs.SGE {
		return verbs.SGE{Addr: c.LocalMem.Addr(), Length: 64, LKey: verbs.LKey(unknownKey(verbs.RKey(c.LocalMem.LKey())))}
	}},
	{"memory of another PD", func(c *Conn) verbs.SGE { return c.otherPDMemory(verbs.AccessLocalWrite).SGE(0, 64) }},
}

// sendInto posts a receive with this buffer, and sends a SEND to it.
func (c *Conn) sendInto(r badBuffer) {
	c.PostRecv(c.QP, 1, r.buffer(c))
	c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq())
}
