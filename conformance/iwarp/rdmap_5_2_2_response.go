package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// deviceRead makes the device read n octets into localMem at off, and returns the Read Request.
func (c *conn) deviceRead(id uint64, off, n int) iwarp.Segment {
	c.PostSend(c.qp, c.readWR(id, off, n))
	return c.expect(iwarp.Op(iwarp.OpReadRequest)).Segment
}

// onInvalidResponses makes the body of a case that fails unless invalid responses to a read of
// 32 octets, each on a separate connection, end the stream, fail the read and change no memory
// outside that of the read.
func onInvalidResponses(answers ...func(c *conn, request iwarp.Segment) []iwarp.Segment) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, answer := range answers {
			c := h.connect(setup{})
			for _, s := range answer(c, c.deviceRead(1, 64, 32)) {
				c.send(s)
			}
			c.expectAbort()
			c.expectFailures(1)
			c.ExpectUnchanged(c.targetMem, 0, 0)
			c.ExpectUnchanged(c.localMem, 64, 32)
		}
	})
}

var rdmapResponseCases = []conformance.Case{{
	ID: "rdmap/response/as-many-as-granted", Cite: cite("rfc5040/5.2.2/2"),
	Title:   "As many outstanding reads as the IRD are answered",
	Sends:   "as many Read Requests at once as the IRD, none of which can be answered before all have arrived; then as many again",
	Expects: "Read Responses to all of them",
	Defects: []string{"IRDLeaks"}, Run: onSetup(threeReads, func(c *conn) {
		n := c.grantedIRD()
		c.sendReadsUnread(n)
		c.expectReadResponse(c.targetMem.Buf)
		for range n - 1 {
			c.expectReadResponse(c.targetMem.Buf[:16])
		}
		c.sendBatch(n, func(int) iwarp.Segment { return c.peerRead(32, 16) })
		for range n {
			c.expectReadResponse(c.targetMem.Buf[32:48])
		}
	}),
}, {
	ID: "rdmap/response/completes-at-its-end", Cite: cite("rfc5040/5.2.2/3", "rfc5040/5.5/7"),
	Title:   "A read completes when the last segment of its response has arrived",
	Sends:   "two of three segments of a Read Response, and later the third",
	Expects: "a completion after the third",
	Defects: []string{"DeliversFirstSegment"}, Run: onConn(func(c *conn) {
		parts := iwarp.ReadResponseTo(c.deviceRead(7, 64, 48), data(48)).Segments(14 + 16)
		c.send(parts[0], parts[1])
		c.expectIdle()
		c.send(parts[2])
		c.ExpectCompletion(7, verbs.WCSuccess)
		c.ExpectBytes(c.localMem, 64, data(48))
	}),
}, {
	ID: "rdmap/response/first-segment-is-checked", Cite: cite("rfc5040/5.2.2/5"), Level: conformance.May,
	Title:   "A Read Response to another sink than requested is refused",
	Sends:   "Read Responses with the key of other memory that the peer can write, to another TO, and longer than requested",
	Expects: "the end of the stream, a read that fails, and nothing placed elsewhere",
	Defects: []string{"ResponseUnmatched"}, Run: onInvalidResponses(
		func(c *conn, _ iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(32))}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(32)).TO(*r.Read.SinkTO + 64)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(36))}
		}),
}, {
	ID: "rdmap/response/later-segments-are-checked", Cite: cite("rfc5040/5.2.2/5"), Level: conformance.May,
	Title:   "A Read Response to another sink from its second segment on is refused",
	Sends:   "Read Responses whose second segment has the key of other memory that the peer can write, or another TO",
	Expects: "the end of the stream, a read that fails, and nothing placed elsewhere",
	Defects: []string{"LaterResponseUnchecked"}, Run: onInvalidResponses(
		func(c *conn, r iwarp.Segment) []iwarp.Segment {
			parts := iwarp.ReadResponseTo(r, data(32)).Segments(14 + 16)
			return []iwarp.Segment{parts[0], writeTo(c.targetAddr(0), data(16)).Opcode(iwarp.OpReadResponse)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			parts := iwarp.ReadResponseTo(r, data(32)).Segments(14 + 16)
			return []iwarp.Segment{parts[0], parts[1].TO(*parts[1].DDP.TO + 64)}
		}),
}, {
	ID: "rdmap/response/unasked-for-is-refused", Cite: cite("rfc5040/5.2.2/6"),
	Title:   "An unsolicited Read Response ends the stream, and is not placed",
	Sends:   "a Read Response to memory that the peer can write",
	Expects: "the end of the stream, and memory unchanged",
	Defects: []string{"BadSegmentsDropped"}, Run: onConn(func(c *conn) {
		c.expectAbortBy(iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(16)))
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}, {
	ID: "rdmap/response/unasked-for-is-named", Cite: cite("rfc5040/5.2.2/6"), Level: conformance.Should,
	Title:   "An unsolicited Read Response is reported as an error of the peer",
	Sends:   "a Read Response to memory that the peer can write",
	Expects: "a Terminate: unexpected opcode, or invalid STag",
	Defects: []string{"UnaskedIsLocal"}, Run: onConn(func(c *conn) {
		c.send(iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(16)))
		c.expectTerminateAndEnd(iwarp.RDMAPUnexpectedOpcode, iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated)
	}),
}, {
	ID: "rdmap/response/short-is-no-success", Cite: cite("rfc5040/5.2.2/7"), Level: conformance.Should,
	Title:   "A read with a short response does not complete with its full length",
	Sends:   "12 and 4 octets, the latter with L, to a read of 20",
	Expects: "a read that fails, or that completes with a length of 16",
	Defects: []string{"ShortResponseTaken"}, Run: onConn(func(c *conn) {
		parts := iwarp.ReadResponseTo(c.deviceRead(7, 64, 20), data(20)).Segments(14 + 12)
		c.send(parts[0], parts[1].WithPayload(data(20)[12:16]))
		wc := c.NextCompletion()
		c.Check(wc.Status != verbs.WCSuccess || wc.ByteLen == 16, fmt.Sprintf("request %d to fail, or to have 16 octets", wc.WRID), "%s", rig.Describe(&wc))
	}),
}}
