package iwarp

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// checkCRC fails the case unless the CRC of an FPDU is correct.
func (c *conn) checkCRC(g iwarp.ReceivedFPDU) {
	c.Check(iwarp.Val(g.MPA.CRC) == g.CorrectCRC, fmt.Sprintf("the CRC %08x", g.CorrectCRC), "%08x in %v", iwarp.Val(g.MPA.CRC), g.Segment)
}

// onCRCs makes the body of a case that fails unless the device, as the initiator if active, sends
// correct CRCs with every kind of message, and checks those of the peer. frame changes the peer's
// start-up frame, unless it is nil. check is called with the first connection.
func onCRCs(active bool, frame func(startupFrame) startupFrame, check func(*conn)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		s := kindSetup
		s.active, s.frame = active, frame
		c := h.connect(s)
		check(c)
		c.allowBadFrames = true // checkCRC reports a wrong CRC
		for _, g := range c.exchangeAllKinds() {
			c.checkCRC(g)
		}
		c.reset()
		c.expectDisconnect()
		c.Completions() // those of the next connections are counted separately
		for _, k := range h.kinds() {
			c := h.connect(s)
			c.Note("%v", k.op)
			c.sendAndExpect(k)
			c.expectRefusal(k.valid(c).BadCRC(), iwarp.MPACRC) // another case checks that it has no effect
			c.Completions()
		}
	})
}

// mustDecodeHex decodes an FPDU in hexadecimal.
func mustDecodeHex(octets string) []byte {
	b, err := hex.DecodeString(octets)
	if err != nil {
		panic(err)
	}
	return b
}

// Captured FPDUs of Sends with MSN 1: one sent by Linux's siw, with 16 zeros; one accepted by
// it, with an address, a key and a length.
var (
	sentBySiw     = mustDecodeHex("00224143000000000000000000000001000000000000000000000000000000000000000084609a12")
	acceptedBySiw = mustDecodeHex("0022414300000000000000000000000100000000000000000000100011223344000000142171acce")
)

// expectFailure fails the case unless the next completion is an error completion of request
// id, with any error status: the RFCs do not specify it.
func (c *conn) expectFailure(id uint64) {
	wc := c.NextCompletion()
	c.Check(wc.WRID == id && wc.Status != verbs.WCSuccess, fmt.Sprintf("request %d to fail", id), "%v of %d", wc.Status, wc.WRID)
}

var mpaCRCCases = []conformance.Case{{
	ID: "mpa/crc/is-computed", Cite: cite("rfc5044/4.4/1"),
	Title:   "CRCs are correct in all kinds of messages",
	Sends:   "a Read Request; the device sends, writes and reads",
	Expects: "FPDUs with correct CRCs",
	Defects: []string{"CRCBigEndian"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		c.PostSend(c.qp, c.sendWR(1, 0, 100), c.writeWR(2, 0, 2000), c.readWR(3, 0, 100))
		c.checkCRC(c.expect(iwarp.Op(iwarp.OpSend)))
		for _, g := range c.nextMessage(iwarp.OpWrite) {
			c.checkCRC(g)
		}
		c.checkCRC(c.expect(iwarp.Op(iwarp.OpReadRequest)))
		c.send(c.peerRead(0, 100))
		c.checkCRC(c.expect(iwarp.Op(iwarp.OpReadResponse)))
	}),
}, {
	ID: "mpa/crc/asked-for-by-default", Cite: cite("rfc5044/4.4/2"),
	Title:   "An initiator requests CRCs by default",
	Sends:   "a Reply",
	Expects: "a Request with C set",
	Defects: []string{"NeverAsksCRC"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.expectFrame(iwarp.Request().CRC(true))
		hs.establishWithReply(nil)
	}),
}, {
	ID: "mpa/crc/asked-for-by-default-in-a-reply", Cite: cite("rfc5044/4.4/2", "rfc5044/7.1.1/7"),
	Title:   "A responder requests CRCs by default, even if the initiator does not",
	Sends:   "a Request with C clear",
	Expects: "a Reply with C set, and CRCs in both directions",
	Defects: []string{"NeverRaisesCRC", "NeverAsksCRC"},
	Run: onCRCs(responder, withoutCRC, func(c *conn) {
		c.Check(iwarp.Val(c.deviceFrame.C), "a Reply with C set", "%v", c.deviceFrame)
	}),
}, {
	ID: "mpa/crc/on-if-the-request-asks", Cite: cite("rfc5044/7.1.1/7", "rfc5044/4.4/3"), Setup: setupNoCRC,
	Title:   "CRCs are used if only the Request requests them",
	Sends:   "a Request with C set, to a device that does not request CRCs; a message of every kind, and one with a wrong CRC",
	Expects: "correct CRCs, and a Terminate for the wrong one",
	Defects: []string{"CRCNeedsBoth", "CRCOfWritesUnchecked"}, Run: onCRCs(responder, nil, func(*conn) {}),
}, {
	ID: "mpa/crc/on-if-the-reply-asks", Cite: cite("rfc5044/7.1.1/7", "rfc5044/4.4/3"), Setup: setupNoCRC,
	Title:   "CRCs are used if only the Reply requests them",
	Sends:   "a Reply with C set, to a device that does not request CRCs; a message of every kind, and one with a wrong CRC",
	Expects: "correct CRCs, and a Terminate for the wrong one",
	Defects: []string{"CRCNeedsBoth", "CRCOfWritesUnchecked"}, Run: onCRCs(initiator, nil, func(*conn) {}),
}, {
	ID: "mpa/crc/on-though-the-reply-does-not-ask", Cite: cite("rfc5044/7.1.1/7"),
	Title:   "An initiator that requested CRCs uses them even if the Reply has C clear",
	Sends:   "a Reply with C clear to a Request with C set; a message of every kind, and one with a wrong CRC",
	Expects: "a connection, correct CRCs, and a Terminate for the wrong one",
	Defects: []string{"RefusesPlainReply", "CRCNeedsBoth"},
	Run:     onCRCs(initiator, withoutCRC, func(c *conn) { require(iwarp.Val(c.deviceFrame.C), "the device does not request CRCs") }),
}, {
	ID: "mpa/crc/off-if-nobody-asks", Cite: cite("rfc5044/4.4/4", "rfc5044/7.1.1/7"), Setup: setupNoCRC,
	Title:   "CRCs are not checked if no side requests them",
	Sends:   "start-up frames with C clear, as initiator and as responder, then messages of every kind with wrong CRCs",
	Expects: "each is executed",
	Defects: []string{"CRCAlwaysChecked", "CRCOfResponsesChecked"}, Run: onHost(func(h *host) {
		s, kinds := kindSetup, append(h.kinds(), terminateKind)
		s.frame = withoutCRC
		for _, s.active = range []bool{false, true} {
			for _, k := range kinds {
				c := h.connect(s)
				require(!c.framer.CRC, "the device requests CRCs")
				c.Note("%v", k.op)
				message := k.valid(c)
				c.send(message.CRC(0xdeadbeef))
				k.expectEffect(c, message)
				c.Completions() // those of the next connection are counted separately
			}
		}
	}),
}, {
	ID: "mpa/crc/is-crc32c-least-significant-first", Cite: cite("rfc5044/4.4/6"),
	Title:   "The CRC is CRC32c, its least significant octet first",
	Sends:   "a frame that Linux's siw has accepted; the device sends one that siw has sent",
	Expects: "the frame is accepted, and the other has the CRC octets 84 60 9a 12",
	Defects: []string{"CRCBigEndian"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		if c.nextSendMSN() == 1 { // the RTR was no Send
			c.write(acceptedBySiw)
			c.ExpectRecv(1, 16)
			c.ExpectBytes(c.localMem, 0, acceptedBySiw[20:36])
		}
		clear(c.localMem.Buf[64:80])
		g := c.expectSent(c.sendWR(9, 64, 16), iwarp.Send(1, make([]byte, 16)))
		c.Check(bytes.Equal(g.Raw, sentBySiw), fmt.Sprintf("% x at the end", sentBySiw[36:]), "% x", g.Raw[len(g.Raw)-4:])
	}),
}, {
	ID: "mpa/crc/covers-a-marker-behind-the-pad", Cite: cite("rfc5044/4.4/7"),
	Title:   "The CRC sent covers a marker between pad and CRC",
	Sends:   "a Request for markers; the device sends a message whose pad ends at the next marker",
	Expects: "a CRC that covers the marker",
	Defects: []string{"CRCSkipsLastMarker"}, Run: onMarkersFromDevice(func(c *conn) {
		n := iwarp.PayloadToMarker(c.deframer.Position) + 4
		g := c.expectSent(c.sendWR(1, 0, n), iwarp.Send(1, c.localMem.Buf[:n]))
		m := g.Markers[len(g.Markers)-1]
		c.Check(m.Offset == g.Offset+uint64(len(g.Raw))-8, "a marker before the CRC", "the last is at %d", m.Offset)
		c.checkCRC(g)
	}),
}, {
	ID: "mpa/crc/expects-a-marker-behind-the-pad", Cite: cite("rfc5044/4.4/7"), Setup: setupMarkers,
	Title:   "The CRC received covers a marker between pad and CRC",
	Sends:   "a Send whose pad ends at the next marker, with a CRC that covers the marker",
	Expects: "it is delivered",
	Defects: []string{"CRCSkipsLastMarker"}, Run: onMarkersToDevice(func(c *conn) {
		n := iwarp.PayloadToMarker(c.framer.Position) + 4
		c.send(iwarp.Send(c.nextSendMSN(), data(n)))
		c.expectMessage(1, n)
	}),
}, {
	ID: "mpa/crc/covers-a-marker-before-the-length", Cite: cite("rfc5044/4.4/8", "rfc5044/4.3/5"),
	Title:   "The CRC sent covers a marker before the length",
	Sends:   "a Request for markers; the device sends a message that begins at a marker",
	Expects: "a CRC that covers the marker",
	Defects: []string{"CRCSkipsMarker"}, Run: onMarkersFromDevice(func(c *conn) {
		c.checkCRC(c.secondFPDUAtMarker())
	}),
}, {
	ID: "mpa/crc/expects-a-marker-before-the-length", Cite: cite("rfc5044/4.4/8"), Setup: setupMarkers,
	Title:   "The CRC received covers a marker before the length",
	Sends:   "a Send that begins at a marker, with a CRC that covers it",
	Expects: "it is delivered",
	Defects: []string{"CRCSkipsMarker"}, Run: onMarkersToDevice(func(c *conn) {
		n := iwarp.PayloadToMarker(c.framer.Position)
		c.send(iwarp.Send(c.nextSendMSN(), data(n)), iwarp.Send(c.nextSendMSN()+1, data(24)))
		c.expectRecvs(n, 24)
		c.ExpectBytes(c.localMem, 2048, data(24))
	}),
}, {
	ID: "mpa/crc/mismatch-of-a-send-is-an-error", Cite: cite("rfc5044/4.4/9", "rfc5044/8/1"),
	Title:   "A Send with a wrong CRC is not delivered, and ends the connection",
	Sends:   "a Send with one bit of its CRC wrong",
	Expects: "a Terminate for a wrong CRC, and a receive that fails",
	Defects: []string{"CRCIgnored"}, Run: onSetup(setup{receives: 1}, func(c *conn) {
		c.expectRefusal(iwarp.Send(c.nextSendMSN(), data(16)).BadCRC(), iwarp.MPACRC)
		c.expectFailure(1)
	}),
}, {
	ID: "mpa/crc/mismatch-of-a-write-places-nothing", Cite: cite("rfc5044/6/1"),
	Title:   "A Write with a wrong CRC is not placed",
	Sends:   "a Write with one bit of its CRC wrong",
	Expects: "a Terminate for a wrong CRC, and memory unchanged",
	Defects: []string{"HandsUpFirst"}, Run: onConn(func(c *conn) {
		c.expectRefusalWithoutEffect(c.peerWrite(0, data(256)).BadCRC(), iwarp.MPACRC)
	}),
}, {
	ID: "mpa/crc/mismatch-of-an-answer-completes-nothing", Cite: cite("rfc5044/4.4/9", "rfc5044/6/1"),
	Title:   "A Read Response with a wrong CRC is not placed, and does not complete the read",
	Sends:   "a Read Response with one bit of its CRC wrong",
	Expects: "a Terminate for a wrong CRC, a read that fails, and memory unchanged",
	Defects: []string{"CRCIgnored", "HandsUpFirst"}, Run: onSetup(setup{}, func(c *conn) {
		c.expectRefusal(iwarp.ReadResponseTo(c.deviceRead(1, 0, 64), data(64)).BadCRC(), iwarp.MPACRC)
		c.expectFailure(1)
		c.ExpectUntouched(c.localMem)
	}),
}, {
	ID: "mpa/crc/mismatch-of-every-kind", Cite: cite("rfc5044/4.4/9", "rfc5044/6/1"),
	Title:   "A message of any kind with a wrong CRC is not executed",
	Sends:   "each kind of message with one bit of its CRC wrong: in one TCP segment, and in several",
	Expects: "a Terminate for a wrong CRC; no completion, no response, and memory unchanged",
	Defects: []string{"CRCIgnored", "CRCOfPartsIgnored"}, Run: onHost(func(h *host) {
		for _, k := range append(h.kinds(), terminateKind) {
			h.expectKindRefused(k, iwarp.Segment.BadCRC, iwarp.MPACRC)
			for _, first := range []int{1, 10, -6, -1} { // in the length, the header, the payload, the CRC
				c := h.connectFor(k)
				b := c.encode(k.valid(c).BadCRC())
				if first < 0 {
					first += len(b)
				}
				c.write(b[:first])
				c.write(b[first:])
				c.expectTerminateAndEnd(iwarp.MPACRC)
				c.ExpectNoSuccess()
				c.ExpectUntouched(c.localMem, c.targetMem)
			}
		}
	}),
}, {
	ID: "mpa/crc/of-memory-that-changes", Cite: cite("rfc5044/4.4/1", "rfc5044/4.4/3"),
	Title:   "The CRCs of a Read Response are correct even if the application changes the memory meanwhile",
	Sends:   "a Read Request for more than TCP buffers; the application changes the memory before the peer reads from the stream",
	Expects: "Read Responses with correct CRCs",
	Defects: []string{"ResponseNotCopied"}, Run: onConn(func(c *conn) {
		m := c.largeMemory()
		c.send(c.readFrom(addrOf(m, 0), len(m.Buf)))
		c.waitForDevice()
		for i := range m.Buf {
			m.Buf[i] ^= 0x55
		}
		c.QueryPort() // a verb shows the device the memory
		for _, g := range c.nextPayload(len(m.Buf)) {
			c.checkFPDU(iwarp.Op(iwarp.OpReadResponse), g)
		}
	}),
}, {
	ID: "mpa/crc/every-bit-counts", Cite: cite("rfc5044/4.4/9", "rfc5044/4.4/6"),
	Title:   "A single wrong bit of payload, pad or CRC is detected",
	Sends:   "Sends with one flipped bit, each on a separate connection: one bit of every octet of payload and pad, and every bit of the CRC",
	Expects: "a Terminate for a wrong CRC for each",
	Defects: []string{"CRCIgnored"}, Run: onHost(func(h *host) {
		// A wrong bit of length or header may be found by another check, or make the device wait.
		const payload, crc, end = 2 + 18, 2 + 18 + 13 + 3, 2 + 18 + 13 + 3 + 4
		flipped := func(bit int) {
			c := h.connect(setup{receives: 1, memLen: 64})
			b := c.encode(iwarp.Send(c.nextSendMSN(), data(13)))
			b[bit/8] ^= 0x80 >> (bit % 8)
			c.write(b)
			c.expectTerminateAndEnd(iwarp.MPACRC)
		}
		for octet := payload; octet < crc; octet++ {
			flipped(8*octet + octet%8)
		}
		for bit := 8 * crc; bit < 8*end; bit++ {
			flipped(bit)
		}
	}),
}}
