package iwarp

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// useCompChannel makes later queue pairs use a completion queue with a completion channel.
func (h *host) useCompChannel() verbs.CompChannel {
	ch, err := h.Device.CreateCompChannel()
	h.Must("a completion channel", err)
	h.CQ, err = h.Device.CreateCQ(verbs.CQInit{Depth: 64, Channel: ch})
	h.Must("a completion queue with a channel", err)
	return ch
}

// armCQ requests a notification for the next solicited completion.
func (h *host) armCQ() { h.Must("a completion queue that can be armed", h.CQ.ReqNotify(true)) }

// expectCQEvent fails the case unless the completion queue raises an event.
func (h *host) expectCQEvent(ch verbs.CompChannel) {
	_, err := ch.Wait(h.ResponseTimeout())
	h.Check(err == nil, "an event of the completion queue", "%v", fmt.Sprint(err))
}

// expectNoCQEvent fails the case if the completion queue has raised an event.
func (h *host) expectNoCQEvent(ch verbs.CompChannel) {
	_, err := ch.Wait(0)
	h.Check(errors.Is(err, verbs.ErrTimeout), "no event of the completion queue", "%v", eventOrError(err))
}

func eventOrError(err error) string {
	if err == nil {
		return "one"
	}
	return err.Error()
}

var rdmapSendCases = []conformance.Case{{
	ID: "rdmap/send/one-receive-each", Cite: cite("rfc5040/5.3/2"),
	Title:   "Every Send consumes one receive, also a zero-length Send",
	Sends:   "Sends of 16, 0, 0 and 32 octets",
	Expects: "four receives",
	Defects: []string{"ZeroSendSkipsReceive"}, Run: onConn(func(c *conn) {
		for i, n := range []int{16, 0, 0, 32} {
			c.expectSendDelivered(uint64(i+1), n)
		}
		c.ExpectBytes(c.localMem, 3*64, data(32))
	}),
}, {
	ID: "rdmap/send/longer-than-the-receive", Cite: cite("rfc5040/5.3/4"),
	Title:   "A receive that is too short for its Send fails, and the stream ends",
	Sends:   "Sends of 100 octets to receives of 64: in one segment, and in several segments, the first of which fit",
	Expects: "a Terminate, receives that fail, and no octet after the first changed",
	Defects: []string{"LongTruncated"}, Run: onHost(func(h *host) {
		for _, ulpdu := range []int{1000, 18 + 40} {
			c := h.connect(setup{receives: 2})
			c.sendSegments(iwarp.Send(c.nextSendMSN(), data(100)).Segments(ulpdu))
			c.expectTerminateAndEnd()
			c.expectFailures(2)
			c.ExpectUnchanged(c.localMem, 0, 64)
		}
	}),
}, {
	ID: "rdmap/send/in-order-of-posting", Cite: cite("rfc5040/5.3/7"),
	Title:   "Sends are sent in the order in which they were posted",
	Sends:   "nothing: the application posts ten Sends at once",
	Expects: "the ten in that order, with MSNs 1 to 10",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		wrs := make([]verbs.SendWR, 10)
		for i := range wrs {
			wrs[i] = c.sendWR(uint64(i+1), 16*i, 16)
		}
		c.PostSend(c.qp, wrs...)
		for i := range wrs {
			c.expect(iwarp.Send(uint32(i+1), c.localMem.Buf[16*i:][:16]))
		}
	}),
}, {
	ID: "rdmap/send/solicited-raises-an-event", Cite: cite("rfc5040/5.3/6"), Level: conformance.May,
	Title:   "A Send with solicited event raises an event",
	Sends:   "a Send with solicited event, to an application that waits for solicited events",
	Expects: "an event",
	Defects: []string{"NeverSolicited"}, Run: onHost(func(h *host) {
		ch := h.useCompChannel()
		c := h.connect(setup{receives: 4})
		h.armCQ()
		c.send(iwarp.SendSE(c.nextSendMSN(), data(16)))
		h.expectCQEvent(ch)
		c.ExpectRecv(1, 16)
	}),
}, {
	ID: "rdmap/send/unsolicited-raises-none", Cite: cite("rfc5040/5.3/6"), Level: conformance.May,
	Title:   "A Send without solicited event raises no event for an application that waits for solicited events",
	Sends:   "a Send, to an application that waits for solicited events",
	Expects: "a receive, and no event",
	Defects: []string{"EverySendSolicited"}, Run: onHost(func(h *host) {
		ch := h.useCompChannel()
		c := h.connect(setup{receives: 4})
		h.armCQ()
		c.expectSendDelivered(1, 16)
		c.sync()
		h.expectNoCQEvent(ch)
	}),
}}
