package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// onResponderSilent makes the body of a case that fails if a responder sends before it has
// received the first FPDU, which the peer sends in pieces. The application posts a Send before
// each piece; the device may accept or refuse it.
func onResponderSilent(f startupFrame, first iwarp.Frame, cut func(octets []byte) [][]byte) func(*conformance.Bench) error {
	return onPassive(setup{receives: 1}, func(hs *handshake) {
		hs.sendFrame(f)
		hs.expectFrame(iwarp.Reply().Reject(false))
		if e := enhancedOf(hs.gotFrame); iwarp.Val(e.PeerToPeer) && !iwarp.Val(e.WriteRTR) {
			rig.NotApplicable("the device does not accept a Write as RTR")
		}
		c := hs.enterFullOperation()
		taken := 0
		for _, piece := range cut(c.encode(first)) {
			if n, err := c.qp.PostSend([]verbs.SendWR{c.sendWR(9, 1024, 16)}); err == nil {
				taken += n
			} else {
				c.Note("post_send: %v", err)
			}
			c.expectSilence(silencePeriod)
			c.write(piece)
		}
		hs.expectConnected()
		if taken == 0 {
			c.PostSend(c.qp, c.sendWR(9, 1024, 16))
		}
		for i := range max(taken, 1) {
			c.expect(iwarp.Send(uint32(i+1), c.localMem.Buf[1024:1040]))
		}
	})
}

// onePiece returns a frame in one piece.
func onePiece(b []byte) [][]byte { return [][]byte{b} }

// threePieces splits a frame into three pieces, the last of one octet.
func threePieces(b []byte) [][]byte {
	return [][]byte{b[:len(b)/2], b[len(b)/2 : len(b)-1], b[len(b)-1:]}
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
	Defects: []string{"ResponderSpeaksFirst"}, Run: onPassive(setup{}, func(hs *handshake) {
		hs.expectSilence(silencePeriod)
		f := enhancedRequest().Private(data(8))
		b := f.Append(nil)
		hs.write(b[:len(b)-1])
		hs.expectSilence(silencePeriod)
		hs.write(b[len(b)-1:])
		hs.sentFrame = f
		hs.expectFrame(iwarp.Reply().Reject(false))
		hs.establish()
	}),
}, {
	ID: "mpa/order/first-fpdu-behind-the-reply-is-taken", Cite: cite("rfc5044/7.1.2/6"), Level: conformance.Should,
	Title:   "A responder processes an FPDU that arrives right after its Reply",
	Sends:   "a Request of revision 1, and a Send right after the Reply, on sixteen streams",
	Expects: "the Sends are delivered",
	Defects: []string{"FirstFPDUStuck"}, Run: onHost(func(h *host) {
		// A device that starts to receive FPDUs after its Reply misses only those that arrive
		// shortly after the Reply.
		for range 16 {
			hs := h.startPassive(setup{receives: 1})
			hs.sendFrame(revision1Request())
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
	Sends:   "a Request of revision 1, then nothing for some time, then a Send. The application posts a Send right after it accepts",
	Expects: "nothing until the Send has arrived, then the device's message",
	Defects: []string{"NoFence"}, Run: onResponderSilent(revision1Request(), iwarp.Send(1, data(16)), onePiece),
}, {
	ID: "mpa/order/half-an-fpdu-does-not-unmute", Cite: cite("rfc5044/7.1.2/9", "rfc6581/9.2/10"),
	Title:   "A responder sends no FPDU before it has received a complete one",
	Sends:   "a Request of revision 1, a Send in three pieces, the last of one octet. The application posts a Send before each",
	Expects: "nothing until the last octet has arrived, then the device's messages",
	Defects: []string{"EarlyFence"}, Run: onResponderSilent(revision1Request(), iwarp.Send(1, data(16)), threePieces),
}}
