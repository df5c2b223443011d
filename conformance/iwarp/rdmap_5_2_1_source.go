package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectReadResponse fails the case unless the next message is the answer with these octets.
func (c *conn) expectReadResponse(want []byte) {
	c.expectPayload(c.nextMessage(iwarp.OpReadResponse), want)
}

var rdmapSourceCases = []conformance.Case{
	{
		ID:    "rdmap/read/places-are-given-back",
		Title: "A read that was answered leaves its place to the next",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/2"), Level: conformance.Must, Needs: needsConn,
		Sends:   "four times as many Read Requests as the device takes at a time, one after the other",
		Expects: "an answer to each",
		Defects: []string{"IRDLeaks"},
		Run: onSetup(setup{connParams: depthParam(3, 3), frame: func(f startupFrame) startupFrame { return f.Depths(3, 3) }}, func(c *conn) {
			for i := range 4 * c.grantedIRD() {
				c.send(c.peerRead(16*i, 16))
				c.expectReadResponse(c.targetMem.Buf[16*i:][:16])
			}
		}),
	},
	{
		ID:    "rdmap/read/processed-in-order",
		Title: "Reads are answered in the order in which they were asked for",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/5", "rfc5040/5.2.2/4", "rfc5040/5.5/8"), Level: conformance.Must, Needs: needsConn,
		Sends:   "eight Read Requests of different sizes and sinks at once, the longest first",
		Expects: "their answers in that order",
		Defects: []string{"SmallReadsFirst"},
		Run: onSetup(setup{memLen: longMemLen}, func(c *conn) {
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
	},
	{
		ID:    "rdmap/read/exact-octets-at-segment-edges",
		Title: "An answer has the octets that were asked for, wherever its segments end",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/6"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests for one octet, for what a segment holds, one octet less and more, and for 60000",
		Expects: "exactly these octets",
		Defects: []string{"SegmentEdgeLost"},
		Run: onLongMessages(func(c *conn) {
			c.allowBadFrames = true // some need a pad, of which the case says nothing
			full := mulpdu(c.tcp.MSS(), false) - ddpTaggedLen
			for i, n := range []int{1, full - 1, full, full + 1, 2 * full, 2*full + 1, 60000} {
				c.send(c.peerRead(3*i, n))
				c.expectReadResponse(c.targetMem.Buf[3*i:][:n])
			}
		}),
	},
	{
		ID:    "rdmap/read/unknown-key",
		Title: "A Read Request with a key that no memory has ends the stream",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/7", "rfc5040/7.2/4"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests with an unknown key, and with one that is wrong in its lowest octet",
		Expects: "a Terminate: invalid STag, and no answer",
		Defects: []string{"BadSegmentsDropped"},
		Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPInvalidSTag},
			func(c *conn) iwarp.Segment { return c.readFrom(iwarp.At(unknownSTag, c.targetAddr(0).TO), 16) },
			func(c *conn) iwarp.Segment {
				return c.readFrom(iwarp.At(c.targetAddr(0).STag^1, c.targetAddr(0).TO), 16)
			}),
	},
	{
		ID:    "rdmap/read/out-of-bounds",
		Title: "A Read Request for octets outside of its memory ends the stream",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/7", "rfc5040/7.2/4"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests that begin one octet before, go one octet beyond, and begin after a region in the middle of a page",
		Expects: "a Terminate: base or bounds, and no answer",
		Defects: []string{"PageBounds"},
		Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPBounds},
			func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(-1), 16) },
			func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(pageRegionLen-15), 16) },
			func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(pageRegionLen+16), 16) }),
	},
	{
		ID:    "rdmap/read/key-of-another-domain",
		Title: "Memory of another protection domain cannot be read",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/7", "rfc5040/7.2/4", "rfc5042/6.1.1/1"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Read Request for memory of a domain that is not the stream's",
		Expects: "a Terminate: not the stream's, or no such key for it; no answer",
		Defects: []string{"IgnorePD"},
		Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPSTagNotAssociated, iwarp.RDMAPInvalidSTag},
			func(c *conn) iwarp.Segment { return c.readFrom(addrOf(c.otherPDMemory(allAccess), 0), 16) }),
	},
	{
		ID:    "rdmap/read/wraps-around",
		Title: "A Read Request whose end is beyond the last offset there is ends the stream, and says so",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/7", "rfc5040/7.2/4", "rfc5040/6.2.1/1"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests for 16 octets and for 4 GiB less one, the first of which is the eighth from the last that 64 bits can name",
		Expects: "a Terminate: offset wraps, or base or bounds, both of which are true",
		Defects: []string{"WrapUnchecked"},
		Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPTOWrap, iwarp.RDMAPBounds},
			func(c *conn) iwarp.Segment { return c.readFrom(iwarp.At(c.targetAddr(0).STag, ^uint64(0)-7), 16) },
			func(c *conn) iwarp.Segment {
				return c.readFrom(iwarp.At(c.targetAddr(0).STag, ^uint64(0)-7), 0xffffffff)
			}),
	},
	{
		ID:    "rdmap/read/empty-needs-no-key",
		Title: "A Read Request for no octets may name any memory",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/8"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests for nothing: of an unknown key, and outside of a known one",
		Expects: "answers of no octets",
		Defects: []string{"ZeroLengthChecked"},
		Run: onConn(func(c *conn) {
			for _, source := range []iwarp.Addr{iwarp.At(unknownSTag, 0x77), c.targetAddr(-1), c.targetAddr(memLen + 100), iwarp.At(c.targetAddr(0).STag, ^uint64(0))} {
				c.send(c.readFrom(source, 0))
				c.expect(iwarp.ReadResponse(peerSTag, peerTO, nil).Last(true))
			}
			c.sync()
		}),
	},
	{
		ID:    "rdmap/read/empty-is-answered",
		Title: "A Read Request for no octets is answered by a message of none",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/9", "rfc5041/5.2/5"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests for nothing, one after the other",
		Expects: "one segment without payload for each",
		Defects: []string{"ZeroLengthSkipped"},
		Run: onConn(func(c *conn) {
			for i := range 3 {
				c.send(c.peerRead(i, 0))
				c.expect(iwarp.ReadResponse(peerSTag, peerTO, nil).Last(true))
			}
			c.sync()
		}),
	},
	{
		ID:    "rdmap/read/empty-behind-another",
		Title: "A Read Request for no octets gets none, also right after another one",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/9", "rfc5042/x/2"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests for 64 octets, for none, for 32 and for none, at once",
		Expects: "answers of 64, 0, 32 and 0 octets",
		Defects: []string{"ZeroReadRepeats"},
		Run: onConn(func(c *conn) {
			sizes := []int{64, 0, 32, 0}
			c.sendBatch(len(sizes), func(i int) iwarp.Segment { return c.peerRead(0, sizes[i]) })
			for _, n := range sizes {
				c.expect(iwarp.ReadResponse(peerSTag, peerTO, c.targetMem.Buf[:n]))
			}
		}),
	},
	{
		ID:    "rdmap/read/no-right-to-read",
		Title: "Memory that may be written only is not read",
		Cite:  cite(rfc5040, "5.2.1", "rfc5040/5.2.1/10"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Read Requests for memory that is open for Writes, and for memory that is open for nothing",
		Expects: "a Terminate: access rights, and no answer",
		Defects: []string{"ReadRightsUnchecked"},
		Run: onRefusedReads([]iwarp.Cause{iwarp.RDMAPAccess},
			func(c *conn) iwarp.Segment {
				return c.readFrom(addrOf(c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite), 0), 16)
			},
			func(c *conn) iwarp.Segment { return c.readFrom(addrOf(c.Memory(64, verbs.AccessLocalWrite), 0), 16) }),
	},
}

// onRefusedReads is the body of cases in which Read Requests, each on a connection of its
// own, must end the stream for one of these reasons.
func onRefusedReads(causes []iwarp.Cause, wrong ...func(*conn) iwarp.Segment) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, w := range wrong {
			c := h.connect(setup{})
			c.send(w(c))
			c.expectTerminateAndEnd(causes...)
		}
	})
}
