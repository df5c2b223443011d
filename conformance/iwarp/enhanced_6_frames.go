package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// checkEnhancedRevision fails the case if a frame of revision 1 has S set.
func (hs *handshake) checkEnhancedRevision(f startupFrame) {
	hs.Check(!iwarp.Val(f.S) || iwarp.Val(f.Rev) >= 2, "revision 2 in a frame with S set", "%v", f)
}

// truncatedEnhanced returns f with S set and n octets of private data: too few for enhanced data.
func truncatedEnhanced(f startupFrame, n int) startupFrame {
	return f.Revision(2).SFlag(true).Private(data(n))
}

var enhancedFrameCases = []conformance.Case{{
	ID: "enhanced/frame/needs-revision-2", Cite: cite("rfc6581/6/1"),
	Title:   "Enhanced data is sent with revision 2 only",
	Sends:   "Requests of both revisions; a reset after the device's Request, which may be followed by one of revision 1",
	Expects: "S set with revision 2 only",
	Defects: []string{"EnhancedRevision1"}, Run: onHost(func(h *host) {
		for _, f := range []startupFrame{revision1Request(), enhancedRequest()} {
			hs := h.sendRequest(setup{}, f)
			hs.checkEnhancedRevision(hs.recvFrame())
			hs.establish()
		}
		hs := h.startActiveListening(setup{})
		hs.checkEnhancedRevision(hs.recvFrame())
		if hs.resetAndAwaitRetry() {
			hs.checkEnhancedRevision(hs.recvFrame())
			hs.reset()
		}
		hs.expectConnError()
	}),
}, {
	ID: "enhanced/frame/flag-means-nothing-in-revision-1", Cite: cite("rfc6581/6/1", "rfc5044/7.1.1/9"),
	Title:   "In revision 1 the S flag is reserved: ignored when received, and zero in a Reply",
	Sends:   "Requests of revision 1 with S set and 0, 3 and 8 octets of private data; a reset after the device's Request, and such Replies if it retries with revision 1",
	Expects: "Replies of revision 1 with S clear, connections, and the application gets the octets",
	Defects: []string{"EchoesFlags", "ReservedFlagOfRevision1", "ReservedFlagOfReply"},
	Run: onHost(func(h *host) {
		for _, n := range []int{0, 3, 8} {
			hs := h.sendRequest(setup{}, revision1Request().SFlag(true).Private(data(n)))
			hs.establishAfter(iwarp.Reply().Revision(1).SFlag(false).PrivateLength(0))
			hs.checkRequestPrivateData(hs.requestParam.PrivateData, data(n))

			hs = h.startActiveListening(setup{})
			hs.recvFrame()
			if !hs.resetAndAwaitRetry() || iwarp.Val(hs.recvFrame().Rev) != 1 {
				hs.reset()
				hs.expectConnError()
				continue
			}
			hs.sendFrame(iwarp.Reply().Revision(1).SFlag(true).Private(data(n)))
			hs.enterFullOperation()
			hs.checkRequestPrivateData(hs.expectConnected().deviceConn.Param().PrivateData, data(n))
		}
	}),
}, {
	ID: "enhanced/frame/revision-1-is-taken", Cite: cite("rfc6581/6/2", "rfc6581/10/1"),
	Title:   "A Request of revision 1 is answered in revision 1",
	Sends:   "a Request of revision 1",
	Expects: "a Reply of revision 1 with S clear, and a working connection",
	Defects: []string{"DemandsRevision2"}, Run: onRequest(setup{}, revision1Request(), func(hs *handshake) {
		hs.establishAfter(iwarp.Reply().Reject(false).Revision(1).SFlag(false)).expectTraffic()
	}),
}, {
	ID: "enhanced/frame/four-octets-are-counted", Cite: cite("rfc6581/6/3"),
	Title:   "Enhanced data is the first four octets of private data, and PD_Length counts them",
	Sends:   "a Request with S set; the device accepts with twelve octets of private data",
	Expects: "a Reply with S set, PD_Length 16, four octets of enhanced data and the twelve octets",
	Defects: []string{"EnhancedUncounted"},
	Run: onRequest(setup{connParams: privateDataParam(data(12))}, enhancedRequest(), func(hs *handshake) {
		f := hs.expectFrame(iwarp.Reply().SFlag(true).PrivateLength(16).Private(data(12)))
		hs.Check(f.Enhanced != nil, "enhanced data", "none")
		hs.establish().expectTraffic()
	}),
}, {
	ID: "enhanced/frame/short-request", Cite: cite("rfc6581/6/4"),
	Title:   "A Request with S set and fewer than four octets is refused",
	Sends:   "Requests of revision 2 with S set and 0 to 3 octets of private data",
	Expects: "a Reply with R set or none, the end of the stream, and no connection request",
	Defects: []string{"ShortFramesTaken"}, Run: onHost(func(h *host) {
		l := h.listen()
		for n := range 4 {
			hs := &handshake{conn: h.dialAndSend(l, truncatedEnhanced(revision1Request(), n).Append(nil))}
			if hs.readStream(h.ResponseTimeout()) {
				hs.startupOctets = append(hs.startupOctets, hs.deframer.Pending()...)
				hs.expectFrame(iwarp.Reply().Reject(true))
				hs.deframer = iwarp.Deframer{}
			}
			hs.expectEnd()
			h.expectNoConnRequest(l)
		}
	}),
}, {
	ID: "enhanced/frame/short-reply", Cite: cite("rfc6581/6/4", "rfc5042/x/1"), Labels: []string{conformance.Dangerous},
	Title:   "A Reply with S set and fewer than four octets fails the connect without further effect",
	Sends:   "Replies of revision 2 with S set and 0 to 3 octets of private data",
	Expects: "the end of the stream, and a connect that fails",
	Defects: []string{"BadReplyHangs"}, Run: onInvalidReplies(
		func(startupFrame) startupFrame { return truncatedEnhanced(iwarp.Reply(), 0) },
		func(startupFrame) startupFrame { return truncatedEnhanced(iwarp.Reply(), 1) },
		func(startupFrame) startupFrame { return truncatedEnhanced(iwarp.Reply(), 2) },
		func(startupFrame) startupFrame { return truncatedEnhanced(iwarp.Reply(), 3) },
	),
}, {
	ID: "enhanced/frame/revision-2-without-the-flag", Cite: cite("rfc6581/6/5", "rfc6581/10/1"),
	Title:   "A Request of revision 2 with S clear is answered without enhanced data",
	Sends:   "a Request of revision 2 with S clear and eight octets of private data",
	Expects: "a Reply of revision 2 with S clear and without private data; the application gets the eight octets",
	Defects: []string{"ForcesEnhanced"},
	Run: onRequest(setup{}, revision1Request().Revision(2).Private(data(8)), func(hs *handshake) {
		hs.establishAfter(iwarp.Reply().Reject(false).Revision(2).SFlag(false).PrivateLength(0)).expectTraffic()
		hs.checkRequestPrivateData(hs.requestParam.PrivateData, data(8))
	}),
}, {
	ID: "enhanced/frame/depths-of-14-bits", Cite: cite("rfc6581/9/1"),
	Title:   "The flags next to IRD and ORD are not part of the values",
	Sends:   "a Request with IRD 5 and all flags, to an application with an initiator depth of 16; a Reply with IRD 2 and flag A",
	Expects: "a Reply with an ORD of at most 5; at most two outstanding Read Requests",
	Defects: []string{"FlagsLeak"}, Run: onHost(func(h *host) {
		c := h.connect(setup{frame: withDepths(5, 6)})
		ord := iwarp.Val(c.deviceFrame.Enhanced).ORD
		c.Check(iwarp.Val(ord) <= 5, "an ORD of at most 5", "%d", iwarp.Val(ord))
		c = h.connect(setup{active: true, frame: withDepths(2, 0)})
		require(c.deviceFrame.Enhanced != nil, "the device's Request is not enhanced")
		c.expectReadsLimited(4, 2)
	}),
}, {
	ID: "enhanced/frame/no-format-without-a-feature", Cite: cite("rfc6581/10/2", "rfc6581/6/1"),
	Title:   "A Request of revision 1 has the application's private data only",
	Sends:   "a reset after the device's Request, which has eight octets of private data",
	Expects: "if it retries, a Request of revision 1 with S clear and the eight octets only",
	Defects: []string{"EnhancedRevision1"}, Run: onHost(func(h *host) {
		hs := h.startActiveListening(setup{connParams: privateDataParam(data(8))})
		hs.recvFrame()
		if !hs.resetAndAwaitRetry() {
			hs.expectConnError()
			rig.NotApplicable("the device does not fall back to revision 1")
		}
		hs.expectFrame(iwarp.Request().Revision(1).SFlag(false).PrivateLength(8).Private(data(8)))
		hs.sendFrame(iwarp.Reply())
		hs.enterFullOperation()
		hs.expectConnected()
	}),
}, {
	ID: "enhanced/frame/fallback-to-revision-1", Cite: cite("rfc6581/10/3"), Level: conformance.May,
	Title:   "An initiator retries with revision 1 after the peer closes the stream",
	Sends:   "a reset or FIN after the device's Request, and a Reply to the next",
	Expects: "a Request of revision 1 on another stream, and a working connection",
	Defects: []string{"NoFallback"}, Run: onHost(func(h *host) {
		for _, end := range []func(*conn){(*conn).reset, (*conn).closeWrite} {
			hs := h.startActiveListening(setup{})
			hs.expectFrame(iwarp.Request().Revision(2))
			end(hs.conn)
			hs.Check(hs.awaitRetry(), "another Request", "none in %v", hs.ResponseTimeout())
			hs.expectFrame(iwarp.Request().Revision(1))
			hs.sendFrame(iwarp.Reply())
			hs.enterFullOperation()
			hs.expectConnected().expectTraffic()
		}
	}),
}}

// expectReadsLimited posts reads, and fails the case if more than limit Read Requests are ever
// unanswered, or if not all reads complete.
func (c *conn) expectReadsLimited(posted, limit int) {
	for i := range posted {
		c.PostSend(c.qp, c.readWR(uint64(50+i), 8*i, 8))
	}
	var asked []iwarp.ReceivedFPDU
	for i := range posted {
		asked = append(asked, c.drain(silencePeriod)...)
		open := len(asked) - i
		c.Check(open > 0 && open <= limit, fmt.Sprintf("one to %d unanswered Read Requests after %d responses", limit, i), "%d", open)
		c.checkFPDU(iwarp.Op(iwarp.OpReadRequest), asked[i])
		c.send(iwarp.ReadResponseTo(asked[i].Segment, data(8)))
		c.ExpectCompletion(uint64(50+i), verbs.WCSuccess)
	}
}

// expectReadsServed sends n Read Requests at once, and fails the case unless all are answered. The
// first is for more than TCP buffers, so that none is answered completely before all have arrived.
func (c *conn) expectReadsServed(n int) {
	large := c.largeMemory()
	c.sendBatch(n, func(i int) iwarp.Segment {
		if i == 0 {
			return c.readFrom(addrOf(large, 0), len(large.Buf))
		}
		return c.peerRead(0, 16)
	})
	c.waitForDevice()
	c.expectReadResponse(large.Buf)
	for range n - 1 {
		c.expectReadResponse(c.targetMem.Buf[:16])
	}
}
