package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var ackCases = overRC.Cases([]conformance.Case{{
	ID: "rc/ack/asked-for-is-sent", Cite: ibta("9.7.5", "roce/rc/ack/1"),
	Run: onConn(Setup{Receives: 7, recvLen: 2048}, func(c *Conn) {
		ops := []ib.Opcode{
			ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpSendFirst, ib.OpSendLast, ib.OpSendFirst, ib.OpSendLastImm,
			ib.OpWriteOnly, ib.OpWriteOnlyImm, ib.OpWriteFirst, ib.OpWriteLast, ib.OpWriteFirst, ib.OpWriteLastImm,
		}
		for k, op := range ops {
			c.exchange(packetOf(c, op, k), ib.Ack(c.PeerPSN(k), ib.AnyMSN))
		}
		k := len(ops)
		c.exchange(ib.SendOnly(c.PeerPSN(k), nil).AckReq(), ib.Ack(c.PeerPSN(k), ib.AnyMSN))
		c.exchange(ib.WriteOnly(c.PeerPSN(k+1), c.RETH(0, 0), nil).AckReq(), ib.Ack(c.PeerPSN(k+1), ib.AnyMSN))
	}),
}, {
	ID: "rc/ack/not-asked-for-may-be-left-out", Cite: ibta("9.7.5", "roce/rc/ack/2"), Level: conformance.May,
	Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)))
		c.expectOptionalAcks(0, 1)
		c.Send(ib.WriteOnly(c.PeerPSN(1), c.RETH(0, 16), Data(16)))
		c.expectOptionalAcks(1, 2)
		c.exchange(ib.SendOnly(c.PeerPSN(2), Data(16)).AckReq(), ib.Ack(c.PeerPSN(2), 3))
		c.ExpectRecv(1, 16)
		c.ExpectRecv(2, 16)
		c.ExpectBytes(c.TargetMem, 0, Data(16))
	}),
}, {
	ID: "rc/ack/read-answered-unasked", Cite: ibta("9.7.5", "roce/rc/ack/3"),
	Run: onRC(func(c *Conn) {
		c.Send(ib.ReadRequest(c.PeerPSN(0), c.RETH(0, 2500)).NoAckReq())
		c.expectAll(ib.ReadResponses(c.PeerPSN(0), ib.AnyMSN, c.TargetMem.Buf[:2500], MTU))
		c.Send(ib.ReadRequest(c.PeerPSN(3), c.RETH(0, 64)).AckReq())
		c.expect(ib.ReadResponseOnly(c.PeerPSN(3), ib.AnyMSN, c.TargetMem.Buf[:64]))
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/ack/atomic-answered-unasked", Cite: ibta("9.7.5", "roce/rc/ack/3"), Needs: verbs.CapAtomics,
	Run: onRC(func(c *Conn) {
		c.Send(ib.FetchAdd(c.PeerPSN(0), c.RETH(0, 8), 1).NoAckReq())
		c.expect(ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(0)))
		c.Send(ib.CompareSwap(c.PeerPSN(1), c.RETH(0, 8), 1, 2).NoAckReq())
		c.expect(ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(1)))
		c.Send(ib.FetchAdd(c.PeerPSN(2), c.RETH(0, 8), 1).AckReq())
		c.expect(ib.Op(ib.OpAtomicAcknowledge).WithPSN(c.PeerPSN(2)))
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/ack/ack-waits-for-earlier-read-responses", Cite: ibta("", "roce/rc/ack/11"),
	Run: onConn(Setup{Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }}, func(c *Conn) {
		for i := range 2 {
			first := c.PeerPSN(65 * i)
			c.Send(
				ib.ReadRequest(first, c.RETH(0, memLen)).AckReq(),
				ib.WriteOnly(first.Add(64), c.RETH(0, 0), nil).AckReq(),
			)
			c.expectAll(ib.ReadResponses(first, ib.AnyMSN, c.TargetMem.Buf, 256))
			c.expect(ib.Ack(first.Add(64), ib.AnyMSN))
			c.throttle()
		}
	}),
}, {
	ID: "rc/ack/requester-asks-at-the-end-of-a-message", Cite: ibta("", "roce/rc/ack/8"),
	Run: onConn(Setup{}, func(c *Conn) {
		k := 0
		for i, n := range []int{16, 2500, 0} {
			for j, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSendImm, verbs.OpRDMAWriteImm} {
				// Post one message at a time: the last of several may request the ACK
				// for all.
				wr := c.WriteWR(1, n)
				wr.Opcode = op
				c.PostSend(c.QP, wr)
				k += ib.Packets(n, MTU)
				all := c.nextPackets(ib.Packets(n, MTU))
				last := all[len(all)-1]
				c.Check(last.HasAckReq(), "AckReq in the last packet of the message", "%v", last)
				c.completeWith(ib.Ack(c.DevicePSN(k-1), uint32(4*i+j+1)), 1)
			}
		}
	}),
}, {
	ID: "rc/ack/one-ack-covers-all-before-it", Cite: ibta("9.7.5.1.2", "roce/rc/ack/4"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8), c.WriteWR(2, 2500), c.SendWR(3, 0), c.WriteWR(4, 8))
		c.completeWith(ib.Ack(c.DevicePSN(5), 4), 1, 2, 3, 4)
	}),
}, {
	ID: "rc/ack/ack-inside-a-message-completes-nothing", Cite: ibta("", "roce/rc/ack/7"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8), c.WriteWR(2, 5000))
		c.completeWith(ib.Ack(c.DevicePSN(1), 1), 1)
		for k := 2; k <= 4; k++ {
			c.Send(ib.Ack(c.DevicePSN(k), 1))
			c.expectNoCompletion()
		}
		c.completeWith(ib.Ack(c.DevicePSN(5), 2), 2)
	}),
}})

// expectOptionalAcks fails the case if the device answers packets without AckReq, the
// last of which is the peer's k-th, by anything but correct ACKs.
func (c *Conn) expectOptionalAcks(k int, msn uint32) {
	for _, p := range c.drain() {
		if p.DestQP() == peerQPN {
			c.checkPacket(ib.Ack(c.PeerPSN(k), msn), p)
		}
	}
}
