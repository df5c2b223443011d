package iwarp

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// onRawTCP makes the body of a case from a function that uses a connection over raw TCP, whose
// segments the case controls.
func onRawTCP(options conformance.TCPOptions, s setup, body func(*conn)) func(*conformance.Bench) error {
	return withRawTCP(func(h *host, tcp conformance.RawTCP) {
		tcp.SetOptions(options)
		body(h.connect(s))
	})
}

// withRawTCP makes the body of a case from a function that opens connections over raw TCP, whose
// segments it controls.
func withRawTCP(body func(*host, conformance.RawTCP)) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		if b.RawTCP == nil {
			return fmt.Errorf("%w: no raw TCP for the peer on this bench", conformance.ErrBenchCannot)
		}
		tcp, err := b.RawTCP()
		if err != nil {
			return err
		}
		bench := *b
		bench.Streams = tcp
		return onHost(func(h *host) { body(h, tcp) })(&bench)
	}
}

// raw returns the stream of a connection over raw TCP, whose TCP segments the case builds.
func (c *stream) raw() conformance.RawStream { return c.tcp.(conformance.RawStream) }

// hold queues frames without sending them, and returns the offset of each frame's end in the queue.
func (c *conn) hold(frames ...iwarp.Segment) (ends []int) {
	var b []byte
	for _, f := range frames {
		b = append(b, c.encode(f)...)
		ends = append(ends, len(b))
	}
	abortOn("hold octets", c.raw().Hold(b))
	return ends
}

// release sends ranges [from, to) of the held octets in a segment each, with a pause after each.
func (c *conn) release(pieces ...[2]int) {
	for _, p := range pieces {
		c.Note("send held octets %d to %d in a segment", p[0], p[1])
		if err := c.raw().SendHeld(p[0], p[1]); err != nil {
			c.Note("release: %v", err) // the device may have reset the stream
		}
		c.Sleep(segmentPause)
	}
}

// newSends returns Sends of the given lengths with the next MSNs, and a different content each.
func (c *conn) newSends(lengths ...int) (frames []iwarp.Segment) {
	for i, n := range lengths {
		frames = append(frames, iwarp.Send(c.nextSendMSN()+uint32(i), rig.Pattern(n, byte(i))))
	}
	return frames
}

// expectDelivered expects that the Sends of newSends(lengths...) complete receives, which have
// recvLen octets each, in order, and that nothing else completes.
func (c *conn) expectDelivered(recvLen int, lengths ...int) {
	for i, n := range lengths {
		c.ExpectRecv(uint64(i+1), n)
		c.ExpectBytes(c.localMem, recvLen*i, rig.Pattern(n, byte(i)))
	}
	c.syncByRead()
	c.ExpectNoCompletion()
}

// randomPieces splits FPDUs that end at ends into segments of random lengths, reordered, some of
// them duplicate and some overlapping. No segment ends in pad or CRC, which some devices do not
// handle; other cases check that.
func randomPieces(c *conn, ends []int) (pieces [][2]int) {
	for at := 0; at < ends[len(ends)-1]; {
		end := min(ends[len(ends)-1], at+1+c.Rand.IntN(200))
		if i, _ := slices.BinarySearch(ends, end); end > ends[i]-7 { // in pad (up to 3 octets) or CRC (4)
			end = ends[i]
		}
		pieces = append(pieces, [2]int{max(0, at-c.Rand.IntN(30)), end})
		if c.Rand.IntN(4) == 0 {
			pieces = append(pieces, [2]int{at, end})
		}
		at = end
	}
	for i := range pieces {
		k := min(len(pieces)-1, i+c.Rand.IntN(4))
		pieces[i], pieces[k] = pieces[k], pieces[i]
	}
	return pieces
}

// isnBeforeWrap returns options with an initial sequence number such that sequence numbers wrap to
// 0 after the SYN and this number of octets.
func isnBeforeWrap(octets uint32) conformance.TCPOptions {
	return conformance.TCPOptions{ISN: new(-octets - 1)}
}

// writeInPieces writes octets in pieces that end at ends, and the rest, each in a separate TCP
// segment, with a pause after each.
func (c *conn) writeInPieces(b []byte, ends ...int) {
	at := 0
	for _, end := range append(ends, len(b)) {
		c.write(b[at:end])
		c.Sleep(segmentPause)
		at = end
	}
}

// segmentPause keeps a device or a network from joining segments.
const segmentPause = 200 * time.Microsecond

// expectDeliveredWhenSplit sends Sends of n octets, each split at another octet of [from, to),
// and fails the case unless all are delivered.
func (c *conn) expectDeliveredWhenSplit(n int, from, to int) {
	for at := from; at < to; at++ {
		c.PostRecv(c.qp, uint64(at), c.localMem.SGE(0, n))
		c.writeInPieces(c.encode(iwarp.Send(c.nextSendMSN(), data(n))), at)
		c.ExpectRecv(uint64(at), n)
		c.ExpectBytes(c.localMem, 0, data(n))
		clear(c.localMem.Buf[:n])
	}
}

// expectAlignedSegments receives messages, and fails the case unless each read of the stream
// begins with an FPDU. The case does not apply if a read returns more octets than a TCP segment has.
func (c *conn) expectAlignedSegments(messages int) {
	for messages > 0 {
		part := len(c.deframer.Pending())
		c.Check(part == 0, "a segment that begins with an FPDU", "one that begins %d octets after the start of an FPDU", part)
		c.Check(c.readStream(c.ResponseTimeout()), "a message", "%s", c.describeMissing())
		n, mss := len(c.deframer.Pending()), c.tcp.MSS()
		require(n <= mss, fmt.Sprintf("a read returned %d octets, more than the MSS of %d", n, mss))
		for g, ok := c.deframer.Next(); ok; g, ok = c.deframer.Next() {
			if iwarp.Val(g.DDP.Last) {
				messages--
			}
		}
	}
}

var mpaSegmentCases = []conformance.Case{{
	ID: "mpa/segment/begins-with-an-fpdu", Cite: cite("rfc5044/5.1/1"), Level: conformance.Should, Setup: setupMSS(1460),
	Title:   "TCP segments begin with an FPDU",
	Sends:   "a Read Request for 20000 octets; before it the device sends messages of several lengths, one at a time, and writes as much",
	Expects: "each read of the stream begins with a length field",
	Defects: []string{"SegmentsUnaligned"}, Run: onSetup(setup{memLen: 20000}, func(c *conn) {
		for i, n := range []int{0, 16, 300, 1000} {
			c.PostSend(c.qp, c.sendWR(uint64(i), 0, n))
			c.expectAlignedSegments(1)
		}
		c.PostSend(c.qp, c.writeWR(9, 0, 20000))
		c.expectAlignedSegments(1)
		c.send(c.peerRead(0, 20000))
		c.expectAlignedSegments(1)
	}),
}, {
	ID: "mpa/segment/begins-with-an-fpdu-though-several-wait", Cite: cite("rfc5044/5.1/1"), Level: conformance.Should,
	Setup:   setupMSS(1463),
	Title:   "TCP segments begin with an FPDU even if several FPDUs are queued and none fills a segment",
	Sends:   "nothing: the device sends four messages of 1000 octets that were posted together, with an MSS of 1463",
	Expects: "each read of the stream begins with a length field",
	Defects: []string{"SegmentsUnaligned"}, Run: onSetup(setup{}, func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, 1000), c.sendWR(2, 1000, 1000), c.sendWR(3, 2000, 1000), c.sendWR(4, 3000, 1000))
		c.expectAlignedSegments(4)
	}),
}, {
	ID: "mpa/segment/several-fpdus-in-one", Cite: cite("rfc5044/5.1/2", "rfc5044/5.2/1"),
	Title:   "All FPDUs of a segment are processed",
	Sends:   "three Sends in one segment",
	Expects: "all are delivered",
	Defects: []string{"OneFPDUPerSegment"}, Run: onConn(func(c *conn) {
		first := c.nextSendMSN()
		c.sendCoalesced(iwarp.Send(first, data(8)), iwarp.Send(first+1, data(12)), iwarp.Send(first+2, data(16)))
		c.expectRecvs(8, 12, 16)
	}),
}, {
	ID: "mpa/segment/octet-by-octet", Cite: cite("rfc5044/5.1/3"),
	Setup:   setupNoCRC, // another case splits the CRC
	Title:   "An FPDU may arrive octet by octet",
	Sends:   "without CRCs, a Send, a Write and a Read Response, each octet in a separate segment",
	Expects: "the first is delivered, the others are placed",
	Defects: []string{"HeaderInOneRead"}, Run: onWithoutCRC(func(c *conn) {
		response := iwarp.ReadResponseTo(c.deviceRead(9, 512, 13), data(13))
		for _, f := range []iwarp.Segment{iwarp.Send(c.nextSendMSN(), data(13)), c.peerWrite(0, data(13)), response} {
			b := c.encode(f)
			for i := range b {
				c.write(b[i : i+1])
				c.Sleep(segmentPause)
			}
		}
		c.expectMessage(1, 13)
		c.ExpectCompletion(9, verbs.WCSuccess)
		c.ExpectBytes(c.localMem, 512, data(13))
		c.syncByRead()
		c.ExpectBytes(c.targetMem, 0, data(13))
	}),
}, {
	ID: "mpa/segment/cut-in-the-header", Cite: cite("rfc5044/5.1/3", "rfc5044/5.2/1"),
	Title:   "A segment may end anywhere in the length or the header of an FPDU",
	Sends:   "Sends split in two, at every octet of length and header",
	Expects: "all are delivered",
	Defects: []string{"HeaderInOneRead"}, Run: onSetup(setup{}, func(c *conn) { c.expectDeliveredWhenSplit(16, 1, 21) }),
}, {
	ID: "mpa/segment/cut-in-other-headers", Cite: cite("rfc5044/5.1/3", "rfc5044/5.2/1"),
	Title:   "A segment may end anywhere in the headers of a Write or a Read Request",
	Sends:   "Writes and Read Requests split in two, at every octet of length and headers",
	Expects: "all are executed",
	Defects: []string{"HeaderInOneRead"}, Run: onSetup(setup{}, func(c *conn) {
		for at := 1; at < 2+ddpUntaggedLen+28; at++ {
			if at <= 2+ddpTaggedLen {
				c.writeInPieces(c.encode(c.peerWrite(16*at, data(16))), at)
			}
			c.writeInPieces(c.encode(c.peerRead(16*at, 16)), at)
			want := c.targetMem.Buf[16*at:][:16]
			if at <= 2+ddpTaggedLen {
				want = data(16)
			}
			c.expect(iwarp.ReadResponse(peerSTag, peerTO, want))
		}
	}),
}, {
	ID: "mpa/segment/cut-in-pad-and-crc", Cite: cite("rfc5044/5.1/3"),
	Title:   "A segment may end anywhere in the pad or the CRC of an FPDU",
	Sends:   "Sends of 13 octets split in two, at every octet of pad and CRC",
	Expects: "all are delivered",
	Defects: []string{"TrailerCut"},
	Run:     onSetup(setup{}, func(c *conn) { c.expectDeliveredWhenSplit(13, 2+18+13, 2+18+13+3+4) }),
}, {
	ID: "mpa/segment/cut-in-a-marker", Cite: cite("rfc5044/5.1/3", "rfc5044/4.3/9"), Setup: setupMarkers,
	Title:   "A segment may end before, in and after a marker",
	Sends:   "Sends across a marker, split in two before, in and after the marker; and one after a split marker",
	Expects: "all are delivered",
	Defects: []string{"HeaderInOneRead"}, Run: onSetup(setup{}, func(c *conn) {
		c.Check(c.framer.Markers, "a Reply with M set", "%v", c.deviceFrame)
		for i := range 5 {
			// A message that ends at the next marker: the following one begins with the marker.
			n := iwarp.PayloadToMarker(c.framer.Position)
			c.PostRecv(c.qp, 1, c.localMem.SGE(0, n))
			c.expectSendDelivered(1, n)
			c.PostRecv(c.qp, 2, c.localMem.SGE(0, 600))
			c.writeInPieces(c.encode(iwarp.Send(c.nextSendMSN(), data(600))), 1+i, markerInterval+i)
			c.ExpectRecv(2, 600)
			c.ExpectBytes(c.localMem, 0, data(600))
		}
	}),
}, {
	ID: "mpa/segment/one-over-three-two-in-one", Cite: cite("rfc5044/5.2/1"),
	Title:   "FPDUs are found by their lengths, independent of segment boundaries",
	Sends:   "four Sends in three segments that end inside a Send, one of them with the ends of two Sends",
	Expects: "all are delivered",
	Defects: []string{"OneFPDUPerSegment"}, Run: onConn(func(c *conn) {
		first := c.nextSendMSN()
		b := c.encode(iwarp.Send(first, data(60)), iwarp.Send(first+1, data(4)), iwarp.Send(first+2, data(8)), iwarp.Send(first+3, data(60)))
		c.writeInPieces(b, 30, 84+28+32+10)
		for i, n := range []int{60, 4, 8, 60} {
			c.expectMessage(uint64(i+1), n)
		}
	}),
}, {
	ID: "mpa/segment/nothing-before-the-fpdu-is-whole", Cite: cite("rfc5044/6/2"),
	Title:   "No octet of an FPDU is placed before all of it has arrived",
	Sends:   "a Write of 512 octets without its CRC; later the CRC",
	Expects: "memory unchanged, until the CRC has arrived",
	Defects: []string{"PlacesEarly"}, Run: onConn(func(c *conn) {
		b := c.encode(c.peerWrite(0, data(512)))
		c.write(b[:len(b)-4])
		c.expectSilence(silencePeriod)
		c.ExpectUntouched(c.targetMem)
		c.write(b[len(b)-4:])
		c.syncByRead()
		c.ExpectBytes(c.targetMem, 0, data(512))
	}),
}, {
	ID: "mpa/segment/every-kind-waits-for-its-crc", Cite: cite("rfc5044/6/2"),
	Title:   "No message is executed before all of its FPDU has arrived",
	Sends:   "each kind of message without its CRC; later the CRC",
	Expects: "no completion, no response and memory unchanged until the CRC has arrived; then the effect of the message",
	Defects: []string{"PlacesEarly"}, Run: onHost(func(h *host) {
		for _, k := range append(h.kinds(), terminateKind) {
			c := h.connectFor(k)
			s := k.valid(c)
			b := c.encode(s)
			c.write(b[:len(b)-4])
			c.expectIdle()
			c.ExpectUntouched(c.localMem, c.targetMem)
			c.write(b[len(b)-4:])
			k.expectEffect(c, s)
		}
	}),
}, {
	// These cases need raw TCP, since a kernel decides about its segments.
	ID: "mpa/segment/what-is-missing-is-waited-for", Cite: cite("rfc5040/5.5/1", "rfc5041/5.3/4"),
	Title:   "Messages after a missing TCP segment are delivered in order once it arrives",
	Sends:   "three Sends in three segments: the last first, then the second, later the first",
	Expects: "nothing before the first has arrived; then all three, in order",
	Defects: []string{"OneFPDUPerSegment"},
	Run: onRawTCP(conformance.TCPOptions{}, setup{receives: 4}, func(c *conn) {
		ends := c.hold(c.newSends(8, 24, 40)...)
		c.release([2]int{ends[1], ends[2]}, [2]int{ends[0], ends[1]})
		c.expectIdle()
		c.release([2]int{0, ends[0]})
		c.expectDelivered(64, 8, 24, 40)
	}),
}, {
	ID: "mpa/segment/repeated-is-delivered-once", Cite: cite("rfc5041/5.3/3"),
	Title:   "A message whose TCP segments are retransmitted with other boundaries is delivered once",
	Sends:   "the beginning of a Send, twice; a segment that begins near its end and ends in the next Send; the octets missing between them; then both Sends again in one segment",
	Expects: "two messages, each once",
	Defects: []string{"OneFPDUPerSegment"},
	Run: onRawTCP(conformance.TCPOptions{}, setup{receives: 4}, func(c *conn) {
		ends := c.hold(c.newSends(60, 33)...)
		c.release([2]int{0, 10}, [2]int{0, 10}, [2]int{ends[0] - 3, ends[1] - 20}, [2]int{5, ends[0]}, [2]int{0, ends[1]}, [2]int{0, ends[0]})
		c.expectDelivered(64, 60, 33)
	}),
}, {
	ID: "mpa/segment/repeated-write-is-placed-once", Cite: cite("rfc5041/5.3/3"),
	Title:   "A retransmitted TCP segment of a Write does not overwrite a later Write",
	Sends:   "two Writes to the same place, the segment of the second first; then that of the first again, in pieces and whole",
	Expects: "the content of the second",
	Defects: []string{"OneFPDUPerSegment"}, Run: onRawTCP(conformance.TCPOptions{}, setup{}, func(c *conn) {
		ends := c.hold(c.peerWrite(0, rig.Pattern(64, 1)), c.peerWrite(0, rig.Pattern(64, 2)))
		c.release([2]int{ends[0], ends[1]}, [2]int{0, ends[0]}, [2]int{0, 7}, [2]int{3, ends[0]}, [2]int{0, ends[0]})
		c.syncByRead()
		c.ExpectBytes(c.targetMem, 0, rig.Pattern(64, 2))
		c.ExpectUnchangedOutside(c.targetMem, 0, 64)
	}),
}, {
	ID: "mpa/segment/cut-joined-and-mixed-by-the-network", Cite: cite("rfc5044/5.2/1", "rfc5044/5.1/3"),
	Title:   "FPDUs are delivered however a network splits, joins, reorders and duplicates TCP segments",
	Sends:   "thirty Sends in segments of up to 230 octets that begin and end anywhere but in pad and CRC, some duplicate and reordered",
	Expects: "all are delivered, in order, each once",
	Defects: []string{"OneFPDUPerSegment"},
	Run: onRawTCP(conformance.TCPOptions{}, setup{receives: 31, recvLen: 256}, func(c *conn) {
		lengths := make([]int, 30)
		for i := range lengths {
			lengths[i] = c.Rand.IntN(257)
		}
		ends := c.hold(c.newSends(lengths...)...)
		c.release(randomPieces(c, ends)...)
		c.expectDelivered(256, lengths...)
	}),
}, {
	ID: "mpa/segment/sequence-numbers-wrap", Cite: cite("rfc5044/4.3/8"),
	Title:   "FPDUs are delivered when TCP sequence numbers wrap",
	Sends:   "twelve Sends, two in each segment, over TCP whose sequence numbers wrap in one of them; then a Read Request",
	Expects: "all are delivered, and a Read Response",
	Defects: []string{"OneFPDUPerSegment"},
	Run: onRawTCP(isnBeforeWrap(777), setup{receives: 13, recvLen: 128}, func(c *conn) {
		lengths := slices.Repeat([]int{100}, 12)
		for two := range slices.Chunk(c.newSends(lengths...), 2) {
			c.sendCoalesced(two...)
		}
		c.expectDelivered(128, lengths...)
		c.send(c.peerRead(0, 500))
		c.expectPayload(c.nextMessage(iwarp.OpReadResponse), c.targetMem.Buf[:500])
	}),
}, {
	ID: "mpa/marker/sequence-numbers-wrap", Cite: cite("rfc5044/4.3/8", "rfc5044/4.3/9"), Setup: setupMarkers,
	Title:   "Markers are found when TCP sequence numbers wrap",
	Sends:   "Sends with their markers, over TCP whose sequence numbers wrap between two markers",
	Expects: "all are delivered, without markers",
	Defects: []string{"MarkersKept"},
	Run: onRawTCP(isnBeforeWrap(777), setup{receives: 9, recvLen: 512}, func(c *conn) {
		c.Check(c.framer.Markers, "a Reply with M set", "%v", c.deviceFrame)
		lengths := slices.Repeat([]int{400}, 8)
		c.send(c.newSends(lengths...)...)
		c.expectDelivered(512, lengths...)
	}),
}, {
	ID: "ddp/end/messages-with-fin-are-heeded", Cite: cite("rfc5041/6.2.1/3"), Level: conformance.Should,
	Title:   "Messages in a TCP segment with FIN are delivered and answered",
	Sends:   "a Send, sixteen Read Requests for 1 MiB each and FIN in one segment, before it reads from the stream",
	Expects: "the Send is delivered, and all reads are answered",
	Defects: []string{"FINDropsAnswers"},
	Run: onRawTCP(conformance.TCPOptions{}, setup{receives: 1, memLen: tcpBufferBytes / defaultOrd}, func(c *conn) {
		const n = tcpBufferBytes / defaultOrd
		frames := []iwarp.Segment{iwarp.Send(c.nextSendMSN(), data(40))}
		for i := range uint32(defaultOrd) {
			frames = append(frames, iwarp.ReadRequest(c.nextRequestMSN()+i, iwarp.At(peerSTag, peerTO), n, c.targetAddr(0)))
		}
		c.hold(frames...)
		c.Note("send the held octets in a segment with FIN")
		abortOn("send FIN", c.raw().SendHeldFIN(0))
		c.ExpectRecv(1, 40)
		c.waitForDevice()
		for range defaultOrd {
			c.expectPayload(c.nextMessage(iwarp.OpReadResponse), c.targetMem.Buf[:n])
		}
		c.expectClose()
	}),
}, {
	ID: "mpa/segment/begins-with-an-fpdu-whatever-its-size", Cite: cite("rfc5044/5.1/1"), Level: conformance.Should,
	Title:   "TCP segments begin with an FPDU for every MSS",
	Sends:   "nothing: the device writes 6000 octets with an MSS of 536, 1000, 1447 and 1463",
	Expects: "segments that begin with a length and end with a CRC",
	Defects: []string{"SegmentsUnaligned", "MSSIgnored"}, Run: withRawTCP(func(h *host, tcp conformance.RawTCP) {
		for _, mss := range []int{536, 1000, 1447, 1463} {
			tcp.SetOptions(conformance.TCPOptions{MSS: mss})
			c := h.connect(setup{})
			c.PostSend(c.qp, c.writeWR(1, 0, 6000))
			c.expectWholeFPDUs(mss, 6000)
			c.ExpectCompletion(1, verbs.WCSuccess)
		}
	}),
}}

// expectWholeFPDUs receives a Write of n octets, and fails the case unless each segment holds
// complete FPDUs only. mss is the length of the segments.
func (c *conn) expectWholeFPDUs(mss, n int) {
	for received := 0; received < n; {
		c.Check(c.readStream(c.ResponseTimeout()), "a Write", "%s", c.describeMissing())
		for g, ok := c.deframer.Next(); ok; g, ok = c.deframer.Next() {
			c.checkFraming(&g)
			c.checkFPDU(iwarp.Op(iwarp.OpWrite), g)
			received += len(g.Payload)
		}
		left := len(c.deframer.Pending())
		c.Check(left == 0, fmt.Sprintf("whole FPDUs in segments of up to %d octets", mss), "one that ends %d octets after the start of an FPDU", left)
	}
}
