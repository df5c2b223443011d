package iwarp

import (
	"bytes"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// onWritesOutsideRegion makes the body of a case that fails unless Writes of 16 octets are refused
// at the given offsets from the start of a region: not all of their octets are inside the region.
func onWritesOutsideRegion(offsets ...int64) func(*conformance.Bench) error {
	return onEachConn(setup{}, offsets, func(c *conn, off int64) {
		p := c.newPageRegion()
		at := p.remoteAddr(0)
		c.expectRefusal(iwarp.Write(at.STag, at.TO+uint64(off), data(16)), iwarp.DDPTaggedBounds)
		c.expectPageUnchanged(p)
	})
}

// expectSecondSegmentRefused sends a Send of two segments, the second of them changed, and
// fails the case unless the second causes a Terminate with one of the causes.
func (h *host) expectSecondSegmentRefused(causes []iwarp.Cause, change func(second iwarp.Segment) iwarp.Segment) {
	const first = 16
	c := h.connect(setup{receives: 4})
	parts := iwarp.Send(c.nextSendMSN(), data(2*first)).Segments(ddpUntaggedLen + first)
	c.send(parts[0], change(parts[1]))
	c.expectTerminateAndEnd(causes...)
	c.ExpectNoSuccess()
	c.ExpectUnchangedOutside(c.localMem, 0, first)
}

var ddpTaggedCases = []conformance.Case{{
	ID: "ddp/tagged/unknown-key", Cite: cite("rfc5041/7.1/6"),
	Title:   "A Write with an unknown STag ends the stream",
	Sends:   "a Write to an unknown key",
	Expects: "a Terminate: invalid STag",
	Defects: []string{"BadSegmentsDropped"}, Run: onConn(func(c *conn) {
		c.expectRefusalWithoutEffect(iwarp.Write(unknownSTag, c.targetAddr(0).TO, data(16)), iwarp.DDPTaggedInvalidSTag)
	}),
}, {
	ID: "ddp/tagged/wrong-key-octet", Cite: cite("rfc5041/7.1/6"),
	Title:   "A Write with an STag that differs in one bit ends the stream",
	Sends:   "Writes to the key of a region with one bit changed: each of the 32",
	Expects: "a Terminate: invalid STag, and memory unchanged",
	Defects: []string{"KeyOctetIgnored", "KeyBitIgnored"},
	Run: onHost(func(h *host) {
		for bit := range 32 {
			c := h.connect(setup{memLen: 1024})
			at := c.targetAddr(0)
			c.expectRefusalWithoutEffect(iwarp.Write(at.STag^1<<bit, at.TO, data(16)), iwarp.DDPTaggedInvalidSTag)
		}
	}),
}, {
	ID: "ddp/tagged/no-right-to-write", Cite: cite("rfc5041/7.1/7"),
	Title:   "A Write to memory without remote write access is refused",
	Sends:   "Writes to memory without remote access, with remote read access, and with remote atomic access too",
	Expects: "a Terminate, and memory unchanged",
	// DDP has no code for access rights: an invalid STag and RDMAP's access violation are valid.
	Defects: []string{"WriteRightsUnchecked", "RightsIgnored"}, Run: onHost(func(h *host) {
		for _, right := range h.rightsWithout(verbs.AccessRemoteWrite) {
			c, m := h.connect(setup{}), h.Memory(64, verbs.AccessLocalWrite|right)
			c.expectRefusal(writeTo(addrOf(m, 0), data(16)), accessCauses...)
			c.ExpectUntouched(m)
		}
	}),
}, {
	ID: "ddp/tagged/before-the-beginning", Cite: cite("rfc5041/7.1/8"),
	Title:   "A Write that begins before its region ends the stream",
	Sends:   "Writes that begin 1, 16, 100 and 2^32 octets before a region in the middle of a page",
	Expects: "a Terminate: base or bounds, and the page unchanged",
	Defects: []string{"PageBounds", "TaggedOffsetLow32"}, Run: onWritesOutsideRegion(-1, -16, -100, -1<<32),
}, {
	ID: "ddp/tagged/beyond-the-end", Cite: cite("rfc5041/7.1/9"),
	Title:   "A Write that ends after its region ends the stream",
	Sends:   "Writes that end one octet and eight octets after a region in the middle of a page, and that begin after it, and 2^32 octets after its beginning",
	Expects: "a Terminate: base or bounds, and the page unchanged",
	Defects: []string{"PageBounds", "RangeSlack", "TaggedOffsetLow32"},
	Run:     onWritesOutsideRegion(pageRegionLen-15, pageRegionLen-8, pageRegionLen, 1<<32),
}, {
	ID: "ddp/tagged/wraps-around", Cite: cite("rfc5041/7.1/10", "rfc5042/6.2.1/1"),
	Title:   "A Write whose TO wraps around 2^64 ends the stream with that cause",
	Sends:   "Writes of 16 octets at TO 2^64-8, 2^64-15, 2^64-1, and 2^64-16, which does not wrap",
	Expects: "a Terminate: TO wrap, or base or bounds; for 2^64-16 base or bounds",
	Defects: []string{"WrapUnchecked", "WrappingRange"}, Run: onEachConn(setup{}, []uint64{8, 15, 1, 16}, func(c *conn, below uint64) {
		causes := []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.DDPTaggedTOWrap}
		if below == 16 {
			causes = causes[:1]
		}
		c.expectRefusalWithoutEffect(iwarp.Write(c.targetAddr(0).STag, -below, data(16)), causes...)
	}),
}, {
	ID: "ddp/tagged/nothing-of-a-bad-segment-is-placed", Cite: cite("rfc5041/7.1/11"),
	Title:   "A segment that exceeds its region is not placed, not even in part",
	Sends:   "a Write of 64 octets, the first 48 of them within the region",
	Expects: "a Terminate: base or bounds, and memory unchanged",
	Defects: []string{"PlacesWhatFits"}, Run: onConn(func(c *conn) {
		c.expectRefusalWithoutEffect(c.peerWrite(memLen-48, data(64)), iwarp.DDPTaggedBounds)
	}),
}, {
	ID: "ddp/untagged/offset-of-a-later-segment", Cite: cite("rfc5041/7.1/14"), Level: conformance.Should,
	Title:   "A Send whose second segment does not follow the first, or that does not begin at 0, is refused",
	Sends:   "Sends of two segments of 16 octets, the second with the offsets 0, 12, 20 and 48; a Send whose only segment has MO 4",
	Expects: "a Terminate: invalid MO; no receive, and nothing of the second placed",
	// TCP delivers in order: no segment is lost or duplicated.
	Defects: []string{"SecondSegmentOffset"}, Run: onHost(func(h *host) {
		for _, mo := range []uint32{0, 12, 20, 48} {
			h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidMO}, func(s iwarp.Segment) iwarp.Segment { return s.MO(mo) })
		}
		h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidMO}, sendAtOffset(4))
	}),
}, {
	ID: "ddp/untagged/number-of-a-later-segment", Cite: cite("rfc5041/7.1/5"),
	Title:   "A Send whose second segment has an MSN without a receive is refused",
	Sends:   "Sends of two segments, the second with the previous MSN, and with one far away",
	Expects: "a Terminate: MSN out of range, or no buffer",
	Defects: []string{"SecondSegmentNumber"}, Run: onHost(func(h *host) {
		h.expectSecondSegmentRefused(wrongMSNCauses, msnAhead(0xffffffff))
		h.expectSecondSegmentRefused(wrongMSNCauses, msnAhead(0x80000000))
	}),
}, {
	ID:      "ddp/tagged/every-segment-is-checked",
	Cite:    cite("rfc5041/7.1/7", "rfc5041/7.1/6", "rfc5041/7.1/8", "rfc5041/7.1/9", "rfc5041/7.1/11"),
	Title:   "Every segment of a Write is checked",
	Sends:   "Writes whose first segment is valid, and whose second has the key of read-only memory, an unknown key, or begins or ends out of bounds",
	Expects: "a Terminate for the second; the first is placed, and nothing of the second",
	// A device may report the second segment as out of bounds of the region of the first.
	Defects: []string{"SecondSegmentRights"}, Run: onHost(func(h *host) {
		locked := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		for _, t := range []struct {
			second makeSegment
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
			c.ExpectUnchangedOutside(c.targetMem, 64, 16)
		}
		h.ExpectUntouched(locked)
	}),
}}

// rightsWithout returns all combinations of remote access rights that lack right, which is remote
// read or remote write. They include atomics if the device supports them.
func (h *host) rightsWithout(right verbs.Access) []verbs.Access {
	other := (verbs.AccessRemoteRead | verbs.AccessRemoteWrite) &^ right
	if !h.Caps.Has(verbs.CapAtomics) {
		return []verbs.Access{0, other}
	}
	return []verbs.Access{0, other, verbs.AccessRemoteAtomic, verbs.AccessRemoteAtomic | other}
}

// otherPDMemory registers memory in a second protection domain.
func (h *host) otherPDMemory(access verbs.Access) *rig.Memory {
	pd, err := h.Device.AllocPD()
	h.Must("a second protection domain", err)
	return h.MemoryIn(pd, 64, access|verbs.AccessLocalWrite)
}

// The valid causes for a Write, and for a Read Request, with an STag of another stream or domain.
var (
	foreignKeyCauses  = []iwarp.Cause{iwarp.DDPTaggedSTagNotAssociated, iwarp.DDPTaggedInvalidSTag}
	foreignReadCauses = []iwarp.Cause{iwarp.RDMAPSTagNotAssociated, iwarp.RDMAPInvalidSTag}
)

var ddpProtectionCases = []conformance.Case{{
	ID: "ddp/protection/key-of-another-domain", Cite: cite("rfc5041/8.2/1", "rfc5042/6.1.1/1"),
	Title:   "Memory of another protection domain cannot be written",
	Sends:   "a Write to memory of another domain than the stream's",
	Expects: "a Terminate, the application is notified, and memory unchanged",
	Defects: []string{"IgnorePD"}, Run: onConn(func(c *conn) {
		m := c.otherPDMemory(allAccess)
		c.expectRefusal(writeTo(addrOf(m, 0), data(16)), foreignKeyCauses...)
		c.ExpectUntouched(m)
		c.expectDisconnect()
	}),
}, {
	ID: "ddp/protection/window-of-another-stream", Cite: cite("rfc5041/8.2/2", "rfc5041/7.2/1", "rfc5042/6.1.1/2", "rfc5040/7.2/4"),
	Needs:   verbs.CapMWType2,
	Title:   "A window bound to one stream is not accessible from another",
	Sends:   "a Write to a window on the stream it is bound to, and a Write, a Read Request and atomics on other streams of the same domain",
	Expects: "the first is placed; the others end their streams with the code for an STag of another stream, no octet changes, and none is sent",
	Defects: []string{"WindowOwner", "OwnerIsInvalidSTag"}, Run: onHost(func(h *host) {
		mine, other, reader := h.connect(setup{}), h.connect(setup{}), h.connect(setup{})
		m := h.Memory(64, bindableAccess)
		rights := verbs.AccessRemoteWrite | verbs.AccessRemoteRead
		if h.Caps.Has(verbs.CapAtomics) {
			rights |= verbs.AccessRemoteAtomic
		}
		at := mine.windowAddr(m, 0, 64, rights)
		mine.sendAndSync(writeTo(at, data(16)))
		h.ExpectBytes(m, 0, data(16))
		m.Snapshot()
		other.expectRefusal(writeTo(at, data(32)), iwarp.DDPTaggedSTagNotAssociated)
		reader.expectRefusal(reader.readFrom(at, 16), iwarp.RDMAPSTagNotAssociated)
		if h.Caps.Has(verbs.CapAtomics) {
			word := iwarp.At(at.STag, addrOf(m, m.WordOffset(0)).TO)
			for _, atomic := range atomicRequests {
				c := h.connect(setup{})
				c.expectRefusal(atomic(c, word), iwarp.RDMAPSTagNotAssociated)
			}
		}
		h.ExpectUntouched(m)
		mine.expectAnswer(mine.readFrom(at, 16), iwarp.ReadResponse(peerSTag, peerTO, data(16)))
	}),
}, {
	ID: "ddp/protection/closed-region", Cite: cite("rfc5041/8.3.1/1"),
	Title:   "A deregistered region cannot be written",
	Sends:   "a Write to a region, and another after it was deregistered",
	Expects: "the first is placed; the second ends the stream, and no octet changes",
	Defects: []string{"StaleKeys"}, Run: onConn(func(c *conn) {
		m := c.Memory(64, allAccess)
		at := addrOf(m, 0)
		c.sendAndSync(writeTo(at, data(16)))
		c.ExpectBytes(m, 0, data(16))
		m.Snapshot()
		c.Must("a region that can be deregistered", m.Close())
		c.expectRefusal(writeTo(at, data(32)), iwarp.DDPTaggedInvalidSTag)
		c.ExpectUntouched(m)
	}),
}, {
	ID: "ddp/protection/invalidated-window", Cite: cite("rfc5041/8.3.1/1", "rfc5040/5.3/8"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "An invalidated window cannot be written",
	Sends:   "a Write to a window, and another after it was invalidated by a Send of both kinds, and by a local invalidate",
	Expects: "the second Write ends the stream, and no octet changes",
	Defects: []string{"InvalidateIgnored", "LocalInvNoop"}, Run: onHost(func(h *host) {
		invalidates := []func(*conn, uint32){
			func(c *conn, stag uint32) { c.send(iwarp.SendInvalidate(c.nextSendMSN(), stag, data(16))) },
			func(c *conn, stag uint32) { c.send(iwarp.SendSEInvalidate(c.nextSendMSN(), stag, data(16))) },
		}
		if h.Caps.Has(verbs.CapLocalInv) {
			invalidates = append(invalidates, func(c *conn, stag uint32) {
				c.PostSend(c.qp, verbs.SendWR{WRID: 1, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: verbs.RKey(stag)})
			})
		}
		for _, invalidate := range invalidates {
			c := h.connect(setup{receives: 1})
			m, at := c.newWindow(verbs.AccessRemoteWrite)
			c.sendAndSync(writeTo(at, data(16)))
			c.ExpectBytes(m, 0, data(16))
			m.Snapshot()
			invalidate(c, at.STag)
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.expectRefusal(writeTo(at, data(32)), foreignKeyCauses...)
			c.ExpectUntouched(m)
		}
	}),
}}

// pageRegion is a region in the middle of a page: a device that protects whole pages does not
// detect accesses right before and after it.
type pageRegion struct {
	verbs.MR
	// buf has the region at off, with pageRegionLen octets; before is its initial content.
	buf, before []byte
	off         int
}

const (
	pageLen       = 4096
	pageRegionLen = 1024
	pageMargin    = 256
)

// newPageRegion registers a region in the middle of a page, with all access rights. It tries
// offsets in the buffer until the page has room before and after the region. If none is right, the
// device does not derive addresses from the buffer, and newPageRegion chooses an address.
func (h *host) newPageRegion() *pageRegion {
	p := &pageRegion{buf: rig.Pattern(3*pageLen, byte(h.Rand.Uint32()))}
	p.before = bytes.Clone(p.buf)
	for p.off = pageMargin; p.off < pageMargin+pageLen; p.off += pageMargin {
		p.register(h, 0)
		if at := p.Addr() % pageLen; at >= pageMargin && at+pageRegionLen+pageMargin <= pageLen {
			return p
		}
		h.Must("a region that can be deregistered", p.Close())
	}
	// The addresses of the device do not depend on the buffer: choose one.
	const anyPage = 0x5000_0000_0000
	p.register(h, anyPage+pageLen/2)
	return p
}

// register registers the region at p.off of the buffer, at an address; 0: the device chooses it.
func (p *pageRegion) register(h *host, addr uint64) {
	var err error
	p.MR, err = h.PD.RegMR(verbs.MRInit{Buf: p.buf[p.off:][:pageRegionLen:pageRegionLen], Addr: addr, Access: allAccess})
	h.Must("a memory region", err)
}

// remoteAddr returns the address at off, in the region or outside.
func (p *pageRegion) remoteAddr(off int) iwarp.Addr {
	return iwarp.At(uint32(p.RKey()), p.Addr()+uint64(int64(off)))
}

// bytesAt returns n octets at off, in the region or outside.
func (p *pageRegion) bytesAt(off, n int) []byte { return p.buf[p.off+off:][:n] }

// expectPageUnchanged fails the case if any octet of the region or around it has changed.
func (h *host) expectPageUnchanged(p *pageRegion) {
	for i := range p.buf {
		h.Check(p.buf[i] == p.before[i], "memory unchanged", "octet %d of a region of %d has changed", i-p.off, pageRegionLen)
	}
}
