package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// expectPlacedInOrder sends the three segments of a Write in the given order, and fails the
// case unless all of them are placed.
func (c *conn) expectPlacedInOrder(order ...int) {
	const piece = 32
	b := data(3 * piece)
	for i, k := range order {
		c.send(c.peerWrite(k*piece, b[k*piece:][:piece]).Last(i == len(order)-1))
	}
	c.sync()
	c.ExpectBytes(c.targetMem, 0, b)
	c.ExpectUnchanged(c.targetMem, 0, len(b))
}

var ddpOrderCases = []conformance.Case{{
	ID: "ddp/order/sent-as-posted", Cite: cite("rfc5041/5.3/1", "rfc5040/5.5/4"),
	Title:   "Messages are sent in the order in which they were posted, whatever their kind",
	Sends:   "nothing: the application posts a Write, a Read, a Send, a Write and a Send at once",
	Expects: "the five in that order",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 0, 16), c.readWR(2, 64, 16), c.sendWR(3, 0, 20), c.writeWR(4, 0, 24), c.sendWR(5, 0, 28))
		c.expect(iwarp.Op(iwarp.OpWrite).Length(16))
		c.expect(iwarp.Op(iwarp.OpReadRequest))
		c.expect(iwarp.Op(iwarp.OpSend).Length(20))
		c.expect(iwarp.Op(iwarp.OpWrite).Length(24))
		c.expect(iwarp.Op(iwarp.OpSend).Length(28))
	}),
}, {
	ID: "ddp/order/ascending-within-a-message", Cite: cite("rfc5041/5.3/2"), Level: conformance.Should,
	Title:   "The segments of a message are sent from its beginning on",
	Sends:   "nothing: the device sends and writes messages of several segments",
	Expects: "offsets that only grow",
	Defects: []string{"TailFirst"}, Run: onLongMessages(func(c *conn) {
		grows := func(offset func(iwarp.ReceivedFPDU) uint64) {
			segments := c.nextPayload(c.longLen())
			for i, g := range segments[1:] {
				c.Check(offset(segments[i]) < offset(g), fmt.Sprintf("an offset above %d", offset(segments[i])), "%d", offset(g))
			}
		}
		c.PostSend(c.qp, c.sendWR(1, 0, c.longLen()), c.writeWR(2, 0, c.longLen()))
		grows(func(g iwarp.ReceivedFPDU) uint64 { return uint64(iwarp.Val(g.DDP.MO)) })
		grows(func(g iwarp.ReceivedFPDU) uint64 { return iwarp.Val(g.DDP.TO) })
	}),
}, {
	ID: "ddp/order/delivered-once", Cite: cite("rfc5041/5.3/3"),
	Title:   "A message is delivered once",
	Sends:   "two Sends, one after the other",
	Expects: "one receive for each, the other receives stay posted",
	Defects: []string{"DeliversTwice"}, Run: onConn(func(c *conn) {
		for i, n := range []int{16, 32} {
			c.expectSendDelivered(uint64(i+1), n)
			c.sync()
			c.ExpectNoCompletion()
		}
		c.ExpectUnchanged(c.localMem, 0, 128)
	}),
}, {
	ID: "ddp/order/delivered-as-sent", Cite: cite("rfc5041/5.3/4", "rfc5040/5.3/5", "rfc5040/5.5/1"),
	Title:   "Messages are delivered in the order in which they were sent, whatever their length",
	Sends:   "ten Sends of different lengths, every other one in several segments",
	Expects: "ten receives in that order",
	Defects: []string{"LongDeliveredLate"}, Run: onSetup(setup{receives: 10}, func(c *conn) {
		lengths := []int{64, 0, 48, 4, 60, 16, 32, 8, 40, 12}
		for _, n := range lengths {
			c.sendSegments(iwarp.Send(c.nextSendMSN(), data(n)).Segments(18 + 16))
		}
		for i, n := range lengths {
			c.ExpectRecv(uint64(i+1), n)
			c.ExpectBytes(c.localMem, i*64, data(n))
		}
	}),
}, {
	ID: "ddp/order/write-from-the-end-is-placed", Cite: cite("rfc5041/5.3/5"), Level: conformance.Should,
	Title:   "A Write whose last segment arrives first is placed",
	Sends:   "the three segments of a Write in reverse order",
	Expects: "each is placed at its offset",
	Defects: []string{"TaggedInOrder"}, Run: onConn(func(c *conn) { c.expectPlacedInOrder(2, 1, 0) }),
}, {
	ID: "ddp/order/write-with-a-gap-is-placed", Cite: cite("rfc5041/5.3/5"), Level: conformance.Should,
	Title:   "A Write whose segments leave a gap and fill it later is placed",
	Sends:   "the first, the third and then the second segment of a Write",
	Expects: "each is placed at its offset",
	Defects: []string{"TaggedInOrder"}, Run: onConn(func(c *conn) { c.expectPlacedInOrder(0, 2, 1) }),
}, {
	ID: "ddp/order/read-request-waits-for-its-end", Cite: cite("rfc5041/5.4/1"),
	Title:   "A Read Request without L is not executed",
	Sends:   "a Read Request with L clear",
	Expects: "no Read Response; the device may end the stream",
	Defects: []string{"DeliversFirstSegment"}, Run: onConn(func(c *conn) {
		c.send(c.peerRead(0, 16).Last(false))
		c.expectNoResponse()
	}),
}, {
	ID: "ddp/order/length-of-what-was-delivered", Cite: cite("rfc5041/5.4/2", "rfc5040/5.3/3"),
	Title:   "The completion of a receive has the length of its message",
	Sends:   "Sends of 0, 3 and 16 octets to receives of 64",
	Expects: "receives of 0, 3 and 16 octets, and no further octet changed",
	Defects: []string{"BufferSizeReported"}, Run: onConn(func(c *conn) {
		for i, n := range []int{0, 3, 16} {
			c.expectSendDelivered(uint64(i+1), n)
			c.ExpectBytes(c.localMem, i*64, data(n))
			c.ExpectUnchanged(c.localMem, i*64, n)
			c.localMem.Snapshot()
		}
	}),
}}
