package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// setupMarkers configures the device to request markers.
var setupMarkers = conformance.Setup{Markers: true}

// onMarkersToDevice makes the body of a case from a function that sends markers to the device,
// which must ask for them.
func onMarkersToDevice(body func(*conn)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 4, recvLen: 2048}, func(c *conn) {
		c.Check(c.framer.Markers, "a Reply with M set", "%v", c.deviceFrame)
		body(c)
	})
}

// onMarkersFromDevice makes the body of a case from a function that checks markers of the device.
// The case does not apply if the device rejects a Request with M set, which another case checks.
func onMarkersFromDevice(body func(*conn)) func(*conformance.Bench) error {
	return onRequest(setup{}, withMarkers(enhancedRequest()), func(hs *handshake) {
		require(!iwarp.Val(hs.recvFrame().R), "the device refuses to send markers")
		c := hs.establish()
		c.allowBadFrames = true // body checks the markers
		body(c)
	})
}

// onChangedMarkers makes the body of a case in which a message with changed markers is delivered.
func onChangedMarkers(edit func(*iwarp.Marker)) func(*conformance.Bench) error {
	return onMarkersToDevice(func(c *conn) {
		c.send(iwarp.Send(c.nextSendMSN(), data(600)).EditMarkers(edit))
		c.expectMessage(1, 600)
		c.syncByRead()
	})
}

// expectMarkers fails the case unless a Write of 2000 octets by the device has at least 3 markers,
// at the right positions and with the right pointers.
func expectMarkers(c *conn) {
	first := c.deframer.Position
	markers := c.deviceMarkers(2000)
	c.Check(len(markers) >= 3, "at least 3 markers", "%d", len(markers))
	c.checkMarkers(first, markers)
}

// deviceMarkers makes the device write n octets, and returns the markers in its FPDUs.
func (c *conn) deviceMarkers(n int) (markers []iwarp.Marker) {
	c.allowBadFrames = true // the caller checks the markers
	c.PostSend(c.qp, c.writeWR(1, 0, n))
	for _, g := range c.nextMessage(iwarp.OpWrite) {
		markers = append(markers, g.Markers...)
	}
	return markers
}

// expectLeadingMarker fails the case unless the device's stream begins with a marker and a
// length. The case must not have parsed an FPDU before.
func (c *conn) expectLeadingMarker() {
	const markerLen, lengthFieldLen = 4, 2
	for len(c.deframer.Pending()) < markerLen+lengthFieldLen {
		c.Check(c.readStream(c.ResponseTimeout()), "octets of the stream", "%s", c.describeMissing())
	}
	b := c.deframer.Pending()
	c.Check([4]byte(b) == [4]byte{} && b[4]|b[5] != 0, "a marker of zeros, then a length", "% x", head(b))
}

const markerInterval = 512

// checkMarkers expects markers at the multiples of 512 from stream offset first on, each with a
// pointer to its FPDU.
func (c *conn) checkMarkers(first uint64, markers []iwarp.Marker) {
	firstMarker := (first + markerInterval - 1) / markerInterval * markerInterval
	for i, m := range markers {
		at := firstMarker + uint64(i)*markerInterval
		c.Check(m.Offset == at && m.Ptr == m.Want && m.Reserved == 0,
			fmt.Sprintf("a marker at %d that points back %d", at, m.Want), "%04x%04x at that position", m.Reserved, m.Ptr)
	}
}

// secondFPDUAtMarker makes the device send two messages, the first of which ends at the next
// marker, and returns the FPDU of the second, which begins with the marker.
func (c *conn) secondFPDUAtMarker() iwarp.ReceivedFPDU {
	n := iwarp.PayloadToMarker(c.deframer.Position)
	c.PostSend(c.qp, c.sendWR(1, 0, n), c.sendWR(2, 0, 24))
	c.expect(iwarp.Send(1, c.localMem.Buf[:n]))
	g := c.expect(iwarp.Send(2, c.localMem.Buf[:24]))
	c.Check(len(g.Markers) == 1 && g.Markers[0].Offset == g.Offset, "a marker before the second FPDU", "%d", len(g.Markers))
	return g
}

var mpaMarkerCases = []conformance.Case{{
	ID: "mpa/marker/reserved-half-is-zero", Cite: cite("rfc5044/4.2/1"),
	Title:   "The first two octets of a marker are zero",
	Sends:   "a Request for markers; the device writes 3000 octets",
	Expects: "markers that begin with two zeros",
	Defects: []string{"MarkerReservedSet"}, Run: onMarkersFromDevice(func(c *conn) {
		for _, m := range c.deviceMarkers(3000) {
			c.Check(m.Reserved == 0, fmt.Sprintf("zeros in the first half of the marker at %d", m.Offset), "%04x", m.Reserved)
		}
	}),
}, {
	ID: "mpa/marker/reserved-half-is-ignored", Cite: cite("rfc5044/4.2/2"), Setup: setupMarkers,
	Title:   "The first two octets of a marker are ignored",
	Sends:   "a Send with a marker that begins with ffff, and the correct CRC",
	Expects: "it is delivered",
	Defects: []string{"MPAReservedRefused"}, Run: onChangedMarkers(func(m *iwarp.Marker) { m.Reserved = 0xffff }),
}, {
	ID: "mpa/marker/low-bits-of-the-pointer-are-ignored", Cite: cite("rfc5044/4.2/3"), Setup: setupMarkers,
	Title:   "The two lowest bits of a marker's pointer are ignored",
	Sends:   "a Send with a marker whose pointer has the two bits set, and the correct CRC",
	Expects: "it is delivered",
	Defects: []string{"MPAReservedRefused"}, Run: onChangedMarkers(func(m *iwarp.Marker) { m.Ptr |= 3 }),
}, {
	ID: "mpa/marker/request-for-markers-is-granted", Cite: cite("rfc5044/4.3/1", "rfc5044/7.1.1/6"),
	Title:   "A responder sends markers to an initiator that requests them",
	Sends:   "a Request with M set; the device writes 2000 octets",
	Expects: "a Reply that accepts, and a stream with markers",
	Defects: []string{"RefusesMarkers"}, Run: onSetup(setup{frame: withMarkers}, expectMarkers),
}, {
	ID: "mpa/marker/reply-for-markers-is-granted", Cite: cite("rfc5044/4.3/1", "rfc5044/7.1.1/6"),
	Title:   "An initiator sends markers to a responder that requests them",
	Sends:   "a Reply with M set; the device writes 2000 octets",
	Expects: "a connection, and a stream with markers",
	Defects: []string{"RefusesMarkers"}, Run: onSetup(setup{active: true, frame: withMarkers}, expectMarkers),
}, {
	ID: "mpa/marker/none-unless-asked-for", Cite: cite("rfc5044/7.1.1/5", "rfc5044/7.1.2/10"),
	Title:   "No markers are sent to a peer that does not request them",
	Sends:   "start-up frames with M clear, as initiator and as responder; the device writes 2000 octets",
	Expects: "octets without markers",
	Defects: []string{"MarkersAlways"}, Run: onHost(func(h *host) {
		for _, active := range []bool{false, true} {
			c := h.connect(setup{
				active: active, prepare: func(c *conn) { c.allowBadFrames = true },
				frame: func(f startupFrame) startupFrame { return f.Markers(false) },
			})
			c.expectSent(c.writeWR(1, 0, 2000), iwarp.Write(peerSTag, peerTO, c.localMem.Buf[:2000]))
			c.ExpectCompletion(1, verbs.WCSuccess)
		}
	}),
}, {
	ID: "mpa/marker/first-is-before-the-first-fpdu", Cite: cite("rfc5044/4.3/3", "rfc5044/7.1.2/10"),
	Title:   "A stream with markers begins with one, of zeros",
	Sends:   "start-up frames with M set, as initiator and as responder; the device sends 16 octets",
	Expects: "four zeros and then a length, as the first octets of the stream",
	Defects: []string{"MarkersStartLate"}, Run: onMarkersFromDevice(func(c *conn) {
		c.allowBadFrames = false
		c.PostSend(c.qp, c.sendWR(1, 0, 16))
		c.expectLeadingMarker()
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
		c.ExpectCompletion(1, verbs.WCSuccess)

		hs := c.startActive(setup{})
		hs.recvFrame()
		hs.sendReply(withMarkers)
		c = hs.enterFullOperation()
		if e := iwarp.Val(hs.peerFrame.Enhanced); !iwarp.Val(e.PeerToPeer) { // the application must send first
			hs.expectConnected()
			c.PostSend(c.qp, c.sendWR(1, 0, 16))
		}
		c.expectLeadingMarker()
		c.expect(iwarp.Any())
		hs.expectConnected()
	}),
}, {
	ID: "mpa/marker/every-512-octets", Cite: cite("rfc5044/4.3/2"),
	Title:   "A marker is at every 512th octet of the stream, markers included",
	Sends:   "a Request for markers; the device writes 5000 octets",
	Expects: "markers at 0, 512, 1024 and so on",
	Defects: []string{"MarkersDrift"}, Run: onMarkersFromDevice(func(c *conn) {
		c.checkMarkers(0, c.deviceMarkers(5000))
	}),
}, {
	ID: "mpa/marker/every-512-octets-of-an-answer", Cite: cite("rfc5044/4.3/2", "rfc5044/4.3/4"),
	Title:   "The markers of a Read Response are at every 512th octet of the stream",
	Sends:   "a Request for markers, and a Read Request for 5000 octets",
	Expects: "markers at every 512th octet of the stream, and the payload between them",
	Defects: []string{"MarkersDrift"}, Run: onMarkersFromDevice(func(c *conn) {
		c.send(c.peerRead(0, 5000))
		var markers []iwarp.Marker
		var octets []byte
		for _, g := range c.nextMessage(iwarp.OpReadResponse) {
			markers, octets = append(markers, g.Markers...), append(octets, g.Payload...)
		}
		c.checkMarkers(0, markers)
		c.ExpectBytes(c.targetMem, 0, octets)
		c.Check(len(octets) == 5000, "5000 octets", "%d", len(octets))
	}),
}, {
	ID: "mpa/marker/points-to-the-length", Cite: cite("rfc5044/4.3/4", "rfc5044/4.2/3", "rfc5044/4.1/2"),
	Title:   "A marker inside an FPDU has the distance to its length field",
	Sends:   "a Request for markers; the device sends 100 and then 800 octets",
	Expects: "a marker in the second FPDU that points to its length field, and does not count in the length",
	Defects: []string{"MarkerPointsFirst"}, Run: onMarkersFromDevice(func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, 100), c.sendWR(2, 0, 800))
		c.expect(iwarp.Send(1, c.localMem.Buf[:100]))
		g := c.expect(iwarp.Send(2, c.localMem.Buf[:800]).ULPDULength(18 + 800))
		c.Check(len(g.Markers) == 1, "a marker in the second FPDU", "%d", len(g.Markers))
		back := uint16(g.Markers[0].Offset - g.Offset)
		c.Check(g.Markers[0].Ptr == back, fmt.Sprintf("a marker that points %d octets back", back), "%d", g.Markers[0].Ptr)
	}),
}, {
	ID: "mpa/marker/between-fpdus-is-zero", Cite: cite("rfc5044/4.3/5"),
	Title:   "A marker between two FPDUs has a pointer of 0, and belongs to the second",
	Sends:   "a Request for markers; the device sends a message that ends at the next marker, then another",
	Expects: "a marker of zeros before the second FPDU, whose CRC covers it",
	Defects: []string{"MarkerPointsFirst"}, Run: onMarkersFromDevice(func(c *conn) {
		g := c.secondFPDUAtMarker()
		c.Check(g.Markers[0].Ptr == 0, "a marker with a pointer of 0", "%d", g.Markers[0].Ptr)
		c.Check(iwarp.Val(g.MPA.CRC) == g.CorrectCRC, fmt.Sprintf("the CRC %08x, which covers the marker", g.CorrectCRC), "%08x", iwarp.Val(g.MPA.CRC))
	}),
}, {
	ID: "mpa/marker/several-point-to-one-start", Cite: cite("rfc5044/4.3/6"),
	Title:   "All markers of an FPDU point to its length field",
	Sends:   "a Request for markers; the device writes 1400 octets",
	Expects: "three markers that point to the same octet",
	Defects: []string{"MarkerPointsBack"}, Run: onMarkersFromDevice(func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, 100), c.writeWR(2, 0, 1400))
		c.expect(iwarp.Send(1, c.localMem.Buf[:100]))
		g := c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[:1400]))
		c.Check(len(g.Markers) >= 2, "several markers in an FPDU", "%d", len(g.Markers))
		for _, m := range g.Markers {
			c.Check(m.Offset-uint64(m.Ptr) == g.Offset, fmt.Sprintf("markers that point to %d", g.Offset), "one to %d", m.Offset-uint64(m.Ptr))
		}
	}),
}, {
	ID: "mpa/marker/small-fpdus-are-pointed-at", Cite: cite("rfc5044/4.3/7"),
	Title:   "Among short FPDUs a marker points to the FPDU that contains it",
	Sends:   "a Request for markers; the device posts sixty zero-length Writes",
	Expects: "markers that point to the length field before them",
	Defects: []string{"MarkerPointsFirst"}, Run: onMarkersFromDevice(func(c *conn) {
		c.postBatch(60, func(i int) verbs.SendWR { return withoutData(c.writeWR(uint64(i+1), 0, 0)) })
		inside := 0
		for _, g := range c.nextFPDUs(60) {
			for _, m := range g.Markers {
				c.Check(m.Ptr == m.Want, fmt.Sprintf("a marker at %d that points back %d", m.Offset, m.Want), "%d", m.Ptr)
				if m.Want > 0 {
					inside++
				}
			}
		}
		c.Check(inside > 0, "a marker inside one of the FPDUs", "none")
	}),
}, {
	ID: "mpa/marker/taken-out-of-a-send", Cite: cite("rfc5044/4.3/9"), Setup: setupMarkers,
	Title:   "Markers in a Send are removed before delivery",
	Sends:   "a Send of 1500 octets with its markers",
	Expects: "1500 octets in the receive, without the markers",
	Defects: []string{"MarkersKept"}, Run: onMarkersToDevice(func(c *conn) {
		c.send(iwarp.Send(c.nextSendMSN(), data(1500)))
		c.expectMessage(1, 1500)
		c.ExpectUnchangedOutside(c.localMem, 0, 1500)
	}),
}, {
	ID: "mpa/marker/taken-out-of-a-write", Cite: cite("rfc5044/4.3/9", "rfc5044/7.1.1/5"), Setup: setupMarkers,
	Title:   "Markers in a Write are not placed",
	Sends:   "a Request with M clear to a device that requests markers; a Write of 1500 octets with its markers, and a Read Request",
	Expects: "1500 octets in the memory, without the markers; a Read Response without markers",
	Defects: []string{"MarkersKept", "MarkersBothWays"}, Run: onMarkersToDevice(func(c *conn) {
		c.sendAndSync(c.peerWrite(0, data(1500)))
		c.ExpectBytes(c.targetMem, 0, data(1500))
		c.ExpectUnchangedOutside(c.targetMem, 0, 1500)
	}),
}, {
	ID: "mpa/marker/taken-out-of-a-response", Cite: cite("rfc5044/4.3/9"), Setup: setupMarkers,
	Title:   "Markers in a Read Response are not placed",
	Sends:   "Read Responses of 1500 octets with their markers, in one segment and in several",
	Expects: "1500 octets in the memory, without the markers",
	Defects: []string{"MarkersKept"}, Run: onMarkersToDevice(func(c *conn) {
		for _, ulpdu := range []int{2000, 14 + 400} {
			c.send(iwarp.ReadResponseTo(c.deviceRead(9, 8192, 1500), data(1500)).Segments(ulpdu)...)
			c.ExpectCompletion(9, verbs.WCSuccess)
			c.ExpectBytes(c.localMem, 8192, data(1500))
			c.ExpectUnchangedOutside(c.localMem, 8192, 1500)
			clear(c.localMem.Buf[8192:][:1500])
		}
	}),
}, {
	ID: "mpa/marker/taken-out-between-fpdus", Cite: cite("rfc5044/4.3/9", "rfc5044/4.3/5"), Setup: setupMarkers,
	Title:   "FPDUs before and after a marker are delivered",
	Sends:   "a Send that ends at the next marker, then one across the following marker",
	Expects: "both are delivered, without markers",
	Defects: []string{"MarkersKept"}, Run: onMarkersToDevice(func(c *conn) {
		n := iwarp.PayloadToMarker(c.framer.Position)
		c.send(iwarp.Send(c.nextSendMSN(), data(n)))
		c.send(iwarp.Send(c.nextSendMSN(), data(600)))
		c.expectMessage(1, n)
		c.ExpectRecv(2, 600)
		c.ExpectBytes(c.localMem, 2048, data(600))
	}),
}}
