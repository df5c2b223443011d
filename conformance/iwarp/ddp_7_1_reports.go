package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// ddpErrors are mistakes of the peer's, each of which DDP has a number of its own for.
// What has to do with receives has cases of its own.
var ddpErrors = []struct {
	cause iwarp.Cause
	wrong func(*conn) iwarp.Segment
}{
	{iwarp.DDPTaggedInvalidSTag, func(c *conn) iwarp.Segment { return iwarp.Write(unknownSTag, 0, data(16)) }},
	{iwarp.DDPTaggedBounds, func(c *conn) iwarp.Segment { return c.peerWrite(memLen, data(16)) }},
	{iwarp.DDPTaggedSTagNotAssociated, func(c *conn) iwarp.Segment { return writeTo(addrOf(c.otherPDMemory(allAccess), 0), data(16)) }},
	{iwarp.DDPTaggedInvalidVersion, func(c *conn) iwarp.Segment { return c.peerWrite(0, data(16)).DV(2) }},
	{iwarp.DDPUntaggedInvalidQN, func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).QN(4) }},
	{iwarp.DDPUntaggedMSNRange, func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN()+1, data(16)) }},
	{iwarp.DDPUntaggedInvalidMO, func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).MO(4) }},
	{iwarp.DDPUntaggedInvalidVersion, func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).DV(2) }},
}

var ddpReportCases = []conformance.Case{
	{
		ID:    "ddp/error/later-segments-have-no-effect",
		Title: "What comes behind a segment that was wrong has no effect",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/12", "rfc5041/7.1/11"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Write to an unknown key, and with it a good Write, a Send and a Read Request",
		Expects: "a Terminate for the first, and nothing for the others",
		Defects: []string{"BadSegmentsDropped"},
		Run: onConn(func(c *conn) {
			c.sendCoalesced(iwarp.Write(unknownSTag, 0, data(16)), c.peerWrite(0, data(16)), iwarp.Send(c.nextSendMSN(), data(16)), c.peerRead(0, 16))
			c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag)
			c.expectNoSuccess()
			c.ExpectUnchanged(c.targetMem, 0, 0)
		}),
	},
	{
		ID:    "ddp/error/told-once",
		Title: "Of several segments that are wrong the first draws a Terminate, the others nothing",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/12"), Level: conformance.Must, Needs: needsConn,
		Sends:   "three wrong segments together",
		Expects: "one Terminate, and the end of the stream",
		Defects: []string{"TermRepeated"},
		Run: onConn(func(c *conn) {
			c.sendCoalesced(iwarp.Write(unknownSTag, 0, data(16)), iwarp.Send(c.nextSendMSN(), data(16)).QN(4), c.peerWrite(memLen, data(16)))
			c.expectAnyTerminate()
			c.expectEnd()
		}),
	},
	{
		ID:    "ddp/error/header-of-the-offender",
		Title: "A Terminate quotes the DDP header of the segment that was wrong",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/13", "rfc5040/7.1/3"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a good Write, a Write to an unknown key, and a good Write",
		Expects: "the header of the second in the Terminate",
		Defects: []string{"TermHeaderStale"},
		Run: onConn(func(c *conn) {
			wrong := iwarp.Write(unknownSTag, 0x123456789abcdef0, data(16))
			c.sendCoalesced(c.peerWrite(0, data(16)), wrong, c.peerWrite(64, data(16)))
			c.expectQuotedDDPHeader(c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag), wrong)
		}),
	},
	{
		ID:    "ddp/error/length-of-the-offender",
		Title: "A Terminate tells the length of the segment that was wrong, its header included",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/13"), Level: conformance.Should, Needs: needsConn,
		Sends:   "a Write of 16 octets to an unknown key, and a Send of 20 to a queue that does not exist",
		Expects: "the lengths 30 and 38",
		Defects: []string{"TermPayloadLength"},
		Run: onHost(func(h *host) {
			tells := func(c *conn, wrong iwarp.Segment) {
				c.send(wrong)
				got := c.expectAnyTerminate().Terminate.SegmentLength
				c.Check(got != nil && int(*got) == wrong.Len(), fmt.Sprintf("the segment length %d", wrong.Len()), "%s", formatOptional(got))
			}
			tells(h.connect(setup{}), iwarp.Write(unknownSTag, 0, data(16)))
			c := h.connect(setup{receives: 2})
			tells(c, iwarp.Send(c.nextSendMSN(), data(20)).QN(4))
		}),
	},
	{
		ID:    "ddp/error/codes-as-listed",
		Title: "Every error of DDP is reported by its own number",
		Cite:  cite(rfc5041, "7.2", "rfc5041/7.2/1"), Level: conformance.Must, Needs: needsConn,
		Sends:   "eight segments that are wrong in different ways, each on a connection of its own",
		Expects: "the type and the code that DDP lists for each",
		Defects: []string{"CodesShifted"},
		Run: onHost(func(h *host) {
			for _, f := range ddpErrors {
				c := h.connect(setup{receives: 4})
				c.send(f.wrong(c))
				c.expectTerminateAndEnd(f.cause)
			}
		}),
	},
	{
		ID:    "ddp/error/wrong-version-tagged",
		Title: "A tagged segment of another version of DDP is refused as such",
		Cite:  cite(rfc5041, "7.2", "rfc5041/7.2/2"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Writes with DV 0, 2 and 3",
		Expects: "a Terminate: invalid version of a tagged segment",
		Defects: []string{"VersionsUnchecked"},
		Run: onHost(func(h *host) {
			for _, v := range []uint8{0, 2, 3} {
				c := h.connect(setup{})
				c.send(c.peerWrite(0, data(16)).DV(v))
				c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidVersion)
				c.ExpectUnchanged(c.targetMem, 0, 0)
			}
		}),
	},
	{
		ID:    "ddp/error/wrong-version-untagged",
		Title: "An untagged segment of another version of DDP is refused as such",
		Cite:  cite(rfc5041, "7.2", "rfc5041/7.2/2"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Sends and Read Requests with DV 0, 2 and 3",
		Expects: "a Terminate: invalid version of an untagged segment",
		Defects: []string{"VersionsUnchecked"},
		Run: onHost(func(h *host) {
			for _, v := range []uint8{0, 2, 3} {
				h.expectRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidVersion},
					func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).DV(v) },
					func(c *conn) iwarp.Segment { return c.peerRead(0, 16).DV(v) })
			}
		}),
	},
	{
		ID:    "ddp/error/wrong-version-of-a-read-response",
		Title: "A Read Response of another version of DDP is refused as such",
		Cite:  cite(rfc5041, "7.2", "rfc5041/7.2/2"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Responses with DV 0, 2 and 3 to reads of the device's",
		Expects: "a Terminate: invalid version of a tagged segment; the read fails, and nothing is placed",
		Defects: []string{"ReadResponseDDPVersion"},
		Run: onHost(func(h *host) {
			for _, v := range []uint8{0, 2, 3} {
				h.expectResponseRefused(iwarp.DDPTaggedInvalidVersion, func(s iwarp.Segment) iwarp.Segment { return s.DV(v) })
			}
		}),
	},
}

// expectResponseRefused ends the case unless the answer to a read, changed like that, ends the
// checkStream for this reason, fails the read and is not placed.
func (h *host) expectResponseRefused(cause iwarp.Cause, change func(iwarp.Segment) iwarp.Segment) {
	c := h.connect(setup{})
	c.send(change(iwarp.ReadResponseTo(c.deviceRead(1, 64, 16), data(16))))
	c.expectTerminateAndEnd(cause)
	c.expectFailures(1)
	c.ExpectUnchanged(c.localMem, 0, 0)
}

// formatOptional prints a field that may not be there.
func formatOptional(v *uint16) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}
