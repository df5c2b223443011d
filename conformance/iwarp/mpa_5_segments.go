package iwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// writeInPieces writes octets in pieces that end at ends, each in a separate segment, with a
// pause after each.
func (c *conn) writeInPieces(b []byte, places ...int) {
	at := 0
	for _, p := range append(places, len(b)) {
		c.write(b[at:p])
		c.Sleep(segmentPause)
		at = p
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
// begins with an FPDU. The case does not apply if a read returns several segments.
func (c *conn) expectAlignedSegments(messages int) {
	for messages > 0 {
		n := len(c.deframer.Pending())
		c.Check(n == 0, "a segment that begins with an FPDU", "one that begins %d octets after the start of an FPDU", n)
		if !c.readStream(c.ResponseTimeout()) {
			c.Fail("a message", "%s", c.describeMissing())
		}
		if n, mss := len(c.deframer.Pending()), c.tcp.MSS(); n > mss {
			rig.NotApplicable(fmt.Sprintf("a read returned %d octets, more than the MSS of %d", n, mss))
		}
		for g, ok := c.deframer.Next(); ok; g, ok = c.deframer.Next() {
			if iwarp.Val(g.DDP.Last) {
				messages--
			}
		}
	}
}

var mpaSegmentCases = []conformance.Case{{
	ID: "mpa/segment/begins-with-an-fpdu", Cite: cite("rfc5044/5.1/1"), Level: conformance.Should,
	Setup:   setupMSS(1460),
	Title:   "TCP segments begin with an FPDU",
	Sends:   "nothing: the device sends messages of several lengths, one at a time, and then writes 20000 octets",
	Expects: "each read of the stream begins with a length field",
	Defects: []string{"SegmentsUnaligned"}, Run: onSetup(setup{memLen: 20000}, func(c *conn) {
		for i, n := range []int{0, 16, 300, 1000} {
			c.PostSend(c.qp, c.sendWR(uint64(i), 0, n))
			c.expectAlignedSegments(1)
		}
		c.PostSend(c.qp, c.writeWR(9, 0, 20000))
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
	Sends:   "without CRCs, a Send and a Write, each octet in a separate segment",
	Expects: "one is delivered, the other is placed",
	Defects: []string{"HeaderInOneRead"}, Run: onWithoutCRC(func(c *conn) {
		for _, f := range []iwarp.Frame{iwarp.Send(c.nextSendMSN(), data(13)), c.peerWrite(0, data(13))} {
			b := c.encode(f)
			for i := range b {
				c.write(b[i : i+1])
				c.Sleep(segmentPause)
			}
		}
		c.ExpectRecv(1, 13)
		c.ExpectBytes(c.localMem, 0, data(13))
		c.sync()
		c.ExpectBytes(c.targetMem, 0, data(13))
	}),
}, {
	ID: "mpa/segment/cut-in-the-header", Cite: cite("rfc5044/5.1/3", "rfc5044/5.2/1"),
	Title:   "A segment may end anywhere in the length or the header of an FPDU",
	Sends:   "Sends split in two, at every octet of length and header",
	Expects: "all are delivered",
	Defects: []string{"HeaderInOneRead"}, Run: onSetup(setup{}, func(c *conn) { c.expectDeliveredWhenSplit(16, 1, 21) }),
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
			n := payloadToMarker(c.framer.Position, ddpUntaggedLen)
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
			c.ExpectRecv(uint64(i+1), n)
			c.ExpectBytes(c.localMem, 64*i, data(n))
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
		c.ExpectUnchanged(c.targetMem, 0, 0)
		c.write(b[len(b)-4:])
		c.sync()
		c.ExpectBytes(c.targetMem, 0, data(512))
	}),
}}
