package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var rdmapxResponseCases = conformance.Group{Needs: verbs.CapAtomics}.Cases([]conformance.Case{{
	ID: "rdmapx/atomic/response-on-queue-3", Cite: cite("rfc7306/5/3", "rfc7306/4.1/2"),
	Title:   "An Atomic Response is untagged, on queue 3, and has twelve octets of header",
	Sends:   "a FetchAdd",
	Expects: "T=0, queue 3, the identifier and the original value, and nothing else",
	// Section 4 of RFC 7306 gives the header 32 octets; its figure and its appendix give
	// twelve.
	Defects: []string{"QueuesMixed"}, Run: onConn(func(c *conn) {
		c.setWord(c.wordOffset(), 42)
		c.send(c.peerFetchAdd(0x11, c.wordOffset(), 5))
		g := c.nextFPDUs(1)[0]
		want := binary.BigEndian.AppendUint32(untaggedHeaderOctets(0x41, 0x4b, 3, 0), 0x11)
		c.expectHeaderOctets(g, binary.BigEndian.AppendUint64(want, 42))
		c.Check(len(g.ULPDU) == ddpUntaggedLen+12, "a ULPDU of 30 octets", "%d", len(g.ULPDU))
	}),
}, {
	ID: "rdmapx/atomic/response-names-the-request", Cite: cite("rfc7306/5.2.2/1"),
	Title:   "An Atomic Response has the identifier of its request",
	Sends:   "FetchAdds with the identifiers cafebabe, 0, ffffffff and cafebabe again",
	Expects: "the same identifiers in the responses",
	Defects: []string{"AtomicIdIsMSN"}, Run: onConn(func(c *conn) {
		for i, id := range []uint32{0xcafebabe, 0, 0xffffffff, 0xcafebabe} {
			c.send(c.peerFetchAdd(id, c.wordOffset(), 0))
			c.expectAtomicResponse(uint32(i+1), id, c.word(c.wordOffset()))
		}
	}),
}, {
	ID: "rdmapx/atomic/responses-are-numbered", Cite: cite("rfc7306/5.2.2/2"),
	Title:   "Atomic Responses have separate MSNs, from 1 on",
	Sends:   "a Read Request, a FetchAdd, a Read Request and a FetchAdd",
	Expects: "MSNs 1 and 2 in the Atomic Responses",
	Defects: []string{"AtomicIdIsMSN"}, Run: onConn(func(c *conn) {
		for i := range uint32(2) {
			c.sync()
			c.expectAnswer(c.peerFetchAdd(7, c.wordOffset(), 0), iwarp.Op(iwarp.OpAtomicResponse).QN(3).MSN(i+1))
		}
	}),
}, {
	ID: "rdmapx/atomic/unasked-for-response", Cite: cite("rfc7306/5.2.2/3"),
	Title:   "An unsolicited Atomic Response ends the stream",
	Sends:   "an Atomic Response, with no request outstanding, and with a read outstanding",
	Expects: "the end of the stream, with any Terminate, and a read that fails",
	Defects: []string{"AtomicResponseUnchecked"}, Run: onHost(func(h *host) {
		c := h.connect(setup{})
		c.expectAbortBy(iwarp.AtomicResponse(1, 1, 7))
		c = h.connect(setup{})
		c.deviceRead(1, 64, 16)
		c.expectAbortBy(iwarp.AtomicResponse(1, 1, 7))
		c.expectFailures(1)
	}),
}, {
	ID: "rdmapx/atomic/response-to-another-request", Cite: cite("rfc7306/5.2.2/3"),
	Title:   "An Atomic Response that does not match the request ends the stream",
	Sends:   "Atomic Responses with another identifier, with four octets missing, and with four extra octets",
	Expects: "the end of the stream, with any Terminate, and an atomic that fails",
	Defects: []string{"AtomicResponseUnchecked"}, Run: onHost(func(h *host) {
		for _, answer := range []func(id uint32) iwarp.Segment{
			func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id+1, 7) },
			func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id, 7).Cut(ddpUntaggedLen + 8) },
			func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id, 7).WithPayload(data(4)) },
		} {
			c := h.connect(setup{})
			request := c.deviceFetchAdd(1, 64)
			c.expectAbortBy(answer(*request.AtomicRequest.ID))
			c.expectFailures(1)
			c.ExpectUnchanged(c.localMem, 64, 8)
		}
	}),
}, {
	ID: "rdmapx/atomic/number-of-a-response", Cite: cite("rfc7306/8.2/1", "rfc5041/7.1/5"),
	Title:   "An Atomic Response with another MSN than the next is refused",
	Sends:   "first Atomic Responses with MSNs 2, 0 and 0x80000001; and a second one with MSN 1 again",
	Expects: "a Terminate: MSN out of range, and an atomic that fails",
	Defects: []string{"AnswerNumberUnchecked"}, Run: onHost(func(h *host) {
		refused := func(c *conn, id uint64, number uint32) {
			request := c.deviceFetchAdd(id, 64)
			c.expectRefusal(iwarp.AtomicResponse(number, *request.AtomicRequest.ID, 7), iwarp.DDPUntaggedMSNRange)
			c.expectFailures(1)
			c.ExpectUnchanged(c.localMem, 0, 8)
		}
		for _, number := range []uint32{2, 0, 0x80000001} {
			refused(h.connect(setup{}), 1, number)
		}
		c := h.connect(setup{})
		request := c.deviceFetchAdd(1, 0)
		c.send(iwarp.AtomicResponse(1, *request.AtomicRequest.ID, 7))
		c.ExpectCompletion(1, verbs.WCSuccess)
		refused(c, 2, 1)
	}),
}, {
	ID: "rdmapx/atomic/completes-with-its-response", Cite: cite("rfc7306/5.4/1"),
	Title:   "An atomic completes when it is answered, with the original value",
	Sends:   "a delayed response to a FetchAdd",
	Expects: "no completion before the response; one after it, with the original value in memory",
	Defects: []string{"CompletesEarly"}, Run: onConn(func(c *conn) {
		request := c.deviceFetchAdd(11, 64)
		c.expectIdle()
		c.send(iwarp.AtomicResponse(1, *request.AtomicRequest.ID, 0x0102030405060708))
		c.ExpectCompletion(11, verbs.WCSuccess)
		c.ExpectBytes(c.localMem, 64, binary.NativeEndian.AppendUint64(nil, 0x0102030405060708))
	}),
}, {
	ID: "rdmapx/atomic/request-waits-for-its-end", Cite: cite("rfc7306/5.4/2"),
	Title:   "An Atomic Request without L is not executed",
	Sends:   "a FetchAdd with L clear",
	Expects: "no response, and memory unchanged; the device may end the stream",
	Defects: []string{"DeliversFirstSegment"}, Run: onConn(func(c *conn) {
		c.send(c.peerFetchAdd(1, c.wordOffset(), 5).Last(false))
		c.expectNoResponse()
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}, {
	ID: "rdmapx/atomic/answered-in-order-with-reads", Cite: cite("rfc7306/5.4/3", "rfc7306/5.2.2/2"),
	Title:   "Atomics and reads are executed and answered in the order of arrival",
	Sends:   "a long Read Request, two FetchAdds and a Read Request for the changed word, at once",
	Expects: "responses in that order, the last with both sums",
	Defects: []string{"SmallReadsFirst"}, Run: onLongMessages(func(c *conn) {
		off, n := c.wordOffset(), c.longLen()
		c.setWord(off, 40)
		c.sendBatch(4, func(i int) iwarp.Segment {
			switch i {
			case 0:
				return c.peerRead(1024, n)
			case 3:
				return c.peerRead(off, 8)
			}
			return c.peerFetchAdd(uint32(i), off, 1)
		})
		c.expectReadResponse(c.targetMem.Buf[1024:][:n])
		c.expectAtomicResponse(1, 1, 40)
		c.expectAtomicResponse(2, 2, 41)
		g := c.expect(iwarp.Op(iwarp.OpReadResponse))
		want := binary.NativeEndian.AppendUint64(nil, 42)
		c.Check(string(g.Payload) == string(want), fmt.Sprintf("a Read Response of % x", want), "% x", g.Payload)
	}),
}})
