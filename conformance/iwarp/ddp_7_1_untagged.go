package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// makeSegment returns a segment that the peer sends on a connection.
type makeSegment = func(*conn) iwarp.Segment

// expectEachRefused sends each segment on a separate connection, and fails the case unless it
// causes a Terminate with one of the causes and is not delivered.
func (h *host) expectEachRefused(causes []iwarp.Cause, wrong ...makeSegment) {
	for _, w := range wrong {
		c := h.connect(setup{receives: 4})
		c.expectRefusalWithoutEffect(w(c), causes...)
	}
}

// onEachRefused makes the body of a case that sends each segment on a separate connection, and
// fails unless each causes a Terminate with one of the causes and is not delivered.
func onEachRefused(causes []iwarp.Cause, wrong ...makeSegment) func(*conformance.Bench) error {
	return onHost(func(h *host) { h.expectEachRefused(causes, wrong...) })
}

// wrongQueueCauses are the valid causes for a message on the wrong queue: DDP's, and RDMAP's if
// the queue exists but does not carry that opcode.
var wrongQueueCauses = []iwarp.Cause{iwarp.DDPUntaggedInvalidQN, iwarp.RDMAPUnexpectedOpcode}

// The valid causes for an MSN without a buffer, and for an MO outside of the buffer.
var (
	wrongMSNCauses = []iwarp.Cause{iwarp.DDPUntaggedMSNRange, iwarp.DDPUntaggedNoBuffer}
	wrongMOCauses  = []iwarp.Cause{iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong}
)

// sendToQueue makes a Send to queue qn, although Sends belong to queue 0.
func sendToQueue(qn uint32) makeSegment {
	return func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).QN(qn) }
}

// sendAtOffset makes a Send of 16 octets whose only segment has this MO.
func sendAtOffset(mo uint32) makeSegment {
	return func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).MO(mo) }
}

// sendReadsUnread sends Read Requests without reading the responses. The first asks for more
// than TCP buffers, so that the device cannot finish any of them; the others ask for n octets.
func (c *conn) sendReadsUnread(requests, n int) {
	c.sendBatch(requests, func(i int) iwarp.Segment {
		if i == 0 {
			return c.peerRead(0, tcpBufferBytes)
		}
		return c.peerRead(0, n)
	})
	c.waitForDevice()
}

// grantedIRD returns the IRD of the device's Reply.
func (c *conn) grantedIRD() int {
	e := c.deviceFrame.Enhanced
	c.Check(e != nil && iwarp.Val(e.IRD) != iwarp.NoNegotiation, "a Reply with an IRD", "%v", c.deviceFrame)
	return int(iwarp.Val(e.IRD))
}

// threeReads negotiates a depth of three: a device that rounds up grants more.
var threeReads = setup{
	memLen: tcpBufferBytes, connParams: depthParam(3, 3),
	frame: withDepths(3, 3),
}

var ddpUntaggedCases = []conformance.Case{{
	ID: "ddp/untagged/unknown-queue", Cite: cite("rfc5041/7.1/1"),
	Title:   "A Send to another queue than 0 is refused",
	Sends:   "Sends to queues 4 and 4294967295, which do not exist, and to 1 and 3; Sends whose second segment only is to another queue",
	Expects: "a Terminate: invalid queue number; for 1 and 3 also unexpected opcode",
	Defects: []string{"UntaggedUnchecked", "SecondSegmentQueue"}, Run: onHost(func(h *host) {
		h.expectEachRefused(wrongQueueCauses[:1], sendToQueue(4), sendToQueue(0xffffffff))
		h.expectEachRefused(wrongQueueCauses, sendToQueue(1), sendToQueue(3))
		h.expectSecondSegmentRefused(wrongQueueCauses[:1], func(s iwarp.Segment) iwarp.Segment { return s.QN(4) })
		h.expectSecondSegmentRefused(wrongQueueCauses, func(s iwarp.Segment) iwarp.Segment { return s.QN(1) })
	}),
}, {
	ID: "ddp/untagged/read-request-on-another-queue", Cite: cite("rfc5041/7.1/1"),
	Title:   "A Read Request to another queue than 1 is refused",
	Sends:   "Read Requests to queues 0 and 4",
	Expects: "a Terminate: invalid queue number; for 0 also unexpected opcode",
	Defects: []string{"ReadQueueUnchecked"}, Run: onHost(func(h *host) {
		h.expectEachRefused(wrongQueueCauses, func(c *conn) iwarp.Segment { return c.peerRead(0, 16).QN(0) })
		h.expectEachRefused(wrongQueueCauses[:1], func(c *conn) iwarp.Segment { return c.peerRead(0, 16).QN(4) })
	}),
}, {
	ID: "ddp/untagged/no-receive", Cite: cite("rfc5041/7.1/2", "rfc5041/7.2/1"),
	Title:   "A Send without a posted receive ends the stream",
	Sends:   "three Sends to two receives; with each kind of Send, two to one receive, the second of no octets too",
	Expects: "a receive for each but the last, and a Terminate: no buffer",
	Defects: []string{"BadSegmentsDropped"}, Run: onHost(func(h *host) {
		c := h.connect(setup{receives: 2})
		c.sendSends(16, 16, 16)
		c.expectRecvs(16, 16)
		c.expectTerminateAndEnd(iwarp.DDPUntaggedNoBuffer)
		for _, k := range h.sendKinds() {
			for _, n := range []int{0, kindLen} {
				c := h.connect(setup{receives: 1, memLen: 1024})
				c.sendAndExpect(k)
				c.expectRefusalWithoutEffect(k.valid(c).WithPayload(data(n)), iwarp.DDPUntaggedNoBuffer)
			}
		}
	}),
}, {
	ID: "ddp/untagged/more-reads-than-places-are-without-buffer", Cite: cite("rfc5041/7.1/2", "rfc5040/6.1/3"),
	Title:   "A Read Request that exceeds the IRD is refused with no buffer",
	Sends:   "ten Read Requests more than the IRD, without reading the responses",
	Expects: "a Terminate: no buffer",
	Defects: []string{"ReadOverflowsStream"}, Run: onSetup(threeReads, func(c *conn) {
		c.sendReadsUnread(c.grantedIRD()+10, 16)
		c.expectTerminateAfter(iwarp.OpReadResponse, iwarp.DDPUntaggedNoBuffer)
	}),
}, {
	ID: "ddp/untagged/offset-out-of-range", Cite: cite("rfc5041/7.1/3"),
	Title:   "A Send whose MO is outside of its receive is refused",
	Sends:   "Sends whose only segment has MO 64, 4096, and 2^32-16, with receives of 64",
	Expects: "a Terminate: invalid MO, or message too long",
	Defects: []string{"UntaggedUnchecked"}, Run: onEachRefused(wrongMOCauses, sendAtOffset(64), sendAtOffset(4096), sendAtOffset(1<<32-16)),
}, {
	ID: "ddp/untagged/offset-of-a-read-request", Cite: cite("rfc5041/7.1/3"),
	Title:   "A Read Request that does not begin at MO 0 is refused",
	Sends:   "a Read Request with MO 4",
	Expects: "a Terminate: invalid MO, or message too long",
	Defects: []string{"ReadQueueUnchecked"}, Run: onEachRefused(wrongMOCauses,
		func(c *conn) iwarp.Segment { return c.peerRead(0, 16).MO(4) }),
}, {
	ID: "ddp/untagged/longer-than-the-receive", Cite: cite("rfc5041/7.1/4", "rfc5041/7.1/11", "rfc5041/7.2/1"),
	Title:   "A Send longer than its receive ends the stream with that cause",
	Sends:   "each kind of Send, of 17 and 20 octets, to receives of 16: in one segment, and in two of which the first fits",
	Expects: "a Terminate: message too long, and no octet of the last segment placed",
	Defects: []string{"LongIsNoBuffer", "LongTruncated", "LongPlacedInPart"}, Run: onHost(func(h *host) {
		const recvLen = 16
		for _, k := range h.sendKinds() {
			for _, n := range []int{recvLen + 1, recvLen + 4} {
				h.expectTooLong(k, n, n)
				h.expectTooLong(k, n, recvLen)
			}
		}
	}),
}, {
	ID: "ddp/untagged/number-skipped", Cite: cite("rfc5041/7.1/5"),
	Title:   "A Send with an MSN that has no receive is refused",
	Sends:   "Sends with the MSN after the next, with that before the first, and with one far away, with one receive",
	Expects: "a Terminate: MSN out of range, or no buffer",
	Defects: []string{"UntaggedUnchecked"},
	Run: onEachConn(setup{receives: 1}, []uint32{1, 0xffffffff, 0x80000000}, func(c *conn, ahead uint32) {
		c.expectRefusalWithoutEffect(iwarp.Send(c.nextSendMSN()+ahead, data(16)), wrongMSNCauses...)
	}),
}, {
	ID: "ddp/untagged/number-of-a-read-request", Cite: cite("rfc5041/7.1/5"),
	Title:   "A Read Request with an MSN outside of the IRD is refused",
	Sends:   "Read Requests with the MSN before the first, and with one far away",
	Expects: "a Terminate: MSN out of range, or no buffer, and no Read Response",
	Defects: []string{"ReadNumberUnchecked"},
	Run: onEachConn(setup{}, []uint32{0xffffffff, 0x80000000}, func(c *conn, ahead uint32) {
		c.expectRefusalWithoutEffect(c.peerRead(0, 16).MSN(c.nextRequestMSN()+ahead), wrongMSNCauses...)
	}),
}, {
	ID: "ddp/untagged/number-repeated", Cite: cite("rfc5041/7.1/5", "rfc5041/5.3/3"),
	Title:   "A Send with the MSN of the previous Send is refused",
	Sends:   "two Sends with the same MSN",
	Expects: "one receive, and a Terminate: MSN out of range",
	Defects: []string{"UntaggedUnchecked"}, Run: onConn(func(c *conn) {
		msn := c.nextSendMSN()
		c.send(iwarp.Send(msn, data(16)), iwarp.Send(msn, data(32)))
		c.ExpectRecv(1, 16)
		c.expectTerminateAndEnd(iwarp.DDPUntaggedMSNRange)
		c.ExpectNoSuccess()
	}),
}, {
	ID: "ddp/untagged/queue-of-every-kind", Cite: cite("rfc5041/7.1/1"),
	Title:   "An untagged message to another queue than that of its opcode is refused",
	Sends:   "each kind of untagged message to the queues 0 to 4 and 4294967295, and to its own with one more bit set",
	Expects: "a Terminate: invalid queue number, or unexpected opcode; no effect",
	Defects: []string{"UntaggedUnchecked", "ReadQueueUnchecked", "QueueLowOctet"}, Run: onEachUntagged(baseKinds, (*host).expectQueuesRefused),
}, {
	ID: "ddp/untagged/number-of-every-kind", Cite: cite("rfc5041/7.1/5", "rfc7306/8.2/1"),
	Title:   "An untagged message with an MSN that has no buffer is refused",
	Sends:   "a message of each untagged kind, and a second one: with the same MSN again, and with one more bit set",
	Expects: "the first is executed; a Terminate for the second: MSN out of range, or no buffer",
	Defects: []string{"UntaggedUnchecked", "ReadNumberUnchecked", "AnswerNumberUnchecked", "NumberLow16"}, Run: onEachUntagged(allKinds, func(h *host, k messageKind) {
		for _, ahead := range []uint32{0xffffffff, 1 << 8, 1 << 16, 1 << 31} {
			h.expectSecondMSNRefused(k, ahead, wrongMSNCauses...)
		}
	}),
}, {
	ID: "ddp/untagged/number-skipped-though-it-has-a-buffer", Cite: cite("rfc5041/7.1/14"), Level: conformance.Should,
	Title:   "An untagged message that skips an MSN is refused even if it has a buffer",
	Sends:   "a message of each untagged kind, and a second one with the MSN after the next; Sends of two segments, the second with the next MSN",
	Expects: "the first is executed; a Terminate for the second: MSN out of range, or for the second segment invalid MO",
	// TCP delivers in order: the missing message cannot arrive later.
	Defects: []string{"UntaggedUnchecked", "ReadNumberUnchecked", "AnswerNumberUnchecked"}, Run: onHost(func(h *host) {
		for _, k := range h.kinds() {
			if !k.op.Tagged() {
				h.expectSecondMSNRefused(k, 1, iwarp.DDPUntaggedMSNRange)
			}
		}
		h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedMSNRange, iwarp.DDPUntaggedInvalidMO}, msnAhead(1))
	}),
}, {
	ID: "ddp/untagged/offset-of-every-kind", Cite: cite("rfc5041/7.1/3"),
	Title:   "An untagged message whose MO is outside of its buffer is refused",
	Sends:   "each kind of untagged message with MO 2^16, 2^31, and so high that MO plus length is 2^32; Read Requests with 1 and 4 too",
	Expects: "a Terminate: invalid MO, or message too long; no effect",
	Defects: []string{"UntaggedUnchecked", "ReadQueueUnchecked", "OffsetLow16"}, Run: onEachUntagged(baseKinds, (*host).expectOffsetsRefused),
}, {
	ID: "ddp/untagged/offset-of-the-second-segment", Cite: cite("rfc5041/7.1/14"), Level: conformance.Should,
	Title:   "An untagged message whose second segment does not continue the first is refused",
	Sends:   "each kind of untagged message in two segments, the second with MO 0, one more than its offset, and 2^31 more",
	Expects: "the end of the stream, with any Terminate; no effect",
	Defects: []string{"UntaggedUnchecked"}, Run: onEachUntagged(allKinds, (*host).expectSecondOffsetsRefused),
}}

// expectSecondOffsetsRefused sends messages of this kind in two segments, the second with a wrong MO,
// and expects that the device ends the stream. The device may refuse the first segment already:
// messages other than Sends fit in one.
func (h *host) expectSecondOffsetsRefused(k messageKind) {
	const first = 4
	for _, mo := range []uint32{0, first + 1, first | 1<<31} {
		c := h.connectFor(k)
		parts := splitMessage(k.valid(c), first)
		c.send(parts[0], parts[1].MO(mo))
		c.expectAbort()
		c.ExpectNoSuccess()
		c.ExpectUntouched(c.targetMem)
	}
}

// splitMessage splits an untagged message of any kind in two segments, the first with n of the
// octets after the DDP header.
func splitMessage(s iwarp.Segment, n int) [2]iwarp.Segment {
	octets := s.Append(nil)[ddpUntaggedLen:]
	s.Read, s.AtomicRequest, s.AtomicResponse, s.Immediate = nil, nil, nil, nil
	return [2]iwarp.Segment{s.WithPayload(octets[:n]).Last(false), s.WithPayload(octets[n:]).MO(uint32(n))}
}

// expectAbortByLong sends an untagged message in two segments, with one octet too many, and expects
// the end of the stream, perhaps after a Terminate.
func (c *conn) expectAbortByLong(s iwarp.Segment) {
	parts := splitMessage(s, 4)
	c.send(parts[0], parts[1].WithPayload(append(parts[1].Payload, 0)))
	c.expectAbort()
}

// expectTooLong sends a Send of this kind, with n octets, at most segmentLen in a segment, to a
// receive of 16, and fails the case unless the last segment is refused and not placed.
func (h *host) expectTooLong(k messageKind, n, segmentLen int) {
	c := h.connect(setup{receives: 2, recvLen: 16, memLen: 1024})
	parts := k.valid(c).WithPayload(data(n)).Segments(ddpUntaggedLen + segmentLen)
	c.send(parts...)
	c.expectTerminateAndEnd(iwarp.DDPUntaggedTooLong)
	c.ExpectNoSuccess()
	c.ExpectUnchangedOutside(c.localMem, 0, (len(parts)-1)*segmentLen)
}

// expectSecondMSNRefused sends two messages of this kind, the second with an MSN that is larger by
// ahead than it should be, and fails the case unless only the second is refused, with one of the
// causes.
func (h *host) expectSecondMSNRefused(k messageKind, ahead uint32, causes ...iwarp.Cause) {
	c := h.connectFor(k)
	c.sendAndExpect(k)
	c.expectRefusalWithoutEffect(msnAhead(ahead)(k.valid(c)), causes...)
}

// msnAhead returns a change of a segment that adds n to its MSN.
func msnAhead(n uint32) func(iwarp.Segment) iwarp.Segment {
	return func(s iwarp.Segment) iwarp.Segment { return s.MSN(*s.DDP.MSN + n) }
}

// expectQueuesRefused fails the case unless a kind of message is refused on other queues than its
// own.
func (h *host) expectQueuesRefused(k messageKind) {
	own := k.op.Queue()
	for _, qn := range []uint32{0, 1, 2, 3, 4, 0xffffffff, own | 1<<8, own | 1<<16, own | 1<<31} {
		if qn != own {
			h.expectKindRefused(k, func(s iwarp.Segment) iwarp.Segment { return s.QN(qn) }, wrongQueueCauses...)
		}
	}
}

// expectOffsetsRefused fails the case unless a kind of message is refused if its MO is outside of its
// buffer. A Send has a receive buffer, in which small MOs are valid; for other messages only MO 0 is.
func (h *host) expectOffsetsRefused(k messageKind) {
	offsets := []uint32{1 << 16, 1 << 31, 1<<32 - kindLen}
	if isSend := k.op >= iwarp.OpSend && k.op <= iwarp.OpSendSEInvalidate; !isSend {
		offsets = append([]uint32{1, 4}, offsets...)
	}
	for _, mo := range offsets {
		h.expectKindRefused(k, func(s iwarp.Segment) iwarp.Segment { return s.MO(mo) }, wrongMOCauses...)
	}
}

// ddpFaults are errors of the peer for which DDP has a code, but for those that involve receives.
var ddpFaults = []peerFault{
	taggedFault, untaggedFault,
	codedFault(iwarp.DDPTaggedBounds, func(c *conn) iwarp.Segment { return c.peerWrite(memLen, data(16)) }),
	codedFault(iwarp.DDPTaggedSTagNotAssociated, func(c *conn) iwarp.Segment { return writeTo(addrOf(c.otherPDMemory(allAccess), 0), data(16)) }),
	codedFault(iwarp.DDPTaggedInvalidVersion, func(c *conn) iwarp.Segment { return c.peerWrite(0, data(16)).DV(2) }),
	codedFault(iwarp.DDPUntaggedMSNRange, func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN()-1, data(16)) }),
	{name: "an MO outside of the receive", causes: wrongMOCauses, frame: sendAtOffset(1 << 20), quotesDDP: true},
	codedFault(iwarp.DDPUntaggedInvalidVersion, func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).DV(2) }),
}

// codedFault returns a fault of the peer with the name of its cause, which the Terminate must have.
func codedFault(cause iwarp.Cause, segment makeSegment) peerFault {
	return ddpFault(cause.String(), cause, segment)
}

var ddpReportCases = []conformance.Case{{
	ID: "ddp/error/later-segments-have-no-effect", Cite: cite("rfc5041/7.1/12", "rfc5041/7.1/11"),
	Title:   "Segments after an invalid segment have no effect",
	Sends:   "segments with each error of DDP, and with each a valid Write, a Send and a Read Request",
	Expects: "a Terminate for the first, and nothing for the others",
	Defects: []string{"BadSegmentsDropped", "PlacesAfterUntaggedError"}, Run: onEachConn(setup{receives: 4}, ddpFaults, func(c *conn, f peerFault) {
		c.Note("%s", f.name)
		c.sendCoalesced(f.frame(c), c.peerWrite(0, data(16)), iwarp.Send(c.nextSendMSN(), data(16)), c.peerRead(0, 16))
		c.expectTerminateAndEnd(f.causes...)
		c.ExpectNoSuccess()
		c.ExpectUntouched(c.targetMem, c.localMem)
	}),
}, {
	ID: "ddp/error/told-once", Cite: cite("rfc5041/7.1/12"),
	Title:   "Only the first of several invalid segments causes a Terminate",
	Sends:   "three invalid segments together",
	Expects: "one Terminate, and the end of the stream",
	Defects: []string{"TermRepeated"}, Run: onConn(func(c *conn) {
		c.sendCoalesced(iwarp.Write(unknownSTag, 0, data(16)), iwarp.Send(c.nextSendMSN(), data(16)).QN(4), c.peerWrite(memLen, data(16)))
		c.expectTerminateAndEnd()
	}),
}, {
	ID: "ddp/error/header-of-the-offender", Cite: cite("rfc5041/7.1/13", "rfc5040/7.1/3"),
	Title:   "A Terminate quotes the DDP header of the invalid segment",
	Sends:   "a valid Write, a Write to an unknown key, and a valid Write",
	Expects: "the header of the second in the Terminate",
	Defects: []string{"TermHeaderStale"}, Run: onConn(func(c *conn) {
		wrong := iwarp.Write(unknownSTag, 0x123456789abcdef0, data(16))
		c.sendCoalesced(c.peerWrite(0, data(16)), wrong, c.peerWrite(64, data(16)))
		c.expectQuotedDDPHeader(c.expectTerminateAndEnd(iwarp.DDPTaggedInvalidSTag), wrong)
	}),
}, {
	ID: "ddp/error/header-of-every-offender", Cite: cite("rfc5041/7.1/13", "rfc5040/7.1/3"),
	Title:   "A Terminate quotes the DDP header of the invalid segment, whatever is wrong with it",
	Sends:   "segments with each error of DDP; valid ones before them",
	Expects: "the cause, and the header of the invalid segment in the Terminate",
	Defects: []string{"TermHeaderStale"}, Run: onEachConn(setup{receives: 4}, ddpFaults, func(c *conn, f peerFault) {
		c.Note("%s", f.name)
		c.sendSends(16)
		c.syncByRead()
		wrong := f.frame(c)
		c.expectQuotedDDPHeader(c.expectRefusal(wrong, f.causes...), wrong)
	}),
}, {
	ID: "ddp/error/length-of-the-offender", Cite: cite("rfc5041/7.1/13"), Level: conformance.Should,
	Title:   "A Terminate has the length of the invalid segment, its header included",
	Sends:   "segments with each error of DDP, with a payload of 20 and of 300 octets",
	Expects: "the lengths of their headers and payloads",
	Defects: []string{"TermPayloadLength"}, Run: onHost(func(h *host) {
		for _, f := range ddpFaults {
			for _, n := range []int{20, 300} {
				c := h.connect(setup{receives: 2, recvLen: 512})
				wrong := f.frame(c).WithPayload(data(n))
				c.Note("%s", f.name)
				c.send(wrong)
				got := c.expectTerminate().Terminate.SegmentLength
				c.Check(got != nil, fmt.Sprintf("the segment length %d", wrong.Len()), "none")
				c.Check(int(*got) == wrong.Len(), fmt.Sprintf("the segment length %d", wrong.Len()), "%d", *got)
			}
		}
	}),
}, {
	ID: "ddp/error/header-cut-short", Cite: cite("rfc5041/6.2.2/1", "rfc5041/4.2/1", "rfc5041/4.3/1", "rfc5040/4.2/1"),
	Title:   "A segment shorter than its header ends the stream",
	Sends:   "each kind of message, cut to no octet, in its control octets, in its DDP header, and one octet before the end of its headers",
	Expects: "the end of the stream, no effect, and the application is notified",
	Defects: []string{"SkipsGarbage", "ShortSegmentDropped"}, Run: onHost(func(h *host) {
		for _, k := range h.kinds() {
			for _, n := range []int{0, 1, 2, 6, -1} {
				c := h.connectFor(k)
				whole := k.valid(c)
				if n < 0 {
					n = whole.Len() - len(whole.Payload) - 1
				}
				c.Note("cut to %d octets", n)
				c.expectAbortBy(whole.Cut(n))
				c.ExpectNoSuccess()
				c.ExpectUntouched(c.localMem, c.targetMem)
				c.expectDisconnect()
			}
		}
	}),
}, {
	ID: "ddp/error/codes-as-listed", Cite: cite("rfc5041/7.2/1", "rfc5041/8.2/1"),
	Title:   "Every DDP error is reported with its code",
	Sends:   "eight invalid segments, each on a separate connection",
	Expects: "the type and the code that DDP lists for each",
	Defects: []string{"CodesShifted", "DomainIsInvalidSTag"}, Run: onEachConn(setup{receives: 4}, ddpFaults, func(c *conn, f peerFault) {
		c.expectRefusal(f.frame(c), f.causes...)
	}),
}, {
	ID: "ddp/error/wrong-version-tagged", Cite: cite("rfc5041/7.2/2"),
	Title:   "A tagged segment with another DDP version is refused with that cause",
	Sends:   "Writes with DV 0, 2 and 3",
	Expects: "a Terminate: invalid version of a tagged segment",
	Defects: []string{"VersionsUnchecked"}, Run: onEachConn(setup{}, []uint8{0, 2, 3}, func(c *conn, version uint8) {
		c.expectRefusalWithoutEffect(c.peerWrite(0, data(16)).DV(version), iwarp.DDPTaggedInvalidVersion)
	}),
}, {
	ID: "ddp/error/wrong-version-untagged", Cite: cite("rfc5041/7.2/2"),
	Title:   "An untagged segment with another DDP version is refused with that cause",
	Sends:   "Sends and Read Requests with DV 0, 2 and 3",
	Expects: "a Terminate: invalid version of an untagged segment",
	Defects: []string{"VersionsUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2, 3} {
			h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidVersion},
				func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).DV(v) },
				func(c *conn) iwarp.Segment { return c.peerRead(0, 16).DV(v) })
		}
	}),
}, {
	ID: "ddp/error/wrong-version-of-every-kind", Cite: cite("rfc5041/7.2/2", "rfc7306/8.2/1"),
	Title:   "A message of any kind with another DDP version is refused with that cause",
	Sends:   "each kind of message with DV 0, 2 and 3",
	Expects: "a Terminate: invalid version of a tagged or of an untagged segment; no effect",
	Defects: []string{"VersionsUnchecked", "ReadResponseDDPVersion", "SolicitedVersionUnchecked"}, Run: onHost(func(h *host) {
		for _, k := range h.kinds() {
			cause := iwarp.DDPUntaggedInvalidVersion
			if k.op.Tagged() {
				cause = iwarp.DDPTaggedInvalidVersion
			}
			for _, v := range []uint8{0, 2, 3} {
				h.expectKindRefused(k, func(s iwarp.Segment) iwarp.Segment { return s.DV(v) }, cause)
			}
		}
	}),
}, {
	ID: "ddp/error/wrong-version-of-a-read-response", Cite: cite("rfc5041/7.2/2"),
	Title:   "A Read Response with another DDP version is refused with that cause",
	Sends:   "Read Responses with DV 0, 2 and 3 to reads of the device",
	Expects: "a Terminate: invalid version of a tagged segment; the read fails, and nothing is placed",
	Defects: []string{"ReadResponseDDPVersion"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2, 3} {
			h.expectResponseRefused(iwarp.DDPTaggedInvalidVersion, func(s iwarp.Segment) iwarp.Segment { return s.DV(v) })
		}
	}),
}}

// expectResponseRefused answers a read of the device with a changed Read Response, and fails
// the case unless it causes a Terminate, fails the read and is not placed.
func (h *host) expectResponseRefused(cause iwarp.Cause, change func(iwarp.Segment) iwarp.Segment) {
	c := h.connect(setup{})
	c.expectRefusal(change(iwarp.ReadResponseTo(c.deviceRead(1, 64, 16), data(16))), cause)
	c.expectFailures(1)
	c.ExpectUntouched(c.localMem)
}
