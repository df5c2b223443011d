package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// anyRTR is every kind of RTR.
const anyRTR = iwarp.RTRSend | iwarp.RTRWrite | iwarp.RTRRead

// withDepths sets IRD and ORD of the peer's start-up frame.
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

// enhancedFlags are flags A to D of enhanced data.
type enhancedFlags struct{ a, b, c, d bool }

func flagsOf(e iwarp.Enhanced) enhancedFlags {
	return enhancedFlags{iwarp.Val(e.PeerToPeer), iwarp.Val(e.SendRTR), iwarp.Val(e.WriteRTR), iwarp.Val(e.ReadRTR)}
}

// String names the flags that are set.
func (f enhancedFlags) String() string {
	s := ""
	for i, set := range []bool{f.a, f.b, f.c, f.d} {
		if set {
			s += string("ABCD"[i])
		}
	}
	if s == "" {
		return "no flags"
	}
	return s
}

// offersRTR reports whether a flag for an RTR is set.
func (f enhancedFlags) offersRTR() bool { return f.b || f.c || f.d }

// requestWithFlags returns an enhanced Request with the flags.
func requestWithFlags(f enhancedFlags) startupFrame {
	return iwarp.Request().Depths(defaultOrd, defaultOrd).EditEnhanced(func(e *iwarp.Enhanced) {
		e.PeerToPeer, e.SendRTR, e.WriteRTR, e.ReadRTR = &f.a, &f.b, &f.c, &f.d
	})
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
	Defects: []string{"ORDNotLowered"}, Run: onHost(func(h *host) {
		for _, ird := range []uint16{1, 2, 4} {
			c := h.connect(setup{connParams: depthParam(8, 8), frame: withDepths(ird, 8)})
			ord := iwarp.Val(enhancedOf(c.deviceFrame).ORD)
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
		ird := iwarp.Val(enhancedOf(c.deviceFrame).IRD)
		c.Check(ird >= 8, "an IRD of at least 8", "%d", ird)
		var reads []iwarp.Frame
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
		if !iwarp.Val(e.ReadRTR) {
			rig.NotApplicable("the device does not accept a Read as RTR")
		}
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
		if iwarp.Val(hs.gotFrame.R) {
			hs.Check(iwarp.Val(e.ORD) >= 1, "the required ORD", "0 in %v", hs.gotFrame)
			hs.expectConnError()
			return
		}
		hs.Check(iwarp.Val(e.ORD) == 0, "ORD 0", "%v", hs.gotFrame)
		hs.establish()
	}),
}, {
	ID: "enhanced/depth/request-leaves-it-open", Cite: cite("rfc6581/9.1/9"),
	Title:   "A depth that the Request does not negotiate is not negotiated in the Reply",
	Sends:   "Requests with an ORD, an IRD, and both of 3fff",
	Expects: "3fff for its counterpart in the Reply, and working connections",
	Defects: []string{"DepthsAlwaysCount"}, Run: onHost(func(h *host) {
		const open = iwarp.NoNegotiation
		for _, ask := range []struct{ ird, ord uint16 }{{4, open}, {open, 4}, {open, open}} {
			hs := h.sendRequest(setup{connParams: depthParam(4, 4)}, withDepths(ask.ird, ask.ord)(enhancedRequest()))
			e := hs.expectEnhancedReply()
			hs.Check(ask.ord != open || iwarp.Val(e.IRD) == open, "an IRD of 3fff, since the ORD is not negotiated", "%#x", iwarp.Val(e.IRD))
			hs.Check(ask.ird != open || iwarp.Val(e.ORD) == open, "an ORD of 3fff, since the IRD is not negotiated", "%#x", iwarp.Val(e.ORD))
			c := hs.establish()
			c.expectTraffic()
			c.sync()
		}
	}),
}, {
	ID: "enhanced/depth/odd-values", Cite: cite("rfc6581/12/1"), Level: conformance.Should,
	Title:   "Depths above the device's maximum are not granted",
	Sends:   "Requests with IRD and ORD of 0, 1, 128, 129 and 16382",
	Expects: "Replies with at most the depths of the device attributes, or with R set",
	Defects: []string{"DepthsUnbounded"}, Run: onHost(func(h *host) {
		attr, err := h.Device.QueryDevice()
		h.Must("the device's attributes", err)
		for _, n := range []uint16{0, 1, 128, 129, 16382} {
			hs := h.sendRequest(setup{connParams: depthParam(4, 4)}, withDepths(n, n)(enhancedRequest()))
			e := hs.expectEnhancedReply()
			if iwarp.Val(hs.gotFrame.R) {
				hs.expectConnError()
				continue
			}
			hs.Check(iwarp.Val(e.IRD) <= uint16(attr.MaxQPRdAtomic), fmt.Sprintf("an IRD of at most %d", attr.MaxQPRdAtomic), "%d", iwarp.Val(e.IRD))
			hs.Check(iwarp.Val(e.ORD) <= uint16(attr.MaxQPInitAtomic), fmt.Sprintf("an ORD of at most %d", attr.MaxQPInitAtomic), "%d", iwarp.Val(e.ORD))
			hs.establish().expectTraffic()
		}
	}),
}, {
	ID: "enhanced/depth/every-set-of-flags", Cite: cite("rfc6581/12/1", "rfc6581/9.2/2"),
	Title:   "Every combination of flags in a Request gets a consistent Reply",
	Sends:   "Requests with the sixteen combinations of flags A, B, C and D",
	Expects: "Replies with A and an RTR where A is set, and without flags where it is not; working connections",
	Defects: []string{"ForgetsPeerToPeer"}, Run: onHost(func(h *host) {
		for bits := range 16 {
			f := enhancedFlags{bits&8 != 0, bits&4 != 0, bits&2 != 0, bits&1 != 0}
			hs := h.sendRequest(setup{receives: 1}, requestWithFlags(f))
			got := flagsOf(hs.expectEnhancedReply())
			if f.a {
				hs.Check(got.a && got.offersRTR(), fmt.Sprintf("A and an RTR in response to %v", f), "%v", got)
			} else {
				hs.Check(got == enhancedFlags{}, fmt.Sprintf("no flags in response to %v", f), "%v", got)
			}
			hs.establish().sync()
		}
	}),
}}
