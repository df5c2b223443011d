package iwarp

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// setupMSS returns the setup whose MTU leaves mss octets of TCP payload next to TCP timestamps.
func setupMSS(mss int) conformance.Setup {
	const headers = 20 + 20 + 12 // IPv4, TCP, timestamps
	return conformance.Setup{Family: 4, MTU: mss + headers}
}

// withoutMarkers is the parameter of [iwarp.MULPDU] for a stream without markers.
const withoutMarkers = false

// forEachLongMessage makes the device write, send and answer a read of n octets, and calls check
// with the opcode, and the lengths of the longest ULPDU and the longest FPDU, of each message.
func (c *conn) forEachLongMessage(n int, check func(op iwarp.Opcode, ulpduLen, fpduLen int)) {
	c.PostSend(c.qp, c.writeWR(1, 0, n), c.sendWR(2, 0, n))
	c.send(c.peerRead(0, n))
	for _, op := range []iwarp.Opcode{iwarp.OpWrite, iwarp.OpSend, iwarp.OpReadResponse} {
		ulpduLen, fpduLen := 0, 0
		for _, g := range c.nextMessage(op) {
			ulpduLen, fpduLen = max(ulpduLen, len(g.ULPDU)), max(fpduLen, len(g.Raw))
		}
		check(op, ulpduLen, fpduLen)
	}
}

// expectFullSegments fails the case unless the longest ULPDUs of a Write, a Send and a Read
// Response are as long as the MULPDU, and their FPDUs fit into TCP segments.
func (c *conn) expectFullSegments(markers bool) {
	mss := c.tcp.MSS()
	want := iwarp.MULPDU(mss, markers)
	c.forEachLongMessage(8000, func(op iwarp.Opcode, ulpduLen, fpduLen int) {
		c.Check(ulpduLen == want, fmt.Sprintf("%v in ULPDUs of up to %d octets in segments of %d", op, want, mss), "up to %d", ulpduLen)
		c.Check(fpduLen <= mss, fmt.Sprintf("FPDUs of at most %d octets", mss), "one of %d", fpduLen)
	})
}

// Changes to the peer's start-up frame.
func withMarkers(f startupFrame) startupFrame { return f.Markers(true) }
func withoutCRC(f startupFrame) startupFrame  { return f.CRC(false) }

// setupNoCRC configures the device not to request CRCs.
var setupNoCRC = conformance.Setup{NoCRC: true}

// onWithoutCRC makes the body of a case from a function that uses a connection without CRCs. The
// case does not apply if the device insists on them.
func onWithoutCRC(body func(*conn)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 4, frame: withoutCRC}, func(c *conn) {
		require(!c.framer.CRC, "the device requests CRCs")
		body(c)
	})
}

var mpaFPDUCases = []conformance.Case{{
	ID: "mpa/record/one-segment-each", Cite: cite("rfc5044/3/1"),
	Title:   "An FPDU holds one DDP segment, even if several are posted",
	Sends:   "nothing: the device sends five messages that were posted at once",
	Expects: "an FPDU for each, with its length",
	Defects: []string{"TwoPerFPDU"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, 8), c.sendWR(2, 8, 8), c.writeWR(3, 16, 8), c.writeWR(4, 24, 8), c.sendWR(5, 32, 8))
		c.expect(iwarp.Send(1, c.localMem.Buf[:8]).ULPDULength(18 + 8))
		c.expect(iwarp.Send(2, c.localMem.Buf[8:16]).ULPDULength(18 + 8))
		c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[16:24]).ULPDULength(14 + 8))
		c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[24:32]).ULPDULength(14 + 8))
		c.expect(iwarp.Send(3, c.localMem.Buf[32:40]).ULPDULength(18 + 8))
	}),
}, {
	ID: "mpa/record/never-above-64768", Cite: cite("rfc5044/3/2"), Setup: conformance.Setup{MTU: 65535},
	Title:   "No ULPDU is longer than 64768 octets, however long TCP segments are",
	Sends:   "a Read Request for 256 KiB over a path with an MTU of 65535; the device writes and sends as much",
	Expects: "ULPDUs of at most 64768 octets",
	Defects: []string{"MULPDUUnbounded"}, Run: onSetup(setup{memLen: 256 << 10}, func(c *conn) {
		mss := c.tcp.MSS()
		require(iwarp.MULPDU(mss, withoutMarkers) >= maxULPDU, fmt.Sprintf("TCP segments hold %d octets here", mss))
		c.allowBadFrames = true
		c.forEachLongMessage(256<<10, func(op iwarp.Opcode, ulpdu, _ int) {
			c.Check(ulpdu <= maxULPDU, fmt.Sprintf("%v in ULPDUs of at most %d octets", op, maxULPDU), "one of %d", ulpdu)
		})
	}),
}, {
	ID: "mpa/record/mulpdu-fills-segments-of-1460", Cite: cite("rfc5044/4.5/1"), Setup: setupMSS(1460),
	Title:   "The MULPDU is the MSS less 6 octets",
	Sends:   "a Read Request for 8000 octets, with an MSS of 1460; the device writes and sends as much",
	Expects: "ULPDUs of up to 1454 octets",
	Defects: []string{"MSSRoundedDown", "MSSIgnored"}, Run: onConn(func(c *conn) { c.expectFullSegments(withoutMarkers) }),
}, {
	ID: "mpa/record/mulpdu-of-odd-segment-size", Cite: cite("rfc5044/4.5/1"), Setup: setupMSS(1463),
	Title:   "The MULPDU is computed from the MSS rounded down to a multiple of four",
	Sends:   "a Read Request for 8000 octets, with an MSS of 1463; the device writes and sends as much",
	Expects: "ULPDUs of up to 1454 octets",
	Defects: []string{"MSSRoundedDown"}, Run: onConn(func(c *conn) { c.expectFullSegments(withoutMarkers) }),
}, {
	ID: "mpa/record/mulpdu-leaves-room-for-markers", Cite: cite("rfc5044/4.5/2", "rfc5044/3/3"), Setup: setupMSS(1463),
	Title:   "The MULPDU leaves room for the markers of a segment",
	Sends:   "a Request for markers, and a Read Request for 8000 octets; the device writes and sends as much",
	Expects: "ULPDUs of up to 1442 octets with an MSS of 1463, and FPDUs that fit with their markers",
	Defects: []string{"MarkersForgotten", "MarkersTwice", "MarkedModForgotten"}, Run: onMarkersFromDevice(func(c *conn) {
		c.allowBadFrames = false
		const markers = true
		c.expectFullSegments(markers)
	}),
}, {
	ID: "mpa/record/mulpdu-of-at-least-128", Cite: cite("rfc5044/4.5/3", "rfc5044/3/2"), Setup: setupMSS(88),
	Title:   "The MULPDU is at least 128 octets, however short TCP segments are",
	Sends:   "a Read Request for 1000 octets, with an MSS of 88; the device writes and sends as much",
	Expects: "ULPDUs of 128 octets",
	Defects: []string{"MULPDUUnbounded"}, Run: onConn(func(c *conn) {
		c.forEachLongMessage(1000, func(op iwarp.Opcode, ulpdu, _ int) {
			c.Check(ulpdu >= 128, fmt.Sprintf("%v in ULPDUs of at least 128 octets", op), "up to %d in segments of %d", ulpdu, c.tcp.MSS())
		})
	}),
}, {
	ID: "mpa/fpdu/layout", Cite: cite("rfc5044/4.1/1"),
	Title:   "An FPDU is a length, most significant octet first, the ULPDU, a pad and a CRC",
	Sends:   "nothing: the device sends 301 octets",
	Expects: "the exact octets of the FPDU",
	Defects: []string{"LengthCountsPad"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		c.PostSend(c.qp, c.sendWR(1, 0, 301))
		// The length is 319 or 0x013f, which shows a wrong byte order.
		framer := iwarp.Framer{CRC: true}
		want := framer.Append(nil, iwarp.Send(1, c.localMem.Buf[:301]))
		for !bytes.Equal(c.deframer.Pending(), want) {
			have := c.deframer.Pending()
			if n := min(len(have), len(want)); !bytes.Equal(have[:n], want[:n]) || len(have) > len(want) {
				c.Fail(fmt.Sprintf("%d octets: % x … % x", len(want), head(want), want[len(want)-8:]),
					"%d: % x … % x", len(have), head(have), have[max(0, len(have)-8):])
			}
			c.Check(c.readStream(c.ResponseTimeout()), fmt.Sprintf("an FPDU of %d octets", len(want)), "%s", c.describeMissing())
		}
	}),
}, {
	ID: "mpa/fpdu/length-counts-the-record-only", Cite: cite("rfc5044/4.1/2"),
	Title:   "The length of an FPDU is that of its ULPDU, without header, pad and CRC",
	Sends:   "nothing: the device sends messages of 1 to 4 octets",
	Expects: "lengths of 19 to 22",
	Defects: []string{"LengthCountsPad"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		for n := 1; n <= 4; n++ {
			c.expectSent(c.sendWR(uint64(n), 0, n), iwarp.Send(uint32(n), c.localMem.Buf[:n]).ULPDULength(uint16(18+n)))
		}
	}),
}, {
	ID: "mpa/fpdu/pad-is-zero", Cite: cite("rfc5044/4.1/3", "rfc5042/x/2"),
	Title:   "The pad of a Send is zeros, whatever was sent before",
	Sends:   "nothing: the device sends 32 octets, then 21, 3, 2 and 1",
	Expects: "pads of zeros",
	Defects: []string{"StalePad"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		for i, n := range []int{32, 21, 3, 2, 1} {
			c.PostSend(c.qp, c.sendWR(1, 64*i, n))
			c.expect(iwarp.Send(uint32(i+1), c.localMem.Buf[64*i:][:n]).Pad(make([]byte, -(2+18+n)&3)...))
		}
	}),
}, {
	ID: "mpa/fpdu/pad-of-writes-is-zero", Cite: cite("rfc5044/4.1/3", "rfc5042/x/2"),
	Title:   "The pad of a Write is zeros, whatever was sent before",
	Sends:   "nothing: the device writes 32 octets, then 21, 3, 2 and 1",
	Expects: "pads of zeros",
	Defects: []string{"StalePad"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		for i, n := range []int{32, 21, 3, 2, 1} {
			c.PostSend(c.qp, c.writeWR(1, 64*i, n))
			c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[64*i:][:n]).Pad(make([]byte, -(2+14+n)&3)...))
		}
	}),
}, {
	ID: "mpa/fpdu/pad-of-every-kind-is-zero", Cite: cite("rfc5044/4.1/3", "rfc5042/x/2"),
	Title:   "The pad of Read Responses and of all kinds of Send is zeros",
	Sends:   "Read Requests for 32 octets, then for 21, 3, 2 and 1; the device sends as much with each kind of Send",
	Expects: "pads of zeros",
	Defects: []string{"StalePad", "ResponsePadStale"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		padded := func(want iwarp.Segment) { c.expect(want.Pad(make([]byte, -(2+want.Len())&3)...)) }
		for i, n := range []int{32, 21, 3, 2, 1} {
			c.send(c.peerRead(64*i, n))
			padded(iwarp.ReadResponse(peerSTag, peerTO, c.targetMem.Buf[64*i:][:n]))
			wrs, ops := c.everySendWR(n)
			c.PostSend(c.qp, wrs...)
			for _, op := range ops {
				padded(iwarp.Op(op).QN(0).WithPayload(c.localMem.Buf[:n]))
			}
		}
	}),
}, {
	ID: "mpa/fpdu/pad-value-is-ignored", Cite: cite("rfc5044/4.1/4"),
	Title:   "The content of the pad is ignored",
	Sends:   "Sends, Writes and Read Responses of 1 to 7 octets with pads of aa, bb and cc, and correct CRCs",
	Expects: "each is delivered or placed, without the pad",
	Defects: []string{"CRCSkipsPad"}, Run: onSetup(setup{receives: 7}, func(c *conn) {
		padded := func(s iwarp.Segment) iwarp.Segment {
			return s.Pad([]byte{0xaa, 0xbb, 0xcc}[:-(2+s.Len())&3]...)
		}
		for n := 1; n <= 7; n++ {
			c.send(padded(iwarp.Send(c.nextSendMSN(), data(n))))
			c.expectMessage(uint64(n), n)
			c.ExpectUnchangedOutside(c.localMem, 64*(n-1), n)
			c.localMem.Snapshot()
			c.send(padded(iwarp.ReadResponseTo(c.deviceRead(8, 1024, n), data(n))))
			c.ExpectCompletion(8, verbs.WCSuccess)
			c.ExpectBytes(c.localMem, 1024, data(n))
			c.ExpectUnchangedOutside(c.localMem, 1024, n)
			c.localMem.Snapshot()
			c.sendAndSync(padded(c.peerWrite(64*n, data(n))))
			c.ExpectBytes(c.targetMem, 64*n, data(n))
			c.ExpectUnchangedOutside(c.targetMem, 64*n, n)
			c.targetMem.Snapshot()
		}
	}),
}, {
	ID: "mpa/fpdu/pad-is-covered-by-the-crc", Cite: cite("rfc5044/4.1/4", "rfc5044/4.4/7"),
	Title:   "The CRC covers the pad, in both directions",
	Sends:   "a padded Send; then one with a pad of aa and the CRC of a pad of zeros. The device sends padded messages too",
	Expects: "correct CRCs, one delivery, then a Terminate for a wrong CRC",
	Defects: []string{"CRCSkipsPad"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		for n := 1; n <= 3; n++ {
			g := c.expectSent(c.sendWR(9, 0, n), iwarp.Send(uint32(n), c.localMem.Buf[:n]))
			c.ExpectCompletion(9, verbs.WCSuccess)
			c.Check(iwarp.Val(g.MPA.CRC) == g.CorrectCRC, fmt.Sprintf("the CRC %08x, over length, ULPDU and pad", g.CorrectCRC), "%08x", iwarp.Val(g.MPA.CRC))
		}
		c.expectSendDelivered(1, 1)
		b := c.encode(iwarp.Send(c.nextSendMSN(), data(1)))
		b[len(b)-5] = 0xaa // the last octet of the pad
		c.write(b)
		c.expectTerminateAndEnd(iwarp.MPACRC)
	}),
}, {
	ID: "mpa/fpdu/multiple-of-four", Cite: cite("rfc5044/4.1/5"),
	Title:   "FPDUs are padded to the next multiple of four octets, and no further",
	Sends:   "Read Requests for 0 to 7 octets; the device sends and writes as much, one at a time",
	Expects: "FPDUs of 24, 28 and 32 octets for Sends, of 20, 24 and 28 for the others",
	Defects: []string{"PadToEight"}, Run: onConn(func(c *conn) {
		c.allowBadFrames = true
		for n := range 8 {
			g := c.expectSent(c.sendWR(1, 0, n), iwarp.Send(uint32(n+1), c.localMem.Buf[:n]))
			c.expectSilence(shortWait)
			c.Check(len(g.Raw) == 24+(n+3)&^3, fmt.Sprintf("an FPDU of %d octets", 24+(n+3)&^3), "%d", len(g.Raw))
			write := c.expectSent(c.writeWR(2, 0, n), iwarp.Op(iwarp.OpWrite).Length(n))
			for _, g := range []iwarp.ReceivedFPDU{write, c.expectAnswer(c.peerRead(0, n), iwarp.Op(iwarp.OpReadResponse).Length(n))} {
				c.expectSilence(shortWait)
				c.Check(len(g.Raw) == 20+(n+3)&^3, fmt.Sprintf("an FPDU of %d octets", 20+(n+3)&^3), "%d", len(g.Raw))
			}
		}
	}),
}, {
	ID: "mpa/fpdu/crc-field-without-crc", Cite: cite("rfc5044/4.1/6"), Setup: setupNoCRC,
	Title:   "The CRC field is present even if no CRC is used",
	Sends:   "a Request with C clear; the device sends three messages",
	Expects: "FPDUs with four octets after the pad, of any content",
	Defects: []string{"CRCFieldOmitted"}, Run: onWithoutCRC(func(c *conn) {
		for i := range 3 {
			c.expectSent(c.sendWR(1, 0, 16), iwarp.Send(uint32(i+1), c.localMem.Buf[:16]))
		}
	}),
}, {
	ID: "mpa/fpdu/crc-field-unchecked-without-crc", Cite: cite("rfc5044/4.1/6", "rfc5044/4.4/4"), Setup: setupNoCRC,
	Title:   "The CRC field is ignored if no CRC is used",
	Sends:   "without CRCs, Sends with ffffffff and 00000001 in the field",
	Expects: "both are delivered",
	Defects: []string{"CRCAlwaysChecked"}, Run: onWithoutCRC(func(c *conn) {
		for i, crc := range []uint32{0xffffffff, 1} {
			c.send(iwarp.Send(c.nextSendMSN(), data(16)).CRC(crc))
			c.ExpectRecv(uint64(i+1), 16)
		}
		c.syncByRead()
	}),
}}
