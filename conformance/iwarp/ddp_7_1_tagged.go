package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var ddpTaggedCases = []conformance.Case{{
	ID: "ddp/tagged/unknown-key", Cite: cite("rfc5041/7.1/6"),
	Title:   "A Write with an unknown STag ends the stream",
	Sends:   "a Write to an unknown key",
	Expects: "a Terminate: invalid STag",
	Defects: []string{"BadSegmentsDropped"}, Run: onConn(func(c *conn) {
		c.expectRefusal(iwarp.Write(unknownSTag, c.targetAddr(0).TO, data(16)), iwarp.DDPTaggedInvalidSTag)
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}, {
	ID: "ddp/tagged/wrong-key-octet", Cite: cite("rfc5041/7.1/6"),
	Title:   "A Write with an STag that differs in one bit ends the stream",
	Sends:   "Writes to the key of a region with one bit changed: in its lowest octet, and in its highest",
	Expects: "a Terminate: invalid STag, and memory unchanged",
	Defects: []string{"KeyOctetIgnored"}, Run: onHost(func(h *host) {
		for _, bit := range []uint32{1, 0x80, 0x4000_0000} {
			c := h.connect(setup{})
			at := c.targetAddr(0)
			c.expectRefusal(iwarp.Write(at.STag^bit, at.TO, data(16)), iwarp.DDPTaggedInvalidSTag)
			c.ExpectUnchanged(c.targetMem, 0, 0)
		}
	}),
}, {
	ID: "ddp/tagged/no-right-to-write", Cite: cite("rfc5041/7.1/7"),
	Title:   "A Write to memory without remote write access is refused",
	Sends:   "a Write to memory with remote read access only",
	Expects: "a Terminate, and memory unchanged",
	// DDP has no code for access rights. An invalid STag and RDMAP's access violation are
	// both accepted.
	Defects: []string{"WriteRightsUnchecked", "RightsIgnored"}, Run: onConn(func(c *conn) {
		m := c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		c.send(writeTo(addrOf(m, 0), data(16)))
		c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPAccess)
		c.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "ddp/tagged/before-the-beginning", Cite: cite("rfc5041/7.1/8"),
	Title:   "A Write that begins before its region ends the stream",
	Sends:   "Writes that begin one octet, and 100 octets before a region in the middle of a page",
	Expects: "a Terminate: base or bounds, and the page unchanged",
	Defects: []string{"PageBounds"},
	Run:     onWritesOutsideRegion(func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(-1), data(16)) }, func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(-100), data(16)) }),
}, {
	ID: "ddp/tagged/beyond-the-end", Cite: cite("rfc5041/7.1/9"),
	Title:   "A Write that ends after its region ends the stream",
	Sends:   "Writes that end one octet and eight octets after a region in the middle of a page, and that begin after it",
	Expects: "a Terminate: base or bounds, and the page unchanged",
	Defects: []string{"PageBounds", "RangeSlack"}, Run: onWritesOutsideRegion(
		func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(pageRegionLen-15), data(16)) },
		func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(pageRegionLen-8), data(16)) },
		func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(pageRegionLen), data(16)) }),
}, {
	ID: "ddp/tagged/wraps-around", Cite: cite("rfc5041/7.1/10"),
	Title:   "A Write whose TO wraps around 2^64 ends the stream with that cause",
	Sends:   "a Write of 16 octets at TO 2^64-8",
	Expects: "a Terminate: TO wrap, or base or bounds",
	Defects: []string{"WrapUnchecked", "WrappingRange"}, Run: onConn(func(c *conn) {
		c.send(iwarp.Write(c.targetAddr(0).STag, ^uint64(0)-7, data(16)))
		c.expectTerminateAndEnd(iwarp.DDPTaggedTOWrap, iwarp.DDPTaggedBounds)
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}, {
	ID: "ddp/tagged/nothing-of-a-bad-segment-is-placed", Cite: cite("rfc5041/7.1/11"),
	Title:   "A segment that exceeds its region is not placed, not even in part",
	Sends:   "a Write of 64 octets, the first 48 of them within the region",
	Expects: "a Terminate: base or bounds, and memory unchanged",
	Defects: []string{"PlacesWhatFits"}, Run: onConn(func(c *conn) {
		c.expectRefusal(c.peerWrite(memLen-48, data(64)), iwarp.DDPTaggedBounds)
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}}

// onWritesOutsideRegion makes the body of a case that sends Writes outside a region but inside
// its page, and fails unless each is refused.
func onWritesOutsideRegion(wrong ...func(*pageRegion) iwarp.Segment) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, w := range wrong {
			c, p := h.connect(setup{}), h.newPageRegion()
			c.expectRefusal(w(p), iwarp.DDPTaggedBounds)
			h.expectPageUnchanged(p)
		}
	})
}
