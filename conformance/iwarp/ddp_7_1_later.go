package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectSecondSegmentRefused sends a Send of two segments, the second of them changed, and
// fails the case unless the second causes a Terminate with one of the causes.
func (h *host) expectSecondSegmentRefused(causes []iwarp.Cause, change func(second iwarp.Segment) iwarp.Segment) {
	const first = 16
	c := h.connect(setup{receives: 4})
	parts := iwarp.Send(c.nextSendMSN(), data(2*first)).Segments(ddpUntaggedLen + first)
	c.send(parts[0], change(parts[1]))
	c.expectTerminateAndEnd(causes...)
	c.expectNoSuccess()
	c.ExpectUnchanged(c.localMem, 0, first)
}

var ddpLaterCases = []conformance.Case{{
	ID: "ddp/untagged/offset-of-a-later-segment", Cite: cite("rfc5041/7.1/3"),
	Title:   "A Send whose second segment does not follow the first is refused",
	Sends:   "Sends of two segments of 16 octets, the second with the offsets 0, 12, 20 and 48",
	Expects: "a Terminate: invalid MO; no receive, and nothing of the second placed",
	// TCP delivers in order: no segment is lost or duplicated.
	Defects: []string{"SecondSegmentOffset"}, Run: onHost(func(h *host) {
		for _, mo := range []uint32{0, 12, 20, 48} {
			h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidMO}, func(s iwarp.Segment) iwarp.Segment { return s.MO(mo) })
		}
	}),
}, {
	ID: "ddp/untagged/number-of-a-later-segment", Cite: cite("rfc5041/7.1/5"),
	Title:   "A Send whose second segment has another MSN than the first is refused",
	Sends:   "Sends of two segments, the second with the previous MSN, the next, and one far away",
	Expects: "a Terminate: MSN out of range; for the next MSN also invalid MO, since that message begins at 16",
	Defects: []string{"SecondSegmentNumber"}, Run: onHost(func(h *host) {
		ahead := func(n uint32) func(iwarp.Segment) iwarp.Segment {
			return func(s iwarp.Segment) iwarp.Segment { return s.MSN(*s.DDP.MSN + n) }
		}
		h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedMSNRange}, ahead(0xffffffff))
		h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedMSNRange}, ahead(0x80000000))
		h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedMSNRange, iwarp.DDPUntaggedInvalidMO}, ahead(1))
	}),
}, {
	ID:      "ddp/tagged/every-segment-is-checked",
	Cite:    cite("rfc5041/7.1/7", "rfc5041/7.1/6", "rfc5041/7.1/8", "rfc5041/7.1/9", "rfc5041/7.1/11"),
	Title:   "Every segment of a Write is checked",
	Sends:   "Writes whose first segment is valid, and whose second has the key of read-only memory, an unknown key, or begins or ends out of bounds",
	Expects: "a Terminate for the second; the first is placed, and nothing of the second",
	// A device may check the second segment against the region of the first, and report it
	// as out of bounds.
	Defects: []string{"SecondSegmentRights"}, Run: onHost(func(h *host) {
		locked := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		for _, t := range []struct {
			second func(*conn) iwarp.Segment
			causes []iwarp.Cause
		}{
			{func(*conn) iwarp.Segment { return writeTo(addrOf(locked, 0), data(16)) }, accessCauses},
			{func(c *conn) iwarp.Segment { return c.peerWrite(80, data(16)).STag(unknownSTag) }, foreignKeyCauses},
			{func(c *conn) iwarp.Segment { return c.peerWrite(-1, data(16)) }, nil},
			{func(c *conn) iwarp.Segment { return c.peerWrite(memLen-8, data(16)) }, nil},
		} {
			c := h.connect(setup{})
			c.send(c.peerWrite(64, data(16)).Last(false), t.second(c))
			c.expectTerminateAndEnd(append([]iwarp.Cause{iwarp.DDPTaggedBounds}, t.causes...)...)
			c.ExpectBytes(c.targetMem, 64, data(16))
			c.ExpectUnchanged(c.targetMem, 64, 16)
		}
		h.ExpectUnchanged(locked, 0, 0)
	}),
}}
