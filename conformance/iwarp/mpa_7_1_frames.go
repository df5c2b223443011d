package iwarp

import (
	"bytes"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectRequestDropped sends octets on a new stream, and expects that the device ends it within the
// timeout, without a Reply and without a connection request for the application.
func (h *host) expectRequestDropped(l verbs.Listener, octets []byte, timeout time.Duration) {
	h.dialAndSend(l, octets).expectEndWithin(timeout)
	h.expectNoConnRequest(l)
}

// onInvalidRequests makes the body of a case that fails unless the device drops each Request, and
// then accepts a valid one.
func onInvalidRequests(requests ...startupFrame) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		l := h.listen()
		for _, f := range requests {
			h.expectRequestDropped(l, f.Append(nil), h.ResponseTimeout())
		}
		h.connect(setup{}).syncByRead()
	})
}

// onInvalidReplies makes the body of a case that fails unless the device refuses each Reply that
// one of edits has changed.
func onInvalidReplies(edits ...func(startupFrame) startupFrame) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, edit := range edits {
			h.expectReplyRefused(edit)
		}
	})
}

// expectReplyRefused sends a Reply that edit has changed, and fails the case unless the device ends
// the stream, and the connect of the application fails.
func (h *host) expectReplyRefused(edit func(startupFrame) startupFrame) {
	hs := h.startActive(setup{})
	hs.recvFrame()
	hs.sendReply(edit)
	// The device may send a Terminate. As the Reply is invalid, only the device's own C decides
	// on its CRC.
	c := hs.enterFullOperation()
	c.framer.CRC = iwarp.Val(hs.deviceFrame.C)
	if g, ok := c.nextFPDU(belowStartupTimer); ok {
		c.checkTerminate(g, []iwarp.Cause{iwarp.MPAStartupFrame})
	}
	c.expectEndWithin(belowStartupTimer)
	hs.expectConnError()
}

// wrongOctet returns a key with one bit of octet i wrong.
func wrongOctet(key string, i int) string {
	b := []byte(key)
	b[i] ^= 0x20 // the other case of a letter; NUL for a space
	return string(b)
}

// wrongReplyKeys returns edits of a Reply, each of which makes another octet of its key wrong.
func wrongReplyKeys() (edits []func(startupFrame) startupFrame) {
	for i := range iwarp.KeyReply {
		edits = append(edits, func(f startupFrame) startupFrame { return f.WithKey(wrongOctet(iwarp.KeyReply, i)) })
	}
	return edits
}

// expectTraffic fails the case unless a connection carries Sends in both directions.
func (c *conn) expectTraffic() {
	c.PostRecv(c.qp, 70, c.localMem.SGE(0, 16))
	c.expectSendDelivered(70, 16)
	c.expectSent(c.sendWR(71, 0, 16), iwarp.Op(iwarp.OpSend).WithPayload(data(16)))
	c.ExpectCompletion(71, verbs.WCSuccess)
}

// expectNoReservedFlags fails the case if the device's start-up frame has a reserved flag set.
func (c *conn) expectNoReservedFlags() {
	bits := iwarp.Val(c.deviceFrame.Reserved)
	c.Check(bits == 0, "no reserved flag", "%#x in %v", bits, c.deviceFrame)
}

// revision1Request returns a valid Request of revision 1.
func revision1Request() startupFrame { return iwarp.Request() }

// privateDataParam returns connection parameters with private data.
func privateDataParam(b []byte) *verbs.ConnParam {
	return &verbs.ConnParam{PrivateData: b, ResponderResources: defaultOrd, InitiatorDepth: defaultOrd}
}

// checkPrivateData fails the case unless a start-up frame of the device has the private data and
// its length. PD_Length includes the enhanced data.
func (c *conn) checkPrivateData(f startupFrame, want []byte) {
	n := len(want)
	if iwarp.Val(f.S) {
		n += 4 // enhanced data
	}
	got := int(iwarp.Val(f.PDLength))
	c.Check(got == n, fmt.Sprintf("a PD_Length of %d", n), "%d in %v", got, f)
	c.Check(bytes.Equal(f.PrivateData, want), fmt.Sprintf("the %d octets of private data", len(want)), "%d: % x", len(f.PrivateData), head(f.PrivateData))
}

// Roles of the device in onPrivateData.
const initiator, responder = true, false

// onPrivateData makes the body of a case in which the device, as the initiator if active, sends
// private data of each length, and the peer checks it.
func onPrivateData(active bool, lengths ...int) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, n := range lengths {
			hs := h.startHandshake(setup{active: active, connParams: privateDataParam(data(n))})
			hs.exchangeFrames()
			hs.checkPrivateData(hs.deviceFrame, data(n))
			hs.establish()
		}
	})
}

// expectReplyDataBounded sends a Reply with 8 octets of private data and zeros after it, which are no
// valid FPDU. The device must end the stream; an application that is connected before that must get
// the 8 octets only.
func (h *host) expectReplyDataBounded() {
	const privateLen, zeros = 8, 56
	hs := h.startActive(setup{})
	n := uint16(privateLen)
	if iwarp.Val(hs.recvFrame().S) {
		n += 4 // enhanced data
	}
	hs.sendReply(func(f startupFrame) startupFrame {
		return f.Private(append(data(privateLen), make([]byte, zeros)...)).PrivateLength(n)
	})
	hs.expectEndOfStartup()
	if hs.awaitResult() == nil {
		h.checkRequestPrivateData(hs.result.Param().PrivateData, data(privateLen))
	}
}

// checkRequestPrivateData fails the case unless the application got the private data.
func (h *host) checkRequestPrivateData(got, want []byte) {
	h.Check(bytes.Equal(got, want), fmt.Sprintf("%d octets of private data for the application", len(want)), "%d: % x", len(got), head(got))
}

var mpaFrameCases = []conformance.Case{{
	ID: "mpa/start/frames-are-bare", Cite: cite("rfc5044/7.1/1"),
	Title:   "Start-up frames have the length in their header, without CRC and markers, and FPDUs follow directly",
	Sends:   "a Reply and a Request with C set, then messages",
	Expects: "frames with nothing after them but FPDUs",
	Defects: []string{"EnhancedUncounted"}, Run: onHost(func(h *host) {
		for _, active := range []bool{false, true} {
			hs := h.startHandshake(setup{active: active})
			hs.exchangeFrames()
			rest := hs.startupOctets
			hs.Check(len(rest) == 0, "nothing after a start-up frame until the next FPDU", "%s", describeOctets(rest))
			hs.establish().expectTraffic()
		}
	}),
}, {
	ID: "mpa/start/key-of-the-request", Cite: cite("rfc5044/7.1.1/1"),
	Title:   "A Request has the exact key",
	Sends:   "a Reply",
	Expects: "a Request that begins with MPA ID Req Frame",
	Defects: []string{"KeysExchanged"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.expectFrame(startupFrame{Key: new(iwarp.KeyRequest)})
		hs.establishWithReply(nil)
	}),
}, {
	ID: "mpa/start/key-of-the-reply", Cite: cite("rfc5044/7.1.1/3"),
	Title:   "A Reply has the exact key",
	Sends:   "a Request",
	Expects: "a Reply that begins with MPA ID Rep Frame",
	Defects: []string{"KeysExchanged"}, Run: onRequest(setup{}, enhancedRequest(), func(hs *handshake) {
		hs.establishAfter(startupFrame{Key: new(iwarp.KeyReply)})
	}),
}, {
	ID: "mpa/start/wrong-key-in-a-request-closes", Cite: cite("rfc5044/7.1.1/2", "rfc5044/7.1.2/3", "rfc5044/8/4"),
	Title:   "A responder closes a stream that begins with an invalid key",
	Sends:   "Requests with wrong keys: with the key of a Reply, and with one bit wrong in each octet",
	Expects: "the end of the stream without a Reply, and no connection request",
	Defects: []string{"KeyPrefixOnly", "KeyOctetSkipped"}, Run: onHost(func(h *host) {
		l := h.listen()
		for i := range iwarp.KeyRequest {
			h.expectRequestDropped(l, enhancedRequest().WithKey(wrongOctet(iwarp.KeyRequest, i)).Append(nil), h.ResponseTimeout())
		}
		for _, key := range []string{"MPA ID Xeq Frame", "MPA ID Req FramE", "mpa id req frame", "MPA ID Req\x00Frame", "MPA ID ", iwarp.KeyReply} {
			h.expectRequestDropped(l, enhancedRequest().WithKey(key).Append(nil), h.ResponseTimeout())
		}
	}),
}, {
	ID: "mpa/start/wrong-key-in-a-reply-closes", Cite: cite("rfc5044/7.1.1/4", "rfc5044/8/4"),
	Title:   "An initiator closes the stream after a Reply with an invalid key",
	Sends:   "Replies with wrong keys: with one that is too short, and with one bit wrong in each octet",
	Expects: "the end of the stream, and a connect that fails",
	Defects: []string{"KeyPrefixOnly", "KeyOctetSkipped"}, Run: onInvalidReplies(append(wrongReplyKeys(),
		func(f startupFrame) startupFrame { return f.WithKey("MPA ID Rep") },
	)...),
}, {
	ID: "mpa/start/two-initiators-are-found-out", Cite: cite("rfc5044/7.1.2/11", "rfc5044/7.1.1/4"),
	Title:   "An initiator that receives a Request closes the stream",
	Sends:   "a Request in place of a Reply",
	Expects: "the end of the stream, and a connect that fails",
	Defects: []string{"KeyPrefixOnly"},
	Run:     onInvalidReplies(func(f startupFrame) startupFrame { return f.WithKey(iwarp.KeyRequest) }),
}, {
	ID: "mpa/start/reject-flag-of-a-request-is-ignored", Cite: cite("rfc5044/7.1.1/8"),
	Title:   "The R flag of a Request is ignored, and not copied to the Reply",
	Sends:   "Requests of both revisions with R set",
	Expects: "Replies with R clear, and working connections",
	Defects: []string{"EchoesFlags"}, Run: onHost(func(h *host) {
		for _, f := range []startupFrame{enhancedRequest(), revision1Request()} {
			h.connect(setup{frame: func(startupFrame) startupFrame { return f.Reject(true) }}).expectTraffic()
		}
	}),
}, {
	ID: "mpa/start/reserved-flags-are-zero", Cite: cite("rfc5044/7.1.1/9"),
	Title:   "The reserved flags of start-up frames are zero",
	Sends:   "Requests with the reserved flags set, together and one by one, and one that the application rejects; the device sends a Request too",
	Expects: "zeros in the device's Replies and in its Request",
	Defects: []string{"EchoesFlags", "RejectEchoesReserved"}, Run: onHost(func(h *host) {
		for _, bits := range []uint8{0xf, 0x8, 0x4, 0x2, 0x1} {
			h.connect(setup{frame: func(f startupFrame) startupFrame { return f.ReservedBits(bits) }}).expectNoReservedFlags()
		}
		rejected := h.sendRequest(rejectingSetup(nil), enhancedRequest().ReservedBits(0xf))
		rejected.expectFrame(iwarp.Reply().Reject(true))
		rejected.expectNoReservedFlags()
		h.Must("a request that can be rejected", rejected.awaitResult())
		h.connect(setup{active: true}).expectNoReservedFlags()
	}),
}, {
	ID: "mpa/start/reserved-flags-are-ignored", Cite: cite("rfc5044/7.1.1/10"),
	Title:   "Reserved flags in start-up frames are ignored",
	Sends:   "a Request, and a Reply, with all reserved flags set",
	Expects: "working connections",
	Defects: []string{"MPAReservedRefused"}, Run: onHost(func(h *host) {
		for _, active := range []bool{false, true} {
			h.connect(setup{active: active, frame: func(f startupFrame) startupFrame { return f.ReservedBits(0xf) }}).expectTraffic()
		}
	}),
}, {
	ID: "mpa/start/unknown-revision-of-a-request-closes", Cite: cite("rfc5044/7.1.1/11", "rfc5044/8/4"),
	Title:   "A responder closes a stream that begins with an unknown revision",
	Sends:   "Requests of revision 3, 4, 128 and 255",
	Expects: "the end of the stream without a Reply, and no connection request",
	Defects: []string{"AnyRevision"},
	Run:     onInvalidRequests(revision1Request().Revision(3), enhancedRequest().Revision(3), revision1Request().Revision(4), revision1Request().Revision(128), revision1Request().Revision(255)),
}, {
	ID: "mpa/start/revision-0-closes", Cite: cite("rfc5044/7.1.1/11"), Level: conformance.Should,
	Title:   "A stream with a start-up frame of revision 0 is closed",
	Sends:   "a Request and a Reply of revision 0",
	Expects: "the end of the stream without a Reply, and no connection request; a connect that fails",
	Defects: []string{"TakesRevision0", "ReplyRevision0"}, Run: onHost(func(h *host) {
		h.expectRequestDropped(h.listen(), revision1Request().Revision(0).Append(nil), h.ResponseTimeout())
		h.expectReplyRefused(func(f startupFrame) startupFrame { return f.Revision(0) })
	}),
}, {
	ID: "mpa/start/unknown-revision-of-a-reply-closes", Cite: cite("rfc5044/7.1.2/7", "rfc5044/7.1.1/11", "rfc5044/8/4"),
	Title:   "An initiator closes the stream after a Reply of an unknown revision",
	Sends:   "Replies of revision 3, 4, 128 and 255",
	Expects: "the end of the stream, and a connect that fails",
	Defects: []string{"AnyRevision"}, Run: onInvalidReplies(
		func(f startupFrame) startupFrame { return f.Revision(3) },
		func(f startupFrame) startupFrame { return f.Revision(4) },
		func(f startupFrame) startupFrame { return f.Revision(128) },
		func(f startupFrame) startupFrame { return f.Revision(255) },
	),
}, {
	ID: "mpa/start/versions-above-are-one-in-both-directions", Cite: cite("rfc5044/C.1/1"),
	Title:   "DDP and RDMAP have version 1 after both revisions of MPA",
	Sends:   "a Request of revision 1, one of revision 2, and messages of version 1",
	Expects: "messages of version 1",
	Defects: []string{"RDMAPVersion0"}, Run: onHost(func(h *host) {
		for _, f := range []startupFrame{revision1Request(), enhancedRequest()} {
			c := h.connect(setup{receives: 1, frame: func(startupFrame) startupFrame { return f }})
			c.expectSendDelivered(1, 16)
			c.PostSend(c.qp, c.sendWR(2, 0, 16), c.writeWR(3, 0, 16))
			c.expect(iwarp.Op(iwarp.OpSend).DV(1).RV(1))
			c.expect(iwarp.Op(iwarp.OpWrite).DV(1).RV(1))
			c.ExpectCompletions(verbs.WCSuccess, 2, 3)
		}
	}),
}, {
	ID: "mpa/start/malformed-request-ends-it", Cite: cite("rfc5044/8/4", "rfc5044/7.1.2/3", "rfc5044/8/1"),
	Title:   "An invalid Request ends the stream without waiting for a timer",
	Sends:   "zeros, another protocol, a Reply, an unknown revision, too much private data",
	Expects: "the end of each stream, without a Reply, before any timer",
	Defects: []string{"BadRequestHangs"}, Run: onHost(func(h *host) {
		l := h.listen()
		for _, m := range []struct {
			what   string
			octets []byte
		}{
			{"zeros", make([]byte, 64)},
			{"another protocol", []byte("GET / HTTP/1.1\r\nHost: device\r\n\r\n")},
			{"a Reply", iwarp.Reply().Append(nil)},
			{"revision 9", iwarp.Request().Revision(9).Append(nil)},
			{"513 octets of data", iwarp.Request().Private(data(513)).Append(nil)},
			{"65535 octets announced", iwarp.Request().PrivateLength(65535).Private(data(512)).Append(nil)},
		} {
			h.Note("%s", m.what)
			h.expectRequestDropped(l, m.octets, belowStartupTimer)
		}
	}),
}, {
	ID: "mpa/start/truncated-request-closes", Cite: cite("rfc5044/7.1.2/3"),
	Labels:  []string{conformance.Dangerous}, // use after free of the listener in Linux's siw
	Title:   "A truncated Request ends the stream",
	Sends:   "FIN inside the key, after it, before the private data and inside it",
	Expects: "the end of the stream without a Reply, and no connection request",
	Defects: []string{"BadRequestHangs"}, Run: onHost(func(h *host) {
		l := h.listen()
		b := revision1Request().Private(data(16)).Append(nil)
		for _, n := range []int{0, 7, 16, 19, 20, 28, len(b) - 1} {
			c := h.dialAndSend(l, b[:n])
			c.closeWrite()
			c.expectEndWithin(belowStartupTimer)
			h.expectNoConnRequest(l)
		}
	}),
}, {
	ID: "mpa/start/truncated-reply-fails", Cite: cite("rfc5044/7.1.2/7"),
	Title:   "A truncated Reply makes no connection",
	Sends:   "FIN inside the key of the Reply, before its private data and inside it",
	Expects: "the end of the stream, and a connect that fails",
	Defects: []string{"ShortFramesTaken"}, Run: onHost(func(h *host) {
		for _, n := range []int{9, 20, 24, 32} {
			hs := h.startActive(setup{})
			hs.recvFrame()
			hs.write(hs.replyWithPrivateData().Append(nil)[:n])
			hs.closeWrite()
			hs.expectEnd()
			hs.expectConnError()
		}
	}),
}, {
	ID: "mpa/private/length-is-that-of-the-data", Cite: cite("rfc5044/7.1.1/12", "rfc6581/6/3"),
	Title:   "PD_Length is the length of all private data, enhanced data included",
	Sends:   "Replies; the device connects with 1, 16 and 100 octets of private data",
	Expects: "Requests with the data and its length",
	Defects: []string{"EnhancedUncounted"}, Run: onPrivateData(initiator, 1, 16, 100),
}, {
	ID: "mpa/private/length-of-252-octets", Cite: cite("rfc5044/7.1.1/12"),
	Title:   "PD_Length is correct for lengths around 256, and for the longest private data",
	Sends:   "Replies; the device connects with 251, 252, 253, 255, 256 and 508 octets of private data",
	Expects: "Requests with the data and its length",
	Defects: []string{"LengthWraps", "PDLengthNineBits"}, Run: onPrivateData(initiator, 251, 252, 253, 255, 256, 508),
}, {
	ID: "mpa/private/length-of-a-reply", Cite: cite("rfc5044/7.1.1/12"),
	Title:   "PD_Length of a Reply is the length of its private data",
	Sends:   "Requests; the device accepts with 1, 16, 251, 252, 256 and 508 octets of private data",
	Expects: "Replies with the data and its length",
	Defects: []string{"LengthWraps", "PDLengthNineBits"}, Run: onPrivateData(responder, 1, 16, 251, 252, 256, 508),
}, {
	ID: "mpa/private/no-more-than-512-is-sent", Cite: cite("rfc5044/7.1.1/12"),
	Title:   "A device sends no Reply with more than 512 octets of private data, enhanced data included",
	Sends:   "enhanced Requests; the device accepts with 509, 512 and 513 octets of private data, or rejects if it cannot",
	Expects: "Replies with a PD_Length of at most 512",
	Defects: []string{"PrivateDataOver512"}, Run: onHost(func(h *host) {
		for _, n := range []int{509, 512, 513} {
			hs := h.sendRequest(setup{respond: func(r verbs.ConnRequest, qp verbs.QP) (verbs.Conn, error) {
				conn, err := r.Accept(qp, *privateDataParam(data(n)), appTimeout)
				if err != nil {
					_ = r.Reject(nil) // the case fails if the device sends nothing
				}
				return conn, err
			}}, enhancedRequest())
			f := hs.recvFrame()
			hs.Check(iwarp.Val(f.PDLength) <= 512, "a PD_Length of at most 512", "%d", iwarp.Val(f.PDLength))
			if !iwarp.Val(f.R) {
				hs.establish()
				continue
			}
			hs.expectConnError()
		}
	}),
}, {
	ID: "mpa/private/above-512-closes", Cite: cite("rfc5044/7.1.1/13"),
	Title:   "A Request with more than 512 octets of private data ends the stream",
	Sends:   "Requests with 513, 600 and 1024 octets of private data, and with 509 octets after enhanced data",
	Expects: "the end of the stream without a Reply, and no connection request",
	Defects: []string{"LongPrivateDataTaken"},
	Run: onInvalidRequests(revision1Request().Private(data(513)), revision1Request().Private(data(600)), revision1Request().Private(data(1024)),
		enhancedRequest().Private(data(509))),
}, {
	ID: "mpa/private/512-in-a-request", Cite: cite("rfc5044/7.1.1/14"),
	Title:   "A Request may have 512 octets of private data",
	Sends:   "Requests of revision 1 with 512 octets, and with 1, 3, 4, 255 to 257 and 511; enhanced ones with as many, and with 508 octets after the enhanced data",
	Expects: "the application gets the data, and connections are established",
	Defects: []string{"PrivateData256"}, Run: onHost(func(h *host) {
		frames := []startupFrame{revision1Request().Private(data(512)), revision1Request().Private(data(511)), enhancedRequest().Private(data(508)), enhancedRequest().Private(data(507))}
		for _, n := range []int{1, 3, 4, 255, 256, 257} {
			frames = append(frames, revision1Request().Private(data(n)), enhancedRequest().Private(data(n)))
		}
		for _, f := range frames {
			hs := h.sendRequest(setup{}, f)
			hs.establishAfter(iwarp.Reply().Reject(false))
			h.checkRequestPrivateData(hs.requestParam.PrivateData, f.PrivateData)
		}
	}),
}, {
	ID: "mpa/private/512-in-a-reply", Cite: cite("rfc5044/7.1.1/14", "rfc5042/x/1"),
	Labels:  []string{conformance.Dangerous},
	Title:   "A Reply may have 512 octets of private data",
	Sends:   "Replies with 512 octets of private data, enhanced data included, and with 511, 260, 256, 255 and 5",
	Expects: "a connection, and the application gets the data",
	Defects: []string{"PrivateData256", "BadReplyHangs"}, Run: onHost(func(h *host) {
		for _, n := range []int{512, 511, 260, 256, 255, 5} {
			hs := h.startActive(setup{})
			if iwarp.Val(hs.recvFrame().S) {
				n -= 4
			}
			hs.sendReply(func(f startupFrame) startupFrame { return f.Private(data(n)) })
			hs.checkRequestPrivateData(hs.establish().deviceConn.Param().PrivateData, data(n))
		}
	}),
}, {
	ID: "mpa/private/more-than-was-announced", Cite: cite("rfc5044/7.1.2/14"),
	Title:   "Octets after the private data of a Request or a Reply are not part of it",
	Sends:   "a Request with 8 octets of private data, and 56 more: in the same segment (20 as well), and in another before the application accepts; a Reply with 8 octets, and 56 zeros after them",
	Expects: "the application gets 8 octets, or no request or connection; the end of the stream, because the other octets are no FPDU",
	Defects: []string{"PrivateDataOverrun", "EarlyOctetsSkipped", "ReplyDataOverrun"}, Run: onHost(func(h *host) {
		h.expectReplyDataBounded()
		whole := revision1Request().Private(data(64)).PrivateLength(8).Append(nil)
		end := len(whole) - 56 // of the announced private data
		for _, p := range []struct{ octets, first int }{{end + 56, end + 56}, {end + 56, end}, {end + 20, end + 20}} {
			octets, first := whole[:p.octets], p.first
			hs := h.startPassive(setup{respond: func(r verbs.ConnRequest, qp verbs.QP) (verbs.Conn, error) {
				h.Sleep(shortWait) // the device receives the second segment
				return r.Accept(qp, defaultParam, appTimeout)
			}})
			hs.write(octets[:first])
			h.Sleep(shortWait / 2) // the application gets the request
			if first < len(octets) {
				hs.write(octets[first:])
			}
			hs.expectEndOfStartup()
			h.Must("a closed listener", hs.listener.Close()) // ends the wait for a Request that the device refused
			_ = hs.awaitResult()
			if got := hs.requestParam.PrivateData; got != nil {
				h.checkRequestPrivateData(got, data(8))
			}
		}
	}),
}, {
	ID: "mpa/private/none-is-none", Cite: cite("rfc5044/7.1.1/12", "rfc5044/7.1.1/14"),
	Title:   "Without private data PD_Length is 0, or 4 with enhanced data, and the application gets none",
	Sends:   "a Reply, and Requests of both revisions, without private data",
	Expects: "frames without private data, and the application gets none",
	Defects: []string{"EnhancedUncounted"}, Run: onHost(func(h *host) {
		hs := h.startActive(setup{})
		hs.checkPrivateData(hs.recvFrame(), nil)
		h.checkRequestPrivateData(hs.establishWithReply(nil).deviceConn.Param().PrivateData, nil)
		for _, f := range []startupFrame{revision1Request(), enhancedRequest()} {
			hs := h.sendRequest(setup{}, f)
			hs.checkPrivateData(hs.recvFrame(), nil)
			hs.establish()
			h.checkRequestPrivateData(hs.requestParam.PrivateData, nil)
		}
	}),
}}
