package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Verbs have no capability for immediate data over iWARP: a device that accepts it supports it.

// writeImmWR returns a work request for the device: a Write with immediate data.
func (c *conn) writeImmWR(id uint64, off, n int, imm uint32) verbs.SendWR {
	wr := c.writeWR(id, off, n)
	wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, imm
	return wr
}

// onImmediate makes the body of a case from a function for devices with immediate data. On another
// connection it tries a Write with immediate data first; if the device says that it does not
// support that, the verdict is unsupported.
func onImmediate(body func(*conn)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		if err := h.immediateError(); err != nil {
			rig.Abort(fmt.Errorf("immediate data: %w: %w", err, conformance.ErrBenchCannot))
		}
		body(h.connect(setup{receives: 4}))
	})
}

// doubled returns 8 octets of immediate data with equal halves: verbs have 4 octets, and no RFC
// specifies which half they are.
func doubled(half uint32) uint64 { return uint64(half)<<32 | uint64(half) }

// expectRecvImm expects the completion of receive id, with the immediate data.
func (c *conn) expectRecvImm(id uint64, half uint32) {
	wc := c.ExpectCompletion(id, verbs.WCSuccess)
	c.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == half, fmt.Sprintf("receive %d with the immediate data %#x", id, half), "%s", rig.Describe(&wc))
}

var rdmapxImmediateCases = []conformance.Case{{
	ID: "rdmapx/immediate/takes-a-receive-and-a-number", Cite: cite("rfc7306/6.3/1"),
	Title:   "Immediate data consumes a receive, and an MSN of queue 0",
	Sends:   "a Send, immediate data and a Send, with consecutive MSNs",
	Expects: "three receives, the second with the data",
	Defects: []string{"ImmediateTakesNoReceive"}, Run: onImmediate(func(c *conn) {
		c.send(iwarp.Send(c.nextSendMSN(), data(16)))
		c.send(iwarp.Immediate(c.nextSendMSN(), doubled(0xfeedf00d)))
		c.send(iwarp.Send(c.nextSendMSN(), data(32)))
		c.ExpectRecv(1, 16)
		c.expectRecvImm(2, 0xfeedf00d)
		c.ExpectRecv(3, 32)
		c.ExpectBytes(c.localMem, 128, data(32))
	}),
}, {
	ID: "rdmapx/immediate/number-is-checked", Cite: cite("rfc7306/8.2/1", "rfc5041/7.1/5"),
	Title:   "Immediate data with another MSN than the next is refused",
	Sends:   "immediate data with the MSN after the next, with that before, and with one far away",
	Expects: "a Terminate: MSN out of range, and no receive",
	Defects: []string{"AnswerNumberUnchecked"}, Run: onImmediate(func(c *conn) {
		number := func(ahead uint32) func(*conn) iwarp.Segment {
			return func(c *conn) iwarp.Segment { return iwarp.Immediate(c.nextSendMSN()+ahead, doubled(7)) }
		}
		c.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedMSNRange}, number(1), number(0xffffffff), number(0x80000000))
	}),
}, {
	ID: "rdmapx/immediate/no-receive", Cite: cite("rfc7306/6.3/1", "rfc5041/7.1/2"),
	Title:   "Immediate data without a posted receive ends the stream",
	Sends:   "immediate data, with and without solicited event, without a posted receive",
	Expects: "a Terminate: no buffer",
	Defects: []string{"ImmediateDropped"}, Run: onImmediate(func(first *conn) {
		for _, immediate := range []func(uint32, uint64) iwarp.Segment{iwarp.Immediate, iwarp.ImmediateSE} {
			c := first.connect(setup{receives: 1})
			c.send(iwarp.Immediate(c.nextSendMSN(), doubled(1)))
			c.expectRecvImm(1, 1)
			c.expectRefusal(immediate(c.nextSendMSN(), doubled(2)), iwarp.DDPUntaggedNoBuffer)
		}
	}),
}, {
	ID: "rdmapx/immediate/eight-octets", Cite: cite("rfc7306/6.3/2", "rfc7306/4.1/1"),
	Title:   "Immediate data is sent as eight octets",
	Sends:   "nothing: the application writes with immediate data, without and with solicited event",
	Expects: "a Write, and a message to queue 0 with eight octets that contain the data, of opcode 8 and 9",
	Defects: []string{"ImmediateOfFour"}, Run: onImmediate(func(c *conn) {
		c.expectSent(c.writeImmWR(1, 0, 16, 0xfeedf00d), iwarp.Write(peerSTag, peerTO, c.localMem.Buf[:16]))
		g := c.nextFPDUs(1)[0]
		c.Check(g.Op() == iwarp.OpImmediate && len(g.ULPDU) == ddpUntaggedLen+8, "IMMEDIATE in a ULPDU of 26 octets", "%v in one of %d", g, len(g.ULPDU))
		c.expectHeaderOctets(g, untaggedHeaderOctets(0x41, 0x48, 0, 0))
		v := iwarp.Val(g.Immediate.Value)
		c.Check(uint32(v) == 0xfeedf00d || uint32(v>>32) == 0xfeedf00d, "feedf00d in one half of the data", "%#x", v)
		c.expectSent(solicited(c.writeImmWR(1, 0, 16, 0xfeedf00d)), iwarp.Op(iwarp.OpWrite))
		c.expect(iwarp.Op(iwarp.OpImmediateSE).QN(0).MSN(2).MO(0).Last(true).ULPDULength(ddpUntaggedLen + 8))
	}),
}, {
	ID: "rdmapx/immediate/other-lengths-are-refused", Cite: cite("rfc7306/6.3/3"),
	Title:   "Immediate data of other than eight octets ends the stream",
	Sends:   "immediate data, with and without solicited event, of 0, 4, 7, 9, 12 and 16 octets, and of 9 in two segments",
	Expects: "the end of the stream, with any Terminate, and no receive",
	Defects: []string{"ImmediateAnyLength", "LongInPartsTaken"}, Run: onImmediate(func(first *conn) {
		for _, op := range []iwarp.Opcode{iwarp.OpImmediate, iwarp.OpImmediateSE} {
			for _, n := range []int{0, 4, 7, 9, 12, 16} {
				c := first.connect(setup{receives: 2})
				c.expectAbortBy(iwarp.Op(op).MSN(c.nextSendMSN()).WithPayload(data(n)))
				c.ExpectNoSuccess()
			}
			c := first.connect(setup{receives: 2})
			c.expectAbortByLong(iwarp.Immediate(c.nextSendMSN(), 7).Opcode(op))
			c.ExpectNoSuccess()
		}
	}),
}, {
	ID: "rdmapx/immediate/in-order-with-sends", Cite: cite("rfc7306/6.3/4"),
	Title:   "Immediate data and Sends are sent in the order of posting",
	Sends:   "nothing: the application posts a Send, a Write with immediate data, and a Send, at once",
	Expects: "a Send, a Write, immediate data and a Send, the untagged ones with MSNs 1 to 3",
	Defects: []string{"LIFOQueue"}, Run: onImmediate(func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, 16), c.writeImmWR(2, 16, 16, 7), c.sendWR(3, 32, 16))
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
		c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[16:32]))
		c.expect(iwarp.Op(iwarp.OpImmediate).QN(0).MSN(2))
		c.expect(iwarp.Send(3, c.localMem.Buf[32:48]))
	}),
}, {
	ID: "rdmapx/immediate/delivered-in-order-with-sends", Cite: cite("rfc7306/6.3/4", "rfc7306/6.3/1"),
	Title:   "Immediate data and Sends are delivered in the order of arrival",
	Sends:   "a Send of several segments, immediate data, a Send of several segments and a short one",
	Expects: "four receives in that order",
	Defects: []string{"LongDeliveredLate"}, Run: onImmediate(func(c *conn) {
		long := func() { c.send(iwarp.Send(c.nextSendMSN(), data(64)).Segments(18 + 16)...) }
		long()
		c.send(iwarp.Immediate(c.nextSendMSN(), doubled(1)))
		long()
		c.send(iwarp.Send(c.nextSendMSN(), data(16)))
		c.ExpectRecv(1, 64)
		c.expectRecvImm(2, 1)
		c.ExpectRecv(3, 64)
		c.ExpectRecv(4, 16)
	}),
}, {
	ID: "rdmapx/immediate/waits-for-the-write", Cite: cite("rfc7306/6.4/1"),
	Title:   "Immediate data is delivered when the Write before it has been placed",
	Sends:   "Writes of several segments, and immediate data after each, at once",
	Expects: "all octets of a Write in the memory when its receive completes",
	Defects: []string{"WritesPlacedLate"}, Run: onImmediate(func(c *conn) {
		for i := range 4 {
			c.sendCoalesced(append(c.peerWrite(2048*i, data(2000)).Segments(14+400), iwarp.Immediate(c.nextSendMSN(), doubled(uint32(i))))...)
			c.expectRecvImm(uint64(i+1), uint32(i))
			c.ExpectBytes(c.targetMem, 2048*i, data(2000))
		}
	}),
}, {
	ID: "rdmapx/immediate/solicited-raises-an-event", Cite: cite("rfc7306/6.3/1", "rfc5040/5.3/6"),
	Level:   conformance.May,
	Title:   "Immediate data raises an event only with solicited event",
	Sends:   "immediate data, and immediate data with solicited event, to an application that waits for solicited events",
	Expects: "no event for the first, and one for the second",
	Defects: []string{"NeverSolicited"}, Run: onImmediate(func(first *conn) {
		c, ch := first.connectArmed()
		c.send(iwarp.Immediate(c.nextSendMSN(), doubled(1)))
		c.expectRecvImm(1, 1)
		c.syncByRead()
		c.expectNoCQEvent(ch)
		c.send(iwarp.ImmediateSE(c.nextSendMSN(), doubled(2)))
		c.expectCQEvent(ch)
		c.expectRecvImm(2, 2)
	}),
}}
