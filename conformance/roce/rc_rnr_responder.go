package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var rnrCases = overRC.Cases([]conformance.Case{{
	ID: "rc/rnr/send-without-receive-refused", Cite: ibta("error class B", "roce/rc/rnr/1", "roce/rc/psn/11"),
	Run: rnrNakBody(ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpSendFirst),
}, {
	ID:   "rc/rnr/write-with-immediate-without-receive-refused",
	Cite: ibta("error class B", "roce/rc/rnr/1", "roce/rc/psn/11"),
	Run:  rnrNakBody(ib.OpWriteOnlyImm),
}, {
	ID: "rc/rnr/nak-carries-the-configured-timer", Cite: ibta("error class B", "roce/rc/rnr/1", "roce/rc/rnr/11"),
	Run: OnPort(func(p *Port) {
		for _, code := range []uint8{0, 1, 12, 25, 31} {
			c := p.connect(Setup{Modify: func(a *verbs.QPAttr) { a.MinRNRTimer = code }})
			c.exchange(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq(), ib.RNR(c.PeerPSN(0), code, ib.AnyMSN))
		}
	}),
}, {
	ID: "rc/rnr/refused-write-leaves-no-trace", Cite: ibta("error class B", "roce/rc/rnr/2"),
	Run: onConn(Setup{}, func(c *Conn) {
		write := ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 64), 7, Data(64)).AckReq()
		c.exchange(write, anyRNRNak(c.PeerPSN(0)).WithMSN(0))
		c.Sync()
		c.ExpectUnchanged(c.TargetMem, 0, 0)
		c.ExpectNoCompletion()
		c.PostRecv(c.QP, 1)
		c.exchange(write, ib.Ack(c.PeerPSN(0), 1))
		c.ExpectRecv(1, 64)
		c.ExpectBytes(c.TargetMem, 0, Data(64))
	}),
}, {
	ID: "rc/rnr/long-write-goes-on-at-the-refused-packet", Cite: ibta("", "roce/rc/rnr/3"),
	Run: onConn(Setup{}, func(c *Conn) {
		parts := ib.Write(c.PeerPSN(0), c.RETH(0, 0), Data(2500), MTU)
		last := ib.WriteLastImm(c.PeerPSN(2), 7, parts[2].Payload).AckReq()
		c.Send(parts[:2]...)
		c.drain()
		c.exchange(last, anyRNRNak(c.PeerPSN(2)))
		c.PostRecv(c.QP, 1)
		c.exchange(last, ib.Ack(c.PeerPSN(2), ib.AnyMSN))
		c.ExpectRecv(1, 2500)
		c.ExpectBytes(c.TargetMem, 0, Data(2500))
	}),
}, {
	ID: "rc/rnr/no-sequence-nak-behind-it", Cite: ibta("", "roce/rc/rnr/4"), Level: conformance.Should,
	Run: onConn(Setup{}, func(c *Conn) {
		for k := range 3 {
			c.Send(ib.SendOnly(c.PeerPSN(k), Data(16)).AckReq())
		}
		c.expect(anyRNRNak(c.PeerPSN(0)))
		c.expectSilence(silencePeriod)
	}),
}})

// anyRNRNak matches an RNR NAK with any timer code.
func anyRNRNak(psn ib.PSN) ib.Packet {
	p := ib.RNR(psn, 0, ib.AnyMSN)
	p.AETH.Value = nil
	return p
}

// rnrNakBody makes the body of a case that sends each opcode after a WRITE to a queue
// pair without receives, and expects an RNR NAK.
func rnrNakBody(ops ...ib.Opcode) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		for _, op := range ops {
			c := p.connect(Setup{})
			c.exchange(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 8), Data(8)).AckReq(), ib.Ack(c.PeerPSN(0), ib.AnyMSN))
			c.exchange(packetOf(c, op, 1), anyRNRNak(c.PeerPSN(1)))
			c.ExpectState(c.QP, verbs.QPStateRTS)
		}
	})
}
