package iwarp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectSegmentRefused expects that a segment ends the stream, and is not executed.
func (h *host) expectSegmentRefused(wrong makeSegment) {
	c := h.connect(setup{receives: 2})
	c.expectAbortBy(wrong(c))
	c.ExpectNoSuccess()
}

// Valid causes for an access out of bounds, or not permitted, for which DDP has no code.
var (
	boundsCauses = []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.RDMAPBounds}
	accessCauses = []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPAccess}
)

// atomicRequests make a FetchAdd and a CmpSwap, each of which changes any word.
var atomicRequests = []func(*conn, iwarp.Addr) iwarp.Segment{
	func(c *conn, at iwarp.Addr) iwarp.Segment { return iwarp.FetchAdd(c.nextRequestMSN(), 1, at, 5) },
	func(c *conn, at iwarp.Addr) iwarp.Segment {
		return iwarp.CompareSwap(c.nextRequestMSN(), 1, at, 0, 5).EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.CompareMask = new(uint64(0)) })
	},
}

// atomicKeyCauses are the valid causes for an atomic with a wrong key.
var atomicKeyCauses = slices.Concat(foreignKeyCauses, foreignReadCauses)

// expectAnswerTo fails the case unless an atomic to the address is answered.
func (c *conn) expectAnswerTo(atomic func(*conn, iwarp.Addr) iwarp.Segment, at iwarp.Addr) {
	c.expectAnswer(atomic(c, at), iwarp.Op(iwarp.OpAtomicResponse))
}

// expectRevokedAmidWrite sends half of a Write to all of m at an address, revokes the access, and
// sends the rest. It fails the case unless the stream ends and m does not change after the revoke.
func (c *conn) expectRevokedAmidWrite(m *rig.Memory, at iwarp.Addr, revoke func()) {
	const parts = 10
	n := len(m.Buf)
	segments := writeTo(at, data(n)).Segments(ddpTaggedLen + n/parts)
	c.send(segments[:parts/2]...)
	c.waitForDevice()
	revoke()
	m.Snapshot()
	c.send(segments[parts/2:]...)
	c.expectAbort()
	c.ExpectUntouched(m)
}

// expectOverrunReported fails the case unless the application is notified of a CQ overrun: by an
// event, or by an error of the poll.
func (h *host) expectOverrunReported(cq verbs.CQ) {
	if h.hasEvent(verbs.EventCQErr) {
		return
	}
	wcs := make([]verbs.WC, cq.Depth()+1)
	for {
		n, err := cq.Poll(wcs)
		switch {
		case errors.Is(err, verbs.ErrOverrun):
			return
		case err != nil:
			h.Must("a completion queue that can be polled", err)
		case n == 0:
			h.Fail("an event of the completion queue, or its error", "neither")
		}
	}
}

// awaitStreamEnd fails the case unless the device ends the stream. It returns the octets that the
// device sent before. frame describes in a violation what the peer has sent.
func (c *conn) awaitStreamEnd(frame string) (received []byte) {
	until := c.Now() + c.ResponseTimeout()
	for {
		b, err := c.tcp.Read(max(0, until-c.Now()))
		if err != nil {
			c.Check(!errors.Is(err, verbs.ErrTimeout), "the end of a stream with "+frame, "nothing in %v", c.ResponseTimeout())
			return received
		}
		received = append(received, b...)
	}
}

// invalidFrame is an invalid start-up frame.
type invalidFrame struct {
	name   string
	octets []byte
}

// sendInvalidFrame sends an invalid start-up frame, and FIN after a truncated one.
func (c *conn) sendInvalidFrame(f invalidFrame) {
	c.Note("a frame with %s", f.name)
	c.write(f.octets)
	if _, _, complete := iwarp.ParseStartupFrame(f.octets); !complete {
		c.closeWrite()
	}
}

// invalidFrames returns invalid variants of a valid start-up frame.
func invalidFrames(good startupFrame) []invalidFrame {
	frames := append(make([]invalidFrame, 0, 16),
		invalidFrame{name: "a wrong key", octets: good.WithKey("MPA ID Rex Frame").Append(nil)},
		invalidFrame{name: "a key of zeros", octets: good.WithKey("").Append(nil)},
		invalidFrame{name: "513 octets of private data", octets: good.Private(data(509)).Append(nil)}, // with 4 of enhanced data
		invalidFrame{name: "65535 octets of private data to come", octets: good.Private(data(400)).PrivateLength(65535).Append(nil)},
		invalidFrame{name: "no octet of its enhanced data", octets: truncateEnhanced(good, 0)},
		invalidFrame{name: "one octet of its enhanced data", octets: truncateEnhanced(good, 1)},
		invalidFrame{name: "three octets of its enhanced data", octets: truncateEnhanced(good, 3)},
		invalidFrame{name: "revision 255", octets: good.Revision(255).Append(nil)},
	)
	whole := good.Private(data(100)).Append(nil)
	for _, n := range []int{1, 15, 16, 19, 20, 23, 24, len(whole) - 1} {
		frames = append(frames, invalidFrame{name: fmt.Sprintf("%d of its %d octets", n, len(whole)), octets: whole[:n]})
	}
	return frames
}

// truncateEnhanced returns an enhanced frame with only n octets of its enhanced data.
func truncateEnhanced(f startupFrame, n int) []byte {
	const header = 20
	return f.PrivateLength(uint16(n)).Append(nil)[:header+n]
}

// onRestrictedQPs makes the body of a case that calls body with two queue pairs that permit only the
// rights in access: one from its creation on, and one that is changed while it is connected, unless
// the device refuses the change.
func onRestrictedQPs(access verbs.Access, body func(*conn)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		body(h.connect(setup{access: access}))
		c := h.connect(setup{})
		c.syncByRead()
		if err := c.qp.Modify(verbs.QPAttr{Access: access}, verbs.QPAttrAccessFlags); err != nil {
			c.Note("the access flags of a connected queue pair cannot be changed: %v", err)
			return
		}
		body(c)
	})
}

var securityCases = []conformance.Case{{
	ID: "security/domain/write-read-and-invalidate", Cite: cite("rfc5042/6.1.1/1"),
	Title:   "Memory of another protection domain cannot be accessed by any operation",
	Sends:   "a Write, a Read Request and Sends with Invalidate, with and without solicited event, for memory of another domain than the stream's",
	Expects: "the end of the stream for the first two, a receive that fails for the others, and memory unchanged",
	Defects: []string{"IgnorePD"}, Run: onHost(func(h *host) {
		m := h.otherPDMemory(allAccess)
		at := addrOf(m, 0)
		h.expectSegmentRefused(func(*conn) iwarp.Segment { return writeTo(at, data(16)) })
		h.expectSegmentRefused(func(c *conn) iwarp.Segment { return c.readFrom(at, 16) })
		c := h.connect(setup{receives: 2})
		c.expectInvalidateFails(iwarp.SendInvalidate(c.nextSendMSN(), at.STag, data(16)))
		c = h.connect(setup{receives: 2})
		c.expectInvalidateFails(iwarp.SendSEInvalidate(c.nextSendMSN(), at.STag, data(16)))
		h.ExpectUntouched(m)
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
	ID: "security/bounds/atomics", Cite: cite("rfc5042/6.2.1/1"), Needs: verbs.CapAtomics,
	Title:   "An atomic cannot reach an octet outside its region",
	Sends:   "a FetchAdd and a CmpSwap to the last word of a region, and to the words before its first, across its end, and after it",
	Expects: "the inner ones are executed; the others cause a Terminate: base or bounds; no octet outside changes",
	Defects: []string{"PageBounds"}, Run: onHost(func(h *host) {
		const length = 60 // the last word is across the end, if the region begins with a word
		m := h.Memory(length, allAccess)
		first := m.WordOffset(0)
		last := first + (length-first-8)/8*8
		for _, atomic := range atomicRequests {
			h.connect(setup{}).expectAnswerTo(atomic, addrOf(m, last))
			m.Snapshot()
			for _, off := range []int{first - 8, last + 8, last + 16} {
				c := h.connect(setup{})
				c.expectRefusal(atomic(c, addrOf(m, off)), boundsCauses...)
				c.ExpectUntouched(m)
			}
		}
	}),
}, {
	ID: "security/rights/atomics", Cite: cite("rfc5042/6.3.5/1"), Needs: verbs.CapAtomics,
	Title:   "Memory without remote atomic access cannot be changed or read by atomics",
	Sends:   "a FetchAdd and a CmpSwap to memory without remote access, and with each combination of remote read and write access",
	Expects: "a Terminate, no value, and memory unchanged",
	Defects: []string{"AtomicRightsUnchecked"}, Run: onHost(func(h *host) {
		for _, right := range []verbs.Access{0, verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteRead | verbs.AccessRemoteWrite} {
			m := h.Memory(64, verbs.AccessLocalWrite|right)
			for _, atomic := range atomicRequests {
				c := h.connect(setup{})
				c.expectRefusal(atomic(c, addrOf(m, m.WordOffset(0))), accessCauses...)
				c.ExpectUntouched(m)
			}
		}
	}),
}, {
	ID: "security/domain/atomics", Cite: cite("rfc5042/6.1.1/1"), Needs: verbs.CapAtomics,
	Title:   "An atomic needs a valid key of its own protection domain",
	Sends:   "a FetchAdd and a CmpSwap with an unknown key, with a key that differs in one bit of each octet, with one of another domain, and with one of a deregistered region",
	Expects: "a Terminate: invalid STag, or STag not associated; memory unchanged",
	Defects: []string{"IgnorePD", "KeyOctetIgnored"}, Run: onHost(func(h *host) {
		m, foreign, closed := h.Memory(64, allAccess), h.otherPDMemory(allAccess), h.Memory(64, allAccess)
		at, off := addrOf(m, m.WordOffset(0)), foreign.WordOffset(0)
		wrong := []iwarp.Addr{iwarp.At(unknownSTag, at.TO), addrOf(foreign, off), addrOf(closed, closed.WordOffset(0))}
		for _, bit := range []uint32{1, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 23, 1 << 24, 1 << 31} {
			wrong = append(wrong, iwarp.At(at.STag^bit, at.TO))
		}
		h.Must("a region that can be deregistered", closed.Close())
		for _, at := range wrong {
			for _, atomic := range atomicRequests {
				c := h.connect(setup{memLen: 64})
				c.expectRefusal(atomic(c, at), atomicKeyCauses...)
				c.ExpectUntouched(m, foreign, closed)
			}
		}
	}),
}, {
	ID: "security/bounds/window-within-its-region", Cite: cite("rfc5042/6.2.1/1"), Needs: verbs.CapMWType2,
	Title:   "A window gives access to its range of the region only",
	Sends:   "Writes and Read Requests that begin one octet before, and end one octet after, a window in the middle of a region, and atomics to the words before and after it",
	Expects: "a Terminate: base or bounds; memory unchanged",
	Defects: []string{"WindowBounds", "WindowAtomicBounds"}, Run: onHost(func(h *host) {
		m := h.Memory(256, bindableAccess)
		const start, length, n = 64, 128, 16            // of the window, and of a Write or Read
		for _, off := range []int{-1, length - n + 1} { // from the start of the window
			for _, wrong := range []func(*conn, iwarp.Addr) iwarp.Segment{
				func(_ *conn, at iwarp.Addr) iwarp.Segment { return writeTo(at, data(n)) },
				func(c *conn, at iwarp.Addr) iwarp.Segment { return c.readFrom(at, n) },
			} {
				c := h.connect(setup{})
				at := c.windowAddr(m, start, length, verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
				at.TO += uint64(off)
				c.expectRefusal(wrong(c, at), boundsCauses...)
			}
		}
		if h.Caps.Has(verbs.CapAtomics) {
			first := m.WordOffset(start / 8)
			for _, off := range []int{first - 8, first + length} {
				for _, atomic := range atomicRequests {
					c := h.connect(setup{})
					at := c.windowAddr(m, first, length, verbs.AccessRemoteAtomic)
					c.expectRefusal(atomic(c, iwarp.At(at.STag, addrOf(m, off).TO)), boundsCauses...)
				}
			}
		}
		h.ExpectUntouched(m)
	}),
}, {
	ID: "security/revoke/nothing-changes-afterwards", Cite: cite("rfc5042/6.2.2/1"),
	Title:   "Memory does not change after its region was deregistered, or its window invalidated",
	Sends:   "a Write of many segments, half of them before the application deregisters the region and half after; the same with a window that the application invalidates",
	Expects: "the end of the stream, and memory unchanged since then",
	Defects: []string{"StaleKeys", "StaleWindowOfAWrite"}, Run: onHost(func(h *host) {
		c, m := h.connect(setup{}), h.Memory(640, allAccess)
		c.expectRevokedAmidWrite(m, addrOf(m, 0), func() { c.Must("a region that can be deregistered", m.Close()) })
		if h.Caps.Has(verbs.CapMWType2 | verbs.CapLocalInv) {
			c, m = h.connect(setup{}), h.Memory(640, bindableAccess)
			at := c.windowAddr(m, 0, 640, verbs.AccessRemoteWrite)
			c.expectRevokedAmidWrite(m, at, func() {
				c.PostSend(c.qp, verbs.SendWR{WRID: 1, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: verbs.RKey(at.STag)})
				c.ExpectCompletion(1, verbs.WCSuccess)
			})
		}
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
		c.expectRefusal(c.readFrom(c.windowAddr(m, 0, 64, verbs.AccessRemoteWrite), 16), accessCauses...)
		c = h.connect(setup{})
		c.expectRefusal(writeTo(c.windowAddr(m, 0, 64, verbs.AccessRemoteRead), data(16)), accessCauses...)
		h.ExpectUntouched(m)
	}),
}, {
	ID: "security/rights/queue-pair-permits-writes", Cite: cite("rfc5041/7.1/7", "verbs/modify/8"),
	Title:   "A queue pair that does not permit Writes places none, whatever the memory permits",
	Sends:   "a Write to memory with all access rights, to a queue pair that permits reads only; to one that permits no more than reads since it is connected",
	Expects: "a Terminate, and memory unchanged",
	Defects: []string{"QPRightsIgnored", "QPRightsOfStart"}, Run: onRestrictedQPs(verbs.AccessRemoteRead, func(c *conn) {
		m := c.Memory(64, allAccess)
		c.expectRefusal(writeTo(addrOf(m, 0), data(16)), accessCauses...)
		c.ExpectUntouched(m)
	}),
}, {
	ID: "security/rights/queue-pair-permits-reads", Cite: cite("rfc5040/5.2.1/10", "rfc5042/6.3.5/1"),
	Title:   "A queue pair that does not permit reads answers none, whatever the memory permits",
	Sends:   "a Read Request for memory with all access rights, to a queue pair that permits Writes only; to one that permits no more than Writes since it is connected",
	Expects: "a Terminate, and no data",
	Defects: []string{"QPRightsIgnored", "QPRightsOfStart"}, Run: onRestrictedQPs(verbs.AccessRemoteWrite, func(c *conn) {
		m := c.Memory(64, allAccess)
		c.expectRefusal(c.readFrom(addrOf(m, 0), 16), accessCauses...)
	}),
}, {
	ID:   "security/rights/queue-pair-permits-atomics",
	Cite: citeSection("libibverbs", "ibv_modify_qp(3)", "verbs/modify/8"), Needs: verbs.CapAtomics,
	Title:   "A queue pair that does not permit atomics executes none, whatever the memory permits",
	Sends:   "a FetchAdd and a CmpSwap to memory with all access rights, each to a queue pair that permits reads and Writes only",
	Expects: "a Terminate, and memory unchanged",
	Defects: []string{"QPRightsIgnored"}, Run: onEachConn(setup{access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}, atomicRequests, func(c *conn, request func(*conn, iwarp.Addr) iwarp.Segment) {
		m := c.Memory(4096, allAccess)
		c.expectRefusal(request(c, addrOf(m, m.WordOffset(0))), accessCauses...)
		c.ExpectUntouched(m)
	}),
}, {
	ID: "security/rights/empty-read-needs-none", Cite: cite("rfc5042/6.3.5/2"), Level: conformance.Should,
	Title:   "A zero-length read needs no access right",
	Sends:   "a zero-length Read Request for memory with remote write access only",
	Expects: "a zero-length Read Response",
	Defects: []string{"ZeroLengthChecked"}, Run: onConn(func(c *conn) {
		m := c.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		c.expectAnswer(c.readFrom(addrOf(m, 0), 0), iwarp.ReadResponse(peerSTag, peerTO, nil))
		c.syncByRead()
	}),
}, {
	ID: "security/resource/shared-receives-run-low", Cite: cite("rfc5042/6.4.3.1/1"), Needs: verbs.CapSRQ,
	Title:   "The SRQ limit event is raised when peers have consumed most receives of an SRQ",
	Sends:   "Sends on two streams in turn, until fewer receives are left than the limit",
	Expects: "an event then, and not before",
	Defects: []string{"SRQLimitSilent"}, Run: onHost(func(h *host) {
		srq := h.CreateSRQ(verbs.SRQInit{PD: h.PD, MaxWR: 16, MaxSGE: 1})
		m := h.Memory(8*64, verbs.AccessLocalWrite)
		for i := range 8 {
			h.PostRecv(srq, uint64(i+1), m.SGE(64*i, 64))
		}
		h.Must("a limit", srq.Modify(verbs.SRQAttr{Limit: 4}, verbs.SRQLimit))
		streams := []*conn{h.connect(setup{srq: srq}), h.connect(setup{srq: srq})}
		for i := range 4 {
			streams[i%2].expectSendDelivered(uint64(i+1), 16)
		}
		h.ExpectNoEvent()
		streams[0].expectSendDelivered(5, 16)
		h.ExpectEvent(verbs.EventSRQLimitReached)
	}),
}, {
	ID: "security/resource/read-places-of-each-stream", Cite: cite("rfc5042/6.4.3.3/1"),
	Title:   "A stream with all its reads outstanding does not limit another stream",
	Sends:   "as many Read Requests as the IRD on one stream, none of which can be answered; as many on another",
	Expects: "Read Responses on the other, and then on the first",
	Defects: []string{"ReadQueueShared"}, Run: onHost(func(h *host) {
		greedy, other := h.connect(threeReads), h.connect(threeReads)
		greedy.sendReadsUnread(greedy.grantedIRD(), 16)
		for range 2 {
			other.sendBatch(other.grantedIRD(), func(int) iwarp.Segment { return other.peerRead(0, 16) })
			for range other.grantedIRD() {
				other.expectReadResponse(other.targetMem.Buf[:16])
			}
		}
		greedy.expectReadResponse(greedy.targetMem.Buf)
	}),
}, {
	ID: "security/resource/full-completion-queue", Cite: cite("rfc5042/6.4.6/1", "rfc5040/8.1.1/2"),
	Title:   "A CQ overrun is reported to the application, and ends the stream that uses the CQ, but no other",
	Sends:   "more Sends on one stream than its completion queue holds, and a Send and a Read Request on another",
	Expects: "an event, or an error of the queue; the end of the first stream; the other still works",
	Defects: []string{"CQOverrunSpreads", "CQOverrunSilent"}, Run: onHost(func(h *host) {
		roomy := h.CQ
		small := h.CreateCQ(verbs.CQInit{Depth: 4})
		n := small.Depth() + 4
		h.CQ = small
		caps := verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: n, MaxSendSGE: 1, MaxRecvSGE: 1}
		flooded := h.connect(setup{receives: n, recvLen: 16, caps: caps})
		h.CQ = roomy
		other := h.connect(setup{receives: 2})
		flooded.sendSends(slices.Repeat([]int{16}, n)...)
		flooded.waitForDevice()
		h.expectOverrunReported(small)
		flooded.expectAbort()
		other.expectSendDelivered(1, 16)
		other.syncByRead()
		other.ExpectState(other.qp, verbs.QPStateRTS)
	}),
}, {
	ID: "security/hostile/requests", Cite: citeSection("RFC 5042", "6.4.1", "rfc5042/x/1"), Level: conformance.Should,
	Labels:  []string{conformance.Dangerous},
	Title:   "A listener survives invalid and truncated Requests",
	Sends:   "Requests with wrong keys, lengths and revisions, and truncated valid ones with FIN",
	Expects: "the end of each stream, no connection request; then one of a valid Request, and a working connection",
	Defects: []string{"BadRequestHangs", "BadRequestsFillBacklog"}, Run: onHost(func(h *host) {
		l := h.listen() // for as many requests as there are invalid ones
		for _, f := range invalidFrames(enhancedRequest()) {
			c := h.dialAndSend(l, nil)
			c.sendInvalidFrame(f)
			received := c.awaitStreamEnd("a Request with " + f.name)
			r, _, ok := iwarp.ParseStartupFrame(received)
			c.Check(len(received) == 0 || ok && iwarp.Val(r.R), "no Reply to a Request with "+f.name+", or one that rejects it", "% x", head(received))
		}
		h.expectNoConnRequest(l)
		h.dialAndSend(l, enhancedRequest().Append(nil))
		request, err := l.GetRequest(h.ResponseTimeout())
		h.Must("a valid Request to the same listener", err)
		h.Must("a request that can be rejected", request.Reject(nil))
		h.connect(setup{}).syncByRead()
	}),
}, {
	ID:      "security/hostile/replies",
	Cite:    citeSection("RFC 5042", "6.4.1", "rfc5042/x/1", "rfc5044/7.1.1/14", "rfc6581/6/4"),
	Labels:  []string{conformance.Dangerous},
	Title:   "A connect fails after an invalid or truncated Reply",
	Sends:   "Replies with wrong keys, lengths and revisions, and truncated valid ones with FIN",
	Expects: "the end of each stream, the application is notified, and a working connection afterwards",
	Defects: []string{"BadReplyHangs"}, Run: onHost(func(h *host) {
		good := iwarp.Reply().Depths(defaultOrd, defaultOrd).PeerToPeer(iwarp.RTRWrite)
		for _, f := range invalidFrames(good) {
			hs := h.startActive(setup{})
			hs.recvFrame()
			hs.sendInvalidFrame(f)
			hs.awaitStreamEnd("a Reply with " + f.name) // a Terminate may be sent before
			hs.expectConnError()
		}
		h.connect(setup{active: true}).syncByRead()
	}),
}}
