package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectSegmentRefused fails the case unless a segment ends the stream, with any cause, and is
// not executed.
func (h *host) expectSegmentRefused(wrong makeSegment) {
	c := h.connect(setup{receives: 2})
	c.expectAbortBy(wrong(c))
	c.expectNoSuccess()
}

// Valid causes for an access to a window that is out of bounds, or not permitted. DDP has no code
// for the latter.
var (
	boundsCauses = []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.RDMAPBounds}
	accessCauses = []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPAccess}
)

var securityMemoryCases = []conformance.Case{{
	ID: "security/domain/write-read-and-invalidate", Cite: cite("rfc5042/6.1.1/1"),
	Title:   "Memory of another protection domain cannot be accessed by any operation",
	Sends:   "a Write, a Read Request and a Send with Invalidate for memory of another domain than the stream's",
	Expects: "the end of the stream for the first two, a receive that fails for the third, and memory unchanged",
	Defects: []string{"IgnorePD"}, Run: onHost(func(h *host) {
		m := h.otherPDMemory(allAccess)
		at := addrOf(m, 0)
		h.expectSegmentRefused(func(*conn) iwarp.Segment { return writeTo(at, data(16)) })
		h.expectSegmentRefused(func(c *conn) iwarp.Segment { return c.readFrom(at, 16) })
		c := h.connect(setup{receives: 2})
		c.expectInvalidateFails(iwarp.SendInvalidate(c.nextSendMSN(), at.STag, data(16)))
		h.ExpectUnchanged(m, 0, 0)
		h.Must("a region that can be deregistered", m.Close())
	}),
}, {
	ID: "security/bounds/octet-granular", Cite: cite("rfc5042/6.2.1/1"),
	Title:   "Every octet of a region can be accessed, and no octet around it",
	Sends:   "Writes and Read Requests of one octet: the first and the last of a region in the middle of a page, and those before and after",
	Expects: "the inner ones are executed; the outer ones end the stream, and the page is unchanged",
	Defects: []string{"PageBounds"}, Run: onHost(func(h *host) {
		p := h.newPageRegion()
		c := h.connect(setup{})
		c.allowBadFrames = true // the case does not check the pad
		for _, off := range []int{0, pageRegionLen - 1} {
			c.send(writeTo(p.remoteAddr(off), p.bytesAt(off, 1)), c.readFrom(p.remoteAddr(off), 1))
			c.expect(iwarp.ReadResponse(peerSTag, peerTO, p.bytesAt(off, 1)))
		}
		for _, off := range []int{-1, pageRegionLen, -pageMargin, pageRegionLen + pageMargin - 1} {
			h.expectSegmentRefused(func(*conn) iwarp.Segment { return writeTo(p.remoteAddr(off), []byte{^p.bytesAt(off, 1)[0]}) })
			h.expectSegmentRefused(func(c *conn) iwarp.Segment { return c.readFrom(p.remoteAddr(off), 1) })
		}
		h.expectPageUnchanged(p)
	}),
}, {
	ID: "security/bounds/window-within-its-region", Cite: cite("rfc5042/6.2.1/1"), Needs: verbs.CapMWType2,
	Title:   "A window gives access to its range of the region only",
	Sends:   "Writes and Read Requests that begin one octet before, and end one octet after, a window in the middle of a region",
	Expects: "a Terminate: base or bounds; memory unchanged",
	Defects: []string{"WindowBounds"}, Run: onHost(func(h *host) {
		m := h.bindableMemory(256)
		const start, length, n = 64, 128, 16 // of the window, and of a Write or Read
		for _, off := range []int{start - 1, start + length - n + 1} {
			for _, wrong := range []func(*conn, iwarp.Addr) iwarp.Segment{
				func(_ *conn, at iwarp.Addr) iwarp.Segment { return writeTo(at, data(n)) },
				func(c *conn, at iwarp.Addr) iwarp.Segment { return c.readFrom(at, n) },
			} {
				c := h.connect(setup{})
				key := c.bindWindow(m, start, length, verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
				c.expectRefusal(wrong(c, iwarp.At(key, m.Addr()+uint64(off))), boundsCauses...)
			}
		}
		h.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "security/revoke/nothing-changes-afterwards", Cite: cite("rfc5042/6.2.2/1"),
	Title:   "Memory does not change after its region was deregistered",
	Sends:   "a Write of many segments, half of them before the application deregisters the region and half after",
	Expects: "the end of the stream, and memory unchanged since the deregistration",
	Defects: []string{"StaleKeys"}, Run: onConn(func(c *conn) {
		m := c.Memory(640, allAccess)
		parts := writeTo(addrOf(m, 0), data(640)).Segments(14 + 64)
		c.sendSegments(parts[:5])
		c.waitForDevice()
		c.Must("a region that can be deregistered", m.Close())
		m.Snapshot()
		c.sendSegments(parts[5:])
		c.expectAbort()
		c.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "security/rights/write-only-is-not-readable", Cite: cite("rfc5042/6.3.5/1"),
	Title:   "Memory with remote write access only cannot be read",
	Sends:   "a Write to memory with remote write access only, and a Read Request for it",
	Expects: "the Write is placed; the Read Request ends the stream, and no octet is sent",
	Defects: []string{"ReadRightsUnchecked"}, Run: onConn(func(c *conn) {
		m := c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		c.sendAndSync(writeTo(addrOf(m, 0), data(16)))
		c.ExpectBytes(m, 0, data(16))
		c.expectAbortBy(c.readFrom(addrOf(m, 0), 16))
	}),
}, {
	ID: "security/rights/window-grants-its-own", Cite: cite("rfc5042/6.3.5/1"), Needs: verbs.CapMWType2,
	Title:   "A window has the rights of its bind, not those of its region",
	Sends:   "a Read Request to a window with write access, and a Write to a window with read access, of a region with both",
	Expects: "a Terminate for each; no octet is sent or placed",
	Defects: []string{"WindowRights"}, Run: onHost(func(h *host) {
		m := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessMWBind)
		c := h.connect(setup{})
		c.expectRefusal(c.readFrom(iwarp.At(c.bindWindow(m, 0, 64, verbs.AccessRemoteWrite), m.Addr()), 16), accessCauses...)
		c = h.connect(setup{})
		c.expectRefusal(writeTo(iwarp.At(c.bindWindow(m, 0, 64, verbs.AccessRemoteRead), m.Addr()), data(16)), accessCauses...)
		h.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "security/rights/queue-pair-permits-writes", Cite: cite("rfc5041/7.1/7", "verbs/modify/8"),
	Title:   "A queue pair that does not permit Writes places none, whatever the memory permits",
	Sends:   "a Write to memory with all access rights, to a queue pair that permits reads only",
	Expects: "a Terminate, and memory unchanged",
	Defects: []string{"QPRightsIgnored"}, Run: onSetup(setup{access: verbs.AccessRemoteRead}, func(c *conn) {
		m := c.Memory(64, allAccess)
		c.expectRefusal(writeTo(addrOf(m, 0), data(16)), accessCauses...)
		c.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "security/rights/queue-pair-permits-reads", Cite: cite("rfc5040/5.2.1/10", "rfc5042/6.3.5/1"),
	Title:   "A queue pair that does not permit reads answers none, whatever the memory permits",
	Sends:   "a Read Request for memory with all access rights, to a queue pair that permits Writes only",
	Expects: "a Terminate, and no data",
	Defects: []string{"QPRightsIgnored"}, Run: onSetup(setup{access: verbs.AccessRemoteWrite}, func(c *conn) {
		m := c.Memory(64, allAccess)
		c.expectRefusal(c.readFrom(addrOf(m, 0), 16), accessCauses...)
	}),
}, {
	ID:   "security/rights/queue-pair-permits-atomics",
	Cite: citeSection("libibverbs", "ibv_modify_qp(3)", "verbs/modify/8"), Needs: verbs.CapAtomics,
	Title:   "A queue pair that does not permit atomics executes none, whatever the memory permits",
	Sends:   "a FetchAdd and a CmpSwap to memory with all access rights, each to a queue pair that permits reads and Writes only",
	Expects: "a Terminate, and memory unchanged",
	Defects: []string{"QPRightsIgnored"}, Run: onHost(func(h *host) {
		m := h.Memory(4096, allAccess)
		at := addrOf(m, m.WordOffset(0))
		for _, request := range []makeSegment{
			func(c *conn) iwarp.Segment { return iwarp.FetchAdd(c.nextRequestMSN(), 1, at, 5) },
			func(c *conn) iwarp.Segment { return iwarp.CompareSwap(c.nextRequestMSN(), 1, at, 0, 5) },
		} {
			c := h.connect(setup{access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite})
			c.expectRefusal(request(c), accessCauses...)
			h.ExpectUnchanged(m, 0, 0)
		}
	}),
}, {
	ID: "security/rights/empty-read-needs-none", Cite: cite("rfc5042/6.3.5/2"), Level: conformance.Should,
	Title:   "A zero-length read needs no access right",
	Sends:   "a zero-length Read Request for memory with remote write access only",
	Expects: "a zero-length Read Response",
	Defects: []string{"ZeroLengthChecked"}, Run: onConn(func(c *conn) {
		m := c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		c.expectAnswer(c.readFrom(addrOf(m, 0), 0), iwarp.ReadResponse(peerSTag, peerTO, nil))
		c.sync()
	}),
}}
