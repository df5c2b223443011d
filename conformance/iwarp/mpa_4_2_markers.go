package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// setupMarkers configures the device to request markers.
var setupMarkers = conformance.Setup{Markers: true}

// onMarkersToDevice makes the body of a case from a function that sends markers to the device.
func onMarkersToDevice(body func(*conn)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 4, recvLen: 2048}, func(c *conn) {
		c.Check(c.framer.Markers, "a Reply with M set", "%v", c.deviceFrame)
		body(c)
	})
}

// onMarkersFromDevice makes the body of a case from a function that receives markers from the
// device. The case does not apply if the device rejects M; another case checks that.
func onMarkersFromDevice(body func(*conn)) func(*conformance.Bench) error {
	return onPassive(setup{}, func(hs *handshake) {
		hs.sendFrame(withMarkers(enhancedRequest()))
		if iwarp.Val(hs.recvFrame().R) {
			rig.NotApplicable("the device refuses to send markers")
		}
		body(hs.establish())
	})
}

// expectAcceptedWithMarkers fails the case unless a message with a changed marker is delivered.
func (c *conn) expectAcceptedWithMarkers(edit func(*iwarp.Marker)) {
	c.send(iwarp.Send(c.nextSendMSN(), data(600)).EditMarkers(edit))
	c.ExpectRecv(1, 600)
	c.ExpectBytes(c.localMem, 0, data(600))
	c.sync()
}

// deviceMarkers makes the device write n octets, and returns the markers.
func (c *conn) deviceMarkers(n int) (markers []iwarp.Marker) {
	c.allowBadFrames = true
	c.PostSend(c.qp, c.writeWR(1, 0, n))
	for _, g := range c.nextMessage(iwarp.OpWrite) {
		markers = append(markers, g.Markers...)
	}
	return markers
}

// expectLeadingMarker fails the case unless the device's stream begins with a marker and a
// length. No FPDU may have been parsed before.
func (c *conn) expectLeadingMarker() {
	for len(c.deframer.Pending()) < 6 {
		if !c.readStream(c.ResponseTimeout()) {
			c.Fail("octets of the stream", "%s", c.describeMissing())
		}
	}
	b := c.deframer.Pending()
	c.Check([4]byte(b) == [4]byte{} && b[4]|b[5] != 0, "a marker of zeros, then a length", "% x", head(b))
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
	Defects: []string{"MPAReservedRefused"}, Run: onMarkersToDevice(func(c *conn) {
		c.expectAcceptedWithMarkers(func(m *iwarp.Marker) { m.Reserved = 0xffff })
	}),
}, {
	ID: "mpa/marker/low-bits-of-the-pointer-are-ignored", Cite: cite("rfc5044/4.2/3"), Setup: setupMarkers,
	Title:   "The two lowest bits of a marker's pointer are ignored",
	Sends:   "a Send with a marker whose pointer has the two bits set, and the correct CRC",
	Expects: "it is delivered",
	Defects: []string{"MPAReservedRefused"}, Run: onMarkersToDevice(func(c *conn) {
		c.expectAcceptedWithMarkers(func(m *iwarp.Marker) { m.Ptr |= 3 })
	}),
}, {
	ID: "mpa/marker/request-for-markers-is-granted", Cite: cite("rfc5044/4.3/1", "rfc5044/7.1.1/6"),
	Title:   "A responder sends markers to an initiator that requests them",
	Sends:   "a Request with M set; the device writes 2000 octets",
	Expects: "a Reply that accepts, and a stream with markers",
	Defects: []string{"RefusesMarkers"}, Run: onSetup(setup{frame: withMarkers}, func(c *conn) {
		c.Check(len(c.deviceMarkers(2000)) >= 3, "a stream with markers", "none")
	}),
}, {
	ID: "mpa/marker/reply-for-markers-is-granted", Cite: cite("rfc5044/4.3/1", "rfc5044/7.1.1/6"),
	Title:   "An initiator sends markers to a responder that requests them",
	Sends:   "a Reply with M set; the device writes 2000 octets",
	Expects: "a connection, and a stream with markers",
	Defects: []string{"RefusesMarkers"}, Run: onSetup(setup{active: true, frame: withMarkers}, func(c *conn) {
		c.Check(len(c.deviceMarkers(2000)) >= 3, "a stream with markers", "none")
	}),
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
			c.PostSend(c.qp, c.writeWR(1, 0, 2000))
			c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[:2000]))
			c.ExpectCompletion(1, verbs.WCSuccess)
		}
	}),
}, {
	ID: "mpa/marker/first-is-before-the-first-fpdu", Cite: cite("rfc5044/4.3/3", "rfc5044/7.1.2/10"),
	Title:   "A stream with markers begins with one, of zeros",
	Sends:   "start-up frames with M set, as initiator and as responder; the device sends 16 octets",
	Expects: "four zeros and then a length, as the first octets of the stream",
	Defects: []string{"MarkersStartLate"}, Run: onMarkersFromDevice(func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, 16))
		c.expectLeadingMarker()
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
		c.ExpectCompletion(1, verbs.WCSuccess)

		hs := c.startActive(setup{})
		hs.recvFrame()
		hs.sendReply(withMarkers)
		c = hs.enterFullOperation()
		if e := enhancedOf(hs.sentFrame); !iwarp.Val(e.PeerToPeer) { // the application must send first
			hs.expectConnected()
			c.PostSend(c.qp, c.sendWR(1, 0, 16))
		}
		c.expectLeadingMarker()
		c.expect(iwarp.Any())
		hs.expectConnected()
	}),
}}
