package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// onWrongMarkers makes the body of a case that sends messages with a wrong marker, each on a
// separate connection, and fails unless the device reports the marker.
func onWrongMarkers(edits ...func(*iwarp.Marker)) func(*conformance.Bench) error {
	return onEachConn(setup{receives: 1, recvLen: 2048}, edits, func(c *conn, edit func(*iwarp.Marker)) {
		c.Check(c.framer.Markers, "a Reply with M set", "%v", c.deviceFrame)
		c.expectRefusal(iwarp.Send(c.nextSendMSN(), data(600)).EditMarkers(edit), iwarp.MPAMarker)
		c.expectFailure(1)
	})
}

var mpaErrorCases = []conformance.Case{{
	ID: "mpa/error/fin-reaches-the-program", Cite: cite("rfc5044/7.2/1"), Level: conformance.Should,
	Title:   "The application is notified that the peer has closed the stream",
	Sends:   "FIN",
	Expects: "the application is notified",
	Defects: []string{"EndUnreported"}, Run: onConn(func(c *conn) {
		c.closeWrite()
		c.expectDisconnect()
	}),
}, {
	ID: "mpa/error/reset-reaches-the-program", Cite: cite("rfc5044/8/1", "rfc5041/6.2.2/1"),
	Title:   "The application is notified that the peer has reset the stream",
	Sends:   "a reset",
	Expects: "the application is notified, and a receive that fails",
	Defects: []string{"EndUnreported"}, Run: onSetup(setup{receives: 1}, func(c *conn) {
		c.reset()
		c.expectDisconnect()
		c.expectFailure(1)
	}),
}, {
	ID: "mpa/error/nothing-is-taken-after-one", Cite: cite("rfc5044/8/2"),
	Title:   "No FPDU is processed after one with a wrong CRC",
	Sends:   "a Write with a wrong CRC, and 400 valid Writes and Sends after it, the first of them in the same segment",
	Expects: "a Terminate, memory unchanged, and receives that fail",
	Defects: []string{"Resynchronises"}, Run: onSetup(setup{receives: 2}, func(c *conn) {
		first := c.nextSendMSN()
		c.sendCoalesced(c.peerWrite(0, data(64)).BadCRC(), c.peerWrite(64, data(64)), iwarp.Send(first, data(16)))
		for i := range uint32(199) {
			c.sendCoalesced(c.peerWrite(128, data(64)), iwarp.Send(first+1+i, data(16)))
		}
		c.expectTerminateAndEnd(iwarp.MPACRC)
		c.ExpectUnchangedOutside(c.targetMem, 0, 64) // another case checks the Write with the wrong CRC
		c.expectFailure(1)
		c.expectFailure(2)
	}),
}, {
	ID: "mpa/error/wrong-crc-is-said-before-the-end", Cite: cite("rfc5044/8/3", "rfc5044/8/1"),
	Title:   "A wrong CRC is reported in a Terminate before the stream ends",
	Sends:   "a Write with a wrong CRC",
	Expects: "a Terminate that names the CRC, then the end of the stream; the application is notified",
	Defects: []string{"ErrorResets"}, Run: onConn(func(c *conn) {
		c.expectRefusal(c.peerWrite(0, data(64)).BadCRC(), iwarp.MPACRC)
		c.expectDisconnect()
	}),
}, {
	ID: "mpa/error/wrong-marker-is-said-before-the-end", Cite: cite("rfc5044/8/3", "rfc5044/8/5", "rfc5044/8/1"),
	Setup:   setupMarkers,
	Title:   "A wrong marker is reported in a Terminate before the stream ends",
	Sends:   "a Send with a marker that points four octets too far, and the correct CRC",
	Expects: "a Terminate that names the marker, then the end of the stream",
	Defects: []string{"ErrorResets", "MarkersUnchecked"}, Run: onWrongMarkers(func(m *iwarp.Marker) { m.Ptr += 4 }),
}, {
	ID: "mpa/error/marker-beside-the-length", Cite: cite("rfc5044/8/5"), Level: conformance.Should, Setup: setupMarkers,
	Title:   "A marker that does not point to the length field of its FPDU is detected",
	Sends:   "Sends with markers whose pointers are four octets short, 0, and 0xfffc, each on a separate connection",
	Expects: "a Terminate that names the marker for each",
	Defects: []string{"MarkersUnchecked"}, Run: onWrongMarkers(
		func(m *iwarp.Marker) { m.Ptr -= 4 },
		func(m *iwarp.Marker) { m.Ptr = 0 },
		func(m *iwarp.Marker) { m.Ptr = 0xfffc },
	),
}, {
	ID: "mpa/error/fin-inside-an-fpdu", Cite: cite("rfc5044/8/1", "rfc5041/6.2.2/1"),
	Title:   "An FPDU that is cut off by FIN is not delivered, and its receive fails",
	Sends:   "a Send without its CRC, and FIN",
	Expects: "the application is notified, and a receive that fails",
	Defects: []string{"EndUnreported"}, Run: onSetup(setup{receives: 1}, func(c *conn) {
		b := c.encode(iwarp.Send(c.nextSendMSN(), data(16)))
		c.write(b[:len(b)-4])
		c.closeWrite()
		c.expectDisconnect()
		c.expectFailure(1)
	}),
}}
