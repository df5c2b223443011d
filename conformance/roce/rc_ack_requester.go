package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var answerCases = overRC.Cases([]conformance.Case{{
	ID: "rc/ack/ack-past-a-read-repeats-the-read", Cite: ibta("", "roce/rc/ack/5"),
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
		ackPastUnanswered(c, c.ReadWR(2, 8), ib.ReadResponseOnly(c.DevicePSN(1), 2, Data(8)))
	}),
}, {
	ID: "rc/ack/ack-past-an-atomic-repeats-the-atomic", Cite: ibta("", "roce/rc/ack/5"), Needs: verbs.CapAtomics,
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
		ackPastUnanswered(c, c.fetchAddWR(2), ib.AtomicAck(c.DevicePSN(1), 2, 7))
	}),
}, {
	ID: "rc/ack/read-response-acknowledges-earlier-writes", Cite: ibta("", "roce/rc/ack/6"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 8), c.SendWR(2, 2500), c.ReadWR(3, 2500))
		c.Send(ib.ReadResponses(c.DevicePSN(4), 3, Data(2500), MTU)...)
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(2500))
	}),
}, {
	ID: "rc/ack/atomic-answer-acknowledges-earlier-sends", Cite: ibta("", "roce/rc/ack/6"), Needs: verbs.CapAtomics,
	Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.SendWR(1, 8), c.WriteWR(2, 8), c.fetchAddWR(3))
		c.completeWith(ib.AtomicAck(c.DevicePSN(2), 3, 7), 1, 2, 3)
	}),
}, {
	ID: "rc/ack/plain-ack-completes-no-read", Cite: ibta("", "roce/rc/ack/9"),
	Run: plainAckToRead,
}, {
	ID: "rc/ack/plain-ack-completes-no-atomic", Cite: ibta("", "roce/rc/ack/9"), Needs: verbs.CapAtomics,
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
		answerWithPlainAck(c, c.fetchAddWR(1), ib.AtomicAck(c.DevicePSN(0), 1, 7))
	}),
}, {
	ID: "rc/ack/old-ack-among-read-responses-ignored", Cite: ibta("", "roce/rc/ack/10"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 4), c.ReadWR(2, 2500))
		ack := ib.Ack(c.DevicePSN(0), 1)
		r := ib.ReadResponses(c.DevicePSN(1), 2, Data(2500), MTU)
		c.Send(ack, r[0], ack, r[1], ack, r[2])
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(2500))
		c.ExpectUnchanged(c.LocalMem, SinkOffset, 2500)
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}, {
	ID: "rc/ack/resent-responses-with-loss-leave-no-hole", Cite: ibta("", "roce/rc/ack/10", "roce/cq/10"),
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
		all := c.request(0, c.WriteWR(1, 4), c.ReadWR(2, 2500))
		c.expectRetransmission(all, 0) // the responses are late
		ack := ib.Ack(c.DevicePSN(0), 1)
		r := ib.ReadResponses(c.DevicePSN(1), 2, Data(2500), MTU)
		c.Send(ack, r[0], r[2])
		c.Send(ack, r[0], r[1], r[2])
		c.ExpectCompletion(1, verbs.WCSuccess)
		answerReadUntilDone(c, Data(2500))
		c.ExpectUnchanged(c.LocalMem, SinkOffset, 2500)
		c.ExpectState(c.QP, verbs.QPStateRTS)
	}),
}})

// ackPastUnanswered has the device post a WRITE, wr, a WRITE and a SEND, and acknowledges
// the last, as if only the response to wr had been lost.
func ackPastUnanswered(c *Conn, wr verbs.SendWR, answer ib.Packet) {
	all := c.request(0, c.WriteWR(1, 8), wr, c.WriteWR(3, 16), c.SendWR(4, 24))
	c.completeWith(ib.Ack(c.DevicePSN(3), 4), 1)
	c.expectNoCompletion()
	c.expectAll(all[1:])
	c.Send(answer, ib.Ack(c.DevicePSN(3), 4))
	c.ExpectCompletions(verbs.WCSuccess, 2, 3, 4)
	if len(answer.Payload) > 0 {
		c.ExpectBytes(c.LocalMem, SinkOffset, answer.Payload)
	}
}

// answerWithPlainAck answers a READ or atomic of the device with an ACK. The device may
// conclude that the response was lost, at once or when its timer expires, or report a bad
// response.
func answerWithPlainAck(c *Conn, wr verbs.SendWR, answer ib.Packet) (succeeded bool) {
	request := c.request(0, wr)
	c.Send(ib.Ack(c.DevicePSN(0), 1))
	again, ok := c.nextPacket(c.ResponseTimeout())
	if !ok {
		wc := c.NextCompletion()
		c.Check(wc.Status != verbs.WCSuccess, "a retransmission, or an error", "success")
		return false
	}
	c.checkPacket(request[0], again)
	c.ExpectNoCompletion()
	c.completeWith(answer, wr.WRID)
	return true
}

// answerReadUntilDone answers the outstanding READ, which has WR ID 2 and starts at the
// device's second PSN, whenever the device retransmits it. The case fails unless the READ
// completes with these bytes.
func answerReadUntilDone(c *Conn, all []byte) {
	for tries := 0; ; tries++ {
		if wc, ok := c.PollCompletion(shortWait); ok {
			c.Check(wc.WRID == 2 && wc.Status == verbs.WCSuccess, "the READ to complete", "request %d: %v", wc.WRID, wc.Status)
			c.ExpectBytes(c.LocalMem, SinkOffset, all)
			return
		}
		p := c.expect(ib.Op(ib.OpReadRequest))
		c.Check(tries < 8, "a READ that completes when it is answered", "%v retransmitted repeatedly", p)
		skip := p.PSN().Sub(c.DevicePSN(1)) * MTU
		c.Send(ib.ReadResponses(p.PSN(), 2, all[skip:], MTU)...)
	}
}

// plainAckToRead is the body of two cases about an ACK with the PSN of a READ.
var plainAckToRead = onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
	if answerWithPlainAck(c, c.ReadWR(1, 8), ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8))) {
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(8))
	}
})
