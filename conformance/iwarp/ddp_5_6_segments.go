package iwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectPayload fails the case unless the payload of the segments is want.
func (c *conn) expectPayload(segments []iwarp.ReceivedFPDU, want []byte) {
	got := make([]byte, 0, len(want))
	for _, g := range segments {
		got = append(got, g.Payload...)
	}
	c.Check(string(got) == string(want), fmt.Sprintf("the %d octets of the message", len(want)), "%d octets with other content or length", len(got))
}

// expectPayloadWithinMULPDU fails the case unless the payload of the segments is want, and no ULPDU
// exceeds the MULPDU.
func (c *conn) expectPayloadWithinMULPDU(segments []iwarp.ReceivedFPDU, want []byte) {
	limit := iwarp.MULPDU(c.tcp.MSS(), withoutMarkers)
	for _, g := range segments {
		c.Check(len(g.ULPDU) <= limit, fmt.Sprintf("segments of at most %d octets in TCP segments of %d", limit, c.tcp.MSS()), "%d", len(g.ULPDU))
	}
	c.expectPayload(segments, want)
}

// sglOver4GiB returns a scatter/gather list of 4 GiB and 16 octets, of which the last entry has 16.
func (h *host) sglOver4GiB() []verbs.SGE {
	const piece = 1 << 30
	m, err := h.PD.RegMR(verbs.MRInit{Buf: make([]byte, piece), Access: verbs.AccessLocalWrite})
	h.Must("a region of 1 GiB", err)
	sgl := make([]verbs.SGE, 4, 5)
	for i := range sgl {
		sgl[i] = verbs.SGEOf(m, 0, piece)
	}
	return append(sgl, verbs.SGEOf(m, 0, 16))
}

// expectPlacedInOrder sends the three segments of a Write in the given order, and fails the
// case unless the device places all of them, and changes no other memory.
func (c *conn) expectPlacedInOrder(order ...int) {
	const piece = 32
	b := data(3 * piece)
	for i, k := range order {
		c.send(c.peerWrite(k*piece, b[k*piece:][:piece]).Last(i == len(order)-1))
	}
	c.syncByRead()
	c.ExpectBytes(c.targetMem, 0, b)
	c.ExpectUnchangedOutside(c.targetMem, 0, len(b))
}

// startDisconnect starts a disconnect of the application, which may wait for posted requests.
func (c *conn) startDisconnect() conformance.Task {
	c.Note("disconnect")
	return c.Go("disconnect", c.deviceConn.Disconnect)
}

var ddpSegmentCases = []conformance.Case{{
	ID: "ddp/segment/all-data-in-segments-that-fit", Cite: cite("rfc5041/5.2/1", "rfc5044/3/3"),
	Title:   "A message is sent completely, in segments no longer than the MULPDU",
	Sends:   "Read Requests; the device sends and writes messages that end one octet before, at and after the end of a segment",
	Expects: "all octets of each, in segments that fit into those of TCP",
	Defects: []string{"MSSIgnored"}, Run: onLongMessages(func(c *conn) {
		limit := iwarp.MULPDU(c.tcp.MSS(), withoutMarkers)
		for i, n := range []int{limit - 22, limit - 18, limit - 14, limit - 10, 2 * (limit - 18), c.longLen()} {
			c.PostSend(c.qp, c.sendWR(uint64(2*i), 0, n))
			c.expectPayloadWithinMULPDU(c.nextMessage(iwarp.OpSend), c.localMem.Buf[:n])
			c.PostSend(c.qp, c.writeWR(uint64(2*i+1), 8, n))
			c.expectPayloadWithinMULPDU(c.nextMessage(iwarp.OpWrite), c.localMem.Buf[8:][:n])
			c.send(c.peerRead(8, n))
			c.expectPayloadWithinMULPDU(c.nextMessage(iwarp.OpReadResponse), c.targetMem.Buf[8:][:n])
		}
	}),
}, {
	ID: "ddp/segment/offset-within-the-message", Cite: cite("rfc5041/5.2/2"),
	Title:   "The MO of an untagged segment is its offset in the message",
	Sends:   "nothing: the device sends messages of several segments, longer than 64 KiB, with each kind of Send",
	Expects: "offsets equal to the number of octets before",
	Defects: []string{"OffsetsStandStill", "OffsetOf16Bits"}, Run: onLongMessages(func(c *conn) {
		const n = 200 << 10
		wrs, ops := c.everySendWR(n)
		c.PostSend(c.qp, wrs...)
		for _, op := range ops {
			at := 0
			for _, g := range c.nextPayload(n) {
				c.checkFPDU(iwarp.Op(op).WithPayload(c.localMem.Buf[at:][:len(g.Payload)]).MO(uint32(at)), g)
				at += len(g.Payload)
			}
		}
	}),
}, {
	ID: "ddp/segment/tagged-offset-goes-on", Cite: cite("rfc5041/5.2/3"),
	Title:   "The TO of a tagged segment is that of the message plus its offset in the message",
	Sends:   "a Read Request of several segments; the device writes as much; both also across a multiple of 4 GiB",
	Expects: "each TO follows the end of the segment before",
	Defects: []string{"OffsetsStandStill", "ResponseCarryLost"}, Run: onLongMessages(func(c *conn) {
		for _, to := range []uint64{peerTO, 5<<32 - 1000} {
			goesOn := func(op iwarp.Opcode, want []byte) {
				at := 0
				for _, g := range c.nextPayload(len(want)) {
					c.checkFPDU(iwarp.Op(op).STag(peerSTag).TO(to+uint64(at)).WithPayload(want[at:][:len(g.Payload)]), g)
					at += len(g.Payload)
				}
			}
			wr := c.writeWR(1, 0, c.longLen())
			wr.Remote.Addr = to
			c.PostSend(c.qp, wr)
			goesOn(iwarp.OpWrite, c.localMem.Buf[:c.longLen()])
			c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, to), uint32(c.longLen()), c.targetAddr(16)))
			goesOn(iwarp.OpReadResponse, c.targetMem.Buf[16:][:c.longLen()])
		}
	}),
}, {
	ID: "ddp/segment/message-below-4-gib", Cite: cite("rfc5041/5.2/4"),
	Title:   "A message of 4 GiB or more is not sent, nor any part of it",
	Sends:   "nothing: the application posts Sends, Writes and Reads of 4 GiB, and of 4 GiB and 16 octets",
	Expects: "requests that are refused or fail, and no message",
	Defects: []string{"LengthModulo"}, Run: onHost(func(h *host) {
		sgl := h.sglOver4GiB()
		for _, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead} {
			for _, pieces := range []int{len(sgl), len(sgl) - 1} {
				c := h.connect(setup{caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 5, MaxRecvSGE: 1}})
				wr := c.wr(op, 1, 0, 0)
				wr.SGL = sgl[:pieces]
				posted, err := c.qp.PostSend([]verbs.SendWR{wr})
				c.Note("post: %d accepted, %v", posted, err)
				c.expectFailures(posted)
				c.expectNoResponse()
			}
		}
	}),
}, {
	ID: "ddp/segment/read-of-3-gib", Cite: cite("rfc5040/4.4/1"),
	Title:   "A Read Request has all 32 bits of its size",
	Sends:   "nothing: the application posts Reads of 16 octets and 1, 2 and 3 GiB",
	Expects: "Read Requests with these sizes",
	Defects: []string{"ReadSizeOf24Bits"}, Run: onHost(func(h *host) {
		require(h.QueryDevice().MaxSGERead >= 4, "the device has Reads with fewer than four SGEs")
		sgl := h.sglOver4GiB()
		c := h.connect(setup{caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 5, MaxRecvSGE: 1}})
		for i := range 3 {
			wr := c.readWR(uint64(i+1), 0, 0)
			wr.SGL = sgl[len(sgl)-2-i:]
			c.expectSent(wr, iwarp.Op(iwarp.OpReadRequest).EditRead(func(h *iwarp.ReadRequestHeader) { h.Size = new(uint32(i+1)<<30 + 16) }))
		}
	}),
}, {
	ID: "ddp/segment/empty-message-is-one-segment", Cite: cite("rfc5041/5.2/5", "rfc5040/5.1/4"),
	Title:   "A zero-length message is one segment without payload",
	Sends:   "a zero-length Read Request; the device posts a zero-length Send of each kind, and a Write",
	Expects: "one FPDU for each, of 18 octets for a Send, of 14 for the others, with L set",
	Defects: []string{"ZeroLengthSkipped"}, Run: onConn(func(c *conn) {
		wrs, ops := c.everySendWR(0)
		for i := range wrs {
			wrs[i] = withoutData(wrs[i])
		}
		c.PostSend(c.qp, append(wrs, withoutData(c.writeWR(5, 0, 0)), c.sendWR(6, 0, 16))...)
		for i, op := range ops {
			c.expect(iwarp.Op(op).MSN(uint32(i + 1)).WithPayload(nil).Last(true).ULPDULength(18))
		}
		c.expect(iwarp.Op(iwarp.OpWrite).Last(true).WithPayload(nil).ULPDULength(14))
		c.expect(iwarp.Send(uint32(len(ops)+1), c.localMem.Buf[:16]))
		c.expectAnswer(c.peerRead(0, 0), iwarp.Op(iwarp.OpReadResponse).Last(true).WithPayload(nil).ULPDULength(14))
		c.syncByRead()
	}),
}, {
	ID: "ddp/segment/empty-write-needs-no-key", Cite: cite("rfc5041/5.2/6", "rfc5040/5.1/4"),
	Title:   "A zero-length Write may have any STag and offset",
	Sends:   "a Send; zero-length Writes to an unknown key, out of the bounds of a region, and to memory without the right and of another domain; a Send",
	Expects: "both Sends are delivered, and no memory changes",
	Defects: []string{"ZeroLengthChecked", "ZeroWriteRights"}, Run: onConn(func(c *conn) {
		c.send(iwarp.Send(c.nextSendMSN(), data(16)))
		for _, at := range []iwarp.Addr{
			iwarp.At(unknownSTag, ^uint64(0)), c.targetAddr(-1), c.targetAddr(memLen + 1),
			addrOf(c.Memory(64, verbs.AccessLocalWrite), 0), addrOf(c.otherPDMemory(allAccess), 0),
		} {
			c.send(writeTo(at, nil))
		}
		c.send(iwarp.Send(c.nextSendMSN(), data(32)))
		c.expectRecvs(16, 32)
		c.syncByRead()
		c.ExpectUntouched(c.targetMem)
	}),
}, {
	ID: "ddp/segment/empty-response-needs-no-key", Cite: cite("rfc5041/5.2/6"), Level: conformance.Should,
	Title:   "A zero-length Read Response may have any STag",
	Sends:   "a zero-length Read Response with an unknown key, to a zero-length read",
	Expects: "a read that completes",
	// RFC 5040 section 5.2.2 allows to check a response against its request, RFC 5041 does
	// not check the STag of a zero-length segment. The documents contradict each other here.
	Defects: []string{"ZeroResponseChecked"}, Run: onConn(func(c *conn) {
		c.expectSent(withoutData(c.readWR(1, 0, 0)), iwarp.Op(iwarp.OpReadRequest))
		c.send(iwarp.ReadResponse(unknownSTag, 0x77, nil))
		c.ExpectCompletion(1, verbs.WCSuccess)
		c.syncByRead()
	}),
}, {
	ID: "ddp/order/sent-as-posted", Cite: cite("rfc5041/5.3/1", "rfc5040/5.5/4"),
	Title:   "Messages are sent in the order in which they were posted, whatever their kind",
	Sends:   "nothing: the application posts a Write, a Read, a Send, a Write and a Send at once, and then a request of every kind",
	Expects: "the messages in that order",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 0, 16), c.readWR(2, 64, 16), c.sendWR(3, 0, 20), c.writeWR(4, 0, 24), c.sendWR(5, 0, 28))
		c.expect(iwarp.Op(iwarp.OpWrite).Length(16))
		c.expect(iwarp.Op(iwarp.OpReadRequest))
		c.expect(iwarp.Op(iwarp.OpSend).Length(20))
		c.expect(iwarp.Op(iwarp.OpWrite).Length(24))
		c.expect(iwarp.Op(iwarp.OpSend).Length(28))
		c.exchangeAllKinds() // checks the order of the opcodes
	}),
}, {
	ID: "ddp/order/ascending-within-a-message", Cite: cite("rfc5041/5.3/2"), Level: conformance.Should,
	Title:   "The segments of a message are sent from its beginning on",
	Sends:   "a Read Request of several segments; the device sends and writes as much",
	Expects: "offsets that only grow",
	Defects: []string{"TailFirst"}, Run: onLongMessages(func(c *conn) {
		grows := func(offset func(iwarp.ReceivedFPDU) uint64) {
			segments := c.nextPayload(c.longLen())
			for i, g := range segments[1:] {
				c.Check(offset(segments[i]) < offset(g), fmt.Sprintf("an offset above %d", offset(segments[i])), "%d", offset(g))
			}
		}
		c.PostSend(c.qp, c.sendWR(1, 0, c.longLen()), c.writeWR(2, 0, c.longLen()))
		grows(func(g iwarp.ReceivedFPDU) uint64 { return uint64(iwarp.Val(g.DDP.MO)) })
		grows(func(g iwarp.ReceivedFPDU) uint64 { return iwarp.Val(g.DDP.TO) })
		c.send(c.peerRead(0, c.longLen()))
		grows(func(g iwarp.ReceivedFPDU) uint64 { return iwarp.Val(g.DDP.TO) })
	}),
}, {
	ID: "ddp/order/delivered-once", Cite: cite("rfc5041/5.3/3"),
	Title:   "A message is delivered once",
	Sends:   "two Sends, one after the other",
	Expects: "one receive for each, the other receives stay posted",
	Defects: []string{"DeliversTwice"}, Run: onConn(func(c *conn) {
		for i, n := range []int{16, 32} {
			c.expectSendDelivered(uint64(i+1), n)
			c.syncByRead()
			c.ExpectNoCompletion()
		}
		c.ExpectUnchangedOutside(c.localMem, 0, 128)
	}),
}, {
	ID: "ddp/order/delivered-as-sent", Cite: cite("rfc5041/5.3/4", "rfc5040/5.3/5", "rfc5040/5.5/1"),
	Title:   "Messages are delivered in the order in which they were sent, whatever their length",
	Sends:   "ten Sends of different lengths, every other one in several segments",
	Expects: "ten receives in that order",
	Defects: []string{"LongDeliveredLate"}, Run: onSetup(setup{receives: 10}, func(c *conn) {
		lengths := []int{64, 0, 48, 4, 60, 16, 32, 8, 40, 12}
		for _, n := range lengths {
			c.send(iwarp.Send(c.nextSendMSN(), data(n)).Segments(18 + 16)...)
		}
		for i, n := range lengths {
			c.expectMessage(uint64(i+1), n)
		}
	}),
}, {
	ID: "ddp/order/write-from-the-end-is-placed", Cite: cite("rfc5041/5.3/5"), Level: conformance.Should,
	Title:   "A Write whose last segment arrives first is placed",
	Sends:   "the three segments of a Write in reverse order",
	Expects: "each is placed at its offset",
	Defects: []string{"TaggedInOrder"}, Run: onConn(func(c *conn) { c.expectPlacedInOrder(2, 1, 0) }),
}, {
	ID: "ddp/order/write-with-a-gap-is-placed", Cite: cite("rfc5041/5.3/5"), Level: conformance.Should,
	Title:   "A Write whose segments leave a gap and fill it later is placed",
	Sends:   "the first, the third and then the second segment of a Write",
	Expects: "each is placed at its offset",
	Defects: []string{"TaggedInOrder"}, Run: onConn(func(c *conn) { c.expectPlacedInOrder(0, 2, 1) }),
}, {
	ID: "ddp/order/read-request-waits-for-its-end", Cite: cite("rfc5041/5.4/1"),
	Title:   "A Read Request or another untagged message without L is not executed",
	Sends:   "each kind of untagged message with L clear",
	Expects: "no response, no completion, and memory of the peer's requests unchanged; the device may end the stream",
	Defects: []string{"DeliversFirstSegment", "ImmediateWithoutL"}, Run: onEachUntagged(allKinds, func(h *host, k messageKind) {
		c := h.connectFor(k)
		c.send(k.valid(c).Last(false))
		c.expectNoResponse()
		c.ExpectNoSuccess()
		c.ExpectUntouched(c.targetMem)
	}),
}, {
	ID: "ddp/order/read-requests-in-segments", Cite: cite("rfc5041/5.4/1"), Level: conformance.May,
	Title:   "A Read Request in two segments is answered, and so are those after it",
	Sends:   "Read Requests in two segments each, one after the other, and one in one segment",
	Expects: "a Read Response to each; instead of the first the end of the stream is accepted",
	Defects: []string{"SecondSplitReadRefused"}, Run: onConn(func(c *conn) {
		for i := range 3 {
			request := c.peerRead(16*i, 16)
			if i == 2 {
				c.send(request)
			} else {
				parts := splitMessage(request, 12)
				c.send(parts[:]...)
			}
			g, sent := c.nextFPDU(c.ResponseTimeout())
			if i == 0 && (!sent || g.Op() == iwarp.OpTerminate) {
				c.expectEnd()
				return
			}
			c.Check(sent, "a Read Response", "%s", c.describeMissing())
			c.checkFPDU(iwarp.ReadResponseTo(request, c.targetMem.Buf[16*i:][:16]), g)
		}
	}),
}, {
	ID: "ddp/order/length-of-what-was-delivered", Cite: cite("rfc5041/5.4/2", "rfc5040/5.3/3"),
	Title:   "The completion of a receive has the length of its message",
	Sends:   "Sends of 0, 3 and 16 octets to receives of 64",
	Expects: "receives of 0, 3 and 16 octets, and no further octet changed",
	Defects: []string{"BufferSizeReported"}, Run: onConn(func(c *conn) {
		for i, n := range []int{0, 3, 16} {
			c.send(iwarp.Send(c.nextSendMSN(), data(n)))
			c.expectMessage(uint64(i+1), n)
			c.ExpectUnchangedOutside(c.localMem, i*64, n)
			c.localMem.Snapshot()
		}
	}),
}, {
	ID: "ddp/end/error-does-not-just-break-the-stream", Cite: cite("rfc5041/6.2/1"),
	Title:   "After a DDP error, RDMAP sends a Terminate before the stream ends",
	Sends:   "a Write to an unknown key",
	Expects: "a Terminate, and then the end of the stream",
	Defects: []string{"ErrorResets"}, Run: onConn(func(c *conn) {
		c.expectRefusal(iwarp.Write(unknownSTag, 0, data(16)))
	}),
}, {
	ID: "ddp/end/disconnect-sends-what-was-posted", Cite: cite("rfc5041/6.2.1/1"), Level: conformance.Should,
	Title:   "Requests posted before the application disconnects are sent",
	Sends:   "nothing, and reads nothing until the application has posted 100 Sends and disconnected",
	Expects: "the 100 Sends, then an orderly close of the stream",
	Defects: []string{"DisconnectDropsQueue"}, Run: onSetup(setup{memLen: tcpBufferBytes / 100}, func(c *conn) {
		const n, size = 100, tcpBufferBytes / 100 &^ 3
		c.postBatch(n, func(i int) verbs.SendWR { return c.sendWR(uint64(i+1), 0, size) })
		disconnecting := c.startDisconnect()
		c.waitForDevice()
		for range n {
			c.expectPayload(c.nextMessage(iwarp.OpSend), c.localMem.Buf[:size])
		}
		c.expectClose()
		c.closeWrite()
		c.Must("a disconnect", disconnecting.Wait(c.ResponseTimeout()))
		c.expectDisconnect()
	}),
}, {
	ID: "ddp/end/posts-after-disconnect-fail", Cite: cite("rfc5041/6.2.1/2"),
	Title:   "A request posted after a disconnect fails",
	Sends:   "FIN, after that of the device; another time, a Read Response between the disconnect and the Send",
	Expects: "a Send, and later a Send, a Write and a read, that are refused or fail, and nothing on the wire",
	Defects: []string{"FlushForgets", "ClosingSends"}, Run: onEachConn(setup{}, []bool{false, true}, func(c *conn, reads bool) {
		var read iwarp.Segment
		if reads {
			read = c.deviceRead(9, 64, 16)
		}
		disconnecting := c.startDisconnect()
		if reads {
			c.waitForDevice()
		} else {
			c.expectClose()
		}
		posted, err := c.qp.PostSend([]verbs.SendWR{c.sendWR(1, 0, 16)})
		c.Note("post: %d taken, %v", posted, err)
		if reads {
			c.send(iwarp.ReadResponseTo(read, data(16)))
			c.PollCompletion(c.endTimeout()) // a device may have failed the read
			c.expectEnd()
		}
		c.closeWrite()
		c.Must("a disconnect", disconnecting.Wait(c.ResponseTimeout()))
		c.expectDisconnect()
		c.expectFailures(posted)
		for _, wr := range []verbs.SendWR{c.sendWR(2, 0, 16), c.writeWR(3, 0, 16), c.readWR(4, 0, 16)} {
			posted, err = c.qp.PostSend([]verbs.SendWR{wr})
			c.Note("post: %d taken, %v", posted, err)
			c.expectFailures(posted)
		}
	}),
}, {
	ID: "ddp/end/closed-with-work-outstanding-is-failed", Cite: cite("rfc5041/6.2.1/2", "rfc5044/7.2/1"),
	Title:   "A queue pair whose connection is closed with outstanding requests is in the error state",
	Sends:   "FIN while the device waits for a Read Response: without, and after a disconnect of the application",
	Expects: "the end of the stream without a wait, a queue pair in the error state, and a read that fails",
	Defects: []string{"BusyCloseIsIdle", "CrossingCloseWaits", "PeerCloseWaits"}, Run: onEachConn(setup{}, []bool{false, true}, func(c *conn, disconnects bool) {
		c.deviceRead(1, 0, 16)
		var disconnecting conformance.Task
		if disconnects {
			disconnecting = c.startDisconnect()
			c.waitForDevice()
		}
		c.closeWrite()
		c.expectEnd()
		if disconnects {
			c.Note("disconnected: %v", disconnecting.Wait(c.ResponseTimeout()))
		}
		c.expectDisconnect()
		c.AwaitState(c.qp, verbs.QPStateErr)
		c.expectFailures(1)
	}),
}, {
	ID: "ddp/end/answers-go-on-after-fin", Cite: cite("rfc5041/6.2.1/3"), Level: conformance.Should,
	Title:   "Reads are answered after the peer has closed its direction of the stream",
	Sends:   "sixteen Read Requests for 1 MiB each and FIN, before it reads from the stream",
	Expects: "all Read Responses",
	Defects: []string{"FINDropsAnswers"}, Run: onSetup(setup{memLen: tcpBufferBytes / defaultOrd}, func(c *conn) {
		const n = tcpBufferBytes / defaultOrd
		c.sendBatch(defaultOrd, func(int) iwarp.Segment { return c.peerRead(0, n) })
		c.closeWrite()
		c.waitForDevice()
		for range defaultOrd {
			c.expectPayload(c.nextMessage(iwarp.OpReadResponse), c.targetMem.Buf[:n])
		}
		c.expectClose()
	}),
}, {
	ID: "ddp/end/answers-go-on-after-disconnect", Cite: cite("rfc5041/6.2.1/1"), Level: conformance.Should,
	Title:   "Reads that arrived before the application disconnects are answered",
	Sends:   "a Read Request for 16 MiB, and as many short ones as the IRD permits; reads from the stream after the application has disconnected, twice",
	Expects: "all Read Responses, then an orderly close of the stream",
	Defects: []string{"CloseBeforeResponses", "SecondDisconnectAborts"},
	Run: onSetup(setup{memLen: tcpBufferBytes, connParams: depthParam(128, 128), frame: withDepths(128, 128)}, func(c *conn) {
		const short = 16
		c.sendReadsUnread(c.grantedIRD(), short)
		disconnecting := []conformance.Task{c.startDisconnect(), c.startDisconnect()}
		c.waitForDevice()
		c.expectPayload(c.nextMessage(iwarp.OpReadResponse), c.targetMem.Buf)
		for range c.grantedIRD() - 1 {
			c.expectPayload(c.nextMessage(iwarp.OpReadResponse), c.targetMem.Buf[:short])
		}
		c.expectClose()
		c.closeWrite()
		for _, d := range disconnecting { // the second may fail
			c.Note("disconnected: %v", d.Wait(c.ResponseTimeout()))
		}
		c.expectDisconnect()
	}),
}, {
	ID: "ddp/end/idle-time-does-not-count", Cite: cite("rfc5041/6.2.1/1", "rfc5041/6.2/1"), Level: conformance.Should, Labels: []string{conformance.Slow},
	Title:   "A connection that was idle for a while ends like any other",
	Sends:   "nothing for ten seconds. Then: a Read Response, a second after the application has disconnected; a Write to an unknown key",
	Expects: "a read that completes, and an orderly close of the stream; a Terminate",
	Defects: []string{"CloseTimerStale"}, Run: onHost(func(h *host) {
		const idle = 10 * time.Second
		c := h.connect(setup{})
		read := c.deviceRead(1, 64, 16)
		c.Sleep(idle)
		disconnecting := c.startDisconnect()
		c.Sleep(time.Second)
		c.send(iwarp.ReadResponseTo(read, data(16)))
		c.ExpectCompletion(1, verbs.WCSuccess)
		c.expectClose()
		c.closeWrite()
		c.Must("a disconnect", disconnecting.Wait(c.ResponseTimeout()))

		c = h.connect(setup{})
		c.Sleep(idle)
		c.expectRefusal(iwarp.Write(unknownSTag, 0, data(16)), iwarp.DDPTaggedInvalidSTag)
	}),
}, {
	ID: "ddp/end/outstanding-requests-fail", Cite: cite("rfc5041/6.2.2/2", "rfc5040/6.2.1/2"), Level: conformance.Should,
	Title:   "Outstanding requests and receives complete in error when the connection breaks",
	Sends:   "a reset, while four reads and four Sends of the device and two receives are outstanding",
	Expects: "ten completions in error",
	Defects: []string{"FlushForgets"}, Run: onSetup(setup{receives: 2}, func(c *conn) {
		c.postOutstanding(4, 4)
		c.reset()
		c.expectDisconnect()
		c.expectFailures(4 + 4 + 2)
	}),
}}

// postOutstanding posts reads, and fenced Sends, which wait for the peer's Read Responses. It
// receives the Read Requests and leaves them unanswered.
func (c *conn) postOutstanding(reads, sends int) {
	c.postBatch(reads+sends, func(i int) verbs.SendWR {
		if i < reads {
			return c.readWR(uint64(100+i), 1024+16*i, 16)
		}
		wr := c.sendWR(uint64(200+i), 16*i, 16)
		wr.Flags |= verbs.SendFence
		return wr
	})
	for range reads {
		c.expect(iwarp.Op(iwarp.OpReadRequest))
	}
}
