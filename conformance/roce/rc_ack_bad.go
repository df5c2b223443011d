package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var badAnswerCases = overRC.Cases([]conformance.Case{{
	ID:    "rc/ack/reserved-syndrome-is-no-success",
	Title: "An acknowledgement with a reserved syndrome completes no request successfully",
	Cite:  ibta("", "roce/rc/ack/12"), Defects: []string{"BadRespSucceeds"},
	Sends:   "to a WRITE of the device: an ACK with type bits 10, or with bit 7 set",
	Expects: "the answer is ignored, or the WRITE completes with BAD_RESP_ERR",
	Run: OnPort(onEachConn(Setup{}, []uint8{0x40, 0x5f, 0x80, 0x9f}, func(c *Conn, syndrome uint8) {
		c.expectNotSuccess(syndrome, func(s verbs.WCStatus) bool { return s == verbs.WCBadRespErr })
	})),
}, {
	ID:    "rc/ack/reserved-nak-code-is-no-success",
	Title: "A NAK with a reserved code is not treated as an ACK",
	Cite:  ibta("", "roce/rc/ack/14"), Level: conformance.Should, Defects: []string{"ReservedNAKIsAck"},
	Sends:   "to a WRITE of the device: a NAK with code 5, 16 or 31",
	Expects: "the NAK is ignored, or the WRITE completes with an error",
	Run: OnPort(onEachConn(Setup{}, []uint8{0x65, 0x70, 0x7f}, func(c *Conn, syndrome uint8) {
		c.expectNotSuccess(syndrome, func(s verbs.WCStatus) bool { return s != verbs.WCSuccess })
	})),
}, {
	ID:    "rc/ack/atomic-answer-to-a-read-is-a-bad-response",
	Title: "An atomic acknowledge for a READ completes it with BAD_RESP_ERR and fails the QP",
	Cite:  ibta("", "roce/rc/ack/13"), Defects: []string{"BadRespSucceeds"},
	Sends:   "to a READ of 8 bytes: an ATOMIC_ACKNOWLEDGE with its PSN",
	Expects: "BAD_RESP_ERR, the QP in ERR, no byte of the buffer changed",
	Run: onConn(Setup{}, func(c *Conn) {
		c.postRead(8)
		c.expect(ib.ReadRequest(c.DevicePSN(0), rdmaRemoteRETH(8)))
		c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 0x1122334455667788))
		c.ExpectCompletion(1, verbs.WCBadRespErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
		c.ExpectUnchanged(c.LocalMem, 0, 0)
	}),
}, {
	ID:    "rc/ack/middle-response-first-is-a-bad-response",
	Title: "READ responses that begin with a MIDDLE complete the READ with BAD_RESP_ERR and fail the QP",
	Cite:  ibta("", "roce/rc/ack/13"), Defects: []string{"BadRespSucceeds"},
	Sends:   "to a READ that was not repeated: a READ_RESPONSE_MIDDLE with its PSN",
	Expects: "BAD_RESP_ERR, the QP in ERR",
	Run: onConn(Setup{}, func(c *Conn) {
		c.postRead(2500)
		c.expect(ib.ReadRequest(c.DevicePSN(0), rdmaRemoteRETH(2500)))
		c.Send(ib.ReadResponseMiddle(c.DevicePSN(0), Data(MTU)))
		c.ExpectCompletion(1, verbs.WCBadRespErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}),
}, {
	ID:    "rc/ack/fatal-nak-codes-have-statuses-of-their-own",
	Title: "NAK codes 1, 2 and 3 complete the refused request with REM_INV_REQ_ERR, REM_ACCESS_ERR and REM_OP_ERR",
	Cite:  ibta("Table 63", "roce/rc/ack/15"), Defects: []string{"NAKFlushesAll"},
	Sends:   "to a WRITE of the device: a NAK with each code",
	Expects: "the status of the code",
	Run: OnPort(onEachConn(Setup{}, fatalNAKs, func(c *Conn, n nakStatus) {
		c.postWrite(1, 16)
		c.expect(ib.Op(ib.OpWriteOnly).WithPSN(c.DevicePSN(0)))
		c.Send(ib.Nak(c.DevicePSN(0), n.code, 0))
		c.ExpectCompletion(1, n.status)
	})),
}, {
	ID:    "rc/ack/fatal-nak-spares-what-came-before",
	Title: "A fatal NAK completes requests before the refused one successfully and flushes those after it",
	Cite:  ibta("Table 63", "roce/rc/ack/15"), Defects: []string{"NAKFlushesAll"},
	Sends:   "to the second of three WRITEs: a NAK for a remote access error",
	Expects: "SUCCESS, REM_ACCESS_ERR, WR_FLUSH_ERR in this order",
	Run: onConn(Setup{}, func(c *Conn) {
		for i := range 3 {
			c.postWrite(uint64(i+1), 16)
			c.expect(ib.Op(ib.OpWriteOnly).WithPSN(c.DevicePSN(i)))
		}
		c.Send(ib.Nak(c.DevicePSN(1), ib.NakRemoteAccess, 1))
		c.ExpectCompletion(1, verbs.WCSuccess)
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
	c.Send(ib.Ack(c.DevicePSN(0), 1))
	c.ExpectCompletion(1, verbs.WCSuccess)
}
