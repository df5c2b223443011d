package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var enhancedRTRCases = []conformance.Case{{
	ID: "enhanced/rtr/comes-first", Cite: cite("rfc6581/5/1"),
	Title:   "An initiator in the peer-to-peer model sends the RTR before anything else",
	Sends:   "a Reply that selects a Write; the application sends as soon as it is connected",
	Expects: "a zero-length Write, then the application's Send",
	Defects: []string{"RTRLate"}, Run: onActive(setup{}, func(hs *handshake) {
		if !hs.replyOneRTR(iwarp.RTRWrite) {
			rig.NotApplicable("the device does not offer a Write as RTR")
		}
		c := hs.enterFullOperation()
		hs.expectConnected()
		c.PostSend(c.qp, c.sendWR(1, 0, 16))
		c.expect(iwarp.Op(iwarp.OpWrite).WithPayload(nil))
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
	}),
}, {
	ID: "enhanced/rtr/request-names-a-type", Cite: cite("rfc6581/9.2/1"),
	Title:   "A Request for the peer-to-peer model offers an RTR",
	Sends:   "a Reply",
	Expects: "a Request with A and at least one of B, C and D",
	Defects: []string{"NoRTROffered"}, Run: onActive(setup{}, func(hs *handshake) {
		f := flagsOf(hs.recvEnhancedRequest())
		if !f.a {
			hs.Check(!f.offersRTR(), "no RTR where A is not set", "%v", f)
			rig.NotApplicable("the device does not request the peer-to-peer model")
		}
		hs.Check(f.offersRTR(), "A and at least one of B, C and D", "%v", f)
		hs.establishWithReply(nil)
	}),
}, {
	ID: "enhanced/rtr/agreed-type-is-sent", Cite: cite("rfc6581/9.2/6"),
	Title:   "An initiator sends the negotiated RTR",
	Sends:   "Replies that select each kind of RTR that the Request offers, alone",
	Expects: "that RTR, with zero length",
	Defects: []string{"RTRUnasked"}, Run: onHost(func(h *host) {
		for _, rtr := range rtrKinds {
			hs := h.startActive(setup{})
			if !hs.replyOneRTR(rtr.kind) {
				continue
			}
			c := hs.enterFullOperation()
			g := c.expect(rtr.want)
			if rtr.kind == iwarp.RTRRead {
				c.send(iwarp.ReadResponseTo(g.Segment, nil))
			}
			hs.expectConnected()
			c.sync()
		}
	}),
}, {
	ID: "enhanced/rtr/no-common-type-is-terminated", Cite: cite("rfc6581/9.2/7", "rfc6581/8/1"),
	Title:   "An initiator without a common RTR sends a Terminate",
	Sends:   "a Reply with A and the kinds of RTR that the Request does not offer, if any",
	Expects: "a Terminate for no matching RTR, the end of the stream, and a connect that fails",
	Defects: []string{"RTRUnasked", "ErrorResets"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.replyNoCommonRTR().expectTerminateAndEnd(iwarp.MPANoMatchingRTR)
		hs.expectConnError()
	}),
}, {
	ID: "enhanced/rtr/read-counts-as-a-read", Cite: cite("rfc6581/9.2/12"), Level: conformance.Should,
	Title:   "A Read as RTR counts as the first Read Request",
	Sends:   "a Reply that selects a Read, and the Read Response; the device reads",
	Expects: "Read Requests with MSNs 1 and 2",
	Defects: []string{"RTRUncounted"}, Run: onAgreedRTR(iwarp.RTRRead, func(c *conn, rtr iwarp.ReceivedFPDU) {
		c.checkFPDU(iwarp.Op(iwarp.OpReadRequest).MSN(1), rtr)
		c.PostSend(c.qp, c.readWR(1, 0, 8))
		g := c.expect(iwarp.Op(iwarp.OpReadRequest).MSN(2))
		c.send(iwarp.ReadResponseTo(g.Segment, data(8)))
		c.ExpectCompletion(1, verbs.WCSuccess)
	}),
}, {
	ID: "enhanced/rtr/send-counts-as-a-send", Cite: cite("rfc6581/9.2/12"), Level: conformance.Should,
	Title:   "A Send as RTR counts as the first Send",
	Sends:   "a Reply that selects a Send; the device sends",
	Expects: "Sends with MSNs 1 and 2",
	Defects: []string{"RTRUncounted"}, Run: onAgreedRTR(iwarp.RTRSend, func(c *conn, rtr iwarp.ReceivedFPDU) {
		c.checkFPDU(iwarp.Send(1, nil), rtr)
		c.PostSend(c.qp, c.sendWR(1, 0, 16))
		c.expect(iwarp.Send(2, c.localMem.Buf[:16]))
	}),
}}
