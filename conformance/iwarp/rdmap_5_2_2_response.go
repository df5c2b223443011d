package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// deviceRead has the device read n octets into own from off on, and returns its request.
func (c *conn) deviceRead(id uint64, off, n int) iwarp.Segment {
	c.PostSend(c.qp, c.readWR(id, off, n))
	return c.expect(iwarp.Op(iwarp.OpReadRequest)).Segment
}

// onInvalidResponses fails the case unless answers like these, each to a read of 32 octets
// on a separate connection, end the stream, fail the read and reach no memory but
// that of the read.
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

var rdmapResponseCases = []conformance.Case{
	{
		ID:    "rdmap/response/as-many-as-granted",
		Title: "As many reads at a time as were granted are answered",
		Cite:  cite(rfc5040, "5.2.2", "rfc5040/5.2.2/2"), Level: conformance.Must, Needs: needsConn,
		Sends:   "as many Read Requests at once as the device takes, of which none can be answered before all are there; then as many again",
		Expects: "answers to all of them",
		Defects: []string{"IRDLeaks"},
		Run: onSetup(threeReads, func(c *conn) {
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
	},
	{
		ID:    "rdmap/response/completes-at-its-end",
		Title: "A read completes when the last segment of its answer is there",
		Cite:  cite(rfc5040, "5.2.2", "rfc5040/5.2.2/3", "rfc5040/5.5/7"), Level: conformance.Must, Needs: needsConn,
		Sends:   "two of three segments of a Read Response, and later the third",
		Expects: "a completion after the third",
		Defects: []string{"DeliversFirstSegment"},
		Run: onConn(func(c *conn) {
			parts := iwarp.ReadResponseTo(c.deviceRead(7, 64, 48), data(48)).Segments(14 + 16)
			c.send(parts[0], parts[1])
			c.expectSilence(silencePeriod)
			c.ExpectNoCompletion()
			c.send(parts[2])
			c.ExpectCompletion(7, verbs.WCSuccess)
			c.ExpectBytes(c.localMem, 64, data(48))
		}),
	},
	{
		ID:    "rdmap/response/first-segment-is-checked",
		Title: "A Read Response to another place than was asked for is not taken",
		Cite:  cite(rfc5040, "5.2.2", "rfc5040/5.2.2/5"), Level: conformance.May, Needs: needsConn,
		Sends:   "Read Responses with the key of memory that is open to the peer, to another offset, and longer than was asked for",
		Expects: "the end of the stream, a read that fails, and nothing placed elsewhere",
		Defects: []string{"ResponseUnmatched"},
		Run: onInvalidResponses(
			func(c *conn, _ iwarp.Segment) []iwarp.Segment {
				return []iwarp.Segment{iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(32))}
			},
			func(_ *conn, r iwarp.Segment) []iwarp.Segment {
				return []iwarp.Segment{iwarp.ReadResponseTo(r, data(32)).TO(*r.Read.SinkTO + 64)}
			},
			func(_ *conn, r iwarp.Segment) []iwarp.Segment {
				return []iwarp.Segment{iwarp.ReadResponseTo(r, data(36))}
			}),
	},
	{
		ID:    "rdmap/response/later-segments-are-checked",
		Title: "A Read Response that goes astray after its first segment is not taken",
		Cite:  cite(rfc5040, "5.2.2", "rfc5040/5.2.2/5"), Level: conformance.May, Needs: needsConn,
		Sends:   "Read Responses whose second segment has the key of memory that is open to the peer, or another offset",
		Expects: "the end of the stream, a read that fails, and nothing placed elsewhere",
		Defects: []string{"LaterResponseUnchecked"},
		Run: onInvalidResponses(
			func(c *conn, r iwarp.Segment) []iwarp.Segment {
				parts := iwarp.ReadResponseTo(r, data(32)).Segments(14 + 16)
				return []iwarp.Segment{parts[0], writeTo(c.targetAddr(0), data(16)).Opcode(iwarp.OpReadResponse)}
			},
			func(_ *conn, r iwarp.Segment) []iwarp.Segment {
				parts := iwarp.ReadResponseTo(r, data(32)).Segments(14 + 16)
				return []iwarp.Segment{parts[0], parts[1].TO(*parts[1].DDP.TO + 64)}
			}),
	},
	{
		ID:    "rdmap/response/unasked-for-is-refused",
		Title: "A Read Response that nobody asked for ends the stream, and is not placed",
		Cite:  cite(rfc5040, "5.2.2", "rfc5040/5.2.2/6"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Read Response to memory that is open to the peer",
		Expects: "the end of the stream, and no octet in the memory",
		Defects: []string{"BadSegmentsDropped"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(16)))
			c.expectAbort()
			c.ExpectUnchanged(c.targetMem, 0, 0)
		}),
	},
	{
		ID:    "rdmap/response/unasked-for-is-named",
		Title: "A Read Response that nobody asked for is told to be the peer's error",
		Cite:  cite(rfc5040, "5.2.2", "rfc5040/5.2.2/6"), Level: conformance.Should, Needs: needsConn,
		Sends:   "a Read Response to memory that is open to the peer",
		Expects: "a Terminate: unexpected opcode, or a key that is not valid for it",
		Defects: []string{"UnaskedIsLocal"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(16)))
			c.expectTerminateAndEnd(iwarp.RDMAPUnexpectedOpcode, iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated)
		}),
	},
	{
		ID:    "rdmap/response/short-is-no-success",
		Title: "A read whose answer ends early does not complete as if it were whole",
		Cite:  cite(rfc5040, "5.2.2", "rfc5040/5.2.2/7"), Level: conformance.Should, Needs: needsConn,
		Sends:   "12 and 4 octets, and L with the latter, to a read of 20",
		Expects: "a read that fails, or one that tells how much has come",
		Defects: []string{"ShortResponseTaken"},
		Run: onConn(func(c *conn) {
			parts := iwarp.ReadResponseTo(c.deviceRead(7, 64, 20), data(20)).Segments(14 + 12)
			c.send(parts[0], parts[1].WithPayload(data(20)[12:16]))
			wc := c.NextCompletion()
			c.Check(wc.Status != verbs.WCSuccess || wc.ByteLen == 16, fmt.Sprintf("request %d to fail, or to have 16 octets", wc.WRID), "%s", rig.Describe(&wc))
		}),
	},
}
