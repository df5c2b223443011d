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
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/6"), Level: conformance.Must, Needs: needed,
		Sends:   "a Write to an unknown key",
		Expects: "a Terminate: invalid STag",
		Defects: []string{"BadSegmentsDropped"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.Write(unknownSTag, c.at(0).TO, data(16)))
			c.terminated(iwarp.DDPTaggedInvalidSTag)
			c.ExpectUnchanged(c.mem, 0, 0)
		}),
	},
	{
		ID:    "ddp/tagged/wrong-key-octet",
		Title: "A Write whose key is wrong in one octet ends the stream",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/6"), Level: conformance.Must, Needs: needed,
		Sends:   "Writes to the key of memory with one bit changed: in its lowest octet, and in its highest",
		Expects: "a Terminate: invalid STag, and no octet in the memory",
		Defects: []string{"KeyOctetIgnored"},
		Run: onHost(func(h *host) {
			for _, bit := range []uint32{1, 0x80, 0x4000_0000} {
				c := h.connect(setup{})
				at := c.at(0)
				c.send(iwarp.Write(at.STag^bit, at.TO, data(16)))
				c.terminated(iwarp.DDPTaggedInvalidSTag)
				c.ExpectUnchanged(c.mem, 0, 0)
			}
		}),
	},
	{
		ID:    "ddp/tagged/no-right-to-write",
		Title: "Memory that may be read only is not written",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/7"), Level: conformance.Must, Needs: needed,
		Sends:   "a Write to memory that is open for reads",
		Expects: "a Terminate, and no octet in the memory",
		Defects: []string{"WriteRightsUnchecked", "RightsIgnored"},
		// DDP has no code for rights. That the key is none for a Write is one way to say
		// it, RDMAP's code for rights another.
		Run: onConn(func(c *conn) {
			m := c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			c.send(writeTo(place(m, 0), data(16)))
			c.terminated(iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPAccess)
			c.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:    "ddp/tagged/before-the-beginning",
		Title: "A Write that begins before its memory does ends the stream",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/8"), Level: conformance.Must, Needs: needed,
		Sends:   "Writes that begin one octet, and 100 octets before a region in the middle of a page",
		Expects: "a Terminate: base or bounds, and no octet anywhere in the page",
		Defects: []string{"PageBounds"},
		Run:     outOfPage(func(p *pageRegion) iwarp.Segment { return writeTo(p.at(-1), data(16)) }, func(p *pageRegion) iwarp.Segment { return writeTo(p.at(-100), data(16)) }),
	},
	{
		ID:    "ddp/tagged/beyond-the-end",
		Title: "A Write that goes on beyond its memory ends the stream",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/9"), Level: conformance.Must, Needs: needed,
		Sends:   "Writes that go one octet, and eight octets beyond a region in the middle of a page, and that begin behind it",
		Expects: "a Terminate: base or bounds, and no octet anywhere in the page",
		Defects: []string{"PageBounds", "RangeSlack"},
		Run: outOfPage(
			func(p *pageRegion) iwarp.Segment { return writeTo(p.at(pageRegionLen-15), data(16)) },
			func(p *pageRegion) iwarp.Segment { return writeTo(p.at(pageRegionLen-8), data(16)) },
			func(p *pageRegion) iwarp.Segment { return writeTo(p.at(pageRegionLen), data(16)) }),
	},
	{
		ID:    "ddp/tagged/wraps-around",
		Title: "A Write whose end is beyond the last offset there is ends the stream, and says so",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/10"), Level: conformance.Must, Needs: needed,
		Sends:   "a Write of 16 octets, the first of which is the eighth from the last that 64 bits can name",
		Expects: "a Terminate: offset wraps, or base or bounds, both of which are true",
		Defects: []string{"WrapUnchecked", "WrappingRange"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.Write(c.at(0).STag, ^uint64(0)-7, data(16)))
			c.terminated(iwarp.DDPTaggedTOWrap, iwarp.DDPTaggedBounds)
			c.ExpectUnchanged(c.mem, 0, 0)
		}),
	},
	{
		ID:    "ddp/tagged/nothing-of-a-bad-segment-is-placed",
		Title: "Of a segment that does not fit its memory no octet is placed",
		Cite:  cite(rfc5041, "7.1", "rfc5041/7.1/11"), Level: conformance.Must, Needs: needed,
		Sends:   "a Write of 64 octets, of which 48 are within the region",
		Expects: "a Terminate: base or bounds, and no octet in the memory",
		Defects: []string{"PlacesWhatFits"},
		Run: onConn(func(c *conn) {
			c.send(c.writes(memLen-48, data(64)))
			c.terminated(iwarp.DDPTaggedBounds)
			c.ExpectUnchanged(c.mem, 0, 0)
		}),
	},
}

// outOfPage is the body of cases in which a Write outside of a region, but inside its
// page, must be refused.
func outOfPage(wrong ...func(*pageRegion) iwarp.Segment) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, w := range wrong {
			c, p := h.connect(setup{}), h.inPage()
			c.send(w(p))
			c.terminated(iwarp.DDPTaggedBounds)
			h.leftAlone(p)
		}
	})
}
