package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// setupMSS returns the setup for an MSS, if segments have the timestamp option and no other.
func setupMSS(mss int) conformance.Setup {
	const headers = 20 + 20 + 12 // IPv4, TCP, timestamps
	return conformance.Setup{Family: 4, MTU: mss + headers}
}

// mulpdu returns the MULPDU for an MSS, by the formulas of RFC 5044 section 4.5.
func mulpdu(mss int, markers bool) int {
	n := mss - 6 - mss%4
	if markers {
		n -= 4 * ((mss + 511) / 512)
	}
	return min(max(n, 128), maxULPDU)
}

// longestULPDU makes the device write n octets, and returns the length of its longest ULPDU.
func (c *conn) longestULPDU(n int) int {
	c.PostSend(c.qp, c.writeWR(1, 0, n))
	most := 0
	for _, g := range c.nextMessage(iwarp.OpWrite) {
		most = max(most, len(g.ULPDU))
	}
	return most
}

// expectFullSegments fails the case unless a long message has ULPDUs of the MULPDU.
func expectFullSegments(c *conn) {
	want := mulpdu(c.tcp.MSS(), false)
	got := c.longestULPDU(8000)
	c.Check(got == want, fmt.Sprintf("ULPDUs of up to %d octets in segments of %d", want, c.tcp.MSS()), "up to %d", got)
}

var mpaRecordCases = []conformance.Case{{
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
	Sends:   "nothing: the device writes 256 KiB over a path with an MTU of 65535",
	Expects: "ULPDUs of at most 64768 octets",
	Defects: []string{"MULPDUUnbounded"}, Run: onSetup(setup{memLen: 256 << 10}, func(c *conn) {
		if mss := c.tcp.MSS(); mulpdu(mss, false) < maxULPDU {
			rig.NotApplicable(fmt.Sprintf("TCP segments hold %d octets here", mss))
		}
		c.allowBadFrames = true
		got := c.longestULPDU(256 << 10)
		c.Check(got <= maxULPDU, fmt.Sprintf("ULPDUs of at most %d octets", maxULPDU), "one of %d", got)
	}),
}, {
	ID: "mpa/record/mulpdu-fills-segments-of-1460", Cite: cite("rfc5044/4.5/1"), Setup: setupMSS(1460),
	Title:   "The MULPDU is the MSS less 6 octets",
	Sends:   "nothing: the device writes 8000 octets, with an MSS of 1460",
	Expects: "ULPDUs of up to 1454 octets",
	Defects: []string{"MSSRoundedDown", "MSSIgnored"}, Run: onConn(expectFullSegments),
}, {
	ID: "mpa/record/mulpdu-of-odd-segment-size", Cite: cite("rfc5044/4.5/1"), Setup: setupMSS(1463),
	Title:   "The MULPDU is computed from the MSS rounded down to a multiple of four",
	Sends:   "nothing: the device writes 8000 octets, with an MSS of 1463",
	Expects: "ULPDUs of up to 1454 octets",
	Defects: []string{"MSSRoundedDown"}, Run: onConn(expectFullSegments),
}, {
	ID: "mpa/record/mulpdu-leaves-room-for-markers", Cite: cite("rfc5044/4.5/2"), Setup: setupMSS(1460),
	Title:   "The MULPDU leaves room for the markers of a segment",
	Sends:   "a Request for markers; the device writes 8000 octets",
	Expects: "ULPDUs of at most 1442 octets with an MSS of 1460, and FPDUs that fit with their markers",
	Defects: []string{"MarkersForgotten"}, Run: onMarkersFromDevice(func(c *conn) {
		mss := c.tcp.MSS()
		want := mulpdu(mss, true)
		c.PostSend(c.qp, c.writeWR(1, 0, 8000))
		for _, g := range c.nextMessage(iwarp.OpWrite) {
			c.Check(len(g.ULPDU) <= want, fmt.Sprintf("ULPDUs of at most %d octets in segments of %d", want, mss), "one of %d", len(g.ULPDU))
			c.Check(len(g.Raw) <= mss, fmt.Sprintf("FPDUs of at most %d octets", mss), "one of %d", len(g.Raw))
		}
	}),
}, {
	ID: "mpa/record/mulpdu-of-at-least-128", Cite: cite("rfc5044/4.5/3", "rfc5044/3/2"), Setup: setupMSS(88),
	Title:   "The MULPDU is at least 128 octets, however short TCP segments are",
	Sends:   "nothing: the device writes 1000 octets, with an MSS of 88",
	Expects: "ULPDUs of 128 octets",
	Defects: []string{"MULPDUUnbounded"}, Run: onConn(func(c *conn) {
		got := c.longestULPDU(1000)
		c.Check(got >= 128, "ULPDUs of at least 128 octets", "up to %d in segments of %d", got, c.tcp.MSS())
	}),
}}
