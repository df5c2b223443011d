package iwarp

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectReadResponse fails the case unless the next message is a Read Response with the data.
func (c *conn) expectReadResponse(want []byte) {
	c.expectPayload(c.nextMessage(iwarp.OpReadResponse), want)
}

// deviceRead makes the device read n octets into localMem at off, and returns the Read Request.
func (c *conn) deviceRead(id uint64, off, n int) iwarp.Segment {
	c.PostSend(c.qp, c.readWR(id, off, n))
	return c.expect(iwarp.Op(iwarp.OpReadRequest)).Segment
}

// onInvalidResponses makes the body of a case that answers Reads with invalid responses, each on a
// connection of its own. Each of answers returns the segments of a response. The device must end
// the stream, fail the Read (WR ID 1), and write nothing outside the 32 octets at offset 64 of
// localMem, the buffer of the Read.
func onInvalidResponses(answers ...func(c *conn, request iwarp.Segment) []iwarp.Segment) func(*conformance.Bench) error {
	return onEachConn(setup{}, answers, func(c *conn, answer func(*conn, iwarp.Segment) []iwarp.Segment) {
		c.send(answer(c, c.deviceRead(1, 64, 32))...)
		c.expectAbort()
		c.expectFailures(1)
		c.ExpectUntouched(c.targetMem)
		c.ExpectUnchangedOutside(c.localMem, 64, 32)
	})
}

var rdmapWriteReadCases = []conformance.Case{{
	ID: "rdmap/write/nobody-is-told", Cite: cite("rfc5040/5.1/1"),
	Title:   "A Write consumes no receive and completes nothing",
	Sends:   "Writes of one and of several segments, and a Send",
	Expects: "no completion for the Writes, and the first receive for the Send",
	Defects: []string{"EverythingTakesReceive"}, Run: onConn(func(c *conn) {
		c.send(c.peerWrite(0, data(16)))
		c.send(c.peerWrite(64, data(64)).Segments(14 + 16)...)
		c.syncByRead()
		c.ExpectNoCompletion()
		c.expectSendDelivered(1, 16)
		c.ExpectBytes(c.targetMem, 64, data(64))
	}),
}, {
	ID: "rdmap/write/in-order", Cite: cite("rfc5040/5.1/2"),
	Title:   "Writes are sent in the order in which they were posted",
	Sends:   "nothing: the application posts three Writes to one address, and a Send, at once",
	Expects: "the three in that order, and the Send after them",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 0, 16), c.writeWR(2, 16, 16), c.writeWR(3, 32, 16), c.sendWR(4, 0, 16))
		for off := 0; off < 48; off += 16 {
			c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[off:][:16]))
		}
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
	}),
}, {
	ID: "rdmap/write/one-key-for-all-pieces", Cite: cite("rfc5040/5.1/3"),
	Title:   "A Write with several SGEs is one message",
	Sends:   "nothing: the application posts Writes with four SGEs, of 100 octets, and of several segments",
	Expects: "one message with the data of all four for each",
	Defects: []string{"WritePerSGE"},
	Run: onSetup(setup{caps: verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 1}}, func(c *conn) {
		wr := c.writeWR(1, 0, 0)
		wr.SGL = []verbs.SGE{c.localMem.SGE(300, 20), c.localMem.SGE(100, 12), c.localMem.SGE(0, 4), c.localMem.SGE(200, 64)}
		c.PostSend(c.qp, wr, c.sendWR(2, 0, 16))
		var want []byte
		for _, piece := range [][]byte{c.localMem.Buf[300:320], c.localMem.Buf[100:112], c.localMem.Buf[:4], c.localMem.Buf[200:264]} {
			want = append(want, piece...)
		}
		// 100 octets fit into one segment for every MSS.
		c.expect(iwarp.Write(peerSTag, peerTO, want).Last(true))
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
		wr.SGL = []verbs.SGE{c.localMem.SGE(0, 5000), c.localMem.SGE(8001, 1), c.localMem.SGE(8500, 3), c.localMem.SGE(9000, 5002)}
		c.PostSend(c.qp, wr)
		segments := c.nextMessage(iwarp.OpWrite)
		c.expectLastFlagOnce(segments)
		c.expectConstantOctets(1, 6, segments)
		c.expectPayload(segments, slices.Concat(c.localMem.Buf[:5000], c.localMem.Buf[8001:8002], c.localMem.Buf[8500:8503], c.localMem.Buf[9000:14002]))
	}),
}, {
	ID: "rdmap/read/places-are-given-back", Cite: cite("rfc5040/5.2.1/2"),
	Title:   "An answered read frees its IRD resource",
	Sends:   "four times as many Read Requests as the IRD, one after the other: of 16 octets, of none, and of several segments",
	Expects: "a Read Response to each",
	Defects: []string{"IRDLeaks", "EmptyReadLeaks"}, Run: onHost(func(h *host) {
		for _, n := range []int{16, 0, memLen} {
			c := h.connect(setup{connParams: depthParam(3, 3), frame: withDepths(3, 3)})
			for range 4 * c.grantedIRD() {
				c.send(c.peerRead(0, n))
				c.expectReadResponse(c.targetMem.Buf[:n])
			}
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
		full := iwarp.MULPDU(c.tcp.MSS(), withoutMarkers) - ddpTaggedLen
		for i, n := range []int{1, full - 1, full, full + 1, 2 * full, 2*full + 1, 60000} {
			c.send(c.peerRead(3*i, n))
			c.expectReadResponse(c.targetMem.Buf[3*i:][:n])
		}
	}),
}, {
	ID: "rdmap/read/unknown-key", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4"),
	Title:   "A Read Request with an unknown STag ends the stream",
	Sends:   "Read Requests with an unknown key, and with a key that differs in one bit: each of the 32",
	Expects: "a Terminate: invalid STag, and no Read Response",
	Defects: []string{"BadSegmentsDropped", "KeyBitIgnored"}, Run: onHost(func(h *host) {
		h.expectEachRefused([]iwarp.Cause{iwarp.RDMAPInvalidSTag},
			func(c *conn) iwarp.Segment { return c.readFrom(iwarp.At(unknownSTag, c.targetAddr(0).TO), 16) })
		for bit := range 32 {
			c := h.connect(setup{memLen: 1024})
			at := c.targetAddr(0)
			c.expectRefusalWithoutEffect(c.readFrom(iwarp.At(at.STag^1<<bit, at.TO), 16), iwarp.RDMAPInvalidSTag)
		}
	}),
}, {
	ID: "rdmap/read/out-of-bounds", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4"),
	Title:   "A Read Request outside its region ends the stream",
	Sends:   "Read Requests that begin one octet before, end one octet after, and begin after a region in the middle of a page",
	Expects: "a Terminate: base or bounds, and no Read Response",
	Defects: []string{"PageBounds"}, Run: onEachRefused([]iwarp.Cause{iwarp.RDMAPBounds},
		func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(-1), 16) },
		func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(pageRegionLen-15), 16) },
		func(c *conn) iwarp.Segment { return c.readFrom(c.newPageRegion().remoteAddr(pageRegionLen+16), 16) }),
}, {
	ID: "rdmap/read/key-of-another-domain", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4", "rfc5042/6.1.1/1"),
	Title:   "Memory of another protection domain cannot be read",
	Sends:   "a Read Request for memory of another domain than the stream's",
	Expects: "a Terminate: STag not associated, or invalid STag; no Read Response",
	Defects: []string{"IgnorePD"},
	Run: onEachRefused(foreignReadCauses,
		func(c *conn) iwarp.Segment { return c.readFrom(addrOf(c.otherPDMemory(allAccess), 0), 16) }),
}, {
	ID: "rdmap/read/wraps-around", Cite: cite("rfc5040/5.2.1/7", "rfc5040/7.2/4", "rfc5040/6.2.1/1", "rfc5042/6.2.1/1"),
	Title:   "A Read Request whose TO wraps around 2^64 ends the stream with that cause",
	Sends:   "Read Requests for 16 octets and for 4 GiB less one at TO 2^64-8",
	Expects: "a Terminate: TO wrap, or base or bounds",
	Defects: []string{"WrapUnchecked"}, Run: onEachRefused([]iwarp.Cause{iwarp.RDMAPTOWrap, iwarp.RDMAPBounds},
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
		c.syncByRead()
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
		c.syncByRead()
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
	Sends:   "Read Requests for memory without remote access, with remote write access, and with remote atomic access too",
	Expects: "a Terminate: access rights, and no Read Response",
	Defects: []string{"ReadRightsUnchecked", "ReadByAtomicRight"}, Run: onHost(func(h *host) {
		for _, right := range h.rightsWithout(verbs.AccessRemoteRead) {
			h.expectEachRefused([]iwarp.Cause{iwarp.RDMAPAccess}, func(c *conn) iwarp.Segment {
				return c.readFrom(addrOf(c.Memory(64, verbs.AccessLocalWrite|right), 0), 16)
			})
		}
	}),
}, {
	ID: "rdmap/response/as-many-as-granted", Cite: cite("rfc5040/5.2.2/2"),
	Title:   "As many outstanding reads as the IRD are answered",
	Sends:   "as many Read Requests at once as the IRD, none of which can be answered before all have arrived; then as many again",
	Expects: "Read Responses to all of them",
	Defects: []string{"IRDLeaks"}, Run: onSetup(threeReads, func(c *conn) {
		n := c.grantedIRD()
		c.sendReadsUnread(n, 16)
		c.expectReadResponse(c.targetMem.Buf)
		for range n - 1 {
			c.expectReadResponse(c.targetMem.Buf[:16])
		}
		c.sendBatch(n, func(int) iwarp.Segment { return c.peerRead(32, 16) })
		for range n {
			c.expectReadResponse(c.targetMem.Buf[32:48])
		}
	}),
}, {
	ID: "rdmap/response/completes-at-its-end", Cite: cite("rfc5040/5.2.2/3", "rfc5040/5.5/7"),
	Title:   "A read completes when the last segment of its response has arrived",
	Sends:   "two of three segments of a Read Response, and later the third",
	Expects: "a completion after the third",
	Defects: []string{"DeliversFirstSegment"}, Run: onConn(func(c *conn) {
		parts := iwarp.ReadResponseTo(c.deviceRead(7, 64, 48), data(48)).Segments(14 + 16)
		c.send(parts[0], parts[1])
		c.expectIdle()
		c.send(parts[2])
		c.ExpectCompletion(7, verbs.WCSuccess)
		c.ExpectBytes(c.localMem, 64, data(48))
	}),
}, {
	ID: "rdmap/response/first-segment-is-checked", Cite: cite("rfc5040/5.2.2/5"), Level: conformance.May,
	Title:   "A Read Response to another sink than requested is refused",
	Sends:   "Read Responses with the key of other memory that the peer can write, to a TO one octet, 64 octets and 4 GiB away, and longer than requested by one octet and by four",
	Expects: "the end of the stream, a read that fails, and nothing placed elsewhere",
	Defects: []string{"ResponseUnmatched", "ResponseOffset32"}, Run: onInvalidResponses(
		func(c *conn, _ iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(32))}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(32)).TO(*r.Read.SinkTO + 64)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(32)).TO(*r.Read.SinkTO + 1<<32)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(32)).TO(*r.Read.SinkTO - 1)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(32)).TO(*r.Read.SinkTO + 1)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(33))}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return []iwarp.Segment{iwarp.ReadResponseTo(r, data(36))}
		}),
}, {
	ID: "rdmap/response/later-segments-are-checked", Cite: cite("rfc5040/5.2.2/5"), Level: conformance.May,
	Title:   "A Read Response to another sink from its second segment on is refused",
	Sends:   "Read Responses whose second segment has the key of other memory that the peer can write, or another TO, or is too long",
	Expects: "the end of the stream, a read that fails, and nothing placed elsewhere",
	Defects: []string{"LaterResponseUnchecked"}, Run: onInvalidResponses(
		func(c *conn, r iwarp.Segment) []iwarp.Segment {
			parts := iwarp.ReadResponseTo(r, data(32)).Segments(14 + 16)
			return []iwarp.Segment{parts[0], writeTo(c.targetAddr(0), data(16)).Opcode(iwarp.OpReadResponse)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			parts := iwarp.ReadResponseTo(r, data(32)).Segments(14 + 16)
			return []iwarp.Segment{parts[0], parts[1].TO(*parts[1].DDP.TO + 64)}
		},
		func(_ *conn, r iwarp.Segment) []iwarp.Segment {
			return iwarp.ReadResponseTo(r, data(33)).Segments(14 + 16) // the third segment is one octet too many
		}),
}, {
	ID: "rdmap/response/unasked-for-is-refused", Cite: cite("rfc5040/5.2.2/6"),
	Title:   "An unsolicited Read Response ends the stream, and is not placed",
	Sends:   "a Read Response to memory that the peer can write, of 16 octets and of none: at once, and to an atomic; one after a read; and the Response to that read a second time",
	Expects: "the end of the stream, and memory unchanged; the atomic fails",
	Defects: []string{"BadSegmentsDropped", "SecondResponseDropped", "EmptyResponseDropped", "ResponseToAtomicDropped"}, Run: onHost(func(h *host) {
		for _, n := range []int{16, 0} {
			c := h.connect(setup{})
			c.expectAbortBy(iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(n)))
			c.ExpectUntouched(c.targetMem)
			if h.Caps.Has(verbs.CapAtomics) {
				c = h.connect(setup{})
				c.deviceFetchAdd(1, 64)
				c.expectAbortBy(iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(n)))
				c.expectFailures(1)
				c.ExpectUntouched(c.localMem, c.targetMem)
			}
		}
		for _, again := range []bool{false, true} {
			c := h.connect(setup{})
			answer := iwarp.ReadResponseTo(c.deviceRead(1, 64, 16), data(16))
			c.send(answer)
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.localMem.Snapshot()
			if !again {
				answer = answer.STag(c.targetAddr(0).STag).TO(c.targetAddr(0).TO)
			}
			c.expectAbortBy(answer.WithPayload(rig.Pattern(16, 99)))
			c.ExpectUntouched(c.localMem, c.targetMem)
			c.ExpectNoSuccess()
		}
	}),
}, {
	ID: "rdmap/response/unasked-for-is-named", Cite: cite("rfc5040/5.2.2/6"), Level: conformance.Should,
	Title:   "An unsolicited Read Response is reported as an error of the peer",
	Sends:   "a Read Response to memory that the peer can write",
	Expects: "a Terminate: unexpected opcode, or invalid STag",
	Defects: []string{"UnaskedIsLocal"}, Run: onConn(func(c *conn) {
		c.send(iwarp.ReadResponse(c.targetAddr(0).STag, c.targetAddr(0).TO, data(16)))
		c.expectTerminateAndEnd(iwarp.RDMAPUnexpectedOpcode, iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated)
	}),
}, {
	ID: "rdmap/response/short-is-no-success", Cite: cite("rfc5040/5.2.2/7"), Level: conformance.Should,
	Title:   "A read with a short response does not complete with its full length",
	Sends:   "12 and 4 octets, the latter with L, to a read of 20; and 19, 1 and no octets in one segment",
	Expects: "a read that fails, or that completes with the length that was sent",
	Defects: []string{"ShortResponseTaken"}, Run: onHost(func(h *host) {
		for _, n := range []int{16, 19, 1, 0} {
			c := h.connect(setup{})
			request := c.deviceRead(7, 64, 20)
			if n == 16 {
				c.send(iwarp.ReadResponseTo(request, data(n)).Segments(14 + 12)...)
			} else {
				c.send(iwarp.ReadResponseTo(request, data(n)))
			}
			wc := c.NextCompletion()
			c.Check(wc.Status != verbs.WCSuccess || int(wc.ByteLen) == n, fmt.Sprintf("request %d to fail, or to have %d octets", wc.WRID, n), "%s", rig.Describe(&wc))
		}
	}),
}}
