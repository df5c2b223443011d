package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// invalidKeys are keys that are none: with a bit, a letter or a word of the right ones.
var invalidKeys = []string{"MPA ID Xeq Frame", "MPA ID Req FramE", "mpa id req frame", "MPA ID Req\x00Frame", "MPA ID "}

// expectRequestDropped ends the case unless the device ends a stream that begins with these
// octets, answers nothing and does not bother its program.
func (h *host) expectRequestDropped(l verbs.Listener, octets []byte) {
	h.dialAndSend(l, octets).expectEnd()
	h.expectNoConnRequest(l)
}

// onInvalidRequests makes a case of Requests, each of which has to be turned away. At the
// endErr an ordinary one is accepted.
func onInvalidRequests(requests ...startupFrame) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		l := h.listen()
		for _, f := range requests {
			h.expectRequestDropped(l, f.Append(nil))
		}
		h.connect(setup{}).sync()
	})
}

// onInvalidReplies makes a case of Replies, none of which may make a connection.
func onInvalidReplies(edits ...func(startupFrame) startupFrame) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, edit := range edits {
			hs := h.startActive(setup{})
			hs.recvFrame()
			hs.sendReply(edit)
			// What is wrong with the Reply may be said, in a Terminate. What is no Reply has
			// not asked for CRCs.
			c := hs.enterFullOperation()
			c.deframer.CRC = iwarp.Val(hs.gotFrame.C)
			c.expectTerminateOrEnd(iwarp.MPAStartupFrame)
			hs.expectConnError()
		}
	})
}

// expectTraffic ends the case unless a connection carries messages both ways.
func (c *conn) expectTraffic() {
	c.PostRecv(c.qp, 70, c.localMem.SGE(0, 16))
	c.send(iwarp.Send(c.nextSendMSN(), data(16)))
	c.ExpectRecv(70, 16)
	c.PostSend(c.qp, c.sendWR(71, 0, 16))
	c.expect(iwarp.Op(iwarp.OpSend).WithPayload(data(16)))
	c.ExpectCompletion(71, verbs.WCSuccess)
}

var mpaFrameCases = []conformance.Case{
	{
		ID:    "mpa/start/frames-are-bare",
		Title: "Start-up frames are as long as they say, without CRC and markers, and FPDUs follow at once",
		Cite:  cite(rfc5044, "7.1", "rfc5044/7.1/1"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Reply and a Request, each of which asks for CRCs, then messages",
		Expects: "frames with nothing behind them but FPDUs",
		Defects: []string{"EnhancedUncounted"},
		Run: onHost(func(h *host) {
			for _, active := range []bool{false, true} {
				hs := h.startHandshake(setup{active: active})
				if active {
					hs.recvFrame()
					hs.Check(len(hs.startupOctets) == 0, "nothing behind a Request", "%s", describeOctets(hs.startupOctets))
					hs.sendReply(nil)
					hs.enterFullOperation().recvRTR()
				} else {
					hs.sendFrame(enhancedRequest())
					hs.recvFrame()
					hs.Check(len(hs.startupOctets) == 0, "nothing behind a Reply until the initiator has spoken", "%s", describeOctets(hs.startupOctets))
					hs.enterFullOperation().sendRTR()
				}
				hs.expectConnected().expectTraffic()
			}
		}),
	},
	{
		ID:    "mpa/start/key-of-the-request",
		Title: "A Request has its key, to the letter",
		Cite:  cite(rfc5044, "7.1.1", "rfc5044/7.1.1/1"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Reply",
		Expects: "a Request that begins with MPA ID Req Frame",
		Defects: []string{"KeysExchanged"},
		Run: onActive(setup{}, func(hs *handshake) {
			hs.expectFrame(startupFrame{Key: new(iwarp.KeyRequest)})
			hs.sendReply(nil)
			hs.enterFullOperation().recvRTR()
			hs.expectConnected()
		}),
	},
	{
		ID:    "mpa/start/key-of-the-reply",
		Title: "A Reply has its key, to the letter",
		Cite:  cite(rfc5044, "7.1.1", "rfc5044/7.1.1/3"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Request",
		Expects: "a Reply that begins with MPA ID Rep Frame",
		Defects: []string{"KeysExchanged"},
		Run: onPassive(setup{}, func(hs *handshake) {
			hs.sendFrame(enhancedRequest())
			hs.expectFrame(startupFrame{Key: new(iwarp.KeyReply)})
			hs.enterFullOperation().sendRTR()
			hs.expectConnected()
		}),
	},
	{
		ID:    "mpa/start/wrong-key-in-a-request-closes",
		Title: "A responder closes a stream that begins with another key",
		Cite:  cite(rfc5044, "7.1.1", "rfc5044/7.1.1/2", "rfc5044/7.1.2/3", "rfc5044/8/4"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Requests with wrong keys, and one with the key of a Reply",
		Expects: "the end of the stream, without an answer, and no request for the program",
		Defects: []string{"KeyPrefixOnly"},
		Run: onHost(func(h *host) {
			l := h.listen()
			for _, key := range append(invalidKeys, iwarp.KeyReply) {
				h.expectRequestDropped(l, enhancedRequest().WithKey(key).Append(nil))
			}
		}),
	},
	{
		ID:    "mpa/start/wrong-key-in-a-reply-closes",
		Title: "An initiator closes a stream on which another key is answered",
		Cite:  cite(rfc5044, "7.1.1", "rfc5044/7.1.1/4"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Replies with wrong keys",
		Expects: "the end of the stream, and a connect that fails",
		Defects: []string{"KeyPrefixOnly"},
		Run: onInvalidReplies(
			func(f startupFrame) startupFrame { return f.WithKey("MPA ID Xep Frame") },
			func(f startupFrame) startupFrame { return f.WithKey("MPA ID Rep FramE") },
			func(f startupFrame) startupFrame { return f.WithKey("MPA ID Rep") },
		),
	},
	{
		ID:    "mpa/start/two-initiators-are-found-out",
		Title: "An initiator that hears a Request closes the stream",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/11", "rfc5044/7.1.1/4"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Request in answer to a Request",
		Expects: "the end of the stream, and a connect that fails",
		Defects: []string{"KeyPrefixOnly"},
		Run:     onInvalidReplies(func(f startupFrame) startupFrame { return f.WithKey(iwarp.KeyRequest) }),
	},
	{
		ID:    "mpa/start/reject-flag-of-a-request-is-ignored",
		Title: "The R flag of a Request means nothing, and is not repeated",
		Cite:  cite(rfc5044, "7.1.1", "rfc5044/7.1.1/8"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Request with R set",
		Expects: "a Reply with R not set, and a connection that works",
		Defects: []string{"EchoesFlags"},
		Run: onSetup(setup{frame: func(f startupFrame) startupFrame { return f.Reject(true) }}, func(c *conn) {
			c.expectTraffic()
		}),
	},
	{
		ID:    "mpa/start/reserved-flags-are-zero",
		Title: "The reserved flags of start-up frames are zero",
		Cite:  cite(rfc5044, "7.1.1", "rfc5044/7.1.1/9"), Level: conformance.Must, Needs: needsConn,
		Sends:   "Requests with the reserved flags set, all of them and one by one; the device sends a Request of its own",
		Expects: "zeros in the device's Replies and in its Request",
		Defects: []string{"EchoesFlags"},
		Run: onHost(func(h *host) {
			for _, bits := range []uint8{0xf, 0x8, 0x4, 0x2, 0x1} {
				c := h.connect(setup{frame: func(f startupFrame) startupFrame { return f.ReservedBits(bits) }})
				c.expectNoReservedFlags()
			}
			h.connect(setup{active: true}).expectNoReservedFlags()
		}),
	},
	{
		ID:    "mpa/start/reserved-flags-are-ignored",
		Title: "Reserved flags in start-up frames change nothing",
		Cite:  cite(rfc5044, "7.1.1", "rfc5044/7.1.1/10"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Request, and a Reply, with all reserved flags set",
		Expects: "connections that work",
		Defects: []string{"MPAReservedRefused"},
		Run: onHost(func(h *host) {
			for _, active := range []bool{false, true} {
				h.connect(setup{active: active, frame: func(f startupFrame) startupFrame { return f.ReservedBits(0xf) }}).expectTraffic()
			}
		}),
	},
}

// expectNoReservedFlags ends the case if the device's start-up frame has a reserved flag set.
func (c *conn) expectNoReservedFlags() {
	bits := iwarp.Val(c.deviceFrame.Reserved)
	c.Check(bits == 0, "no reserved flag", "%#x in %v", bits, c.deviceFrame)
}
