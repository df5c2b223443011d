package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var answerCases = []conformance.Case{
	{
		ID:    "rc/ack/ack-past-a-read-repeats-the-read",
		Title: "An ACK past a READ without answer shows that the answer was lost: the READ is sent again",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/5"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "an ACK with the PSN of the last of WRITE, READ, WRITE, SEND; then what the requests from the READ on are due",
		Expects: "the first WRITE completes and no more; all from the READ on comes again, and completes with the READ's data",
		Defects: []string{"AckSkipsRead"},
		Run: on(setup{change: timesOut(timeoutCode, 7)}, func(c *conn) {
			answersSkipped(c, c.reading(2, 8), c.wantRead(1, 8), ib.ReadResponseOnly(c.sq(1), 2, data(8)))
		}),
	},
	{
		ID:    "rc/ack/ack-past-an-atomic-repeats-the-atomic",
		Title: "An ACK past an atomic without answer shows that the answer was lost: the atomic is sent again",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/5"}}, Level: conformance.Must, Needs: verbs.CapRC | verbs.CapAtomics,
		Labels:  []string{"service:rc"},
		Sends:   "an ACK with the PSN of the last of WRITE, FETCH_ADD, WRITE, SEND; then what the requests from the atomic on are due",
		Expects: "the first WRITE completes and no more; all from the atomic on comes again, and completes",
		Defects: []string{"AckSkipsRead"},
		Run: on(setup{change: timesOut(timeoutCode, 7)}, func(c *conn) {
			answersSkipped(c, c.adding(2), c.wantAdd(1), ib.AtomicAck(c.sq(1), 2, 7))
		}),
	},
	{
		ID:    "rc/ack/read-response-acknowledges-earlier-writes",
		Title: "The answer to a READ acknowledges the SENDs and WRITEs before it",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/6"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "READ responses, and no ACK, to a WRITE, a SEND and a READ of three responses",
		Expects: "three completions in order",
		Defects: []string{"ReadAckIgnored"},
		Run: on(setup{}, func(c *conn) {
			c.PostSend(c.qp, c.writing(1, 8), c.sending(2, 2500), c.reading(3, 2500))
			c.expectsAll(c.wantWrite(0, 8), c.wantSend(1, 2500), c.wantRead(4, 2500))
			c.send(ib.ReadResponses(c.sq(4), 3, data(2500), pathMTU.Bytes())...)
			for id := range uint64(3) {
				c.ExpectCompletion(id+1, verbs.WCSuccess)
			}
			c.ExpectBytes(c.own, sink, data(2500))
		}),
	},
	{
		ID:    "rc/ack/atomic-answer-acknowledges-earlier-sends",
		Title: "The answer to an atomic acknowledges the SENDs and WRITEs before it",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/6"}}, Level: conformance.Must, Needs: verbs.CapRC | verbs.CapAtomics,
		Labels:  []string{"service:rc"},
		Sends:   "an atomic ACK, and no other, to a SEND, a WRITE and a FETCH_ADD",
		Expects: "three completions in order",
		Defects: []string{"ReadAckIgnored"},
		Run: on(setup{}, func(c *conn) {
			c.PostSend(c.qp, c.sending(1, 8), c.writing(2, 8), c.adding(3))
			c.expectsAll(c.wantSend(0, 8), c.wantWrite(1, 8), c.wantAdd(2))
			c.send(ib.AtomicAck(c.sq(2), 3, 7))
			for id := range uint64(3) {
				c.ExpectCompletion(id+1, verbs.WCSuccess)
			}
		}),
	},
	{
		ID:    "rc/ack/plain-ack-completes-no-read",
		Title: "A plain ACK with the PSN of a READ does not complete it",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/9"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "an ACK with the PSN of a READ; if the READ comes again, its answer",
		Expects: "the READ again, which completes with its data, or an error",
		Defects: []string{"AckCompletesRead"},
		Run:     plainAckToRead,
	},
	{
		ID:    "rc/ack/plain-ack-completes-no-atomic",
		Title: "A plain ACK with the PSN of an atomic does not complete it",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/9"}}, Level: conformance.Must, Needs: verbs.CapRC | verbs.CapAtomics,
		Labels:  []string{"service:rc"},
		Sends:   "an ACK with the PSN of a FETCH_ADD; if that comes again, its answer",
		Expects: "the FETCH_ADD again, which completes with its answer, or an error",
		Defects: []string{"AckCompletesRead"},
		Run: on(setup{change: timesOut(timeoutCode, 7)}, func(c *conn) {
			answersPlain(c, c.adding(1), c.wantAdd(0), ib.AtomicAck(c.sq(0), 1, 7))
		}),
	},
	{
		ID:    "rc/ack/old-ack-among-read-responses-ignored",
		Title: "An ACK that comes again among the responses of a READ changes nothing",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/10"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "to a WRITE and a READ of three responses: the ACK of the WRITE, and again behind the first and the second response",
		Expects: "the READ completes with all its data",
		Defects: []string{"StaleAckBreaksRead"},
		Run: on(setup{}, func(c *conn) {
			c.PostSend(c.qp, c.writing(1, 4), c.reading(2, 2500))
			c.expectsAll(c.wantWrite(0, 4), c.wantRead(1, 2500))
			ack := ib.Ack(c.sq(0), 1)
			r := ib.ReadResponses(c.sq(1), 2, data(2500), pathMTU.Bytes())
			c.send(ack, r[0], ack, r[1], ack, r[2])
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.ExpectCompletion(2, verbs.WCSuccess)
			c.ExpectBytes(c.own, sink, data(2500))
			c.ExpectUnchanged(c.own, sink, 2500)
			c.ExpectState(c.qp, verbs.QPStateRTS)
		}),
	},
	{
		ID:    "rc/ack/resent-responses-with-loss-leave-no-hole",
		Title: "Answers that are late, come twice and lack a packet leave no hole in what was read",
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/ack/10", "roce/cq/10"}}, Level: conformance.Must, Needs: verbs.CapRC,
		Labels:  []string{"service:rc"},
		Sends:   "after a WRITE and a READ of three responses have been repeated: the answers without the second response, then all of them",
		Expects: "the READ completes with all its data",
		Defects: []string{"StaleAckBreaksRead"},
		Run: on(setup{change: timesOut(timeoutCode, 7)}, func(c *conn) {
			c.PostSend(c.qp, c.writing(1, 4), c.reading(2, 2500))
			all := c.expectsAll(c.wantWrite(0, 4), c.wantRead(1, 2500))
			c.repeats(all, 0) // answers take longer than the device waits
			ack := ib.Ack(c.sq(0), 1)
			r := ib.ReadResponses(c.sq(1), 2, data(2500), pathMTU.Bytes())
			c.send(ack, r[0], r[2])
			c.send(ack, r[0], r[1], r[2])
			c.ExpectCompletion(1, verbs.WCSuccess)
			answersRead(c, data(2500))
			c.ExpectUnchanged(c.own, sink, 2500)
			c.ExpectState(c.qp, verbs.QPStateRTS)
		}),
	},
}

// answersSkipped has the device post a WRITE, some request, a WRITE and a SEND, and
// acknowledges the last of them, as if only the answer to that request was lost.
func answersSkipped(c *conn, wr verbs.SendWR, request []ib.Packet, answer ib.Packet) {
	c.PostSend(c.qp, c.writing(1, 8), wr, c.writing(3, 16), c.sending(4, 24))
	all := c.expectsAll(c.wantWrite(0, 8), request, c.wantWrite(2, 16), c.wantSend(3, 24))
	c.send(ib.Ack(c.sq(3), 4))
	c.ExpectCompletion(1, verbs.WCSuccess)
	c.settle()
	c.ExpectNoCompletion()
	c.expectsAll(all[1:])
	c.send(answer, ib.Ack(c.sq(3), 4))
	for id := range uint64(3) {
		c.ExpectCompletion(id+2, verbs.WCSuccess)
	}
	if len(answer.Payload) > 0 {
		c.ExpectBytes(c.own, sink, answer.Payload)
	}
}

// answersPlain has the device post a request and answers it with a plain ACK. The
// device may take that for a sign that the answer was lost, at once or when its timer
// expires, or for a bad response.
func answersPlain(c *conn, wr verbs.SendWR, request []ib.Packet, answer ib.Packet) (succeeded bool) {
	c.PostSend(c.qp, wr)
	c.expectsAll(request)
	c.send(ib.Ack(c.sq(0), 1))
	again, ok := c.next(c.ResponseTimeout())
	if !ok {
		wc := c.NextCompletion()
		c.Check(wc.Status != verbs.WCSuccess, "the request again, or an error", "success")
		return false
	}
	c.same(request[0], again)
	c.ExpectNoCompletion()
	c.send(answer)
	c.ExpectCompletion(wr.WRID, verbs.WCSuccess)
	return true
}

// answersRead answers the READ under way, request 2 from the device's second PSN on, as
// often as it comes again, until it completes, which has to be with success and all of
// the data.
func answersRead(c *conn, all []byte) {
	for tries := 0; ; tries++ {
		if wc, ok := c.PollCompletion(soon); ok {
			c.Check(wc.WRID == 2 && wc.Status == verbs.WCSuccess, "the READ to complete", "request %d: %v", wc.WRID, wc.Status)
			c.ExpectBytes(c.own, sink, all)
			return
		}
		p := c.expects(ib.Op(ib.OpReadRequest))
		c.Check(tries < 8, "a READ that completes when it is answered", "%v again and again", p)
		skip := p.PSN().Sub(c.sq(1)) * pathMTU.Bytes()
		c.send(ib.ReadResponses(p.PSN(), 2, all[skip:], pathMTU.Bytes())...)
	}
}

// plainAckToRead is the body of two cases: what an ACK may not do to a READ, and what a
// completion of a READ may not come without.
var plainAckToRead = on(setup{change: timesOut(timeoutCode, 7)}, func(c *conn) {
	if answersPlain(c, c.reading(1, 8), c.wantRead(0, 8), ib.ReadResponseOnly(c.sq(0), 1, data(8))) {
		c.ExpectBytes(c.own, sink, data(8))
	}
})
