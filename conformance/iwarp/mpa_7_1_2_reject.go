package iwarp

import (
	"errors"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// rejects is a program that refuses every request, and says something with it.
func rejects(private []byte) setup {
	return setup{answer: func(r verbs.ConnRequest, _ verbs.QP) (verbs.Conn, error) { return nil, r.Reject(private) }}
}

// nothingMore ends the case if the device sends anything more. It may end the stream,
// or leave that to the peer: RFC 5044 has both.
func (c *conn) nothingMore() {
	g, ok := c.next(quiet)
	c.Check(!ok, "nothing more", "%v", g)
	c.Check(len(c.in.Pending()) == 0, "nothing more", "%s", told(c.in.Pending()))
}

// bothRevisions runs a body with a Request of revision 1 and an enhanced one.
func bothRevisions(s setup, body func(*start)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, f := range []startup{plain(), request()} {
			st := h.listening(s)
			st.say(f)
			body(st)
			st.Must("a request that can be rejected", st.ended())
		}
	})
}

var mpaRejectCases = []conformance.Case{
	{
		ID:    "mpa/reject/program-says-no",
		Title: "A Request that the program refuses is answered by a Reply with R set",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/4", "rfc5044/7.1.1/8"), Level: conformance.Must, Needs: needed,
		Sends:   "Requests of both revisions",
		Expects: "Replies with R set",
		Defects: []string{"RejectCloses"},
		Run:     bothRevisions(rejects(nil), func(st *start) { st.hears(iwarp.Reply().Reject(true)) }),
	},
	{
		ID:    "mpa/reject/private-data-goes-with-it",
		Title: "What a program says as it refuses a Request goes with the Reply",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/4", "rfc5044/7.1.1/12"), Level: conformance.Must, Needs: needed,
		Sends:   "Requests of both revisions",
		Expects: "Replies with R set and the program's 24 octets",
		Defects: []string{"RejectCloses"},
		Run: bothRevisions(rejects(data(24)), func(st *start) {
			st.carries(st.hears(iwarp.Reply().Reject(true)), data(24))
		}),
	},
	{
		ID:    "mpa/reject/nothing-follows",
		Title: "Nothing follows a Reply with R set",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/5"), Level: conformance.Must, Needs: needed,
		Sends:   "Requests of both revisions",
		Expects: "Replies with R set and no octet behind them; the end of the stream or not",
		Defects: []string{"TalksAfterReject"},
		Run: bothRevisions(rejects(nil), func(st *start) {
			st.hears(iwarp.Reply().Reject(true))
			st.full().nothingMore()
		}),
	},
	{
		ID:    "mpa/reject/initiator-sends-nothing",
		Title: "An initiator that is rejected sends nothing more, and has no connection",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/8"), Level: conformance.Must, Needs: needed,
		Sends:   "a Reply with R set",
		Expects: "no FPDU, and a connect that fails",
		Defects: []string{"RejectIsAccept"},
		Run: onConnecting(setup{}, func(st *start) {
			st.hear()
			st.reply(func(f startup) startup { return f.Reject(true) })
			st.full().nothingMore()
			st.fails()
		}),
	},
	{
		ID:    "mpa/reject/initiator-is-told-with-the-data",
		Title: "A program whose Request is rejected is told so, with what came with the Reply",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/8"), Level: conformance.Must, Needs: needed,
		Sends:   "a Reply with R set and 24 octets of private data",
		Expects: "a connect that fails as rejected, with those octets",
		Defects: []string{"RejectIsAccept", "RejectCloses"},
		Run: onConnecting(setup{}, func(st *start) {
			st.hear()
			st.reply(func(f startup) startup { return f.Reject(true).Private(data(24)) })
			st.full().nothingMore()
			var why *verbs.RejectError
			err := st.fails()
			st.Check(errors.As(err, &why), "a connect that fails as rejected", "%v", err)
			st.shown(why.PrivateData, data(24))
		}),
	},
}
