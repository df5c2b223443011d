package iwarp

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// onResponderSilent makes the body of a case in which the device accepts the Request f, without and
// with markers. The peer then sends its first FPDU in the pieces that cut returns. The case fails if
// the device sends anything before it has all pieces. The application posts requests, which the
// device may refuse, before each piece.
func onResponderSilent(f startupFrame, fpdu iwarp.Segment, cut func(octets []byte) [][]byte) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		hs := h.sendRequest(setup{receives: 1}, f)
		hs.expectFrame(iwarp.Reply().Reject(false))
		hs.expectSilenceUntil(fpdu, cut)
		hs = h.sendRequest(setup{receives: 1}, withMarkers(f))
		if !iwarp.Val(hs.recvFrame().R) { // another case checks that markers are granted
			hs.expectSilenceUntil(fpdu, cut)
		}
	})
}

// onSilentUntilRTR makes the body of a case that fails if the device, as responder, sends anything
// before it has received the whole RTR frame, for each kind of RTR that the device accepts. The
// peer sends the frame in the pieces that cut returns.
func onSilentUntilRTR(cut func(octets []byte) [][]byte) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, rtr := range []struct {
			flag  iwarp.EnhancedFlags
			first iwarp.Segment
		}{
			{flagC, iwarp.Write(peerSTag, 0, nil)},
			{flagB, iwarp.Send(1, nil)},
			{flagD, iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 0, iwarp.At(peerSTag, 0))},
		} {
			hs := h.sendRequest(setup{receives: 1}, requestWithFlags(flagA|rtr.flag))
			if got := hs.expectEnhancedReply().Flags(); got&flagA == 0 || got&rtr.flag == 0 {
				hs.establish() // the device accepts another RTR
				continue
			}
			hs.expectSilenceUntil(rtr.first, cut)
		}
	})
}

// expectSilenceUntil sends the peer's first FPDU in the pieces that cut returns, and fails the case
// if the device sends anything before it has all pieces. The application posts a Send, a Write and a
// read before each piece. The device may refuse them; if it refuses all, they are posted again at the
// end. The accepted ones must then be sent.
func (hs *handshake) expectSilenceUntil(fpdu iwarp.Segment, cut func(octets []byte) [][]byte) {
	c := hs.enterFullOperation()
	payload := c.localMem.Buf[1024:1040]
	wrs := []verbs.SendWR{c.sendWR(9, 1024, 16), c.writeWR(9, 1024, 16), c.readWR(9, 2048, 16)}
	requests := []iwarp.Segment{iwarp.Op(iwarp.OpSend).WithPayload(payload), iwarp.Write(peerSTag, peerTO, payload), iwarp.Op(iwarp.OpReadRequest)}
	var want []iwarp.Segment
	for _, piece := range cut(c.encode(fpdu)) {
		n, err := c.qp.PostSend(wrs)
		c.Note("post_send: %d accepted, %v", n, err)
		want = append(want, requests[:n]...)
		c.expectSilence(silencePeriod)
		c.write(piece)
	}
	hs.expectConnected()
	if len(want) == 0 {
		c.PostSend(c.qp, wrs...)
		want = requests
	}
	for _, w := range want {
		g := c.mustNextFPDU(w.String())
		if g.Op() == iwarp.OpReadResponse && fpdu.Op() == iwarp.OpReadRequest {
			g = c.mustNextFPDU(w.String()) // the response to fpdu may come between the requests
		}
		c.checkFPDU(w, g)
	}
}

// onePiece returns a frame in one piece.
func onePiece(b []byte) [][]byte { return [][]byte{b} }

// threePieces splits a frame into three pieces, the last of one octet.
func threePieces(b []byte) [][]byte {
	return [][]byte{b[:len(b)/2], b[len(b)/2 : len(b)-1], b[len(b)-1:]}
}

// rejectingSetup returns a setup whose application rejects the connection with private data.
func rejectingSetup(private []byte) setup {
	return setup{respond: func(r verbs.ConnRequest, _ verbs.QP) (verbs.Conn, error) { return nil, r.Reject(private) }}
}

// expectNothingMore fails the case if the device sends more octets. RFC 5044 allows it to close
// the stream or to leave that to the peer.
func (c *conn) expectNothingMore() {
	g, ok := c.nextFPDU(silencePeriod)
	c.Check(!ok, "nothing more", "%v", g)
	c.Check(len(c.deframer.Pending()) == 0, "nothing more", "%s", describeOctets(c.deframer.Pending()))
}

// onBothRevisions makes the body of a case that runs with a Request of revision 1, and again with
// an enhanced one. s comes from rejectingSetup: the application rejects the Request.
func onBothRevisions(s setup, body func(*handshake)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, f := range []startupFrame{revision1Request(), enhancedRequest()} {
			hs := h.sendRequest(s, f)
			body(hs)
			hs.Must("a request that can be rejected", hs.awaitResult())
		}
	})
}

var mpaOrderCases = []conformance.Case{{
	ID: "mpa/order/initiator-speaks-first", Cite: cite("rfc5044/7.1.2/1"),
	Title:   "An initiator sends its Request without waiting for the responder",
	Sends:   "nothing, until the Request has arrived",
	Expects: "a Request",
	Defects: []string{"ResponderSpeaksFirst"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.expectFrame(iwarp.Request())
		hs.establishWithReply(nil)
	}),
}, {
	ID: "mpa/order/responder-waits-for-a-request", Cite: cite("rfc5044/7.1.2/2"),
	Title:   "A responder sends nothing before it has received a complete Request",
	Sends:   "nothing for some time, then a Request without its last octet, then the last octet",
	Expects: "nothing until the last octet, then a Reply",
	Defects: []string{"ResponderSpeaksFirst"}, Run: onHost(func(h *host) {
		hs := h.startPassive(setup{})
		hs.expectSilence(silencePeriod)
		f := enhancedRequest().Private(data(8))
		b := f.Append(nil)
		hs.write(b[:len(b)-1])
		hs.expectSilence(silencePeriod)
		hs.write(b[len(b)-1:])
		hs.peerFrame = f
		hs.establishAfter(iwarp.Reply().Reject(false))
	}),
}, {
	ID: "mpa/order/first-fpdu-behind-the-reply-is-taken", Cite: cite("rfc5044/7.1.2/6"), Level: conformance.Should,
	Title:   "A responder processes an FPDU that arrives right after its Reply",
	Sends:   "a Request of revision 1 or an enhanced one, and a Send right after the Reply, on sixteen streams",
	Expects: "the Sends are delivered",
	Defects: []string{"FirstFPDUStuck", "FirstEnhancedStuck"}, Run: onHost(func(h *host) {
		// A device that receives FPDUs from its Reply on misses only those right after it.
		for i := range 16 {
			f := revision1Request()
			if i%2 == 1 {
				f = requestWithFlags(0)
			}
			hs := h.sendRequest(setup{receives: 1}, f)
			hs.expectFrame(iwarp.Reply().Reject(false))
			c := hs.enterFullOperation()
			c.send(iwarp.Send(1, data(16)))
			c.ExpectRecv(1, 16)
			hs.expectConnected()
		}
	}),
}, {
	ID: "mpa/order/responder-is-mute-until-spoken-to", Cite: cite("rfc5044/7.1.2/9"),
	Title:   "A responder sends no FPDU before it has received one",
	Sends:   "Requests of revision 1 without and with markers, then nothing for some time, then a Send. The application posts a Send, a Write and a read right after it accepts",
	Expects: "nothing, not even a marker, until the Send has arrived, then the device's messages",
	Defects: []string{"NoFence", "FirstMarkerEarly"}, Run: onResponderSilent(revision1Request(), iwarp.Send(1, data(16)), onePiece),
}, {
	ID: "mpa/order/half-an-fpdu-does-not-unmute", Cite: cite("rfc5044/7.1.2/9", "rfc6581/9.2/10"),
	Title:   "A responder sends no FPDU before it has received a complete one",
	Sends:   "Requests of revision 1 without and with markers, a Send in three pieces, the last of one octet. The application posts a Send, a Write and a read before each",
	Expects: "nothing until the last octet has arrived, then the device's messages",
	Defects: []string{"EarlyFence"}, Run: onResponderSilent(revision1Request(), iwarp.Send(1, data(16)), threePieces),
}, {
	ID: "mpa/reject/program-says-no", Cite: cite("rfc5044/7.1.2/4", "rfc5044/7.1.1/8"),
	Title:   "A Request that the application rejects gets a Reply with R set",
	Sends:   "Requests of both revisions",
	Expects: "Replies with R set",
	Defects: []string{"RejectCloses"},
	Run:     onBothRevisions(rejectingSetup(nil), func(hs *handshake) { hs.expectFrame(iwarp.Reply().Reject(true)) }),
}, {
	ID: "mpa/reject/private-data-goes-with-it", Cite: cite("rfc5044/7.1.2/4", "rfc5044/7.1.1/12"),
	Title:   "The Reply to a rejected Request carries the application's private data",
	Sends:   "Requests of both revisions",
	Expects: "Replies with R set and the application's 24 octets",
	Defects: []string{"RejectCloses"}, Run: onBothRevisions(rejectingSetup(data(24)), func(hs *handshake) {
		hs.checkPrivateData(hs.expectFrame(iwarp.Reply().Reject(true)), data(24))
	}),
}, {
	ID: "mpa/reject/nothing-follows", Cite: cite("rfc5044/7.1.2/5"),
	Title:   "Nothing follows a Reply with R set",
	Sends:   "Requests of both revisions",
	Expects: "Replies with R set and no octet after them; the device may close the stream",
	Defects: []string{"TalksAfterReject"}, Run: onBothRevisions(rejectingSetup(nil), func(hs *handshake) {
		hs.expectFrame(iwarp.Reply().Reject(true))
		hs.enterFullOperation().expectNothingMore()
	}),
}, {
	ID: "mpa/reject/initiator-sends-nothing", Cite: cite("rfc5044/7.1.2/8", "rfc5044/7.1.1/8"),
	Title:   "A rejected initiator sends nothing more, and has no connection",
	Sends:   "a Reply with R set",
	Expects: "no FPDU, and a connect that fails",
	Defects: []string{"RejectIsAccept"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.recvFrame()
		hs.sendReply(func(f startupFrame) startupFrame { return f.Reject(true) })
		hs.enterFullOperation().expectNothingMore()
		hs.expectConnError()
	}),
}, {
	ID: "mpa/reject/initiator-is-told-with-the-data", Cite: cite("rfc5044/7.1.2/8"),
	Title:   "The application of a rejected initiator gets the rejection with its private data",
	Sends:   "a Reply with R set and 24 octets of private data",
	Expects: "a connect that fails as rejected, with the octets",
	Defects: []string{"RejectIsAccept", "RejectCloses"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.recvFrame()
		hs.sendReply(func(f startupFrame) startupFrame { return f.Reject(true).Private(data(24)) })
		hs.enterFullOperation().expectNothingMore()
		var why *verbs.RejectError
		err := hs.expectConnError()
		hs.Check(errors.As(err, &why), "a connect that fails as rejected", "%v", err)
		hs.checkRequestPrivateData(why.PrivateData, data(24))
	}),
}}

// startupLimit is the longest time that a device may wait for a start-up frame. RFC 5044 names
// none; known stacks wait for 5 to 20 seconds.
const startupLimit = 2 * time.Minute

// onPartialRequest makes the body of a case in which the peer sends only the first n octets of a
// Request, for each of the lengths n on a separate stream. It fails unless the device ends the stream
// within startupLimit.
func onPartialRequest(lengths ...int) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, n := range lengths {
			h.expectRequestDropped(h.listen(), revision1Request().Private(data(16)).Append(nil)[:n], startupLimit)
		}
	})
}

// replyWithPrivateData returns a valid Reply to the device's Request, with 16 octets of private
// data.
func (hs *handshake) replyWithPrivateData() startupFrame {
	f := iwarp.Reply().Revision(iwarp.Val(hs.deviceFrame.Rev)).Private(data(16))
	if hs.deviceFrame.Enhanced != nil {
		f = f.Depths(1, 1).PeerToPeer(iwarp.RTRWrite)
	}
	return f
}

// onPartialReply makes the body of a case in which the peer sends only the first n octets of a
// Reply, for each of the lengths n on a separate stream. It fails unless the device ends the stream
// within startupLimit.
func onPartialReply(lengths ...int) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, n := range lengths {
			hs := h.startActive(setup{})
			hs.recvFrame()
			hs.write(hs.replyWithPrivateData().Append(nil)[:n])
			hs.expectEndWithin(startupLimit)
			hs.expectConnError()
		}
	})
}

// expectEndOfTrickle sends octets one at a time, a second apart, and fails the case unless the device
// ends the stream within startupLimit and before the last octet.
func (c *conn) expectEndOfTrickle(b []byte) {
	start := c.Now()
	for ; c.endErr == nil; b = b[1:] {
		elapsed := c.Now() - start
		c.Check(elapsed < startupLimit && len(b) > 1, "the end of the stream", "nothing in %v", elapsed)
		c.write(b[:1])
		c.readStream(time.Second)
	}
}

var mpaTimerCases = conformance.Group{Labels: []string{conformance.Slow}}.Cases([]conformance.Case{{
	ID: "mpa/timer/no-request", Cite: cite("rfc5044/7.1.2/12"), Level: conformance.Should,
	Title:   "A responder that receives no Request closes the stream",
	Sends:   "nothing",
	Expects: "the end of the stream within two minutes",
	Defects: []string{"NoTimers"}, Run: onPartialRequest(0),
}, {
	ID: "mpa/timer/part-of-a-request", Cite: cite("rfc5044/7.1.2/13"), Level: conformance.Should,
	Title:   "A responder that receives part of a Request closes the stream",
	Sends:   "ten octets of a Request; one without its private data, and one without the last octet of it",
	Expects: "the end of the stream within two minutes",
	Defects: []string{"TimerStopsEarly", "TimerStopsAtHeader"}, Run: onPartialRequest(10, 20, 35),
}, {
	ID: "mpa/timer/no-reply", Cite: cite("rfc5044/7.1.2/13"), Level: conformance.Should,
	Title:   "An initiator that receives no Reply closes the stream",
	Sends:   "nothing",
	Expects: "the end of the stream within two minutes, and a connect that fails",
	Defects: []string{"NoTimers"}, Run: onPartialReply(0),
}, {
	ID: "mpa/timer/part-of-a-reply", Cite: cite("rfc5044/7.1.2/13"), Level: conformance.Should,
	Title:   "An initiator that receives part of a Reply closes the stream",
	Sends:   "ten octets of a Reply; one without its private data, and one without the last octet of it",
	Expects: "the end of the stream within two minutes, and a connect that fails",
	Defects: []string{"TimerStopsEarly", "TimerStopsAtHeader"}, Run: onPartialReply(10, 20, 35),
}, {
	ID: "mpa/timer/octet-by-octet", Cite: cite("rfc5044/7.1.2/13"), Level: conformance.Should,
	Title:   "A start-up frame that arrives too slowly closes the stream, whatever its last octet",
	Sends:   "a Request and a Reply with 512 or 508 octets of private data, an octet per second",
	Expects: "the end of the stream within two minutes, and a connect that fails",
	Defects: []string{"RequestTimeoutRestarts", "ReplyTimeoutRestarts"}, Run: onHost(func(h *host) {
		h.dialAndSend(h.listen(), nil).expectEndOfTrickle(revision1Request().Private(data(512)).Append(nil))
		hs := h.startActive(setup{})
		hs.recvFrame()
		hs.expectEndOfTrickle(hs.replyWithPrivateData().Private(data(508)).Append(nil))
		hs.expectConnError()
	}),
}, {
	ID:      "mpa/timer/retry-has-the-rest-of-the-time",
	Cite:    citeSection("package verbs", "", "verbs/cm/9"),
	Title:   "A connect ends at its timeout, even if it is retried with revision 1",
	Sends:   "a reset 8 s after the Request, and nothing after a second one",
	Expects: "a connect of 9 s that fails, and not long after its time",
	Defects: []string{"FallbackFreshTimeout"}, Run: onHost(func(h *host) {
		const limit, until = 9 * time.Second, 8 * time.Second
		began := h.Now()
		hs := h.startActiveListening(setup{connectTimeout: limit})
		hs.recvFrame()
		h.Sleep(began + until - h.Now())
		hs.reset()
		hs.expectConnError()
		took := h.Now() - began
		h.Check(took < limit+hs.endTimeout(), fmt.Sprintf("a connect that ends after %v", limit), "after %v", took)
	}),
}, {
	ID: "mpa/timer/ends-with-the-start-up", Cite: cite("rfc5044/7.1.2/13", "rfc5044/7.1.2/6"), Level: conformance.Should,
	Title:   "The start-up timers stop when the Request or Reply has arrived",
	Sends:   "a Request, which the application accepts a minute later, and a Reply; nothing for a minute; then a Send",
	Expects: "connections that work",
	Defects: []string{"TimerRunsOn"}, Run: onHost(func(h *host) {
		passive := &handshake{conn: h.newConn(&setup{}), listener: h.listen()}
		passive.tcp = h.dial(passive.listener)
		passive.sendFrame(enhancedRequest())
		request, err := passive.listener.GetRequest(h.ResponseTimeout())
		h.Must("a connection request", err)
		h.Sleep(startupLimit / 2)
		passive.task = h.Go("accept", func() (err error) {
			passive.result, err = request.Accept(passive.qp, defaultParam, appTimeout)
			return err
		})
		passive.expectFrame(iwarp.Reply().Reject(false))
		conns := []*conn{passive.establish(), h.connect(setup{active: true})}
		h.Sleep(startupLimit / 2)
		for _, c := range conns {
			c.expectTraffic()
		}
	}),
}})

// onWrongMarkers makes the body of a case that sends a Send with wrong markers, and a valid Write
// behind it, on a separate connection for each edit. It fails unless the device reports the marker
// and executes neither. The Send has a marker before its length and several in it.
func onWrongMarkers(edits ...func(*iwarp.Marker)) func(*conformance.Bench) error {
	return onEachConn(setup{receives: 2, recvLen: 2048}, edits, func(c *conn, edit func(*iwarp.Marker)) {
		c.Check(c.framer.Markers, "a Reply with M set", "%v", c.deviceFrame)
		c.expectSendDelivered(1, iwarp.PayloadToMarker(c.framer.Position))
		c.sendCoalesced(iwarp.Send(c.nextSendMSN(), data(1500)).EditMarkers(edit), c.peerWrite(0, data(16)))
		c.expectTerminateAndEnd(iwarp.MPAMarker)
		c.expectFailure(2)
		c.ExpectUntouched(c.targetMem)
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
	ID: "mpa/error/wrong-marker-is-said-before-the-end", Cite: cite("rfc5044/8/3", "rfc5044/8/5", "rfc5044/8/1", "rfc5044/8/2", "rfc6580/3.3/1"),
	Setup:   setupMarkers,
	Title:   "A wrong marker is reported in a Terminate before the stream ends",
	Sends:   "a Send with markers that point four octets too far, and the correct CRC; a valid Write behind it",
	Expects: "a Terminate that names the marker, then the end of the stream; neither has an effect",
	Defects: []string{"ErrorResets", "MarkersUnchecked", "MarkerErrorPasses"}, Run: onWrongMarkers(func(m *iwarp.Marker) { m.Ptr += 4 }),
}, {
	ID: "mpa/error/marker-beside-the-length", Cite: cite("rfc5044/8/5"), Level: conformance.Should, Setup: setupMarkers,
	Title:   "A marker that does not point to the length field of its FPDU is detected",
	Sends:   "Sends with markers whose pointers are four octets short, 0, and 0xfffc, each on a separate connection; Sends of which only the marker before the length, or only the last marker, is wrong",
	Expects: "a Terminate that names the marker for each",
	Defects: []string{"MarkersUnchecked", "FirstMarkerChecked", "LeadMarkerUnchecked"}, Run: onWrongMarkers(
		func(m *iwarp.Marker) { m.Ptr -= 4 },
		func(m *iwarp.Marker) { m.Ptr = 0 },
		func(m *iwarp.Marker) { m.Ptr = 0xfffc },
		func(m *iwarp.Marker) {
			if m.Want == 0 {
				m.Ptr = 4
			}
		},
		func(m *iwarp.Marker) {
			if m.Want > markerInterval {
				m.Ptr -= 4
			}
		},
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
