package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var badAnswerCases = overRC.Cases([]conformance.Case{{
	ID: "rc/ack/reserved-syndrome-is-no-success", Cite: ibta("", "roce/rc/ack/12"),
	Run: OnPort(onEachConn(Setup{}, []uint8{0x40, 0x5f, 0x80, 0x9f}, func(c *Conn, syndrome uint8) {
		c.expectNotSuccess(syndrome, func(s verbs.WCStatus) bool { return s == verbs.WCBadRespErr })
	})),
}, {
	ID: "rc/ack/reserved-nak-code-is-no-success", Cite: ibta("", "roce/rc/ack/14"), Level: conformance.Should,
	Run: OnPort(onEachConn(Setup{}, []uint8{0x65, 0x70, 0x7f}, func(c *Conn, syndrome uint8) {
		c.expectNotSuccess(syndrome, func(s verbs.WCStatus) bool { return s != verbs.WCSuccess })
	})),
}, {
	ID: "rc/ack/atomic-answer-to-a-read-is-a-bad-response", Cite: ibta("", "roce/rc/ack/13"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.postRead(8)
		c.expect(ib.ReadRequest(c.DevicePSN(0), rdmaRemoteRETH(8)))
		c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 0x1122334455667788))
		c.ExpectCompletion(1, verbs.WCBadRespErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
		c.ExpectUnchanged(c.LocalMem, 0, 0)
	}),
}, {
	ID: "rc/ack/middle-response-first-is-a-bad-response", Cite: ibta("", "roce/rc/ack/13"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.postRead(2500)
		c.expect(ib.ReadRequest(c.DevicePSN(0), rdmaRemoteRETH(2500)))
		c.Send(ib.ReadResponseMiddle(c.DevicePSN(0), Data(MTU)))
		c.ExpectCompletion(1, verbs.WCBadRespErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID: "rc/ack/fatal-nak-codes-have-statuses-of-their-own", Cite: ibta("Table 63", "roce/rc/ack/15"),
	Run: OnPort(onEachConn(Setup{}, fatalNAKs, func(c *Conn, n nakStatus) {
		c.postWrite(1, 16)
		c.expect(ib.Op(ib.OpWriteOnly).WithPSN(c.DevicePSN(0)))
		c.Send(ib.Nak(c.DevicePSN(0), n.code, 0))
		c.ExpectCompletion(1, n.status)
	})),
}, {
	ID: "rc/ack/fatal-nak-spares-what-came-before", Cite: ibta("Table 63", "roce/rc/ack/15"),
	Run: onConn(Setup{}, func(c *Conn) {
		for i := range 3 {
			c.postWrite(uint64(i+1), 16)
			c.expect(ib.Op(ib.OpWriteOnly).WithPSN(c.DevicePSN(i)))
		}
		c.completeWith(ib.Nak(c.DevicePSN(1), ib.NakRemoteAccess, 1), 1)
		c.ExpectCompletion(2, verbs.WCRemAccessErr)
		c.ExpectCompletion(3, verbs.WCWRFlushErr)
	}),
}})

// nakStatus is a NAK code and the completion status that it causes.
type nakStatus struct {
	code   ib.NakCode
	status verbs.WCStatus
}

var fatalNAKs = []nakStatus{
	{ib.NakInvalidRequest, verbs.WCRemInvReqErr},
	{ib.NakRemoteAccess, verbs.WCRemAccessErr},
	{ib.NakRemoteOp, verbs.WCRemOpErr},
}

// expectNotSuccess answers a WRITE of the device with this syndrome. The device may
// complete the WRITE with a status that fits, or ignore the packet; then an ACK must
// complete it.
func (c *Conn) expectNotSuccess(syndrome uint8, fits func(verbs.WCStatus) bool) {
	c.postWrite(1, 16)
	c.expect(ib.Op(ib.OpWriteOnly).WithPSN(c.DevicePSN(0)))
	c.Send(ib.Ack(c.DevicePSN(0), 1).WithSyndrome(syndrome))
	c.Sync()
	if wc, ok := c.PollCompletion(0); ok {
		c.Check(fits(wc.Status), "a response that is ignored, or an error", "%s", rig.Describe(&wc))
		return
	}
	c.completeWith(ib.Ack(c.DevicePSN(0), 1), 1)
}
