package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var ddpTaggedCases = []conformance.Case{
	{
		ID:    "ddp/tagged/unknown-key",
		Title: "A Write with a key that no memory has ends the stream",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/6"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Write to an unknown key",
		Expects: "a Terminate: invalid STag",
		Defects: []string{"BadSegmentsDropped"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.Write(unknownSTag, c.targetAddr(0).TO, data(16)))
			c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag)
			c.ExpectUnchanged(c.targetMem, 0, 0)
		}),
	},
	{
		ID:    "ddp/tagged/wrong-key-octet",
		Title: "A Write whose key is wrong in one octet ends the stream",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/6"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Writes to the key of memory with one bit changed: in its lowest octet, and in its highest",
		Expects: "a Terminate: invalid STag, and no octet in the memory",
		Defects: []string{"KeyOctetIgnored"},
		Run: onHost(func(h *host) {
			for _, bit := range []uint32{1, 0x80, 0x4000_0000} {
				c := h.connect(setup{})
				at := c.targetAddr(0)
				c.send(iwarp.Write(at.STag^bit, at.TO, data(16)))
				c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag)
				c.ExpectUnchanged(c.targetMem, 0, 0)
			}
		}),
	},
	{
		ID:    "ddp/tagged/no-right-to-write",
		Title: "Memory that may be read only is not written",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/7"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Write to memory that is open for reads",
		Expects: "a Terminate, and no octet in the memory",
		Defects: []string{"WriteRightsUnchecked", "RightsIgnored"},
		// DDP has no code for rights. That the key is none for a Write is one way to say
		// it, RDMAP's code for rights another.
		Run: onConn(func(c *conn) {
			m := c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			c.send(writeTo(addrOf(m, 0), data(16)))
			c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPAccess)
			c.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:    "ddp/tagged/before-the-beginning",
		Title: "A Write that begins before its memory does ends the stream",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/8"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Writes that begin one octet, and 100 octets before a region in the middle of a page",
		Expects: "a Terminate: base or bounds, and no octet anywhere in the page",
		Defects: []string{"PageBounds"},
		Run:     onWritesOutsideRegion(func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(-1), data(16)) }, func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(-100), data(16)) }),
	},
	{
		ID:    "ddp/tagged/beyond-the-end",
		Title: "A Write that goes on beyond its memory ends the stream",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/9"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Writes that go one octet, and eight octets beyond a region in the middle of a page, and that begin behind it",
		Expects: "a Terminate: base or bounds, and no octet anywhere in the page",
		Defects: []string{"PageBounds", "RangeSlack"},
		Run: onWritesOutsideRegion(
			func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(pageRegionLen-15), data(16)) },
			func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(pageRegionLen-8), data(16)) },
			func(p *pageRegion) iwarp.Segment { return writeTo(p.remoteAddr(pageRegionLen), data(16)) }),
	},
	{
		ID:    "ddp/tagged/wraps-around",
		Title: "A Write whose end is beyond the last offset there is ends the stream, and says so",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/10"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Write of 16 octets, the first of which is the eighth from the last that 64 bits can name",
		Expects: "a Terminate: offset wraps, or base or bounds, both of which are true",
		Defects: []string{"WrapUnchecked", "WrappingRange"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.Write(c.targetAddr(0).STag, ^uint64(0)-7, data(16)))
			c.expectTerminateAndEnd(iwarp.DDPTaggedTOWrap, iwarp.DDPTaggedBounds)
			c.ExpectUnchanged(c.targetMem, 0, 0)
		}),
	},
	{
		ID:    "ddp/tagged/nothing-of-a-bad-segment-is-placed",
		Title: "Of a segment that does not fit its memory no octet is placed",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/11"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Write of 64 octets, of which 48 are within the region",
		Expects: "a Terminate: base or bounds, and no octet in the memory",
		Defects: []string{"PlacesWhatFits"},
		Run: onConn(func(c *conn) {
			c.send(c.peerWrite(memLen-48, data(64)))
			c.expectTerminateAndEnd(iwarp.DDPTaggedBounds)
			c.ExpectUnchanged(c.targetMem, 0, 0)
		}),
	},
}

// onWritesOutsideRegion is the body of cases in which a Write outside of a region, but inside its
// page, must be refused.
func onWritesOutsideRegion(wrong ...func(*pageRegion) iwarp.Segment) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, w := range wrong {
			c, p := h.connect(setup{}), h.newPageRegion()
			c.send(w(p))
			c.expectTerminateAndEnd(iwarp.DDPTaggedBounds)
			h.expectPageUnchanged(p)
		}
	})
}
