package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

var msnCases = overRC.Cases([]conformance.Case{{
	ID: "rc/msn/first-message-counts-one", Cite: ibta("C9-148", "roce/rc/msn/1"),
	Run: OnPort(func(p *Port) {
		ops := []ib.Opcode{ib.OpSendOnly, ib.OpWriteOnly, ib.OpSendOnlyImm, ib.OpWriteOnlyImm}
		for i := range ops {
			c := p.connect(Setup{Receives: 4})
			for k := range ops {
				c.exchange(packetOf(c, ops[(i+k)%len(ops)], k), ib.Ack(c.PeerPSN(k), uint32(k+1)))
			}
		}
	}),
}, {
	ID: "rc/msn/duplicates-do-not-count", Cite: ibta("C9-148", "roce/rc/msn/2"),
	Run: onRC(func(c *Conn) {
		send := ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq()
		read := ib.ReadRequest(c.PeerPSN(1), c.RETH(0, 16)).AckReq()
		c.exchange(send, ib.Ack(c.PeerPSN(0), 1))
		c.exchange(read, ib.ReadResponseOnly(c.PeerPSN(1), 2, nil))
		c.exchange(send, ib.Ack(ib.AnyPSN, 2))
		c.exchange(read, ib.ReadResponseOnly(c.PeerPSN(1), 2, nil))
		c.exchange(ib.SendOnly(c.PeerPSN(2), Data(16)).AckReq(), ib.Ack(c.PeerPSN(2), 3))
	}),
}, {
	ID: "rc/msn/read-counted-by-its-last-response", Cite: ibta("C9-148", "roce/rc/msn/3"),
	Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)))
		c.drain()
		c.Send(ib.ReadRequest(c.PeerPSN(1), c.RETH(0, 2500)).AckReq())
		first := c.expect(ib.ReadResponseFirst(c.PeerPSN(1), ib.AnyMSN, nil))
		c.Check(first.MSN() == 1 || first.MSN() == 2, "MSN 1 or 2 in the first response", "%d", first.MSN())
		c.expect(ib.ReadResponseMiddle(c.PeerPSN(2), nil))
		c.expect(ib.ReadResponseLast(c.PeerPSN(3), 2, nil))
		c.exchange(ib.ReadRequest(c.PeerPSN(4), c.RETH(0, 16)).AckReq(), ib.ReadResponseOnly(c.PeerPSN(4), 3, nil))
	}),
}, {
	ID: "rc/msn/message-of-many-packets-counts-once", Cite: ibta("C9-148", "roce/rc/msn/4"),
	Run: onConn(Setup{Receives: 1, recvLen: 4096}, func(c *Conn) {
		messages := [][]ib.Packet{
			ib.Send(c.PeerPSN(0), Data(2500), MTU),
			ib.Write(c.PeerPSN(3), c.RETH(0, 0), Data(2500), MTU),
		}
		for done, parts := range messages {
			for i, part := range parts {
				c.exchange(part.AckReq(), ib.Ack(part.PSN(), uint32(done+i/2)))
			}
		}
	}),
}, {
	ID: "rc/msn/naks-carry-the-count-reached", Cite: ibta("", "roce/rc/msn/5"),
	Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.exchange(ib.SendOnly(c.PeerPSN(0), Data(8)).AckReq(), ib.Ack(c.PeerPSN(0), ib.AnyMSN))
		c.exchange(ib.SendOnly(c.PeerPSN(1), Data(8)).AckReq(), ib.Ack(c.PeerPSN(1), ib.AnyMSN))
		c.Send(ib.SendOnly(c.PeerPSN(4), Data(8)).AckReq())
		c.expectIgnoringCNPs(ib.Nak(c.PeerPSN(2), ib.NakSequence, 2))
		for range 2 {
			c.Send(ib.SendOnly(c.PeerPSN(2), Data(8)).AckReq())
			c.expectIgnoringCNPs(anyRNRNak(c.PeerPSN(2)).WithMSN(2))
		}
		c.Send(ib.WriteOnly(c.PeerPSN(2), ib.At(c.TargetMem.Addr(), ^uint32(c.TargetMem.RKey()), 8), Data(8)).AckReq())
		c.expect(anyNak(c.PeerPSN(2), 2))
	}),
}})
