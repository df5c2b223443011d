package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// sendFetchAdds sends n FetchAdds of 1 at once, with the identifiers from first on.
func (c *conn) sendFetchAdds(first uint32, at iwarp.Addr, n int) {
	c.sendBatch(n, func(i int) iwarp.Segment { return iwarp.FetchAdd(c.nextRequestMSN(), first+uint32(i), at, 1) })
}

var rdmapxAtomicCases = conformance.Group{Needs: verbs.CapAtomics}.Cases([]conformance.Case{{
	ID: "rdmapx/atomic/indivisible-between-streams", Cite: cite("rfc7306/5/2"),
	Title:   "Concurrent atomics of two streams on one word lose no update",
	Sends:   "FetchAdds of 1 to one word, alternately on two streams",
	Expects: "distinct original values in the responses, and their count in memory",
	Defects: []string{"AtomicTorn"}, Run: onHost(func(h *host) {
		a, b := h.connect(setup{}), h.connect(setup{})
		a.setWord(0)
		const rounds, each = 20, 8
		seen := make(map[uint64]bool)
		for i := range rounds {
			a.sendFetchAdds(uint32(each*i), a.wordAddr(0), each)
			b.sendFetchAdds(uint32(each*i), a.wordAddr(0), each)
			for _, c := range []*conn{a, b} {
				for range each {
					g := c.expect(iwarp.Op(iwarp.OpAtomicResponse))
					original := iwarp.Val(iwarp.Val(g.AtomicResponse).Original)
					h.Check(!seen[original], "an original value that was not returned before", "%d again", original)
					seen[original] = true
				}
			}
		}
		a.expectWord(2 * rounds * each)
	}),
}, {
	ID: "rdmapx/atomic/numbers-shared-with-reads", Cite: cite("rfc7306/5.2/1"),
	Title:   "Atomic Requests and Read Requests share their MSNs",
	Sends:   "a Read Request, a FetchAdd and a Read Request; the device does the same",
	Expects: "MSNs 1, 2 and 3 of queue 1, and responses to the peer's requests",
	Defects: []string{"AtomicsApart"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.readWR(1, 64, 16), c.fetchAddWR(2, 128, 1), c.readWR(3, 192, 16))
		c.expect(iwarp.Op(iwarp.OpReadRequest).QN(1).MSN(1))
		c.expect(iwarp.Op(iwarp.OpAtomicRequest).QN(1).MSN(2))
		c.expect(iwarp.Op(iwarp.OpReadRequest).QN(1).MSN(3))
		c.syncByRead()
		c.setWord(1)
		c.expectAnswer(c.peerFetchAdd(9, 1), iwarp.AtomicResponse(1, 9, 1))
		c.syncByRead()
	}),
}, {
	ID: "rdmapx/atomic/limit-shared-with-reads", Cite: cite("rfc7306/5.2/2"),
	Title:   "Atomics count as reads for the limit of outstanding reads",
	Sends:   "a Request with IRD 2; the application posts a read, a FetchAdd and a CmpSwap; and more reads and FetchAdds, or CmpSwaps, at once than the device has granted",
	Expects: "the third when the first is answered, and not before; a Terminate: no buffer",
	Defects: []string{"AtomicsApart", "CmpSwapUnlimited"}, Run: onHost(func(h *host) {
		c := h.connect(setup{frame: withDepths(2, defaultOrd)})
		c.PostSend(c.qp, c.readWR(1, 64, 16), c.fetchAddWR(2, 128, 1), c.cmpSwapWR(3, 136, 1, 2))
		read := c.expect(iwarp.Op(iwarp.OpReadRequest))
		c.expect(iwarp.Op(iwarp.OpAtomicRequest))
		c.expectSilence(silencePeriod)
		c.expectAnswer(iwarp.ReadResponseTo(read.Segment, data(16)), iwarp.Op(iwarp.OpAtomicRequest))
		for _, atomic := range atomicRequests {
			c = h.connect(setup{connParams: depthParam(3, 3), frame: withDepths(3, 3)})
			c.send(c.readFrom(addrOf(h.largeMemory(), 0), len(h.largeMemory().Buf)))
			c.sendBatch(c.grantedIRD(), func(int) iwarp.Segment { return atomic(c, c.wordAddr(0)) })
			c.waitForDevice()
			c.expectTerminateAfter(iwarp.OpReadResponse, iwarp.DDPUntaggedNoBuffer)
		}
	}),
}, {
	ID: "rdmapx/atomic/request-layout", Cite: cite("rfc7306/5.2.1/1"),
	Title:   "An Atomic Request has 52 octets of header with the specified fields",
	Sends:   "nothing: the application posts a FetchAdd and a CmpSwap",
	Expects: "operation, identifier, STag, TO, data, mask, compare data and compare mask",
	Defects: []string{"FieldsSwapped"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.fetchAddWR(1, 0, 0x5555555566666666), c.cmpSwapWR(2, 8, 0x1111111122222222, 0x3333333344444444))
		ones := ^uint64(0)
		for i, fields := range [][4]uint64{
			{0x5555555566666666, 0, 0, ones},
			{0x3333333344444444, ones, 0x1111111122222222, ones},
		} {
			g := c.nextFPDUs(1)[0]
			c.Check(len(g.ULPDU) == ddpUntaggedLen+52, "a ULPDU of 70 octets", "%d", len(g.ULPDU))
			header := g.ULPDU[ddpUntaggedLen:]
			operation := binary.BigEndian.Uint32(header)
			c.Check(operation == uint32(2*i), fmt.Sprintf("operation %d, and zeros before it", 2*i), "%08x", operation)
			want := binary.BigEndian.AppendUint32(nil, peerSTag)
			want = binary.BigEndian.AppendUint64(want, peerTO)
			for _, v := range fields {
				want = binary.BigEndian.AppendUint64(want, v)
			}
			c.Check(string(header[8:]) == string(want), fmt.Sprintf("% x after the identifier", want), "% x", header[8:])
		}
	}),
}, {
	ID: "rdmapx/atomic/reserved-bits-are-ignored", Cite: cite("rfc7306/5.2.1/1"),
	Title:   "The reserved bits of an Atomic Request are ignored",
	Sends:   "a FetchAdd and a CmpSwap with all 28 reserved bits set",
	Expects: "the results in memory, and responses",
	Defects: []string{"DDPReservedChecked", "CmpSwapReservedChecked"}, Run: onConn(func(c *conn) {
		c.setWord(42)
		reserved := func(h *iwarp.AtomicRequestHeader) { h.Reserved = new(uint32(0xfffffff)) }
		c.expectAnswer(c.peerFetchAdd(1, 5).EditAtomic(reserved), iwarp.AtomicResponse(1, 1, 42))
		c.expectWord(47)
		c.expectAnswer(c.peerCmpSwap(2, 47, 11).EditAtomic(reserved), iwarp.AtomicResponse(2, 2, 47))
		c.expectWord(11)
	}),
}, {
	ID: "rdmapx/atomic/unknown-operation", Cite: cite("rfc7306/5.2.1/3"),
	Title:   "An unassigned atomic operation ends the stream, and changes nothing",
	Sends:   "Atomic Requests with the operations 1 and 3 to 15",
	Expects: "the end of the stream, with any Terminate, and memory unchanged",
	Defects: []string{"AnyAtomicAdds"}, Run: onEachConn(setup{}, []uint8{1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, func(c *conn, op uint8) {
		c.expectAbortBy(c.peerFetchAdd(1, 5).EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.Operation = &op }))
		c.ExpectUntouched(c.targetMem)
	}),
}, {
	ID: "rdmapx/atomic/takes-no-receive", Cite: cite("rfc7306/5.2.1/4"),
	Title:   "An Atomic Request consumes no receive, and frees its IRD resource",
	Sends:   "four times as many FetchAdds as the IRD, one after the other, as many CmpSwaps, and a Send",
	Expects: "a response to each and no completion, then the first receive for the Send",
	Defects: []string{"EverythingTakesReceive"},
	Run: onSetup(setup{receives: 4, connParams: depthParam(3, 3), frame: withDepths(3, 3)}, func(c *conn) {
		c.setWord(0)
		for i := range uint32(4 * c.grantedIRD()) {
			c.expectAnswer(c.peerFetchAdd(i, 1), iwarp.AtomicResponse(2*i+1, i, uint64(i)))
			c.expectAnswer(c.peerCmpSwap(i, 0, 1), iwarp.AtomicResponse(2*i+2, i, uint64(i+1)))
		}
		c.ExpectNoCompletion()
		c.expectSendDelivered(1, 16)
	}),
}, {
	ID: "rdmapx/atomic/in-order", Cite: cite("rfc7306/5.2.1/5"),
	Title:   "Atomics are sent in the order of posting, and executed and answered in the order of arrival",
	Sends:   "a hundred FetchAdds of 1, ten at a time; the application posts five of different size at once",
	Expects: "the five in that order; original values 0 to 99 in order",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		c.postBatch(5, func(i int) verbs.SendWR { return c.fetchAddWR(uint64(i+1), 8*i, uint64(100+i)) })
		for i := range 5 {
			add := uint64(100 + i)
			c.expect(iwarp.Op(iwarp.OpAtomicRequest).MSN(uint32(i + 1)).EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.Data = &add }))
		}
		c.setWord(0)
		for first := uint32(0); first < 100; first += 10 {
			c.sendFetchAdds(first, c.wordAddr(0), 10)
			for i := range uint32(10) {
				c.expect(iwarp.AtomicResponse(first+i+1, first+i, uint64(first+i)))
			}
		}
	}),
}, {
	ID: "rdmapx/atomic/through-a-window", Cite: cite("rfc7306/5/1"), Needs: verbs.CapMWType2,
	Title:   "A window with remote atomic access permits atomics",
	Sends:   "a FetchAdd to a window",
	Expects: "the sum in memory, and a response",
	Defects: []string{"NoWindowAtomics"}, Run: onConn(func(c *conn) {
		m, at := c.newWindow(verbs.AccessRemoteAtomic)
		off := m.WordOffset(0)
		at.TO += uint64(off)
		was := binary.NativeEndian.Uint64(m.Buf[off:])
		c.expectAnswer(iwarp.FetchAdd(c.nextRequestMSN(), 1, at, 5), iwarp.AtomicResponse(1, 1, was))
		c.ExpectBytes(m, off, binary.NativeEndian.AppendUint64(nil, was+5))
		c.ExpectUnchangedOutside(m, off, 8)
	}),
}, {
	ID: "rdmapx/atomic/response-on-queue-3", Cite: cite("rfc7306/5/3", "rfc7306/4.1/2"),
	Title:   "An Atomic Response is untagged, on queue 3, and has twelve octets of header",
	Sends:   "a FetchAdd",
	Expects: "T=0, queue 3, the identifier and the original value, and nothing else",
	// Section 4 of RFC 7306 gives the header 32 octets, its figure and appendix twelve.
	Defects: []string{"QueuesMixed"}, Run: onConn(func(c *conn) {
		c.setWord(42)
		g := c.expectAnswer(c.peerFetchAdd(0x11, 5), iwarp.Any())
		want := binary.BigEndian.AppendUint32(untaggedHeaderOctets(0x41, 0x4b, 3, 0), 0x11)
		c.expectHeaderOctets(g, binary.BigEndian.AppendUint64(want, 42))
		c.Check(len(g.ULPDU) == ddpUntaggedLen+12, "a ULPDU of 30 octets", "%d", len(g.ULPDU))
	}),
}, {
	ID: "rdmapx/atomic/response-names-the-request", Cite: cite("rfc7306/5.2.2/1"),
	Title:   "An Atomic Response has the identifier of its request",
	Sends:   "FetchAdds with the identifiers cafebabe, 0, ffffffff and cafebabe again",
	Expects: "the same identifiers in the responses",
	Defects: []string{"AtomicIdIsMSN"}, Run: onConn(func(c *conn) {
		for i, id := range []uint32{0xcafebabe, 0, 0xffffffff, 0xcafebabe} {
			c.expectAnswer(c.peerFetchAdd(id, 0), iwarp.AtomicResponse(uint32(i+1), id, c.word()))
		}
	}),
}, {
	ID: "rdmapx/atomic/responses-are-numbered", Cite: cite("rfc7306/5.2.2/2"),
	Title:   "Atomic Responses have separate MSNs, from 1 on",
	Sends:   "a Read Request, a FetchAdd, a Read Request and a FetchAdd",
	Expects: "MSNs 1 and 2 in the Atomic Responses",
	Defects: []string{"AtomicIdIsMSN"}, Run: onConn(func(c *conn) {
		for i := range uint32(2) {
			c.syncByRead()
			c.expectAnswer(c.peerFetchAdd(7, 0), iwarp.Op(iwarp.OpAtomicResponse).QN(3).MSN(i+1))
		}
	}),
}, {
	ID: "rdmapx/atomic/unasked-for-response", Cite: cite("rfc7306/5.2.2/3"),
	Title:   "An unsolicited Atomic Response ends the stream",
	Sends:   "an Atomic Response, with no request outstanding, and with a read outstanding; and the response to an atomic a second time, with the next MSN",
	Expects: "the end of the stream, with any Terminate, and a read that fails; the result of the atomic unchanged",
	Defects: []string{"AtomicResponseUnchecked"}, Run: onHost(func(h *host) {
		c := h.connect(setup{})
		c.expectAbortBy(iwarp.AtomicResponse(1, 1, 7))
		c = h.connect(setup{})
		c.deviceRead(1, 64, 16)
		c.expectAbortBy(iwarp.AtomicResponse(1, 1, 7))
		c.expectFailures(1)
		c = h.connect(setup{})
		id := c.deviceFetchAdd(1, 64)
		c.send(iwarp.AtomicResponse(1, id, 7))
		c.ExpectCompletion(1, verbs.WCSuccess)
		c.localMem.Snapshot()
		c.expectAbortBy(iwarp.AtomicResponse(2, id, 8))
		c.ExpectUntouched(c.localMem)
		c.ExpectNoCompletion()
	}),
}, {
	ID: "rdmapx/atomic/response-to-another-request", Cite: cite("rfc7306/5.2.2/3"),
	Title:   "An Atomic Response that does not match the request ends the stream",
	Sends:   "Atomic Responses with another identifier, also with one that differs in a high bit only, with one and four octets missing, with one and four extra octets, and with an extra octet in two segments",
	Expects: "the end of the stream, with any Terminate, and an atomic that fails",
	Defects: []string{"AtomicResponseUnchecked", "AtomicIDLowOctet", "AtomicIDBelow", "LongInPartsTaken"}, Run: onEachConn(setup{}, []func(id uint32) iwarp.Segment{
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id+1, 7) },
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id-1, 7) },
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id^1<<8, 7) },
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id^1<<31, 7) },
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id, 7).Cut(ddpUntaggedLen + 8) },
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id, 7).Cut(ddpUntaggedLen + 11) },
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id, 7).WithPayload(data(1)) },
		func(id uint32) iwarp.Segment { return iwarp.AtomicResponse(1, id, 7).WithPayload(data(4)) },
		nil,
	}, func(c *conn, answer func(id uint32) iwarp.Segment) {
		if id := c.deviceFetchAdd(1, 64); answer != nil {
			c.expectAbortBy(answer(id))
		} else {
			c.expectAbortByLong(iwarp.AtomicResponse(1, id, 7))
		}
		c.expectFailures(1)
		c.ExpectUnchangedOutside(c.localMem, 64, 8)
	}),
}, {
	ID: "rdmapx/atomic/number-of-a-response", Cite: cite("rfc7306/8.2/1", "rfc5041/7.1/5"),
	Title:   "An Atomic Response with another MSN than the next is refused",
	Sends:   "first Atomic Responses with MSNs 2, 0 and 0x80000001; and a second one with MSN 1 again",
	Expects: "a Terminate: MSN out of range, and an atomic that fails",
	Defects: []string{"AnswerNumberUnchecked"}, Run: onHost(func(h *host) {
		refused := func(c *conn, id uint64, number uint32) {
			c.expectRefusal(iwarp.AtomicResponse(number, c.deviceFetchAdd(id, 64), 7), iwarp.DDPUntaggedMSNRange)
			c.expectFailures(1)
			c.ExpectUnchangedOutside(c.localMem, 0, 8)
		}
		for _, number := range []uint32{2, 0, 0x80000001} {
			refused(h.connect(setup{}), 1, number)
		}
		c := h.connect(setup{})
		c.send(iwarp.AtomicResponse(1, c.deviceFetchAdd(1, 0), 7))
		c.ExpectCompletion(1, verbs.WCSuccess)
		refused(c, 2, 1)
	}),
}, {
	ID: "rdmapx/atomic/completes-with-its-response", Cite: cite("rfc7306/5.4/1"),
	Title:   "An atomic completes when it is answered, with the original value",
	Sends:   "delayed responses to a FetchAdd and to a CmpSwap",
	Expects: "no completion before the response; one after it, with the original value in memory",
	Defects: []string{"CompletesEarly"}, Run: onConn(func(c *conn) {
		for i, wr := range []verbs.SendWR{c.fetchAddWR(11, 64, 5), c.cmpSwapWR(12, 72, 1, 2)} {
			g := c.expectSent(wr, iwarp.Op(iwarp.OpAtomicRequest))
			c.expectIdle()
			value := 0x0102030405060708 + uint64(i)
			c.send(iwarp.AtomicResponse(uint32(i+1), *g.AtomicRequest.ID, value))
			c.ExpectCompletion(wr.WRID, verbs.WCSuccess)
			c.ExpectBytes(c.localMem, 64+8*i, binary.NativeEndian.AppendUint64(nil, value))
		}
	}),
}, {
	ID: "rdmapx/atomic/request-waits-for-its-end", Cite: cite("rfc7306/5.4/2"),
	Title:   "An Atomic Request without L is not executed",
	Sends:   "a FetchAdd and a CmpSwap with L clear, each on a separate connection",
	Expects: "no response, and memory unchanged; the device may end the stream",
	Defects: []string{"DeliversFirstSegment"}, Run: onEachConn(setup{}, atomicRequests, func(c *conn, atomic func(*conn, iwarp.Addr) iwarp.Segment) {
		c.send(atomic(c, c.wordAddr(0)).Last(false))
		c.expectNoResponse()
		c.ExpectUntouched(c.targetMem)
	}),
}, {
	ID: "rdmapx/atomic/answered-in-order-with-reads", Cite: cite("rfc7306/5.4/3", "rfc7306/5.2.2/2"),
	Title:   "Atomics and reads are executed and answered in the order of arrival",
	Sends:   "a long Read Request, two FetchAdds and a Read Request for the changed word, at once",
	Expects: "responses in that order, the last with both sums",
	Defects: []string{"SmallReadsFirst"}, Run: onLongMessages(func(c *conn) {
		n := c.longLen()
		c.setWord(40)
		c.sendBatch(4, func(i int) iwarp.Segment {
			return []iwarp.Segment{c.peerRead(1024, n), c.peerFetchAdd(1, 1), c.peerFetchAdd(2, 1), c.readFrom(c.wordAddr(0), 8)}[i]
		})
		c.expectReadResponse(c.targetMem.Buf[1024:][:n])
		c.expect(iwarp.AtomicResponse(1, 1, 40))
		c.expect(iwarp.AtomicResponse(2, 2, 41))
		c.expectReadResponse(binary.NativeEndian.AppendUint64(nil, 42))
	}),
}})
