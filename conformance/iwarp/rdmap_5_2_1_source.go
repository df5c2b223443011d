package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectReadResponse fails the case unless the next message is a Read Response with the data.
func (c *conn) expectReadResponse(want []byte) {
	c.expectPayload(c.nextMessage(iwarp.OpReadResponse), want)
}

var rdmapSourceCases = []conformance.Case{{
	ID: "rdmap/read/places-are-given-back", Cite: cite("rfc5040/5.2.1/2"),
	Title:   "An answered read frees its IRD resource",
	Sends:   "four times as many Read Requests as the IRD, one after the other",
	Expects: "a Read Response to each",
	Defects: []string{"IRDLeaks"},
	Run: onSetup(setup{connParams: depthParam(3, 3), frame: withDepths(3, 3)}, func(c *conn) {
		for i := range 4 * c.grantedIRD() {
			c.send(c.peerRead(16*i, 16))
			c.expectReadResponse(c.targetMem.Buf[16*i:][:16])
		}
	}),
}, {
	ID: "rdmap/read/processed-in-order", Cite: cite("rfc5040/5.2.1/5", "rfc5040/5.2.2/4", "rfc5040/5.5/8"),
	Title:   "Reads are answered in the order of the Read Requests",
	Sends:   "eight Read Requests of different sizes and sinks at once, the longest first",
	Expects: "their Read Responses in that order",
	Defects: []string{"SmallReadsFirst"}, Run: onSetup(setup{memLen: longMemLen}, func(c *conn) {
		sizes := []int{65536, 32768, 65536, 4096, 16, 8192, 128, 64}
		c.sendBatch(len(sizes), func(i int) iwarp.Segment {
			return iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(uint32(i+1), 0), uint32(sizes[i]), c.targetAddr(i))
		})
		for i, n := range sizes {
			segments := c.nextMessage(iwarp.OpReadResponse)
			c.checkFPDU(iwarp.Op(iwarp.OpReadResponse).STag(uint32(i+1)), segments[0])
			c.expectPayload(segments, c.targetMem.Buf[i:][:n])
		}
	}),
}, {
	ID: "rdmap/read/exact-octets-at-segment-edges", Cite: cite("rfc5040/5.2.1/6"),
	Title:   "A Read Response has exactly the requested data, wherever its segments end",
	Sends:   "Read Requests for one octet, for a full segment, one octet less and more, and for 60000",
	Expects: "exactly the requested data",
	Defects: []string{"SegmentEdgeLost"}, Run: onLongMessages(func(c *conn) {
		c.allowBadFrames = true // the case does not check the pad
		full := mulpdu(c.tcp.MSS(), false) - ddpTaggedLen
		for i, n := range []int{1, full - 1, full, full + 1, 2 * full, 2*full + 1, 60000} {
			c.send(c.peerRead(3*i, n))
			c.expectReadResponse(c.targetMem.Buf[3*i:][:n])
		}
	}),
}, {
	ID: "rdmap/read/unknown-key", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4"),
	Title:   "A Read Request with an unknown STag ends the stream",
	Sends:   "Read Requests with an unknown key, and with a key that differs in the lowest octet",
	Expects: "a Terminate: invalid STag, and no Read Response",
	Defects: []string{"BadSegmentsDropped"}, Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPInvalidSTag},
		func(c *conn) iwarp.Segment { return c.readFrom(iwarp.At(unknownSTag, c.targetAddr(0).TO), 16) },
		func(c *conn) iwarp.Segment {
			return c.readFrom(iwarp.At(c.targetAddr(0).STag^1, c.targetAddr(0).TO), 16)
		}),
}, {
	ID: "rdmap/read/out-of-bounds", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4"),
	Title:   "A Read Request outside its region ends the stream",
	Sends:   "Read Requests that begin one octet before, end one octet after, and begin after a region in the middle of a page",
	Expects: "a Terminate: base or bounds, and no Read Response",
	Defects: []string{"PageBounds"}, Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPBounds},
		func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(-1), 16) },
		func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(pageRegionLen-15), 16) },
		func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(pageRegionLen+16), 16) }),
}, {
	ID: "rdmap/read/key-of-another-domain", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4", "rfc5042/6.1.1/1"),
	Title:   "Memory of another protection domain cannot be read",
	Sends:   "a Read Request for memory of another domain than the stream's",
	Expects: "a Terminate: STag not associated, or invalid STag; no Read Response",
	Defects: []string{"IgnorePD"},
	Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPSTagNotAssociated, iwarp.RDMAPInvalidSTag},
		func(c *conn) iwarp.Segment { return c.readFrom(addrOf(c.otherPDMemory(allAccess), 0), 16) }),
}, {
	ID: "rdmap/read/wraps-around", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4", "rfc5040/6.2.1/1"),
	Title:   "A Read Request whose TO wraps around 2^64 ends the stream with that cause",
	Sends:   "Read Requests for 16 octets and for 4 GiB less one at TO 2^64-8",
	Expects: "a Terminate: TO wrap, or base or bounds",
	Defects: []string{"WrapUnchecked"}, Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPTOWrap, iwarp.RDMAPBounds},
		func(c *conn) iwarp.Segment { return c.readFrom(iwarp.At(c.targetAddr(0).STag, ^uint64(0)-7), 16) },
		func(c *conn) iwarp.Segment {
			return c.readFrom(iwarp.At(c.targetAddr(0).STag, ^uint64(0)-7), 0xffffffff)
		}),
}, {
	ID: "rdmap/read/empty-needs-no-key", Cite: cite("rfc5040/5.2.1/8"),
	Title:   "A zero-length Read Request may have any STag",
	Sends:   "zero-length Read Requests: with an unknown key, and outside a region",
	Expects: "zero-length Read Responses",
	Defects: []string{"ZeroLengthChecked"}, Run: onConn(func(c *conn) {
		for _, source := range []iwarp.Addr{iwarp.At(unknownSTag, 0x77), c.targetAddr(-1), c.targetAddr(memLen + 100), iwarp.At(c.targetAddr(0).STag, ^uint64(0))} {
			c.expectAnswer(c.readFrom(source, 0), iwarp.ReadResponse(peerSTag, peerTO, nil).Last(true))
		}
		c.sync()
	}),
}, {
	ID: "rdmap/read/empty-is-answered", Cite: cite("rfc5040/5.2.1/9", "rfc5041/5.2/5"),
	Title:   "A zero-length Read Request gets a zero-length Read Response",
	Sends:   "zero-length Read Requests, one after the other",
	Expects: "one segment without payload for each",
	Defects: []string{"ZeroLengthSkipped"}, Run: onConn(func(c *conn) {
		for i := range 3 {
			c.expectAnswer(c.peerRead(i, 0), iwarp.ReadResponse(peerSTag, peerTO, nil).Last(true))
		}
		c.sync()
	}),
}, {
	ID: "rdmap/read/empty-behind-another", Cite: cite("rfc5040/5.2.1/9", "rfc5042/x/2"),
	Title:   "A zero-length Read Request gets no data, also right after another read",
	Sends:   "Read Requests for 64 octets, for none, for 32 and for none, at once",
	Expects: "Read Responses of 64, 0, 32 and 0 octets",
	Defects: []string{"ZeroReadRepeats"}, Run: onConn(func(c *conn) {
		sizes := []int{64, 0, 32, 0}
		c.sendBatch(len(sizes), func(i int) iwarp.Segment { return c.peerRead(0, sizes[i]) })
		for _, n := range sizes {
			c.expect(iwarp.ReadResponse(peerSTag, peerTO, c.targetMem.Buf[:n]))
		}
	}),
}, {
	ID: "rdmap/read/no-right-to-read", Cite: cite("rfc5040/5.2.1/10"),
	Title:   "A Read Request for memory without remote read access is refused",
	Sends:   "Read Requests for memory with remote write access only, and without remote access",
	Expects: "a Terminate: access rights, and no Read Response",
	Defects: []string{"ReadRightsUnchecked"}, Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPAccess},
		func(c *conn) iwarp.Segment {
			return c.readFrom(addrOf(c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite), 0), 16)
		},
		func(c *conn) iwarp.Segment { return c.readFrom(addrOf(c.Memory(64, verbs.AccessLocalWrite), 0), 16) }),
}}

// onRefusedReads makes the body of a case that fails unless each Read Request, on a separate
// connection, causes a Terminate with one of the causes.
func onRefusedReads(causes []iwarp.Cause, wrong ...func(*conn) iwarp.Segment) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, w := range wrong {
			c := h.connect(setup{})
			c.expectRefusal(w(c), causes...)
		}
	})
}
