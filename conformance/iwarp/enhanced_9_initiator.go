package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// recvEnhancedRequest returns the enhanced data of the device's Request, which the case requires.
func (hs *handshake) recvEnhancedRequest() iwarp.Enhanced {
	e := hs.recvFrame().Enhanced
	require(e != nil, "the device's Request is not enhanced")
	return *e
}

// rtrOpcodes are the opcodes of the kinds of RTR.
var rtrOpcodes = map[iwarp.RTR]iwarp.Opcode{
	iwarp.RTRSend: iwarp.OpSend, iwarp.RTRWrite: iwarp.OpWrite, iwarp.RTRRead: iwarp.OpReadRequest,
}

// excessiveDepth is an ORD that no device supports.
const excessiveDepth = 16382

// replyORD answers the device's Request with an ORD.
func (hs *handshake) replyORD(ord uint16) *conn {
	hs.recvEnhancedRequest()
	hs.sendReply(withDepths(defaultOrd, ord))
	return hs.enterFullOperation()
}

// recvPeerToPeerRequest returns the flags of the device's Request for the peer-to-peer model.
func (hs *handshake) recvPeerToPeerRequest() iwarp.EnhancedFlags {
	f := hs.recvEnhancedRequest().Flags()
	require(f&flagA != 0, "the device does not request the peer-to-peer model")
	return f
}

// replyNoCommonRTR sends a Reply with kinds of RTR that the Request does not offer.
func (hs *handshake) replyNoCommonRTR() *conn {
	offered := hs.recvPeerToPeerRequest()
	hs.sendReply(func(f startupFrame) startupFrame { return f.PeerToPeer((rtrFlags &^ offered).RTRs()) })
	return hs.enterFullOperation()
}

// replyOneRTR sends a Reply with one kind of RTR. If the device does not offer that, the Reply
// rejects the connection, and replyOneRTR returns false.
func (hs *handshake) replyOneRTR(kind iwarp.RTR) bool {
	offered := hs.recvPeerToPeerRequest().RTRs()&kind != 0
	hs.sendReply(func(f startupFrame) startupFrame {
		if !offered {
			return f.Reject(true)
		}
		return f.PeerToPeer(kind)
	})
	if !offered {
		hs.expectConnError()
	}
	return offered
}

// establishByRTR receives an RTR that matches want, answers it if it is a Read, and fails the case
// unless the application is connected. It returns the RTR.
func (hs *handshake) establishByRTR(want iwarp.Segment) iwarp.ReceivedFPDU {
	rtr := hs.enterFullOperation().expect(want)
	if rtr.Op() == iwarp.OpReadRequest {
		hs.send(iwarp.ReadResponseTo(rtr.Segment, nil))
	}
	hs.expectConnected()
	return rtr
}

// onAgreedRTR makes the body of a case from a function that uses a connection on which the
// device has sent an RTR of the kind. The case does not apply if the device does not offer it.
func onAgreedRTR(kind iwarp.RTR, body func(c *conn, rtr iwarp.ReceivedFPDU)) func(*conformance.Bench) error {
	return onActive(setup{}, func(hs *handshake) {
		require(hs.replyOneRTR(kind), fmt.Sprintf("the device does not offer RTR %d", kind))
		rtr := hs.establishByRTR(iwarp.Any())
		body(hs.conn, rtr)
	})
}

var enhancedInitiatorCases = []conformance.Case{{
	ID: "enhanced/depth/reply-limits-reads", Cite: cite("rfc6581/9.1/6"),
	Title:   "An initiator has no more outstanding reads than the IRD of the Reply",
	Sends:   "Replies with IRD 1 and 2; the device posts eight reads; Replies with IRD 0; the device posts a read, and an atomic",
	Expects: "at most one and two unanswered Read Requests; none, and no Atomic Request, with IRD 0",
	Defects: []string{"ReplyDepthsIgnored", "ReadLimitGrows", "IRDZeroIgnored"}, Run: onHost(func(h *host) {
		for _, ird := range []uint16{1, 2} {
			hs := h.startActive(setup{})
			hs.recvEnhancedRequest()
			hs.establishWithReply(withDepths(ird, 0)).expectReadsLimited(8, int(ird))
		}
		ops := []verbs.WROpcode{verbs.OpRDMARead}
		if h.Caps.Has(verbs.CapAtomics) {
			ops = append(ops, verbs.OpAtomicFetchAdd)
		}
		for _, op := range ops {
			hs := h.startActive(setup{})
			hs.recvEnhancedRequest()
			c := hs.establishWithReply(withDepths(0, 0))
			_, err := c.qp.PostSend([]verbs.SendWR{c.wr(op, 1, 0, 8)}) // may be refused, or fail
			c.Note("post: %s", errorOr(err, "taken"))
			for _, g := range c.drain(silencePeriod) {
				c.Check(g.Op() != iwarp.OpReadRequest && g.Op() != iwarp.OpAtomicRequest, "no request for a response", "%v", g)
			}
		}
	}),
}, {
	ID: "enhanced/depth/reply-ord-is-served", Cite: cite("rfc6581/9.1/6"),
	Title:   "An initiator answers as many outstanding reads as the ORD of the Reply",
	Sends:   "Replies with ORD 1 and with the IRD of the Request, also the largest of the device; then as many Read Requests, none of which can be answered before all have arrived; the same with ORD 4 and an IRD of 1",
	Expects: "connections, and Read Responses to all; to ORD 4, a Terminate for an insufficient IRD or the same",
	Defects: []string{"InitiatorServesOneRead", "IRDOfInitiatorNotRaised"}, Run: onHost(func(h *host) {
		for _, n := range []uint8{1, defaultOrd, h.QueryDevice().MaxQPRdAtomic} {
			hs := h.startActive(setup{connParams: depthParam(max(n, defaultOrd), defaultOrd)})
			ord := min(uint16(n), iwarp.Val(hs.recvEnhancedRequest().IRD))
			hs.establishWithReply(withDepths(defaultOrd, ord)).expectReadsServed(int(ord))
		}
		hs := h.startActive(setup{connParams: depthParam(1, 1)})
		c := hs.replyORD(4)
		if g, ok := c.nextFPDU(h.ResponseTimeout()); ok && g.Op() == iwarp.OpTerminate {
			c.checkTerminate(g, []iwarp.Cause{iwarp.MPAInsufficientIRD})
			hs.expectConnError()
			return
		} else if ok && g.Op() == iwarp.OpReadRequest { // the RTR
			c.send(iwarp.ReadResponseTo(g.Segment, nil))
		}
		hs.expectConnected().expectReadsServed(4)
	}),
}, {
	ID: "enhanced/depth/too-few-places-is-terminated", Cite: cite("rfc6581/9.1/7", "rfc6581/8/1"),
	Title:   "An initiator whose IRD is below the ORD of the Reply sends a Terminate",
	Sends:   "Replies with ORD 16382, and with one more than the device supports",
	Expects: "a Terminate for an insufficient IRD, the end of the stream, and a connect that fails",
	Defects: []string{"ReplyDepthsIgnored", "ErrorResets"}, Run: onHost(func(h *host) {
		for _, ord := range []uint16{excessiveDepth, uint16(h.QueryDevice().MaxQPRdAtomic) + 1} {
			hs := h.startActive(setup{})
			c := hs.replyORD(ord)
			c.allowBadFrames = true // the next case checks the CRC of the Terminate
			c.expectTerminateAndEnd(iwarp.MPAInsufficientIRD)
			hs.expectConnError()
		}
	}),
}, {
	ID: "enhanced/depth/errors-are-of-layer-2", Cite: cite("rfc6581/8/1", "rfc5044/7.1.1/7", "rfc6580/3.3/1"),
	Title:   "Errors of enhanced start-up are of layer 2, type 0, with their codes",
	Sends:   "a Reply with ORD 16382, and one without a common RTR",
	Expects: "Terminates that begin with the octets 20 06 and 20 07, quote nothing, and have the CRC that the Reply requests",
	Defects: []string{"MPAErrorType"}, Run: onHost(func(h *host) {
		hs := h.startActive(setup{})
		hs.replyORD(excessiveDepth).expect(iwarp.Terminate(iwarp.MPAInsufficientIRD).QuotingNothing())
		hs.expectConnError()
		hs = h.startActive(setup{})
		hs.replyNoCommonRTR().expect(iwarp.Terminate(iwarp.MPANoMatchingRTR).QuotingNothing())
		hs.expectConnError()
	}),
}, {
	ID: "enhanced/depth/reply-reaches-the-program", Cite: cite("rfc6581/9.1/8"),
	Title:   "The application gets IRD and ORD of the Reply",
	Sends:   "a Reply with IRD 3 and ORD 5",
	Expects: "the application gets 3 and 5",
	Defects: []string{"OwnDepthsReported"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.recvEnhancedRequest()
		hs.checkRequestDepths(hs.establishWithReply(withDepths(3, 5)).deviceConn.Param(), 3, 5)
	}),
}, {
	ID: "enhanced/depth/reply-leaves-it-open", Cite: cite("rfc6581/9.1/10"),
	Title:   "An initiator keeps its depths if the Reply does not negotiate them",
	Sends:   "a Reply with IRD and ORD of 3fff; the device has a depth of four and posts eight reads; four Read Requests at once",
	Expects: "a connection with at most four outstanding reads, and four Read Responses",
	Defects: []string{"DepthsAlwaysCount"}, Run: onHost(func(h *host) {
		hs := h.startActive(setup{connParams: depthParam(4, 4)})
		hs.recvEnhancedRequest()
		c := hs.establishWithReply(withDepths(iwarp.NoNegotiation, iwarp.NoNegotiation))
		c.expectReadsLimited(8, 4)
		c.expectReadsServed(4)
	}),
}, {
	ID: "enhanced/start/local-failure-is-said", Cite: cite("rfc6581/9.3/1", "rfc6581/8/1"),
	Title:   "An initiator with a local failure during start-up sends a Terminate before it closes",
	Sends:   "a Reply, after the application has moved the queue pair to the error state",
	Expects: "a Terminate for a local failure, the end of the stream, and a connect that fails",
	Defects: []string{"NoStartupTerminate"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.recvEnhancedRequest()
		hs.Must("a queue pair in ERR", hs.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		hs.sendReply(nil)
		hs.enterFullOperation().expectTerminateAndEnd(iwarp.MPAStartupCatastrophic)
		hs.expectConnError()
	}),
}, {
	ID: "enhanced/rtr/comes-first", Cite: cite("rfc6581/5/1"),
	Title:   "An initiator in the peer-to-peer model sends the RTR before anything else",
	Sends:   "Replies that select a Write, a Send and a Read; the application sends as soon as it is connected",
	Expects: "a zero-length message of that kind, then the application's Send",
	Defects: []string{"RTRLate"}, Run: onHost(func(h *host) {
		for _, kind := range []iwarp.RTR{iwarp.RTRWrite, iwarp.RTRSend, iwarp.RTRRead} {
			hs := h.startActive(setup{})
			if !hs.replyOneRTR(kind) {
				continue
			}
			c := hs.enterFullOperation()
			if kind == iwarp.RTRRead { // the device may be connected only after the response
				c.recvRTR()
				hs.expectConnected()
				c.expectSent(c.sendWR(1, 0, 16), iwarp.Send(1, c.localMem.Buf[:16]))
				continue
			}
			hs.expectConnected()
			c.PostSend(c.qp, c.sendWR(1, 0, 16))
			c.expect(iwarp.Op(rtrOpcodes[kind]).WithPayload(nil))
			c.expect(iwarp.Op(iwarp.OpSend).WithPayload(c.localMem.Buf[:16]))
		}
	}),
}, {
	ID: "enhanced/rtr/request-names-a-type", Cite: cite("rfc6581/9.2/1"),
	Title:   "A Request for the peer-to-peer model offers an RTR",
	Sends:   "a Reply",
	Expects: "a Request with A and at least one of B, C and D",
	Defects: []string{"NoRTROffered"}, Run: onActive(setup{}, func(hs *handshake) {
		f := hs.recvEnhancedRequest().Flags()
		if f&flagA == 0 {
			hs.Check(f&rtrFlags == 0, "no RTR where A is not set", "%v", f)
			rig.NotApplicable("the device does not request the peer-to-peer model")
		}
		hs.Check(f&rtrFlags != 0, "A and at least one of B, C and D", "%v", f)
		hs.establishWithReply(nil)
	}),
}, {
	ID: "enhanced/rtr/agreed-type-is-sent", Cite: cite("rfc6581/9.2/6", "rfc6581/9.2/1"),
	Title:   "An initiator sends the negotiated RTR",
	Sends:   "Replies that select each kind of RTR that the Request offers, alone; then all but one of them; then a Read, for an application without reads",
	Expects: "that RTR, or one of those, with zero length",
	Defects: []string{"RTRUnasked", "RTRNeedsORD"}, Run: onHost(func(h *host) {
		for _, rtr := range []struct {
			kind iwarp.RTR
			want iwarp.Segment
		}{
			{iwarp.RTRWrite, iwarp.Op(iwarp.OpWrite).WithPayload(nil)},
			{iwarp.RTRRead, iwarp.Op(iwarp.OpReadRequest).MSN(1).EditRead(func(h *iwarp.ReadRequestHeader) { h.Size = new(uint32(0)) })},
			{iwarp.RTRSend, iwarp.Send(1, nil)},
		} {
			hs := h.startActive(setup{})
			if !hs.replyOneRTR(rtr.kind) {
				continue
			}
			hs.establishByRTR(rtr.want)
			hs.syncByRead()
		}
		for _, without := range []iwarp.RTR{iwarp.RTRWrite, iwarp.RTRRead, iwarp.RTRSend} {
			hs := h.startActive(setup{})
			kinds := hs.recvPeerToPeerRequest().RTRs() &^ without
			if kinds == 0 {
				hs.sendReply(func(f startupFrame) startupFrame { return f.Reject(true) })
				hs.expectConnError()
				continue
			}
			hs.sendReply(func(f startupFrame) startupFrame { return f.PeerToPeer(kinds) })
			got := hs.establishByRTR(iwarp.Any())
			hs.Check(got.Op() != rtrOpcodes[without] && len(got.Payload) == 0, fmt.Sprintf("an RTR other than %v", rtrOpcodes[without]), "%v", got)
		}
		hs := h.startActive(setup{connParams: depthParam(0, 0)})
		if hs.recvPeerToPeerRequest().RTRs()&iwarp.RTRRead == 0 {
			hs.sendReply(func(f startupFrame) startupFrame { return f.Reject(true) })
			hs.expectConnError()
			return
		}
		hs.sendReply(func(f startupFrame) startupFrame { return f.Depths(1, 0).PeerToPeer(iwarp.RTRRead) })
		hs.establishByRTR(iwarp.Op(iwarp.OpReadRequest))
	}),
}, {
	ID: "enhanced/rtr/read-needs-a-place", Cite: cite("rfc6581/9.1/6", "rfc6581/9.2/6"),
	Title:   "An initiator sends no Read as RTR if the Reply has an IRD of 0",
	Sends:   "Replies with an IRD of 0 that select a Read or a Send, a Read or a Write, and a Read alone",
	Expects: "a Send, a Write, and the end of the stream, with any Terminate",
	Defects: []string{"RTRUnasked"}, Run: onHost(func(h *host) {
		for _, other := range []iwarp.RTR{iwarp.RTRSend, iwarp.RTRWrite, 0} {
			hs := h.startActive(setup{})
			kinds := hs.recvPeerToPeerRequest().RTRs() & (iwarp.RTRRead | other)
			hs.sendReply(func(f startupFrame) startupFrame { return f.Depths(0, 0).PeerToPeer(kinds) })
			if other != 0 && kinds&other != 0 {
				hs.establishByRTR(iwarp.Op(rtrOpcodes[other]).WithPayload(nil))
				continue
			}
			hs.enterFullOperation().expectAbort()
			hs.expectConnError()
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
		g := c.expectSent(c.readWR(1, 0, 8), iwarp.Op(iwarp.OpReadRequest).MSN(2))
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
		c.expectSent(c.sendWR(1, 0, 16), iwarp.Send(2, c.localMem.Buf[:16]))
	}),
}}
