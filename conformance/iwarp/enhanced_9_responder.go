package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// withDepths returns an edit of the peer's start-up frame that sets IRD and ORD.
func withDepths(ird, ord uint16) func(startupFrame) startupFrame {
	return func(f startupFrame) startupFrame { return f.Depths(ird, ord) }
}

// checkRequestDepths fails the case unless the application got the peer's IRD and ORD. It may
// get them swapped: rdma_cm reports them as the responder's ORD and IRD.
func (h *host) checkRequestDepths(got verbs.ConnParam, ird, ord uint8) {
	straight := got.ResponderResources == ird && got.InitiatorDepth == ord
	swapped := got.ResponderResources == ord && got.InitiatorDepth == ird
	h.Check(straight || swapped, fmt.Sprintf("IRD %d and ORD %d in the connection request", ird, ord),
		"%d and %d", got.ResponderResources, got.InitiatorDepth)
}

// expectEnhancedReply fails the case unless the device sends a Reply with enhanced data.
func (hs *handshake) expectEnhancedReply() iwarp.Enhanced {
	f := hs.expectFrame(iwarp.Reply().SFlag(true))
	hs.Check(f.Enhanced != nil, "enhanced data", "none in %v", f)
	return *f.Enhanced
}

// Flags of enhanced data.
const (
	flagA, flagB, flagC, flagD = iwarp.FlagA, iwarp.FlagB, iwarp.FlagC, iwarp.FlagD

	rtrFlags = flagB | flagC | flagD
)

// requestWithFlags returns an enhanced Request with the flags.
func requestWithFlags(f iwarp.EnhancedFlags) startupFrame {
	return iwarp.Request().Depths(defaultOrd, defaultOrd).Flags(f)
}

var enhancedResponderCases = []conformance.Case{{
	ID: "enhanced/depth/program-sees-the-peers", Cite: cite("rfc6581/9.1/1"),
	Title:   "The application gets IRD and ORD of a Request",
	Sends:   "a Request with IRD 3 and ORD 5",
	Expects: "the application gets 3 and 5",
	Defects: []string{"OwnDepthsReported"},
	Run: onRequest(setup{connParams: depthParam(7, 7)}, withDepths(3, 5)(enhancedRequest()), func(hs *handshake) {
		hs.recvFrame()
		hs.establish()
		hs.checkRequestDepths(hs.requestParam, 3, 5)
	}),
}, {
	ID: "enhanced/depth/ord-at-most-the-peers-ird", Cite: cite("rfc6581/9.1/2"),
	Title:   "A responder's ORD is at most the initiator's IRD, whatever its application requests",
	Sends:   "Requests with IRD 1, 2 and 4, to an application with an initiator depth of 8",
	Expects: "Replies with an ORD of at most the IRD, and no more outstanding Read Requests",
	Defects: []string{"ORDNotLowered", "ReadLimitGrows"}, Run: onHost(func(h *host) {
		for _, ird := range []uint16{1, 2, 4} {
			c := h.connect(setup{connParams: depthParam(8, 8), frame: withDepths(ird, 8)})
			ord := iwarp.Val(iwarp.Val(c.deviceFrame.Enhanced).ORD)
			c.Check(ord <= ird, fmt.Sprintf("an ORD of at most %d", ird), "%d", ord)
			c.expectReadsLimited(8, int(ird))
		}
	}),
}, {
	ID: "enhanced/depth/ird-covers-the-peers-ord", Cite: cite("rfc6581/9.1/3"), Level: conformance.Should,
	Title:   "A responder's IRD is at least the initiator's ORD, as far as the device supports it",
	Sends:   "a Request with ORD 8, to an application with 4 responder resources; eight Read Requests",
	Expects: "a Reply with an IRD of at least 8, and eight Read Responses",
	Defects: []string{"IRDNotRaised"},
	Run: onSetup(setup{connParams: depthParam(4, 4), frame: withDepths(4, 8)}, func(c *conn) {
		ird := iwarp.Val(iwarp.Val(c.deviceFrame.Enhanced).IRD)
		c.Check(ird >= 8, "an IRD of at least 8", "%d", ird)
		var reads []iwarp.Segment
		for i := range 8 {
			reads = append(reads, c.peerRead(16*i, 16).MSN(c.nextRequestMSN()+uint32(i)))
		}
		c.sendCoalesced(reads...)
		for i := range 8 {
			c.expect(iwarp.ReadResponse(peerSTag, peerTO, c.targetMem.Buf[16*i:][:16]))
		}
	}),
}, {
	ID: "enhanced/depth/one-place-for-a-read-as-rtr", Cite: cite("rfc6581/9.1/4"), Level: conformance.May,
	Title:   "A responder that agrees on a Read as RTR has an IRD of at least 1, even if no side requests reads",
	Sends:   "a Request with ORD 0 and a Read as RTR, to an application without reads; the Read",
	Expects: "a Reply with an IRD of at least 1, and a Read Response",
	Defects: []string{"IRDNotRaised"},
	Run: onRequest(setup{connParams: depthParam(0, 0)}, iwarp.Request().Depths(0, 0).PeerToPeer(iwarp.RTRRead), func(hs *handshake) {
		e := hs.expectEnhancedReply()
		require(iwarp.Val(e.ReadRTR), "the device does not accept a Read as RTR")
		hs.Check(iwarp.Val(e.IRD) >= 1, "an IRD of at least 1", "%d", iwarp.Val(e.IRD))
		c := hs.enterFullOperation()
		c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, peerTO), 0, iwarp.At(unknownSTag, 0x77)))
		c.wakeDevice()
		c.expect(iwarp.ReadResponse(peerSTag, peerTO, nil))
		hs.expectConnected()
	}),
}, {
	ID: "enhanced/depth/peer-without-places", Cite: cite("rfc6581/9.1/5", "rfc6581/9.1/2"),
	Title:   "A responder that needs reads rejects a peer with IRD 0, or accepts with ORD 0",
	Sends:   "a Request with IRD 0, to an application with an initiator depth of 4",
	Expects: "a Reply with R set and the required ORD, or one that accepts with ORD 0",
	Defects: []string{"ORDNotLowered"},
	Run: onRequest(setup{connParams: depthParam(4, 4)}, withDepths(0, 4)(enhancedRequest()), func(hs *handshake) {
		e := hs.expectEnhancedReply()
		if iwarp.Val(hs.deviceFrame.R) {
			hs.Check(iwarp.Val(e.ORD) >= 1, "the required ORD", "0 in %v", hs.deviceFrame)
			hs.expectConnError()
			return
		}
		hs.Check(iwarp.Val(e.ORD) == 0, "ORD 0", "%v", hs.deviceFrame)
		hs.establish()
	}),
}, {
	ID: "enhanced/depth/request-leaves-it-open", Cite: cite("rfc6581/9.1/9"),
	Title:   "A depth that the Request does not negotiate is not negotiated in the Reply",
	Sends:   "Requests with an ORD, an IRD, and both of 3fff, to an application with a depth of four, which posts eight reads; four Read Requests at once. A Request with an ORD of 3fff and a Write as RTR, to an application without reads; a Read Request",
	Expects: "3fff for its counterpart in the Reply; at most four outstanding reads, and four Read Responses. A Terminate for the last Read Request",
	Defects: []string{"DepthsAlwaysCount"}, Run: onHost(func(h *host) {
		const open = iwarp.NoNegotiation
		for _, ask := range []struct{ ird, ord uint16 }{{4, open}, {open, 4}, {open, open}} {
			hs := h.sendRequest(setup{connParams: depthParam(4, 4)}, withDepths(ask.ird, ask.ord)(enhancedRequest()))
			e := hs.expectEnhancedReply()
			hs.Check(ask.ord != open || iwarp.Val(e.IRD) == open, "an IRD of 3fff, since the ORD is not negotiated", "%#x", iwarp.Val(e.IRD))
			hs.Check(ask.ird != open || iwarp.Val(e.ORD) == open, "an ORD of 3fff, since the IRD is not negotiated", "%#x", iwarp.Val(e.ORD))
			c := hs.establish()
			c.expectTraffic()
			c.expectReadsLimited(8, 4)
			c.expectReadsServed(4)
		}
		hs := h.sendRequest(setup{connParams: depthParam(0, 4)}, iwarp.Request().Depths(4, open).PeerToPeer(iwarp.RTRWrite))
		hs.expectEnhancedReply()
		c := hs.establish()
		c.expectTraffic()
		c.expectRefusal(c.peerRead(0, 16), iwarp.DDPUntaggedNoBuffer)
	}),
}, {
	ID: "enhanced/depth/odd-values", Cite: cite("rfc6581/12/1", "rfc6581/9.1/3"), Level: conformance.Should,
	Title:   "Depths above the device's maximum are not granted, and those in the Reply are",
	Sends:   "Requests with IRD and ORD of 0, 1, 128, 129 and 16382; as many Read Requests as granted, none of which can be answered before all have arrived",
	Expects: "Replies with at most the depths of the device attributes, or with R set; Read Responses",
	Defects: []string{"DepthsUnbounded", "IRDOnlyClaimed", "ResponderServes16"}, Run: onHost(func(h *host) {
		attr := h.QueryDevice()
		for _, n := range []uint16{0, 1, 128, 129, 16382} {
			hs := h.sendRequest(setup{connParams: depthParam(4, 4)}, withDepths(n, n)(enhancedRequest()))
			e := hs.expectEnhancedReply()
			if iwarp.Val(hs.deviceFrame.R) {
				hs.expectConnError()
				continue
			}
			hs.Check(iwarp.Val(e.IRD) <= uint16(attr.MaxQPRdAtomic), fmt.Sprintf("an IRD of at most %d", attr.MaxQPRdAtomic), "%d", iwarp.Val(e.IRD))
			hs.Check(iwarp.Val(e.ORD) <= uint16(attr.MaxQPInitAtomic), fmt.Sprintf("an ORD of at most %d", attr.MaxQPInitAtomic), "%d", iwarp.Val(e.ORD))
			c := hs.establish()
			c.expectTraffic()
			if granted := min(n, iwarp.Val(e.IRD)); granted > 0 {
				c.expectReadsServed(int(granted))
			}
		}
	}),
}, {
	ID: "enhanced/depth/every-set-of-flags", Cite: cite("rfc6581/12/1", "rfc6581/9.2/2", "rfc6581/9.2/12"),
	Title:   "Every combination of flags in a Request gets a consistent Reply",
	Sends:   "Requests with the sixteen combinations of flags A, B, C and D",
	Expects: "Replies with A and an RTR where A is set, and without flags where it is not; working connections",
	Defects: []string{"ForgetsPeerToPeer"}, Run: onHost(func(h *host) {
		for f := range iwarp.EnhancedFlags(16) {
			hs := h.sendRequest(setup{receives: 1}, requestWithFlags(f))
			got := hs.expectEnhancedReply().Flags()
			if f&flagA != 0 {
				hs.Check(got&flagA != 0 && got&rtrFlags != 0, fmt.Sprintf("A and an RTR in response to %v", f), "%v", got)
			} else {
				hs.Check(got == 0, fmt.Sprintf("no flags in response to %v", f), "%v", got)
			}
			c := hs.establish()
			c.syncByRead()
			if c.sendMSN > 0 { // the RTR was a Send, and has taken the receive
				c.PostRecv(c.qp, 2, c.localMem.SGE(64, 64))
			}
			c.expectSendDelivered(uint64(c.nextSendMSN()), 16)
		}
	}),
}}

// negotiate connects with a Request with flags f, and returns the flags of the Reply.
func (h *host) negotiate(f iwarp.EnhancedFlags) iwarp.EnhancedFlags {
	hs := h.sendRequest(setup{receives: 1}, requestWithFlags(f))
	got := hs.expectEnhancedReply().Flags()
	hs.establish()
	return got
}

// singleRTRFlags are the flags of peer-to-peer Requests that offer one RTR each.
var singleRTRFlags = []iwarp.EnhancedFlags{flagA | flagB, flagA | flagC, flagA | flagD}

// onUnknownSTags makes the body of a case in which body sends an RTR with an unknown STag, on a
// connection for each STag. The device must connect.
func onUnknownSTags(body func(c *conn, stag uint32, to uint64)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, at := range []iwarp.Addr{{STag: 0, TO: 0}, {STag: 1, TO: 0}, {STag: 0xdeadbeef, TO: 1 << 63}, {STag: 0xffffffff, TO: ^uint64(0)}} {
			hs := h.sendRequest(setup{receives: 1}, enhancedRequest())
			hs.expectEnhancedReply()
			body(hs.enterFullOperation(), at.STag, at.TO)
			hs.expectConnected().syncByRead()
		}
	})
}

var enhancedRTRTakenCases = []conformance.Case{{
	ID: "enhanced/rtr/reply-names-a-type", Cite: cite("rfc6581/9.2/2"),
	Title:   "A Reply in the peer-to-peer model selects an RTR, whichever was offered",
	Sends:   "Requests with A and one of B, C and D",
	Expects: "Replies with at least one of them",
	Defects: []string{"ForgetsPeerToPeer"}, Run: onHost(func(h *host) {
		for _, f := range singleRTRFlags {
			got := h.negotiate(f)
			h.Check(got&rtrFlags != 0, fmt.Sprintf("an RTR in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/model-is-confirmed", Cite: cite("rfc6581/9.2/3"),
	Title:   "A Reply to a peer-to-peer Request has A set",
	Sends:   "Requests with A and one, or all, of B, C and D",
	Expects: "Replies with A",
	Defects: []string{"ForgetsPeerToPeer"}, Run: onHost(func(h *host) {
		for _, f := range append(singleRTRFlags, flagA|rtrFlags) {
			got := h.negotiate(f)
			h.Check(got&flagA != 0, fmt.Sprintf("A in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/every-supported-type-is-named", Cite: cite("rfc6581/9.2/4"), Level: conformance.Should,
	Title:   "A Reply selects every offered RTR that the responder accepts",
	Sends:   "Requests that offer one RTR each, to learn which the device accepts, then one that offers all",
	Expects: "all RTRs that the device accepts in the last Reply",
	Defects: []string{"OneRTR"}, Run: onHost(func(h *host) {
		takes := flagA
		for _, f := range singleRTRFlags {
			takes |= h.negotiate(f) & f
		}
		got := h.negotiate(flagA | rtrFlags)
		h.Check(got == takes, takes.String(), "%v", got)
	}),
}, {
	ID: "enhanced/rtr/offers-though-none-was-named", Cite: cite("rfc6581/9.2/5"),
	Title:   "A Reply selects an RTR that the responder accepts, even if it was not offered",
	Sends:   "a Request with A and no RTR, and Requests that offer one each",
	Expects: "Replies with A and an RTR",
	Defects: []string{"ForgetsPeerToPeer"}, Run: onHost(func(h *host) {
		// Some devices do not accept one of the three.
		for _, f := range append(singleRTRFlags, flagA) {
			got := h.negotiate(f)
			h.Check(got&flagA != 0 && got&rtrFlags != 0, fmt.Sprintf("A and an RTR in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/flags-are-zero-without-the-model", Cite: cite("rfc6581/9.2/8"),
	Title:   "Without the peer-to-peer model a Reply selects no RTR",
	Sends:   "Requests without A, with B, C, D, all of them, and none",
	Expects: "Replies without flags",
	Defects: []string{"RTRBitsLeft"}, Run: onHost(func(h *host) {
		for _, f := range []iwarp.EnhancedFlags{0, flagB, flagC, flagD, rtrFlags} {
			got := h.negotiate(f)
			h.Check(got == 0, fmt.Sprintf("no flags in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/flags-are-ignored-without-the-model", Cite: cite("rfc6581/9.2/9"),
	Title:   "Without the peer-to-peer model the responder waits for no RTR",
	Sends:   "a Request without A, with B, C and D, and a Send as the first message",
	Expects: "the Send is delivered, and the connection works",
	Defects: []string{"RTRAlwaysExpected"},
	Run: onRequest(setup{receives: 1}, requestWithFlags(rtrFlags), func(hs *handshake) {
		hs.expectEnhancedReply()
		c := hs.enterFullOperation()
		c.send(iwarp.Send(1, data(16)))
		c.wakeDevice()
		c.ExpectRecv(1, 16)
		hs.expectConnected().expectTraffic()
	}),
}, {
	ID: "enhanced/rtr/responder-is-mute-until-it-comes", Cite: cite("rfc6581/9.2/10", "rfc5044/7.1.2/9"),
	Title:   "In the peer-to-peer model a responder sends nothing before the RTR has arrived",
	Sends:   "Requests for the peer-to-peer model, then nothing for some time, then the RTR: a Write, a Send, a Read. The application posts a Send meanwhile",
	Expects: "nothing until the RTR has arrived, then the device's message",
	Defects: []string{"NoFence"}, Run: onSilentUntilRTR(onePiece),
}, {
	ID: "enhanced/rtr/part-of-it-does-not-count", Cite: cite("rfc6581/9.2/10"),
	Title:   "In the peer-to-peer model a responder sends nothing before the RTR is complete",
	Sends:   "Requests for the peer-to-peer model, an RTR in three pieces, the last of one octet: a Write, a Send, a Read",
	Expects: "nothing until the last octet has arrived, then the device's message",
	Defects: []string{"EarlyFence"}, Run: onSilentUntilRTR(threePieces),
}, {
	ID: "enhanced/rtr/write-with-any-key", Cite: cite("rfc6581/9.2/11"), Level: conformance.Should,
	Title:   "A Write as RTR is accepted with any STag and TO",
	Sends:   "zero-length Writes with unknown STags, each as an RTR",
	Expects: "working connections",
	Defects: []string{"ZeroLengthChecked"}, Run: onUnknownSTags(func(c *conn, stag uint32, to uint64) {
		c.send(iwarp.Write(stag, to, nil))
		c.wakeDevice()
	}),
}, {
	ID: "enhanced/rtr/read-with-any-key", Cite: cite("rfc6581/9.2/11", "rfc5040/5.2.1/8"),
	Title:   "A Read as RTR is answered with any STag and TO",
	Sends:   "zero-length Read Requests with unknown STags, each as an RTR",
	Expects: "zero-length Read Responses, and working connections",
	Defects: []string{"ZeroLengthChecked"}, Run: onUnknownSTags(func(c *conn, stag uint32, to uint64) {
		c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(stag^0x5555, to), 0, iwarp.At(stag, to)))
		c.wakeDevice()
		c.expect(iwarp.ReadResponse(stag^0x5555, to, nil))
	}),
}}
