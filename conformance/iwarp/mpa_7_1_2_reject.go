package iwarp

import (
	"errors"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// rejectingSetup returns a setup whose application rejects the connection with private data.
func rejectingSetup(private []byte) setup {
	return setup{respond: func(r verbs.ConnRequest, _ verbs.QP) (verbs.Conn, error) { return nil, r.Reject(private) }}
}

// expectNothingMore fails the case if the device sends more octets. RFC 5044 allows it to close
// the stream or to leave that to the peer.
func (c *conn) expectNothingMore() {
	g, ok := c.nextFPDU(silencePeriod)
	c.Check(!ok, "nothing more", "%v", g)
	c.Check(len(c.deframer.Pending()) == 0, "nothing more", "%s", describeOctets(c.deframer.Pending()))
}

// onBothRevisions makes the body of a case that runs with a Request of revision 1 and an enhanced one.
func onBothRevisions(s setup, body func(*handshake)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, f := range []startupFrame{revision1Request(), enhancedRequest()} {
			hs := h.startPassive(s)
			hs.sendFrame(f)
			body(hs)
			hs.Must("a request that can be rejected", hs.awaitResult())
		}
	})
}

var mpaRejectCases = []conformance.Case{{
	ID: "mpa/reject/program-says-no", Cite: cite("rfc5044/7.1.2/4", "rfc5044/7.1.1/8"),
	Title:   "A Request that the application rejects gets a Reply with R set",
	Sends:   "Requests of both revisions",
	Expects: "Replies with R set",
	Defects: []string{"RejectCloses"},
	Run:     onBothRevisions(rejectingSetup(nil), func(hs *handshake) { hs.expectFrame(iwarp.Reply().Reject(true)) }),
}, {
	ID: "mpa/reject/private-data-goes-with-it", Cite: cite("rfc5044/7.1.2/4", "rfc5044/7.1.1/12"),
	Title:   "The Reply to a rejected Request carries the application's private data",
	Sends:   "Requests of both revisions",
	Expects: "Replies with R set and the application's 24 octets",
	Defects: []string{"RejectCloses"}, Run: onBothRevisions(rejectingSetup(data(24)), func(hs *handshake) {
		hs.checkPrivateData(hs.expectFrame(iwarp.Reply().Reject(true)), data(24))
	}),
}, {
	ID: "mpa/reject/nothing-follows", Cite: cite("rfc5044/7.1.2/5"),
	Title:   "Nothing follows a Reply with R set",
	Sends:   "Requests of both revisions",
	Expects: "Replies with R set and no octet after them; the device may close the stream",
	Defects: []string{"TalksAfterReject"}, Run: onBothRevisions(rejectingSetup(nil), func(hs *handshake) {
		hs.expectFrame(iwarp.Reply().Reject(true))
		hs.enterFullOperation().expectNothingMore()
	}),
}, {
	ID: "mpa/reject/initiator-sends-nothing", Cite: cite("rfc5044/7.1.2/8"),
	Title:   "A rejected initiator sends nothing more, and has no connection",
	Sends:   "a Reply with R set",
	Expects: "no FPDU, and a connect that fails",
	Defects: []string{"RejectIsAccept"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.recvFrame()
		hs.sendReply(func(f startupFrame) startupFrame { return f.Reject(true) })
		hs.enterFullOperation().expectNothingMore()
		hs.expectConnError()
	}),
}, {
	ID: "mpa/reject/initiator-is-told-with-the-data", Cite: cite("rfc5044/7.1.2/8"),
	Title:   "The application of a rejected initiator gets the rejection with its private data",
	Sends:   "a Reply with R set and 24 octets of private data",
	Expects: "a connect that fails as rejected, with the octets",
	Defects: []string{"RejectIsAccept", "RejectCloses"}, Run: onActive(setup{}, func(hs *handshake) {
		hs.recvFrame()
		hs.sendReply(func(f startupFrame) startupFrame { return f.Reject(true).Private(data(24)) })
		hs.enterFullOperation().expectNothingMore()
		var why *verbs.RejectError
		err := hs.expectConnError()
		hs.Check(errors.As(err, &why), "a connect that fails as rejected", "%v", err)
		hs.checkRequestPrivateData(why.PrivateData, data(24))
	}),
}}
