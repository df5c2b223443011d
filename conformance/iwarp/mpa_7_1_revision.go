package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectEndAndConnError fails the case unless the device ends the stream and the connect of the
// application fails.
func (hs *handshake) expectEndAndConnError() {
	hs.expectEnd()
	hs.expectConnError()
}

// sendPartAndClose sends the first n octets of a frame and FIN.
func (c *conn) sendPartAndClose(b []byte, n int) {
	c.write(b[:n])
	c.closeWrite()
}

// revision1Request returns a valid Request of revision 1.
func revision1Request() startupFrame { return iwarp.Request() }

// malformedRequests are octets that are no valid Request.
var malformedRequests = []struct {
	what   string
	octets []byte
}{
	{"zeros", make([]byte, 64)},
	{"another protocol", []byte("GET / HTTP/1.1\r\nHost: device\r\n\r\n")},
	{"a Reply", iwarp.Reply().Append(nil)},
	{"revision 9", iwarp.Request().Revision(9).Append(nil)},
	{"513 octets of data", iwarp.Request().Private(data(513)).Append(nil)},
	{"65535 octets announced", iwarp.Request().PrivateLength(65535).Private(data(512)).Append(nil)},
}

var mpaRevisionCases = []conformance.Case{{
	ID: "mpa/start/unknown-revision-of-a-request-closes", Cite: cite("rfc5044/7.1.1/11", "rfc5044/8/4"),
	Title:   "A responder closes a stream that begins with an unknown revision",
	Sends:   "Requests of revision 3, 4, 128 and 255",
	Expects: "the end of the stream without a Reply, and no connection request",
	Defects: []string{"AnyRevision"},
	Run:     onInvalidRequests(revision1Request().Revision(3), enhancedRequest().Revision(3), revision1Request().Revision(4), revision1Request().Revision(128), revision1Request().Revision(255)),
}, {
	ID: "mpa/start/revision-0-closes", Cite: cite("rfc5044/7.1.1/11"), Level: conformance.Should,
	Title:   "A responder closes a stream that begins with a Request of revision 0",
	Sends:   "a Request of revision 0",
	Expects: "the end of the stream without a Reply, and no connection request",
	Defects: []string{"TakesRevision0"}, Run: onInvalidRequests(revision1Request().Revision(0)),
}, {
	ID: "mpa/start/unknown-revision-of-a-reply-closes", Cite: cite("rfc5044/7.1.2/7", "rfc5044/7.1.1/11"),
	Title:   "An initiator closes the stream after a Reply of an unknown revision",
	Sends:   "Replies of revision 3 and 255",
	Expects: "the end of the stream, and a connect that fails",
	Defects: []string{"AnyRevision"}, Run: onInvalidReplies(
		func(f startupFrame) startupFrame { return f.Revision(3) },
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
			c.ExpectCompletion(2, verbs.WCSuccess)
			c.ExpectCompletion(3, verbs.WCSuccess)
		}
	}),
}, {
	ID: "mpa/start/malformed-request-ends-it", Cite: cite("rfc5044/8/4", "rfc5044/7.1.2/3"),
	Title:   "An invalid Request ends the stream without waiting for a timer",
	Sends:   "zeros, another protocol, a Reply, an unknown revision, too much private data",
	Expects: "the end of each stream, without a Reply, before any timer",
	Defects: []string{"BadRequestHangs"}, Run: onHost(func(h *host) {
		l := h.listen()
		for _, m := range malformedRequests {
			h.Note("%s", m.what)
			c := h.dialAndSend(l, m.octets)
			c.expectEndWithin(belowStartupTimer)
			h.expectNoConnRequest(l)
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
			c := h.dialAndSend(l, nil)
			c.sendPartAndClose(b, n)
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
			f := iwarp.Reply().Revision(iwarp.Val(hs.gotFrame.Rev)).Private(data(16))
			if hs.gotFrame.Enhanced != nil {
				f = f.Depths(1, 1).PeerToPeer(iwarp.RTRWrite)
			}
			hs.sendPartAndClose(f.Append(nil), n)
			hs.expectEndAndConnError()
		}
	}),
}}
