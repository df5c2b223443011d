package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// ddpErrors are errors of the peer for which DDP has an error code. Other cases check errors
// that involve receives.
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

var ddpReportCases = []conformance.Case{{
	ID: "ddp/error/later-segments-have-no-effect", Cite: cite("rfc5041/7.1/12", "rfc5041/7.1/11"),
	Title:   "Segments after an invalid segment have no effect",
	Sends:   "a Write to an unknown key, and with it a valid Write, a Send and a Read Request",
	Expects: "a Terminate for the first, and nothing for the others",
	Defects: []string{"BadSegmentsDropped"}, Run: onConn(func(c *conn) {
		c.sendCoalesced(iwarp.Write(unknownSTag, 0, data(16)), c.peerWrite(0, data(16)), iwarp.Send(c.nextSendMSN(), data(16)), c.peerRead(0, 16))
		c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag)
		c.expectNoSuccess()
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}, {
	ID: "ddp/error/told-once", Cite: cite("rfc5041/7.1/12"),
	Title:   "Only the first of several invalid segments causes a Terminate",
	Sends:   "three invalid segments together",
	Expects: "one Terminate, and the end of the stream",
	Defects: []string{"TermRepeated"}, Run: onConn(func(c *conn) {
		c.sendCoalesced(iwarp.Write(unknownSTag, 0, data(16)), iwarp.Send(c.nextSendMSN(), data(16)).QN(4), c.peerWrite(memLen, data(16)))
		c.expectTerminateAndEnd()
	}),
}, {
	ID: "ddp/error/header-of-the-offender", Cite: cite("rfc5041/7.1/13", "rfc5040/7.1/3"),
	Title:   "A Terminate quotes the DDP header of the invalid segment",
	Sends:   "a valid Write, a Write to an unknown key, and a valid Write",
	Expects: "the header of the second in the Terminate",
	Defects: []string{"TermHeaderStale"}, Run: onConn(func(c *conn) {
		wrong := iwarp.Write(unknownSTag, 0x123456789abcdef0, data(16))
		c.sendCoalesced(c.peerWrite(0, data(16)), wrong, c.peerWrite(64, data(16)))
		c.expectQuotedDDPHeader(c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag), wrong)
	}),
}, {
	ID: "ddp/error/length-of-the-offender", Cite: cite("rfc5041/7.1/13"), Level: conformance.Should,
	Title:   "A Terminate has the length of the invalid segment, its header included",
	Sends:   "a Write of 16 octets to an unknown key, and a Send of 20 to a queue that does not exist",
	Expects: "the lengths 30 and 38",
	Defects: []string{"TermPayloadLength"}, Run: onHost(func(h *host) {
		tells := func(c *conn, wrong iwarp.Segment) {
			c.send(wrong)
			got := c.expectTerminate().Terminate.SegmentLength
			c.Check(got != nil && int(*got) == wrong.Len(), fmt.Sprintf("the segment length %d", wrong.Len()), "%s", formatOptional(got))
		}
		tells(h.connect(setup{}), iwarp.Write(unknownSTag, 0, data(16)))
		c := h.connect(setup{receives: 2})
		tells(c, iwarp.Send(c.nextSendMSN(), data(20)).QN(4))
	}),
}, {
	ID: "ddp/error/codes-as-listed", Cite: cite("rfc5041/7.2/1"),
	Title:   "Every DDP error is reported with its code",
	Sends:   "eight invalid segments, each on a separate connection",
	Expects: "the type and the code that DDP lists for each",
	Defects: []string{"CodesShifted"}, Run: onHost(func(h *host) {
		for _, f := range ddpErrors {
			c := h.connect(setup{receives: 4})
			c.expectRefusal(f.wrong(c), f.cause)
		}
	}),
}, {
	ID: "ddp/error/wrong-version-tagged", Cite: cite("rfc5041/7.2/2"),
	Title:   "A tagged segment with another DDP version is refused with that cause",
	Sends:   "Writes with DV 0, 2 and 3",
	Expects: "a Terminate: invalid version of a tagged segment",
	Defects: []string{"VersionsUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2, 3} {
			c := h.connect(setup{})
			c.expectRefusal(c.peerWrite(0, data(16)).DV(v), iwarp.DDPTaggedInvalidVersion)
			c.ExpectUnchanged(c.targetMem, 0, 0)
		}
	}),
}, {
	ID: "ddp/error/wrong-version-untagged", Cite: cite("rfc5041/7.2/2"),
	Title:   "An untagged segment with another DDP version is refused with that cause",
	Sends:   "Sends and Read Requests with DV 0, 2 and 3",
	Expects: "a Terminate: invalid version of an untagged segment",
	Defects: []string{"VersionsUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2, 3} {
			h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidVersion},
				func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).DV(v) },
				func(c *conn) iwarp.Segment { return c.peerRead(0, 16).DV(v) })
		}
	}),
}, {
	ID: "ddp/error/wrong-version-of-a-read-response", Cite: cite("rfc5041/7.2/2"),
	Title:   "A Read Response with another DDP version is refused with that cause",
	Sends:   "Read Responses with DV 0, 2 and 3 to reads of the device",
	Expects: "a Terminate: invalid version of a tagged segment; the read fails, and nothing is placed",
	Defects: []string{"ReadResponseDDPVersion"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2, 3} {
			h.expectResponseRefused(iwarp.DDPTaggedInvalidVersion, func(s iwarp.Segment) iwarp.Segment { return s.DV(v) })
		}
	}),
}}

// expectResponseRefused answers a read of the device with a changed Read Response, and fails
// the case unless it causes a Terminate, fails the read and is not placed.
func (h *host) expectResponseRefused(cause iwarp.Cause, change func(iwarp.Segment) iwarp.Segment) {
	c := h.connect(setup{})
	c.expectRefusal(change(iwarp.ReadResponseTo(c.deviceRead(1, 64, 16), data(16))), cause)
	c.expectFailures(1)
	c.ExpectUnchanged(c.localMem, 0, 0)
}

// formatOptional formats a field that may be nil.
func formatOptional(v *uint16) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}
