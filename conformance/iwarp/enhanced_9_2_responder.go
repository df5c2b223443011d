package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// negotiate connects to a listening device with a Request with flags f, and returns the flags
// of the Reply.
func (h *host) negotiate(f enhancedFlags) enhancedFlags {
	hs := h.sendRequest(setup{receives: 1}, requestWithFlags(f))
	got := flagsOf(hs.expectEnhancedReply())
	hs.establish()
	return got
}

// singleRTRFlags are the flags of peer-to-peer Requests that offer one RTR each.
var singleRTRFlags = []enhancedFlags{{a: true, b: true}, {a: true, c: true}, {a: true, d: true}}

// writeRTRRequest returns a peer-to-peer Request that offers a Write as RTR.
func writeRTRRequest() startupFrame {
	return iwarp.Request().Depths(defaultOrd, defaultOrd).PeerToPeer(iwarp.RTRWrite)
}

// onUnknownKeys makes the body of a case that sends RTRs with unknown STags and offsets.
func onUnknownKeys(body func(c *conn, stag uint32, to uint64)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, at := range []iwarp.Addr{{STag: 0, TO: 0}, {STag: 1, TO: 0}, {STag: 0xdeadbeef, TO: 1 << 63}, {STag: 0xffffffff, TO: ^uint64(0)}} {
			hs := h.sendRequest(setup{receives: 1}, enhancedRequest())
			hs.expectEnhancedReply()
			body(hs.enterFullOperation(), at.STag, at.TO)
			hs.expectConnected().sync()
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
			h.Check(got.offersRTR(), fmt.Sprintf("an RTR in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/model-is-confirmed", Cite: cite("rfc6581/9.2/3"),
	Title:   "A Reply to a peer-to-peer Request has A set",
	Sends:   "Requests with A and one, or all, of B, C and D",
	Expects: "Replies with A",
	Defects: []string{"ForgetsPeerToPeer"}, Run: onHost(func(h *host) {
		for _, f := range append(singleRTRFlags, enhancedFlags{true, true, true, true}) {
			got := h.negotiate(f)
			h.Check(got.a, fmt.Sprintf("A in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/every-supported-type-is-named", Cite: cite("rfc6581/9.2/4"), Level: conformance.Should,
	Title:   "A Reply selects every offered RTR that the responder accepts",
	Sends:   "Requests that offer one RTR each, to learn which the device accepts, then one that offers all",
	Expects: "all RTRs that the device accepts in the last Reply",
	Defects: []string{"OneRTR"}, Run: onHost(func(h *host) {
		takes := enhancedFlags{
			a: true,
			b: h.negotiate(singleRTRFlags[0]).b,
			c: h.negotiate(singleRTRFlags[1]).c,
			d: h.negotiate(singleRTRFlags[2]).d,
		}
		got := h.negotiate(enhancedFlags{true, true, true, true})
		h.Check(got == takes, takes.String(), "%v", got)
	}),
}, {
	ID: "enhanced/rtr/offers-though-none-was-named", Cite: cite("rfc6581/9.2/5"),
	Title:   "A Reply selects an RTR that the responder accepts, even if it was not offered",
	Sends:   "a Request with A and no RTR, and Requests that offer one each",
	Expects: "Replies with A and an RTR",
	Defects: []string{"ForgetsPeerToPeer"}, Run: onHost(func(h *host) {
		// Some devices do not accept one of the three.
		for _, f := range append(singleRTRFlags, enhancedFlags{a: true}) {
			got := h.negotiate(f)
			h.Check(got.a && got.offersRTR(), fmt.Sprintf("A and an RTR in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/flags-are-zero-without-the-model", Cite: cite("rfc6581/9.2/8"),
	Title:   "Without the peer-to-peer model a Reply selects no RTR",
	Sends:   "Requests without A, with B, C, D, all of them, and none",
	Expects: "Replies without flags",
	Defects: []string{"RTRBitsLeft"}, Run: onHost(func(h *host) {
		for _, f := range []enhancedFlags{{}, {b: true}, {c: true}, {d: true}, {b: true, c: true, d: true}} {
			got := h.negotiate(f)
			h.Check(got == enhancedFlags{}, fmt.Sprintf("no flags in response to %v", f), "%v", got)
		}
	}),
}, {
	ID: "enhanced/rtr/flags-are-ignored-without-the-model", Cite: cite("rfc6581/9.2/9"),
	Title:   "Without the peer-to-peer model the responder waits for no RTR",
	Sends:   "a Request without A, with B, C and D, and a Send as the first message",
	Expects: "the Send is delivered, and the connection works",
	Defects: []string{"RTRAlwaysExpected"},
	Run: onRequest(setup{receives: 1}, requestWithFlags(enhancedFlags{b: true, c: true, d: true}), func(hs *handshake) {
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
	Sends:   "a Request for the peer-to-peer model, then nothing for some time, then the RTR. The application posts a Send meanwhile",
	Expects: "nothing until the RTR has arrived, then the device's message",
	Defects: []string{"NoFence"}, Run: onResponderSilent(writeRTRRequest(), iwarp.Write(peerSTag, 0, nil), onePiece),
}, {
	ID: "enhanced/rtr/part-of-it-does-not-count", Cite: cite("rfc6581/9.2/10"),
	Title:   "In the peer-to-peer model a responder sends nothing before the RTR is complete",
	Sends:   "a Request for the peer-to-peer model, an RTR in three pieces, the last of one octet",
	Expects: "nothing until the last octet has arrived, then the device's message",
	Defects: []string{"EarlyFence"},
	Run:     onResponderSilent(writeRTRRequest(), iwarp.Write(peerSTag, 0, nil), threePieces),
}, {
	ID: "enhanced/rtr/write-with-any-key", Cite: cite("rfc6581/9.2/11"), Level: conformance.Should,
	Title:   "A Write as RTR is accepted with any STag and TO",
	Sends:   "zero-length Writes with unknown STags, each as an RTR",
	Expects: "working connections",
	Defects: []string{"ZeroLengthChecked"}, Run: onUnknownKeys(func(c *conn, stag uint32, to uint64) {
		c.send(iwarp.Write(stag, to, nil))
		c.wakeDevice()
	}),
}, {
	ID: "enhanced/rtr/read-with-any-key", Cite: cite("rfc6581/9.2/11", "rfc5040/5.2.1/8"),
	Title:   "A Read as RTR is answered with any STag and TO",
	Sends:   "zero-length Read Requests with unknown STags, each as an RTR",
	Expects: "zero-length Read Responses, and working connections",
	Defects: []string{"ZeroLengthChecked"}, Run: onUnknownKeys(func(c *conn, stag uint32, to uint64) {
		c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(stag^0x5555, to), 0, iwarp.At(stag, to)))
		c.wakeDevice()
		c.expect(iwarp.ReadResponse(stag^0x5555, to, nil))
	}),
}}
